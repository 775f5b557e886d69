"""How many elements arrays have whose extents may be below zero, as that of `x[1:-1]` of one element is.

Such an extent counts as 0, so that the number of elements is not always the product of the extents: of two that are
below zero that is a number above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.sizes import ONE, ZERO, Size, SizeAtom, SizeFunction, exact_quotient, maximum, product, size

Natural = Callable[[str], bool]
"""Whether a name is known to be 0 at least."""


def all_natural(_: str) -> bool:
    """Every name is that of a size."""
    return True


def is_natural(extent: Size, natural: Natural = all_natural) -> bool:
    """Whether an extent is known to be 0 at least.

    >>> n, m = size("n"), size("m")
    >>> is_natural(n * m + 2), is_natural(n - 2), is_natural(maximum(n - 2, 0) * m)
    (True, False, True)
    """
    return all(
        coefficient > 0 and all(_is_natural_atom(one, natural) for one in atoms) for atoms, coefficient in extent.terms
    )


def _is_natural_atom(atom: SizeAtom, natural: Natural) -> bool:
    if not isinstance(atom, SizeFunction):
        return natural(atom)
    left, right = (is_natural(one, natural) for one in (atom.left, atom.right))
    return {"max": left or right, "mod": right}.get(atom.function, left and right)


def element_count(shape: Sequence[Size]) -> Size:
    """How many elements an array of this shape has: the product of its extents, if no two of them may be below zero.

    >>> n, m = size("n"), size("m")
    >>> print(element_count((n - 2, m)), "and", element_count((n - 2, m - 2)))
    m*n - 2*m and max(0, m - 2)*max(0, n - 2)
    """
    doubtful = [one for one in shape if not is_natural(one)]
    if len(doubtful) < 2:
        return product(shape)
    return product(maximum(one, ZERO) if one in doubtful else one for one in shape)


def same_count(before: Sequence[Size], after: Sequence[Size], natural: Natural = all_natural) -> bool:
    """Whether arrays of these shapes are known to have equally many elements.

    Extents that both have are left out. Of the others the products are equal, and at most one on each side may be
    below zero: where it is, the product is at most 0 on both sides, so that neither array has an element.

    >>> n, m = size("n"), size("m")
    >>> same_count((n - 2, m), ((n - 2) * m,)), same_count((n - 2, m - 2), ((n - 2) * (m - 2),))
    (True, False)
    >>> same_count((n - 2, m - 2), (element_count((n - 2, m - 2)),))
    True
    """
    left, right = _factors(before, natural), _factors(after, natural)
    for one in list(left):
        if one in right:
            left.remove(one)
            right.remove(one)
    return all(sum(not is_natural(one, natural) for one in side) < 2 for side in (left, right)) and product(
        left
    ) == product(right)


def _factors(shape: Sequence[Size], natural: Natural) -> list[Size]:
    """The extents, products of what is 0 at least taken apart, and e in place of max(0, e)."""
    found: list[Size] = []
    for extent in shape:
        if len(extent.terms) != 1 or not is_natural(extent, natural):
            found.append(extent)
            continue
        ((atoms, coefficient),) = extent.terms
        found += [_inside(one) for one in atoms]
        found += [size(coefficient)] if coefficient != 1 else []
    return found


def _inside(atom: SizeAtom) -> Size:
    if isinstance(atom, SizeFunction) and atom.function == "max" and ZERO in (atom.left, atom.right):
        return atom.right if atom.left == ZERO else atom.left
    return Size((((atom,), 1),))


def left_over(shape: Sequence[Size], others: Sequence[Size]) -> Size | None:
    """The extent that an array of as many elements as one of `shape` has beside `others`, if it can be said.

    >>> n, m = size("n"), size("m")
    >>> print(left_over((n - 2, m - 2), ()), "and", left_over((n - 2, 2 * m), (m,)))
    max(0, m - 2)*max(0, n - 2) and 2*n - 4
    """
    remaining, by = list(shape), list(others)
    for one in others:
        if one in remaining:
            remaining.remove(one)
            by.remove(one)
    total, divisor = element_count(remaining), product(by)
    return total if divisor == ONE else exact_quotient(total, divisor)
