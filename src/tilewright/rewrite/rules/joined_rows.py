"""Statements that compute row after row of matrices, as one map: what a row needs of another matrix stays in the cache.

What NumPy's users write with axis=1 and keepdims=True, such as softmax, is a fold of rows, then a map of elements, then
the next fold, and each goes through a matrix in memory. For long rows that takes longer than to compute.
"""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, ScalarCode, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ONE, Size
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
    """ys = map n f xs; zs = map n g xs ys  =>  zs = if there are many long rows then map n (\\\\x -> g x (f x)) xs
    else (ys = map n f xs; zs = map n g xs ys)

    For as many maps as follow each other so, if they fold and map rows; others may read what they give.
    """
    last = at.expect(nodes.Map)
    around = (body.statements[index].expression for body, index in at.chain[:-1])
    if not all(isinstance(one, nodes.Loop) for one in around) or not _is_of_rows(at.statement):
        return no_match("it is no map of rows of the program or its loops")
    group = _group(at, last.width)
    maps = [at.body.statements[k] for k in group if isinstance(at.body.statements[k].expression, nodes.Map)]
    inside = [two.expression for one in maps for two in all_statements(_function(one).body)]
    folded = sum(isinstance(one, nodes.Reduction) for one in inside)
    lengths = {one.width for one in inside if isinstance(one, nodes.Map | nodes.Reduction)} - {ONE}
    if not folded or len(maps) < 3 or len(lengths) != 1:
        return no_match("no folds and maps of rows follow each other")
    (length,) = lengths
    if any(one.constant is not None and one.constant < least for one, least in _limits(last.width, length)):
        return Declined("its rows are short, or few")
    return _joined(at, group, length)


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


def _function(statement: Statement) -> Lambda:
    assert isinstance(statement.expression, nodes.Map)
    return statement.expression.function


# --- which statements -------------------------------------------------------------------------------------------------


def _is_of_rows(statement: Statement) -> bool:
    """Whether a statement is a map of rows or numbers by straight-line code, and maps and folds of rows in it."""
    expression = statement.expression
    if not isinstance(expression, nodes.Map) or any(one.type.rank > 2 for one in expression.arrays):
        return False
    return all(_is_plain(one) for one in expression.function.body.statements)


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


def _group(at: Place, width: Size) -> list[int]:
    """The statements that are done row by row with the one here, in their order."""
    group = {at.index}
    bound_at = definitions(at.body)
    pending = [at.index]
    while pending:
        for one in sorted(_read(at.body.statements[pending.pop()])):
            index = bound_at.get(one)
            if index is not None and index not in group and _goes_along(at, index, width):
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


def _goes_along(at: Place, index: int, width: Size) -> bool:
    """Whether a statement gives a row after another: a map of rows, or numbers made rows of one."""
    statement = at.body.statements[index]
    match statement.expression:
        case nodes.Map(width=other):
            return other == width and _is_of_rows(statement)
        case nodes.Rearrange(array, permutation):
            return permutation == (1, 0) and array.type.shape == (ONE, width)
        case nodes.Replicate(count, value):
            return count == ONE and value.type.shape == (width,)
    return False


# --- one map of them --------------------------------------------------------------------------------------------------


def _joined(at: Place, group: list[int], length: Size) -> Body | Declined:
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
    row = _Row(at)
    if not all(row.is_added(one) for one in statements):
        return Declined("what one of the rows is made of is read as a whole")
    results = tuple(row.value(one) for one in needed)
    fused = nodes.Map(at.expect(nodes.Map).width, Lambda(tuple(row.parameters), Body(tuple(row.statements), results)),
                      tuple(row.arrays))  # fmt: skip
    targets = tuple(needed)
    then = with_fresh_names(Statement(targets, fused), at.names)
    otherwise = with_fresh_names(
        Statement(targets, nodes.If(nodes.Literal(True, BOOL), Body(tuple(statements), targets), Body((), ()))),
        at.names,
    ).expression
    assert isinstance(otherwise, nodes.If)
    asked, condition = _question(at, length)
    choice = nodes.If(condition, Body((then,), then.targets), otherwise.then)
    before = [one for k, one in enumerate(body.statements[:last]) if k not in group]
    return Body((*before, *asked, Statement(targets, choice), *body.statements[last + 1 :]), body.results)


def _question(at: Place, length: Size) -> tuple[list[Statement], Variable]:
    """Whether there are many long rows."""
    statements: list[Statement] = []
    answers: list[Variable] = []
    for value, least in _limits(at.expect(nodes.Map).width, length):
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
    """The code of one row of all statements."""

    def __init__(self, at: Place) -> None:
        self.at = at
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
                self.statements.append(Statement((whole,), nodes.Replicate(ONE, self.rows[array.name])))
                self.rows[target.name] = whole
        return True
