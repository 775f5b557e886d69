"""Which expressions are views, and that the views show the elements that the expression means."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import nodes
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Expression, Type, Variable
from tilewright.ir.scalars import F32, I64
from tilewright.ir.sizes import size
from tilewright.ir.views import ArrayView, fresh_view, parameter_view, view_of

n, m = size("n"), size("m")
X = Variable("x", nodes.array(F32, n, m))
I = Variable("i", Type(I64))  # noqa: E741
VALUES = {"n": 3, "m": 4, "i": 2}
BUFFER = np.arange(12).reshape(3, 4)

VIEWS: list[tuple[Expression, np.ndarray]] = [
    (nodes.Alias(X), BUFFER),
    (nodes.Index(X, ()), BUFFER),
    (nodes.Index(X, (I,)), BUFFER[2]),
    (nodes.Index(X, (nodes.index_literal(1), I)), BUFFER[1, 2]),
    (
        nodes.Slice(X, (nodes.SliceDimension(n - 1, n, -1), nodes.SliceDimension(size("i") - 1, size(2), 2))),
        BUFFER[::-1, 1::2],
    ),
    (nodes.Rearrange(X, (1, 0)), BUFFER.T),
    (nodes.Reshape(X, (n * m,)), BUFFER.reshape(12)),
    (nodes.Reshape(X, (size(6), size(2))), BUFFER.reshape(6, 2)),
    (nodes.Replicate(m, X), np.broadcast_to(BUFFER, (4, 3, 4))),
]


@pytest.mark.parametrize(("expression", "expected"), VIEWS, ids=lambda one: type(one).__name__)
def test_views_show_the_right_elements(expression: Expression, expected: np.ndarray) -> None:
    view = view_of(expression, {"x": fresh_view("x", X.type)})
    assert view is not None and view.buffer == "x" and view.element == F32
    bound = view.lmad.bind(VALUES)
    assert tuple(extent.constant for extent in bound.shape) == expected.shape
    assert list(bound.points()) == expected.ravel().tolist()


@pytest.mark.parametrize(
    "expression",
    [
        nodes.Reshape(Variable("t", nodes.array(F32, m, n)), (n * m,)),
        nodes.Replicate(n, nodes.Literal(1.0, F32)),
        nodes.Replicate(n, Variable("s", Type(F32))),
        nodes.Copy(X),
        nodes.Iota(n),
        nodes.Alias(Variable("unknown", nodes.array(F32, n))),
        nodes.Slice(Variable("unknown", nodes.array(F32, n)), (nodes.SliceDimension(size(0), n),)),
    ],
    ids=str,
)
def test_what_needs_memory_is_no_view(expression: Expression) -> None:
    base = fresh_view("x", X.type)
    transposed = view_of(nodes.Rearrange(X, (1, 0)), {"x": base})
    assert transposed is not None
    scalar = ArrayView("s", F32, LMAD(size(0), (), ()))
    assert view_of(expression, {"x": base, "t": transposed, "s": scalar}) is None


def test_parameters_are_strided_by_run_time_names() -> None:
    view = parameter_view(X)
    assert view.type == X.type
    assert view.lmad.flat(["a", "b"]) == size("x.offset") + size("x.stride0") * "a" + size("x.stride1") * "b"
    assert view_of(nodes.Reshape(X, (n * m,)), {"x": view}) is None  # the strides are not known to be row-major
    reshaped = view_of(nodes.Reshape(X, (n, size(1), m)), {"x": view})
    assert reshaped is not None
    assert reshaped.lmad.strides[0] == size("x.stride0") and reshaped.lmad.strides[2] == size("x.stride1")


def test_views_compose() -> None:
    views = {"x": fresh_view("x", X.type)}
    for name, expression in [
        ("a", nodes.Rearrange(X, (1, 0))),
        (
            "b",
            nodes.Slice(
                Variable("a", nodes.array(F32, m, n)),
                (nodes.SliceDimension(m - 1, m, -1), nodes.SliceDimension(size(1), n - 1)),
            ),
        ),
        ("c", nodes.Rearrange(Variable("b", nodes.array(F32, m, n - 1)), (1, 0))),
    ]:
        view = view_of(expression, views)
        assert view is not None
        views[name] = view
    assert list(views["c"].lmad.bind(VALUES).points()) == BUFFER.T[::-1, 1:].T.ravel().tolist()
