"""Columns that are computed and then joined: rows that are computed."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Lambda, Statement, Type, Variable
from tilewright.ir.sizes import ONE, size
from tilewright.rewrite.names import definitions
from tilewright.rewrite.rule import Declined, Place, no_match, rule

MOST_COLUMNS = 16
"""More results would not wait in registers."""


@rule("computed columns", nodes.Concat)
def concat_columns(at: Place) -> Body | Declined:
    """zs = concat 1 (reshape (n, 1) xs) (reshape (n, 1) ys)
    =>  zs = map n (\\x y -> concat 0 (replicate 1 x) (replicate 1 y)) xs ys, if xs and ys are computed for this only

    The map fuses with those that compute the columns. So each element is written where it belongs, and once; what is
    only read is copied faster as it is. In more dimensions it is a nest over all but the last one.
    """
    joined = at.expect(nodes.Concat)
    if joined.axis != len(at.statement.targets[0].type.shape) - 1 or joined.axis == 0:
        return no_match("it does not join columns")
    if len(joined.arrays) > MOST_COLUMNS:
        return Declined(f"{len(joined.arrays)} columns are more than {MOST_COLUMNS}")
    columns = [column_of(at, one) for one in joined.arrays]
    known = [one for one in columns if one is not None]
    if len(known) < len(columns) or not at.is_on_host:
        return no_match("what it joins are not all single columns")
    stored = [one for one in known if not _is_computed_here(at, one)]
    if stored:
        return Declined(f"column {stored[0]} lies in memory anyway")
    return at.become(_rows(at, known))


def column_of(at: Place, part: Variable) -> Variable | None:
    """What is seen as an array with a last dimension of 1."""
    match at.definition(part):
        case nodes.Reshape(inner, shape) if shape == (*inner.type.shape, ONE):
            return inner
        case nodes.Rearrange(inner, permutation) if permutation == (*range(1, len(permutation)), 0):
            match at.definition(inner):
                case nodes.Replicate(count, Variable() as value) if count == ONE:
                    return value
    return None


def _is_computed_here(at: Place, column: Variable) -> bool:
    """Whether a map of the same body computes an array, and only one view of it is used, by one statement."""
    index = definitions(at.body).get(column.name)
    if index is None or not isinstance(at.body.statements[index].expression, nodes.Map):
        return False
    uses = at.uses(column.name)
    while len(uses) == 1 and uses[0] < at.index:
        uses = at.uses(at.body.statements[uses[0]].targets[0].name)
    return uses == (at.index,)


def _rows(at: Place, columns: list[Variable]) -> nodes.Map:
    """The map that joins the columns' elements."""
    names, width = at.names, columns[0].type.shape[0]
    rows = tuple(Variable(names(f"{one}.element"), one.type.row) for one in columns)
    if rows[0].type.rank:
        result = Variable(names("rows"), Type(rows[0].type.element, (*rows[0].type.shape, size(len(rows)))))
        return nodes.Map(
            width, Lambda(rows, Body((Statement((result,), _rows(at, list(rows))),), (result,))), tuple(columns)
        )
    ones = tuple(Variable(names(f"{one}.alone"), Type(one.type.element, (ONE,))) for one in rows)
    made = tuple(Statement((one,), nodes.Replicate(ONE, value)) for one, value in zip(ones, rows, strict=True))
    result = Variable(names("row"), Type(rows[0].type.element, (size(len(ones)),)))
    joined = Statement((result,), nodes.Concat(0, ones))
    return nodes.Map(width, Lambda(rows, Body((*made, joined), (result,))), tuple(columns))
