"""Maps whose results no cache holds: the same results, whole lines past the caches, nothing else touched."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from named_cpus import machine_for, processor_at_hand, region_of

import tilewright as tw
from tilewright.ir.scalars import BOOL, F16, F32, F64, I8, I32, I64, ScalarType, compute_type
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Name, Statement, add, integer, load, operation
from tilewright.kernel.traversal import walk
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.past_caches import SHORTEST, emit_past_caches
from tilewright.passes.points import point_kernels
from tilewright.runtime.cpu_device import optimisation_of

LOW, HIGH, SHIFT, POINTS = (Name(one, I64) for one in ("low", "high", "shift", "points"))
INDEX = Name("j", I64)
CACHE = 4096


def body_of(source: ScalarType, result: ScalarType) -> tuple[tuple[Buffer, Buffer], list[Statement]]:
    """y[j + shift] = x[j] + x[j + 3] + 1, and whatever x[0] is"""
    x, y = Buffer("x", source, read_only=True), Buffer("y", result)
    inner, one = compute_type(source), Name("one", compute_type(source))
    total = operation("add", operation("add", load(x, INDEX), load(x, add(INDEX, integer(3)))), load(x, integer(0)))
    value = operation("add", total, Constant(1.0 if inner.is_float else 1, inner))
    at = ir.Let("at", operation("add", INDEX, SHIFT))
    cast = ir.Cast(one, compute_type(result)) if source != result else one
    return (x, y), [ir.Let("one", value), at, ir.Store(y, Name("at", I64), cast)]


def emitted(body: list[Statement], **caches: int) -> tuple[Statement, ...]:
    emit = KernelBuilder()
    machine = replace(machine_for("haswell"), l2_bytes=CACHE // 2, l3_bytes=CACHE, **caches)
    loop = ir.For(INDEX.name, LOW, HIGH, tuple(body))
    emit_past_caches(emit, (LOW, HIGH), INDEX, body, machine, lambda: POINTS, lambda: emit.emit(loop))
    return emit.statements


def past(statements: tuple[Statement, ...]) -> list[ir.Store]:
    return [one for one in walk(statements) if isinstance(one, ir.Store) and one.nontemporal]


@given(
    st.sampled_from([(F32, F32), (F64, F64), (I32, F64), (F64, F32), (F16, F32), (I8, I32)]),
    st.integers(0, 40), st.integers(0, 900), st.integers(0, 40), st.booleans(),
)  # fmt: skip
def test_results_are_the_same(types: tuple[Any, Any], low: int, count: int, shift: int, large: bool) -> None:
    source, result = types
    buffers, body = body_of(source, result)
    scalars = tuple(ir.ScalarParameter(one.name, I64) for one in (LOW, HIGH, SHIFT, POINTS))
    statements = emitted(body)
    assert past(statements)
    assert all(one.aligned for one in past(statements))
    xs = np.random.default_rng(count).integers(0, 9, low + count + 3).astype(source.numpy)
    ys = np.full(low + count + shift + 40, 77, result.numpy)
    points = CACHE // result.bytes + large
    kernel = ir.Kernel("past", buffers, scalars, (), statements)
    regions = [region_of(one) for one in (xs, ys)]
    processor_at_hand("haswell").run(kernel, "none", regions, (low, low + count, shift, points), 1)
    expected = np.full_like(ys, 77)
    j = np.arange(low, low + count)
    expected[j + shift] = (xs[j] + xs[j + 3] + xs[0] + 1).astype(result.numpy) if count else 0
    np.testing.assert_array_equal(ys, expected)


def test_only_large_and_long_results_go_past_the_caches() -> None:
    _, body = body_of(F32, F32)
    (choice,) = [one for one in emitted(body) if isinstance(one, ir.If)]
    condition = next(
        one.value for one in emitted(body) if isinstance(one, ir.Let) and one.name == choice.condition.name
    )
    assert condition == operation(
        "and",
        operation("gt", POINTS, integer(CACHE // 4)),
        operation("ge", operation("sub", HIGH, LOW), integer(SHORTEST * 16)),
    )
    assert past(choice.then) and not past(choice.otherwise)


def not_qualifying() -> dict[str, list[Statement]]:
    (x, y), body = body_of(F32, F32)
    *before, store = body
    assert isinstance(store, ir.Store)
    flags = Buffer("flags", BOOL)
    return {
        "a branch": [*before, ir.If(Name("c", BOOL), (store,))],
        "two results": [*body, ir.Store(Buffer("z", F32), INDEX, load(x, INDEX))],
        "reads apart": [ir.Store(y, INDEX, load(x, operation("mul", INDEX, integer(2))))],
        "reads anywhere": [ir.Store(y, INDEX, load(x, operation("min", INDEX, integer(2))))],
        "writes apart": [ir.Store(y, operation("mul", INDEX, integer(2)), load(x, INDEX))],
        "reads what it writes": [ir.Store(y, INDEX, load(y, INDEX))],
        "small elements": [ir.Store(flags, INDEX, operation("lt", load(x, INDEX), load(x, integer(0))))],
        "a variable": [*body, ir.Assign("outer", load(x, INDEX))],
    }


@pytest.mark.parametrize("name", not_qualifying())
def test_other_loops_stay_as_they_are(name: str) -> None:
    body = not_qualifying()[name]
    assert emitted(body) == (ir.For(INDEX.name, LOW, HIGH, tuple(body)),)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_the_caches_hold_is_left_to_the_compiler_s_vectoriser(dtype: str) -> None:
    """Vectors past the caches are explicit; the loop beside them is of scalars, which nothing else makes vectors of."""
    made: list[ir.Kernel] = []
    plan = point_kernels._plan
    with pytest.MonkeyPatch.context() as patch:

        def seen(*values: Any) -> Any:
            found = plan(*values)
            made.append(found.kernel)
            return found

        patch.setattr(point_kernels, "_plan", seen)
        x = np.linspace(-1, 1, 1000).astype(dtype)
        element = tw.f32 if dtype == "f4" else tw.f64

        @tw.program
        def magnitude(x: element["n"]) -> Any:  # type: ignore[valid-type]
            return tw.map(abs, x)

        np.testing.assert_array_equal(magnitude(x, target="cpu"), np.abs(x))
    (one,) = made
    assert past(one.body), "the kernel has a path past the caches"
    assert optimisation_of(one) == "full"
