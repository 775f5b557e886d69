"""Tests that are the same in all rounds of an innermost loop, which a compiler may take out by copying the loop.

Only there does it pay: a loop around others goes round too rarely, and what it copies is large.
"""

from __future__ import annotations

from tilewright.kernel.ir import Assign, AtomicUpdate, Declare, For, If, Let, Statement, While
from tilewright.kernel.traversal import bodies, depends_on, walk


def has_constant_tests(body: tuple[Statement, ...]) -> bool:
    """Whether there is an innermost loop with such a test.

    Example:
        >>> from tilewright.ir.scalars import I64
        >>> from tilewright.kernel.ir import Name, integer, operation
        >>> def loop(tested):
        ...     test = operation("gt", Name(tested, I64), integer(3))
        ...     return For("i", integer(0), integer(9), (If(test, (Let("a", integer(1)),)),))
        >>> [has_constant_tests((loop(tested),)) for tested in ("n", "i")]
        [True, False]
        >>> has_constant_tests((For("j", integer(0), integer(9), (loop("j"),)),))
        True
    """
    loops = [(one, _inside(one)) for one in walk(body) if isinstance(one, For | While)]
    innermost = [pair for pair in loops if not any(isinstance(one, For | While) for one in pair[1])]
    return any(_tests_what_stays(loop, inside) for loop, inside in innermost)


def _inside(loop: Statement) -> tuple[Statement, ...]:
    return tuple(one for part in bodies(loop) for one in walk(part))


def _tests_what_stays(loop: For | While, inside: tuple[Statement, ...]) -> bool:
    changing = {loop.index} if isinstance(loop, For) else set[str]()
    for one in inside:
        match one:
            case Assign(name=name) | AtomicUpdate(old=name) | Declare(name=name):
                changing.add(name)
            case Let(name=name, value=value) if depends_on(value, changing):
                changing.add(name)
    return any(isinstance(one, If) and not depends_on(one.condition, changing) for one in inside)
