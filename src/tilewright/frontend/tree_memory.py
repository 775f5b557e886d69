"""When the steps of a tree run and what memory that takes; slices of indices where it is too much.

The peak counts what an evaluation allocates for whole arrays: intermediates from their step until their consumer has
run, and the result; not the inputs, nor the packed panels of a running kernel (of constant size for each core), nor
copies that a running contraction makes of arrays in which an index that all have lies elsewhere (of operands 64 MB at
most, of results 256 MB: `passes/contractions/relaid.py`), nor 64 KiB at most that repeated calls keep until they are
done where there is no limit.

Of a node's two operands the one is computed first for which the larger of (its peak, its result beside the other's
peak) is smaller, the rule of Sethi and Ullman (1970) for registers, here for arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilewright.frontend.deep_trees import Walk, answer
from tilewright.frontend.tree_steps import ResolvedTree
from tilewright.ir.dataclass import dataclass
from tilewright.runtime.memory import format_bytes

_MOST_COMBINED = 10
"""All pairs and triples of so many indices are tried; beyond that indices are added one after another."""

_MOST_REPEATED = 10_000
"""Slices may compute so many times what the whole does."""

_HOIST = (True, False)
"""Whether values without a sliced index are computed beforehand (and kept), or anew for every slice."""


@dataclass(frozen=True)
class Widths:
    """Bytes of an element: of intermediates, of the result, and of the array in which slices are accumulated.

    `given` says that the caller brings the memory of the result, which then does not count.
    """

    inner: int
    result: int
    given: bool = False

    @property
    def accumulator(self) -> int:
        """Per element of the result where slices are added up: partial sums are kept as intermediates are."""
        own = 0 if self.given else self.result
        return own if self.inner == self.result else own + self.inner


@dataclass(frozen=True)
class Schedule:
    """Values in the order in which they are computed, and the bytes alive at the worst moment."""

    order: tuple[int, ...]
    peak: int


@dataclass(frozen=True)
class MemoryPlan:
    """The order of a tree's steps, and which indices are cut into slices.

    Attributes:
        pieces: sliced indices with the length of a slice; nothing if all is computed at once.
        first: values computed once before the slices, because no sliced index occurs in them, each with its schedule.
        main: the rest, which is repeated for every slice.
        accumulates: slices of a contracted index are added up.
        peak: bytes alive at the worst moment.
        flops: of everything, repetitions included.
    """

    pieces: tuple[tuple[int, int], ...]
    first: tuple[tuple[int, Schedule], ...]
    main: Schedule
    accumulates: bool
    peak: int
    flops: int

    def slices(self, tree: ResolvedTree) -> int:
        """How often `main` is run."""
        return math.prod(math.ceil(tree.sizes[label] / piece) for label, piece in self.pieces)


def plan_memory(tree: ResolvedTree, widths: Widths, limit: int | None = None) -> MemoryPlan:
    """The order with the smallest peak; if that is over the limit, slices that bring it under the limit.

    Of the slices found those are taken that compute least twice, then the fewest.

    Raises:
        MemoryError: if no slices do, with the smallest peak that there is; and if those that do would compute more than
            10,000 times as much, which nobody waits for.
    """
    whole = _evaluated(tree, widths, {}, hoist=False)
    if limit is None or whole.peak <= limit:
        return whole
    sliced = _sliced(tree, widths, whole, limit)
    if sliced.flops > _MOST_REPEATED * whole.flops:
        raise MemoryError(
            f"tree {tree.tree} needs {format_bytes(whole.peak)} at its peak, memory_limit is {format_bytes(limit)}: "
            f"{sliced.slices(tree)} slices would keep to it, and compute {sliced.flops / whole.flops:.1g} times as "
            "much; allow more"
        )
    return sliced


def _sliced(tree: ResolvedTree, widths: Widths, whole: MemoryPlan, limit: int) -> MemoryPlan:
    legal = sliceable(tree)
    outer = [label for label in legal if label in tree.output]
    thinnest = [_evaluated(tree, widths, dict.fromkeys(all_, 1), hoist) for all_ in (outer, legal) for hoist in _HOIST]
    least = min(whole, *thinnest, key=lambda plan: plan.peak)
    if least.peak > limit:
        raise MemoryError(
            f"tree {tree.tree} needs {format_bytes(whole.peak)} at its peak, memory_limit is {format_bytes(limit)}; "
            f"the least that slices of its indices can reach is {format_bytes(least.peak)}{_barred_text(tree)}"
        )
    for candidates in _searches(tree, widths, legal):
        fitting = [
            plan for labels in candidates if (plan := _narrowed(tree, widths, labels, limit)) and plan.peak <= limit
        ]
        if fitting:
            best = min(fitting, key=lambda plan: (plan.flops, plan.slices(tree), len(plan.pieces)))
            return _widened(tree, widths, best, limit)
    return _widened(tree, widths, least, limit)


def _barred_text(tree: ResolvedTree) -> str:
    barred = sorted(set(range(len(tree.sizes))) - set(sliceable(tree)))
    barred = [label for label in barred if tree.sizes[label] > 1]
    if not barred:
        return ""
    return f" ({tree.text(tuple(barred))} cannot be sliced: activations stand between their sums and the result)"


def sliceable(tree: ResolvedTree) -> tuple[int, ...]:
    """Indices of which slices may be computed apart: those of the result, and those summed with no activation after."""
    found = set(tree.output)
    value = tree.root
    open_steps = [value]
    while open_steps:
        value = open_steps.pop()
        step = tree.step(value)
        if step.activations:
            continue
        found.update(step.contracted)
        open_steps.extend(one for one in step.operands if one >= len(tree.inputs))
    return tuple(sorted(label for label in found if tree.sizes[label] > 1))


def _searches(tree: ResolvedTree, widths: Widths, legal: Sequence[int]) -> Iterator[Iterable[tuple[int, ...]]]:
    """Groups of sets of indices, to be tried one after another: one or two, three, then as many as it takes."""

    def peak_without(labels: Iterable[int]) -> tuple[int, int]:
        plan = _evaluated(tree, widths, dict.fromkeys(labels, 1), hoist=True)
        return plan.peak, plan.flops

    promising = sorted(legal, key=lambda label: peak_without([label]))[:_MOST_COMBINED]
    yield itertools.chain.from_iterable(itertools.combinations(promising, count) for count in (1, 2))
    yield itertools.combinations(promising, 3)
    chosen: list[int] = []
    while len(chosen) < len(legal):
        rest = [label for label in legal if label not in chosen]
        chosen.append(min(rest, key=lambda label: peak_without([*chosen, label])))
        if len(chosen) > 2:
            yield [tuple(chosen)]


def _narrowed(tree: ResolvedTree, widths: Widths, labels: Sequence[int], limit: int) -> MemoryPlan | None:
    """Slices of these indices no thinner than the limit asks; values are computed beforehand if there is room."""
    for hoist in _HOIST:
        pieces = {label: tree.sizes[label] for label in labels}
        current = _evaluated(tree, widths, dict.fromkeys(labels, 1), hoist)
        if current.peak > limit:
            continue
        current = _evaluated(tree, widths, pieces, hoist)
        while current.peak > limit:
            thinner = [
                _evaluated(tree, widths, {**pieces, label: -(-pieces[label] // 2)}, hoist)
                for label in labels
                if pieces[label] > 1
            ]
            current = min(thinner, key=lambda plan: (plan.peak, plan.flops))
            pieces = dict(current.pieces)
        even = _evaluated(tree, widths, _even(tree, pieces), hoist)
        if even.peak <= limit:
            return even
    return None


def _widened(tree: ResolvedTree, widths: Widths, plan: MemoryPlan, limit: int) -> MemoryPlan:
    """The plan with slices as long as the limit allows, one index after another."""
    pieces = dict(plan.pieces)
    hoist = bool(plan.first)
    for label, low in plan.pieces:
        high = tree.sizes[label]
        while low < high:
            middle = (low + high + 1) // 2
            if _evaluated(tree, widths, {**pieces, label: middle}, hoist).peak <= limit:
                low = middle
            else:
                high = middle - 1
        pieces[label] = low
    wider = _evaluated(tree, widths, _even(tree, pieces), hoist)
    # An index that is not sliced any more may let more values be computed beforehand than there is room for.
    return wider if wider.peak <= limit else plan


def _even(tree: ResolvedTree, pieces: Mapping[int, int]) -> dict[int, int]:
    """Slices of about the same length, as many as there are; without the indices that are left whole."""
    extents = {label: tree.sizes[label] for label, piece in pieces.items() if piece < tree.sizes[label]}
    return {label: math.ceil(n / math.ceil(n / pieces[label])) for label, n in extents.items()}


def _evaluated(tree: ResolvedTree, widths: Widths, pieces: Mapping[int, int], hoist: bool) -> MemoryPlan:
    """The plan for slices of the given lengths."""
    sizes = tuple(pieces.get(label, extent) for label, extent in enumerate(tree.sizes))
    bytes_of = {
        len(tree.inputs) + number: tree.volume(step.output, sizes) * widths.inner
        for number, step in enumerate(tree.steps)
    }
    accumulates = any(label not in tree.output for label in pieces)
    result = tree.volume(tree.output)
    if not pieces:
        bytes_of[tree.root] = 0 if widths.given else result * widths.result
    elif not accumulates:
        bytes_of[tree.root] = 0  # slices are written into the result
    first = _invariant(tree, pieces, bytes_of) if hoist else ()
    kept, peak = 0, 0
    for value, schedule in first:
        peak = max(peak, kept + schedule.peak)
        kept += bytes_of[value]
    main = schedule_of(tree, bytes_of, tree.root, frozenset(value for value, _ in first))
    if pieces:
        kept += result * (widths.accumulator if accumulates else 0 if widths.given else widths.result)
    counts = {label: math.ceil(tree.sizes[label] / piece) for label, piece in pieces.items()}
    flops = sum(tree.flops(tree.step(value)) for _, schedule in first for value in schedule.order)
    flops += sum(_repeated_flops(tree, value, counts) for value in main.order)
    return MemoryPlan(tuple(sorted(pieces.items())), first, main, accumulates, max(peak, kept + main.peak), flops)


def _repeated_flops(tree: ResolvedTree, value: int, counts: Mapping[int, int]) -> int:
    """Of a step in all slices: it is computed anew for every slice of an index that does not occur in it."""
    step = tree.step(value)
    own = {*step.output, *step.contracted}
    return tree.flops(step) * math.prod(count for label, count in counts.items() if label not in own)


def _invariant(
    tree: ResolvedTree, pieces: Mapping[int, int], bytes_of: Mapping[int, int]
) -> tuple[tuple[int, Schedule], ...]:
    """The largest subtrees without a sliced index; those that need much but leave little come first."""
    touched: dict[int, bool] = {
        number: any(label in pieces for label in labels) for number, labels in enumerate(tree.inputs)
    }
    for number, step in enumerate(tree.steps):
        touched[len(tree.inputs) + number] = any(touched[one] for one in step.operands)
    found = [
        (value, schedule_of(tree, bytes_of, value))
        for value in range(len(tree.inputs), tree.root)
        if not touched[value] and touched[tree.parents[value]]
    ]
    return tuple(sorted(found, key=lambda pair: bytes_of[pair[0]] - pair[1].peak))


def schedule_of(
    tree: ResolvedTree, bytes_of: Mapping[int, int], root: int, ready: frozenset[int] = frozenset()
) -> Schedule:
    """The steps below a value, in the order that keeps the fewest bytes alive; `ready` values are there already."""
    return answer(_schedule(tree, bytes_of, root, ready))


def _schedule(tree: ResolvedTree, bytes_of: Mapping[int, int], root: int, ready: frozenset[int]) -> Walk[Schedule]:
    if root < len(tree.inputs) or root in ready:
        return Schedule((), 0)
    parts: list[tuple[Schedule, int]] = []
    for one in tree.step(root).operands:
        parts.append(((yield _schedule(tree, bytes_of, one, ready)), _held(tree, bytes_of, one, ready)))
    # What falls most below its own peak goes first; for two operands that is the better one of the two orders.
    parts.sort(key=lambda part: part[1] - part[0].peak)
    order: tuple[int, ...] = ()
    peak = held = 0
    for schedule, size in parts:
        peak = max(peak, held + schedule.peak)
        held += size
        order += schedule.order
    return Schedule((*order, root), max(peak, held + bytes_of[root]))


def _held(tree: ResolvedTree, bytes_of: Mapping[int, int], value: int, ready: frozenset[int]) -> int:
    return 0 if value < len(tree.inputs) or value in ready else bytes_of[value]
