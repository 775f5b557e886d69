"""What the walk over a map nest has seen so far: views, indices as polynomials, scalar code."""

from __future__ import annotations

from dataclasses import field

from tilewright.contraction.affine import affine_value, is_index
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Alias, Apply, Cast, If, Index, Iota, Loop, SizeValue, Statement, Variable, atom_size
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.views import ArrayView, view_of

_SCALAR = (Alias, Apply, Cast, SizeValue, If, Loop)


class Refused(Exception):
    """The nest is no contraction; the message says why."""


@dataclass
class Nest:
    """What the walk has seen so far.

    `bound` are all names that the nest binds, `iotas` the arrays [0, 1, ...] of i64, `affine` the i64 scalars of the
    nest that are polynomials in its indices ("@0", "@1", ... by depth) and in names from outside; `indexed` are the
    indices that must be in range, each with its array and the size of its dimension.
    """

    views: dict[str, ArrayView]
    bound: frozenset[str]
    iotas: set[str]
    affine: dict[str, Size] = field(default_factory=dict)
    scalar_statements: list[Statement] = field(default_factory=list)
    parallel: list[tuple[str, Size]] = field(default_factory=list)
    contracted: list[tuple[str, Size]] = field(default_factory=list)
    indexed: list[tuple[str, Size, Size]] = field(default_factory=list)

    def enter(
        self, width: Size, parameters: tuple[Variable, ...], arrays: tuple[Variable, ...], reduction: bool
    ) -> str:
        """Go into a map or reduction: its parameters become rows of its arrays. Gives the name of its index."""
        index = f"@{len(self.parallel) + len(self.contracted)}"
        extent = width.substitute(self.affine)
        for name in sorted(extent.names):
            if name in self.bound or is_index(name):
                raise Refused(f"the inner size {width} varies inside the nest")
        (self.contracted if reduction else self.parallel).append((index, extent))
        for parameter, one in zip(parameters, arrays, strict=True):
            if one.name in self.iotas:
                self.affine[parameter.name] = size(index)
                continue
            if one.name not in self.views:
                raise Refused(f"array {one.name} is computed inside the nest, so it is not a plain operand")
            view = self.views[one.name]
            self.views[parameter.name] = ArrayView(view.buffer, view.element, view.lmad.fix([size(index)]))
        return index


def absorb(nest: Nest, statement: Statement) -> bool:
    """Take note of a statement that is a view, an index or scalar code."""
    expression, name = statement.expression, statement.targets[0].name
    if isinstance(expression, Iota) and expression.scalar == I64:
        nest.iotas.add(name)
        return True
    if isinstance(expression, Index) and expression.array.name in nest.iotas and len(expression.indices) == 1:
        expression = Alias(expression.indices[0])
    index = affine_value(expression, nest.affine, nest.bound)
    if index is not None:
        nest.affine[name] = index
        if not any(is_index(one) for one in index.names):
            nest.scalar_statements.append(statement)
        return True
    view = view_of(expression, nest.views)
    if view is not None:
        if isinstance(expression, Index) and expression.checked:
            array = expression.array.name
            for atom, extent in zip(expression.indices, nest.views[array].lmad.shape, strict=False):
                nest.indexed.append((array, atom_size(atom).substitute(nest.affine), extent))
        nest.views[name] = ArrayView(view.buffer, view.element, view.lmad.substitute(nest.affine))
        return True
    if isinstance(expression, _SCALAR) and all(one.type.rank == 0 for one in statement.targets):
        for inner in (one for body in sub_bodies(expression) for one in all_statements(body)):
            if not isinstance(inner.expression, (*_SCALAR, Index)) or any(one.type.rank for one in inner.targets):
                raise Refused(f"{show(inner)} inside the nest's scalar code needs an array of its own")
        nest.scalar_statements.append(statement)
        return True
    return False


def show(statement: Statement) -> str:
    """A statement as messages name it."""
    return f"{type(statement.expression).__name__.lower()} {statement.targets[0].name}"
