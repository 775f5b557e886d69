"""Statements that compute row after row of matrices, as one map: what a row needs of another matrix stays in the cache.

What NumPy's users write with axis=1 and keepdims=True, such as softmax, is a fold of rows, then a map of elements, then
the next fold, and each goes through a matrix in memory. For long rows that takes longer than to compute.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, ScalarCode, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ONE, Size, product
from tilewright.ir.traversal import all_statements, mentioned, with_fresh_names
from tilewright.rewrite.names import definitions, replace_names
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.fusion_further import map_kept

LONG_ROWS = 256
"""Elements of a row from which on loops inside of rows are as fast as those over all elements."""
MANY_ROWS = 64
"""Rows that keep all cores busy."""
MANY_ELEMENTS = 1 << 16
"""Elements from which on it matters where they lie meanwhile."""


@rule("joined rows", nodes.Map)
def rows_of_rows(at: Place) -> Body | Declined:
    """ys = map n f xs; zs = map n g xs ys  =>  zs = if there are many long rows then map n (\\x -> g x (f x)) xs
    else (ys = map n f xs; zs = map n g xs ys)

    For as many maps, or nests of maps, as follow each other so, if they fold and map rows; others may read what they
    give.
    """
    around = (body.statements[index].expression for body, index in at.chain[:-1])
    widths = _widths(at.statement)
    if not all(isinstance(one, nodes.Loop) for one in around) or widths is None:
        return no_match("it is no map of rows of the program or its loops")
    group = _group(at, widths)
    maps = [at.body.statements[k] for k in group if isinstance(at.body.statements[k].expression, nodes.Map)]
    inside = [two.expression for one in maps for two in all_statements(_function(one, len(widths)).body)]
    folded = sum(isinstance(one, nodes.Reduction) for one in inside)
    lengths = {one.width for one in inside if isinstance(one, nodes.Map | nodes.Reduction)} - {ONE}
    if not folded or len(maps) < 3 or len(lengths) != 1:
        return no_match("no folds and maps of rows follow each other")
    (length,) = lengths
    if any(one.constant is not None and one.constant < least for one, least in _limits(product(widths), length)):
        return Declined("its rows are short, or few")
    return _joined(at, group, widths, length)


@rule("rows in one pass", nodes.Reduce, nodes.Redomap)
def folds_of_kept_rows(at: Place) -> Body | Declined:
    """map (\\x -> (y = map f x; z = reduce op ne y; map g y z)) xs
    =>  map (\\x -> (z, y = redomap op ne (\\e -> (f e, f e)) x; map g y z)) xs, if op commutes
    """
    if len(at.chain) < 2:
        return no_match("it is inside of no map")
    body, index = at.chain[-2]
    around = body.statements[index]
    if not any(one.type.rank > 1 for one in around.targets) or not _is_of_rows(around):
        return no_match("it is inside of no map that gives rows")
    fold = at.expression
    return map_kept(at) if isinstance(fold, nodes.Reduction) and fold.commutative else no_match("it keeps an order")


def _limits(width: Size, length: Size) -> tuple[tuple[Size, int], ...]:
    return (width, MANY_ROWS), (length, LONG_ROWS), (width * length, MANY_ELEMENTS)


def _function(statement: Statement, depth: int) -> Lambda:
    """What is done for a row, inside of so many maps."""
    assert isinstance(statement.expression, nodes.Map)
    function = statement.expression.function
    return function if depth == 1 else _function(function.body.statements[0], depth - 1)


# --- which statements -------------------------------------------------------------------------------------------------


def _is_of_rows(statement: Statement) -> bool:
    """Whether a statement is a map of rows or numbers by straight-line code, and maps and folds of rows in it."""
    expression = statement.expression
    if not isinstance(expression, nodes.Map) or any(one.type.rank > 2 for one in expression.arrays):
        return False
    return all(_is_plain(one) for one in expression.function.body.statements)


def _widths(statement: Statement) -> tuple[Size, ...] | None:
    """The widths of the maps around what is done for a row: each of them but the last does nothing else."""
    expression = statement.expression
    if not isinstance(expression, nodes.Map):
        return None
    if _is_of_rows(statement):
        return (expression.width,)
    inner = _only(expression.function.body)
    widths = None if inner is None else _widths(inner)
    return None if widths is None else (expression.width, *widths)


def _only(body: Body) -> Statement | None:
    """The statement of which a body consists."""
    return body.statements[0] if len(body.statements) == 1 and body.results == body.statements[0].targets else None


def _has_widths(statement: Statement, widths: tuple[Size, ...]) -> bool:
    """Whether a statement is such maps around what is done for a row, be it only one number."""
    expression = statement.expression
    if not isinstance(expression, nodes.Map) or expression.width != widths[0]:
        return False
    inner = _only(expression.function.body)
    return _is_of_rows(statement) if len(widths) == 1 else inner is not None and _has_widths(inner, widths[1:])


def _is_plain(statement: Statement) -> bool:
    expression = statement.expression
    if isinstance(expression, nodes.Index):
        return statement.targets[0].type.rank == 0
    if not isinstance(expression, nodes.Map | nodes.Reduction):
        return isinstance(expression, ScalarCode)
    inside = (one.expression for one in all_statements(Body((statement,), ())) if one is not statement)
    neutral = () if isinstance(expression, nodes.Map) else expression.neutral
    numbers = all(isinstance(one, ScalarCode) for one in inside) and not any(one.type.rank for one in neutral)
    return numbers and all(one.type.rank == 1 for one in expression.arrays)


def _group(at: Place, widths: tuple[Size, ...]) -> list[int]:
    """The statements that are done row by row with the one here, in their order."""
    group = {at.index}
    bound_at = definitions(at.body)
    pending = [at.index]
    while pending:
        for one in sorted(_read(at.body.statements[pending.pop()])):
            index = bound_at.get(one)
            if index is not None and index not in group and _goes_along(at, index, widths):
                group.add(index)
                pending.append(index)
    while True:  # without what others need before, and what only these would have needed
        early = {
            k
            for k in group - {at.index}
            for one in at.body.statements[k].targets
            if any(use not in group and use < at.index for use in at.uses(one.name))
        }
        if not early:
            return sorted(group)
        group -= early


def _read(statement: Statement) -> set[str]:
    match statement.expression:
        case nodes.Map(arrays=arrays):
            return {one.name for one in arrays}
        case nodes.Rearrange(array):
            return {array.name}
        case nodes.Replicate(_, value):
            return {str(value)}
    return set()


def _goes_along(at: Place, index: int, widths: tuple[Size, ...]) -> bool:
    """Whether a statement gives a row after another: maps of rows, or numbers made rows of one."""
    statement = at.body.statements[index]
    match statement.expression:
        case nodes.Map():
            return _has_widths(statement, widths)
        case nodes.Rearrange(array, permutation):
            return permutation == _numbers_first(len(widths)) and array.type.shape == (ONE, *widths)
        case nodes.Replicate(count, value):
            return count == ONE and value.type.shape == widths
    return False


def _numbers_first(depth: int) -> tuple[int, ...]:
    """How [1][n]... becomes [n]...[1]."""
    return (*range(1, depth + 1), 0)


# --- one map of them --------------------------------------------------------------------------------------------------


def _joined(at: Place, group: list[int], widths: tuple[Size, ...], length: Size) -> Body | Declined:
    body, last = at.body, at.index
    statements = [body.statements[k] for k in group]
    needed = [
        target
        for k in group
        for target in body.statements[k].targets
        if any(use not in group for use in at.uses(target.name))
    ]
    if any(not isinstance(at.definition(one), nodes.Map | None) for one in needed):
        return Declined("numbers as rows of one are needed by others")
    fused = _merged(at, widths, statements, needed)
    if fused is None:
        return Declined("what one of the rows is made of is read as a whole")
    targets = tuple(needed)
    then = with_fresh_names(fused, at.names)
    otherwise = with_fresh_names(
        Statement(targets, nodes.If(nodes.Literal(True, BOOL), Body(tuple(statements), targets), Body((), ()))),
        at.names,
    ).expression
    assert isinstance(otherwise, nodes.If)
    asked, condition = _question(at, product(widths), length)
    choice = nodes.If(condition, Body((then,), then.targets), otherwise.then)
    before = [one for k, one in enumerate(body.statements[:last]) if k not in group]
    return Body((*before, *asked, Statement(targets, choice), *body.statements[last + 1 :]), body.results)


def _merged(
    at: Place, widths: tuple[Size, ...], statements: Sequence[Statement], needed: Sequence[Variable]
) -> Statement | None:
    """One nest for all of them that gives what is needed; None if they need more of each other than the rows."""
    row = _Row(at, len(widths))
    if not all(row.is_added(one) for one in statements):
        return None
    results = [row.value(one) for one in needed]
    body = Body(tuple(row.statements), tuple(results))
    if len(widths) > 1:
        mapped = {one for statement in row.statements if isinstance(statement.expression, nodes.Map)
                  for one in statement.targets}  # fmt: skip
        rows = [one for one in results if isinstance(one, Variable) and one in mapped]
        if len(set(rows)) < len(results):
            return None
        inner = _merged(at, widths[1:], row.statements, rows)
        if inner is None:
            return None
        body = Body((inner,), inner.targets)
    function = Lambda(tuple(row.parameters), body)
    return Statement(tuple(needed), nodes.Map(widths[0], function, tuple(row.arrays)))


def _question(at: Place, count: Size, length: Size) -> tuple[list[Statement], Variable]:
    """Whether there are many long rows."""
    statements: list[Statement] = []
    answers: list[Variable] = []
    for value, least in _limits(count, length):
        number, answer = Variable(at.names("count"), Type(I64)), Variable(at.names("many"), Type(BOOL))
        statements.append(Statement((number,), nodes.SizeValue(value)))
        statements.append(Statement((answer,), nodes.Apply("ge", (number, nodes.index_literal(least)))))
        answers.append(answer)
    joined, *others = answers
    for one in others:
        both = Variable(at.names("joined"), Type(BOOL))
        statements.append(Statement((both,), nodes.Apply("and", (joined, one))))
        joined = both
    return statements, joined


class _Row:
    """The code of one row of all statements, which are nests of `depth` maps."""

    def __init__(self, at: Place, depth: int) -> None:
        self.at, self.depth = at, depth
        self.parameters: list[Variable] = []
        self.arrays: list[Variable] = []
        self.statements: list[Statement] = []
        self.rows: dict[str, Atom] = {}

    def value(self, array: Variable) -> Atom:
        """The row of an array, which is an input if none of the statements gives it."""
        if array.name not in self.rows:
            parameter = Variable(self.at.names(f"{array}.row"), array.type.row)
            self.parameters.append(parameter)
            self.arrays.append(array)
            self.rows[array.name] = parameter
        return self.rows[array.name]

    def is_added(self, statement: Statement) -> bool:
        """Add the code of a statement; False if it needs more than the rows."""
        (target, *_) = statement.targets
        match statement.expression:
            case nodes.Map(function=function, arrays=arrays):
                if not mentioned(function).isdisjoint(self.rows.keys() - {one.name for one in self.arrays}):
                    return False
                values = {p.name: self.value(one) for p, one in zip(function.parameters, arrays, strict=True)}
                body = replace_names(function.body, values)
                self.statements += body.statements
                self.rows |= {one.name: row for one, row in zip(statement.targets, body.results, strict=True)}
            case nodes.Replicate(_, Variable() as value):
                self.rows[target.name] = self.value(value)  # as [1][n]: seen through the rearrangement only
            case nodes.Rearrange(array):
                whole = Variable(self.at.names(f"{target}.row"), target.type.row)
                if array.name not in self.rows:
                    return False
                self.statements += self._row_of_one(self.rows[array.name], whole)
                self.rows[target.name] = whole
        return True

    def _row_of_one(self, value: Atom, whole: Variable) -> list[Statement]:
        """[n]...[1] of [n]..., or [1] of a number."""
        if self.depth == 1:
            return [Statement((whole,), nodes.Replicate(ONE, value))]
        first = Variable(self.at.names("first"), Type(value.type.element, (ONE, *value.type.shape)))
        turned = nodes.Rearrange(first, _numbers_first(self.depth - 1))
        return [Statement((first,), nodes.Replicate(ONE, value)), Statement((whole,), turned)]
