"""Views: arrays that are a way of looking at a buffer, and which expressions give one without any memory of their own.

>>> from tilewright.ir.nodes import Rearrange, Variable, array
>>> from tilewright.ir.scalars import F32
>>> x = Variable("x", array(F32, "n", "m"))
>>> print(view_of(Rearrange(x, (1, 0)), {"x": fresh_view("x", x.type)}))
x + 0 + [m : 1][n : m]
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD, row_major
from tilewright.ir.nodes import Atom, Expression, Type, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import size


@dataclass(frozen=True)
class ArrayView:
    """An array of `element`s that lie in `buffer` where the LMAD says."""

    buffer: str
    element: ScalarType
    lmad: LMAD

    @property
    def type(self) -> Type:
        """The array's type."""
        return Type(self.element, self.lmad.shape)

    def __str__(self) -> str:
        return f"{self.buffer} + {self.lmad}"


def parameter_view(variable: Variable) -> ArrayView:
    """The view of a parameter x: offset `x.offset` and strides `x.stride0`, ..., in elements, known at run time."""
    strides = tuple(size(f"{variable.name}.stride{d}") for d in range(variable.type.rank))
    lmad = LMAD(size(f"{variable.name}.offset"), variable.type.shape, strides)
    return ArrayView(variable.name, variable.type.element, lmad)


def fresh_view(buffer: str, type: Type) -> ArrayView:
    """The view of a whole new row-major buffer."""
    return ArrayView(buffer, type.element, row_major(type.shape))


def view_of(expression: Expression, views: Mapping[str, ArrayView]) -> ArrayView | None:
    """The view that an expression gives, or None if it needs memory (or its array has no view in `views`).

    Alias, Index, Slice and Rearrange of a view are views; so is a Reshape that stays one LMAD, and the Replicate of an
    array. An index may be any i64 atom in scope: its name then occurs in the view's offset.
    """
    match expression:
        case nodes.Alias(atom):
            return _known(atom, views)
        case nodes.Replicate(count, value):
            base = _known(value, views) if value.type.rank else None
            return base and _with(base, base.lmad.broadcast(count))
        case nodes.Index(array, indices):
            base = _known(array, views)
            return base and _with(base, base.lmad.fix([nodes.atom_size(one) for one in indices]))
        case nodes.Slice(array, dimensions):
            base = _known(array, views)
            return base and _with(base, base.lmad.slice(dimensions))
        case nodes.Rearrange(array, permutation):
            base = _known(array, views)
            return base and _with(base, base.lmad.rearrange(permutation))
        case nodes.Reshape(array, shape):
            base = _known(array, views)
            reshaped = base and base.lmad.reshape(shape)
            return _with(base, reshaped) if base and reshaped else None
    return None


def _known(atom: Atom, views: Mapping[str, ArrayView]) -> ArrayView | None:
    return views.get(atom.name) if isinstance(atom, Variable) else None


def _with(view: ArrayView, lmad: LMAD) -> ArrayView:
    return ArrayView(view.buffer, view.element, lmad)
