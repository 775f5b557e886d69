"""Every program in examples/ on its smallest data set, on the CPU and on OpenCL, against its NumPy reference."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from example_programs import FILES, FOLDER, PROGRAMS, harness, load

import tilewright as tw


def check(file: str, name: str, target: str) -> None:
    module = load(file)
    arguments = module.datasets()["tiny"]()
    program = getattr(module, name)
    expected = module.references[name](*arguments)
    for _ in range(2):  # the second call may take another way: a recorded one
        assert max(harness.errors(program(*arguments, target=target), expected)) <= 1.0


@pytest.mark.parametrize(("file", "name"), PROGRAMS)
def test_on_the_cpu(file: str, name: str) -> None:
    check(file, name, "cpu")


@pytest.mark.opencl
@pytest.mark.parametrize(("file", "name"), PROGRAMS)
def test_on_opencl(file: str, name: str, opencl_runtime: object) -> None:
    check(file, name, "opencl")


@pytest.mark.parametrize("file", FILES)
def test_a_file_offers_what_the_command_line_needs(file: str) -> None:
    module = load(file)
    datasets = module.datasets()
    assert {"tiny", "small", "medium", "large"} <= set(datasets)
    assert set(module.references) == set(harness.programs_of(vars(module)))
    work = module.work(*datasets["tiny"]())
    assert work
    assert set(work) <= {"flops", "bytes"}
    assert all(amount > 0 for amount in work.values())


def test_a_wrong_element_is_noticed() -> None:
    exact = np.array([1.0, 0.0, -2.0])
    allowed = np.array([0.5, 0.0, 0.1])
    assert harness.errors(exact.copy(), [(exact, allowed)]) == [0.0]
    assert harness.errors(exact + np.array([0.25, 0, 0]), [(exact, allowed)]) == [0.5]
    for wrong in (exact + np.array([0, 1e-9, 0]), exact + np.array([0, 0, 0.2]), exact * np.nan):
        assert not harness.errors(wrong, [(exact, allowed)])[0] <= 1.0
    with pytest.raises(ValueError, match="2 results, and 1 are expected"):
        harness.errors((exact, exact), [(exact, allowed)])
    with pytest.raises(ValueError, match=r"shape \(2,\); \(3,\) is expected"):
        harness.errors(exact[:2], [(exact, allowed)])


def test_the_references_know_each_other() -> None:
    """Formulas that two of them share: a padded row is a segment; a plate of one value cools symmetrically."""
    spmv, heat = load("spmv"), load("heat")
    assert spmv.references["padded"] is spmv.references["segmented"]
    plate = np.ones((5, 5), np.float32)
    ((exact, _),) = heat.reference(plate, np.float32(0.1), 3)
    np.testing.assert_allclose(exact, exact.T)
    np.testing.assert_allclose(exact, exact[::-1])
    assert exact[2, 2] > exact[0, 0]


@pytest.mark.parametrize("file", ["nbody", "matmul"])
def test_as_a_program(file: str) -> None:
    command = [sys.executable, f"examples/{file}.py", "--size", "tiny", "--seconds", "0.001", "--target", "cpu"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{file} tiny:" in done.stdout
    assert "GFLOP/s" in done.stdout
    assert "WRONG" not in done.stdout


def test_a_wrong_result_ends_with_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.program
    def twice(xs: tw.f64[3]) -> object:
        return tw.map(lambda x: x + x, xs)

    module = {
        "__doc__": "",
        "twice": twice,
        "datasets": lambda: {"one": lambda: (np.ones(3),)},
        "references": {"twice": lambda xs: harness.exactly(3 * xs)},
    }
    monkeypatch.setattr(sys, "argv", ["twice.py", "--seconds", "0"])
    assert harness.main(module) == 1
    assert "WRONG" in capsys.readouterr().out
