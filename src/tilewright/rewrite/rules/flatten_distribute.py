"""Map distribution and interchange: a nest with several things inside becomes perfect nests around one each [S2]."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Statement, Type, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bodies_of, bound, mentioned
from tilewright.rewrite.names import replace_names, with_body
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_nest import (
    Nest,
    extended,
    in_segment,
    inner_level,
    nest_of,
    renamed,
    spread,
    without_unused,
    write_nest,
)
from tilewright.rewrite.rules.flatten_regular import (
    Group,
    can_interchange_if,
    can_interchange_loop,
    exploitable,
    groups_of,
    holds_combinator,
    holds_parallelism,
    is_regular,
)

INSIDE = no_match("it stands inside a construct that is flattened, or not, as a whole")


@rule("flattening", nodes.Map)
def distribute(at: Place) -> Body | Declined:
    """S |- let a = e1 in e2  =>  let as = (S |- e1) in (S, a in as |- e2), if a's sizes do not vary in S

    e1 is the first group of `groups_of`: one parallel statement or a view, or sequential statements; the names of e1
    that e2 uses become arrays over the whole context.
    """
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    if not holds_parallelism(nest.body, nest.varying):
        return _why_sequential(nest)
    if nest.sole is not None:
        return no_match("the nest is perfect around one statement")
    groups = groups_of(nest)
    if len(groups) == 1 and not groups[0].alone:
        return _why_sequential(nest)
    return _split(at, nest, groups[0], tuple(one for group in groups[1:] for one in group.statements))


def _why_sequential(nest: Nest) -> Declined:
    for statement in nest.body.statements:
        for one in statement.targets:
            if not is_regular((one,), nest.varying):
                reason = f"{one} has type {one.type}, which varies in the nest: its parts would make an irregular array"
                return Declined(f"{reason}, so what uses it stays sequential")
    for statement in nest.body.statements:
        if any(map(holds_combinator, bodies_of(statement.expression))):
            names = ", ".join(one.name for one in statement.targets)
            return Declined(f"{names} is computed by parallelism under control that varies in the nest")
    return no_match("there is no parallelism inside")


def _split(at: Place, nest: Nest, first: Group, rest: tuple[Statement, ...]) -> Body:
    made = {one.name: one for statement in first.statements for one in statement.targets}
    results = nest.body.results
    later = mentioned(rest)
    arrays: dict[str, Variable] = {}  # a value of the first nest to the array of its values at all points
    same: dict[str, Atom] = {}
    for target, result in zip(at.statement.targets, results, strict=True):
        if isinstance(result, Variable) and result.name in made:
            if result.name in arrays:
                same[target.name] = arrays[result.name]
            arrays.setdefault(result.name, target)
    for name, one in made.items():
        if name not in arrays and (name in later or first.alone):
            arrays[name] = Variable(at.names(name), one.type.array_of(*nest.shape))
    exported = tuple(one for name, one in made.items() if name in arrays)
    before = without_unused(Nest(nest.levels, Body(first.statements, exported)))
    here = write_nest(before, tuple(arrays[one.name] for one in exported), at.names)
    left = [pair for pair in zip(at.statement.targets, results, strict=True)
            if not (isinstance(pair[1], Variable) and pair[1].name in made)]  # fmt: skip
    if left:
        after = renamed(Nest(nest.levels, Body(rest, tuple(result for _, result in left))), at.names)
        inputs = [(Variable(at.names(one.name), one.type), arrays[one.name]) for one in exported]
        values: dict[str, Atom] = {one.name: new for one, (new, _) in zip(exported, inputs, strict=True)}
        after = extended(Nest(after.levels, replace_names(after.body, values)), inputs, at.names)
        here += write_nest(without_unused(after), tuple(target for target, _ in left), at.names)
    return at.substitute(same, here)


@rule("flattening", nodes.Map)
def interchange_loop(at: Place) -> Body | Declined:
    """S |- loop p = p0 for i < n do e  =>  loop ps = p0s for i < n do (S, p in ps |- e), if n does not vary in S

    Only where e holds parallelism; otherwise every point runs its own loop.
    """
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    loop = nest.sole.expression if nest.sole is not None else None
    if not isinstance(loop, nodes.Loop):
        return no_match("the nest is not around a loop")
    if not can_interchange_loop(loop, nest.varying) or not isinstance(loop.form, nodes.ForLoop):
        return Declined("the loop's bound or values vary in the nest, or there is no regular parallelism inside")
    before: list[Statement] = []
    initial: list[Variable] = []
    for atom in loop.initial:
        statements, array = spread(nest, atom, at.names)
        before += statements
        initial.append(array)
    carried = [Variable(at.names(one.name), one.type.array_of(*nest.shape)) for one in loop.parameters]
    inner = extended(Nest(nest.levels, loop.body), list(zip(loop.parameters, carried, strict=True)), at.names)
    results = tuple(Variable(at.names(one.name), one.type) for one in carried)
    body = Body(write_nest(without_unused(inner), results, at.names), results)
    return at.replace(
        *before, Statement(at.statement.targets, nodes.Loop(tuple(carried), tuple(initial), loop.form, body))
    )


@rule("flattening", nodes.Map)
def interchange_if(at: Place) -> Body | Declined:
    """S |- if c then e1 else e2  =>  if c then (S |- e1) else (S |- e2), if c does not vary in S

    Only where e1 or e2 holds parallelism.
    """
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    branch = nest.sole.expression if nest.sole is not None else None
    if not isinstance(branch, nodes.If):
        return no_match("the nest is not around an if")
    if not can_interchange_if(branch, nest.varying):
        return Declined("the condition varies in the nest, or neither branch holds regular parallelism")
    bodies = []
    for inside in (branch.then, branch.otherwise):
        copy = without_unused(renamed(Nest(nest.levels, inside), at.names))
        targets = tuple(Variable(at.names(one.name), one.type) for one in at.statement.targets)
        bodies.append(Body(write_nest(copy, targets, at.names), targets))
    return at.become(nodes.If(branch.condition, *bodies))


@rule("flattening", nodes.Map, nodes.Redomap, nodes.Scanomap)
def split_fold(at: Place) -> Body | Declined:
    """S |- redomap op ne f xs  =>  S |- let ys = map f xs in reduce op ne ys, if f holds parallelism; also scanomap"""
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    fold = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(fold, nodes.Redomap | nodes.Scanomap):
        return no_match("the nest is not around a fused fold")
    if not exploitable(nest.sole, nest.varying) or not holds_parallelism(fold.function.body, nest.varying):
        return no_match("the fold's function holds no regular parallelism")
    body = Body(map_and_fold(nest.sole, fold, at.names), nest.sole.targets)
    return at.replace(*write_nest(Nest(nest.levels, body), at.statement.targets, at.names))


def map_and_fold(
    statement: Statement, fold: nodes.Redomap | nodes.Scanomap, names: Callable[[str], str]
) -> tuple[Statement, Statement]:
    """redomap op ne f xs = reduce op ne (map f xs), and the same for scanomap; `names` names what is mapped."""
    count = len(fold.neutral)
    rows = tuple(
        Variable(names(target.name), atom.type.array_of(fold.width))
        for target, atom in zip(statement.targets[:count], fold.neutral, strict=True)
    )
    mapped = Statement((*rows, *statement.targets[count:]), nodes.Map(fold.width, fold.function, fold.arrays))
    folded: nodes.Reduce | nodes.Scan
    if isinstance(fold, nodes.Redomap):
        folded = nodes.Reduce(fold.width, fold.combine, fold.neutral, rows, fold.commutative)
    else:
        folded = nodes.Scan(fold.width, fold.combine, fold.neutral, rows)
    return mapped, Statement(statement.targets[:count], folded)


@rule("flattening", nodes.Map, nodes.Reduce)
def interchange_reduce(at: Place) -> Body | Declined:
    """S |- reduce (\\x y -> map op x y) (replicate m ne) xss  =>  S |- map (\\xs -> reduce op ne xs) (transpose xss)

    An operator on whole rows would keep a row in every thread; the columns are as many reductions side by side.
    """
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    fold = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(fold, nodes.Reduce):
        return no_match("the nest is not around a reduction")
    inner = Nest((), fold.combine.body).sole
    columns = inner.expression if inner is not None else None
    if not isinstance(columns, nodes.Map) or columns.arrays != fold.combine.parameters:
        return no_match("the operator is not a map of both rows")
    neutral = [at.definition(one) for one in fold.neutral]
    values = tuple(one.value for one in neutral if isinstance(one, nodes.Replicate))
    if len(values) < len(neutral) or not exploitable(nest.sole, nest.varying):
        return Declined("the neutral row is not known to be copies of one value")
    turned = tuple(
        Variable(at.names(one.name), Type(one.type.element, (columns.width, fold.width, *one.type.shape[2:])))
        for one in fold.arrays
    )
    views = tuple(
        Statement((new,), nodes.Rearrange(old, (1, 0, *range(2, old.type.rank))))
        for old, new in zip(fold.arrays, turned, strict=True)
    )
    rows = tuple(Variable(at.names(one.name), one.type.row) for one in turned)
    sums = tuple(Variable(at.names(one.name), one.type.row) for one in nest.sole.targets)
    reduce = nodes.Reduce(fold.width, columns.function, values, rows, fold.commutative)
    each = Lambda(rows, Body((Statement(sums, reduce),), sums))
    body = Body((*views, Statement(nest.sole.targets, nodes.Map(columns.width, each, turned))), nest.body.results)
    return at.replace(*write_nest(Nest(nest.levels, body), at.statement.targets, at.names))


@rule("flattening", nodes.Map, nodes.Redomap, nodes.Scanomap, nodes.Loop, nodes.StreamSeq)
def lift_constant(at: Place) -> Body | Declined:
    """map (\\x -> a = iota n; e) xs  =>  a = iota n; map (\\x -> e) xs, for the program's sizes; also replicate

    Inside, every point would make the array for itself; and a fold's neutral element must be known outside.
    """
    if in_segment(at):
        return no_match("it stands inside an operation")
    expression = at.expression
    if isinstance(expression, nodes.Loop) and all(isinstance(one, nodes.If | nodes.Loop) for one in _around(at)):
        return no_match("the loop stands in no nest, and what it fills in each round needs no array")
    varying = bound(expression)
    moved: list[Statement] = []
    for number, body in enumerate(bodies_of(expression)):
        here = [one for one in body.statements if _is_constant(one, varying, at)]
        if here:
            moved += here
            rest = tuple(one for one in body.statements if one not in here)
            expression = with_body(expression, number, Body(rest, body.results))
    return at.replace(*moved, Statement(at.statement.targets, expression)) if moved else no_match("nothing is constant")


def _around(at: Place) -> tuple[Expression, ...]:
    return tuple(body.statements[index].expression for body, index in at.chain[:-1])


def _is_constant(statement: Statement, varying: frozenset[str], at: Place) -> bool:
    match statement.expression:
        case nodes.Iota(count):
            return is_product_of_sizes(count, at)
        case nodes.Replicate(count, value):
            return is_product_of_sizes(count, at) and mentioned(value).isdisjoint(varying)
    return False


def is_product_of_sizes(count: Size, at: Place) -> bool:
    """True for a sum of products of sizes of the program's arrays, which is never negative."""
    names = {atom for monomial, _ in count.terms for atom in monomial}
    return names <= set(at.program.size_names) and all(coefficient > 0 for _, coefficient in count.terms)
