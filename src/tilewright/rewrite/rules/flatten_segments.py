"""Perfect nests become segmented operations over the nest's space: what a kernel is made of [S2]."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.counts import element_count
from tilewright.ir.nodes import Body, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_distribute import INSIDE
from tilewright.rewrite.rules.flatten_nest import Nest, NestLevel, inner_level, nest_of, open_space, spread
from tilewright.rewrite.rules.flatten_regular import exploitable


@rule("flattening", nodes.Map)
def flatten_map(at: Place) -> Body | Declined:
    """S |- e  =>  segmap S e, when no other rule applies; what is parallel in e runs sequentially"""
    level = inner_level(at)
    return INSIDE if level is None else at.become(segmap(nest_of(at.statement), level, at.names))


def segmap(nest: Nest, level: nodes.Level, names: FreshNames) -> nodes.SegMap:
    """The nest as one segmented map."""
    return nodes.SegMap(level, *open_space(nest, names))


@rule("flattening", nodes.Map, nodes.Reduce, nodes.Redomap)
def flatten_redomap(at: Place) -> Body | Declined:
    """S |- redomap op (\\x -> e) ne xs  =>  segred (S, <x in xs>) op ne e"""
    level = inner_level(at)
    if level is None:
        return INSIDE
    nest = nest_of(at.statement)
    fold = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(fold, nodes.Reduction):
        return no_match("the nest is not around a reduction")
    if not exploitable(nest.sole, nest.varying):
        return Declined("the operator, the neutral element or a size varies in the nest")
    space, body = open_space(fold_nest(nest, fold, at.names), at.names)
    return at.become(nodes.SegRed(level, space, fold.combine, fold.neutral, body, fold.commutative))


@rule("flattening", nodes.Map, nodes.Scan, nodes.Scanomap)
def flatten_scan(at: Place) -> Body | Declined:
    """S |- scanomap op (\\x -> e) ne xs  =>  segscan (S, <x in xs>) op ne e"""
    level = inner_level(at)
    if level is None:
        return INSIDE
    nest = nest_of(at.statement)
    fold = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(fold, nodes.Scan | nodes.Scanomap):
        return no_match("the nest is not around a scan")
    if not exploitable(nest.sole, nest.varying):
        return Declined("the operator, the neutral element or a size varies in the nest")
    space, body = open_space(fold_nest(nest, fold, at.names), at.names)
    return at.become(nodes.SegScan(level, space, fold.combine, fold.neutral, body))


def fold_nest(nest: Nest, fold: nodes.Fold, names: FreshNames) -> Nest:
    """The nest with the rows of the fold inside as its innermost level."""
    if isinstance(fold, nodes.Redomap | nodes.Scanomap):
        parameters, body = fold.function.parameters, fold.function.body
    else:
        parameters = tuple(Variable(names(one.name), one.type.row) for one in fold.arrays)
        body = Body((), parameters)
    return Nest((*nest.levels, NestLevel(fold.width, parameters, fold.arrays)), body)


@rule("flattening", nodes.Map, nodes.Hist)
def flatten_hist(at: Place) -> Body | Declined:
    """S |- hist d op ne is xs  =>  seghist (S, <i, x in is, xs>) ds op ne (i, x), each point with bins of its own"""
    level = inner_level(at)
    if level is None:
        return INSIDE
    nest = nest_of(at.statement)
    hist = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(hist, nodes.Hist):
        return no_match("the nest is not around a histogram")
    if not exploitable(nest.sole, nest.varying):
        return Declined("the operator, the neutral element or a size varies in the nest")
    before: list[Statement] = []
    bins: list[Variable] = []
    for one in hist.destinations:
        statements, array = spread(nest, one, at.names)
        before += statements
        bins.append(array)
    arrays = (hist.indices, *hist.values)
    parameters = tuple(Variable(at.names(one.name), one.type.row) for one in arrays)
    inner = Nest((*nest.levels, NestLevel(arrays[0].type.shape[0], parameters, arrays)), Body((), parameters))
    space, body = open_space(inner, at.names)
    operation = nodes.SegHist(level, space, tuple(bins), hist.combine, hist.neutral, body)
    return at.replace(*before, Statement(at.statement.targets, operation))


@rule("flattening", nodes.Map)
def flatten_scatter(at: Place) -> Body | Declined:
    """S |- scatter d is xs  =>  reshape (scatter (reshape ds) (segmap (S, <i in is>) (place of S, i)) (reshape xss))

    The destinations of all points lie one after the other; an index out of the range of its own stays out of range.
    """
    level = inner_level(at)
    if level is None:
        return INSIDE
    nest = nest_of(at.statement)
    scatter = nest.sole.expression if nest.sole is not None else None
    if nest.sole is None or not isinstance(scatter, nodes.Scatter):
        return no_match("the nest is not around a scatter")
    if not exploitable(nest.sole, nest.varying):
        return Declined("a size varies in the nest")
    statements: list[Statement] = []
    wholes: list[Variable] = []
    for one in (scatter.destination, scatter.indices, scatter.values):
        made, array = spread(nest, one, at.names)
        statements += made
        wholes.append(array)
    destination, indices, values = wholes
    bins, count = scatter.destination.type.shape[0], scatter.indices.type.shape[0]
    places = Variable(at.names("places"), indices.type)
    statements.append(Statement((places,), _places(nest, indices, bins, level, at.names)))
    row = scatter.destination.type.row.shape
    all_bins, all_values = (element_count((*nest.shape, one)) for one in (bins, count))
    flat: list[Variable] = []
    for one, shape in ((destination, (all_bins, *row)), (places, (all_values,)), (values, (all_values, *row))):
        flat.append(Variable(at.names(one.name), Type(one.type.element, shape)))
        statements.append(Statement((flat[-1],), nodes.Reshape(one, shape)))
    done = Variable(at.names("scattered"), flat[0].type)
    statements.append(Statement((done,), nodes.Scatter(*flat)))
    (target,) = at.statement.targets
    return at.replace(*statements, Statement((target,), nodes.Reshape(done, target.type.shape)))


def _places(nest: Nest, indices: Variable, bins: Size, level: nodes.Level, names: FreshNames) -> nodes.SegMap:
    """For each index its place among the destinations of all points, or -1 if it is out of range."""
    space = nodes.SegSpace(tuple((Variable(names("i"), Type(I64)), extent) for extent in indices.type.shape))
    statements: list[Statement] = []

    def scalar(expression: nodes.Apply | nodes.SizeValue | nodes.Index, hint: str) -> Variable:
        compared = isinstance(expression, nodes.Apply) and expression.operator in ("ge", "lt", "and")
        variable = Variable(names(hint), Type(BOOL if compared else I64))
        statements.append(Statement((variable,), expression))
        return variable

    points = [index for index, _ in space.dimensions]
    at = scalar(nodes.Index(indices, tuple(points)), "index")
    extent = scalar(nodes.SizeValue(bins), "bins")
    low = scalar(nodes.Apply("ge", (at, nodes.index_literal(0))), "low")
    inside = scalar(nodes.Apply("and", (low, scalar(nodes.Apply("lt", (at, extent)), "high"))), "inside")
    segment = points[0]
    for index, width in zip(points[1:-1], nest.shape[1:], strict=True):
        outer = scalar(nodes.Apply("mul", (segment, scalar(nodes.SizeValue(width), "width"))), "outer")
        segment = scalar(nodes.Apply("add", (outer, index)), "segment")
    place = scalar(nodes.Apply("add", (scalar(nodes.Apply("mul", (segment, extent)), "start"), at)), "place")
    result = scalar(nodes.Apply("select", (inside, place, nodes.index_literal(-1))), "place")
    return nodes.SegMap(level, space, Body(tuple(statements), (result,)))
