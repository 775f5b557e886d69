"""The random programs are well-formed, run without errors, stay tame, and use every construct."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from core_programs import inline
from random_programs.generator import SIZE_VALUES, random_arguments, random_program
from random_programs.scalars import SCALARS, FoldOperator, affine_composition, largest_with_place, random_fold

from tilewright.ir.builder import Builder
from tilewright.ir.interpreter import infer_sizes, interpret
from tilewright.ir.nodes import Atom, Body, Expression, Level, Program, SegHist, SegMap, SegRed, SegScan, Variable
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import F32, I32, I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import all_statements, sub_bodies, substitute
from tilewright.ir.verifier import verify

SEEDS = range(300)
OPERATIONS = (SegMap, SegRed, SegScan, SegHist)


@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("first", SEEDS[::25])
def test_programs_run(first: int, segmented: bool) -> None:
    for seed in range(first, first + 25):
        program = random_program(seed, segmented=segmented)
        verify(program)
        arguments = random_arguments(program, seed)
        results = interpret(program, arguments)
        sizes = infer_sizes(program, arguments)
        assert set(sizes.values()) <= set(SIZE_VALUES)
        assert len(results) == len(program.body.results)
        for value, atom in zip(results, program.body.results, strict=True):
            assert value.dtype == atom.type.element.numpy, seed
            if sizes.keys() >= {name for extent in atom.type.shape for name in extent.names}:
                assert value.shape == tuple(extent.evaluate(sizes) for extent in atom.type.shape), seed
            if atom.type.element.is_float:
                assert np.isfinite(value).all(), seed


@pytest.mark.parametrize("segmented", [False, True])
def test_programs_print_and_parse(segmented: bool) -> None:
    for seed in SEEDS[::5]:
        program = random_program(seed, segmented=segmented)
        assert parse_program(print_program(program)) == program, seed


def test_seeds_are_reproducible() -> None:
    for seed in SEEDS[::50]:
        assert random_program(seed) == random_program(seed)
        first, second = (random_arguments(random_program(seed), 7) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert random_program(1) != random_program(2)


def nodes_of(programs: list[Program]) -> set[str]:
    return {type(one.expression).__name__ for program in programs for one in all_statements(program.body)}


def test_every_construct_of_the_source_language_occurs() -> None:
    segmented = {"SegMap", "SegRed", "SegScan", "SegHist", "Threshold"}
    made_by_passes = {"Sweep", "OffsetFolds"}
    expected = {one.__name__ for one in Expression.__args__} - segmented - made_by_passes
    assert nodes_of([random_program(seed) for seed in SEEDS]) == expected
    assert nodes_of([random_program(seed, segmented=True) for seed in SEEDS]) == expected | segmented


def test_segmented_operations_nest() -> None:
    """Blocks hold operations of threads, and clusters those of blocks."""
    found: set[tuple[Level, Level]] = set()

    def look(body: Body, around: Level | None) -> None:
        for one in body.statements:
            level = getattr(one.expression, "level", None) if isinstance(one.expression, OPERATIONS) else None
            if around is not None and level is not None:
                found.add((around, level))
            for inner in sub_bodies(one.expression):
                look(inner, level or around)

    for seed in SEEDS:
        look(random_program(seed, segmented=True).body, None)
    cluster, block, thread = Level.CLUSTER, Level.BLOCK, Level.THREAD
    assert found == {(cluster, block), (cluster, thread), (block, thread)}


def test_sizes_vary_and_programs_differ_in_length() -> None:
    programs = [random_program(seed) for seed in SEEDS]
    seen = {
        value for seed, one in enumerate(programs) for value in infer_sizes(one, random_arguments(one, seed)).values()
    }
    assert seen == set(SIZE_VALUES)
    lengths = [sum(1 for _ in all_statements(one.body)) for one in programs]
    assert min(lengths) < 15 and max(lengths) > 60


def emit_all(b: Builder, body: Body) -> Sequence[Atom]:
    """The body as statements of the builder: emitted under new names, because the builder names what it binds."""
    values: dict[str, Atom | Size] = {}
    for statement in body.statements:
        for old, new in zip(statement.targets, b.emit(substitute(statement.expression, values)), strict=True):
            values[old.name] = new
    return [values.get(one.name, one) if isinstance(one, Variable) else one for one in body.results]


def fold_operators(b: Builder, seed: int) -> list[FoldOperator]:
    random = Random(seed)
    simple = [random_fold(b, random, scalar, seed % 2 == 0) for scalar in SCALARS]
    return [*simple, affine_composition(b, I32), largest_with_place(b, I64)]


@pytest.mark.parametrize("seed", range(12))
def test_operators_are_associative_and_their_neutral_elements_neutral(seed: int) -> None:
    for which in range(len(SCALARS) + 2):
        b = Builder()
        operator = fold_operators(b, seed)[which]
        types = [one.type for one in operator.neutral]
        x, y, z = ([b.variable(hint, one) for one in types] for hint in "xyz")

        def combine(left: Sequence[Atom], right: Sequence[Atom]) -> Sequence[Atom]:
            copy = inline(operator.combine, (*left, *right), b.names)  # noqa: B023
            return emit_all(b, copy)  # noqa: B023

        results = [*combine(combine(x, y), z), *combine(x, combine(y, z)), *combine(operator.neutral, x), *x]
        results += [*combine(x, y), *combine(y, x)]
        program = b.program("laws", [*x, *y, *z], results)
        verify(program)
        width = len(types)
        for arguments in range(8):
            values = interpret(program, random_arguments(program, arguments))
            left, right, neutral, plain, one, other = (values[i * width : (i + 1) * width] for i in range(6))
            np.testing.assert_allclose(left, right, rtol=1e-6)
            assert neutral == plain, operator.name
            assert one == other or not operator.commutative, operator.name


def test_scalar_types_can_be_chosen() -> None:
    program = random_program(11, scalars=(F32, I64))
    assert {one.type.element for one in program.parameters} <= {F32, I64}


def test_depth_zero_has_no_nesting() -> None:
    for seed in range(40):
        program = random_program(seed, depth=0)
        assert list(all_statements(program.body)) == list(program.body.statements)


def test_names_do_not_clash_with_sizes() -> None:
    for seed in range(40):
        program = random_program(seed)
        assert not set(program.size_names) & {one.name for s in all_statements(program.body) for one in s.targets}
        assert dataclasses.replace(program, name="other") != program
