"""Arrays in the order of dimensions that a GPU's kernel would rather have, while a program runs (turned.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.ir.dataclass import dataclass
from tilewright.runtime import host
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.index_errors import component_of
from tilewright.runtime.protocol import written_buffers
from tilewright.runtime.scheduling import schedule
from tilewright.runtime.scope import Entry, Placed, Scalar
from tilewright.runtime.turned import Lying, Wish, copy_bytes, lying_of, turned_strides, wishes

if TYPE_CHECKING:
    from tilewright.runtime.executor import Executor


@dataclass
class Copied:
    """What was wasted on an array in one order so far, and the copy in the other one that ended that."""

    source: Placed
    wasted: float = 0.0
    copy: Placed | None = None


_WISHES: MemoryCache[tuple[object, ...], tuple[host.KernelPlan, dict[str, Wish]]] = MemoryCache(capacity=512)


def turn(e: Executor, step: host.KernelStep) -> dict[str, Entry]:
    """Give a kernel the arrays in other orders where that pays; the entries of what it reads, to be put back after."""
    variables = (*step.reads, *step.targets)
    plan = step.lower(e.scope.layouts([variable.name for variable in variables]))
    arrays = _movable(e, step, plan)
    if not arrays or plan.schedule is host.Schedule.SEQUENTIAL:
        return {}
    targets = {variable.name for variable in step.targets}
    before: dict[str, Entry] = {}
    for name, wish in _wishes(e, plan, arrays).items():
        place, price = e.scope.entries[name], copy_bytes(arrays[name], e.backend.machine)
        assert isinstance(place, Placed)
        if name not in targets:
            copy = _copy(e, step.label, name, place, wish, price)
            if copy is not None:
                before[name], e.scope.entries[name] = place, copy
        elif wish.saved > price:
            e.scope.entries[name] = replace(place, strides=turned_strides(place.shape, wish.dimension))
            e.told[step.label, f"{name} is made with dimension {wish.dimension} innermost{_saving(wish)}"] = None
    return before


def _movable(e: Executor, step: host.KernelStep, plan: host.KernelPlan) -> dict[str, Lying]:
    """Those arrays of a launch that may lie in another way: what is only read, and what the kernel makes anew."""
    begun = {step.targets[position].name for position, _ in step.copied}
    made = {variable.name for variable in step.targets} - begun
    written = written_buffers(plan.kernel)
    found: dict[str, Lying] = {}
    for buffer, name in zip(plan.kernel.buffers, plan.buffers, strict=True):
        place = e.scope.entries.get(name)
        if isinstance(place, Placed) and (place.fresh if name in made else buffer.name not in written):
            lying = lying_of(place.shape, place.strides, place.element, place.offset)
            if lying is not None:
                found[name] = lying
    return found


def _wishes(e: Executor, plan: host.KernelPlan, arrays: dict[str, Lying]) -> dict[str, Wish]:
    """What the kernel would rather have, by the names of the arrays."""
    extents = e.shape(plan.space)
    key = (id(plan), e.backend.machine.name, extents, tuple(arrays.items()))

    def count() -> tuple[host.KernelPlan, dict[str, Wish]]:
        rooms = {f"%room.{one.name}": max(1, e.size(one.size)) for one in plan.scratch}
        blocks, own = schedule(plan, extents, e.backend, [e.size(one.size) for one in plan.scratch])
        if blocks == 0:
            return plan, {}
        own |= rooms
        scalars = dict(own)
        for parameter, (name, part) in zip(plan.kernel.scalars, plan.scalars, strict=True):
            value = own.get(name)
            if value is None and parameter.type.is_integer:
                entry = e.scope.entries.get(name)
                value = int(component_of(entry.value, part)) if isinstance(entry, Scalar) else e.scope[name]
            if value is not None:
                scalars[parameter.name] = value
        buffers = dict(zip(plan.buffers, (one.name for one in plan.kernel.buffers), strict=True))
        lying = {buffers[name]: one for name, one in arrays.items()}
        found = wishes(plan.kernel, scalars, blocks, lying, e.backend.machine)
        return plan, {name: found[buffer] for name, buffer in buffers.items() if buffer in found}

    return _WISHES.get_or_build(key, count)[1]


def _copy(e: Executor, label: str, name: str, place: Placed, wish: Wish, price: float) -> Placed | None:
    """The copy of an array in the order that is wished, as soon as it pays."""
    key = name, wish.dimension
    known = e.turned.get(key)
    if known is None or known.source is not place:
        known = e.turned[key] = Copied(place)
    known.wasted += wish.saved
    if known.copy is None and known.wasted > price:
        fresh = e.allocate_shape(place.element, place.shape, name)
        known.copy = replace(fresh, strides=turned_strides(place.shape, wish.dimension), fresh=False)
        e.copy(place, known.copy)
        e.told[label, f"{name} is copied with dimension {wish.dimension} innermost{_saving(wish)}"] = None
    elif known.copy is None:
        costs = f"a copy costs {price / 1e6:.3g}"
        e.told[label, f"{name} is read as it lies, though neighbours are apart{_saving(wish)}, {costs}"] = None
    return known.copy


def _saving(wish: Wish) -> str:
    return f": that saves {wish.saved / 1e6:.3g} MB of traffic in a launch"
