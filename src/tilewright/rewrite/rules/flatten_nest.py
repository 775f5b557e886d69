"""Map nests: the context of the flattening rules [S2], read off a program and written back.

    sum |- e    is written as the perfect nest    map (\\x_p -> ... map (\\x_1 -> e) y_1 ...) y_p

so that every state of a flattening is a program, which can be printed, verified and interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.cached import remembered
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Segmented, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames, bodies_of, bound, mentioned
from tilewright.rewrite.names import replace_names
from tilewright.rewrite.rule import Place


@dataclass(frozen=True)
class NestLevel:
    """One map of a nest: <parameters in arrays>, for `width` rows."""

    width: Size
    parameters: tuple[Variable, ...]
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class Nest:
    """A context, outermost level first, and the body that stands in it. Without levels the context is empty."""

    levels: tuple[NestLevel, ...]
    body: Body

    @property
    def shape(self) -> tuple[Size, ...]:
        """The widths; their product is Par(context)."""
        return tuple(level.width for level in self.levels)

    @property
    def varying(self) -> frozenset[str]:
        """The names that the levels and the body bind: what may differ from one point to another."""
        parameters = (one.name for level in self.levels for one in level.parameters)
        return bound(self.body).union(parameters)

    @property
    def sole(self) -> Statement | None:
        """The body's only statement, if the body gives exactly its results."""
        statements = self.body.statements
        return statements[0] if len(statements) == 1 and self.body.results == statements[0].targets else None


def nest_of(statement: Statement) -> Nest:
    """The perfect nest of maps that a statement is, as deep as it goes."""
    levels: list[NestLevel] = []
    body = Body((statement,), statement.targets)
    while (sole := Nest((), body).sole) is not None and isinstance(sole.expression, nodes.Map):
        expression = sole.expression
        levels.append(NestLevel(expression.width, expression.function.parameters, expression.arrays))
        body = expression.function.body
    return Nest(tuple(levels), body)


def write_nest(nest: Nest, targets: tuple[Variable, ...], names: FreshNames) -> tuple[Statement, ...]:
    """targets = the nest; with an empty context the body's statements, which must bind the targets."""
    body = nest.body
    for depth in range(len(nest.levels) - 1, -1, -1):
        level = nest.levels[depth]
        expression = nodes.Map(level.width, Lambda(level.parameters, body), level.arrays)
        if depth == 0:
            return (Statement(targets, expression),)
        hints = zip(targets, body.results, strict=True)
        inner = tuple(Variable(names(one.name), result.type.array_of(level.width)) for one, result in hints)
        body = Body((Statement(inner, expression),), inner)
    return body.statements


def renamed(nest: Nest, names: FreshNames) -> Nest:
    """The nest with new names for the parameters of its levels."""
    values: dict[str, Atom] = {}
    levels: list[NestLevel] = []
    for level in nest.levels:
        arrays = replace_names(level.arrays, values)
        types = [replace_names(one.type, values) for one in level.parameters]
        parameters = tuple(Variable(names(one.name), t) for one, t in zip(level.parameters, types, strict=True))
        values.update({one.name: new for one, new in zip(level.parameters, parameters, strict=True)})
        levels.append(NestLevel(replace_names(level.width, values), parameters, arrays))
    return Nest(tuple(levels), replace_names(nest.body, values))


def without_unused(nest: Nest) -> Nest:
    """The nest without inputs that nothing uses; the rows of at least one array are counted at every level."""
    needed = mentioned(nest.body)
    levels: list[NestLevel] = []
    for level in reversed(nest.levels):
        pairs = list(zip(level.parameters, level.arrays, strict=True))
        kept = [pair for pair in pairs if pair[0].name in needed] or pairs[:1]
        levels.append(NestLevel(level.width, tuple(one for one, _ in kept), tuple(array for _, array in kept)))
        needed = needed.union(*(mentioned(array) for _, array in kept))
    return Nest(tuple(reversed(levels)), nest.body)


def extended(nest: Nest, inputs: Sequence[tuple[Variable, Variable]], names: FreshNames) -> Nest:
    """The nest with further inputs (parameter, array): the innermost body reads `array` there as `parameter`."""
    levels: list[NestLevel] = []
    rows = [array for _, array in inputs]
    for depth, level in enumerate(nest.levels):
        if depth == len(nest.levels) - 1:
            parameters = [parameter for parameter, _ in inputs]
        else:
            parameters = [Variable(names(array.name), array.type.row) for array in rows]
        levels.append(NestLevel(level.width, (*level.parameters, *parameters), (*level.arrays, *rows)))
        rows = parameters
    return Nest(tuple(levels), nest.body)


def whole(nest: Nest, variable: Variable) -> Variable | None:
    """The array whose element at every point of the context is this parameter; None if there is none."""
    for level in reversed(nest.levels):
        places = [k for k, one in enumerate(level.parameters) if one.name == variable.name]
        if not places:
            return None
        variable = level.arrays[places[0]]
    return variable


def spread(nest: Nest, atom: Atom, names: FreshNames) -> tuple[tuple[Statement, ...], Variable]:
    """An array over the whole context that has the value of a parameter, or of something outside, at every point.

    Returns:
        The statements that make it, which stand before the nest, and the array.
    """
    hint = atom.name if isinstance(atom, Variable) else "copies"
    if isinstance(atom, Variable) and (array := whole(nest, atom)) is not None:
        return (), array
    parameters = {one.name for level in nest.levels for one in level.parameters}
    if isinstance(atom, Variable) and atom.name in parameters:
        target = Variable(names(hint), atom.type.array_of(*nest.shape))
        copy = without_unused(renamed(Nest(nest.levels, Body((), (atom,))), names))
        return write_nest(copy, (target,), names), target
    statements: list[Statement] = []
    for width in reversed(nest.shape):
        copies = Variable(names(hint), atom.type.array_of(width))
        statements.append(Statement((copies,), nodes.Replicate(width, atom)))
        atom = copies
    if not isinstance(atom, Variable):
        raise ValueError("a literal is no array over an empty context")
    return tuple(statements), atom


def open_space(nest: Nest, names: FreshNames) -> tuple[nodes.SegSpace, Body]:
    """The context as a space of indices, and the body with the parameters that it uses read from their arrays."""
    places: dict[str, tuple[Variable, tuple[Variable, ...]]] = {}
    dimensions: list[tuple[Variable, Size]] = []
    parameters: list[Variable] = []
    for level in nest.levels:
        index = Variable(names("i"), Type(I64))
        dimensions.append((index, level.width))
        for parameter, array in zip(level.parameters, level.arrays, strict=True):
            base, indices = places.get(array.name, (array, ()))
            places[parameter.name] = (base, (*indices, index))
            parameters.append(parameter)
    needed = mentioned(nest.body)
    reads = tuple(Statement((one,), nodes.Index(*places[one.name])) for one in parameters if one.name in needed)
    return nodes.SegSpace(tuple(dimensions)), Body(reads + nest.body.statements, nest.body.results)


# --- where a statement stands -----------------------------------------------------------------------------------------


def in_segment(at: Place) -> bool:
    """Whether a place is inside a segmented operation."""
    return any(isinstance(body.statements[index].expression, Segmented) for body, index in at.chain[:-1])


@remembered
def holds_operation(expression: Expression) -> bool:
    """Whether there is a segmented operation in an expression."""
    inside = (one.expression for body in bodies_of(expression) for one in body.statements)
    return any(isinstance(one, Segmented) or holds_operation(one) for one in inside)


def inner_level(at: Place) -> nodes.Level | None:
    """The level of a segmented operation that stands here: one deeper than those around it.

    None inside an operation of level thread, inside the function of a combinator, which is flattened as a whole, and
    for a combinator that holds segmented operations already.
    """
    if holds_operation(at.expression):
        return None
    level: nodes.Level | None = None
    for outer, index in at.chain[:-1]:
        expression: Expression = outer.statements[index].expression
        if isinstance(expression, Segmented):
            level = expression.level
        elif not isinstance(expression, nodes.If | nodes.Loop | nodes.StreamSeq):
            return None
    return None if level is nodes.Level.THREAD else nodes.Level.THREAD
