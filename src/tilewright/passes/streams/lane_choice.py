"""Which nests of streams run with neighbouring points in the lanes of vectors [S3, on a CPU].

The points along the innermost dimension are a block's lanes; the piece of a stream that they share lies in the cache
as it is, so nothing is copied: each element is loaded once for `vectors` times `lanes` points (register tiling). Rows
of the points' own that a stream inside another one runs through again and again are staged, with the elements of
neighbouring points side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Expression, Reduction, ScalarCode, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import all_statements
from tilewright.machine.model import Machine
from tilewright.passes.core.narrow_indices import with_narrow_indices
from tilewright.passes.core.nests import Nest, nest_of
from tilewright.passes.core.variance import Variance, streams_of, variance_of
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.streams.choice import NotTiled

MOST_VECTORS = 4
TEMPORARIES = 4
"""Registers that the code of a row needs beside accumulators and values of the points."""


@dataclass(frozen=True)
class LaneForm:
    """A nest with `vectors` vectors of `lanes` points of its innermost dimension together.

    `staged` are the parameters of the innermost map whose elements are put side by side first; the extents `narrow`
    must be below `narrow_indices.MOST`.
    """

    nest: Nest
    variance: Variance
    lanes: int
    vectors: int
    staged: frozenset[str] = frozenset()
    narrow: tuple[Size, ...] = ()

    @property
    def dimension(self) -> int:
        """The dimension whose points are lanes."""
        return len(self.nest.space) - 1

    def changes(self, statement: Statement) -> bool:
        """Whether what a statement binds differs between lanes."""
        names = [self.variance.names.get(target.name, frozenset()) for target in statement.targets]
        return any(self.dimension in one for one in (*names, self.variance.of(statement.expression)))


def lane_form(expression: Expression, machine: Machine) -> LaneForm | NotTiled | None:
    """The form of a nest for a machine with vectors, or why there is none; None if there is no stream.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.machine.named import CPU_AVX512
        >>> program = parse_program('''def f (xs: [n]f32, ys: [m]f32) =
        ...   let (r: [n]f32) = map n (\\\\(x: f32) ->
        ...     let (s: f32) = redomap m (\\\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32)
        ...       (\\\\(y: f32) -> let (p: f32) = max(x, y) in (p)) ys
        ...     in (s)) xs
        ...   in (r)''')
        >>> form = lane_form(program.body.statements[0].expression, CPU_AVX512)
        >>> form.lanes, form.vectors
        (16, 4)
    """
    if nest_of(expression) is None:
        return None
    expression, narrow = with_narrow_indices(expression)
    nest = nest_of(expression)
    if nest is None or not list(streams_of(nest.body)) or not machine.vector_bytes:
        return None
    variance = variance_of(nest)
    form = LaneForm(nest, variance, 1, 1, _staged(nest), narrow)
    reasons = tuple(dict.fromkeys(_obstacles(form, nest.body)))
    if reasons:
        return NotTiled(reasons)
    loaded = [one for one in all_statements(nest.body) if is_lane_load(form, one)]
    parameters = [one for one in _parameters(nest) if one.type.rank == 0] + [one.targets[0] for one in loaded]
    carried = [
        atom.type for statement, _ in streams_of(nest.body) for atom in _neutral(statement) if form.changes(statement)
    ]
    if not carried:
        return NotTiled((f"no vectors of points: no stream gives what differs along {nest.space[-1]}",))
    types = [*carried, *(one.type for one in parameters)]
    widest = max(compute_type(one.element).bytes for one in types)
    lanes = machine.lanes(widest)
    if lanes == 1:
        return NotTiled((f"no vectors of points: one number of {widest} bytes fills a register",))
    live = len(carried) + len(parameters) + TEMPORARIES
    vectors = MOST_VECTORS
    while vectors > 1 and vectors * live > machine.vector_registers:
        vectors //= 2
    return dataclasses.replace(form, lanes=lanes, vectors=vectors)


def _staged(nest: Nest) -> frozenset[str]:
    """The rows of numbers that points have of their own and that a stream inside another one runs through."""
    rows = {one.name for one in _parameters(nest) if one.type.rank == 1 and _is_simple(one.type.row)}
    again = {
        array.name
        for statement, around in streams_of(nest.body)
        if isinstance(statement.expression, Reduction) and any(isinstance(one.expression, Reduction) for one in around)
        for array in statement.expression.arrays
    }
    return frozenset(rows & again)


def _neutral(statement: Statement) -> Sequence[nodes.Atom]:
    return statement.expression.neutral if isinstance(statement.expression, Reduction) else ()


def _obstacles(form: LaneForm, body: Body) -> Iterator[str]:
    """Why the points of the innermost dimension cannot be lanes, if they cannot."""
    for one in (*_parameters(form.nest), *body.results):
        if one.type.rank == 0 and not _is_simple(one.type):
            yield f"no vectors of points: {one} is of type {one.type}"
    if any(atom.type.rank for atom in body.results):
        yield "no vectors of points: a point gives arrays"
    yield from _in_body(form, body)


def _parameters(nest: Nest) -> tuple[Variable, ...]:
    """The rows of arrays that a point of the innermost map is given; a segmented map has none."""
    return nest.levels[-1][0].parameters if nest.levels else ()


def is_lane_load(form: LaneForm, statement: Statement) -> bool:
    """Whether a statement of a segmented map reads neighbouring elements of one row at neighbouring points."""
    expression, nest = statement.expression, form.nest
    if (
        not isinstance(expression, nodes.Index)
        or not nest.indices
        or len(expression.indices) != expression.array.type.rank
    ):
        return False
    *outer, last = expression.indices
    fixed = all(form.dimension not in form.variance.of(one) for one in (expression.array, *outer))
    in_range = expression.array.type.shape[-1] == nest.space[-1]
    return fixed and in_range and last == nest.indices[-1] and _is_simple(statement.targets[0].type)


def _is_simple(type_: Type) -> bool:
    return type_.rank == 0 and type_.element != BOOL and not type_.element.is_complex


def _in_body(form: LaneForm, body: Body) -> Iterator[str]:
    for statement in body.statements:
        if form.changes(statement):
            yield from _in_statement(form, statement)


def _in_statement(form: LaneForm, statement: Statement) -> Iterator[str]:
    expression, name = statement.expression, statement.targets[0].name
    if not isinstance(expression, Reduction):
        if not (is_lane_code(statement) or is_lane_load(form, statement)):
            yield f"no vectors of points: {name} = {type(expression).__name__.lower()} differs between points"
        return
    for array in expression.arrays:
        if form.dimension in form.variance.of(array) and array.name not in form.staged:
            every = form.variance.of(array) == frozenset(range(len(form.nest.space)))
            why = "every parallel dimension" if every else f"dimension {form.dimension}, along which points are lanes"
            yield f"not tiled: array {array} is variant to {why}, so no element is used twice"
    if form.dimension in form.variance.of(expression.width):
        yield f"no vectors of points: the length {expression.width} of stream {name} differs between points"
    if len(statement.targets) != len(expression.neutral) or not all(_is_simple(one.type) for one in expression.neutral):
        yield f"no vectors of points: stream {name} gives more than real numbers"
    elif not all(is_lane_code(one) for one in expression.combine.body.statements):
        yield f"no vectors of points: the operator of stream {name} is no straight-line code on scalars"
    if isinstance(expression, nodes.Redomap):
        yield from _in_body(form, expression.function.body)


def is_lane_code(statement: Statement) -> bool:
    """Whether a statement is straight-line code on real scalars, which vectors can run."""
    expression = statement.expression
    if isinstance(expression, nodes.If):
        inside = (*expression.then.statements, *expression.otherwise.statements)
        simple = all(is_lane_code(one) for one in inside)
    else:
        simple = isinstance(expression, ScalarCode)
    if not simple or any(target.type.rank or target.type.element.is_complex for target in statement.targets):
        return False
    return is_vectorisable([function_of(statement, ())])


def function_of(statement: Statement, parameters: Sequence[Variable]) -> nodes.Lambda:
    """A statement as a function of some of the variables that it uses."""
    return nodes.Lambda(tuple(parameters), Body((statement,), statement.targets))


def lane_text(form: LaneForm) -> str:
    """One line for a person."""
    extent = form.nest.space[-1]
    staged = f", with the rows of {', '.join(sorted(form.staged))} side by side" if form.staged else ""
    return (
        f"{form.vectors} vectors of {form.lanes} points along {extent} run through the streams together{staged}: each "
        f"element is loaded once for {form.vectors * form.lanes} points"
    )
