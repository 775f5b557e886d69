"""Contractions are found in map nests of every style, and what is none is refused with its reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples
from nests import check, contraction_of, matmul_nest, product, refused, zero

from tilewright.contraction.form import Contraction, Kind, Refusal
from tilewright.contraction.recognise import recognise
from tilewright.ir import nodes
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Lambda, Program, Type, Variable
from tilewright.ir.scalars import F32, F64, I32, I64
from tilewright.ir.sizes import size
from tilewright.ir.views import parameter_view

SIZES = {"n": 3, "m": 4, "k": 5}


def inputs(b: Builder, *shapes: str, scalar: object = F64) -> list[Variable]:
    """Parameters A, B, ... of shapes such as "nk"."""
    return [b.variable("ABCDE"[i], nodes.array(scalar, *shape)) for i, shape in enumerate(shapes)]  # type: ignore[arg-type]


def kinds(program: Program) -> str:
    return "".join(d.kind.value for d in contraction_of(program).dimensions)


def iota(b: Builder, name: str) -> Variable:
    return b.bind(nodes.Iota(size(name)), "places")


# --- what is one ------------------------------------------------------------------------------------------------------


def test_matmul_of_rows_and_columns() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "km")
    result = b.map([a], lambda row: b.map([b.rearrange(other, (1, 0))], lambda column: product(b, [row, column], F64)))
    program = b.program("matmul", [a, other], [result])
    assert kinds(program) == "MNK"
    check(program, SIZES)


def test_matmul_by_indices() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "km")
    rows = iota(b, "n")

    def element(i: Variable, j: Variable) -> Variable:
        return b.redomap(
            b.operator("add", F64),
            zero(F64),
            [iota(b, "k")],
            lambda k: b.apply("mul", b.index(a, i, k), b.index(other, k, j)),
        )

    result = b.map([rows], lambda i: b.map([iota(b, "m")], lambda j: element(i, j)))
    program = b.program("matmul", [a, other], [result])
    assert kinds(program) == "MNK"
    check(program, SIZES)


def test_indices_computed_affinely() -> None:
    """A convolution: signal[2*i + k + 1] * weights[k], with a size and a scalar parameter in the index too."""
    b = Builder()
    signal = b.variable("signal", nodes.array(F64, size("n") * 2 + size("k") + 3))
    weights = b.variable("weights", nodes.array(F64, "k"))
    shift = b.variable("shift", Type(I64))

    def element(i: Variable) -> Variable:
        start = b.apply(
            "sub", b.apply("add", b.apply("mul", nodes.index_literal(2), i), shift), b.size_value(size("n") * 0)
        )

        def term(weight: Variable, k: Variable) -> Variable:
            return b.apply("mul", b.index(signal, b.apply("add", start, k)), weight)

        return b.redomap(b.operator("add", F64), zero(F64), [weights, iota(b, "k")], term)

    result = b.map([iota(b, "n")], element)
    nest = b._scopes[0].pop()
    places = b._scopes[0].pop()
    b._scopes[0][:] = [places, nest]
    n = b.variable("unused", nodes.array(F64, "n"))
    program = b.program("convolution", [n, weights, signal, shift], [result])
    assert kinds(program) == "MK"
    check(program, {"n": 4, "k": 3}, {"shift": 1})


def test_slices_and_diagonals_of_operands() -> None:
    b = Builder()
    a, other = inputs(b, "kkn", "mk")

    def element(i: Variable, row: Variable) -> Variable:
        part = b.bind(nodes.Slice(row, (nodes.SliceDimension(size("k") - 1, size("k"), -1),)))
        term: Callable[..., Atom] = lambda y, k: b.apply("mul", b.index(a, k, k, i), y)  # noqa: E731
        return b.redomap(b.operator("add", F64), zero(F64), [part, iota(b, "k")], term)

    rows = iota(b, "n")
    result = b.map([rows], lambda i: b.map([other], lambda row: element(i, row)))
    program = b.program("diagonal", [a, other], [result])
    found = contraction_of(program)
    assert found.dimensions[-1].stride_left == size("A.stride0") + size("A.stride1")
    assert found.dimensions[-1].stride_right == -size("B.stride1")
    check(program, SIZES)


def test_several_contracted_dimensions() -> None:
    b = Builder()
    a, other = inputs(b, "nkl", "mkl", scalar=I32)

    def element(x: Variable, y: Variable) -> Variable:
        return b.redomap(b.operator("add", I32), zero(I32), [x, y], lambda p, q: product(b, [p, q], I32))

    result = b.map([a], lambda x: b.map([other], lambda y: element(x, y)))
    program = b.program("two", [a, other], [result])
    assert kinds(program) == "MNKK"
    check(program, SIZES | {"l": 2})


@pytest.mark.parametrize("batch", [1, 2])
def test_batch_dimensions(batch: int) -> None:
    b = Builder()
    outer = "pq"[:batch]
    a, other = inputs(b, outer + "nk", outer + "mk")

    def nest(x: Variable, y: Variable, depth: int) -> Variable:
        return b.map([x, y], lambda p, q: nest(p, q, depth - 1)) if depth else matmul_nest(b, x, y, F64)

    program = b.program("batched", [a, other], [nest(a, other, batch)])
    assert kinds(program) == "C" * batch + "MNK"
    check(program, SIZES | {"p": 2, "q": 3})


def test_matrix_times_vector() -> None:
    b = Builder()
    a, x = inputs(b, "nk", "k")
    program = b.program("matvec", [a, x], [b.map([a], lambda row: product(b, [row, x], F64))])
    assert kinds(program) == "MK"
    check(program, SIZES)


def test_inner_product() -> None:
    b = Builder()
    x, y = inputs(b, "k", "k")
    program = b.program("dot", [x, y], [product(b, [x, y], F64)])
    assert kinds(program) == "K"
    check(program, SIZES)


@pytest.mark.parametrize(
    ("name", "map_name", "combine", "neutral"),
    [("min_plus", "add", "min", float("inf")), ("max_times", "mul", "max", float("-inf")),
     ("any", "min", "max", float("-inf"))],
)  # fmt: skip
def test_semirings(name: str, map_name: str, combine: str, neutral: float) -> None:
    b = Builder()
    a, other = inputs(b, "nk", "mk")

    def element(x: Variable, y: Variable) -> Variable:
        operator = b.operator(combine, F64)
        return b.redomap(operator, nodes.Literal(neutral, F64), [x, y], lambda p, q: b.apply(map_name, p, q))

    program = b.program(name, [a, other], [b.map([a], lambda x: b.map([other], lambda y: element(x, y)))])
    found = contraction_of(program)
    assert found.neutral == nodes.Literal(neutral, F64)
    check(program, SIZES)


def test_epilogue_with_operands_and_scalars() -> None:
    b = Builder()
    a, other, c, bias = inputs(b, "nk", "mk", "mn", "n")
    alpha = b.variable("alpha", Type(F64))

    def element(x: Variable, y: Variable, before: Variable, one: Variable) -> Variable:
        total = b.apply("mul", alpha, product(b, [x, y], F64))
        return b.apply("max", b.apply("sub", total, before), one)

    flipped = lambda: b.rearrange(c, (1, 0))  # noqa: E731
    result = b.map(
        [a, iota(b, "n"), bias],
        lambda x, i, one: b.map([other, b.bind(nodes.Index(flipped(), (i,)))], lambda y, z: element(x, y, z, one)),
    )
    program = b.program("scaled", [a, other, c, bias, alpha], [result])
    found = contraction_of(program)
    assert [variable.name for variable in found.scalars] == ["alpha"]
    assert sorted(one.operand.buffer for one in found.epilogue_operands) == ["C", "D"]
    check(program, SIZES, {"alpha": 3.0})


def test_map_with_casts_scalars_and_three_uses() -> None:
    """(alpha * cast x - y) * y: one operand is used twice, the other converted."""
    b = Builder()
    a, other = b.variable("A", nodes.array(I32, "n", "k")), b.variable("B", nodes.array(F64, "m", "k"))
    alpha = b.variable("alpha", Type(F64))

    def term(x: Variable, y: Variable) -> Variable:
        return b.apply("mul", b.apply("sub", b.apply("mul", alpha, b.cast(F64, x)), y), y)

    def element(x: Variable, y: Variable) -> Variable:
        return b.redomap(b.operator("add", F64), zero(F64), [x, y], term)

    program = b.program("mixed", [a, other, alpha], [b.map([a], lambda x: b.map([other], lambda y: element(x, y)))])
    found = contraction_of(program)
    assert (found.left.element, found.right.element) == (I32, F64)
    check(program, SIZES, {"alpha": 2.0})


def test_operands_follow_the_order_of_use() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "mk")

    def element(x: Variable, y: Variable) -> Variable:
        return b.redomap(b.operator("add", F64), zero(F64), [x, y], lambda p, q: b.apply("sub", q, p))

    program = b.program("minus", [a, other], [b.map([a], lambda x: b.map([other], lambda y: element(x, y)))])
    assert contraction_of(program).left.buffer == "B"
    assert kinds(program) == "NMK"
    check(program, SIZES)


@pytest.mark.parametrize("permutation", [(1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_result_rearranged_inside_the_nest(permutation: tuple[int, ...]) -> None:
    b = Builder()
    a, other = inputs(b, "nk", "lmpk")

    def inner(row: Variable) -> Variable:
        result = b.map([other], lambda x: b.map([x], lambda y: b.map([y], lambda z: product(b, [row, z], F64))))
        return b.rearrange(result, permutation)

    check(b.program("rearranged", [a, other], [b.map([a], inner)]), SIZES | {"l": 2, "p": 6})


def test_result_rearranged_twice_in_a_row() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "lmpk")

    def inner(row: Variable) -> Variable:
        result = b.map([other], lambda x: b.map([x], lambda y: b.map([y], lambda z: product(b, [row, z], F64))))
        return b.rearrange(b.rearrange(result, (1, 2, 0)), (0, 2, 1))

    check(b.program("rearranged", [a, other], [b.map([a], inner)]), SIZES | {"l": 2, "p": 6})


def test_one_array_twice() -> None:
    b = Builder()
    (a,) = inputs(b, "nk")
    program = b.program("gram", [a], [matmul_nest(b, a, a, F64)])
    found = contraction_of(program)
    assert found.left.buffer == found.right.buffer == "A"
    check(program, SIZES)


def test_operand_invariant_to_a_contracted_dimension() -> None:
    """sum over k of A[i] * B[j, k]."""
    b = Builder()
    a, other = inputs(b, "n", "mk")

    def element(x: Variable, row: Variable) -> Variable:
        return b.redomap(b.operator("add", F64), zero(F64), [row], lambda y: b.apply("mul", x, y))

    program = b.program("outer", [a, other], [b.map([a], lambda x: b.map([other], lambda row: element(x, row)))])
    check(program, SIZES)


def test_an_order_that_counts_is_kept() -> None:
    """The last element that is not 0: associative, not commutative, one contracted dimension."""
    b = Builder()
    a, other = inputs(b, "nk", "mk")
    program = b.program("last", [a, other], [b.map([a], lambda x: b.map([other], lambda y: _last(b, [x, y])))])
    check(program, SIZES)


def _last(b: Builder, arrays: list[Variable], commutative: bool = False) -> Variable:
    def combine(x: Variable, y: Variable) -> Variable:
        return b.apply("select", b.apply("eq", y, zero(F64)), x, y)

    operator = b.function([Type(F64), Type(F64)], combine)
    return b.redomap(operator, zero(F64), arrays, lambda x, y: b.apply("mul", x, y), commutative)


def test_names_of_dimensions_are_different() -> None:
    b = Builder()
    a = b.variable("A", nodes.array(F64, "d2", size("d2") * 2, "d1"))
    other = b.variable("B", nodes.array(F64, "d1", "d1"))
    result = b.map([a], lambda x: matmul_nest(b, x, other, F64))
    program = b.program("named", [a, other], [result])
    names = [d.name for d in contraction_of(program).dimensions]
    assert len(set(names)) == len(names), names
    check(program, {"d1": 3, "d2": 2})


# --- what is none -----------------------------------------------------------------------------------------------------


def _refusal(write: Callable[[Builder, Variable, Variable, Variable], Atom | tuple[Atom, ...]]) -> str:
    b = Builder()
    a, other, vector = inputs(b, "nk", "mk", "k")
    results = write(b, a, other, vector)
    return refused(b.program("none", [a, other, vector], results if isinstance(results, tuple) else (results,)))


def test_refuses_other_constructs() -> None:
    reason = _refusal(lambda b, a, other, v: b.scan(b.operator("add", F64), zero(F64), v))
    assert reason == "scan is not a map nest around a reduction"


def test_refuses_several_results() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> tuple[Atom, ...]:
        return b.map_many([a], lambda row: (product(b, [row, v], F64), product(b, [v, row], F64)))

    assert _refusal(write) == "the nest gives 2 arrays, a contraction gives one"


def test_refuses_a_nest_without_reduction() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        return b.map([a], lambda row: b.map([row, v], lambda x, y: b.apply("mul", x, y)))

    assert "there is no reduction in the nest" in _refusal(write)


def _outer_product(write: Callable[[Builder, Variable, Variable], Atom], *shapes: str) -> Contraction | Refusal:
    """What a nest over two arrays is, if outer products are wanted."""
    b = Builder()
    first, second = inputs(b, *shapes)
    program = b.program("outer", [first, second], [write(b, first, second)])
    statement = program.body.statements[-1]
    views = {one.name: parameter_view(one) for one in program.parameters}
    out = {one.name: parameter_view(one) for one in statement.targets}
    return recognise(statement, views, out, products=True)


def test_outer_products_have_no_contracted_dimension() -> None:
    def product_of(b: Builder, x: Variable, y: Variable) -> Atom:
        return b.map([x, y], lambda r, s: b.map([r], lambda p: b.map([s], lambda q: b.apply("mul", p, q))))

    found = _outer_product(product_of, "kn", "km")
    assert isinstance(found, Contraction)
    assert [one.kind for one in found.dimensions] == [Kind.C, Kind.M, Kind.N]
    assert found.epilogue is None and found.combine.body.results == found.combine.parameters[1:]


def test_refuses_outer_products_whose_scalars_belong_to_a_row() -> None:
    def write(b: Builder, x: Variable, y: Variable) -> Atom:
        def row(element: Variable) -> Atom:
            root = b.apply("sqrt", element)
            return b.map([y], lambda other: b.apply("mul", root, other))

        return b.map([x], row)

    found = _outer_product(write, "n", "m")
    assert isinstance(found, Refusal) and "scalars are computed once for each row" in found.reasons[0]


def test_an_operand_of_an_outer_product_may_have_all_dimensions() -> None:
    def write(b: Builder, x: Variable, y: Variable) -> Atom:
        return b.map([x], lambda row: b.map([row, y], lambda p, q: b.apply("mul", p, q)))

    found = _outer_product(write, "nm", "m")
    assert isinstance(found, Contraction)
    assert [one.kind for one in found.dimensions] == [Kind.M, Kind.C]


def test_refuses_elementwise_products() -> None:
    def write(b: Builder, x: Variable, y: Variable) -> Atom:
        return b.map([x, y], lambda one, other: b.map([one, other], lambda p, q: b.apply("mul", p, q)))

    found = _outer_product(write, "nm", "nm")
    assert isinstance(found, Refusal) and "all dimensions of the result" in found.reasons[0]


def test_refuses_arrays_computed_inside() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            squares = b.map([row], lambda x: b.apply("mul", x, x))
            return product(b, [squares, v], F64)

        return b.map([a], inner)

    reason = _refusal(write)
    assert "stand side by side in the nest" in reason and "map t" in reason and "redomap" in reason


def test_refuses_statements_that_need_memory() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        return b.map([a], lambda row: product(b, [b.scan(b.operator("add", F64), zero(F64), row), v], F64))

    reason = _refusal(write)
    assert reason.startswith("scan ") and reason.endswith("inside the nest needs an array of its own")


def test_refuses_one_or_three_elements() -> None:
    def one(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        return b.map([a], lambda row: b.reduce(b.operator("add", F64), zero(F64), row))

    assert _refusal(one) == "the reduced function reads 1 array elements (A), a contraction reads two"

    def three(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def element(x: Variable, y: Variable) -> Variable:
            def term(p: Variable, q: Variable, r: Variable) -> Variable:
                return b.apply("mul", b.apply("mul", p, q), r)

            return b.redomap(b.operator("add", F64), zero(F64), [x, y, v], term)

        return b.map([a], lambda x: b.map([other], lambda y: element(x, y)))

    assert "reads 3 array elements" in _refusal(three)


def test_refuses_a_broadcast() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        return b.map([a], lambda row: b.map([other], lambda _: product(b, [row, v], F64)))

    assert _refusal(write) == "neither operand moves along the parallel dimension of size m: a broadcast"


def test_refuses_a_vector_reduction() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        row = Type(F64, (size("k"),))
        combine = b.function([row, row], lambda x, y: b.map([x, y], lambda p, q: b.apply("add", p, q)))
        neutral = b.bind(nodes.Replicate(size("k"), zero(F64)))
        return b.bind(nodes.Reduce(size("n"), combine, (neutral,), (a,)))

    assert "is not a constant" in _refusal(write)


def test_refuses_reductions_of_several_values() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            combine = b.function([Type(F64)] * 4, lambda x, y, p, q: (b.apply("add", x, p), b.apply("add", y, q)))
            function = b.function([Type(F64)] * 2, lambda x, y: (b.apply("mul", x, y), x))
            targets = b.emit(nodes.Redomap(size("k"), combine, (zero(F64), zero(F64)), function, (row, v)))
            return b.apply("add", *targets)

        return b.map([a], inner)

    assert "gives 2 results" in _refusal(write)


def test_refuses_mapped_out_arrays() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> tuple[Atom, ...]:
        function = b.function([Type(F64)] * 2, lambda x, y: (b.apply("mul", x, y), x))
        combine = b.operator("add", F64)
        return b.emit(nodes.Redomap(size("k"), combine, (zero(F64),), function, (v, v)))

    assert "gives 2 arrays" in _refusal(write)


def test_refuses_different_operators_in_nested_reductions() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            return product(b, [row, v], F64)

        return b.redomap(b.operator("max", F64), nodes.Literal(float("-inf"), F64), [a], inner)

    assert _refusal(write) == "the nested reductions have different operators"


def test_refuses_code_between_nested_reductions() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            return b.apply("neg", product(b, [row, v], F64))

        return b.redomap(b.operator("add", F64), zero(F64), [a], inner)

    assert _refusal(write) == "code between the nested reductions is not absorbed"


def test_refuses_further_code_on_an_inner_array() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            values = b.map([other], lambda y: product(b, [row, y], F64))
            return b.index(values, nodes.index_literal(0))

        return b.map([a], inner)

    assert "inside the nest needs an array of its own" in _refusal(write)


def test_refuses_a_result_that_is_not_the_inner_map() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def inner(row: Variable) -> Atom:
            b.map([other], lambda y: product(b, [row, y], F64))
            return row

        return b.map([a], inner)

    assert "which is not the result of its inner map" in _refusal(write)


def test_refuses_loads_under_a_condition() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def element(row: Variable) -> Atom:
            def term(x: Variable, k: Variable) -> Atom:
                positive = b.apply("gt", x, zero(F64))
                return b.cond(positive, lambda: b.index(v, k), lambda: zero(F64))[0]

            return b.redomap(b.operator("add", F64), zero(F64), [row, iota(b, "k")], term)

        return b.map([a], element)

    assert _refusal(write) == "scalar code indexes array C under a condition or in a loop"


def test_refuses_array_code_under_a_condition() -> None:
    def write(b: Builder, a: Variable, other: Variable, v: Variable) -> Atom:
        def element(row: Variable) -> Atom:
            def term(x: Variable, y: Variable) -> Atom:
                def count() -> Atom:
                    ones = b.bind(nodes.Replicate(size("k"), nodes.Literal(1.0, F64)))
                    return b.reduce(b.operator("add", F64), zero(F64), ones)

                (extra,) = b.cond(b.apply("gt", x, zero(F64)), count, lambda: zero(F64))
                return b.apply("add", b.apply("mul", x, y), extra)

            return b.redomap(b.operator("add", F64), zero(F64), [row, v], term)

        return b.map([a], element)

    assert "needs an array of its own" in _refusal(write)


def test_refuses_indices_that_are_loaded() -> None:
    b = Builder()
    a, vector = inputs(b, "nk", "k")
    places = b.variable("places", nodes.array(I64, "k"))

    def element(row: Variable) -> Atom:
        term: Callable[..., Atom] = lambda x, p: b.apply("mul", x, b.index(vector, p))  # noqa: E731
        return b.redomap(b.operator("add", F64), zero(F64), [row, places], term)

    program = b.program("gather", [a, vector, places], [b.map([a], element)])
    assert "computed inside the nest" in refused(program)


def test_refuses_indices_that_are_not_affine() -> None:
    b = Builder()
    a, vector = inputs(b, "nk", "k")

    def element(row: Variable) -> Atom:
        def term(x: Variable, k: Variable) -> Atom:
            return b.apply("mul", x, b.index(vector, b.apply("mod", b.apply("mul", k, k), b.size_value("k"))))

        return b.redomap(b.operator("add", F64), zero(F64), [row, iota(b, "k")], term)

    assert "computed inside the nest" in refused(b.program("gather", [a, vector], [b.map([a], element)]))

    def square(row: Variable) -> Atom:
        term: Callable[..., Atom] = lambda x, k: b.apply("mul", x, b.index(vector, b.apply("mul", k, k)))  # noqa: E731
        return b.redomap(b.operator("add", F64), zero(F64), [row, iota(b, "k")], term)

    b = Builder()
    a, vector = inputs(b, "nk", "k")
    reason = refused(b.program("square", [a, vector], [b.map([a], square)]))
    assert reason == "an operand is not indexed affinely along the dimension of size k"


def test_refuses_an_index_used_as_a_value() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "mk")

    def element(row: Variable, i: Variable) -> Atom:
        def one(y: Variable) -> Atom:
            return b.apply("mul", product(b, [row, y], F64), b.cast(F64, i))

        return b.map([other], one)

    places = iota(b, "n")
    program = b.program("indexed", [a, other], [b.map([a, places], element)])
    assert refused(program) == "the index x_1 is itself a value in the scalar code"


def test_refuses_an_operator_that_varies_in_the_nest() -> None:
    b = Builder()
    a, other, weights = inputs(b, "nk", "mk", "n")

    def element(row: Variable, weight: Variable, column: Variable) -> Atom:
        combine = b.function([Type(F64)] * 2, lambda x, y: b.apply("add", x, b.apply("mul", y, weight)))
        return b.redomap(combine, zero(F64), [row, column], lambda x, y: b.apply("mul", x, y))

    result = b.map([a, weights], lambda row, weight: b.map([other], lambda c: element(row, weight, c)))
    reason = refused(b.program("weighted", [a, other, weights], [result]))
    assert reason == "the reduction's operator uses x_1, which varies inside the nest"


def test_refuses_inner_sizes_that_vary() -> None:
    b = Builder()
    a, other = inputs(b, "nk", "mk")
    lengths = b.variable("lengths", nodes.array(I64, "n"))

    def element(row: Variable, length: Variable) -> Atom:
        part = b.bind(nodes.Slice(row, (nodes.SliceDimension(size(0), size(length.name)),)))

        def one(column: Variable) -> Atom:
            return product(
                b, [part, b.bind(nodes.Slice(column, (nodes.SliceDimension(size(0), size(length.name)),)))], F64
            )

        return b.map([other], one)

    reason = refused(b.program("irregular", [a, other, lengths], [b.map([a, lengths], element)]))
    assert reason.startswith("the inner size x") and reason.endswith("varies inside the nest")


def test_refuses_to_reorder_several_sums_of_an_operator_that_is_not_commutative() -> None:
    def program(commutative: bool) -> Program:
        b = Builder()
        a, other = inputs(b, "kl", "kl")

        def row(x: Variable, y: Variable) -> Atom:
            return _last(b, [x, y], commutative)

        def combine(x: Variable, y: Variable) -> Variable:
            return b.apply("select", b.apply("eq", y, zero(F64)), x, y)

        operator: Lambda = b.function([Type(F64), Type(F64)], combine)
        return b.program("last", [a, other], [b.redomap(operator, zero(F64), [a, other], row, commutative)])

    assert "an operator that is not declared commutative" in refused(program(False))
    assert contraction_of(program(True)).of_kind(Kind.K)


# --- random contractions ----------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(data=st.data())
def test_random_einsums(data: st.DataObject) -> None:
    """An einsum-like specification, each array with its dimensions in any order, repeated labels included."""
    draw = data.draw
    scalar = draw(st.sampled_from([F32, F64, I32]))
    kinds = draw(st.lists(st.sampled_from("MNC"), max_size=4)) + ["K"] * draw(st.integers(1, 3))
    labels = "abcdefgh"[: len(kinds)]
    sizes = {label: draw(st.sampled_from([0, 1, 2, 3, 4])) if draw(st.booleans()) else 3 for label in labels}
    of_left = [one for one, kind in zip(labels, kinds, strict=True) if kind != "N"]
    of_right = [one for one, kind in zip(labels, kinds, strict=True) if kind != "M"]
    of_left += draw(st.lists(st.sampled_from(of_left), max_size=1))  # a diagonal
    left, right = draw(st.permutations(of_left)), draw(st.permutations(of_right))
    parallel = draw(st.permutations([one for one, kind in zip(labels, kinds, strict=True) if kind != "K"]))
    contracted = draw(st.permutations([one for one, kind in zip(labels, kinds, strict=True) if kind == "K"]))
    b = Builder()
    a, other = b.variable("A", nodes.array(scalar, *left)), b.variable("B", nodes.array(scalar, *right))
    fresh = b.names
    places: dict[str, Variable] = {}

    def term() -> Variable:
        x = b.index(a, *(places[one] for one in left))
        y = b.index(other, *(places[one] for one in right))
        return b.apply("mul", x, y)

    def over(rest: list[str], sums: list[str]) -> Atom:
        label, *inner = rest or sums

        def inside(place: Variable) -> Atom:
            places[label] = place
            if rest:
                return over(inner, sums)
            return over([], inner) if inner else term()

        width = b.bind(nodes.Iota(size(label)), "places")
        function = b.function([Type(I64)], inside, [fresh("i")])
        if rest:
            return b.bind(nodes.Map(size(label), function, (width,)))
        return b.bind(nodes.Redomap(size(label), b.operator("add", scalar), (zero(scalar),), function, (width,)))

    result = over(parallel, contracted)
    program = b.program("einsum", [a, other], [result])
    check(program, sizes, seed=draw(st.integers(0, 99)))
