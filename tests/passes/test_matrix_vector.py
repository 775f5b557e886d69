"""The form of contractions that read one operand once: which they are, and what the kernels compute."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu, semirings
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import BOOL, C64, C128, F16, F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.bound_contraction import why_a_fold
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.matrix_vector.form import SHORT_ROW, MatrixVectorForm, Way, choose_matrix_vector_form
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel
from tilewright.report.contraction_text import form_text
from tilewright.report.explain import explain_contraction

MACHINES = [host_machine(), CPU_AVX2, CPU_AVX512, CPU_NEON]
LONG = st.sampled_from([8, 16, 31, 32, 33, 40, 64, 67, 100, 129])
SHORT = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 13])


@st.composite
def streamed(draw: st.DrawFn) -> Contraction:
    """A matrix with all dimensions, one of them of unit stride, and a vector with any of them."""
    scalar = draw(st.sampled_from([F32, F64, I32, C64, C128]))
    function, combine, neutral = draw(st.sampled_from(sorted(semirings(scalar).items())))[1]
    kinds = [draw(st.sampled_from([Kind.M, Kind.K, Kind.C])) for _ in range(draw(st.integers(1, 4)))]
    kinds[draw(st.integers(0, len(kinds) - 1))] = Kind.K
    sizes = [draw(SHORT) for _ in kinds[1:]] + [draw(LONG)]
    order = [*draw(st.permutations(range(len(kinds) - 1))), len(kinds) - 1]
    matrix = _strides(draw, sizes, order, [True] * len(kinds))
    has_vector = [kind is not Kind.M and draw(st.integers(0, 3)) > 0 for kind in kinds]
    vector = _strides(draw, sizes, order, has_vector)
    out = _strides(draw, sizes, order, [kind is not Kind.K for kind in kinds])
    if draw(st.booleans()):
        turn = draw(st.permutations(range(len(kinds))))
        out = _strides(draw, sizes, list(turn), [kind is not Kind.K for kind in kinds])
    left = draw(st.booleans())
    dimensions = []
    for position, (kind, extent) in enumerate(zip(kinds, sizes, strict=True)):
        sides = (matrix[position], vector[position]) if left else (vector[position], matrix[position])
        own = kind if left or kind is not Kind.M else Kind.N
        dimensions.append(Dimension(f"d{position}", own, *map(size, (extent, *sides, out[position]))))
    operands = (Operand(name, scalar, size(draw(st.sampled_from([0, 1, 16])))) for name in "ABC")
    b = Builder()
    negated = b.function([Type(scalar)], lambda total: b.apply("neg", total), ("total",))
    epilogue = draw(st.sampled_from([None, negated]))
    return Contraction(tuple(dimensions), *operands, function, combine, neutral, epilogue)


def _strides(draw: st.DrawFn, sizes: list[int], order: list[int], present: list[bool]) -> list[int]:
    """Row-major strides in an order of the dimensions, with gaps now and then; 0 where there is none."""
    strides, total = [0] * len(sizes), 1
    for position in reversed(order):
        if present[position]:
            strides[position] = total
            total *= sizes[position] + draw(st.sampled_from([0, 0, 3]))
    return strides


@settings(max_examples=examples(200))
@given(contraction=streamed(), machine=st.sampled_from(MACHINES), data=st.data())
def test_any_streamed_contraction(contraction: Contraction, machine: Machine, data: st.DataObject) -> None:
    """As chosen, and with its work cut into blocks at random, on one thread or two."""
    form = choose_matrix_vector_form(normalise(contraction), machine)
    if isinstance(form, str):
        assert form
        return
    step = 1 if form.way is Way.DOTS else form.lanes * form.vectors
    chunk = step * data.draw(st.integers(1, -(-form.pieces // step)))
    form = replace(form, chunk=chunk, serial=data.draw(st.booleans()))
    buffers = random_buffers(contraction, data.draw(st.integers(0, 99)))
    got = run_cpu(write_matrix_vector_kernel(form), buffers, {}, data.draw(st.integers(1, 2)))
    assert_close(contraction, got, buffers, {})
    assert form.along.name in form_text(form)


def form_of(text: str, scalar: ScalarType = F32, machine: Machine = CPU_AVX512, **sizes: int) -> MatrixVectorForm:
    chosen = choose_form(normalise(einsum_contraction(text, sizes, scalar)), machine).form
    assert isinstance(chosen, MatrixVectorForm)
    return chosen


@pytest.mark.parametrize(("rows", "length", "together"), [(16, 16, 16), (48, 20, 16), (67, 24, 16), (20, 16, 8)])
def test_rows_of_one_vector_are_folded_into_a_whole_vector(rows: int, length: int, together: int) -> None:
    """Where they follow each other in memory, and few of them are computed twice."""
    contraction = einsum_contraction("bak,bk->ba", dict(a=rows, b=5, k=length), F32)
    form = choose_matrix_vector_form(normalise(contraction), CPU_AVX512)
    assert isinstance(form, MatrixVectorForm)
    assert (form.way, form.rows, form.vectors, form.apart) == (Way.DOTS, together, 1, 1)
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_matrix_vector_kernel(form), buffers, {}, 1)
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 40, 67])
@pytest.mark.parametrize("length", [2, 3, 4, 5, 7, 8, 9, 15])
def test_dots_of_short_rows_take_vectors_as_short(length: int, rows: int, scalar: ScalarType) -> None:
    """Products of all elements of two arrays, a few of which are added up: lengths of vectors in space, say."""
    contraction = einsum_contraction("ak,ak->a", dict(a=rows, k=length), scalar)
    form = choose_matrix_vector_form(normalise(contraction), CPU_AVX512)
    assert isinstance(form, MatrixVectorForm)
    assert form.lanes == min(CPU_AVX512.lanes(scalar.bytes), 1 << (length - 1).bit_length())
    buffers = random_buffers(contraction, length)
    got = run_cpu(write_matrix_vector_kernel(form), buffers, {}, 1)
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize(("text", "left", "way", "along", "rows"), [
    ("ak,k->a", True, Way.DOTS, "k", 8),
    ("k,ak->a", False, Way.DOTS, "k", 8),
    ("k,ka->a", False, Way.SUMS, "a", 8),
    ("ka,k->a", True, Way.SUMS, "a", 8),
    ("bak,bk->ba", True, Way.DOTS, "k", 8),
    ("bka,bk->ba", True, Way.SUMS, "a", 8),
    ("ak,ak->a", True, Way.DOTS, "k", 2),
    ("ka,ka->a", True, Way.SUMS, "a", 8),
])  # fmt: skip
def test_which_contractions_are_streamed(text: str, left: bool, way: Way, along: str, rows: int) -> None:
    form = form_of(text, a=200, b=5, k=300)
    assert (form.matrix_left, form.way, form.along.name, form.rows) == (left, way, along, rows)
    assert form.fused_multiply_add and form.reads_vector


@pytest.mark.parametrize(("text", "scalar", "reason"), [
    ("ak,kb->ab", F32, "elements of either operand are used several times"),
    ("ak,k->a", F16, "sums of type f16 are stored as f16"),
])  # fmt: skip
def test_what_is_not_streamed(text: str, scalar: ScalarType, reason: str) -> None:
    contraction = einsum_contraction(text, {"a": 64, "b": 64, "k": 64}, scalar)
    assert choose_matrix_vector_form(normalise(contraction), CPU_AVX512) == reason


def test_bools_are_not_streamed() -> None:
    function, combine, neutral = semirings(BOOL)["or_and"]
    floats = einsum_contraction("ak,k->a", {"a": 64, "k": 64}, F32)
    operands = (replace(one, element=BOOL) for one in (floats.left, floats.right, floats.out))
    contraction = Contraction(floats.dimensions, *operands, function, combine, neutral)
    assert choose_matrix_vector_form(normalise(contraction), CPU_AVX512) == "elements are bools"


@pytest.mark.parametrize("scalar", [C64, C128])
@pytest.mark.parametrize("text", ["ak,k->a", "k,ka->a", "k,k->", "bk,bk->b", "bak,bk->ba", "kb,kb->b", "ka,ka->a"])
def test_complex_elements_are_streamed(text: str, scalar: ScalarType) -> None:
    for a, k in ((64, 100), (5, 67), (200, 16)):
        contraction = einsum_contraction(text, {"a": a, "b": 3, "k": k}, scalar)
        form = choose_matrix_vector_form(normalise(contraction), CPU_AVX512)
        if isinstance(form, str):
            assert text == "kb,kb->b"  # whose rows are shorter than a vector, and so the sums wait in registers
            continue
        assert form.has_complex and form.fused_multiply_add
        buffers = random_buffers(contraction, 5)
        assert_close(contraction, run_cpu(write_matrix_vector_kernel(form), buffers, {}, 2), buffers, {})


def test_operators_that_keep_an_order_are_not_streamed() -> None:
    b = Builder()
    first = b.function([Type(F32), Type(F32)], lambda x, y: x, ("x", "y"))
    contraction = replace(einsum_contraction("ak,k->a", {"a": 64, "k": 64}, F32), combine=first)
    found = choose_matrix_vector_form(normalise(contraction), CPU_AVX512)
    assert found == "the operator is not plainly commutative"


def test_little_work_is_one_block_and_much_is_shared_out() -> None:
    small, large = form_of("ak,k->a", a=64, k=64), form_of("ak,k->a", a=4096, k=4096)
    assert small.serial and not large.serial
    assert write_matrix_vector_kernel(small).blocks == 1
    assert write_matrix_vector_kernel(large).blocks >= CPU_AVX512.cores
    wide = form_of("k,ka->a", a=100_000, k=100)
    assert wide.chunk * 4 <= CPU_AVX512.l2_bytes // 4
    assert write_matrix_vector_kernel(wide).blocks >= CPU_AVX512.cores


@given(columns=st.integers(100, 60_000))
def test_rows_that_sums_read_are_cut_into_pages_or_one_piece_for_each_core(columns: int) -> None:
    form = form_of("k,ka->a", a=columns, k=1000)
    blocks, cores = write_matrix_vector_kernel(form).blocks, CPU_AVX512.cores
    assert blocks <= 4 * cores or form.chunk * 4 <= CPU_AVX512.l2_bytes // 4
    assert blocks <= cores or form.chunk * 4 >= SHORT_ROW * 3 // 4  # of equal pieces
    assert blocks > 1


def test_explanations_tell_the_form() -> None:
    for text, what in (("ak,k->a", "partial sums in all lanes"), ("k,ka->a", "rows are added to a piece")):
        found = explain_contraction(einsum_contraction(text, {"a": 300, "k": 200}, F32), CPU_AVX512)
        assert found.form == "streamed" and found.streamed is not None
        assert what in str(found) and "is read once, in order" in found.reason
        assert "8 rows along" in str(found)
    found = explain_contraction(einsum_contraction("k,k->", {"k": 100}, I32), CPU_AVX512)
    assert "no fused multiply-add" in str(found) and "one row" in str(found)


@settings(max_examples=examples(60))
@given(rows=st.integers(1, 70), columns=st.integers(1, 200), batch=st.integers(1, 3), data=st.data())
def test_einsums_are_within_the_bound_of_partial_sums(rows: int, columns: int, batch: int, data: st.DataObject) -> None:
    """|error| <= (n / p + p + 2) u sum |terms| where p partial sums of n/p terms each are folded; p = 4 at the least
    where a sum is long [Higham, Accuracy and Stability, section 4.2].
    """
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    text = data.draw(st.sampled_from(["bij,bj->bi", "bi,bij->bj", "bij,j->bi", "bij,bij->bi", "bij,i->bj"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    sizes = {"b": batch, "i": rows, "j": columns}
    terms = text.partition("->")[0].split(",")
    a, b = (rng.uniform(-1, 1, [sizes[one] for one in term]).astype(dtype) for term in terms)
    exact = np.einsum(text, a.astype(np.longdouble), b.astype(np.longdouble))
    magnitude = np.einsum(text, np.abs(a).astype(np.longdouble), np.abs(b).astype(np.longdouble))
    long = columns if "j" not in text.partition("->")[2] else rows
    bound = (long / (4 if long >= 64 else 1) + 64) * np.finfo(dtype).eps / 2 * magnitude
    assert np.all(np.abs(tw.einsum(text, a, b) - exact) <= bound)


def test_small_integers_wrap_around_as_in_numpy() -> None:
    a, b = np.full((40, 300), 100, np.int16), np.full(300, 77, np.int16)
    np.testing.assert_array_equal(tw.einsum("ij,j->i", a, b), np.einsum("ij,j->i", a, b))
    np.testing.assert_array_equal(tw.einsum("ij,i->j", a.T.copy(), b), np.einsum("ij,i->j", a.T.copy(), b))


def test_short_rows_of_the_output_wait_in_registers() -> None:
    """Sums whose row of the output is a few vectors are the direct form's; those of longer rows wait in the caches."""
    for extent, streams in ((64, False), (80, True)):
        contraction = normalise(einsum_contraction("bka,bk->ba", {"a": extent, "b": 50, "k": 40}, F32))
        assert isinstance(choose_form(contraction, CPU_AVX512).form, MatrixVectorForm) == streams


def test_short_rows_are_read_as_several_streams() -> None:
    """Unless all of them together are short, too."""
    far = form_of("bak,bk->ba", a=400, b=3, k=400)
    assert (far.apart, far.row_start(7)) == (50, 350)
    uneven = form_of("bak,bk->ba", a=401, b=3, k=400)
    assert (uneven.apart, uneven.row_start(7)) == (51, 350)  # the last streams begin earlier
    assert form_of("bak,bk->ba", a=32, b=3, k=32).apart == 1
    assert form_of("bak,bk->ba", a=32, b=3, k=4096).apart == 1


def with_gaps(contraction: Contraction) -> Contraction:
    """The contraction of every other element of the operands."""
    dimensions = (
        replace(one, stride_left=2 * one.stride_left, stride_right=2 * one.stride_right)
        for one in contraction.dimensions
    )
    return replace(contraction, dimensions=tuple(dimensions))


def test_what_does_not_lie_so_that_it_can_be_streamed_is_a_fold() -> None:
    sizes = {"i": 8, "j": 9, "a": 20, "b": 20, "k": 500}
    for text in ("ka,ka->a", "k,k->", "ijab,ijab->", "ijab,ijba->", "ak,a->k"):
        contraction = normalise(einsum_contraction(text, sizes, F32))
        assert not why_a_fold(contraction, CPU_AVX512)
        assert bool(why_a_fold(with_gaps(contraction), CPU_AVX512)) == (text != "ak,a->k")


def test_sums_over_several_indices() -> None:
    rng = np.random.default_rng(0)
    one, two = (rng.integers(-4, 5, (8, 9, 20, 20)).astype(np.float32) for _ in range(2))
    for expression in ("ijab,ijab->", "ijab,ijba->", "ijab,ijab->i"):
        np.testing.assert_array_equal(tw.einsum(expression, one, two), np.einsum(expression, one, two))
        gaps = one[..., ::2], two[..., ::2] if expression != "ijab,ijba->" else two[..., ::2, :]
        np.testing.assert_array_equal(tw.einsum(expression, *gaps), np.einsum(expression, *gaps))


@tw.program
def column_means(rows: tw.f64["n", "m"]) -> Any:
    count = rows.shape[0]
    return tw.map(lambda column: tw.reduce("add", 0.0, column) / count, rows.T)


@tw.program
def row_lengths(rows: tw.f64["n", "m"]) -> Any:
    return tw.map(lambda row: tw.sqrt(tw.reduce("add", 0.0, tw.map(lambda x: x * x, row))), rows)


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (300, 7), (513, 100), (2000, 260), (3, 100_000)])
def test_functions_of_sums_follow_where_they_are_stored(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).uniform(1, 2, shape)
    bound = (max(shape) + 3) * np.finfo("f8").eps  # of positive terms added in any order, and a function of the sum
    np.testing.assert_allclose(column_means(rows), rows.mean(axis=0), rtol=bound)
    np.testing.assert_allclose(row_lengths(rows), np.sqrt((rows**2).sum(axis=1)), rtol=bound)
    relu = tw.einsum("ij,j->i", rows - 1.5, rows[0], epilogue=lambda x: tw.maximum(x, 0))
    exact = (rows - 1.5) @ rows[0]
    size = np.abs(rows - 1.5) @ rows[0]
    assert (np.abs(relu - np.maximum(exact, 0)) <= bound * size).all()


def test_epilogues_are_streamed() -> None:
    plan = tw.plan("ij,j->i", (300, 200), (200,), epilogue=lambda x: tw.maximum(x, 0), target="cpu")
    assert "read once, in order" in plan.explain()
    bias = tw.plan("ij,j->i", (300, 200), (200,), epilogue=lambda x, y: x + y, epilogue_operands=[((300,), "i")],
                   target="cpu")  # fmt: skip
    assert "read once, in order" in bias.explain()


def test_vectors_of_results_need_what_follows_side_by_side() -> None:
    contraction = einsum_contraction("ij,i->j", {"i": 300, "j": 200}, F64)
    for step, streamed in ((1, True), (0, True), (2, False)):
        further = EpilogueOperand(replace(contraction.out, buffer="bias"), (size(step), size(0)))
        found = choose_matrix_vector_form(normalise(replace(contraction, epilogue_operands=(further,))), CPU_AVX512)
        assert isinstance(found, MatrixVectorForm) is streamed


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4", "f2"])
@pytest.mark.parametrize("text", ["k,k->", "ik,ik->i"])
@pytest.mark.parametrize("length", [64, 79, 1000])
def test_operands_that_lie_backwards_are_read_in_vectors(text: str, dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    shape = (length,) if text == "k,k->" else (5, length)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for _ in range(2))
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * a[..., ::-1], b - 2j * b
    exact = np.einsum(text, a.astype("c16"), b[..., ::-1])
    for left, right in ((a, b[..., ::-1]), (b[..., ::-1], a)):
        found = tw.einsum(text, left, right, target="cpu")
        np.testing.assert_array_equal(np.asarray(found, "c16"), exact)  # small whole numbers: sums are exact
