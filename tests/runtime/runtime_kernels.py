"""Small kernels built by hand for the tests of the runtimes."""

from tilewright.ir.scalars import F32, I32, I64, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Name, add, integer, load, multiply, operation

INDEX = Name("i", I64)
N = Name("n", I64)


def position(threads: int) -> ir.Let:
    """let i = block * threads + thread."""
    block_start = multiply(ir.BlockIndex(I64), integer(threads))
    return ir.Let("i", add(block_start, ir.ThreadIndex(I64)))


def guarded(*statements: ir.Store) -> ir.If:
    """if (i < n) statements."""
    return ir.If(operation("lt", INDEX, N), statements)


def scale_kernel(name: str = "scale", threads: int = 64, alignment: int = 0) -> ir.Kernel:
    """y[i] = factor * x[i] for i < n."""
    x = Buffer("x", F32, read_only=True, alignment=alignment)
    y = Buffer("y", F32)
    value = operation("mul", Name("factor", F32), load(x, INDEX))
    parameters = (ir.ScalarParameter("n", I64), ir.ScalarParameter("factor", F32))
    body = (position(threads), guarded(ir.Store(y, INDEX, value)))
    return ir.Kernel(name, (x, y), parameters, (), body, threads)


def reverse_kernel(threads: int, element: ScalarType = F32, padding: int = 0) -> ir.Kernel:
    """Every block reverses its `threads` elements through shared memory (which has `padding` elements more)."""
    x, y = Buffer("x", element, read_only=True), Buffer("y", element)
    tile = Buffer("tile", element, ir.Space.SHARED, size=threads + padding)
    thread = ir.ThreadIndex(I64)
    mirrored = operation("sub", integer(threads - 1), thread)
    body = (
        position(threads),
        ir.Store(tile, thread, load(x, INDEX)),
        ir.Barrier(),
        ir.Store(y, INDEX, load(tile, mirrored)),
    )
    return ir.Kernel("reverse", (x, y), (), (tile,), body, threads)


def constant_kernel(value: float) -> ir.Kernel:
    """y[0] = value."""
    y = Buffer("y", F32)
    return ir.Kernel("constant", (y,), (), (), (ir.Store(y, integer(0), Constant(value, F32)),), 1)


def scalar_kernel(type_: ScalarType) -> ir.Kernel:
    """y[0] = the scalar, of its own type, with an i32 before and an i64 behind it that must arrive too."""
    y = Buffer("y", type_)
    total = Buffer("total", I64)
    before = Name("before", I32)
    body = (
        ir.Store(y, integer(0), Name("value", type_)),
        ir.Store(total, integer(0), add(ir.Cast(before, I64), Name("behind", I64))),
    )
    parameters = (
        ir.ScalarParameter("before", I32),
        ir.ScalarParameter("value", type_),
        ir.ScalarParameter("behind", I64),
    )
    return ir.Kernel(f"scalar_{type_}", (y, total), parameters, (), body, 1)


SCALAR_SAMPLES = {
    "bool": True, "i8": -100, "i16": -30000, "i32": -(2**31), "i64": 2**62 + 1,
    "u8": 200, "u16": 60000, "u32": 2**32 - 1, "u64": 2**64 - 1, "f32": 1.25, "f64": 1e300,
}  # fmt: skip
