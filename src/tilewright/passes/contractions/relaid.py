"""Contractions with a dimension that is consecutive in some of the arrays that have it only.

    out[d, a] = sum over c of left[d, c, a] * right[a, c]
    =>  copy[c, a] = right[a, c];  out[d, a] = sum over c of left[d, c, a] * copy[c, a]

No vector of a kernel can run along such a dimension, and a loop over it reads one element of each cache line of the
arrays in which it is consecutive. So it becomes the innermost dimension of all arrays, or the outermost one, by copying
those that have it elsewhere (the output afterwards), where the model says that copies and contraction take less.

    out[i, k] = sum over j of left[i, j] * right[j, k]
    =>  copy[k, j] = right[j, k];  out[i, k] = sum over j of left[i, j] * copy[k, j]

A matrix times few columns is such a case with a summed dimension: the few columns are copied, and then the vectors of
all rows run along the sum (matrix_vector/row_products.py).

    out[b, d, a] = sum over c of left[a, c, b] * right[c, d]
    =>  copy[d, a, b] = sum over c of left[a, c, b] * right[c, d];  out[b, d, a] = copy[d, a, b]

Results that the direct form would collect come in the order of the operand that vectors are read from, and are copied
then, on processors where scattered lines come so slowly that a copy of all of them takes less.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import constant, normalise
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import compute_type
from tilewright.ir.sizes import size
from tilewright.kernel.launch import Launch, Temporary
from tilewright.machine.model import Machine
from tilewright.passes.contractions.form_choice import PACKED_ELEMENT, FormChoice, choose_form, packed_cycles
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.matrix_vector.row_products import choose_row_products
from tilewright.passes.packed.blocks import level_of
from tilewright.passes.packed.form import PackedForm

ARRAYS = ("left", "right", "out")
MOST_BYTES = 1 << 26
"""More is not copied: a contraction should not take the memory of its operands again."""
MOST_RESULTS = 1 << 28
"""Bytes of results that are copied instead of being collected, which are no more than half of all arrays either."""
LEAST_POINTS = 1 << 16
"""Fewer multiply-adds are left to the kernel of any shape (any_shape.py), which copies nothing."""
SMALLER = 4
"""An operand is copied for the sake of the sum if the other one has so many times as many elements."""
GAIN = 0.8
"""The model must find copies and contraction to take less than this share, since it errs; for the sake of a sum it is
enough that they take less, as measured on a Zen 5."""
ELEMENT = 2.5
"""What an element takes that is read by itself where its neighbours belong to other sums."""
COPIED = 1.3
"""Times as long as reading and writing them one after the other takes, results are copied in another order."""
LAUNCH = 2000.0
"""What a launch costs, in the cycles of the model."""


@dataclass(frozen=True)
class Copy:
    """An array of the contraction and its copy, whose dimensions are `shape`, outermost first.

    Attributes:
        array: "left", "right" or "out"; the output is computed in the copy, and copied then.
        original: where the array lies, with `strides`. copied: the copy, which is dense.
    """

    array: str
    original: Operand
    copied: Operand
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements are copied."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Relaid:
    """A contraction of copies.

    Attributes:
        contraction: of the copies and of the arrays that stay as they are; normalised.
        copies: what is copied.
        dimension: what it was copied for: the dimension that they have innermost (`innermost`) or outermost; or one of
            an operand and of the results only, along which these would be collected otherwise.
        choice: the form of the contraction.
        cycles, without: what the model says about copies and contraction, and about the contraction as it is.
    """

    contraction: Contraction
    copies: tuple[Copy, ...]
    dimension: Dimension
    innermost: bool
    choice: FormChoice
    cycles: float
    without: float


def relaid_of(contraction: Contraction, machine: Machine) -> Relaid | str:
    """The contraction of copies for a contraction with known sizes on a CPU, or why nothing is copied.

    Raises:
        LoweringError: if the contraction has no form as it is.

    Example:
        >>> from tilewright.cli.stages import follow
        >>> from tilewright.machine.named import CPU_AVX512
        >>> (found,) = follow("dca,ac->da", {"a": 200, "c": 52, "d": 67}).found
        >>> relaid = relaid_of(found, CPU_AVX512)
        >>> [(one.array, one.shape) for one in relaid.copies], relaid.dimension.name, relaid.innermost
        ([('right', (52, 200))], 'a', True)
    """
    contraction = normalise(contraction)
    alone = dataclasses.replace(machine, cores=1)  # the bits of results must not depend on the number of threads
    mixed = [one for one in contraction.of_kind(Kind.C) if 0 < sum(_units(one)) < len(ARRAYS)]
    summed = sum_to_turn(contraction, machine)
    if not mixed and summed is None:
        uncollected = _uncollected(contraction, alone) if machine.pace.copied_results else None
        return uncollected or "no dimension that all arrays have is consecutive in some of them only"
    choice = choose_form(contraction, alone)
    best = None
    for one in mixed if summed is None else [summed]:
        without = cycles_of(choice, contraction, alone, [one])
        least = without if one is summed else GAIN * without
        for innermost in (True,) if one is summed else (True, False):
            found = _relaid(contraction, one, innermost, without, alone)
            if found is not None and found.cycles < (least if best is None else best.cycles):
                best = found
    return best or "copies would take longer than they spare, or too much memory"


def _uncollected(contraction: Contraction, machine: Machine) -> Relaid | None:
    """The contraction whose results lie in the order of the operand that vectors are read from, to be copied, instead
    of being collected; None if they are not collected, or too many, or that would not be faster.
    """
    results = contraction.array_bytes[2]
    too_many = results > max(MOST_BYTES, min(MOST_RESULTS, sum(contraction.array_bytes) // 2))
    if too_many or level_of(results, machine) <= 2 or not contraction.of_kind(Kind.K):
        return None
    choice = choose_form(contraction, machine)
    form = choice.form
    if not isinstance(form, DirectForm) or form.collected is None:
        return None
    array, own = ("left", Kind.M) if form.vector_left else ("right", Kind.N)
    order = [number for number, one in enumerate(contraction.dimensions) if one.kind not in (Kind.K, own)]
    vectors = [number for number, one in enumerate(contraction.dimensions) if one.kind is own]
    order += sorted(vectors, key=lambda number: -abs(_stride(contraction.dimensions[number], array)))
    copy, changed = _copied(contraction, order, "out")
    changed = normalise(changed)
    then, without = choose_form(changed, machine), cycles_of(choice, contraction, machine)
    copying = LAUNCH + COPIED * results * (1 / machine.pace.memory + 1 / machine.pace.past)
    cycles = copying + cycles_of(then, changed, machine)
    if cycles >= machine.pace.copied_results * without:
        return None
    return Relaid(changed, (copy,), form.collected, False, then, cycles, without)


def sum_to_turn(contraction: Contraction, machine: Machine) -> Dimension | None:
    """The summed dimension that is consecutive in the larger operand only, of a normalised contraction with the columns
    of the smaller one; None if there is none, or the columns fill vectors.
    """
    if contraction.of_kind(Kind.C) or math.prod(constant(d.size) for d in contraction.dimensions) < LEAST_POINTS:
        return None
    for one in contraction.of_kind(Kind.K):
        left, right, _ = _units(one)
        if left is not right:
            large, small = (Kind.M, Kind.N) if left else (Kind.N, Kind.M)
            rows, columns = (math.prod(constant(d.size) for d in contraction.of_kind(kind)) for kind in (large, small))
            lanes = machine.lanes(compute_type(contraction.accumulator).bytes)
            return one if 1 < columns < lanes and rows >= SMALLER * columns else None
    return None


def relaid_launches(relaid: Relaid, contraction: Launch, machine: Machine) -> tuple[Launch, ...]:
    """The launches: of the copies, of the contraction of them, and of the copy of the output."""
    from tilewright.passes.permute.kernel import permute_launch

    before: list[Launch] = []
    after: list[Launch] = []
    for one in relaid.copies:
        dense = _dense(one.shape)
        if one.array == "out":
            given = (dense, one.strides, (0, constant(one.original.offset)))
            names = (one.copied.buffer, one.original.buffer)
        else:
            given = (one.strides, dense, (constant(one.original.offset), 0))
            names = (one.original.buffer, one.copied.buffer)
        launch = permute_launch(one.original.element, one.shape, *given, machine)
        (after if one.array == "out" else before).append(dataclasses.replace(launch, buffers=names))
    launches = [*before, contraction, *after]
    made = tuple(Temporary(one.copied.buffer, one.copied.element, one.elements) for one in relaid.copies)
    launches[0] = dataclasses.replace(launches[0], temporaries=made)
    return tuple(launches)


def _units(one: Dimension) -> tuple[bool, ...]:
    """In which arrays the dimension is consecutive."""
    return tuple(abs(_stride(one, array)) == 1 for array in ARRAYS)


def _stride(one: Dimension, array: str) -> int:
    return constant(getattr(one, f"stride_{array}"))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def _relaid(
    contraction: Contraction, shared: Dimension, innermost: bool, without: float, machine: Machine
) -> Relaid | None:
    """The contraction with this dimension innermost, or outermost, in all arrays that have it; None if that is too much
    to copy, or in vain.
    """
    copies = []
    changed = contraction
    for array, unit in zip(ARRAYS, _units(shared), strict=True):
        if unit is innermost or not _stride(shared, array):
            continue
        order = _with_dimension(contraction, contraction.dimensions.index(shared), array, innermost)
        copy, changed = _copied(changed, order, array)
        copies.append(copy)
    if sum(one.elements * one.copied.element.bytes for one in copies) > MOST_BYTES:
        return None
    changed = normalise(changed)
    try:
        choice = choose_form(changed, machine)
    except LoweringError:  # an outer product that no form writes in this order
        return None
    if shared.kind is Kind.K:
        products = choose_row_products(changed, machine)
        if isinstance(products, str) or products.form != choice.form:
            return None
        then = products.cycles
    else:
        then = cycles_of(choice, changed, machine)
    copying = sum(
        LAUNCH + machine.pace.packing * PACKED_ELEMENT * one.elements * one.copied.element.bytes / 4 for one in copies
    )
    return Relaid(changed, tuple(copies), shared, innermost, choice, copying + then, without)


def _with_dimension(contraction: Contraction, place: int, array: str, innermost: bool) -> list[int]:
    """The places of an array's dimensions, outermost first, with this one innermost or outermost."""
    others = [
        number for number, one in enumerate(contraction.dimensions) if number != place and constant(one.size) != 1
    ]
    others.sort(key=lambda number: -abs(_stride(contraction.dimensions[number], array)))
    return [*others, place] if innermost else [place, *others]


def _copied(contraction: Contraction, order: Sequence[int], array: str) -> tuple[Copy, Contraction]:
    """An array's copy whose dimensions, of these places, are in this order, and the contraction of it."""
    dimensions = contraction.dimensions
    strides = [_stride(one, array) for one in dimensions]
    order = [number for number in order if strides[number]]
    shape = tuple(constant(dimensions[number].size) for number in order)
    new = dict(zip(order, _dense(shape), strict=True))
    original: Operand = getattr(contraction, array)
    copied = Operand(f"{original.buffer}.{array}", original.element, size(0))
    moved: list[dict[str, Any]] = [{f"stride_{array}": size(new.get(number, 0))} for number in range(len(dimensions))]
    changes: dict[str, Any] = {array: copied}
    changes["dimensions"] = tuple(
        dataclasses.replace(one, **change) for one, change in zip(dimensions, moved, strict=True)
    )
    copy = Copy(array, original, copied, shape, tuple(strides[number] for number in order))
    return copy, dataclasses.replace(contraction, **changes)


def cycles_of(choice: FormChoice, contraction: Contraction, machine: Machine, mixed: Sequence[Dimension] = ()) -> float:
    """What the model says of a form on one core.

    A form that reads an operand once, in order, is bound by reading; but where its vectors run along a dimension that
    the other operand does not have consecutive, that one is read by elements.
    """
    if isinstance(choice.form, DirectForm):
        return direct_cost(choice.form, machine).cycles
    if isinstance(choice.form, PackedForm):
        return packed_cycles(choice.form, machine)
    cycles = sum(contraction.array_bytes) / machine.pace.memory
    for one in mixed:
        left, right, out = _units(one)
        sides = zip((left, right), (contraction.left, contraction.right), contraction.array_bytes[:2], strict=True)
        if out and left is not right:
            cycles += sum(ELEMENT * read / side.element.bytes for unit, side, read in sides if not unit)
    return cycles
