"""Whether an index is in range, from what is known of the loops around it: then it need not be checked.

>>> from tilewright.ir.sizes import maximum, minimum, size
>>> i, n = size("i"), size("n")
>>> is_within(maximum(i - 1, 0), n, {"i": n}), is_within(minimum(i + 1, n - 1), n, {"i": n})
(True, True)
>>> is_within(i + 1, n, {"i": n})
False
>>> is_within(2 * i + 1, n, {"i": n // 2})
True
>>> is_within(minimum(i + 1, n), n + 1, {"i": n + 1})
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tilewright.ir.sizes import ONE, Size, SizeFunction, size

_DEEPEST = 8  # replacements of a minimum or maximum by one of its sides


def is_within(index: Size, extent: Size, ranges: Mapping[str, Size]) -> bool:
    """Whether 0 <= index < extent for all values that the names can have.

    Args:
        index, extent: polynomials of names, with minima and maxima.
        ranges: for the names of loop indices the extents that they are below; they are at least 0. Nothing is known of
            other names but that an extent is positive where an index below it is in use.

    Returns:
        True only if it is certain.
    """
    names = [name for name in index.names | extent.names if name in ranges]
    least: dict[str, int] = {}
    for name, value in _positive(frozenset(map(ranges.__getitem__, names)), ranges):
        least[name] = max(value, least.get(name, value))
    known = {name: size(name) + value for name, value in least.items()}
    return all(_is_nonnegative(one, ranges, known) for one in (index, extent - 1 - index))


def _positive(extents: Collection[Size], ranges: Mapping[str, Size]) -> Iterator[tuple[str, int]]:
    """Names that extents are a constant more than, and the least that they can be: indices below the extents exist."""
    for extent in extents:
        for name in extent.names - ranges.keys() if len(extent.names) == 1 else ():
            more = (extent - size(name)).constant
            if more is not None:
                yield name, 1 - more


def is_within_where_positive(index: Size, extent: str, ranges: Mapping[str, Size]) -> bool:
    """Whether 0 <= index < extent for all values that the names can have if the extent of this name is positive, as
    that of an index which is clamped to an array's edges.

    >>> from tilewright.ir.sizes import maximum, minimum
    >>> i, n = size("i"), size("n")
    >>> clamped = minimum(maximum(i - 3, 0), n - 1)
    >>> is_within(clamped, n, {"i": n + 6}), is_within_where_positive(clamped, "n", {"i": n + 6})
    (False, True)
    """
    positive = {extent: size("%less") + 1}
    known = {**ranges, "%less": size("%any")}
    return is_within(index.substitute(positive), positive[extent], known)


def narrowed(difference: Size, ranges: Mapping[str, Size], new: str) -> tuple[str, Size, Size] | None:
    """What `difference` < 0 tells of a loop index.

    Args:
        difference: a polynomial. ranges: the loop indices, as for `is_within`.
        new: the name of a new index.

    Returns:
        The loop index, what it is in terms of the new index, and what that is below; None if nothing is learned.

    >>> i, n = size("i"), size("n")
    >>> narrowed(i - (n - 1), {"i": n}, "k"), narrowed(1 - i, {"i": n}, "k")
    (('i', k, n - 1), ('i', k + 2, n - 2))
    """
    for name in sorted(difference.names & ranges.keys()):
        linear = difference.coefficient_of(name)
        if linear is not None and linear[0] == ONE:
            return name, size(new), -linear[1]
        if linear is not None and linear[0] == -ONE:
            return name, size(new) + linear[1] + 1, ranges[name] - linear[1] - 1
    return None


def _is_nonnegative(value: Size, ranges: Mapping[str, Size], positive: Mapping[str, Size], depth: int = 0) -> bool:
    """Whether a polynomial is at least 0 wherever its names can be; `positive` has for each name its least value plus
    itself: e + 1 for each extent e > 0.
    """
    for monomial, coefficient in value.terms:
        chosen = next((atom for atom in monomial if isinstance(atom, SizeFunction)), None)
        if chosen is None:
            continue
        if chosen.function in ("floordiv", "mod"):
            bound = _of_small_index(chosen, ranges)
            if bound is None:
                continue  # it does not change in the loops
            if len(monomial) > 1 or depth == _DEEPEST:
                return False
            rest = value - Size(((monomial, coefficient),))
            return _is_nonnegative(rest + bound[coefficient < 0] * coefficient, ranges, positive, depth + 1)
        if len(monomial) > 1 or depth == _DEEPEST:
            return False
        rest = value - Size(((monomial, coefficient),))
        sides = (rest + side * coefficient for side in (chosen.left, chosen.right))
        proofs = (_is_nonnegative(one, ranges, positive, depth + 1) for one in sides)
        # The larger of two is as good as either; the smaller one may be each of them.
        return any(proofs) if (chosen.function == "max") == (coefficient > 0) else all(proofs)
    return _least(value, ranges, positive)


def _least(value: Size, ranges: Mapping[str, Size], positive: Mapping[str, Size]) -> bool:
    """Whether the least value over all loop indices is at least 0, without minima and maxima.

    With e + 1 for each positive extent e, where e >= 0 is left, the signs of coefficients tell all.
    """
    while indices := sorted(name for name in value.names if name in ranges):
        name = next((one for one in indices if not any(one in ranges[other].names for other in indices)), "")
        linear = value.coefficient_of(name) if name else None
        if linear is None or not linear[0].names <= positive.keys():
            return False
        slope, rest = linear
        signs = {coefficient > 0 for _, coefficient in slope.substitute(positive).terms}
        if len(signs) != 1:
            return False
        value = rest if True in signs else rest + slope * (ranges[name] - ONE)
    least = _without_divisions(value).substitute(positive)
    return least.names <= positive.keys() and all(coefficient > 0 for _, coefficient in least.terms)


def _of_small_index(division: SizeFunction, ranges: Mapping[str, Size]) -> tuple[int, int] | None:
    """The least and the greatest value of what divides an index by a constant; None if it divides none that is below a
    constant.
    """
    (name,) = division.left.names if len(division.left.names) == 1 else ("",)
    extent = ranges[name].constant if name in ranges and division.left == size(name) else None
    divisor = division.right.constant
    if extent is None or divisor is None or divisor < 1 or extent < 1:
        return None
    last = (extent - 1) // divisor if division.function == "floordiv" else min(extent, divisor) - 1
    return 0, last


def _without_divisions(value: Size) -> Size:
    """A polynomial that is below 0 wherever this one is, without divisions by constants: c * floordiv(x, c) is from
    x - c + 1 to x, and mod(x, c) from 0 to c - 1.
    """
    for monomial, coefficient in value.terms:
        (atom, *others) = monomial or ("",)
        divisor = atom.right.constant if isinstance(atom, SizeFunction) and not others else None
        if not isinstance(atom, SizeFunction) or divisor is None or divisor < 1:
            continue
        rest = value - Size(((monomial, coefficient),))
        if atom.function == "mod":
            return _without_divisions(rest if coefficient > 0 else rest + coefficient * (divisor - 1))
        if atom.function == "floordiv":
            numerator = atom.left - (divisor - 1) if coefficient > 0 else atom.left
            return _without_divisions(rest * divisor + numerator * coefficient)
    return value
