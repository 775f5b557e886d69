"""Small kernels built by hand for the tests of the runtimes."""

from tilewright.ir.scalars import F32, I32, I64, ScalarType
from tilewright.kernel.ir import (
    Barrier,
    BlockIndex,
    Buffer,
    Cast,
    Constant,
    If,
    Kernel,
    Let,
    Name,
    ScalarParameter,
    Space,
    Store,
    ThreadIndex,
    add,
    integer,
    load,
    multiply,
    operation,
)

INDEX = Name("i", I64)
N = Name("n", I64)


def position(threads: int) -> Let:
    """let i = block * threads + thread."""
    block_start = multiply(BlockIndex(I64), integer(threads))
    return Let("i", add(block_start, ThreadIndex(I64)))


def guarded(*statements: Store) -> If:
    """if (i < n) statements."""
    return If(operation("lt", INDEX, N), statements)


def scale_kernel(name: str = "scale", threads: int = 64, alignment: int = 0) -> Kernel:
    """y[i] = factor * x[i] for i < n."""
    x = Buffer("x", F32, read_only=True, alignment=alignment)
    y = Buffer("y", F32)
    value = operation("mul", Name("factor", F32), load(x, INDEX))
    parameters = (ScalarParameter("n", I64), ScalarParameter("factor", F32))
    body = (position(threads), guarded(Store(y, INDEX, value)))
    return Kernel(name, (x, y), parameters, (), body, threads)


def reverse_kernel(threads: int, element: ScalarType = F32, padding: int = 0) -> Kernel:
    """Every block reverses its `threads` elements through shared memory (which has `padding` elements more)."""
    x, y = Buffer("x", element, read_only=True), Buffer("y", element)
    tile = Buffer("tile", element, Space.SHARED, size=threads + padding)
    thread = ThreadIndex(I64)
    mirrored = operation("sub", integer(threads - 1), thread)
    body = (position(threads), Store(tile, thread, load(x, INDEX)), Barrier(), Store(y, INDEX, load(tile, mirrored)))
    return Kernel("reverse", (x, y), (), (tile,), body, threads)


def constant_kernel(value: float) -> Kernel:
    """y[0] = value."""
    y = Buffer("y", F32)
    return Kernel("constant", (y,), (), (), (Store(y, integer(0), Constant(value, F32)),), 1)


def scalar_kernel(type_: ScalarType) -> Kernel:
    """y[0] = the scalar, of its own type, with an i32 before and an i64 behind it that must arrive too."""
    y = Buffer("y", type_)
    total = Buffer("total", I64)
    before = Name("before", I32)
    body = (
        Store(y, integer(0), Name("value", type_)),
        Store(total, integer(0), add(Cast(before, I64), Name("behind", I64))),
    )
    parameters = (ScalarParameter("before", I32), ScalarParameter("value", type_), ScalarParameter("behind", I64))
    return Kernel(f"scalar_{type_}", (y, total), parameters, (), body, 1)


SCALAR_SAMPLES = {
    "bool": True, "i8": -100, "i16": -30000, "i32": -(2**31), "i64": 2**62 + 1,
    "u8": 200, "u16": 60000, "u32": 2**32 - 1, "u64": 2**64 - 1, "f32": 1.25, "f64": 1e300,
}  # fmt: skip
