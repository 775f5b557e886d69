"""Finding the contraction in a map nest: the firing conditions of [S0 4.6], generalised, each with its reason.

A nest is walked symbolically. Every array is an `ArrayView`, so that entering a map turns its rows into views whose
offset is a polynomial in the map's index; the stride of an array along a dimension is then that index's coefficient in
the offset of the element finally read. Rearranged, sliced, diagonal and indexed operands need no rules of their own; an
index that scalar code computes from the maps' indices is a polynomial too (`affine.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace

from tilewright.contraction.affine import is_index
from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand, Refusal, UsedIndex
from tilewright.contraction.nest import Load, Nest, Refused, absorb, show
from tilewright.contraction.written_out import with_terms_as_dimensions
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import I64, compute_type
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import bound_variables, canonical, free_names, mentioned, substitute, used_variables
from tilewright.ir.views import ArrayView

_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


def recognise(
    statement: Statement,
    views: Mapping[str, ArrayView],
    out: Mapping[str, ArrayView],
    iotas: Collection[str] = (),
    alone: bool = False,
    products: bool = False,
) -> Contraction | Refusal:
    """The contraction that a top-level statement computes, or the reasons why it is none.

    It is one when a chain of maps holds one reduction (or nested reductions with one operator), possibly followed by
    scalar code on its result; when the reduced function reads exactly two array elements, affinely indexed; and when
    every parallel dimension moves at least one of them. An outer product is one without contracted dimensions: its
    operator takes the second of two values, and so is never applied to more than one.

    Args:
        statement: a map nest (or a bare reduction) with one result.
        views: where each array in scope lies.
        out: where the result lies (by target name).
        iotas: arrays in scope that are known to be an i64 iota, whose elements are indices.
        alone: look for a map nest around reductions of one array instead, for nested reductions of one, or for one of
            complex numbers or halves: the second operand is that array too, without strides, and the map ignores it.
        products: outer products, too, are wanted.
    """
    try:
        return _recognise(statement, views, out, iotas, alone, products)
    except Refused as refused:
        return Refusal((str(refused),))


def _recognise(
    statement: Statement,
    views: Mapping[str, ArrayView],
    out: Mapping[str, ArrayView],
    iotas: Collection[str],
    alone: bool,
    products: bool,
) -> Contraction:
    if not isinstance(statement.expression, (nodes.Map, nodes.Redomap, nodes.Reduce)):
        raise Refused(f"{type(statement.expression).__name__.lower()} is not a map nest around a reduction")
    if len(statement.targets) != 1:
        raise Refused(f"the nest gives {len(statement.targets)} arrays, a contraction gives one")
    bound = frozenset(one.name for one in bound_variables(statement.expression))
    nest = Nest(dict(views), bound, set(iotas))
    target = out[statement.targets[0].name]
    level: Expression = statement.expression
    epilogue_result: Atom | None = None
    accumulator = statement.targets[0]
    lmad = target.lmad
    while isinstance(level, nodes.Map):
        index = nest.enter(level.width, level.function.parameters, level.arrays, reduction=False)
        lmad = lmad.fix([size(index)])
        if len(level.function.body.results) != 1:
            raise Refused("a map of the nest gives several results")
        hoisted = len(nest.scalar_statements)
        core, permutation = _scan_level(nest, level.function.body)
        if core is None:
            if not products:
                raise Refused("no dimension is contracted: there is no reduction in the nest")
            return _product(nest, target, lmad.offset, level.function.body.results[0], hoisted)
        if isinstance(core.expression, nodes.Map):
            if permutation:
                lmad = lmad.rearrange(tuple(sorted(range(len(permutation)), key=permutation.__getitem__)))
        else:
            epilogue_result = level.function.body.results[0]
            accumulator = core.targets[0]
        level = core.expression
    if not nest.parallel:
        epilogue_result = accumulator
    assert isinstance(level, (nodes.Redomap, nodes.Reduce)) and epilogue_result is not None
    combine, neutral, element = _reduction(nest, level)
    if len(nest.contracted) > 1 and not (level.commutative or is_commutative(combine)):
        raise Refused("several nested reductions with an operator that is not declared commutative keep their order")
    if accumulator.type.rank:
        raise Refused(f"the reduction combines arrays of type {accumulator.type}, not scalars")
    return _assemble(nest, target, lmad.offset, combine, neutral, element, accumulator, epilogue_result, alone)


def _product(nest: Nest, target: ArrayView, out_offset: Size, element: Atom, hoisted: int) -> Contraction:
    """The contraction without a sum that gives `element` at each point; `hoisted`: scalars computed once for a row."""
    if hoisted:
        raise Refused("no dimension is contracted, and scalars are computed once for each row")
    held, later = (Variable(name, Type(target.element)) for name in ("held", "later"))
    second = Lambda((held, later), Body((), (later,)))
    zero = Literal(compute_type(target.element).numpy.type(0).item(), target.element)
    found = _assemble(nest, target, out_offset, second, zero, element, later, later, alone=False)
    if not (found.of_kind(Kind.M) or found.of_kind(Kind.N)):
        raise Refused("no dimension is contracted, and both operands have all dimensions of the result")
    return found


def _scan_level(nest: Nest, body: Body) -> tuple[Statement | None, tuple[int, ...]]:
    """The one construct that goes on inside (None: there is none), and the permutation applied to its result (() for
    none).
    """
    core: Statement | None = None
    rearranged: dict[Atom, tuple[int, ...]] = {}
    for statement in body.statements:
        expression = statement.expression
        if isinstance(expression, nodes.Rearrange) and expression.array in rearranged:
            before = rearranged[expression.array]
            rearranged[statement.targets[0]] = tuple(before[axis] for axis in expression.permutation)
        elif not absorb(nest, statement):
            if not isinstance(expression, (nodes.Map, nodes.Redomap, nodes.Reduce)):
                raise Refused(f"{show(statement)} inside the nest needs an array of its own")
            if core is not None:
                raise Refused(f"{show(core)} and {show(statement)} stand side by side in the nest")
            core = statement
            rearranged[core.targets[0]] = tuple(range(core.targets[0].type.rank))
    if core is None:
        return None, ()
    if len(core.targets) != 1:
        raise Refused(f"{show(core)} gives {len(core.targets)} results")
    if not isinstance(core.expression, nodes.Map):
        return core, ()
    if body.results[0] not in rearranged:
        raise Refused(f"the nest gives {body.results[0]}, which is not the result of its inner {show(core)}")
    return core, rearranged[body.results[0]]


def _reduction(nest: Nest, level: nodes.Redomap | nodes.Reduce) -> tuple[Lambda, Literal, Atom]:
    """Walk the nested reductions: their operator, its neutral element, and the value that is reduced."""
    combine, neutral = level.combine, level.neutral
    if len(neutral) != 1 or len(level.arrays) == 0:
        raise Refused(f"the reduction carries {len(neutral)} values")
    if not isinstance(neutral[0], Literal):
        raise Refused(f"the neutral element {neutral[0]} is not a constant")
    _check_operator(nest, level)
    if isinstance(level, nodes.Reduce):
        (row,) = (one for one in level.combine.parameters[:1])
        row_element = Variable(f"{level.arrays[0].name}.element", row.type)
        nest.enter(level.width, (row_element,), level.arrays, reduction=True)
        return combine, neutral[0], row_element
    nest.enter(level.width, level.function.parameters, level.arrays, reduction=True)
    body = level.function.body
    if len(body.results) != 1:
        raise Refused("the reduction also maps out arrays")
    inner: Statement | None = None
    for statement in body.statements:
        if not absorb(nest, statement):
            if inner is not None or not isinstance(statement.expression, (nodes.Redomap, nodes.Reduce)):
                raise Refused(f"{show(statement)} inside the reduction needs an array of its own")
            inner = statement
    if inner is None:
        return combine, neutral[0], body.results[0]
    if body.results[0] != inner.targets[0]:
        raise Refused("code between the nested reductions is not absorbed")
    assert isinstance(inner.expression, (nodes.Redomap, nodes.Reduce))
    inner_combine, inner_neutral, element = _reduction(nest, inner.expression)
    if canonical(inner_combine) != canonical(combine) or inner_neutral != neutral[0]:
        raise Refused("the nested reductions have different operators")
    return combine, neutral[0], element


def is_commutative(combine: Lambda) -> bool:
    """True if the operator is plainly commutative: one such operator of the table on its two parameters."""
    if len(combine.parameters) != 2 or len(combine.body.statements) != 1:
        return False
    (statement,) = combine.body.statements
    expression = statement.expression
    return (
        isinstance(expression, nodes.Apply)
        and expression.operator in _COMMUTATIVE
        and set(expression.operands) == set(combine.parameters)
        and combine.body.results == statement.targets
    )


def _check_operator(nest: Nest, level: nodes.Redomap | nodes.Reduce) -> None:
    """The operator is the same everywhere in the nest."""
    varying = sorted(free_names(level.combine) & nest.bound)
    if varying:
        raise Refused(f"the reduction's operator uses {varying[0]}, which varies inside the nest")


def _extract(nest: Nest, result: Atom, given: tuple[Variable, ...]) -> tuple[Lambda, tuple[Load, ...]]:
    """The scalar function of (given..., elements read...) that computes `result`, and those elements."""
    wanted = mentioned(result)
    kept: list[Statement] = []
    for statement in reversed(nest.scalar_statements):
        if any(one.name in wanted for one in statement.targets):
            kept.insert(0, statement)
            wanted |= free_names(statement.expression)
    loads: dict[tuple[str, Size], Load] = {}
    same: dict[str, Atom | Size] = {}
    for name in sorted(wanted):
        view = nest.views.get(name)
        if view is None:
            if name in nest.affine and any(is_index(one) for one in nest.affine[name].names):
                raise Refused(f"the index {name} is itself a value in the scalar code")
            continue
        if view.lmad.shape:
            raise Refused(f"scalar code indexes array {name} under a condition or in a loop")
        load = loads.setdefault((view.buffer, view.lmad.offset), Load(Variable(name, _scalar_type(view)), view))
        same[name] = load.variable
    ordered = _by_first_use(kept, result, tuple(loads.values()), same)
    body = substitute(Body(tuple(kept), (result,)), same)
    return Lambda((*given, *(load.variable for load in ordered)), body), ordered


def _scalar_type(view: ArrayView) -> Type:
    return Type(view.element)


def _by_first_use(
    statements: list[Statement], result: Atom, loads: tuple[Load, ...], same: Mapping[str, Atom | Size]
) -> tuple[Load, ...]:
    order: dict[str, int] = {}
    for position, node in enumerate((*(s.expression for s in statements), result)):
        for place, atom in enumerate(getattr(node, "operands", (node,))):
            names = mentioned(atom)
            for name in names:
                stands_for = same.get(name)
                if isinstance(stands_for, Variable):
                    order.setdefault(stands_for.name, position * 1000 + place)
    return tuple(sorted(loads, key=lambda load: order.get(load.variable.name, 0)))


def _is_converted(load: Load) -> bool:
    """Whether elements are no floats to compute with as they are stored, but complex numbers or halves."""
    element = load.variable.type.element
    return element.is_complex or compute_type(element) != element


def _assemble(
    nest: Nest,
    target: ArrayView,
    out_offset: Size,
    combine: Lambda,
    neutral: Literal,
    element: Atom,
    accumulator: Variable,
    epilogue_result: Atom,
    alone: bool,
) -> Contraction:
    """The contraction of a nest whose scalar code has been walked: its functions, and a stride of each array along each
    dimension.
    """
    map_function, loads = _extract(nest, element, ())
    if not alone and is_commutative(combine):
        map_function, loads = with_terms_as_dimensions(nest, map_function, loads, combine)
    map_function, loads = _two_loads(nest, map_function, loads, alone)
    epilogue: Lambda | None = None
    further: tuple[Load, ...] = ()
    if epilogue_result != accumulator:
        epilogue, further = _extract(nest, epilogue_result, (accumulator,))
    for load in (*loads, *further):
        _check_offset(nest, load.view.buffer, load.view.lmad.offset)
    offsets = [*(load.view.lmad.offset for load in loads), out_offset, *(load.view.lmad.offset for load in further)]
    dimensions: list[Dimension] = []
    further_strides: list[list[Size]] = []
    for index, width in (*nest.parallel, *nest.contracted):
        strides = []
        for which, offset in enumerate(offsets):
            stride, offsets[which] = _split(offset, index, width)
            strides.append(stride)
        kind = _kind(index in dict(nest.contracted), strides[0], strides[1], width)
        dimensions.append(Dimension(_name(width, dimensions), kind, width, *strides[:3]))
        further_strides.append(strides[3:])
    functions = (map_function, combine) if epilogue is None else (map_function, combine, epilogue)
    views = (*(load.view for load in loads), target, *(load.view for load in further))
    left, right, out, *others = (
        Operand(view.buffer, view.element, offset) for view, offset in zip(views, offsets, strict=True)
    )
    epilogue_operands = tuple(
        EpilogueOperand(one, tuple(strides[place] for strides in further_strides)) for place, one in enumerate(others)
    )
    scalars, indices = _free_scalars(functions), tuple(_used_index(nest, *one) for one in nest.indexed)
    return Contraction(
        tuple(dimensions), left, right, out, map_function, combine, neutral, epilogue, epilogue_operands, scalars,
        indices,
    )  # fmt: skip


def _two_loads(
    nest: Nest, map_function: Lambda, loads: tuple[Load, ...], alone: bool
) -> tuple[Lambda, tuple[Load, Load]]:
    """The two operands; of a fold of one array, if it is to be a contraction, the second is its start and ignored."""
    several = nest.parallel or len(nest.contracted) > 1 or any(map(_is_converted, loads))
    if alone and len(loads) == 1 and several:
        ignored = Variable(f"{loads[0].variable.name}.ignored", loads[0].variable.type)
        view = loads[0].view
        start = Load(ignored, replace(view, lmad=replace(view.lmad, offset=size(0))))
        return Lambda((*map_function.parameters, ignored), map_function.body), (loads[0], start)
    if alone:
        raise Refused(
            "the nest does not reduce rows of one array, several of its dimensions, or complex or half floats"
        )
    if len(loads) != 2:
        names = ", ".join(load.view.buffer for load in loads) or "none"
        raise Refused(f"the reduced function reads {len(loads)} array elements ({names}), a contraction reads two")
    return map_function, (loads[0], loads[1])


def _used_index(nest: Nest, array: str, place: Size, extent: Size) -> UsedIndex:
    """An index into an array as a polynomial in those of the nest."""
    _check_offset(nest, array, place)
    strides: list[tuple[Size, Size]] = []
    for index, width in (*nest.parallel, *nest.contracted):
        stride, place = _split(place, index, width)
        strides.append((stride, width))
    return UsedIndex(place, tuple((stride, width) for stride, width in strides if stride.terms), extent)


def _check_offset(nest: Nest, buffer: str, offset: Size) -> None:
    """What is left of an offset is known before the launch."""
    inside = sorted(name for name in offset.names if name in nest.bound)
    if inside:
        raise Refused(f"array {buffer} is indexed by {inside[0]}, which is computed inside the nest")


def _split(offset: Size, index: str, width: Size) -> tuple[Size, Size]:
    parts = offset.coefficient_of(index)
    if parts is None:
        raise Refused(f"an operand is not indexed affinely along the dimension of size {width}")
    return parts


def _kind(contracted: bool, left: Size, right: Size, width: Size) -> Kind:
    if contracted:
        return Kind.K
    if left.terms and right.terms:
        return Kind.C
    if left.terms or right.terms:
        return Kind.M if left.terms else Kind.N
    raise Refused(f"neither operand moves along the parallel dimension of size {width}: a broadcast")


def _name(width: Size, dimensions: list[Dimension]) -> str:
    taken = {one.name for one in dimensions}
    text = str(width)
    if not text.isidentifier() or text in taken:
        text = next(name for name in (f"d{number}" for number in itertools.count(len(dimensions))) if name not in taken)
    return text


def _free_scalars(functions: tuple[Lambda, ...]) -> tuple[Variable, ...]:
    """The scalar variables used from outside, in name order; size names are i64 scalars."""
    found: dict[str, Variable] = {}
    for function in functions:
        names = free_names(function)
        for variable in used_variables(function):
            if variable.name in names:
                found[variable.name] = variable
        for name in names - found.keys():
            found[name] = Variable(name, Type(I64))
    return tuple(found[name] for name in sorted(found))
