"""Histograms of rows, against NumPy and the interpreter."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from cuda_emulation import has_compiler
from emulated_device import emulated_device
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check, check_on
from naive import examples
from segment_cases import in_pieces

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.kernel.checks import KernelReport, check_kernel
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.machine.named import A100, CPU_AVX512
from tilewright.passes.compile import program_block
from tilewright.passes.segments import bin_rows as segment_bin_rows
from tilewright.passes.segments.bin_rows import row_histograms
from tilewright.runtime.devices import Device
from tilewright.runtime.host import ITEMS, THREADS_TOTAL, KernelPlan, Layout, SegmentStep

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
OPERATORS = {"add": "e + f", "max": "max(e, f)", "mul": "e * f"}


def sums_of_rows(operator: str, element: str) -> str:
    """Rows of n by d combined into k bins."""
    zero = {"add": "0", "max": "0", "mul": "1"}[operator] + (".0" if element[0] == "f" else "") + element
    return f"""def rows (at: [n]i64, x: [n][d]{element}, bins: [k][d]{element}) =
  let (neutral: [d]{element}) = replicate d {zero}
  let (h: [k][d]{element}) = hist (bins) (\\(a: [d]{element}, b: [d]{element}) ->
    let (c: [d]{element}) = map d (\\(e: {element}, f: {element}) ->
      let (g: {element}) = {OPERATORS[operator]}
      in (g)) a b
    in (c)) (neutral) at x
  in (h)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_histograms_of_rows(device: str) -> None:
    @settings(max_examples=examples(40 if device == "cpu" else 8))
    @given(
        operator=st.sampled_from(sorted(OPERATORS)),
        element=st.sampled_from(["f32", "f64", "i32", "u8", "f16", "i64"]),
        width=st.sampled_from([0, 1, 2, 7, 33, 200]),
        length=st.sampled_from([0, 1, 3, 8, 16, 17, 40]),
        bins=st.sampled_from([0, 1, 2, 9]),
        pieces=st.sampled_from([1, 3]),
        copies=st.sampled_from([1, 4]),
        threads=st.sampled_from([1, 2]),
        turned=st.booleans(),
        seed=st.integers(0, 99),
    )
    def run(
        operator: str, element: str, width: int, length: int, bins: int, pieces: int, copies: int, threads: int,
        turned: bool, seed: int,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        dtype = np.dtype(element[0] + str(int(element[1:]) // 8))
        low, high = (1, 2) if operator == "mul" else (0, 3)
        at = random.integers(-2, bins + 2, width)
        x = random.integers(low, high, (width, length)).astype(dtype)
        given_bins = random.integers(low, high, (bins, length)).astype(dtype)
        if turned:
            x = np.asfortranarray(x)
        before = tw.get_num_threads()
        tw.set_num_threads(threads)
        try:
            with pytest.MonkeyPatch.context() as patch:
                cut = max(1, -(-width // max(1, -(-width // pieces))))
                patch.setattr(segment_bin_rows, "pieces_of_histogram", lambda *_: (cut, 0))
                patch.setattr(segment_bin_rows, "copies_of_bins", lambda *_: copies)
                with in_pieces(pieces) if device == "opencl" else nullcontext():
                    check(sums_of_rows(operator, element), [at, x, given_bins], device)
        finally:
            tw.set_num_threads(before)

    run()


def test_vectors_fit_the_rows() -> None:
    program = parse_program(sums_of_rows("add", "f32"))
    found = row_histograms(program.body.statements[1].expression, CPU_AVX512)
    assert found is not None
    assert [found.fitting(length).lanes for length in (0, 1, 2, 3, 8, 9, 16, 100)] == [2, 2, 2, 4, 8, 16, 16, 16]


def test_sums_of_rows_that_exceed_one_piece() -> None:
    random = np.random.default_rng(1)
    at, x = random.integers(-1, 11, 100_000), random.integers(-9, 9, (100_000, 24)).astype("f4")

    @tw.program
    def sums(at: tw.i64["n"], x: tw.f32["n", "d"]) -> Any:
        return tw.hist(lambda a, b: a + b, tw.replicate(x.shape[1], 0.0, "f32"), 10, at, x)

    expected = np.zeros((10, 24), "f4")
    inside = (at >= 0) & (at < 10)
    np.add.at(expected, at[inside], x[inside])
    np.testing.assert_array_equal(np.asarray(sums(at, x)), expected)


# --- on GPUs ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has_compiler(), reason="there is no g++")
@settings(max_examples=examples(4))
@given(
    width=st.sampled_from([0, 1, 90, 700]),
    length=st.sampled_from([1, 3, 17]),
    bins=st.sampled_from([1, 5, 4000]),  # of so many, blocks have no room in shared memory
    pieces=st.sampled_from([1, 5]),
)
def test_on_an_emulated_gpu(width: int, length: int, bins: int, pieces: int) -> None:
    random = np.random.default_rng(width)
    at = random.integers(-2, bins + 2, width)
    x, given_bins = (random.integers(-8, 9, (rows, length)).astype("f4") / 8 for rows in (width, bins))
    with emulated_device() as (device, runtime), in_pieces(pieces):
        check_on(sums_of_rows("add", "f32"), [at, x, given_bins], device)
    assert [one.removeprefix("v_tw_rows_") for one in runtime.launched] == ["neutral", "h_pieces", "h_bins"] * 2


def plans(length: int, bins: int, width: int) -> list[tuple[KernelPlan, dict[str, int]]]:
    """The kernels that an A100 runs, and values of their scalars."""
    block, _ = program_block(parse_program(sums_of_rows("add", "f32")), Device("cuda", A100, "a test"))
    step = block.steps[-1]
    assert isinstance(step, SegmentStep)
    chosen = step.choose((length, bins, width))
    found = []
    for one in chosen.steps:
        arrays = [each.name for each in (*one.reads, *one.targets) if each.type.rank]
        plan = one.lower(tuple((name, Layout((), dense=True, at_start=True)) for name in arrays))
        values = {"n": width, "d": length, "k": bins, ITEMS: 1 << 15, THREADS_TOTAL: 1 << 15} | dict(chosen.sizes)
        found.append((plan, values))
    return found


def report_of(plan: KernelPlan, values: dict[str, int]) -> KernelReport:
    pairs = zip(plan.kernel.scalars, plan.scalars, strict=True)
    return check_kernel(plan.kernel, {parameter.name: values[name] for parameter, (name, _) in pairs if name in values})


@pytest.mark.parametrize(("length", "bins"), [(16, 32), (2, 5), (100, 20), (8, 3000)])
def test_neighbouring_threads_read_and_write_neighbours(length: int, bins: int) -> None:
    """Rows are read in order, and own bins lie side by side in shared memory, where they fit there.

    They are written at the end, those of a piece together, which are scattered where a bin is less than a sector.
    """
    (plan, values), *others = plans(length, bins, 200_000)
    report = report_of(plan, values)
    own = bins * 256 * 4 <= 48 << 10
    assert (plan.kernel.shared_bytes > 0) == own
    known = [one for one in report.global_accesses if one.degree is not None]
    assert {"x_1", "h_own_1"} <= {one.buffer for one in known}
    known = [one for one in known if one.buffer != "h_own_1" or length >= 8]
    # A row that begins inside of a sector costs one more.
    assert all(one.degree <= one.ideal + 1 for one in known if one.degree is not None)
    assert report.worst_inner_conflict == 1
    for each, _ in [(plan, values), *others]:
        assert set(compile_cuda(cuda_text(each.kernel)).spill_bytes.values()) == {0}


def test_an_operator_of_whole_rows_is_told_to_be_none_of_elements() -> None:
    text = """def rows (at: [n]i64, x: [n][2]f32, zeros: [2]f32, bins: [k][2]f32) =
  let (h: [k][2]f32) = hist (bins) (\\(a: [2]f32, b: [2]f32) ->
    let (c: [2]f32) = rearrange (0) a in (c)) (zeros) at x
  in (h)
"""
    (note,) = program_block(parse_program(text), Device("cuda", A100, "a test"))[1]
    assert note.lowered == "a sequential kernel"
    assert any("what is combined are arrays" in one for one in note.reasons)
