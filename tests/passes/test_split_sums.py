"""Sums that are split: right for every contraction, the same bits for any number of threads, and told by explain."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import Case, cases, run_cpu
from cuda_emulation import has_compiler
from emulated_device import emulated_device
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant, normalise
from tilewright.contraction.split_sum import SplitSum, split_sum
from tilewright.ir.scalars import F16, F32, F64, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON, H100
from tilewright.passes.contractions.contraction_launches import contraction_launches, cpu_form, write_cpu_kernel
from tilewright.passes.contractions.split_sums import LEAST_LENGTH, MOST_PIECES, split_of, split_over_blocks
from tilewright.report.explain import explain_contraction

HOST = host_machine()
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no g++")


def run_split(split: SplitSum, buffers: Mapping[str, np.ndarray], scalars: Mapping[str, Any], threads: int) -> Any:
    """The output's buffer after all launches of a split sum."""
    held = {**buffers, split.partial: np.full(split.elements, 7, split.element.numpy)}
    for one in (*split.parts, split.combined):
        launch = write_cpu_kernel(cpu_form(one, replace(HOST, cores=threads)).form)
        held[one.out.buffer] = run_cpu(launch, held, scalars, threads)
    return held[split.combined.out.buffer]


@settings(max_examples=examples(30), deadline=None)
@given(case=cases(), where=st.integers(0, 6), pieces=st.integers(1, 9), threads=st.sampled_from([1, 2, 3]))
def test_any_contraction_can_be_split(case: Case, where: int, pieces: int, threads: int) -> None:
    """Every layout, type, operator and epilogue; any contracted dimension in any number of pieces, with a rest or not.
    The partial results begin as something else, so that one which nobody wrote would show.
    """
    contraction = normalise(case.contraction)
    assume(all(constant(one.size) for one in contraction.dimensions))
    sums = contraction.of_kind(Kind.K)
    cut = sums[where % len(sums)]
    split = split_sum(contraction, cut.name, min(pieces, constant(cut.size)))
    assert split.pieces * split.length + split.rest == constant(cut.size)
    buffers = case.buffers()
    assert_close(case.contraction, run_split(split, buffers, case.scalars, threads), buffers, case.scalars)


def test_pieces_must_be_of_the_sum() -> None:
    contraction = einsum_contraction("ka,kb->ab", dict(k=10, a=2, b=3), F32)
    with pytest.raises(ValueError, match="no contracted dimension a"):
        split_sum(contraction, "a", 2)
    with pytest.raises(ValueError, match="size 10 cannot be split into 11 pieces"):
        split_sum(contraction, "k", 11)


@pytest.mark.parametrize("machine", [HOST, CPU_AVX2, CPU_AVX512, CPU_NEON], ids=lambda one: one.name)
def test_threads_decide_nothing(machine: Any) -> None:
    """Neither whether a sum is split, nor into how many pieces."""
    contraction = einsum_contraction("ka,kb->ab", dict(k=100_003, a=16, b=24), F32)
    splits = {split_of(contraction, replace(machine, cores=cores)) for cores in (1, 2, 7, 64)}
    (split,) = splits
    assert isinstance(split, SplitSum)
    assert 2 <= split.pieces <= MOST_PIECES
    assert split.length >= LEAST_LENGTH


@pytest.mark.parametrize("length", [100, 300, 1000, 3000, 10_000, 100_000])
@pytest.mark.parametrize("size", [16, 40, 64, 100, 200, 500])
def test_threads_do_not_choose_the_form(size: int, length: int) -> None:
    """A register tile that is fed directly and one that is fed from panels cut a sum into different pieces."""
    contraction = normalise(einsum_contraction("ka,kb->ab", dict(k=length, a=size, b=size), F64))
    forms = [cpu_form(contraction, replace(CPU_AVX512, cores=cores)).form for cores in (1, 2, 3, 16)]
    decisions = {(type(one), getattr(one, "depth", 0), getattr(one, "levels", 0)) for one in forms}
    assert len(decisions) == 1


@pytest.mark.parametrize(
    ("text", "sizes", "why"),
    [
        ("ka,kb->ab", dict(k=1500, a=16, b=16), "too short"),
        ("ka,kb->ab", dict(k=100_000, a=400, b=400), "enough for all cores"),
        ("ak,k->a", dict(k=100_000, a=1000), "enough for all cores"),
        ("ka,kb->ab", dict(k=4000, a=2, b=2), "some microseconds"),
    ],
)
def test_what_is_not_split(text: str, sizes: dict[str, int], why: str) -> None:
    contraction = einsum_contraction(text, sizes, F32)
    refused = split_of(contraction, CPU_AVX512)
    assert isinstance(refused, str)
    assert why in refused
    assert len(contraction_launches(contraction, CPU_AVX512)) == 1


def test_a_rounding_accumulator_is_not_split() -> None:
    refused = split_of(einsum_contraction("ka,kb->ab", dict(k=100_000, a=16, b=16), F16), CPU_AVX512)
    assert refused == "partial results of type f16 would be rounded"


def test_pieces_without_a_rest_are_preferred() -> None:
    even, odd = (einsum_contraction("ka,kb->ab", dict(k=k, a=16, b=16), F32) for k in (100_000, 100_003))
    assert [len(contraction_launches(one, CPU_AVX512)) for one in (even, odd)] == [2, 3]


def test_a_large_first_term_swallows_its_piece_at_most() -> None:
    """One term is 1 and the others so small that each, added to 1, is lost. The pieces that do not hold it are added up
    apart, so that of what a chain would lose all but a piece's share remains: no value goes through more additions than
    a piece is long and there are pieces, and each of these is off by u.
    """
    eps = float(np.finfo(np.float32).eps)
    contraction = einsum_contraction("ka,kb->ab", dict(k=200_000, a=3, b=17), F32)
    split = split_of(contraction, HOST)
    assert isinstance(split, SplitSum)
    terms = np.full((200_000, 17), 0.45 * eps, np.float32)
    terms[0] = 1
    buffers = {"A": np.ones(600_000, np.float32), "B": terms.ravel(), "C": np.zeros(51, np.float32)}
    found = run_split(split, buffers, {}, 2)
    wanted = 1 + 0.45 * eps * 199_999
    assert np.max(np.abs(found - wanted)) / wanted <= (split.length + split.pieces + 1) * eps / 2


# --- whole programs ---------------------------------------------------------------------------------------------------

PROGRAMS = [
    ("ki,kj->ij", dict(k=20_011, i=16, j=24)),
    ("ki,kj->ij", dict(k=20_000, i=70, j=9)),
    ("ik,jk->ji", dict(k=30_000, i=5, j=33)),
    ("bki,bkj->bij", dict(b=3, k=9_999, i=16, j=16)),
    ("k,k->", dict(k=1_000_003)),
    ("ijk,ijk->", dict(i=30, j=50, k=301)),
    ("bki,bki->b", dict(b=2, k=30_000, i=9)),
    ("ki,k->i", dict(k=200_000, i=20)),
    ("ik,k->i", dict(k=300_000, i=3)),
    ("bki,bki->bi", dict(b=2, k=50_000, i=16)),
]


def operands(text: str, sizes: dict[str, int], dtype: str, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = [[sizes[one] for one in term] for term in text.split("->", maxsplit=1)[0].split(",")]
    if dtype.startswith("int"):
        return [generator.integers(-9, 10, shape).astype(dtype) for shape in shapes]
    values = [generator.uniform(-1, 1, shape) for shape in shapes]
    if dtype.startswith("complex"):
        values = [one + 1j * generator.uniform(-1, 1, one.shape) for one in values]
    return [one.astype(dtype) for one in values]


def error_bound(text: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Of a sum of n products, in any order: (n + 2) u times the sum of the magnitudes; four times for complex ones."""
    wide = [np.abs(one).astype(np.float64) for one in arrays]
    magnitude = np.einsum(text, *wide, optimize=True)
    steps = max(1, np.prod([one.size for one in arrays], dtype=float) ** 0.5)
    unit = np.finfo(arrays[0].dtype).eps / 2
    return 4 * (steps + 2) * unit * magnitude


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize(
    ("text", "sizes"), PROGRAMS, ids=[f"{text}-{number}" for number, (text, _) in enumerate(PROGRAMS)]
)
def test_the_number_of_threads_changes_no_bit(text: str, sizes: dict[str, int], dtype: str) -> None:
    """Nor does it matter whether a call is the first one or repeats a plan."""
    arrays = operands(text, sizes, dtype)
    results = []
    for threads in (1, 2, 3, 1):
        with tw.num_threads(threads):
            results += [np.asarray(tw.einsum(text, *arrays)) for _ in range(3)]
    assert {one.tobytes() for one in results} == {results[0].tobytes()}
    wide = "complex128" if dtype.startswith("complex") else "int64" if dtype == "int32" else "float64"
    wanted = np.einsum(text, *(one.astype(wide) for one in arrays), optimize=dtype != "int32")
    if dtype == "int32":
        np.testing.assert_array_equal(results[0], wanted)
    else:
        assert np.all(np.abs(results[0] - wanted) <= error_bound(text, arrays))


def test_scaled_and_added_to_an_array_that_is_given() -> None:
    text, sizes = PROGRAMS[0]
    arrays = operands(text, sizes, "float64")
    start = np.random.default_rng(1).uniform(-1, 1, (2 * 16, 24))[::2]
    out = start.copy()
    plan = tw.plan(text, *arrays, alpha=0.5, beta=-2.0)
    plan(*arrays, out=out)
    wanted = 0.5 * np.einsum(text, *arrays, optimize=True) - 2.0 * start
    np.testing.assert_array_less(np.abs(out - wanted), error_bound(text, arrays) + 1e-12)


def test_many_python_threads_at_once() -> None:
    """Each call has partial results of its own, whoever has the pool."""
    given = [(text, operands(text, sizes, "float32", number)) for number, (text, sizes) in enumerate(PROGRAMS)]
    with tw.num_threads(1):
        wanted = [np.asarray(tw.einsum(text, *arrays)).tobytes() for text, arrays in given]
    wrong: list[tuple[str, int]] = []
    begin = threading.Barrier(8)

    def call(number: int) -> None:
        begin.wait()
        for turn in range(30):
            which = (number + turn) % len(given) if number % 2 else turn % len(given)
            text, arrays = given[which]
            with tw.num_threads(1 + (number + turn) % 3):
                if np.asarray(tw.einsum(text, *arrays)).tobytes() != wanted[which]:
                    wrong.append((text, turn))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert wrong == []


def test_explain_tells_the_pieces() -> None:
    text = str(explain_contraction(einsum_contraction("ka,kb->ab", dict(k=100_003, a=16, b=16), F64), CPU_AVX512))
    assert "split      the sum over k in 64 pieces of 1562 and a rest of 35, side by side; 16640 partial" in text
    assert "form       a register tile" in text


def test_explain_tells_why_a_sum_is_not_split() -> None:
    contraction: Contraction = einsum_contraction("ka,kb->ab", dict(k=500, a=16, b=16), F64)
    reasons = explain_contraction(contraction, replace(CPU_AVX512, cores=8)).declined
    assert "the sum is not split: a sum of 500 terms is too short for pieces of 1024" in reasons


def test_few_results_in_any_order_of_dimensions() -> None:
    """Results whose dimensions lie in another order than the operands', with gaps: only the last launch sees that."""
    contraction = einsum_contraction("kab,kcb->cba", dict(k=5000, a=3, b=4, c=5), F64)
    spaced = replace(
        contraction, dimensions=tuple(replace(one, stride_out=one.stride_out * 2) for one in contraction.dimensions)
    )
    split = split_of(spaced, HOST)
    assert isinstance(split, SplitSum)
    buffers = random_buffers(spaced, 0)
    assert_close(spaced, run_split(split, buffers, {}, 2), buffers, {})


FOLDS = [
    ("ik->i", (3, 300_000)),
    ("ki->i", (100_001, 20)),
    ("ijk->", (30, 50, 301)),
    ("bki->b", (2, 40_000, 16)),
    ("kij->j", (3000, 7, 33)),
]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(("text", "shape"), FOLDS, ids=[text for text, _ in FOLDS])
def test_folds_of_one_array_are_split_too(text: str, shape: tuple[int, ...], dtype: str) -> None:
    """Every number of threads gives the same bits, and the error is that of any order of additions."""
    (array,) = operands(text, dict(zip(text.split("->", maxsplit=1)[0], shape, strict=True)), dtype)
    results = []
    for threads in (1, 2, 3):
        with tw.num_threads(threads):
            results += [np.asarray(tw.einsum(text, array)) for _ in range(2)]
    assert {one.tobytes() for one in results} == {results[0].tobytes()}
    if dtype == "int64":
        np.testing.assert_array_equal(results[0], np.einsum(text, array))
        return
    magnitude = np.einsum(text, np.abs(array).astype(np.float64))
    bound = array.size // max(1, magnitude.size) * np.finfo(np.float32).eps / 2 * magnitude
    assert np.all(np.abs(results[0] - np.einsum(text, array.astype(np.float64))) <= bound)


# --- on devices with blocks of threads --------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
@pytest.mark.parametrize(
    ("expression", "sizes"),
    [
        ("ki,kj->ij", dict(k=10_003, i=3, j=4)),
        ("ij,j->i", dict(i=9, j=6400)),
        ("ji,j->i", dict(i=17, j=7000)),
        ("bij,bij->b", dict(b=3, i=11, j=4000)),
        ("kli,klj->ji", dict(k=2, l=9000, i=2, j=3)),
    ],
)
def test_sums_are_split_over_blocks(expression: str, sizes: dict[str, int], dtype: str) -> None:
    random = np.random.default_rng(3)
    left, right = expression.partition("->")[0].split(",")
    given = [random.integers(-9, 10, [sizes[one] for one in term]).astype(dtype) for term in (left, right)]
    with emulated_device(machine=H100) as (device, runtime):
        result = tw.einsum(expression, *given, target=device, alpha=2)
    assert len(runtime.launched) >= 2
    np.testing.assert_array_equal(result, 2 * np.einsum(expression, *given))  # whole numbers are exact


@needs_compiler
@pytest.mark.parametrize("semiring", ["plus_times", "min_plus"])
def test_one_sum_is_a_fold_of_all_blocks(semiring: Any) -> None:
    x = np.random.default_rng(3).integers(-9, 10, 30_000).astype(np.float32)
    with emulated_device(machine=H100) as (device, runtime):
        result = tw.einsum("k,k->", x, x, target=device, semiring=semiring)
    assert result == (x @ x if semiring == "plus_times" else (x + x).min())
    assert any(name.endswith("chunks") for name in runtime.launched), runtime.launched


def test_what_is_split_over_blocks() -> None:
    def pieces(expression: str, sizes: dict[str, int], scalar: ScalarType = F32) -> int | str:
        split = split_over_blocks(einsum_contraction(expression, sizes, scalar), H100)
        return split if isinstance(split, str) else split.pieces

    assert pieces("ki,kj->ij", dict(k=10**6, i=16, j=16)) == 250
    assert pieces("ij,j->i", dict(i=4096, j=4096)) == 16
    assert pieces("ij,jk->ik", dict(i=512, j=512, k=512)) == "262144 results are work for all threads"
    assert pieces("ij,j->i", dict(i=40, j=100)) == "a sum of 100 terms is too short for pieces of 64"
    assert pieces("ij,j->i", dict(i=40, j=1000), F16) == "partial results of type f16 would be rounded"
    explained = str(explain_contraction(einsum_contraction("ij,j->i", dict(i=4096, j=4096), F32), H100))
    assert "the sum over j in 16 pieces of 256, side by side" in explained
