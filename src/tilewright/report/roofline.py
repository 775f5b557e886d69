"""What a contraction costs at least: operations, bytes that must move once, and the time that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.sizes import Size
from tilewright.machine.model import Machine


@dataclass(frozen=True)
class Roofline:
    """The lower bound of a contraction's time.

    Attributes:
        flops: operations of map and combine, each once per point of the iteration space; complex ones count as the
            real ones that they take, and without a sum there is nothing to combine.
        bytes: every element of the operands read once, every element of the result written once.
        compute_seconds: at the machine's peak rate; None where the machine does not state it.
        memory_seconds: at its bandwidth to main memory; None likewise.
    """

    flops: int
    bytes: int
    compute_seconds: float | None
    memory_seconds: float | None

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def seconds(self) -> float | None:
        """The larger of both times; None unless both are known."""
        if self.compute_seconds is None or self.memory_seconds is None:
            return None
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def limit(self) -> str:
        """What bounds it: "compute", "memory", or "unknown"."""
        if self.compute_seconds is None or self.memory_seconds is None:
            return "unknown"
        return "compute" if self.compute_seconds >= self.memory_seconds else "memory"


def roofline(contraction: Contraction, machine: Machine) -> Roofline:
    """The bound for a contraction with known sizes.

    Raises:
        ValueError: if a size is not known yet.
    """
    accumulator = contraction.accumulator
    sizes = [constant(one.size) for one in contraction.dimensions]
    multiplying, adding = (6, 2) if accumulator.is_complex else (1, 1)
    flops = math.prod(sizes) * (multiplying + (adding if contraction.of_kind(Kind.K) else 0))
    strides = [
        (contraction.left.element.bytes, [one.stride_left for one in contraction.dimensions]),
        (contraction.right.element.bytes, [one.stride_right for one in contraction.dimensions]),
        (contraction.out.element.bytes, [one.stride_out for one in contraction.dimensions]),
        *((one.operand.element.bytes, list(one.strides)) for one in contraction.epilogue_operands),
    ]
    moved = sum(width * _elements(sizes, along) for width, along in strides)
    wide = accumulator.bytes // (2 if accumulator.is_complex else 1) > 4
    peak = machine.peak_flops_f64 if wide else machine.peak_flops_f32
    return Roofline(
        flops, moved, flops / peak if peak else None, moved / machine.dram_bandwidth if machine.dram_bandwidth else None
    )


def _elements(sizes: list[int], strides: list[Size]) -> int:
    """Distinct elements that are touched: a dimension without a stride touches none, overlapping ones the same."""
    if 0 in sizes:
        return 0
    moving = [(extent, abs(constant(stride))) for extent, stride in zip(sizes, strides, strict=True)]
    points = math.prod(extent for extent, stride in moving if stride)
    reach = 1 + sum((extent - 1) * stride for extent, stride in moving)
    return min(points, reach)
