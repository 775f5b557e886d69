"""The core programs of einsums: the canonical nest, paths as chains of nests, and what happens to odd labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.frontend.einsum_parse import EinsumSpec, parse_string, resolve
from tilewright.frontend.einsum_program import Epilogue, einsum_program
from tilewright.frontend.scalar_functions import relu
from tilewright.frontend.semiring import SEMIRINGS
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Apply, Body, Cast, Map, Program, Rearrange, Redomap, Type
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import F16, F32, F64, I8, I32, ScalarType
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.verifier import verify


def program_of(expression: str, *shapes: tuple[int, ...], element: ScalarType = F32, **options: Any) -> Program:
    spec = resolve(parse_string(expression), shapes).spec
    program = einsum_program(spec, [element] * len(shapes), options.pop("dtype", element), **options)
    verify(program)
    return program


def nest_of(body: Body) -> list[str]:
    """The combinators from the outermost to the innermost, each with its width."""
    for statement in body.statements:
        if isinstance(statement.expression, Map | Redomap):
            name = type(statement.expression).__name__.lower()
            function = next(iter(one for one in sub_bodies(statement.expression.function)))
            return [f"{name} {statement.expression.width}", *nest_of(function)]
    return []


def test_the_canonical_nest(golden: Callable[[str, str], None]) -> None:
    program = program_of("ij,jk->ik", (2, 3), (3, 4))
    assert nest_of(program.body) == ["map a", "map c", "redomap b"]
    golden("frontend/einsum_matmul.txt", print_program(program))
    bias = Epilogue(lambda c, b: relu(c * 2 + b), ((2,),), (F32,), beta=0.5)
    fused = program_of("ijl,kjl->ik", (2, 3, 4), (5, 3, 4), epilogue=Epilogue(bias.function, ((3,),), (F32,), beta=0.5))
    assert nest_of(fused.body) == ["map a", "map d", "redomap b", "redomap c"]
    golden("frontend/einsum_epilogue.txt", print_program(fused))


def test_operands_are_rearranged_to_the_nest() -> None:
    program = program_of("ji,kj->ki", (3, 2), (4, 3))
    rearranged = [one.expression for one in program.body.statements if isinstance(one.expression, Rearrange)]
    assert [one.permutation for one in rearranged] == [(1, 0)]
    assert nest_of(program.body) == ["map c", "map b", "redomap a"]


@pytest.mark.parametrize(
    ("expression", "shapes", "nest"),
    [
        ("i,j->ij", [(2,), (3,)], ["map a", "map b"]),
        ("i,i->", [(2,), (2,)], ["redomap a"]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)], ["map a", "map b", "map d", "redomap c"]),
        ("ij->ji", [(2, 3)], ["map b", "map a"]),
        (",->", [(), ()], []),
    ],
)
def test_nests(expression: str, shapes: list[tuple[int, ...]], nest: list[str]) -> None:
    assert nest_of(program_of(expression, *shapes).body) == nest


def test_every_step_of_a_path_is_a_nest() -> None:
    program = program_of("ij,jk,kl->il", (2, 3), (3, 4), (4, 5), path=((1, 2), (0, 1)))
    nests = [one for one in program.body.statements if isinstance(one.expression, Map)]
    assert [str(one.targets[0].type) for one in nests] == ["[d][b]f32", "[a][d]f32"]
    together = program_of("ij,jk,kl->il", (2, 3), (3, 4), (4, 5))
    assert nest_of(together.body) == ["map a", "map d", "redomap b", "redomap c"]


def test_lone_labels_are_folded_first_if_products_distribute() -> None:
    program = program_of("ij,kl->ik", (2, 3), (4, 5))
    nests = [str(one.targets[0].type) for one in program.body.statements if isinstance(one.expression, Map)]
    assert nests == ["[a]f32", "[c]f32", "[a][c]f32"]
    kept = program_of("ij,kl->ik", (2, 3), (4, 5), semiring=SEMIRINGS["max_times"])
    assert nest_of(kept.body) == ["map a", "map c", "redomap b", "redomap d"]


def test_f16_is_carried_in_f32_through_all_steps_and_rounded_once() -> None:
    program = program_of("ij,jk,kl->il", (2, 3), (3, 4), (4, 5), element=F16, path=((0, 1), (0, 1)))
    intermediate, result = (one.targets[0] for one in program.body.statements if isinstance(one.expression, Map))
    assert intermediate.type.element == F32 and result.type.element == F16
    casts = [one.expression.scalar for one in all_statements(program.body) if isinstance(one.expression, Cast)]
    assert casts.count(F16) == 1


def test_casts_come_before_the_product() -> None:
    program = program_of("i,i->", (3,), (3,), element=I8, dtype=I32)
    (fold,) = (one.expression for one in program.body.statements)
    assert isinstance(fold, Redomap)
    kinds = [type(one.expression) for one in fold.function.body.statements]
    assert kinds == [Cast, Cast, Apply] and fold.function.body.results[0].type == Type(I32)
    values = np.full(3, 100, np.int8)
    assert interpret(program, [values, values]) == (30000,)


def test_broadcast_dimensions_and_diagonals_inside_the_program() -> None:
    random = np.random.default_rng(1)
    for expression, shapes in (
        ("iij,j->i", [(3, 3, 4), (4,)]),
        ("iji,jj->ij", [(3, 2, 3), (2, 2)]),
        ("iiii->i", [(3, 3, 3, 3)]),
        ("ij,ij->i", [(3, 1), (1, 4)]),
        ("iij,kj->kji", [(1, 1, 4), (2, 1)]),
    ):
        operands = [random.integers(-9, 9, shape).astype(np.float64) for shape in shapes]
        (result,) = interpret(program_of(expression, *shapes, element=F64), operands)
        np.testing.assert_array_equal(result, np.einsum(expression, *operands))


def test_many_labels() -> None:
    spec = EinsumSpec((tuple(range(30)),), (29,))
    program = einsum_program(spec, [F32], F32)
    verify(program)
    assert str(program.body.results[0].type) == "[d29]f32"
