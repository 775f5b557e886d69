"""The kernel language as text, close to what the OpenCL, CUDA and LLVM printers say, without any of their spellings.

>>> from tilewright.ir.scalars import F32
>>> from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Store, load, operation
>>> x = Buffer("x", F32)
>>> double = operation("add", load(x, BlockIndex()), load(x, BlockIndex()))
>>> print(kernel_text(Kernel("double", (x,), (), (), (Store(x, BlockIndex(), double),))))
kernel double, 1 thread per block, indices i64
  global x: f32
do
  x[block] = (x[block] + x[block])
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.kernel import ir
from tilewright.kernel.checks import describe
from tilewright.kernel.ir import Buffer, Constant, Statement
from tilewright.kernel.tiles import TileLoad, TileMultiply, TileStore, TileZero


def kernel_text(kernel: ir.Kernel) -> str:
    """A kernel: its parameters and arrays, then its statements, indented by nesting."""
    threads = "1 thread" if kernel.threads_per_block == 1 else f"{kernel.threads_per_block} threads"
    lines = [f"kernel {kernel.name}, {threads} per block, indices {kernel.index_type}"]
    lines += [f"  {_buffer(one)}" for one in (*kernel.buffers, *kernel.arrays)]
    lines += [f"  scalar {one.name}: {one.type}" for one in kernel.scalars]
    return "\n".join([*lines, "do", *_lines(kernel.body, 1)])


def _buffer(one: Buffer) -> str:
    count = "" if one.size is None else f"[{one.size}]"
    return f"{one.space.value} {one.name}{count}: {one.element}{', read only' if one.read_only else ''}"


def _lines(body: Sequence[Statement], depth: int) -> list[str]:
    lines: list[str] = []
    for statement in body:
        lines += _statement(statement, depth)
    return lines


def _statement(statement: Statement, depth: int) -> list[str]:
    pad = "  " * depth
    match statement:
        case ir.Let(name=name, value=value):
            return [f"{pad}let {name} = {describe(value)}"]
        case ir.Declare(name=name, value=value):
            return [f"{pad}var {name} = {describe(value)}"]
        case ir.Assign(name=name, value=value):
            return [f"{pad}{name} = {describe(value)}"]
        case ir.Store(buffer=buffer, index=index, value=value, nontemporal=past, mask=mask, order=order):
            where = "" if mask is None else f" where {describe(mask)}"
            cache = "  # past the cache" if past else ""
            kind = "" if order is ir.Order.PLAIN else f"{order.value} "
            return [f"{pad}{kind}{buffer.name}[{describe(index)}] = {describe(value)}{where}{cache}"]
        case ir.AtomicUpdate(old=old, operator=operator, buffer=buffer, index=index, value=value):
            return [f"{pad}let {old} = atomic {operator} {buffer.name}[{describe(index)}], {describe(value)}"]
        case ir.Prefetch(buffer=buffer, index=index):
            return [f"{pad}prefetch {buffer.name}[{describe(index)}]"]
        case TileZero(tile=tile):
            return [f"{pad}tile {tile} = zeros"]
        case TileLoad(tile=tile, buffer=buffer, index=index, pitch=pitch):
            return [f"{pad}tile {tile} = {buffer.name}[{describe(index)}], rows {describe(pitch)} apart"]
        case TileStore(tile=tile, buffer=buffer, index=index, pitch=pitch):
            return [f"{pad}{buffer.name}[{describe(index)}], rows {describe(pitch)} apart = tile {tile}"]
        case TileMultiply(total=total, first=first, second=second, elements=(left, right)):
            return [f"{pad}tile {total} += tile {first} of {left} * tile {second} of {right}"]
        case ir.Barrier():
            return [f"{pad}barrier"]
        case ir.Comment(text=text):
            return [f"{pad}# {text}"]
        case ir.For():
            step = (
                "" if isinstance(statement.step, Constant) and statement.step.value == 1 else describe(statement.step)
            )
            by = f" by {step}" if step else ""
            marks = "".join(
                f" {mark}"
                for mark, on in (
                    ("unrolled", statement.unroll),
                    ("independent", statement.independent),
                    ("scalar", statement.scalar),
                )
                if on
            )
            head = f"for {statement.index} from {describe(statement.start)} below {describe(statement.stop)}{by}{marks}"
            return [f"{pad}{head}", *_lines(statement.body, depth + 1)]
        case ir.While(prelude=prelude, condition=condition, body=body):
            return [
                f"{pad}loop",
                *_lines(prelude, depth + 1),
                f"{pad}while {describe(condition)}",
                *_lines(body, depth + 1),
            ]
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            lines = [f"{pad}if {describe(condition)}", *_lines(then, depth + 1)]
            return [*lines, f"{pad}else", *_lines(otherwise, depth + 1)] if otherwise else lines
