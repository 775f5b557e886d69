"""The search for tile sizes: what is tried, what fails, what is stored, on an OpenCL device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tuned_programs import matmul, normalised

import tilewright as tw
from tilewright.contraction.normalise import order_dimensions, reclassify
from tilewright.machine.named import H100
from tilewright.passes import compile as compile_module
from tilewright.passes.compile import compile_program
from tilewright.passes.tiled.tiling import IllegalTiling, check_tiling
from tilewright.runtime.devices import Device, DeviceError, device_for
from tilewright.tune import tiles as tiles_module
from tilewright.tune.keys import TuningWarning, device_key, program_digest, shape_class
from tilewright.tune.places import FILE_VARIABLE
from tilewright.tune.store import TuningStore
from tilewright.tune.tiles import bound_contraction, stored_tiles, tiles_of, tune_tiles
from tilewright.tune.tuner import Timing

RANDOM = np.random.default_rng(7)
A, B = RANDOM.uniform(-1, 1, (40, 24)).astype("f4"), RANDOM.uniform(-1, 1, (24, 36)).astype("f4")
SHORT = Timing(1, 0.0)
NAMED = Device("cuda:0", H100, "named")


@pytest.fixture
def opencl() -> Device:
    try:
        return device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def store(tmp_path: Any) -> TuningStore:
    return TuningStore(tmp_path / "tunings.sqlite3")


def test_the_contraction_has_the_sizes_and_strides_of_the_arguments() -> None:
    found = bound_contraction(matmul.trace("f4", "f4"), (A, np.asfortranarray(B)))
    sizes = {one.name: one.size.constant for one in found.dimensions}
    assert sorted(sizes.values()) == [24, 36, 40]  # type: ignore[type-var]
    (contracted,) = [one for one in found.dimensions if one.size.constant == 24]
    assert (contracted.stride_left.constant, contracted.stride_right.constant) == (1, 1)
    with pytest.raises(ValueError, match=r"normalised has 0 contractions, and tiles are tuned for one: .+"):
        bound_contraction(normalised.trace(), (np.ones((2, 3, 4)), np.ones((2, 4, 3))))


@pytest.mark.parametrize("runs", [1, 2, 7, 24])
def test_what_is_tried_is_legal_and_within_the_budget(runs: int) -> None:
    contraction = order_dimensions(reclassify(bound_contraction(matmul.trace("f4", "f4"), (A, B))))
    chosen = list(tiles_module._within_budget(contraction, NAMED, runs))
    assert len(chosen) == len({str(one) for one in chosen}) <= runs
    assert len(chosen) >= runs - runs // 2
    for one in chosen:
        check_tiling(contraction, one, H100)


@pytest.mark.opencl
def test_the_best_tiles_are_found_stored_and_used(
    opencl: Device, store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([5.0, 4.0, 3.0, 6.0, 7.0])
    run = Timing.of
    monkeypatch.setattr(Timing, "of", lambda self, call: (run(SHORT, call), next(times))[1])
    report = matmul.tune_tiles(A, B, target=opencl, runs=4, store=store)
    assert (report.seconds, report.model_seconds, len(report.tried)) == (3.0, 5.0, 4)
    assert report.tiles == dict(report.tried[1][0])
    program = matmul.trace("f4", "f4")
    assert stored_tiles(program, opencl, store) == {shape_class((A, B)): report.tiles}
    assert shape_class((A[:33], B)) == shape_class((A, B)) != shape_class((A[:8], B))
    np.testing.assert_allclose(matmul.with_tiles(report.tiles)(A, B, target=opencl), A @ B, rtol=1e-5, atol=1e-5)
    assert "3 s, the model's choice 5 s\n4 tilings tried" in str(report)


@pytest.mark.opencl
def test_found_tiles_are_used_without_asking_for_them(
    opencl: Device, store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, store.path)
    used: list[Any] = []

    def spied(program: Any, device: Device, **options: Any) -> Any:
        used.append(options.get("tiles"))
        return compile_program(program, device, **options)

    monkeypatch.setattr(compile_module, "compile_program", spied)
    times = iter([5.0, 4.0, 3.0])
    with monkeypatch.context() as faked:
        faked.setattr(Timing, "of", lambda self, call: (call(), next(times))[1])
        tuning = tw.program(matmul.function)
        report = tuning.tune_tiles(A, B, target=opencl, runs=2)
    assert report.tiles
    for program in (tuning, tw.program(matmul.function)):  # at once, and as in a later process
        used.clear()
        np.testing.assert_allclose(program(A, B, target=opencl), A @ B, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(program(A[:33], B, target=opencl), A[:33] @ B, rtol=1e-5, atol=1e-5)
        assert used == [None, report.tiles], "the plain program, and once that for the shape class"
        np.testing.assert_allclose(program(A[:8], B, target=opencl), A[:8] @ B, rtol=1e-5, atol=1e-5)
        assert used == [None, report.tiles], "another shape class"
        np.testing.assert_allclose(program(A, B, target="cpu"), A @ B, rtol=1e-5, atol=1e-5)


@pytest.mark.opencl
def test_stored_tiles_that_are_illegal_are_told_of_and_left(
    opencl: Device, store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, store.path)
    values = {"n.T": 4096.0, "n.R": 64.0, "m.T": 4096.0, "m.R": 64.0, "k.Q": 8.0}
    store.put(program_digest(matmul.trace("f4", "f4")), device_key(opencl), values, shape_class((A, B)))
    program = tw.program(matmul.function)
    with pytest.warns(TuningWarning, match="tuned tile sizes .* are not used"):
        np.testing.assert_allclose(program(A, B, target=opencl), A @ B, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(program(A, B, target=opencl), A @ B, rtol=1e-5, atol=1e-5)


@pytest.mark.opencl
def test_the_model_is_kept_where_it_is_best(
    opencl: Device, store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([1.0, 4.0, 3.0])
    monkeypatch.setattr(Timing, "of", lambda self, call: (call(), next(times))[1])
    report = tune_tiles(matmul.trace("f4", "f4"), opencl, (A, B), runs=2, store=store)
    assert report.tiles == {} and report.seconds == 1.0
    np.testing.assert_allclose(matmul.with_tiles(report.tiles)(A, B), A @ B, rtol=1e-5, atol=1e-5)


@pytest.mark.opencl
def test_candidates_that_fail_are_left_out(opencl: Device, store: TuningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(program: Any, device: Device, tiles: Any = None) -> Any:
        if tiles is not None and tiles["k"] == first["k"]:
            raise RuntimeError("the driver's compiler crashed")
        return compile_program(program, device, tiles=tiles)

    contraction = order_dimensions(reclassify(bound_contraction(matmul.trace("f4", "f4"), (A, B))))
    first = tiles_of(contraction, next(tiles_module._within_budget(contraction, opencl, 12)))
    monkeypatch.setattr(tiles_module, "compile_program", failing)
    report = tune_tiles(matmul.trace("f4", "f4"), opencl, (A, B), runs=12, timing=SHORT, store=store)
    assert report.failed and report.failed[0] == (first, "RuntimeError: the driver's compiler crashed")
    assert all(dict(tiles)["k"] != first["k"] for tiles, _ in report.tried)
    assert "failed and left out" in str(report)


@pytest.mark.opencl
def test_no_candidate_begins_after_the_time_is_spent(opencl: Device, store: TuningStore) -> None:
    report = tune_tiles(matmul.trace("f4", "f4"), opencl, (A, B), seconds=0.0, timing=SHORT, store=store)
    assert report.tried == () and report.tiles == {}


@pytest.mark.parametrize("runs", [0, -1, 1.5, True])
def test_runs_that_are_none(opencl: Device, store: TuningStore, runs: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"runs is how many tilings are tried at most, 1 at least, not {runs} of type"
    ):
        tune_tiles(matmul.trace("f4", "f4"), opencl, (A, B), runs=runs, store=store)
    with pytest.raises(TypeError, match="timing is a Timing"):
        tune_tiles(matmul.trace("f4", "f4"), opencl, (A, B), timing=runs, store=store)


def test_what_was_found_stays_if_nothing_is_tried(opencl: Device, store: TuningStore) -> None:
    program = matmul.trace("f4", "f4")
    store.put(program_digest(program), device_key(opencl), {"k.Q": 4.0}, shape_class((A, B)))
    assert not tune_tiles(program, opencl, (A, B), seconds=0, timing=SHORT, store=store).tried
    assert stored_tiles(program, opencl, store) == {shape_class((A, B)): {"k": 4}}


def test_a_processor_has_no_tiles() -> None:
    with pytest.raises(ValueError, match="cpu has no thread blocks"):
        matmul.tune_tiles(A, B, target="cpu")
    with pytest.raises(IllegalTiling, match="on a CPU the register tile is not chosen by hand"):
        matmul.with_tiles({"n": (8, 1)})(A, B)


def test_shape_classes_are_powers_of_two() -> None:
    assert shape_class([A, 3, np.float32(2)]) == "f4[64,32] int float32"
    assert shape_class([A[:33]]) == shape_class([A]) != shape_class([A[:32]])
    assert shape_class([np.ones((1, 0))]) == "f8[1,1]"
