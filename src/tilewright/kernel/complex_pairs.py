"""The two parts of a complex element read in one access.

let at = i * 2                            let at = i * 2
let re = load b[at]             =>        let pair = load b[at] x2
let im = load b[at + 1]                   let re = pair.0
                                          let im = pair.1
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.scalars import F32, F64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Kernel, Load, Name, Statement, VectorType, add, element_of, load
from tilewright.kernel.traversal import bodies, with_bodies


def paired_complex_loads(kernel: Kernel) -> Kernel:
    """The kernel with the rule above applied wherever real and imaginary part are read one after the other.

    For compilers that would see two strided accesses in place of one of consecutive elements.

    Example:
        >>> from tilewright.ir.scalars import F32, I64
        >>> from tilewright.kernel.ir import Buffer, Let, integer, load, multiply
        >>> b, at = Buffer("b", F32, read_only=True), Name("at", I64)
        >>> first = Let("at", multiply(Name("i", I64), integer(2)))
        >>> parts = Let("re", load(b, at)), Let("im", load(b, add(at, integer(1))))
        >>> [one.name for one in paired_complex_loads(Kernel("k", (b,), (), (), (first, *parts))).body]
        ['at', 're.pair', 're', 'im']
    """
    return replace(kernel, body=_paired(kernel.body))


def _paired(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for statement in body:
        inside = bodies(statement)
        found.append(with_bodies(statement, tuple(map(_paired, inside))))
        if not inside and len(found) >= 3:
            found[-3:] = _pair(found[-3], found[-2], found[-1])
    return tuple(found)


def _pair(place: Statement, first: Statement, second: Statement) -> tuple[Statement, ...]:
    """The three statements, or what takes their place."""
    match place, first, second:
        case (
            ir.Let(name=at, value=ir.Operation(operator="mul", operands=(_, Constant(value=2)), type=counted)),
            ir.Let(name=real, value=Load(buffer=buffer, index=start, mask=None, order=ir.Order.PLAIN)),
            ir.Let(name=imaginary, value=Load(buffer=same, index=there, mask=None, order=ir.Order.PLAIN)),
        ) if start == Name(at, counted) and buffer == same and _holds_parts(buffer):
            if there == add(start, Constant(1, element_of(counted))):
                pair = Name(f"{real}.pair", VectorType(buffer.element, 2))
                parts = (
                    ir.Let(name, ir.Lane(pair, lane, buffer.element)) for lane, name in enumerate((real, imaginary))
                )
                return place, ir.Let(pair.name, load(buffer, start, 2)), *parts
    return place, first, second


def _holds_parts(buffer: Buffer) -> bool:
    return buffer.space is ir.Space.GLOBAL and buffer.element in (F32, F64)
