"""Simplification of what only picks or reorders elements: index, slice, rearrange, reshape."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.counts import same_count
from tilewright.ir.nodes import Atom, Body, Literal, Statement, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import mentioned
from tilewright.ir.written_indices import chosen_indices, indices_of_slice, joined_indices, joined_lines
from tilewright.rewrite.rule import Declined, Place, no_match, rule


@rule("simplification", nodes.Index)
def index_nothing(at: Place) -> Body | Declined:
    """a[]  =>  a"""
    index = at.expect(nodes.Index)
    return no_match("there are indices") if index.indices else at.bind(index.array)


@rule("simplification", nodes.Index)
def index_iota(at: Place) -> Body | Declined:
    """(iota n)[i]  =>  i, if i is known to be in range or no user wrote it"""
    index = at.expect(nodes.Index)
    iota = at.definition(index.array)
    if not isinstance(iota, nodes.Iota) or not index.indices:
        return no_match("the array is not an iota")
    position = index.indices[0]
    if may_be_outside(index, iota.count):
        return Declined(f"{position} may be out of range of {index.array}")
    return at.bind(position) if iota.scalar == I64 else at.become(nodes.Cast(iota.scalar, position))


@rule("simplification", nodes.Index)
def index_replicate(at: Place) -> Body | Declined:
    """(replicate n v)[i, is...]  =>  v[is...], if i is known to be in range or no user wrote it"""
    index = at.expect(nodes.Index)
    replicate = at.definition(index.array)
    if not isinstance(replicate, nodes.Replicate) or not index.indices:
        return no_match("the array is not a replicate")
    if may_be_outside(index, replicate.count):
        return Declined(f"{index.indices[0]} may be out of range of {index.array}")
    rest = index.indices[1:]
    if not rest or not isinstance(replicate.value, Variable):
        return at.bind(replicate.value)
    return at.become(nodes.Index(replicate.value, rest, _rest_of(index)))


@rule("simplification", nodes.Index)
def index_index(at: Place) -> Body | Declined:
    """(a[is...])[js...]  =>  a[is..., js...]"""
    index = at.expect(nodes.Index)
    inner = at.definition(index.array)
    if not isinstance(inner, nodes.Index):
        return no_match("the array is not itself indexed")
    line = joined_indices(inner.line, inner.array.name, (len(inner.indices), len(index.indices)), index.line)
    return at.become(nodes.Index(inner.array, inner.indices + index.indices, line))


@rule("simplification", nodes.Index)
def index_rearrange(at: Place) -> Body | Declined:
    """(rearrange p a)[i0, ..., ik]  =>  a[indices put in the order of a], if they index a's outer dimensions"""
    index = at.expect(nodes.Index)
    inner = at.definition(index.array)
    if not isinstance(inner, nodes.Rearrange):
        return no_match("the array is not a rearrange")
    count, permutation = len(index.indices), inner.permutation
    if set(permutation[:count]) != set(range(count)) or list(permutation[count:]) != sorted(permutation[count:]):
        return Declined(f"{count} indices of a rearrange by {permutation} are not outer indices of {inner.array}")
    ordered: list[Atom] = [nodes.index_literal(0)] * count
    for dimension, atom in zip(permutation, index.indices, strict=False):
        ordered[dimension] = atom
    line = chosen_indices(index.line, [permutation.index(dimension) for dimension in range(count)])
    return at.become(nodes.Index(inner.array, tuple(ordered), line))


@rule("simplification", nodes.Index)
def index_slice(at: Place) -> Body | Declined:
    """(slice a)[i0, ..., ik]  =>  a[i0 + start, ...], if that needs no arithmetic and the other dimensions are whole

    An index that a user wrote is in range of the slice, not only of `a`: it stays where it is unless that is known. The
    result is in range where the slice is, so that it counts as written if that was: `a` may be a slice, too.
    """
    index = at.expect(nodes.Index)
    inner = at.definition(index.array)
    if not isinstance(inner, nodes.Slice):
        return no_match("the array is not a slice")
    indices: list[Atom] = []
    for d, (atom, dimension) in enumerate(zip(index.indices, inner.dimensions, strict=False)):
        start = dimension.start.constant
        if start == 0 and dimension.step == 1:
            indices.append(atom)
        elif start is not None and isinstance(atom, Literal):
            indices.append(nodes.index_literal(start + dimension.step * int(atom.value.real)))
        else:
            return no_match("the position in the sliced array would have to be computed")
        known = isinstance(atom, Literal) and _is_below(atom, dimension.count)
        if index.line and not (known or _is_whole(dimension, inner.array, d)):
            return Declined(f"{atom} may be out of range of {index.array} where it is in range of {inner.array}")
    kept = inner.dimensions[len(indices) :]
    if not all(_is_whole(one, inner.array, d + len(indices)) for d, one in enumerate(kept)):
        return no_match("a dimension without an index is cut")
    line = indices_of_slice(inner.line, index.line, len(indices))
    return at.become(nodes.Index(inner.array, tuple(indices), line))


@rule("simplification", nodes.Index)
def index_copy(at: Place) -> Body | Declined:
    """(copy a)[is...]  =>  a[is...]"""
    index = at.expect(nodes.Index)
    inner = at.definition(index.array)
    if not isinstance(inner, nodes.Copy):
        return no_match("the array is not a copy")
    if inner.level is not None:
        return Declined(f"the copy is there to stage {inner.array} in the memory of level {inner.level.value}")
    return at.become(nodes.Index(inner.array, index.indices, index.line))


@rule("simplification", nodes.Index)
def index_map(at: Place) -> Body | Declined:
    """ys = map f xs; y = ys[i]  =>  y = f xs[i], if this is the only use of ys

    An index that a user wrote must be checked by one of the xs[i], unless it is known to be in range.
    """
    index = at.expect(nodes.Index)
    producer_index = next((k for k in range(at.index) if index.array in at.body.statements[k].targets), None)
    if producer_index is None:
        return no_match("the array is not computed in the same body")
    producer = at.body.statements[producer_index]
    if not isinstance(producer.expression, nodes.Map) or not index.indices:
        return no_match("the array is not the result of a map")
    for target in producer.targets:
        others = [k for k in at.uses(target.name) if k != at.index or target != index.array]
        if others:
            return Declined(f"{target} is also used by {at.describe_use(others[0])}: its map is needed anyway")
    function = producer.expression.function
    row, rest = index.indices[0], index.indices[1:]
    first = chosen_indices(index.line, [0])
    rows = zip(function.parameters, producer.expression.arrays, strict=True)
    picked = (Statement((parameter,), nodes.Index(array, (row,), first)) for parameter, array in rows)
    value = function.body.results[producer.targets.index(index.array)]
    if may_be_outside(index, producer.expression.width) and not _needs(value, function):
        return Declined(f"{row} may be out of range of {index.array}, which reads nothing there")
    last = nodes.Index(value, rest, _rest_of(index)) if rest and isinstance(value, Variable) else nodes.Alias(value)
    here = (*picked, *function.body.statements, Statement(at.statement.targets, last))
    old = at.body.statements
    before = (*old[:producer_index], *old[producer_index + 1 : at.index])
    return Body((*before, *here, *old[at.index + 1 :]), at.body.results)


def _needs(value: Atom, function: nodes.Lambda) -> bool:
    """Whether a result is computed from a parameter."""
    needed = mentioned(value)
    for one in reversed(function.body.statements):
        if any(target.name in needed for target in one.targets):
            needed |= mentioned(one.expression)
    return any(one.name in needed for one in function.parameters)


def _rest_of(index: nodes.Index) -> str:
    """The `line` of an index without the first one."""
    return chosen_indices(index.line, range(1, len(index.indices)))


def may_be_outside(index: nodes.Index, count: Size) -> bool:
    """Whether the first index is one that a user wrote and that is to be checked when the program runs."""
    first = index.indices[0]
    return bool(index.line) and index.checked and not (isinstance(first, Literal) and _is_below(first, count))


def _is_below(index: Literal, count: Size) -> bool:
    return index.value.real >= 0 and count.constant is not None and index.value.real < count.constant


def _is_inside(dimension: nodes.SliceDimension, extent: Size) -> bool:
    """Whether a slice is known to be in range of an extent."""
    last = dimension.start + (dimension.count - 1) * dimension.step
    low, high = (dimension.start, last) if dimension.step > 0 else (last, dimension.start)
    below, above = low.constant, (extent - 1 - high).constant
    return below is not None and below >= 0 and above is not None and above >= 0


def _is_whole(dimension: nodes.SliceDimension, array: Variable, axis: int) -> bool:
    return dimension.start.constant == 0 and dimension.step == 1 and dimension.count == array.type.shape[axis]


@rule("simplification", nodes.Slice)
def slice_whole(at: Place) -> Body | Declined:
    """a[0 : n, 0 : m, ...]  =>  a, for a of shape n, m, ..."""
    expression = at.expect(nodes.Slice)
    if not all(_is_whole(one, expression.array, axis) for axis, one in enumerate(expression.dimensions)):
        return no_match("a dimension is cut")
    return at.bind(expression.array)


@rule("simplification", nodes.Slice)
def slice_slice(at: Place) -> Body | Declined:
    """slice (start, n, step) (slice (start', n', step') a)  =>  slice (start' + start*step', n, step*step') a

    Where a user wrote it, it must be known to be in range of the slice, not only of `a`.
    """
    outer = at.expect(nodes.Slice)
    inner = at.definition(outer.array)
    if not isinstance(inner, nodes.Slice):
        return no_match("the array is not a slice")
    if outer.line and not all(
        _is_inside(one, e) for one, e in zip(outer.dimensions, outer.array.type.shape, strict=True)
    ):
        return Declined(f"it may be out of range of {outer.array} where it is in range of {inner.array}")
    dimensions = tuple(
        nodes.SliceDimension(first.start + second.start * first.step, second.count, first.step * second.step)
        for first, second in zip(inner.dimensions, outer.dimensions, strict=True)
    )
    return at.become(nodes.Slice(inner.array, dimensions, joined_lines(inner.line, outer.line)))


@rule("simplification", nodes.Rearrange)
def rearrange_identity(at: Place) -> Body | Declined:
    """rearrange (0, 1, ..., n-1) a  =>  a"""
    expression = at.expect(nodes.Rearrange)
    if list(expression.permutation) != sorted(expression.permutation):
        return no_match("the permutation is not the identity")
    return at.bind(expression.array)


@rule("simplification", nodes.Rearrange)
def rearrange_rearrange(at: Place) -> Body | Declined:
    """rearrange q (rearrange p a)  =>  rearrange (p after q) a"""
    outer = at.expect(nodes.Rearrange)
    inner = at.definition(outer.array)
    if not isinstance(inner, nodes.Rearrange):
        return no_match("the array is not a rearrange")
    return at.become(nodes.Rearrange(inner.array, tuple(inner.permutation[axis] for axis in outer.permutation)))


@rule("simplification", nodes.Reshape)
def reshape_same(at: Place) -> Body | Declined:
    """reshape s a  =>  a, if a has shape s"""
    expression = at.expect(nodes.Reshape)
    if expression.shape != expression.array.type.shape:
        return no_match("the shapes differ")
    return at.bind(expression.array)


@rule("simplification", nodes.Reshape)
def reshape_reshape(at: Place) -> Body | Declined:
    """reshape s (reshape r a)  =>  reshape s a, if a surely has the elements that r says"""
    outer = at.expect(nodes.Reshape)
    inner = at.definition(outer.array)
    if not isinstance(inner, nodes.Reshape):
        return no_match("the array is not a reshape")
    if not same_count(inner.array.type.shape, inner.shape, at.program.size_names.__contains__):
        return Declined(f"{outer.array} may not have as many elements as {inner.array}, which is checked")
    return at.become(nodes.Reshape(inner.array, outer.shape))
