"""What the walk over a map nest has seen so far: views, indices as polynomials, scalar code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tilewright.contraction.affine import affine_value, is_index
from tilewright.ir import nodes
from tilewright.ir.counts import same_count
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Expression, Statement, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, ZERO, Size, product, size
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.views import ArrayView, view_of

_SCALAR = (nodes.Alias, nodes.Apply, nodes.Cast, nodes.SizeValue, nodes.If, nodes.Loop)


class Refused(Exception):
    """The nest is no contraction; the message says why."""


@dataclass(frozen=True)
class Load:
    """An element that is read, and where: a view without dimensions."""

    variable: Variable
    view: ArrayView


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

    def contract(self, width: Size) -> str:
        """Add a contracted dimension inside of all others. Gives the name of its index."""
        index = f"@{len(self.parallel) + len(self.contracted)}"
        self.contracted.append((index, width))
        return index


def absorb(nest: Nest, statement: Statement) -> bool:
    """Take note of a statement that is a view, an index or scalar code."""
    expression, name = statement.expression, statement.targets[0].name
    if isinstance(expression, nodes.Iota) and expression.scalar == I64:
        nest.iotas.add(name)
        return True
    if isinstance(expression, nodes.Index) and expression.array.name in nest.iotas and len(expression.indices) == 1:
        expression = nodes.Alias(expression.indices[0])
    index = affine_value(expression, nest.affine, nest.bound)
    if index is not None:
        nest.affine[name] = index
        if not any(is_index(one) for one in index.names):
            nest.scalar_statements.append(statement)
        return True
    view = view_of(expression, nest.views)
    if view is not None:
        nest.indexed += [(name, place.substitute(nest.affine), extent) for place, extent in _places(expression, nest)]
        nest.views[name] = ArrayView(view.buffer, view.element, view.lmad.substitute(nest.affine))
        return True
    if isinstance(expression, _SCALAR) and all(one.type.rank == 0 for one in statement.targets):
        for inner in (one for body in sub_bodies(expression) for one in all_statements(body)):
            if not isinstance(inner.expression, (*_SCALAR, nodes.Index)) or any(one.type.rank for one in inner.targets):
                raise Refused(f"{show(inner)} inside the nest's scalar code needs an array of its own")
        nest.scalar_statements.append(statement)
        return True
    return False


def _places(expression: Expression, nest: Nest) -> Iterator[tuple[Size, Size]]:
    """What has to be 0 at least and below an extent for a view to show what is in its array only.

    That both ends of a slice are is more than is asked of one without elements; what fails is left to others to judge.
    """
    match expression:
        case nodes.Index(array, indices) if expression.checked:
            for atom, extent in zip(indices, nest.views[array.name].lmad.shape, strict=False):
                yield nodes.atom_size(atom), extent
        case nodes.Slice(array, dimensions) if expression.checked:
            for one, extent in zip(dimensions, nest.views[array.name].lmad.shape, strict=True):
                if one.start != ZERO or one.count != extent or one.step != 1:
                    yield one.start, extent
                    yield one.start + (one.count - 1) * one.step, extent
        case nodes.Reshape(array, shape) if not same_count(array.type.shape, shape, lambda _: False):
            yield product(shape) - product(array.type.shape), ONE
            for extent in (*array.type.shape, *shape):
                if extent.constant is None:
                    yield extent, extent + 1


def show(statement: Statement) -> str:
    """A statement as messages name it."""
    return f"{type(statement.expression).__name__.lower()} {statement.targets[0].name}"
