"""Products of tiles: one instruction of x86 each (AMX).

bf16 * bf16, added to f32            TDPBF16PS                               (AMX_BF16)
i8 or u8 * i8 or u8, added to 32 bits  TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD    (AMX_INT8)

All tiles have their full size. What configures them belongs to the thread, so each call of a kernel that has some
configures them where it begins, and gives them back where it ends: then the system need not save them.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.scalars import BF16, I8, U8, ScalarType
from tilewright.kernel.ir import Buffer, Expression
from tilewright.kernel.llvm_emitter import Emitter
from tilewright.kernel.tiles import COUNT, LANES, ROWS, TileLoad, TileMultiply, TileStore, TileZero

_INSTRUCTIONS: dict[tuple[ScalarType, ScalarType], tuple[str, str]] = {
    (BF16, BF16): ("tdpbf16ps", "amx-bf16"),
    (I8, I8): ("tdpbssd", "amx-int8"),
    (I8, U8): ("tdpbsud", "amx-int8"),
    (U8, I8): ("tdpbusd", "amx-int8"),
    (U8, U8): ("tdpbuud", "amx-int8"),
}
_SHAPES = "@.tiles"
_ROW_BYTES = LANES * 4


def emit_tiles(
    emitter: Emitter,
    statement: TileZero | TileLoad | TileStore | TileMultiply,
    address: Callable[[Buffer, Expression], str],
    emit: Callable[[Expression], str],
) -> None:
    """Print a statement on tiles; `address` prints where an element of a buffer lies, `emit` any other expression.

    Raises:
        TypeError: if the processor has no such tiles, or no instruction for the elements.
        ValueError: if there is no tile of a number.
    """
    emitter.has_tiles = True
    if not (emitter.target.is_x86 and emitter.target.has("amx-tile")):
        raise TypeError("this processor has no tiles")
    match statement:
        case TileZero(tile=tile):
            _call(emitter, "tilezero", [_number(tile)])
        case TileMultiply(total=total, first=first, second=second, elements=elements):
            name, feature = _INSTRUCTIONS.get(elements, ("", "of no processor"))
            if not emitter.target.has(feature):
                raise TypeError(f"no instruction adds products of {elements[0]} and {elements[1]} in tiles here")
            _call(emitter, name, [_number(one) for one in (total, first, second)])
        case TileLoad(tile=tile) | TileStore(tile=tile):
            place = address(statement.buffer, statement.index)
            pitch = emitter.emit(f"mul i64 {emit(statement.pitch)}, {statement.buffer.element.bytes}")
            name = "tilestored64"
            if isinstance(statement, TileLoad):
                name = "tileloaddt164" if statement.once else "tileloadd64"
            _call(emitter, name, [_number(tile), ("ptr", place), ("i64", pitch)])


def configure_tiles(emitter: Emitter) -> None:
    """Configure tiles where the function begins, and give them back here, where it ends."""
    # The palette and 15 reserved bytes; bytes of a row of each of 16 tiles, as 16 bits; rows of each of 16 tiles.
    none = 16 - COUNT
    shapes = [1, *[0] * 15, *[_ROW_BYTES, 0] * COUNT, *[0, 0] * none, *[ROWS] * COUNT, *[0] * none]
    listed = ", ".join(f"i8 {one}" for one in shapes)
    emitter.declarations[_SHAPES] = f"{_SHAPES} = private unnamed_addr constant [64 x i8] [{listed}], align 64"
    emitter.declarations["llvm.x86.ldtilecfg"] = "declare void @llvm.x86.ldtilecfg(ptr)"
    emitter.allocations.append(f"  call void @llvm.x86.ldtilecfg(ptr {_SHAPES})")
    _call(emitter, "tilerelease", [])


def _number(tile: int) -> tuple[str, str]:
    if not 0 <= tile < COUNT:
        raise ValueError(f"there are tiles 0 to {COUNT - 1}, and no tile {tile}")
    return "i8", str(tile)


def _call(emitter: Emitter, name: str, arguments: list[tuple[str, str]]) -> None:
    marks = ["i8 immarg" if type_ == "i8" else type_ for type_, _ in arguments]
    emitter.declarations[f"llvm.x86.{name}"] = f"declare void @llvm.x86.{name}({', '.join(marks)})"
    listed = ", ".join(f"{type_} {value}" for type_, value in arguments)
    emitter.effect(f"call void @llvm.x86.{name}({listed})")
