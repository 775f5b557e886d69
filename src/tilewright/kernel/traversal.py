"""What a kernel is made of: the parts of its expressions and statements, and all of its statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tilewright.kernel import ir
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.ir import Constant, Expression, Load, Name, Statement, Store

_WITH_BODIES = frozenset({ir.For, ir.While, ir.If})


def children(expression: Expression) -> tuple[Expression, ...]:
    """The direct subexpressions."""
    match expression:
        case Name() | Constant():  # most are
            return ()
        case ir.Operation(operands=operands) | Bits(operands=operands) | Dot(operands=operands):
            return operands
        case (
            ir.Cast(operand=operand)
            | ir.Broadcast(operand=operand)
            | ir.Lane(operand=operand)
            | ir.AnyLane(operand=operand)
        ):
            return (operand,)
        case Load(index=index, mask=mask):
            return (index,) if mask is None else (index, mask)
        case ir.FirstLanes(count=count):
            return (count,)
        case ir.PackedLanes(operand=operand, mask=mask):
            return (operand, mask)
        case ir.CountLanes(mask=mask):
            return (mask,)
        case ir.Shuffle(first=first, second=second):
            return (first, second)
        case ir.Window(first=first, second=second, begin=begin):
            return (first, second, begin)
        case _:
            return ()


def bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The statement lists directly inside a statement."""
    match statement:
        case ir.For(body=body):
            return (body,)
        case ir.While(prelude=prelude, body=body):
            return (prelude, body)
        case ir.If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case _:
            return ()


def expressions(statement: Statement) -> tuple[Expression, ...]:
    """The expressions directly inside a statement."""
    match statement:
        case ir.Let(value=value) | ir.Declare(value=value) | ir.Assign(value=value) | ir.Prefetch(index=value):
            return (value,)
        case ir.AtomicUpdate(index=index, value=value):
            return (index, value)
        case Store(index=index, value=value, mask=mask):
            return (index, value) if mask is None else (index, value, mask)
        case ir.For(start=start, stop=stop, step=step):
            return (start, stop, step)
        case ir.While(condition=condition) | ir.If(condition=condition):
            return (condition,)
        case _:
            return ()


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements, outside in, in program order."""
    for statement in body:
        yield statement
        for inner in bodies(statement) if type(statement) in _WITH_BODIES else ():
            yield from walk(inner)


def with_bodies(statement: Statement, inner: tuple[tuple[Statement, ...], ...]) -> Statement:
    """The statement with other statement lists directly inside, in the order of `bodies`."""
    match statement:
        case ir.For():
            return replace(statement, body=inner[0])
        case ir.While():
            return replace(statement, prelude=inner[0], body=inner[1])
        case ir.If():
            return replace(statement, then=inner[0], otherwise=inner[1])
        case _:
            return statement


def parts(whole: Iterable[Expression]) -> Iterator[Expression]:
    """Expressions and all that they consist of, outside in."""
    pending = [*whole][::-1]
    while pending:
        one = pending.pop()
        yield one
        pending += children(one)[::-1]


def expressions_in(body: Iterable[Statement]) -> Iterator[Expression]:
    """All expressions of statements and of those inside them."""
    return parts([one for statement in walk(tuple(body)) for one in expressions(statement)])


def depends_on(expression: Expression, names: Collection[str]) -> bool:
    """Whether an expression reads memory, or one of these names."""
    return any(isinstance(one, Load) or (isinstance(one, Name) and one.name in names) for one in parts([expression]))
