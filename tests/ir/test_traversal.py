"""Substitution, fresh copies and inlining keep a program's meaning and its names unique."""

from __future__ import annotations

import numpy as np
import pytest
from core_programs import EVERYTHING, MATMUL, inline, programs
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.builder import Builder
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import (
    Apply,
    Atom,
    Body,
    Index,
    Lambda,
    Literal,
    Map,
    Program,
    Reduce,
    Statement,
    Type,
    Variable,
    array,
    index_literal,
)
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import F32, I64
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import (
    FreshNames,
    all_statements,
    bound_variables,
    canonical,
    free_names,
    mentioned,
    rebuild,
    replace_bodies,
    sub_bodies,
    substitute,
    used_variables,
    with_fresh_names,
)
from tilewright.ir.verifier import verify

PROGRAMS = st.sampled_from([parse_program(MATMUL), parse_program(EVERYTHING)]) | programs()


def arguments(program: Program) -> list[np.ndarray | int]:
    """Two arrays of 2 by 3 and an index, for a program of `core_programs.programs`."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    return [x - 2, x / 4, 5]


def same(left: tuple[object, ...], right: tuple[object, ...]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@given(PROGRAMS)
def test_every_binding_is_found_once(program: Program) -> None:
    bound = [one.name for one in bound_variables(program)]
    targets = [target.name for one in all_statements(program.body) for target in one.targets]
    assert len(set(bound)) == len(bound)
    assert set(targets) <= set(bound)
    assert free_names(program) == set(program.size_names)
    assert mentioned(program) == set(bound) | set(program.size_names)
    assert {one.name for one in used_variables(program)} <= mentioned(program)


@given(PROGRAMS)
def test_rebuilding_with_what_is_there_changes_nothing(program: Program) -> None:
    assert rebuild(program, lambda one: one, lambda one: one) == program
    assert all(
        replace_bodies(one.expression, lambda body: body) == one.expression for one in all_statements(program.body)
    )


@given(PROGRAMS)
def test_a_fresh_copy_shares_no_bound_name_and_is_well_formed(program: Program) -> None:
    copy = with_fresh_names(program, FreshNames(program))
    verify(copy)
    assert {one.name for one in bound_variables(copy)}.isdisjoint(mentioned(program))
    assert free_names(copy) == free_names(program)
    assert canonical(copy) == canonical(program)
    assert canonical(canonical(program)) == canonical(program)


@given(programs())
def test_a_fresh_copy_means_the_same(program: Program) -> None:
    with np.errstate(all="ignore"):
        same(
            interpret(with_fresh_names(program, FreshNames(program)), arguments(program)),
            interpret(program, arguments(program)),
        )


def call(outer: Builder, function: Lambda, given_: list[Atom]) -> tuple[Atom, ...]:
    """The inlined body's statements, emitted into a builder."""
    body = inline(function, tuple(given_), outer.names)
    for statement in body.statements:
        outer._scopes[-1].append(statement)
    return body.results


@given(programs(), st.integers(1, 3))
def test_an_inlined_program_means_the_same_each_time(program: Program, times: int) -> None:
    b = Builder(FreshNames(program))
    parameters = [b.variable("argument", one.type) for one in program.parameters]
    results = [one for _ in range(times) for one in call(b, Lambda(program.parameters, program.body), [*parameters])]
    # the body's sizes may mention the index parameter, so the copies show that sizes are substituted as well
    caller = b.program("caller", parameters, results)
    verify(caller)
    with np.errstate(all="ignore"):
        same(interpret(caller, arguments(program)), interpret(program, arguments(program)) * times)


@given(programs(), st.integers(0, 3))
def test_inlining_a_constant_means_the_same(program: Program, value: int) -> None:
    b = Builder(FreshNames(program))
    parameters = [b.variable("argument", one.type) for one in program.parameters[:2]]
    function = Lambda(program.parameters, program.body)
    caller = b.program("caller", parameters, call(b, function, [*parameters, index_literal(value)]))
    verify(caller)
    first, second, _ = arguments(program)
    with np.errstate(all="ignore"):
        same(interpret(caller, [first, second]), interpret(program, [first, second, value]))


@given(programs(), st.integers(1, 4))
def test_size_names_are_substituted_in_types_too(program: Program, value: int) -> None:
    rows = program.size_names[0]
    fixed = substitute(program, {rows: size(value)})
    verify(fixed)
    assert rows not in mentioned(fixed)
    assert all(parameter.type.shape[0] == size(value) for parameter in fixed.parameters[:2])


X, AT = Variable("x", array(F32, "n")), Variable("i", Type(I64))


def test_a_size_replaces_a_scalar_only_if_it_is_a_name_or_a_constant() -> None:
    element = Index(X, (AT,))
    assert substitute(element, {"i": size(3)}) == Index(X, (index_literal(3),))
    assert substitute(element, {"i": size("k")}) == Index(X, (Variable("k", Type(I64)),))
    with pytest.raises(ValueError, match="the size k \\+ 1 cannot stand for the scalar i"):
        substitute(element, {"i": size("k") + 1})


def test_substitution_reaches_the_types_of_other_variables() -> None:
    longer = Variable("x", array(F32, size("n") * 2))
    assert substitute(Index(longer, (AT,)), {"n": index_literal(4)}) == Index(Variable("x", array(F32, 8)), (AT,))


def test_fresh_names_resemble_their_hints() -> None:
    names = FreshNames(Index(X, (AT,)))
    assert [names("x"), names("x"), names("x_1"), names("row"), names("n")] == ["x_1", "x_2", "x_3", "row", "n_1"]
    names.reserve("column")
    assert names("column") == "column_1"
    assert [names("7"), names("7")] == ["7", "v_1"]


def test_no_name_is_empty() -> None:
    names = FreshNames()
    assert [names(""), names("")] == ["v", "v_1"]


@given(st.lists(st.text("ab_1", max_size=3)))
def test_fresh_names_never_repeat(hints: list[str]) -> None:
    names = FreshNames()
    given_ = [names(hint) for hint in hints]
    assert len(set(given_)) == len(given_)


def test_bodies_are_found_and_replaced_in_every_construct() -> None:
    program = parse_program(EVERYTHING)
    counted: dict[str, int] = {}
    empty = Body((), ())
    for statement in all_statements(program.body):
        expression = statement.expression
        bodies = list(sub_bodies(expression))
        counted[type(expression).__name__] = len(bodies)
        assert list(sub_bodies(replace_bodies(expression, lambda _: empty))) == [empty] * len(bodies)
    with_bodies = {name: count for name, count in counted.items() if count}
    assert with_bodies == {
        "If": 2, "Loop": 2, "Map": 1, "Reduce": 1, "Scan": 1, "Redomap": 2, "Scanomap": 2, "Hist": 1, "StreamSeq": 1,
        "Sweep": 3, "OffsetFolds": 4, "SegMap": 1, "SegRed": 2, "SegScan": 2, "SegHist": 2,
    }  # fmt: skip


def test_statements_come_outer_before_inner() -> None:
    names = [one.targets[0].name for one in all_statements(parse_program(MATMUL).body)]
    assert names == ["b_columns", "c", "c_row", "element", "sum", "xy"]


def test_names_that_differ_alone_do_not_count_in_canonical_form() -> None:
    def total(left: str, right: str, out: str) -> Reduce:
        a, b, c = (Variable(name, Type(F32)) for name in (left, right, out))
        combine = Lambda((a, b), Body((Statement((c,), Apply("add", (a, b))),), (c,)))
        return Reduce(size("n"), combine, (Literal(0.0, F32),), (X,))

    assert canonical(total("a", "b", "c")) == canonical(total("p", "q", "r"))
    assert canonical(total("a", "b", "c")) != canonical(Map(size("n"), total("a", "b", "c").combine, (X,)))


def test_sizes_that_are_bound_names_are_renamed_with_them() -> None:
    program = parse_program(
        "def f (x: [n]f32) = let (r: f32, s: [n]f32) = stream_seq n 4 (\\(length: i64, a: f32, c: [length]f32) -> "
        "let (d: [2*length]f32) = concat 0 c c let (e: [length]f32) = d[0 :+ length by 2] "
        "in (a, e)) (0.0f32) x in (r, s)"
    )
    copy = with_fresh_names(program, FreshNames(program))
    verify(copy)
    assert "length_1: i64" in print_program(copy)
    assert "[2*length_1]f32" in print_program(copy)
    x = np.arange(9, dtype=np.float32)
    same(interpret(copy, [x]), interpret(program, [x]))


def test_a_size_is_left_alone_if_none_of_its_names_is_replaced() -> None:
    one: Size = size("n") * 2
    assert substitute(Map(one, Lambda((), Body((), ())), ()), {"m": size(3)}).width is one
