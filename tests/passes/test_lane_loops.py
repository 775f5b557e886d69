"""Maps of scans with neighbouring points in the lanes of vectors, against NumPy point by point, and what is refused."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import BOOL, F64, I64
from tilewright.kernel.ir import (
    Assign,
    Barrier,
    Buffer,
    Comment,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Kernel,
    Let,
    Load,
    Name,
    Space,
    Statement,
    Store,
    VectorType,
    integer,
    operation,
)
from tilewright.kernel.traversal import walk as walk_statements
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_code import write_group
from tilewright.passes.lanes.lane_loops import LANES, wants_lanes
from tilewright.passes.lanes.lane_variance import UNIFORM, NotInLanes, lane_variance
from tilewright.passes.points.dead_stores import loaded_buffers, used_names, without_stores
from tilewright.runtime.host import KernelPlan, Schedule
from tilewright.runtime.scheduling import schedule

SIZES = st.sampled_from([0, 1, 2, 7, LANES - 1, LANES, LANES + 1, 2 * LANES, 3 * LANES + 5])


def then(one: Any, two: Any) -> Any:
    return two[0] + two[1] * one[0], two[1] * one[1]


def solved(row: Any, factors: Any) -> Any:
    """Scans forwards and back, an array between them, neighbours' elements, and a choice by the point's values."""
    (m,) = row.shape
    forward, _ = tw.scan(then, (0.0, 1.0), row, factors)
    turned = tw.map(lambda i: forward[m - 1 - i] - forward[tw.maximum(m - 2 - i, 0)], tw.iota(m))
    back, product = tw.scan(then, (0.0, 1.0), turned, factors)
    return tw.map(lambda b, p, r: tw.cond(r > 0.0, lambda: b + r, lambda: p - b), back, product, row)


@tw.program
def by_rows(x: tw.float_["n", "m"], factors: tw.float_["m"]) -> Any:
    return tw.map(lambda row: solved(row, factors), x)


@tw.program
def by_columns(x: tw.float_["n", "m"], factors: tw.float_["n"]) -> Any:
    return tw.map(lambda column: solved(column, factors), tw.transpose(x))


@tw.program
def rounds(x: tw.float_["n", "m"], factors: tw.float_["m"]) -> Any:
    """The same for each round of a loop inside a point of another map: lanes in the middle of a nest."""

    def point(row: Any) -> Any:
        start = tw.map(lambda e: tw.map(lambda f: e * f, factors), row)
        return tw.loop(2, start, lambda _, now: tw.map(lambda one: solved(one, factors), now))

    return tw.map(point, x)


def expected(row: Any, factors: Any) -> Any:
    def scanned(values: Any) -> Any:
        total, product = np.zeros((), values.dtype), np.ones((), values.dtype)
        found = []
        for value, factor in zip(values, factors, strict=True):
            total, product = value + factor * total, factor * product
            found.append((total, product))
        return np.array(found).reshape(-1, 2)

    m = len(row)
    forward = scanned(row)[:, 0]
    turned = np.array([forward[m - 1 - i] - forward[max(m - 2 - i, 0)] for i in range(m)])
    back, product = scanned(turned).T
    return np.where(row > 0, back + row, product - back)


def close(found: Any, wanted: Any) -> None:
    """Four scans' sums of elements below 1 with factors below 1: errors of the terms add."""
    assert found.shape == wanted.shape
    allowed = 64 * max(1, wanted.shape[-1]) ** 2 * np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


def data(n: int, m: int, dtype: str, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (n, m)).astype(dtype)


@given(SIZES, st.integers(1, 20), st.sampled_from(["f4", "f8"]), st.integers(0, 2**16))
def test_rows_and_columns(n: int, m: int, dtype: str, seed: int) -> None:
    x, factors = data(n, m, dtype, seed), data(1, m, dtype, seed + 1)[0]
    wanted = np.array([expected(row, factors) for row in x]).reshape(n, m)
    close(by_rows(x, factors), wanted)
    close(by_columns(x.T, factors), wanted)
    close(by_rows(x[:, ::-1], factors), np.array([expected(row, factors) for row in x[:, ::-1]]).reshape(n, m))


@given(st.integers(1, 3), st.sampled_from([1, LANES - 1, LANES, LANES + 3]), st.integers(1, 5))
def test_lanes_in_the_middle_of_a_nest(n: int, m: int, seed: int) -> None:
    x, factors = data(n, m, "f8", seed), data(1, m, "f8", seed + 1)[0]
    wanted = []
    for row in x:
        now = row[:, None] * factors
        for _ in range(2):
            now = np.array([expected(one, factors) for one in now])
        wanted.append(now)
    np.testing.assert_allclose(rounds(x, factors), wanted, rtol=0, atol=1e-15 * 256 * m**4)


def test_which_points_want_lanes() -> None:
    def body(program: Any) -> Any:
        return program.trace("f8", "f8").body.statements[-1].expression.function.body

    assert wants_lanes(body(by_columns))
    assert not wants_lanes(body(rounds))  # the map inside its loop does
    one_scan = parse_program("""def f (x: [n][m]f64) =
      let (y: [n][m]f64) = map n (\\(r: [m]f64) ->
        let (s: [m]f64) = scan m (\\(a: f64, b: f64) -> let (c: f64) = a + b in (c)) (0.0f64) r
        in (s)) x
      in (y)""")
    assert not wants_lanes(one_scan.body.statements[0].expression.function.body)


# --- widening ---------------------------------------------------------------------------------------------------------

IN, OUT = Buffer("x", F64), Buffer("y", F64)
LANE, K, ROUNDS = Name("lane", I64), Name("k", I64), Name("rounds", I64)


def widened(*statements: Statement) -> tuple[Statement, ...]:
    emit = KernelBuilder()
    write_group(
        statements, LANE, 4, emit, lambda element, count: Buffer(emit.name("own"), element, Space.PRIVATE, count)
    )
    return emit.statements


def at(index: Expression) -> Load:
    return Load(IN, index, F64)


def test_neighbours_are_one_access_and_others_one_for_each_lane() -> None:
    side_by_side = widened(Store(OUT, operation("add", K, LANE), at(operation("add", LANE, K))))
    accesses = [one for one in walk_statements(side_by_side) if isinstance(one, Store) and one.buffer == OUT]
    assert [one.value.type for one in accesses] == [VectorType(F64, 4)]
    apart = widened(Store(OUT, operation("mul", K, LANE), at(operation("mul", LANE, integer(2)))))
    assert sum(isinstance(one, Store) and one.buffer == OUT for one in apart) == 4
    assert gathers(apart) == 1


def along_rows(read: Expression, written: Buffer = OUT, step: int = 1) -> tuple[Statement, ...]:
    """y[7 * lane + k] = x[7 * lane + read] for all rounds k, widened."""
    row = operation("mul", LANE, integer(7))
    body = (
        Let("place", operation("add", row, read)),
        Let("e", at(Name("place", I64))),
        Store(written, operation("add", row, K), Name("e", F64)),
    )
    return widened(For("k", integer(0), ROUNDS, body, step=integer(step)))


def gathers(statements: tuple[Statement, ...]) -> int:
    """Loads of an element for each lane."""
    values = [one.value for one in walk_statements(statements) if isinstance(one, Let)]
    return sum(isinstance(one, Load) and isinstance(one.index.type, VectorType) for one in values)


def single_accesses(statements: tuple[Statement, ...], buffer: Buffer) -> int:
    """Gathers, and stores of one element of a buffer."""
    every = list(walk_statements(statements))
    loads = [one.value for one in every if isinstance(one, Let) and isinstance(one.value, Load)]
    gathered = sum(one.buffer == buffer and isinstance(one.index.type, VectorType) for one in loads)
    return gathered + sum(isinstance(one, Store) and one.buffer == buffer and one.value.type == F64 for one in every)


@pytest.mark.parametrize("read", [K, operation("sub", ROUNDS, K), operation("mul", K, integer(-1))])
def test_rows_along_a_loop_are_turned_in_squares(read: Expression) -> None:
    found = along_rows(read)
    assert single_accesses(found, IN) == single_accesses(found, OUT) == 0
    (strips,) = [one for one in found if isinstance(one, For)]
    assert strips.step == integer(4)
    masks = [one.mask for one in walk_statements(strips.body) if isinstance(one, Store) and one.buffer == OUT]
    assert len(masks) == 4
    assert None not in masks


@pytest.mark.parametrize(
    ("read", "written", "step", "singles"),
    [
        (operation("mul", K, integer(2)), OUT, 1, (1, 0)),  # not side by side
        (operation("max", K, integer(1)), OUT, 1, (1, 0)),  # not known to be
        (K, IN, 1, (5, 5)),  # what is read may just have been written
        (K, OUT, 2, (1, 4)),  # not every round
    ],
)
def test_what_does_not_run_along_rows_is_accessed_lane_by_lane(
    read: Expression, written: Buffer, step: int, singles: tuple[int, int]
) -> None:
    found = along_rows(read, written, step)
    assert (single_accesses(found, IN), single_accesses(found, written)) == singles


def test_what_is_the_same_for_all_lanes_stays_scalar() -> None:
    inside = (Let("s", operation("mul", at(K), Name("t", F64))), Store(OUT, LANE, Name("s", F64)))
    (loop,) = [one for one in widened(For("k", integer(0), ROUNDS, inside)) if isinstance(one, For)]
    assert isinstance(loop.body[0], Let)
    assert loop.body[0].value.type == F64


def test_what_differs_is_found_through_variables_and_conditions() -> None:
    body = (
        Declare("total", Constant(0.0, F64)),
        Declare("chosen", Constant(0.0, F64)),
        For("k", integer(0), ROUNDS, (Assign("total", operation("add", Name("total", F64), at(LANE))),)),
        If(operation("gt", Name("total", F64), Constant(0.0, F64)), (Assign("chosen", Constant(1.0, F64)),)),
        Let("same", at(K)),
    )
    found = lane_variance(LANE, body, apart=True)
    assert found.variables == {"total", "chosen"}
    assert found.names["same"] == UNIFORM


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (For("k", integer(0), ROUNDS, (), step=LANE), "the step of a loop"),
        (Store(OUT, K, at(LANE)), "lanes would write to one place"),
        (Barrier(), "Barrier is not done in lanes"),
        (Store(OUT, LANE, Load(IN, LANE, VectorType(F64, 2))), "a vector is not widened again"),
        # of the code around the lanes, such as that a check has failed
        (If(operation("gt", at(LANE), Constant(0.0, F64)), (Assign("failed", Constant(True, BOOL)),)), "failed"),
    ],
)
def test_what_is_refused(statement: Statement, reason: str) -> None:
    with pytest.raises(NotInLanes, match=reason):
        widened(statement)


def test_lanes_that_do_not_take_a_branch_change_nothing() -> None:
    condition = operation("gt", at(LANE), Constant(0.0, F64))
    (store,) = [
        one
        for one in walk_statements(widened(Comment("masked"), If(condition, (Store(OUT, LANE, at(LANE)),))))
        if isinstance(one, Store) and one.buffer == OUT
    ]
    assert store.mask is not None
    assert store.mask.type == VectorType(BOOL, 4)


# --- dead stores ------------------------------------------------------------------------------------------------------


def test_what_nobody_reads_is_not_written() -> None:
    own, place = Buffer("own", F64), Let("place", operation("mul", K, integer(8)))
    kept = Store(OUT, K, at(K))
    loop = For("k", integer(0), ROUNDS, (place, Store(own, Name("place", I64), at(K)), kept))
    assert "own" not in loaded_buffers((loop,))
    (fewer,) = without_stores((loop,), {"own"})
    assert isinstance(fewer, For)
    assert fewer.body == (kept,)
    assert used_names((fewer,)) == {"k", "rounds"}


@tw.program
def filters(x: tw.f64["c", "t"], gain: tw.f64["c"]) -> Any:
    """A recursive filter of each row, whose output is an array that the loop writes in place."""

    def channel(row: Any, gain: Any) -> Any:
        def step(i: Any, state: Any, out: Any) -> Any:
            state = row[i] + gain * state
            return state, tw.update(out, i, state)

        return tw.loop(row.shape[0], (0.0, tw.replicate(row.shape[0], 0.0, "f64")), step)[1]

    return tw.map(channel, x, gain)


@tw.program
def powers(matrices: tw.f64["b", "n", "n"], rounds: tw.i64) -> Any:
    """A matrix of its own for each point, which is squared and scaled."""

    def one(matrix: Any) -> Any:
        def step(i: Any, now: Any) -> Any:
            columns = tw.transpose(now)
            return tw.map(
                lambda row: tw.map(lambda col: tw.reduce("add", 0, tw.map(lambda a, b: a * b, row, col)), columns), now
            )

        return tw.loop(rounds, matrix, step)

    return tw.map(one, matrices)


@given(c=st.sampled_from([1, 3, LANES - 1, LANES, 2 * LANES + 5]), t=st.integers(0, 40), order=st.sampled_from("CF"))
def test_loops_with_arrays_of_their_own(c: int, t: int, order: Any) -> None:
    """Whole numbers and gains, whose sums are exact."""
    rng = np.random.default_rng(c * 41 + t)
    x = np.asarray(rng.integers(-3, 4, (c, t)), float, order=order)
    gain = rng.integers(-1, 2, c).astype(float)
    expected, state = np.zeros((c, t)), np.zeros(c)
    for i in range(t):
        expected[:, i] = state = x[:, i] + gain * state
    np.testing.assert_array_equal(filters(x, gain, target="cpu"), expected)


@given(
    b=st.sampled_from([1, LANES - 1, LANES, LANES + 3]),
    n=st.sampled_from([1, 2, 4, 8, 9, 12]),
    rounds=st.integers(0, 2),
)
def test_loops_with_matrices_of_their_own(b: int, n: int, rounds: int) -> None:
    """Rows of up to 8 elements go in lanes of points, longer ones in lanes of their own; whole numbers are exact."""
    matrices = np.random.default_rng(b * 13 + n).integers(-2, 3, (b, n, n)).astype(float)
    expected = matrices
    for _ in range(rounds):
        expected = expected @ expected
    np.testing.assert_array_equal(powers(matrices, rounds, target="cpu"), expected)


def test_points_that_loop_with_their_own_arrays_are_said_to_go_in_lanes() -> None:
    assert f"{LANES} of them at once in the lanes of vectors" in filters.explain()


def test_fewer_groups_than_cores_are_shared_out_point_by_point() -> None:
    kernel = Kernel("k", (), (), (), ())
    plan = KernelPlan(kernel, (), (), (), Schedule.BLOCKS, heavy=True, together=LANES, apart=True)
    backend: Any = SimpleNamespace(machine=SimpleNamespace(cores=4))
    assert schedule(plan, (3 * LANES,), backend, ())[0] > 3
    assert schedule(plan, (4 * LANES,), backend, ())[0] == 4
