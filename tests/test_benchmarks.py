"""What the demonstration and the benchmarks compute, on cases so small that no time is meant by it."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def load(name: str) -> ModuleType:
    """A script as a module; its folder is put before the path, as Python does for scripts."""
    path = ROOT / "benchmarks" / f"{name}.py"
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up there
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


support = load("support")


def test_the_demonstration_checks_every_result() -> None:
    sizes = ["--divide-sd", "8", "--divide-mm", "64", "--seconds", "0.001"]
    command = [sys.executable, "examples/demo.py", "--target", "cpu", *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every element of every result is within its error bound" in done.stdout
    assert done.stdout.count("dataset_") == 8


def test_the_cases_are_contractions() -> None:
    cases = json.loads((ROOT / "benchmarks" / "contractions.json").read_text())
    assert len(cases) == 34
    assert len({case["name"] for case in cases}) == 34
    for case in cases:
        assert set(case["sizes"]) == set(case["expr"]) - set(",->")


def test_sizes_are_scaled_down_together() -> None:
    sizes = {"a": 312, "b": 296, "c": 24}
    assert support.sizes_within(sizes, 1.0) == sizes
    scaled = support.sizes_within(sizes, 0.001)
    assert 2e-9 * np.prod(list(scaled.values())) <= 0.001
    assert scaled["a"] % 4 == scaled["b"] % 4 == 0
    assert 0.5 < (scaled["a"] / scaled["c"]) / (312 / 24) < 2.0


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    times = support.interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 0.0)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert [len(one) for one in times.values()] == [3, 3]
    assert support.summary([3.0, 1.0, 2.0]) == {"best": 1.0, "median": 2.0, "runs": 3}
    assert support.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_results_are_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "RESULTS", tmp_path)
    content = {"machine": support.describe_machine(), "rows": [{"name": "x", "best": 1.0}, {"name": "y"}]}
    assert json.loads(support.write_results("trial", content).read_text()) == content


def test_the_gpu_benchmark_notices_a_wrong_element() -> None:
    gpu = load("gpu")
    sizes = {"a": 5, "b": 6, "q": 7}
    arrays = gpu.operands("aq,qb->ab", sizes)
    right = arrays[0] @ arrays[1]
    assert gpu.sampled_error("aq,qb->ab", sizes, arrays, right) <= 1.0
    for value in (1.0, np.nan):
        wrong = right.copy()
        wrong[4, 5] += value
        assert gpu.sampled_error("aq,qb->ab", sizes, arrays, wrong) > 1.0
    names = [name for name, _, _ in gpu.cases(4)]
    assert len(names) == len(set(names)) == len(gpu.FIRST) + 8 + 4 + 34


def test_threads_are_measured_on_one_and_on_two() -> None:
    threads = load("threads")
    row = threads.measure("ij,jk->ik", dict(i=40, j=30, k=20), "float32", 0.001, long_turns=False)
    assert row["gflops_1"] > 0 and row["gflops_2"] > 0 and row["ratio"] > 0
    assert 0 <= row["others"] <= 1.01 or np.isnan(row["others"])
    names = [name for name, _, _ in threads.cases("*")]
    assert len(names) == len(threads.PRODUCTS) + len(threads.CONTRACTIONS) + len(threads.LONG_SUMS)
    shown = threads.shown({"what": "x", "dtype": "f32", "machine": "quiet", **row, "ideal": 2.0, "share_of_ideal": 0.5})
    assert "50% of 2.0" in shown


def test_reductions_mean_the_same_to_every_contender() -> None:
    reductions = load("reductions")
    options = SimpleNamespace(
        name="*", dtype="f32,i8", shape="12x7", peers="numpy", threads=1, clock="cpu", seconds=0.0
    )
    rows = [reductions.measure(case, options) for case in reductions.cases(options)]
    assert len(rows) == len({(row["function"], row["over"], row["dtype"]) for row in rows}) > 30
    assert all(row["correct"] and {"tilewright", "numpy"} <= set(row["contenders"]) for row in rows)
    assert not reductions.is_right(np.ones(3), np.full(3, 2.0), "f32", 4)


def test_the_half_busy_core_ends_with_its_block() -> None:
    threads = load("threads")
    with threads.half_busy_core() as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_tensor_operations_mean_the_same_to_every_contender() -> None:
    """Small operations of each kind: ours, and what the benchmark asks of NumPy and finds for etops and torch."""
    import tilewright as tw

    benchmark = load("tensor_operations")
    blocked = tw.TensorOperation.from_lists(
        "f32", "contraction", "MNKMNK", ["seq"] * 6, (2, 3, 2, 4, 5, 6), (48, 0, 24, 1, 0, 4), (0, 60, 30, 0, 6, 1),
        (60, 20, 0, 1, 4, 0), last_touch="relu", first_touch="zero",
    )  # fmt: skip
    operations = [
        blocked, blocked.replace(first_touch="none", last_touch="none"),
        benchmark.unary("f32", "copy", "abc->cab", {"a": 3, "b": 4, "c": 5}),
        benchmark.unary("f32", "relu", "ab->ab", {"a": 3, "b": 4}),
        benchmark.unary("f32", "zero", "ab->ab", {"a": 3, "b": 4}),
    ]  # fmt: skip
    peers = [name for name in benchmark.PEERS if benchmark.is_installed(name)]
    for operation in operations:
        rng = np.random.default_rng(1)
        arrays = [benchmark.placed(rng.uniform(-1, 1, n).astype("f"), 16) if n else None for n in operation.extents]
        assert all(one is None or one.ctypes.data % 64 == 16 for one in arrays)
        before = arrays[2].copy()
        calls = benchmark.contenders(benchmark.Case("case", operation, {}), peers, arrays, 1)
        assert {"tilewright", "numpy"} <= set(calls)
        results = {}
        for name, call in calls.items():
            arrays[2][...] = before
            call()
            results[name] = arrays[2].copy()
        for name, result in results.items():
            np.testing.assert_allclose(result, results["tilewright"], rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_cases_of_tensor_operations_have_names_of_their_own() -> None:
    names = [case.name for case in load("tensor_operations").cases("f32")]
    assert len(names) == len(set(names)) > 30


def test_the_examples_and_those_of_their_peers_that_are_installed_agree() -> None:
    benchmark, peers = load("programs"), load("program_peers")
    packages = [name for name in ("numpy", "jax", "torch") if importlib.util.find_spec(name) is not None]
    found = {name: peers.peers(name, 1) for name in packages}
    names = []
    for name, program, module in benchmark.cases("*"):
        row = benchmark.measure(name, program, module, found, "tiny", 0.0, 1)
        assert all(row["correct"].values()), row
        assert set(row["correct"]) == {"tilewright", *(one for one in packages if name in found[one])}
        assert ("ratio" in row) == (len(row["times"]) > 1)
        names.append(name)
    assert set(found["numpy"]) | {"segmented"} == set(names)


def test_segments_are_right() -> None:
    command = [sys.executable, "benchmarks/segments.py", "--scale", "0.001", "--seconds", "0.001"]
    name = "segments-of-a-test"
    written = ROOT / "benchmarks" / "results" / f"{name}.json"
    try:
        done = subprocess.run([*command, "--output", name], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads(written.read_text())["rows"]
        assert len(rows) == 13
        assert all(one["error"] < 1e-3 for row in rows for one in row["contenders"].values())
    finally:
        written.unlink(missing_ok=True)


def cases_of_a_clock(patched: pytest.MonkeyPatch, hangs: Path) -> Any:
    """`isolated`, whose time goes on only once this file tells that a case hangs, however busy the machine is."""
    isolated, now = load("isolated"), [0.0]

    def select_(pipes: list[Any], _: object, __: object, seconds: float) -> tuple[list[Any], list[Any], list[Any]]:
        while not (ready := select.select(pipes, [], [], 0.02))[0] and not hangs.exists():
            pass
        if not ready[0]:
            hangs.unlink()
            now[0] += seconds
        return ready

    patched.setattr(isolated, "select", SimpleNamespace(select=select_))
    patched.setattr(isolated, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return isolated


def test_no_case_takes_the_others_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors, broken devices, a process that ends or crashes, and one that does not come back."""
    hangs = tmp_path / "hangs"
    isolated = cases_of_a_clock(monkeypatch, hangs)

    def work(name: str) -> int:
        match name:
            case "wrong":
                raise ValueError("of this case only")
            case "broken":
                raise ConnectionError("of the device")
            case "gone":
                os._exit(7)
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                hangs.touch()
                time.sleep(600)
        return os.getpid()

    names = ["a", "wrong", "b", "broken", "c", "gone", "crash", "d", "hangs", "e"]
    outcomes = list(isolated.isolated(names, work, ConnectionError, seconds_each=4.0))
    assert [one.name for one in outcomes] == names
    processes = {one.name: one.result for one in outcomes if one.result is not None}
    problems = {one.name: one.problem for one in outcomes if one.problem}
    assert set(processes) == {"a", "b", "c", "d", "e"}
    assert processes["a"] == processes["b"] != os.getpid()
    assert len(set(processes.values())) == 4
    assert "of this case only" in problems["wrong"] and "of the device" in problems["broken"]
    assert "exit code 7" in problems["gone"] and "exit code -9" in problems["crash"]
    assert "not done after 4 seconds" in problems["hangs"]
    assert not any(one.begun for one in isolated.isolated(names, work, ConnectionError, seconds=0.0))


def test_a_case_that_is_not_done_long_after_the_time_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    isolated = cases_of_a_clock(monkeypatch, hangs)
    start = time.monotonic()
    names = ["quick", "slow", "next"]
    work = {"quick": lambda: 1, "slow": lambda: (hangs.touch(), time.sleep(600)), "next": lambda: 2}
    quick, slow, rest = isolated.isolated(names, lambda name: work[name](), OSError, seconds=1.0, late=1.0)
    assert time.monotonic() - start < 500  # less than the case takes
    assert quick.result == 1 and "not done after 2 seconds" in slow.problem and not rest.begun
