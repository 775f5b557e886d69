"""Histograms of rows that are computed for them, such as rows that are gathered and scaled: no array holds these.

    rows = map f xs; hs = hist ds op ne js rows  =>  hs = seghist (i < n) ds op ne (js[i], f xs[i])

Of such rows it is known which arrays' rows they are made of, and what becomes of the elements at one place: so a core
goes on in vectors (bin_rows.py), and a thread has the elements at one place (hist.py).
"""

from __future__ import annotations

from functools import cache

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Lambda, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size
from tilewright.passes.segments.row_folds import elementwise, is_elementwise
from tilewright.rewrite.names import replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.histograms import computing_rows, is_scalar
from tilewright.rewrite.strategy import Strategy, everywhere, first_of


@dataclass(frozen=True)
class ComputedRows:
    """What a histogram of rows combines with its bins.

    Attributes:
        row, width: the number of a row, and how many there are.
        before: what is done once for a row; it gives the bin and the rows of arrays that the row is made of.
        sources: for each of those, the array that it is a part of, along the last dimension.
        elements: from their elements at one place, those of the values there.
    """

    row: Variable
    width: Size
    before: Body
    sources: tuple[Variable, ...]
    elements: Lambda

    @property
    def gathers(self) -> bool:
        """Whether a row of an array is read that is not the one of the same number."""
        own = {self.row.name}
        reads = (one for one in self.before.statements if one.targets[0].type.rank and used(one).isdisjoint(own))
        return any(isinstance(one.expression, nodes.Index) for one in reads)


def computed_rows(expression: nodes.Hist | nodes.SegHist) -> ComputedRows | None:
    """The rows that a histogram combines; None if its values are not rows, or not computed element by element.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program('''def sums (at: [n]i64, x: [n][d]f32, zeros: [d]f32, bins: [k][d]f32) =
        ...   let (h: [k][d]f32) = seghist@thread (i: i64 < n) (bins) (\\\\(a: [d]f32, b: [d]f32) ->
        ...     let (c: [d]f32) = map d (\\\\(e: f32, f: f32) -> let (g: f32) = e + f in (g)) a b
        ...     in (c)) (zeros) do
        ...     let (bin: i64) = at[i]
        ...     let (x_row: [d]f32) = x[i]
        ...     let (y: [d]f32) = map d (\\\\(e_2: f32) -> let (g_2: f32) = e_2 * e_2 in (g_2)) x_row
        ...     in (bin, y)
        ...   in (h)''')
        >>> found = computed_rows(program.body.statements[0].expression)
        >>> [str(one) for one in (*found.before.results, *found.sources, *found.elements.body.results)]
        ['bin', 'x_row', 'x', 'g_2']
    """
    if any(one.type.rank != 1 for one in expression.neutral) or elementwise(expression.combine) is None:
        return None
    if isinstance(expression, nodes.SegHist):
        if len(expression.space.dimensions) != 1:
            return None
        return _Rows(*expression.space.dimensions[0]).of(expression.body)
    row = Variable(f"{expression.indices}.number", Type(I64))
    arrays = (expression.indices, *expression.values)
    parts = tuple(Variable(f"{array}.part_{k}", array.type.row) for k, array in enumerate(arrays))
    reads = (Statement((part,), nodes.Index(array, (row,))) for part, array in zip(parts, arrays, strict=True))
    return _Rows(row, expression.indices.type.shape[0]).of(Body(tuple(reads), parts))


class _Rows:
    """Statements that make a row, as those done once for it and those done for each of its elements."""

    def __init__(self, row: Variable, width: Size) -> None:
        self.row, self.width = row, width
        self.before: list[Statement] = []
        self.inside: list[Statement] = []
        self.made: dict[str, Variable] = {}  # rows of arrays and scalars: rows by the arrays that they are parts of
        self.elements: dict[str, Atom] = {}  # the elements at one place
        self.read: list[tuple[Variable, Variable, Variable]] = []  # rows, what they are parts of, their elements

    def of(self, body: Body) -> ComputedRows | None:
        """What the statements of a body compute, if these are of known kinds."""
        if not all(self._is_added(one) for one in body.statements):
            return None
        bin_, *rows = body.results
        if any(not isinstance(one, Variable) or not self._has_elements(one) for one in rows):
            return None
        values = tuple(self._element(one) for one in rows if isinstance(one, Variable))
        parameters = tuple(one for _, _, one in self.read)
        before = Body(tuple(self.before), (bin_, *(one for one, _, _ in self.read)))
        elements = Lambda(parameters, Body(tuple(self.inside), values))
        return ComputedRows(self.row, self.width, before, tuple(one for _, one, _ in self.read), elements)

    def _is_added(self, statement: Statement) -> bool:
        expression = statement.expression
        if isinstance(expression, nodes.Map):
            if not is_elementwise(expression.function) or not all(map(self._has_elements, expression.arrays)):
                return False
            pairs = zip(expression.function.parameters, expression.arrays, strict=True)
            values = {parameter.name: self._element(array) for parameter, array in pairs}
            body = replace_names(expression.function.body, values)
            self.inside += body.statements
            for target, result in zip(statement.targets, body.results, strict=True):
                self.elements[target.name] = result
            return True
        whole = isinstance(expression, nodes.Index) and expression.array.name not in self.made
        if not is_scalar(statement) and not (whole and statement.targets[0].type.rank == 1):
            return False
        if not used(statement).isdisjoint(self.elements):
            return False
        self.before.append(statement)
        for target in statement.targets:
            self.made[target.name] = expression.array if isinstance(expression, nodes.Index) else target
        return True

    def _has_elements(self, array: Variable) -> bool:
        return array.type.rank == 1

    def _element(self, array: Variable) -> Atom:
        if array.name not in self.elements:
            element = Variable(f"{array}.element", array.type.row)
            self.read.append((array, self.made.get(array.name, array), element))
            self.elements[array.name] = element
        return self.elements[array.name]


@rule("histograms of rows", nodes.Hist)
def hist_of_rows(at: Place) -> Body | Declined:
    """rows = map f xs; hs = hist ds op ne js rows  =>  hs = seghist (i < n) ds op ne (js[i], f xs[i])

    Of functions that gather rows and map over their elements; no work is done twice: a map is taken in if nothing else
    reads its results.
    """
    hist = at.expect(nodes.Hist)
    if any(one.type.rank != 1 for one in hist.neutral):
        return no_match("its values are not rows")
    fused = computing_rows(at, _is_of_rows)
    if isinstance(fused, Declined):
        return fused
    (expression,) = (one.expression for one in fused.statements if one.targets == at.statement.targets)
    assert isinstance(expression, nodes.SegHist)
    rows = computed_rows(expression)
    if rows is None or any(isinstance(at.definition(one), nodes.Iota) for one in rows.sources):
        return no_match("its rows are not computed element by element")
    return fused


def _is_of_rows(statement: Statement) -> bool:
    return is_scalar(statement) or isinstance(statement.expression, nodes.Map | nodes.Index)


@cache
def computed_histograms() -> Strategy:
    """The rule once through the program."""
    return everywhere(first_of((hist_of_rows,)))
