"""Core programs of einsums: for each step of the path one map nest with a redomap inside, over symbolic sizes.

    out = map over out's dimensions, outermost first:
            redomap combine neutral over the contracted dimensions, nested:
              map(left element, right element)
          then the epilogue

Each level maps over those operands that have its dimension; operands are rearranged to the nest's order first (a view).

>>> from tilewright.frontend.einsum_parse import EinsumSpec
>>> from tilewright.ir.scalars import F32
>>> program = einsum_program(EinsumSpec(((0, 1), (1, 2)), (0, 2)), [F32, F32], F32)
>>> print(program.body.results[0].type)
[a][c]f32
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, Labels
from tilewright.frontend.einsum_path import Path, Step, distinct, steps_of
from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_tracing import convert, trace
from tilewright.frontend.semiring import PLUS_TIMES, Semiring, combine_lambda, map_atoms, neutral_literal
from tilewright.ir.arguments import PREVIOUS
from tilewright.ir.builder import Builder
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Iota, Literal, Program, Redomap, Type, Variable, index_literal
from tilewright.ir.scalars import ScalarType, compute_type
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import FreshNames


@dataclass(frozen=True)
class Epilogue:
    """What is done to each element of the result before it is stored.

    value = function(alpha * element, further elements...) + beta * previous element of out

    Attributes:
        function: a traced function, or None for the value itself.
        operands: for each further operand its labels: labels of the output, or `BROADCAST` for a dimension of size 1.
        elements: the element types of the further operands.
        alpha: factor of the contraction, None for 1.
        beta: factor of what `out` held; not 0 adds a last parameter, of the output's shape.
    """

    function: Callable[..., object] | None = None
    operands: tuple[Labels, ...] = ()
    elements: tuple[ScalarType, ...] = ()
    alpha: Literal | None = None
    beta: int | float | complex = 0


NO_EPILOGUE = Epilogue()


@dataclass(frozen=True)
class _Term:
    """An array (or a scalar, without labels) and what its dimensions are."""

    value: Atom
    labels: Labels


@dataclass(frozen=True)
class _Writer:
    """What every step of one program shares."""

    builder: Builder
    semiring: Semiring
    dtype: ScalarType
    out: ScalarType | None
    epilogue: Epilogue
    extents: tuple[Size, ...] = ()  # of the labels, where they are no names of their own

    @property
    def scalar(self) -> ScalarType:
        return compute_type(self.dtype)

    def extent(self, label: int) -> Size:
        return self.extents[label] if self.extents else size(size_name(label))


def size_name(label: int) -> str:
    """The size name of a label: a, b, ..., z, d26, d27, ..."""
    return chr(ord("a") + label) if label < 26 else f"d{label}"


def einsum_program(
    spec: EinsumSpec,
    elements: Sequence[ScalarType],
    dtype: ScalarType,
    *,
    semiring: Semiring = PLUS_TIMES,
    path: Path | None = None,
    orders: tuple[Labels, ...] = (),
    epilogue: Epilogue = NO_EPILOGUE,
    out: ScalarType | None = None,
) -> Program:
    """The program of an einsum. Parameters: the operands, the epilogue's, and for beta what `out` held.

    Args:
        spec: the expression.
        elements: the operands' element types.
        dtype: the type that is computed in; f16 and bf16 are carried in f32 through all steps and rounded once.
        semiring: what multiplies and adds.
        path: the order of contraction (default: all operands in one nest).
        orders: of the labels of each intermediate (`einsum_orders`; default: that of the output, as far as it goes).
        epilogue: what is done to each element of the result.
        out: the element type of the result (default: `dtype`, or the type that the epilogue gives if that differs).

    Raises:
        TypeError: if the semiring or the epilogue is not defined on the type.
    """
    names = FreshNames()
    for label in range(spec.label_count):
        names.reserve(size_name(label))
    writer = _Writer(Builder(names), semiring, dtype, out, epilogue)
    inputs = [
        _parameter(writer, f"operand{number}", element, labels)
        for number, (element, labels) in enumerate(zip(elements, spec.inputs, strict=True))
    ]
    extras = [
        _parameter(writer, f"extra{number}", element, labels)
        for number, (element, labels) in enumerate(zip(epilogue.elements, epilogue.operands, strict=True))
    ]
    if epilogue.beta:
        extras.append(_parameter(writer, PREVIOUS, out or dtype, spec.output))
    parameters = [one for one, _ in (*inputs, *extras)]
    result = _contract(writer, spec, [one for _, one in inputs], [one for _, one in extras], path, orders)
    return writer.builder.program("einsum", parameters, [result])


def write_einsum(
    builder: Builder,
    spec: EinsumSpec,
    operands: Sequence[Atom],
    extents: tuple[Size, ...],
    dtype: ScalarType,
    *,
    semiring: Semiring = PLUS_TIMES,
    path: Path | None = None,
) -> Atom:
    """An einsum of values of a program that has other statements, too.

    Args:
        builder: what the statements are written to.
        spec: the expression.
        operands: arrays, or scalars where they have no labels.
        extents: the size of each label.
        dtype: the type that is computed in, and of the result.
        semiring: what multiplies and adds.
        path: the order of contraction (default: all operands in one nest).

    Raises:
        TypeError: if the semiring is not defined on the type.
    """
    writer = _Writer(builder, semiring, dtype, None, NO_EPILOGUE, extents)
    terms = [_Term(value, labels) for value, labels in zip(operands, spec.inputs, strict=True)]
    return _contract(writer, spec, terms, [], path, ())


def write_contraction(
    builder: Builder,
    operands: Sequence[tuple[Atom, Labels]],
    output: Labels,
    contracted: Labels,
    dtype: ScalarType,
    *,
    function: Callable[..., object] | None = None,
    out: ScalarType | None = None,
) -> Atom:
    """One sum of products in a program of several statements.

    Args:
        builder: what the statement is written to.
        operands: values with their labels, which are distinct; a scalar has none.
        output: the labels of the result in the order of its dimensions.
        contracted: the labels that are summed over.
        dtype: the type that is computed in.
        function: what is applied to each element before it is stored (traced).
        out: the element type of the result (default: `dtype`).
    """
    writer = _Writer(builder, PLUS_TIMES, dtype, out or dtype, Epilogue(function))
    terms = [_Term(value, labels) for value, labels in operands]
    step = Step(tuple(range(len(terms))), tuple(one.labels for one in terms), ((),) * len(terms), contracted, output)
    return _nest(writer, terms, [], step, finish=True)


def _parameter(writer: _Writer, hint: str, element: ScalarType, labels: Labels) -> tuple[Variable, _Term]:
    """A parameter, and the term that it becomes without broadcast dimensions and diagonals."""
    shape = tuple(size(1) if one == BROADCAST else size(size_name(one)) for one in labels)
    parameter = writer.builder.variable(hint, Type(element, shape))
    return parameter, _Term(parameter, labels)


def _plain(writer: _Writer, term: _Term) -> _Term:
    """The term with distinct labels: broadcast dimensions are taken at 0, of repeated ones the diagonal."""
    builder, value, labels = writer.builder, term.value, term.labels
    broadcast = [n for n, one in enumerate(labels) if one == BROADCAST]
    if broadcast and isinstance(value, Variable):
        others = [n for n, one in enumerate(labels) if one != BROADCAST]
        leading = builder.rearrange(value, (*broadcast, *others))
        value = builder.index(leading, *(index_literal(0) for _ in broadcast))
        labels = tuple(labels[n] for n in others)
    for label in distinct(labels):
        same = [n for n, one in enumerate(labels) if one == label]
        if len(same) > 1 and isinstance(value, Variable):
            others = [n for n in range(len(labels)) if n not in same]
            leading = builder.rearrange(value, (*same, *others))
            places = builder.bind(Iota(writer.extent(label)), "places")
            value = builder.map([places], _diagonal(builder, leading, len(same)), "diagonal")
            labels = (label, *(labels[n] for n in others))
    return _Term(value, labels)


def _diagonal(builder: Builder, array: Variable, times: int) -> Callable[[Variable], Atom]:
    return lambda place: builder.index(array, *itertools.repeat(place, times))


def _contract(
    writer: _Writer,
    spec: EinsumSpec,
    inputs: Sequence[_Term],
    extras: Sequence[_Term],
    path: Path | None,
    orders: tuple[Labels, ...],
) -> Atom:
    terms = [_plain(writer, one) for one in inputs]
    distributive = writer.semiring.distributive
    steps = steps_of(spec, path or (tuple(range(len(terms))),), distributive, orders)
    repeated = len(distinct(spec.output)) != len(spec.output)
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        taken = [_summed(writer, terms[p], early) for p, early in zip(step.positions, step.summed, strict=True)]
        further = [_plain(writer, one) for one in extras] if last and not repeated else []
        result = _nest(writer, taken, further, step, finish=last and not repeated)
        terms = [one for position, one in enumerate(terms) if position not in step.positions]
        terms.append(_Term(result, step.output))
    return _on_diagonals(writer, terms[0], extras, spec.output) if repeated else terms[0].value


def _summed(writer: _Writer, term: _Term, early: Labels) -> _Term:
    """The term with the labels folded that it meets no other term in."""
    if not early:
        return term
    kept = tuple(one for one in term.labels if one not in early)
    step = Step((0,), (term.labels,), ((),), early, kept)
    return _Term(_nest(writer, [term], [], step, finish=False), kept)


def _nest(writer: _Writer, terms: Sequence[_Term], further: Sequence[_Term], step: Step, finish: bool) -> Atom:
    """The canonical map nest of one step."""
    order = (*step.output, *step.contracted)
    arranged = [_arranged(writer.builder, one, order) for one in (*terms, *further)]
    count = len(terms)

    def point(inner: Sequence[_Term]) -> Atom:
        if finish and count == 1 and not step.contracted and _is_stored_as_it_is(writer, inner[0].value.type.element):
            return inner[0].value
        folded = _fold(writer, inner[:count], step.contracted)
        return _finished(writer, folded, [one.value for one in inner[count:]]) if finish else folded

    return _maps(writer.builder, arranged, step.output, point)


def _is_stored_as_it_is(writer: _Writer, element: ScalarType) -> bool:
    """Whether the elements of an operand are results: f16 and bf16 need not be widened on their way."""
    return writer.epilogue == NO_EPILOGUE and element == writer.dtype == (writer.out or writer.dtype)


def _arranged(builder: Builder, term: _Term, order: Labels) -> _Term:
    """The term with its dimensions in the order of the nest."""
    if not isinstance(term.value, Variable):
        return term
    permutation = sorted(range(len(term.labels)), key=lambda n: order.index(term.labels[n]))
    return _Term(builder.rearrange(term.value, permutation), tuple(term.labels[n] for n in permutation))


def _rows(terms: Sequence[_Term], label: int) -> tuple[list[int], list[Variable]]:
    """Which terms have the label (as their outermost dimension), and their arrays."""
    having = [n for n, one in enumerate(terms) if one.labels[:1] == (label,)]
    return having, [value for n in having if isinstance(value := terms[n].value, Variable)]


def _entered(terms: Sequence[_Term], having: Sequence[int], rows: Sequence[Variable]) -> list[_Term]:
    """The terms as they are inside a map over the rows of those that have its dimension."""
    inner = list(terms)
    for n, row in zip(having, rows, strict=True):
        inner[n] = _Term(row, terms[n].labels[1:])
    return inner


def _maps(builder: Builder, terms: Sequence[_Term], output: Labels, point: Callable[[Sequence[_Term]], Atom]) -> Atom:
    if not output:
        return point(terms)
    having, arrays = _rows(terms, output[0])
    hint = "rows" if len(output) > 1 else "out"
    return builder.map(arrays, lambda *rows: _maps(builder, _entered(terms, having, rows), output[1:], point), hint)


def _fold(writer: _Writer, terms: Sequence[_Term], contracted: Labels) -> Atom:
    """Nested redomaps over the contracted labels; the product of the elements inside."""
    builder = writer.builder
    if not contracted:
        product = convert(builder, writer.scalar, terms[0].value)
        for one in terms[1:]:
            product = map_atoms(builder, writer.semiring, product, convert(builder, writer.scalar, one.value))
        return product
    having, arrays = _rows(terms, contracted[0])
    function = builder.function(
        [one.type.row for one in arrays], lambda *rows: _fold(writer, _entered(terms, having, rows), contracted[1:])
    )
    combine = combine_lambda(builder, writer.semiring, writer.scalar)
    neutral = neutral_literal(writer.semiring, writer.scalar)
    width = arrays[0].type.shape[0]
    fold = Redomap(width, combine, (neutral,), function, tuple(arrays), writer.semiring.commutative)
    return builder.bind(fold, "sum")


def _finished(writer: _Writer, value: Atom, further: Sequence[Atom]) -> Atom:
    """alpha, the epilogue, beta, and the conversion to the stored type."""
    builder, epilogue, scalar = writer.builder, writer.epilogue, writer.scalar
    if epilogue.alpha is not None:
        value = builder.apply("mul", epilogue.alpha, value)
    if epilogue.function is not None:
        arguments = [convert(builder, scalar, one) for one in further[: len(epilogue.operands)]]
        value = trace(builder, epilogue.function, [value, *arguments])
    if epilogue.beta:
        previous = convert(builder, scalar, further[-1])
        value = convert(builder, scalar, value)
        value = builder.apply("add", value, builder.apply("mul", constant(epilogue.beta, scalar), previous))
    stored = writer.out or (writer.dtype if value.type.element == scalar else value.type.element)
    return convert(builder, stored, value)


def _on_diagonals(writer: _Writer, term: _Term, extras: Sequence[_Term], output: Labels) -> Atom:
    """An output with repeated labels: the elements on the diagonals, the neutral element elsewhere."""
    builder = writer.builder
    neutral = neutral_literal(writer.semiring, writer.scalar)
    ranges = [builder.bind(Iota(writer.extent(one)), "places") for one in output]
    # Every position of the output is a dimension of its own; what is added elementwise keeps the output's positions.
    positions = tuple(range(len(output)))
    further = [_positioned(writer, one, output) for one in extras]

    def point(inner: Sequence[_Term]) -> Atom:
        places = [one.value for one in inner[: len(output)]]
        first = {label: places[n] for n, label in reversed(list(enumerate(output)))}
        value: Atom = term.value
        if isinstance(value, Variable):
            value = builder.index(value, *(first[label] for label in term.labels))
        for place, label in zip(places, output, strict=True):
            if place is not first[label]:
                value = builder.apply("select", builder.apply("eq", place, first[label]), value, neutral)
        return _finished(writer, value, [one.value for one in inner[len(output) :]])

    places = [_Term(one, (n,)) for n, one in enumerate(ranges)]
    return _maps(builder, [*places, *further], positions, point)


def _positioned(writer: _Writer, term: _Term, output: Labels) -> _Term:
    """A further operand with its labels replaced by positions of the output; a repeated label means the first one."""
    if len(term.labels) == len(output) and term.labels == output:
        return _Term(term.value, tuple(range(len(output))))
    plain = _plain(writer, term)
    arranged = _arranged(writer.builder, plain, distinct(output))
    return _Term(arranged.value, tuple(output.index(one) for one in arranged.labels))
