"""Tuning real programs: measured, stored, taken up again, picked up by later programs, and from the command line."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_versions_run import compiled
from tuned_programs import matmul, row_sums
from typer.testing import CliRunner

import tilewright as tw
from tilewright.cli import tune as tune_command
from tilewright.cli.main import app
from tilewright.passes.flattening.flatten_tree import machine_thresholds
from tilewright.runtime.devices import device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.thresholds import threshold_of
from tilewright.tune import tuner
from tilewright.tune.keys import TuningWarning, device_key, program_digest
from tilewright.tune.lookup import tuned
from tilewright.tune.store import TuningStore
from tilewright.tune.text import Tuning, TuningError, read_tunings, write_tunings
from tilewright.tune.tuner import Timing, tune

DATA = {"wide": (np.ones((2, 64)),), "long": (np.ones((64, 2)),)}
SHORT = Timing(1, 0.0)
SOURCE = """
import numpy as np
import tilewright as tw

@tw.program(flattening="incremental")
def sums(xss: tw.f64["n", "m"]):
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)

@tw.program
def plain(xs: tw.f64["n"]):
    return tw.map(lambda x: x + x, xs)

def datasets():
    return {"wide": (np.ones((2, 64)),), "long": lambda: (np.ones((64, 2)),)}
"""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TuningStore]:
    """A store of this test alone; warnings that a test does not expect are errors."""
    monkeypatch.setenv("TILEWRIGHT_TUNINGS", str(tmp_path / "tunings.sqlite3"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        yield TuningStore()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Times that are not measured but made up, by the version that runs: "outer", "block" or "flat", and data set."""
    made: dict[str, float] = {}
    running: list[Executable] = []
    comparisons = Executable.comparisons

    def noting(self: Executable, *arguments: Any) -> Any:
        running[:] = [self, arguments]
        return comparisons(self, *arguments)

    def of(self: Timing, call: Any, limit: float = math.inf) -> float:
        call()
        executable, arguments = running
        taken = dict(comparisons(executable, *arguments))
        for name, value in taken.items():
            if name.startswith(("outer", "block")) and value >= executable.thresholds[name]:
                return made[f"{name.partition('_')[0]} {arguments[0].shape[0]}"]
        return made[f"flat {arguments[0].shape[0]}"]

    def model(program: Any, machine: Any) -> dict[str, float]:
        """The same for every machine: two rows are enough for blocks, not for threads."""
        return {**machine_thresholds(program, machine), "outer_0": 32.0, "block_0": 2.0}

    monkeypatch.setattr(Executable, "comparisons", noting)
    monkeypatch.setattr(Executable, "launched", lambda *_: None)  # versions whose times differ, whatever they launch
    monkeypatch.setattr(Timing, "of", of)
    monkeypatch.setattr(tuner, "machine_thresholds", model)
    made.update({"outer 2": 9.0, "block 2": 5.0, "flat 2": 1.0, "outer 64": 1.0, "block 64": 4.0, "flat 64": 5.0})
    return made


def sums(target: str = "cpu") -> Executable:
    return compiled(row_sums.trace(), target, "incremental")


def test_the_fastest_versions_are_found(times: dict[str, float], store: TuningStore) -> None:
    report = tune(sums(), DATA)
    wide, long = ((2, report.thresholds), (64, report.thresholds))
    assert wide[0] < wide[1]["outer_0"] <= long[0]
    assert report.thresholds["block_0"] > 2
    assert report.times == {"wide": (5.0, 1.0), "long": (1.0, 1.0)}
    assert report.runs == 6  # 2 data sets, 2 comparisons
    assert store.get(program_digest(sums().program), device_key(device_for("cpu"))) == report.thresholds
    assert "wide: 5 s, tuned 1 s (5.00 times as fast)" in str(report)


def test_what_was_measured_is_not_measured_again(times: dict[str, float], store: TuningStore) -> None:
    first = tune(sums(), DATA)
    again = tune(sums(), DATA)
    assert (again.runs, again.thresholds, again.times) == (0, first.thresholds, first.times)
    assert tune(sums(), DATA, fresh=True).runs == first.runs
    more = tune(sums(), {**DATA, "square": (np.ones((64, 64)),)})
    assert more.runs == 3
    other = tune(sums(), {"wide": (np.ones((2, 65)),)})
    assert other.runs == 3, "other sizes under the same name are other data"


def test_a_tuning_that_is_stopped_goes_on(times: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    made_up, count = Timing.of, 0

    def stopping(self: Timing, call: Any, limit: float) -> float:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return made_up(self, call)

    monkeypatch.setattr(Timing, "of", stopping)
    with pytest.raises(KeyboardInterrupt):
        tune(sums(), DATA)
    report = tune(sums(), DATA)
    assert report.runs == 3 and not report.found.failures
    assert 2 < report.thresholds["outer_0"] <= 64


def test_a_version_that_fails_is_left_out_and_told(times: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Timing.of

    def failing(self: Timing, call: Any, limit: float) -> float:
        time = made_up(self, call)
        if time == 1.0:
            raise MemoryError("no room for this version")
        return time

    monkeypatch.setattr(Timing, "of", failing)
    report = tune(sums(), DATA)
    assert report.times == {"wide": (5.0, 5.0)}, "the model's version of the other could not be run"
    assert {one.failure for one in report.found.failures} == {"MemoryError: no room for this version"}
    assert "failed and left out: wide" in str(report)
    values = report.thresholds
    assert values["outer_0"] > 64 and values["block_0"] <= 2
    times.update(dict.fromkeys(times, 1.0))
    with pytest.raises(RuntimeError, match=r"row_sums: no data set could be run:\nwide: MemoryError") as refused:
        tune(sums(), DATA, fresh=True)
    assert str(refused.value).count("wide: MemoryError") == 1, "each reason once"


def test_a_version_that_fails_in_a_race_is_left_out_too(
    times: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    times.update({"outer 2": 1.0, "block 2": 1.0, "flat 2": 1.0})
    call, flat = Executable.__call__, 0

    def failing(self: Executable, *arguments: Any, **options: Any) -> Any:
        nonlocal flat
        if not any(value >= self.thresholds[name] for name, value in self.comparisons(*arguments)):
            flat += 1
            if flat == 2:
                raise MemoryError("no room for it again")
        return call(self, *arguments, **options)

    monkeypatch.setattr(Executable, "__call__", failing)
    report = tune(sums(), {"wide": DATA["wide"]})
    assert "MemoryError: no room for it again" in {one.failure for one in report.found.failures}
    assert min(report.thresholds["outer_0"], report.thresholds["block_0"]) <= 2


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(ValueError, match="row_sums has one version only"):
        tune(compiled(row_sums.trace(), "cpu", "full"), DATA)
    with pytest.raises(ValueError, match="needs a data set at least"):
        tune(sums(), {})


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_real_times(target: str) -> None:
    report = tune(sums(target), DATA, timing=SHORT)
    assert {threshold_of(name) for name in report.thresholds} == {"outer_0", "block_0"} and report.runs == 6
    assert all(0 < after < math.inf for _, after in report.times.values())


def test_the_shortest_of_several_times_counts() -> None:
    calls: list[int] = []
    ticks = iter([0, 9, 9, 10, 15, 20, 23, 30, 37, 40, 44, 50])  # of the first call, then 5, 3, 7 and 4 seconds
    assert Timing(4, 0.0, lambda: float(next(ticks))).of(lambda: calls.append(1)) == 3
    assert len(calls) == 5
    assert Timing(4, 0.0).of(lambda: calls.append(1)) > 0


# --- which tuning a program gets --------------------------------------------------------------------------------------


def tuning_of(executable: Executable, values: Mapping[str, float], **changes: str) -> Tuning:
    parts = {
        "program": executable.program.name, "digest": program_digest(executable.program),
        "device": device_key(executable.device), **changes,
    }  # fmt: skip
    return Tuning(**parts, values=tuple(values.items()))


def test_a_file_beside_the_source_is_picked_up(tmp_path: Path, store: TuningStore) -> None:
    executable, source = sums(), str(tmp_path / "prog.py")
    assert tuned(executable, source) is executable
    store.put(program_digest(executable.program), device_key(executable.device), {"outer_0": 5.0}, title="row_sums")
    assert tuned(executable, source).thresholds["outer_0"] == 5.0
    write_tunings(tmp_path / "prog.tuning", [tuning_of(executable, {"outer_0": 7.0})])
    assert tuned(executable, source).thresholds == {**executable.thresholds, "outer_0": 7.0}
    write_tunings(tmp_path / "given.tuning", [tuning_of(executable, {"outer_0": 9.0})])
    assert tuned(executable, source, tmp_path / "given.tuning").thresholds["outer_0"] == 9.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"digest": "0" * 32}, r"prog.tuning: the tuning of row_sums is stale: it was made for another text"),
        ({"device": "cuda: other"}, r"row_sums is not for this device: it was made on cuda: other, this is"),
    ],
)
def test_what_does_not_fit_is_left_out_with_a_reason(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    executable = sums()
    write_tunings(tmp_path / "prog.tuning", [tuning_of(executable, {"outer_0": 7.0}, **changes)])
    with pytest.warns(TuningWarning, match=reason):
        assert tuned(executable, str(tmp_path / "prog.py")).thresholds == executable.thresholds


def test_a_tuning_of_another_program_is_nothing_to_warn_of(tmp_path: Path) -> None:
    executable = sums()
    write_tunings(tmp_path / "prog.tuning", [tuning_of(executable, {"outer_0": 7.0}, program="other")])
    assert tuned(executable, str(tmp_path / "prog.py")) is executable


def test_names_that_the_program_does_not_have_are_left_out(tmp_path: Path) -> None:
    executable = sums()
    write_tunings(tmp_path / "prog.tuning", [tuning_of(executable, {"outer_0": 7.0, "outer_8": 1.0})])
    with pytest.warns(TuningWarning, match="row_sums has no threshold outer_8; it has outer_0, block_0"):
        assert tuned(executable, str(tmp_path / "prog.py")).thresholds["outer_0"] == 7.0


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "prog.tuning").write_text("outer_0=7")
    executable = sums()
    with pytest.warns(TuningWarning, match="is not used: .*the first line must be"):
        assert tuned(executable, str(tmp_path / "prog.py")) is executable
    with pytest.raises(TuningError, match="the first line must be"):
        tuned(executable, None, tmp_path / "prog.tuning")


def test_digests_are_of_the_meaning_and_not_of_names() -> None:
    @tw.program
    def row_sums(xss: tw.f64["n", "m"]) -> Any:
        other = tw.map(lambda another: tw.reduce("add", 0, another), xss)
        return other

    @tw.program
    def row_products(xss: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda xs: tw.reduce("mul", 1, xs), xss)

    own = program_digest(sums().program)
    assert program_digest(compiled(row_sums.trace(), "cpu", "incremental").program) == own
    assert program_digest(compiled(row_products.trace(), "cpu", "incremental").program) != own
    assert program_digest(compiled(row_sums.trace(), "cpu", "full").program) != own


# --- programs ---------------------------------------------------------------------------------------------------------


def fresh_program(**options: Any) -> tw.TracedProgram:
    @tw.program(flattening="incremental", **options)
    def product(a: tw.float_["n", "k"], b: tw.float_["k", "m"]) -> Any:
        return matmul(a, b)

    return product


def test_thresholds_of_a_program() -> None:
    product = fresh_program()
    a, b = np.eye(3), np.arange(9.0).reshape(3, 3)
    model = product.thresholds("f8", "f8")
    executable = compiled(product.trace("f8", "f8"), "cpu", "incremental")
    assert model == machine_thresholds(executable.program, device_for("cpu").machine)
    for value in (0, 1, math.inf):
        forced = product.with_thresholds(dict.fromkeys(model, value))
        assert forced.thresholds("f8", "f8") == dict.fromkeys(model, value)
        np.testing.assert_array_equal(forced(a, b), b)
    changed = product.with_thresholds({"outer_0": 5}).with_thresholds({"block_0": 6})
    assert changed.thresholds("f8", "f8") == {**model, "outer_0": 5, "block_0": 6}
    assert product.thresholds("f8", "f8") == model
    with pytest.raises(ValueError, match="product has no threshold 'inner'; it has contraction_0, outer_0, block_0"):
        product.with_thresholds({"inner": 5})(a, b)
    with pytest.raises(ValueError, match="flattening='some'; there are 'incremental'"):
        tw.program(flattening="some")(lambda x: x)  # type: ignore[call-overload]


def test_explain_shows_the_tree_with_the_values_of_now() -> None:
    text = fresh_program().with_thresholds({"outer_0": 77, "contraction_0": math.inf}).explain("f8", "f8")
    assert "product: 4 versions" in text
    assert "m*n >= contraction_0 = inf?\n  yes: a contraction, tiled\n  no: m*n >= outer_0 = 77?" in text
    told = fresh_program().explain("f8", "f8")
    assert told.endswith("other versions are made when thresholds are set or tuned") and "?" not in told
    assert "versions" not in tw.program(flattening=None)(matmul.function).explain("f8", "f8")


def test_a_program_uses_its_tuning_from_then_on(times: dict[str, float]) -> None:
    def made() -> tw.TracedProgram:
        return tw.program(flattening="incremental")(row_sums.function)

    program = made()
    model = program.thresholds()
    report = program.tune(DATA)
    assert program.thresholds() == {**model, **report.thresholds} != model
    assert made().thresholds() == program.thresholds(), "a later program finds it in the store"
    assert program.with_thresholds({"outer_0": 3}).thresholds()["outer_0"] == 3
    assert program.tune(list(DATA.values())).runs == 6, "by number, they are other data sets"
    again = program.tune({"wide": lambda: DATA["wide"], "long": [np.ones((64, 2))]})
    assert again.runs == 0


def test_tuning_refuses_what_does_not_fit() -> None:
    product = fresh_program()
    f4, f8 = np.eye(3, dtype=np.float32), np.eye(3)
    with pytest.raises(ValueError, match=r"different element types \(a: f32, f32; b: f64, f64\)"):
        product.tune({"a": (f4, f4), "b": (f8, f8)})
    with pytest.raises(TypeError, match="the data set a must be a tuple of arguments"):
        product.tune({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="missing a required argument"):
        product.tune({"a": (f8,)})
    with pytest.raises(ValueError, match="has one version only"):
        tw.program(flattening=None)(matmul.function).tune({"a": (f8, f8)})


# --- the command ------------------------------------------------------------------------------------------------------


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["tune", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_writes_a_file_that_the_program_finds(tmp_path: Path, times: dict[str, float]) -> None:
    path = tmp_path / "prog.py"
    path.write_text(SOURCE)
    output = run(str(path))
    assert "sums on cpu: " in output and f"written: {tmp_path / 'prog.tuning'}" in output.replace("\n", "")
    (tuning,) = read_tunings(tmp_path / "prog.tuning")
    assert (tuning.program, tuning.device) == ("sums", device_key(device_for("cpu")))
    assert 2 < dict(tuning.values)["outer_0"] <= 64
    write_tunings(
        tmp_path / "prog.tuning", [Tuning(tuning.program, tuning.digest, tuning.device, (("outer_0", 11.0),))]
    )
    read = tune_command.read_programs(path, [], [])
    assert read.programs["sums"].thresholds()["outer_0"] == 11.0
    assert ": 0 runs" in run(str(path), "--entry", "sums", "--cost", "mean")
    assert ": 6 runs" in run(str(path), "--fresh", "-o", str(tmp_path / "other.tuning"))
    assert (tmp_path / "other.tuning").exists()


def test_the_command_takes_files_of_arguments(tmp_path: Path, times: dict[str, float]) -> None:
    path = tmp_path / "prog.py"
    path.write_text(SOURCE)
    np.savez(tmp_path / "a.npz", xss=np.ones((2, 8)))
    np.savez(tmp_path / "b.npz", xss=np.ones((64, 8)))
    output = run(str(path), "--data", f"small={tmp_path / 'a.npz'}", "--data", str(tmp_path / "b.npz"))
    assert "small: (" in output and "b: (" in output


def test_the_command_leaves_out_data_sets_of_other_programs(tmp_path: Path, times: dict[str, float]) -> None:
    """A file with programs of one and of two arguments: each is tuned on the data sets that it can take."""
    path = tmp_path / "prog.py"
    scaled = SOURCE.replace(
        "def datasets",
        """
@tw.program
def scaled(xss: tw.f64["n", "m"], alpha: tw.f64):
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda x: alpha * x, xs)), xss)

def datasets""",
    ).replace('"wide"', '"both": (np.ones((2, 64)), 2.0), "wide"')
    path.write_text(scaled)
    output = " ".join(run(str(path)).split())
    assert "left out: data set both has 2 arguments; sums(xss: f64[n, m]) takes 1" in output
    assert "left out: data set wide has 1 arguments; scaled(xss: f64[n, m], alpha: f64) takes 2" in output
    assert {one.program for one in read_tunings(tmp_path / "prog.tuning")} == {"sums", "scaled"}
    np.savez(tmp_path / "a.npz", other=np.ones(3))
    assert "data set a has no xss" in run(str(path), "--data", str(tmp_path / "a.npz"), code=2)


def test_a_command_that_is_stopped_keeps_what_is_done(
    tmp_path: Path, times: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two programs the second is stopped: the first one's thresholds are written, and nothing is measured twice."""
    path = tmp_path / "prog.py"
    second = """@tw.program
def second(xss: tw.f64["n", "m"]):
    return tw.map(lambda xs: tw.reduce("max", 0, xs), xss)

def datasets"""
    path.write_text(SOURCE.replace("def datasets", second))
    made_up, count = Timing.of, 0

    def stopping(self: Timing, call: Any, limit: float) -> float:
        nonlocal count
        count += 1
        if count == 8:
            raise KeyboardInterrupt
        return made_up(self, call)

    monkeypatch.setattr(Timing, "of", stopping)
    output = run(str(path), code=130)
    assert ": 6 runs" in output and "the same command goes on from there" in output
    assert [one.program for one in read_tunings(tmp_path / "prog.tuning")] == ["sums"]
    output = run(str(path))
    assert "sums on cpu" in output and ": 0 runs" in output and ": 5 runs" in output
    assert [one.program for one in read_tunings(tmp_path / "prog.tuning")] == ["sums", "second"]


def test_the_command_ends_with_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(SOURCE)
    assert "not tried, the time was over: " in run(str(path), "--budget", "0")
    assert "--budget" in run(str(path), "--budget", "-1", code=2)


def test_a_store_that_cannot_be_used_is_told_once(tmp_path: Path, times: dict[str, float]) -> None:
    (tmp_path / "file").touch()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # of what other tests have left
        report = tune(sums(), DATA, store=TuningStore(tmp_path / "file" / "tunings.sqlite3"))
    assert ["cannot be used" in str(one.message) for one in told] == [True] and report.runs == 6


def test_the_command_refuses(tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    assert "there is no file" in run(str(path), code=2)
    path.write_text(SOURCE)
    assert "has no program other; it has sums, plain" in run(str(path), "--entry", "other", code=2)
    assert "a data set 'a' already" in run(str(path), "--data", "a=x.npz", "--data", "a=y.npz", code=2)
    (tmp_path / "prog.tuning").write_text("nonsense")
    assert "the first line must be" in run(str(path), code=2)
    (tmp_path / "prog.tuning").unlink()
    path.write_text(SOURCE.replace("incremental", "outer"))
    assert "has no program to tune" in run(str(path), code=2)


def test_what_takes_much_longer_than_another_version_is_not_repeated() -> None:
    ticks, calls = iter(range(10_000)), []
    timing = Timing(5, 0.5, lambda: float(next(ticks)))  # every call takes a second
    assert timing.of(lambda: calls.append(1), limit=0.9) == 1 and len(calls) == 1
    assert timing.of(lambda: calls.append(1), limit=2.0) == 1 and len(calls) == 1 + 1 + 5
    calls.clear()
    short = Timing(5, 60.0, lambda: float(next(ticks)))  # a call is short beside all repetitions
    assert short.of(lambda: calls.append(1), limit=0.9) == 1 and len(calls) > 6


def test_versions_that_launch_the_same_are_timed_once(times: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first of them to run takes 1, all take 1; other data sets are timed by themselves."""
    timed: list[str] = []
    made_up = Timing.of

    def of(self: Timing, call: Any, limit: float = math.inf) -> float:
        timed.append("timed")
        return made_up(self, call, limit)

    monkeypatch.setattr(Timing, "of", of)
    monkeypatch.setattr(Executable, "launched", lambda *_: ("the same kernels",))
    times.update({"block 2": 3.0, "flat 2": 3.0, "outer 2": 3.0})
    report = tune(sums(), DATA)
    assert report.runs == 6 and len(timed) == 2
    assert {(one.data, one.seconds) for one in report.found.runs} == {("wide", 3.0), ("long", 1.0)}


def test_the_kernels_of_a_call_tell_versions_apart() -> None:
    executable, arguments = sums(), (np.ones((64, 5)),)
    outer = executable.with_thresholds({"outer_0": 0})
    same, flat = executable.with_thresholds({"outer_0": 64}), executable.with_thresholds({"outer_0": math.inf})
    assert outer.launched(*arguments) is None, "nothing has been called"
    for one in (outer, same, flat):
        one(*arguments)
    assert outer.launched(*arguments) == same.launched(*arguments) != flat.launched(*arguments)


def test_races_end_with_the_budget_too(times: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The third candidate, as fast as the first one, ends after the budget: it is tried, and does not race."""
    times.update({"block 2": 1.0, "flat 2": 2.0, "outer 2": 1.05})
    made_up, now = Timing.of, [0.0]

    def of(self: Timing, call: Any, limit: float = math.inf) -> float:
        now[0] += 100
        return made_up(self, call, limit)

    monkeypatch.setattr(Timing, "of", of)
    monkeypatch.setattr(tuner, "race", lambda *_: pytest.fail("there is no time for a race"))
    report = tune(sums(), {"wide": DATA["wide"]}, timing=Timing(clock=lambda: now[0], budget=250.0))
    assert report.runs == 3 and "not tried, the time was over: a last race, wide" in str(report)


def test_a_tuning_ends_with_its_budget(times: dict[str, float]) -> None:
    report = tune(sums(), DATA, timing=Timing(budget=-1.0))
    assert report.runs == 0 and not report.found.answers and report.thresholds["outer_0"] == 32.0
    assert "not tried, the time was over: block_0, wide and 3 more; tuning again goes on from there" in str(report)
    assert report.found.untried == ("block_0, wide", "block_0, long", "outer_0, wide", "outer_0, long")
    assert tune(sums(), DATA).runs == 6


def test_times_belong_to_the_number_of_threads(times: dict[str, float], store: TuningStore) -> None:
    with tw.num_threads(1):
        first = tune(sums(), DATA)
        assert tune(sums(), DATA).runs == 0
    with tw.num_threads(2):
        assert tune(sums(), DATA).runs == first.runs
    assert store.devices(program_digest(sums().program)) == (device_key(device_for("cpu")),), "one choice for both"
