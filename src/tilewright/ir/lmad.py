"""LMADs (linear memory access descriptors): where the elements of a regular array lie in one buffer [S0 3.5].

    LMAD(offset, shape, strides): element (i_1, ..., i_n) lies at offset + i_1*stride_1 + ... + i_n*stride_n

All three are symbolic sizes, counted in elements. Strides may be negative (reversed slices) or zero (broadcasts). Every
operation is exact: it gives the LMAD of just the elements that the operation on arrays would give, or, where only
`reshape` can fail, None. A composition is therefore never a guess [S0 4.7.2.2].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import SliceDimension
from tilewright.ir.sizes import ONE, ZERO, Size, SizeLike, product, size


def _show(sizes: Sequence[Size]) -> str:
    return "(" + ", ".join(map(str, sizes)) + ")"


def _constant(value: Size, what: str) -> int:
    if value.constant is None:
        raise ValueError(f"{what} {value} is symbolic; bind its names to values first")
    return value.constant


@dataclass(frozen=True)
class LMAD:
    """Offset, shape and strides in elements.

    >>> n, m = size("n"), size("m")
    >>> matrix = row_major((n, m))
    >>> print(matrix.rearrange((1, 0)))
    0 + [m : 1][n : m]
    >>> print(matrix.rearrange((1, 0)).reshape((n * m,)))
    None
    """

    offset: Size
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise ValueError(f"an LMAD of shape {_show(self.shape)} needs as many strides, not {_show(self.strides)}")

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_row_major(self) -> bool:
        """True where the elements provably lie one after another in row-major order (from any offset).

        Strides of dimensions of extent 1 do not matter, nor does any stride of an array without elements.
        """
        if product(self.shape) == ZERO:
            return True
        expected = ONE
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != ONE and stride != expected:
                return False
            expected = expected * extent
        return True

    def flat(self, indices: Sequence[SizeLike]) -> Size:
        """The place in the buffer of the element at `indices` (one per dimension)."""
        if len(indices) != self.rank:
            raise ValueError(f"{len(indices)} indices for an LMAD of rank {self.rank}")
        return self.fix(indices).offset

    def fix(self, indices: Sequence[SizeLike]) -> LMAD:
        """The sub-array at these indices of the outermost dimensions, which are dropped."""
        if len(indices) > self.rank:
            raise ValueError(f"{len(indices)} indices for an LMAD of rank {self.rank}")
        offset = self.offset
        for index, stride in zip(indices, self.strides, strict=False):
            offset = offset + size(index) * stride
        return LMAD(offset, self.shape[len(indices) :], self.strides[len(indices) :])

    def slice(self, dimensions: Sequence[SliceDimension]) -> LMAD:
        """start, start+step, ... of every dimension; steps may be negative."""
        if len(dimensions) != self.rank:
            raise ValueError(f"a slice of {len(dimensions)} dimensions for an LMAD of rank {self.rank}")
        offset = self.offset
        for one, stride in zip(dimensions, self.strides, strict=True):
            offset = offset + one.start * stride
        strides = tuple(one.step * stride for one, stride in zip(dimensions, self.strides, strict=True))
        return LMAD(offset, tuple(one.count for one in dimensions), strides)

    def rearrange(self, permutation: Sequence[int]) -> LMAD:
        """Dimension d of the result is dimension permutation[d]."""
        if sorted(permutation) != list(range(self.rank)):
            raise ValueError(f"{tuple(permutation)} is not a permutation of the {self.rank} dimensions")
        return LMAD(self.offset, tuple(self.shape[d] for d in permutation), tuple(self.strides[d] for d in permutation))

    def broadcast(self, count: SizeLike) -> LMAD:
        """`count` times the same elements along a new outermost dimension (stride 0)."""
        return LMAD(self.offset, (size(count), *self.shape), (ZERO, *self.strides))

    def diagonal(self, first_axis: int, second_axis: int) -> LMAD:
        """The elements whose indices along the two dimensions are equal; the one dimension left is `first_axis`.

        Raises:
            ValueError: if the two are not different dimensions of one extent.
        """
        for axis in (first_axis, second_axis):
            if not 0 <= axis < self.rank:
                raise ValueError(f"axis {axis} of an LMAD of rank {self.rank}")
        if first_axis == second_axis or self.shape[first_axis] != self.shape[second_axis]:
            raise ValueError(
                f"a diagonal needs two dimensions of one extent, not dimension {first_axis} "
                f"({self.shape[first_axis]}) and {second_axis} ({self.shape[second_axis]})"
            )
        strides = list(self.strides)
        strides[first_axis] = strides[first_axis] + strides[second_axis]
        kept = [d for d in range(self.rank) if d != second_axis]
        return LMAD(self.offset, tuple(self.shape[d] for d in kept), tuple(strides[d] for d in kept))

    def reshape(self, shape: Sequence[SizeLike]) -> LMAD | None:
        """The same elements in row-major order under another shape, or None where that is not provably one LMAD.

        Raises:
            ValueError: if the number of elements is known to differ.
        """
        target = tuple(map(size, shape))
        before, after = product(self.shape), product(target)
        if before.constant is not None and after.constant is not None and before != after:
            raise ValueError(f"reshape of {_show(self.shape)} ({before} elements) to {_show(target)} ({after})")
        if target == self.shape:
            return self
        if ZERO in (before, after):
            return row_major(target, self.offset)
        strides = _reshaped_strides(self._runs(), target)
        return None if strides is None else LMAD(self.offset, target, strides)

    def _runs(self) -> list[tuple[Size, Size]]:
        """(extent, stride) of maximal runs of dimensions that are one dimension in memory, without unit dimensions."""
        runs: list[tuple[Size, Size]] = []
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == ONE:
                continue
            if runs and runs[-1][1] == stride * extent:
                runs[-1] = (runs[-1][0] * extent, stride)
            else:
                runs.append((extent, stride))
        return runs

    def bind(self, values: Mapping[str, int]) -> LMAD:
        """The LMAD of constants for these values of the names.

        Raises:
            KeyError: if a name has no value.
        """
        return LMAD(
            size(self.offset.evaluate(values)),
            tuple(size(one.evaluate(values)) for one in self.shape),
            tuple(size(one.evaluate(values)) for one in self.strides),
        )

    def substitute(self, values: Mapping[str, Size]) -> LMAD:
        """Names replaced by sizes."""
        return LMAD(
            self.offset.substitute(values),
            tuple(one.substitute(values) for one in self.shape),
            tuple(one.substitute(values) for one in self.strides),
        )

    def points(self) -> Iterator[int]:
        """The place of every element, in row-major order of the indices; all sizes must be constants."""
        offset = _constant(self.offset, "the offset")
        extents = [range(_constant(one, "the extent")) for one in self.shape]
        strides = [_constant(one, "the stride") for one in self.strides]
        for indices in itertools.product(*extents):
            yield offset + sum(index * stride for index, stride in zip(indices, strides, strict=True))

    def __str__(self) -> str:
        dimensions = (f"[{extent} : {stride}]" for extent, stride in zip(self.shape, self.strides, strict=True))
        return f"{self.offset} + " + "".join(dimensions)


def row_major(shape: Sequence[SizeLike], offset: SizeLike = ZERO) -> LMAD:
    """The LMAD of an array whose elements lie one after another, the last index running fastest.

    >>> print(row_major(("n", 4)))
    0 + [n : 4][4 : 1]
    """
    extents = tuple(map(size, shape))
    return LMAD(size(offset), extents, _suffix_products(extents, ONE))


def _suffix_products(extents: tuple[Size, ...], innermost: Size) -> tuple[Size, ...]:
    return tuple(innermost * product(extents[d + 1 :]) for d in range(len(extents)))


def _reshaped_strides(runs: list[tuple[Size, Size]], target: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """Strides of `target` when each run is cut into consecutive target dimensions with the run's extent as product.

    Runs are matched from the inside and from the outside while extents are provably equal. One run that is left in
    the middle gets all target dimensions that are left: the reshape is legal, so their product is its extent.
    """
    strides: list[Size | None] = [None] * len(target)
    low, high = 0, len(target)
    remaining = list(runs)
    while len(remaining) > 1 and (start := _matching(target, low, high, remaining[-1][0], inner=True)) is not None:
        strides[start:high] = _suffix_products(target[start:high], remaining.pop()[1])
        high = start
    while len(remaining) > 1 and (end := _matching(target, low, high, remaining[0][0], inner=False)) is not None:
        strides[low:end] = _suffix_products(target[low:end], remaining.pop(0)[1])
        low = end
    if len(remaining) > 1:
        return None
    strides[low:high] = _suffix_products(target[low:high], remaining[0][1] if remaining else ONE)
    return tuple(stride for stride in strides if stride is not None)


def _matching(target: tuple[Size, ...], low: int, high: int, extent: Size, inner: bool) -> int | None:
    """Where target[low:high] must be cut so that its inner (outer) part has `extent` elements; None if unknown."""
    cuts = range(high - 1, low - 1, -1) if inner else range(low + 1, high + 1)
    for cut in cuts:
        if product(target[cut:high] if inner else target[low:cut]) == extent:
            return cut
    return None
