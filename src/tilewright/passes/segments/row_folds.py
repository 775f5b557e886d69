"""Folds and scans of rows by an operator on their elements, as those of their columns [S2].

    reduce n (map op) (replicate m ne) xs   =>  segred (j < m, k < n) op ne (xs[k, j])
    scan n (map op) (replicate m ne) xs     =>  rearrange (1, 0) (segscan (j < m, k < n) op ne (xs[k, j]))

Columns can be shared out among workers, and neighbours are folded in vectors (columns.py), which read and write memory
in order; the rearrangement costs nothing, for the rows of a segment may be the outermost dimension of the result.

Scans that a program writes column by column are turned into these first, or where the result is wanted as columns too,
into segmented scans, of which neighbours go on together likewise (`column_scans`).
"""

from __future__ import annotations

import dataclasses
from functools import cache

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Expression, Lambda, Level, SegSpace, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import mentioned
from tilewright.passes.core.fills import Fills
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.segments.form import Segments, segments_of
from tilewright.rewrite.names import definitions, users
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.strategy import Strategy, everywhere, first_of

_TURNED = (1, 0)


def elementwise(combine: Lambda) -> Lambda | None:
    """The function of two elements that a function of two rows maps; None if it does something else."""
    if len(combine.body.statements) != 1 or combine.body.results != combine.body.statements[0].targets:
        return None
    inner = combine.body.statements[0].expression
    if not isinstance(inner, nodes.Map) or not set(inner.arrays) <= set(combine.parameters):
        return None
    if len(set(inner.arrays)) != len(inner.arrays) or any(one.type.rank != 1 for one in inner.arrays):
        return None
    taken = dict(zip(inner.arrays, inner.function.parameters, strict=True))
    parameters = tuple(
        taken[one] if one in taken else Variable(f"{one}.unused", one.type.row) for one in combine.parameters
    )
    function = Lambda(parameters, inner.function.body)
    return function if is_elementwise(function) else None


def is_elementwise(function: Lambda) -> bool:
    """Whether a function of elements is one of vectors, too."""
    simple = all(isinstance(one.expression, nodes.Apply | nodes.Cast | nodes.Alias) for one in function.body.statements)
    return simple and is_vectorisable([function])


def is_fold_of_rows(expression: Expression) -> bool:
    """Whether `column_segments` gives the columns of an expression, if its neutral rows are of one scalar each."""
    return (
        isinstance(expression, nodes.Reduce | nodes.Scan)
        and all(one.type.rank == 1 and isinstance(one, Variable) for one in expression.neutral)
        and elementwise(expression.combine) is not None
    )


def column_segments(expression: Expression, fills: Fills) -> Segments | None:
    """The columns that a fold or scan of rows folds or scans; None if it is none, or its neutral rows are not of one
    scalar.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.ir.scalars import F32
        >>> program = parse_program('''def sums (x: [n][d]f32, zeros: [d]f32) =
        ...   let (s: [d]f32) = reduce n (\\\\(a: [d]f32, b: [d]f32) ->
        ...     let (c: [d]f32) = map d (\\\\(e: f32, f: f32) -> let (g: f32) = e + f in (g)) a b
        ...     in (c)) (zeros) x
        ...   in (s)''')
        >>> found = column_segments(program.body.statements[0].expression, {"zeros": nodes.Literal(0.0, F32)})
        >>> [str(one) for one in (*found.outer, found.width, *found.neutral)]
        ['d', 'n', '0.0f32']
    """
    if not isinstance(expression, nodes.Reduce | nodes.Scan) or not is_fold_of_rows(expression):
        return None
    neutral = tuple(fills[str(one)] for one in expression.neutral if str(one) in fills)
    combine = elementwise(expression.combine)
    if len(neutral) < len(expression.neutral) or combine is None:
        return None
    space, body = _elements(expression.arrays, rows_first=True)
    if isinstance(expression, nodes.Scan):
        found = segments_of(nodes.SegScan(Level.THREAD, space, combine, neutral, body))
        return None if found is None else dataclasses.replace(found, rows_first=True)
    return segments_of(nodes.SegRed(Level.THREAD, space, combine, neutral, body, expression.commutative))


def _elements(arrays: tuple[Variable, ...], rows_first: bool) -> tuple[SegSpace, Body]:
    """The space (columns, rows) of matrices, and what reads their elements; `rows_first`: at [row, column]."""
    column, row = (Variable(f"{arrays[0]}.{what}", Type(I64)) for what in ("column", "row"))
    elements = tuple(Variable(f"{one}.element", Type(one.type.element)) for one in arrays)
    at = (row, column) if rows_first else (column, row)
    reads = tuple(Statement((one,), nodes.Index(array, at)) for one, array in zip(elements, arrays, strict=True))
    extents = dict(zip(at, arrays[0].type.shape, strict=True))
    return SegSpace(((column, extents[column]), (row, extents[row]))), Body(reads, elements)


# --- scans column by column -------------------------------------------------------------------------------------------


@rule("column scans", nodes.Map)
def scan_rows_of_columns(at: Place) -> Body | Declined:
    """rearrange (1, 0) (map m (scan n op ne) (rearrange (1, 0) xs))  =>  scan n (map m op) (replicate m ne) xs"""
    found = _columns(at)
    if isinstance(found, Declined):
        return found
    scan, sources = found
    return _scan_of_rows(at, scan, sources) or no_match("what the scans give is read otherwise than as rows")


@rule("column scans", nodes.Map)
def scan_each_column(at: Place) -> Body | Declined:
    """map m (scan n op ne) (rearrange (1, 0) xs)  =>  segscan (j < m, k < n) op ne (xs[k, j])"""
    found = _columns(at)
    if isinstance(found, Declined):
        return found
    scan, _ = found
    space, elements = _elements(at.expect(nodes.Map).arrays, rows_first=False)
    segmented = nodes.SegScan(Level.THREAD, space, scan.combine, scan.neutral, elements)
    if segments_of(segmented) is None:
        return no_match("its operator is no function of scalars")
    return at.become(segmented)


def _columns(at: Place) -> tuple[nodes.Scan, tuple[Variable, ...]] | Declined:
    """The scan that a map does with the columns of matrices, and these."""
    nest = at.expect(nodes.Map)
    if not at.is_on_host:
        return no_match("it is not the host that runs the map")
    scan, sources = _scan_of_each(nest), _turned(at.body, nest.arrays)
    if scan is None or sources is None:
        return no_match("it is no map of scans of columns")
    return scan, sources


@cache
def column_scans() -> Strategy:
    """Both rules once through the program, that of rows where it can."""
    return everywhere(first_of((scan_rows_of_columns, scan_each_column)))


def _scan_of_each(nest: nodes.Map) -> nodes.Scan | None:
    """The scan of scalars that is all that a map does with the rows of its matrices."""
    if any(one.type.rank != 2 for one in nest.arrays):
        return None
    function = nest.function
    if len(function.body.statements) != 1 or function.body.results != function.body.statements[0].targets:
        return None
    scan = function.body.statements[0].expression
    if not isinstance(scan, nodes.Scan) or scan.arrays != function.parameters:
        return None
    return scan if not any(one.name in mentioned((scan.combine, scan.neutral)) for one in function.parameters) else None


def _turned(body: Body, arrays: tuple[Variable, ...]) -> tuple[Variable, ...] | None:
    """The matrices that these are the columns of."""
    bound_at = definitions(body)
    found = [body.statements[bound_at[one.name]].expression if one.name in bound_at else None for one in arrays]
    sources = tuple(one.array for one in found if isinstance(one, nodes.Rearrange) and one.permutation == _TURNED)
    return sources if len(sources) == len(arrays) else None


def _scan_of_rows(at: Place, scan: nodes.Scan, sources: tuple[Variable, ...]) -> Body | None:
    """The body with a scan of rows, where only rearrangements back into rows read what the map gives."""
    body, index, statement, names = at.body, at.index, at.statement, at.names
    uses = [users(body).get(one.name, ()) for one in statement.targets]
    if any(len(one) != 1 or one[0] == len(body.statements) for one in uses):
        return None
    readers = [body.statements[one[0]] for one in uses]
    if not all(
        isinstance(one.expression, nodes.Rearrange) and one.expression.permutation == _TURNED for one in readers
    ):
        return None
    width = sources[0].type.shape[1]
    rows = tuple(Variable(names(f"{one}.row"), Type(one.type.element, (width,))) for one in (*scan.combine.parameters,))
    results = tuple(Variable(names(f"{one}.next"), one.type) for one in rows[: len(scan.neutral)])
    combine = Lambda(rows, Body((Statement(results, nodes.Map(width, scan.combine, rows)),), results))
    neutral = tuple(Variable(names("neutral"), one.type) for one in results)
    fills = (Statement((one,), nodes.Replicate(width, atom)) for one, atom in zip(neutral, scan.neutral, strict=True))
    targets = tuple(one.targets[0] for one in readers)
    scanned = Statement(targets, nodes.Scan(scan.width, combine, neutral, sources))
    if not is_fold_of_rows(scanned.expression):
        return None
    rest = (one for one in body.statements[index + 1 :] if one not in readers)
    return Body((*body.statements[:index], *fills, scanned, *rest), body.results)
