"""Operators and epilogues of the packed CPU form: nan, bools, control flow, conversions, vectors of any epilogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, evaluate, examples, random_buffers

from tilewright.contraction.form import Contraction, EpilogueOperand, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Lambda, Literal, Type
from tilewright.ir.scalars import BOOL, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Operation, VectorType, element_of
from tilewright.kernel.traversal import expressions, walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.combine import nan_guard
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

HOST = host_machine()
MACHINES = [HOST, CPU_AVX2, CPU_AVX512, CPU_NEON, replace(CPU_AVX2, vector_bytes=0, vector_registers=0)]
ODD = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0)


def form_of(contraction: Contraction, machine: Machine = HOST) -> PackedForm:
    return make_packed_form(normalise(contraction), machine)


# --- nan --------------------------------------------------------------------------------------------------------------


@st.composite
def extrema(draw: st.DrawFn) -> tuple[Contraction, dict[str, np.ndarray]]:
    """A contraction by min or max of operands in which nan and infinities occur, or some of them, or none."""
    combine = draw(st.sampled_from(["min", "max"]))
    function = draw(st.sampled_from(["add", "sub", "mul", "min", "max"]))
    scalar = draw(st.sampled_from([F16, F32, F64]))
    sizes = {name: draw(st.sampled_from([1, 2, 7, 16, 33, 70])) for name in "ab"} | {"q": draw(st.integers(1, 40))}
    text = draw(st.sampled_from(["aq,qb->ab", "qa,qb->ba", "aq,bq->ab"]))
    contraction = einsum_contraction(
        text, sizes, scalar, function, combine, float("inf") if combine == "min" else -float("inf")
    )
    buffers = random_buffers(contraction, draw(st.integers(0, 100)))
    for name in "AB":
        odd = draw(st.lists(st.sampled_from(ODD), max_size=3))
        for value in odd:
            buffers[name][draw(st.integers(0, len(buffers[name]) - 1))] = value
    return contraction, buffers


@settings(max_examples=examples(60))
@given(case=extrema(), machine=st.sampled_from(MACHINES))
def test_min_and_max_hand_on_nan(case: tuple[Contraction, dict[str, np.ndarray]], machine: Machine) -> None:
    """Exactly what NumPy's minimum and maximum give: they only pick one of their operands, so nothing is rounded but
    the one operation of the map.
    """
    contraction, buffers = case
    got = run_cpu(write_packed_kernel(form_of(contraction, machine)), buffers, {})
    wide = contraction.left.element == F16  # carried in f32 until the end
    with np.errstate(all="ignore"):
        expected = evaluate(contraction, buffers, wide=wide).astype(got.dtype)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("function", "combine", "values"),
    [
        ("add", "min", (np.inf, -np.inf)),
        ("add", "max", (-np.inf, np.inf)),
        ("sub", "min", (np.inf, np.inf)),
        ("sub", "max", (-np.inf, -np.inf)),
        ("mul", "max", (0.0, np.inf)),
        ("mul", "min", (-np.inf, 0.0)),
        ("max", "min", (np.nan, 1.0)),
        ("min", "max", (1.0, np.nan)),
        ("add", "min", (np.nan, 1.0)),
        ("add", "max", (1.0, np.nan)),
    ],
)
@pytest.mark.parametrize("at", [0, 13, 36])
def test_the_guard_lets_no_nan_through(function: str, combine: str, values: tuple[float, float], at: int) -> None:
    """One pair of elements that make a nan, in a block that is large in all directions."""
    neutral = np.inf if combine == "min" else -np.inf
    contraction = einsum_contraction("aq,qb->ab", dict(a=37, b=75, q=37), F32, function, combine, neutral)
    buffers = random_buffers(contraction, 1)
    buffers["A"][at * 37 + at], buffers["B"][at * 75 + 2 * at] = values
    got = run_cpu(write_packed_kernel(form_of(contraction)), buffers, {})[: 37 * 75].reshape(37, 75)
    expected = evaluate(contraction, buffers)[: 37 * 75].reshape(37, 75)
    assert np.isnan(expected[at, 2 * at])
    np.testing.assert_array_equal(got, expected)


def test_which_contractions_have_a_guard() -> None:
    def guarded(function: str, combine: str, scalar: ScalarType = F32) -> bool:
        sizes = dict(a=4, b=40, q=4)
        return nan_guard(einsum_contraction("aq,qb->ab", sizes, scalar, function, combine)) is not None

    assert guarded("add", "min")
    assert guarded("mul", "max", F64)
    assert not guarded("add", "min", I32)  # integers have no nan
    assert not guarded("mul", "add")  # a sum hands on nan by itself
    assert not guarded("div", "min")  # 0 / 0


def test_guarded_steps_compare_once() -> None:
    """In the loop of a guarded block min is one comparison and one choice, which are one instruction."""
    contraction = einsum_contraction("aq,qb->ab", dict(a=12, b=64, q=64), F32, "add", "min", np.inf)
    form = form_of(contraction, CPU_AVX512)
    kernel = write_packed_kernel(form).kernel
    wide = VectorType(F32, 16)
    operators = [
        part.operator
        for statement in walk(kernel.body)
        for part in expressions(statement)
        if isinstance(part, Operation) and part.type == wide
    ]
    tiles = form.vectors * form.rows
    assert operators.count("select") == tiles
    assert operators.count("min") >= tiles  # the other loop, for blocks with nan


# --- bools, control flow, conversions ---------------------------------------------------------------------------------


def _function(types: list[ScalarType], write: Any) -> Lambda:
    b = Builder()
    return b.function([Type(one) for one in types], lambda *parameters: write(b, *parameters))


@settings(max_examples=examples(40))
@given(case=cases(scalar=BOOL), machine=st.sampled_from(MACHINES))
def test_any_contraction_of_bools(case: Case, machine: Machine) -> None:
    buffers = case.buffers()
    got = run_cpu(write_packed_kernel(form_of(case.contraction, machine)), buffers, case.scalars)
    assert_close(case.contraction, got, buffers, case.scalars)


BOOL_MAPS = {
    "less": lambda b, x, y: b.apply("lt", x, y),
    "not equal": lambda b, x, y: b.apply("ne", x, y),
    "neither": lambda b, x, y: b.apply("not", b.apply("or", x, y)),
    "chosen": lambda b, x, y: b.apply("select", x, b.apply("not", y), Literal(False, BOOL)),
    "if": lambda b, x, y: b.cond(x, lambda: b.apply("not", y), lambda: y)[0],
    "if not": lambda b, x, y: b.cond(b.apply("not", x), lambda: x, lambda: b.apply("ge", x, y))[0],
    "nested": lambda b, x, y: b.cond(
        x, lambda: b.cond(y, lambda: Literal(False, BOOL), lambda: x)[0], lambda: b.apply("eq", x, y)
    )[0],
}


@pytest.mark.parametrize("machine", [HOST, CPU_NEON], ids=lambda m: m.name)
@pytest.mark.parametrize("combine", ["or", "xor", "ge"])
@pytest.mark.parametrize("name", BOOL_MAPS)
def test_functions_of_bools(name: str, combine: str, machine: Machine) -> None:
    dense = einsum_contraction("aq,qb->ab", dict(a=9, b=150, q=7), BOOL, "and", combine, combine == "ge")
    contraction = replace(dense, map=_function([BOOL, BOOL], BOOL_MAPS[name]))
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_packed_kernel(form_of(contraction, machine)), buffers, {})
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize("scalar", [F32, F64, I8, I64, F16], ids=str)
@pytest.mark.parametrize("combine", ["or", "xor"])
def test_bools_from_comparisons(scalar: ScalarType, combine: str) -> None:
    """Vectors of masks, as many lanes as the compared numbers have, are combined as bytes."""
    dense = einsum_contraction("aq,qb->ab", dict(a=9, b=75, q=21), BOOL, "and", combine, False)
    contraction = replace(
        dense,
        left=replace(dense.left, element=scalar),
        right=replace(dense.right, element=scalar),
        map=_function([scalar, scalar], lambda b, x, y: b.apply("lt", x, y)),
    )
    buffers = random_buffers(contraction, 3)
    form = form_of(contraction, CPU_AVX512)
    assert form.lanes == 64 // max(scalar.bytes, 4 if scalar == F16 else 1)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


BRANCHES = {
    "one of two": lambda b, x, y: b.cond(b.apply("gt", x, y), lambda: x, lambda: b.apply("neg", y))[0],
    "nested": lambda b, x, y: b.cond(
        b.apply("gt", x, y),
        lambda: b.cond(b.apply("gt", y, b.apply("neg", x)), lambda: b.apply("mul", x, y), lambda: x)[0],
        lambda: b.apply("sub", x, y),
    )[0],
    "several results": lambda b, x, y: b.apply(
        "mul", *b.cond(b.apply("lt", x, y), lambda: (y, x), lambda: (b.apply("neg", x), y))
    ),
    "division": lambda b, x, y: b.cond(
        b.apply("ne", y, Literal(0, y.type.element)), lambda: b.apply("floordiv", x, y), lambda: x
    )[0],
}


@pytest.mark.parametrize("scalar", [F32, I32, I8], ids=str)
@pytest.mark.parametrize("name", BRANCHES)
def test_control_flow_in_lanes(name: str, scalar: ScalarType) -> None:
    if name == "division" and scalar.is_float:
        pytest.skip("a floored quotient jumps where rounding moves it over an integer")
    dense = einsum_contraction("aq,qb->ab", dict(a=9, b=75, q=21), scalar)
    contraction = replace(dense, map=_function([scalar, scalar], BRANCHES[name]))
    form = form_of(contraction)
    assert form.lanes > 1
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


def test_control_flow_of_complex_numbers() -> None:
    """A swap of the two parts of a choice must not mix what was written with what is to be read."""

    def write(b: Builder, x: Atom, y: Atom) -> Atom:
        real = b.apply("real", x)
        return b.cond(b.apply("gt", real, Literal(0.0, F32)), lambda: b.apply("conj", y), lambda: b.apply("mul", x, y))[
            0
        ]

    contraction = replace(einsum_contraction("aq,qb->ab", dict(a=9, b=75, q=21), C64), map=_function([C64, C64], write))
    form = form_of(contraction)
    assert form.lanes > 1
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


@pytest.mark.parametrize(
    ("left", "right"), [(I8, I8), (U8, I8), (I16, U8), (F16, F16), (F32, F64), (BOOL, I8)], ids=str
)
@pytest.mark.parametrize("text", ["aq,qb->ab", "aq,bq->ab", "qa,bq->ba"])
def test_operands_are_converted_in_packing(left: ScalarType, right: ScalarType, text: str) -> None:
    total = F64 if F64 in (left, right) else F32 if left.is_float else I32
    dense = einsum_contraction(text, dict(a=19, b=75, q=70), total)
    contraction = replace(
        dense,
        left=replace(dense.left, element=left),
        right=replace(dense.right, element=right),
        map=_function([left, right], lambda b, x, y: b.apply("mul", b.cast(total, x), b.cast(total, y))),
    )
    form = form_of(contraction)
    assert [one.type.element for one in form.contraction.map.parameters] == [total, total]
    assert form.fused_multiply_add == total.is_float
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


def test_an_operand_in_two_types_is_converted_by_the_map() -> None:
    def write(b: Builder, x: Atom, y: Atom) -> Atom:
        return b.apply("add", b.apply("mul", b.cast(I32, x), b.cast(I32, y)), b.cast(I32, b.apply("xor", x, y)))

    dense = einsum_contraction("aq,qb->ab", dict(a=19, b=75, q=20), I32)
    contraction = replace(
        dense,
        left=replace(dense.left, element=I8),
        right=replace(dense.right, element=I8),
        map=_function([I8, I8], write),
    )
    form = form_of(contraction)
    assert [one.type.element for one in form.contraction.map.parameters] == [I8, I8]
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


# --- epilogues --------------------------------------------------------------------------------------------------------

EPILOGUES = {
    "relu": (0, lambda b, c: b.apply("max", c, Literal(0, c.type.element))),
    "bias and relu": (1, lambda b, c, d: b.apply("max", b.apply("add", c, d), Literal(0, c.type.element))),
    "alpha and beta": (1, lambda b, c, d: b.apply("add", b.apply("mul", Literal(3, c.type.element), c), d)),
    "two": (2, lambda b, c, d, e: b.apply("add", b.apply("mul", c, d), e)),
    "if": (1, lambda b, c, d: b.cond(b.apply("gt", c, d), lambda: c, lambda: b.apply("neg", d))[0]),
}
STORED = {F32: (F32, F16, F64, I32), F64: (F64, F32), I32: (I32, I8, I64), I8: (I8, I32)}


@st.composite
def with_epilogues(draw: st.DrawFn) -> Contraction:
    """One or two dimensions on each side, an output of any strides, an epilogue with operands of any."""
    scalar = draw(st.sampled_from(sorted(STORED, key=str)))
    stored = draw(st.sampled_from(STORED[scalar]))
    text = draw(st.sampled_from(["aq,qb->ab", "aq,bq->ba", "acq,qb->abc", "aq,qbc->abc", "daq,dqb->dba", "q,qb->b"]))
    sizes = {name: draw(st.sampled_from([1, 3, 16, 21, 40, 64])) for name in "abc"} | {"d": 2}
    sizes["q"] = draw(st.sampled_from([1, 9, 70]))
    dense = einsum_contraction(text, sizes, scalar)
    output = text.split("->")[1]
    count, write = EPILOGUES[draw(st.sampled_from(sorted(EPILOGUES)))]
    operands = []
    for number in range(count):
        order = draw(st.permutations(output))
        kept = draw(st.sets(st.sampled_from(output)))
        strides, total = dict.fromkeys("abcdq", 0), draw(st.sampled_from([1, 1, 2]))
        for label in order:
            if label in kept:
                strides[label] = total
                total *= sizes[label]
        places = tuple(size(strides[one.name]) for one in dense.dimensions)
        operands.append(EpilogueOperand(Operand(f"D{number}", scalar, size(draw(st.sampled_from([0, 1])))), places))

    def epilogue(b: Builder, *arguments: Atom) -> Atom:
        value = write(b, *arguments)
        return value if stored == scalar else b.cast(stored, value)

    return replace(
        dense,
        out=replace(dense.out, element=stored),
        epilogue=_function([scalar] * (count + 1), epilogue),
        epilogue_operands=tuple(operands),
    )


@settings(max_examples=examples(80))
@given(contraction=with_epilogues(), machine=st.sampled_from(MACHINES), waits=st.booleans(), seed=st.integers(0, 100))
def test_any_epilogue(contraction: Contraction, machine: Machine, waits: bool, seed: int) -> None:
    form = form_of(contraction, machine)
    if waits:  # several blocks of both sides and pieces of the sum, whose partial sums wait in scratch memory
        form = replace(form, levels=1, buffered=False, nontemporal=False, depth=16,
                       vector_block=2 * form.vector_tile, scalar_block=2 * form.rows)  # fmt: skip
    buffers = random_buffers(contraction, seed)
    if contraction.left.element.is_integer:  # so that casts to smaller types do not depend on C's rules for overflow
        buffers = {name: (array % 3).astype(array.dtype) for name, array in buffers.items()}
    got = run_cpu(write_packed_kernel(form), buffers, {})
    if contraction.out.element in (I8, I32, I64):
        np.testing.assert_allclose(got, evaluate(contraction, buffers), rtol=0, atol=0)
        return
    assert_close(contraction, got, buffers, {})


@pytest.mark.parametrize("name", ["tanh", "exp"])
def test_epilogues_of_the_vector_library(name: str) -> None:
    contraction = replace(
        einsum_contraction("aq,qb->ab", dict(a=30, b=75, q=9), F32),
        epilogue=_function([F32], lambda b, c: b.apply(name, c)),
    )
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_packed_kernel(form_of(contraction)), buffers, {})[: 30 * 75]
    sums = buffers["A"][:270].reshape(30, 9).astype("f8") @ buffers["B"][:675].reshape(9, 75)
    expected = getattr(np, name)(sums).ravel()
    # The rounding of a sum of nine products below one, and four units in the last place of the function.
    bound = (9 + 2) * 9 * np.finfo("f4").eps + 4 * np.finfo("f4").eps
    np.testing.assert_allclose(got, expected, rtol=bound, atol=bound)


def test_an_epilogue_reads_what_the_output_held() -> None:
    """beta: the output is an operand of its own epilogue, element by element."""
    dense = einsum_contraction("aq,qb->ab", dict(a=30, b=75, q=9), F64)
    places = tuple(one.stride_out for one in dense.dimensions)
    contraction = replace(
        dense,
        epilogue=_function([F64, F64], lambda b, c, d: b.apply("sub", c, d)),
        epilogue_operands=(EpilogueOperand(Operand("C", F64, size(0)), places),),
    )
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_packed_kernel(form_of(contraction)), buffers, {})
    assert_close(contraction, got, buffers, {})


# --- complex numbers --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(case=st.one_of(cases(scalar=C64), cases(scalar=C128)), machine=st.sampled_from(MACHINES))
def test_any_contraction_of_complex_numbers(case: Case, machine: Machine) -> None:
    buffers = case.buffers()
    got = run_cpu(write_packed_kernel(form_of(case.contraction, machine)), buffers, case.scalars)
    assert_close(case.contraction, got, buffers, case.scalars)


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,bq->ba", "aq,bq->ab", "qa,qb->ab"])
@pytest.mark.parametrize("length", [9, 300])
def test_complex_products_take_four_multiply_adds(text: str, length: int) -> None:
    contraction = einsum_contraction(text, dict(a=50, b=90, q=length), C64)
    form = form_of(contraction, CPU_AVX512)
    operators = [
        part.operator
        for statement in walk(write_packed_kernel(form).kernel.body)
        for part in expressions(statement)
        if isinstance(part, Operation) and element_of(part.type) == F32
    ]
    assert operators.count("fma") == 4 * form.vectors * form.rows
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


def test_complex_outputs_past_the_caches() -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=1030, b=1077, q=1), C64)
    form = form_of(contraction, replace(HOST, l3_bytes=1 << 20))
    assert form.nontemporal
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}, threads=2), buffers, {})
