"""Tile sizes of a contraction on a device with thread blocks: a search within a budget, led by the cost model.

The model ranks all tilings that the device can run. Half of the budget goes to the first of them; the other half is
spread over the rest, ever more thinly, since the model may be wrong. Results belong to a shape class (`keys`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import order_dimensions, reclassify
from tilewright.contraction.recognise import recognise
from tilewright.ir.arguments import infer_sizes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Program
from tilewright.ir.views import ArrayView, fresh_view, parameter_view, view_of
from tilewright.passes.compile import compile_program
from tilewright.passes.contractions.contraction_launches import Tiles
from tilewright.passes.pipelines import run_pipeline
from tilewright.passes.tiled.choice import ranked_tilings
from tilewright.passes.tiled.tiling import IllegalTiling, Tiling, parallel_dimensions
from tilewright.runtime.devices import Device
from tilewright.runtime.messages import value_text
from tilewright.tune.keys import ANY_SHAPE, TuningWarning, device_key, program_digest, shape_class
from tilewright.tune.search import Progress, silent
from tilewright.tune.store import TuningStore
from tilewright.tune.tuner import Timing, timing_of


@dataclass(frozen=True)
class TilesReport:
    """What a search for tile sizes gave.

    Attributes:
        tiles: the best tile sizes, to be given as `tiles`; nothing if the model's own choice is the fastest.
        seconds: the time with them. model_seconds: with the model's choice.
        tried: every tiling that ran, with its time. failed: those that did not, with the reason.
    """

    tiles: dict[str, tuple[int, int] | int]
    seconds: float
    model_seconds: float
    tried: tuple[tuple[Tiles, float], ...]
    failed: tuple[tuple[Tiles, str], ...]

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}: {one}" for name, one in self.tiles.items()) or "the model's choice"
        lines = [f"{chosen}: {self.seconds:.3g} s, the model's choice {self.model_seconds:.3g} s"]
        lines.append(f"{len(self.tried)} tilings tried")
        lines += [f"failed and left out: {dict(tiles)}: {reason}" for tiles, reason in self.failed]
        return "\n".join(lines)


def tune_tiles(
    program: Program,
    device: Device,
    arguments: Sequence[Any],
    *,
    runs: int = 24,
    seconds: float = math.inf,
    timing: Timing | None = None,
    store: TuningStore | None = None,
    progress: Progress = silent,
) -> TilesReport:
    """The best tile sizes of a program's contraction for arguments of these sizes, which the store then has.

    Args:
        program: with one contraction.
        device: with thread blocks: OpenCL or CUDA.
        arguments: of the sizes to be tuned for.
        runs: how many tilings are tried at most.
        seconds: after so long no further one is begun.
        timing: how long each is run.
        store: where the result goes; None for the user's.
        progress: told what is about to be done.

    Raises:
        ValueError: if the program has not just one contraction, the device has no thread blocks, or nothing may run.
    """
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise ValueError(f"runs is how many tilings are tried at most, 1 at least, not {value_text(runs)}")
    if not device.machine.is_gpu_like:
        raise ValueError(f"{device.name} has no thread blocks: the tiles of a CPU follow from its vector registers")
    begin, timing = time.perf_counter(), timing_of(timing)
    contraction = order_dimensions(reclassify(bound_contraction(program, arguments)))
    model = compile_program(program, device)
    model_seconds = timing.of(lambda: model(*arguments))
    tried: list[tuple[Tiles, float]] = []
    failed: list[tuple[Tiles, str]] = []
    chosen = list(_within_budget(contraction, device, runs))
    for place, tiling in enumerate(chosen):
        if time.perf_counter() - begin > seconds:
            break
        tiles = tiles_of(contraction, tiling)
        progress(", ".join(f"{name}: {one}" for name, one in tiles.items()), place, len(chosen))
        try:
            candidate = compile_program(program, device, tiles=tiles)
            tried.append((tiles, timing.of(lambda run=candidate: run(*arguments))))  # type: ignore[misc]
        except Exception as error:  # whatever a candidate does, the search goes on
            failed.append((tiles, f"{type(error).__name__}: {error}"))
    best: tuple[Tiles, float] = min(tried, key=lambda one: one[1], default=({}, math.inf))
    if best[1] >= model_seconds:
        best = ({}, model_seconds)
    values = {f"{name}.{part}": float(number) for name, one in best[0].items() for part, number in _parts(one)}
    if tried:  # else nothing is known that was not known before
        (store or TuningStore()).put(
            program_digest(program), device_key(device), values, shape_class(arguments), program.name
        )
    return TilesReport(dict(best[0]), best[1], model_seconds, tuple(tried), tuple(failed))


def stored_tiles(
    program: Program, device: Device, store: TuningStore | None = None
) -> dict[str, dict[str, tuple[int, int] | int]]:
    """The tile sizes found for a program, by shape class of its arguments (`keys.shape_class`)."""
    store, key = store or TuningStore(), (program_digest(program), device_key(device))
    found = {}
    for shapes in store.shapes(*key):
        try:
            if shapes != ANY_SHAPE:
                found[shapes] = _tiles(store.get(*key, shapes))
        except (ValueError, KeyError, OverflowError):  # written by something else
            message = f"the tuning store: what it has for {program.name} and arguments of {shapes} are no tiles"
            warnings.warn(message, TuningWarning, stacklevel=2)
    return found


def _tiles(values: Mapping[str, float]) -> dict[str, tuple[int, int] | int]:
    """Tile sizes by dimension, of what the store has by dimension and part."""
    found: dict[str, dict[str, int]] = {}
    for key, value in values.items():
        name, _, part = key.rpartition(".")
        found.setdefault(name, {})[part] = int(value)
    return {name: one["Q"] if "Q" in one else (one["T"], one["R"]) for name, one in found.items()}


def _parts(one: tuple[int, int] | int) -> tuple[tuple[str, int], ...]:
    return (("Q", one),) if isinstance(one, int) else (("T", one[0]), ("R", one[1]))


def tiles_of(contraction: Contraction, tiling: Tiling) -> dict[str, tuple[int, int] | int]:
    """A tiling as a user would write it: (T, R) by parallel dimension, Q by contracted one."""
    pairs = zip(tiling.thread, tiling.register, strict=True)
    parallel = zip(parallel_dimensions(contraction), pairs, strict=True)
    contracted = zip(contraction.of_kind(Kind.K), tiling.sequential, strict=True)
    return {**{one.name: pair for one, pair in parallel}, **{one.name: depth for one, depth in contracted}}


def bound_contraction(program: Program, arguments: Sequence[Any]) -> Contraction:
    """The one contraction of a program, with the sizes and strides of arguments.

    Raises:
        ValueError: if it has none, or several, with the reasons.
    """
    ready = run_pipeline(program)
    known: dict[str, int] = dict(infer_sizes(ready, arguments))
    views: dict[str, ArrayView] = {}
    for parameter, argument in zip(ready.parameters, arguments, strict=True):
        if parameter.type.rank:
            views[parameter.name] = parameter_view(parameter)
            known[f"{parameter.name}.offset"] = 0
            strides = [stride // argument.itemsize for stride in argument.strides]
            known.update({f"{parameter.name}.stride{axis}": stride for axis, stride in enumerate(strides)})
    found: list[Contraction] = []
    reasons: list[str] = []
    for statement in ready.body.statements:
        view = view_of(statement.expression, views)
        if view is not None:
            views[statement.targets[0].name] = view
            continue
        out = {one.name: fresh_view(one.name, one.type) for one in statement.targets}
        one = recognise(statement, views, out)
        if isinstance(one, Contraction):
            found.append(one)
        else:
            reasons += one.reasons
        views.update({name: view for name, view in out.items() if view.lmad.rank})
    if len(found) != 1:
        why = f": {'; '.join(reasons)}" if reasons and not found else ""
        raise ValueError(f"{program.name} has {len(found)} contractions, and tiles are tuned for one{why}")
    return found[0].bind(known)


def _within_budget(contraction: Contraction, device: Device, runs: int) -> Iterator[Tiling]:
    """The first of the model's ranking, and as many from the rest at growing distances."""
    ranked: list[Tiling] = []
    try:
        ranked.extend(ranked_tilings(contraction, device.machine))
    except IllegalTiling:  # it says so at its end
        if not ranked:
            raise
    first = max(1, runs - runs // 2)
    places = set(range(min(first, len(ranked))))
    rest = runs - len(places)
    if len(ranked) > first:
        growth = (len(ranked) / first) ** (1 / max(1, rest))
        places |= {min(len(ranked) - 1, round(first * growth**step)) for step in range(1, rest + 1)}
    return (ranked[place] for place in sorted(places)[:runs])
