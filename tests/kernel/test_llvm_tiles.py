"""Statements on tiles as LLVM: which instructions, what configures them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_llvm_dots import assembly

from tilewright.ir.scalars import BF16, F32, I8, I32, U8, U32, ScalarType
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, add, integer
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.opencl import opencl_text
from tilewright.kernel.tiles import LANES, TileLoad, TileMultiply, TileStore, TileZero
from tilewright.machine.processors import named_processor
from tilewright.report.kernel_text import kernel_text

PROCESSOR = named_processor("sapphirerapids")
TARGET = CpuTarget(PROCESSOR.triple, PROCESSOR.name, PROCESSOR.features)


def kernel(elements: tuple[ScalarType, ScalarType], total: ScalarType, tile: int = 0) -> Kernel:
    """The product of two tiles for each block, of which the first lies in rows of 128 lanes."""
    x, y, sums = Buffer("x", U32, read_only=True), Buffer("y", U32, read_only=True), Buffer("sums", total)
    at = BlockIndex()
    body = (
        TileZero(tile),
        TileLoad(4, x, at, integer(128)),
        TileLoad(6, y, add(at, integer(16)), integer(LANES), once=True),
        TileMultiply(tile, 4, 6, elements),
        TileStore(tile, sums, at, integer(LANES)),
    )
    return Kernel("tiles", (x, y, sums), (), (), body)


@pytest.mark.parametrize(
    ("elements", "total", "instruction"),
    [((BF16, BF16), F32, "tdpbf16ps"), ((I8, I8), I32, "tdpbssd"), ((I8, U8), I32, "tdpbsud"),
     ((U8, I8), U32, "tdpbusd"), ((U8, U8), U32, "tdpbuud")],
)  # fmt: skip
def test_one_instruction(elements: tuple[ScalarType, ScalarType], total: ScalarType, instruction: str) -> None:
    text = assembly(llvm_text(kernel(elements, total), TARGET), TARGET)
    for name in (instruction, "ldtilecfg", "tilezero", "tileloadd", "tileloaddt1", "tilestored"):
        assert text.count(f"\t{name}\t") == 1, name
    assert text.count("\ttilerelease") == 1


def test_the_text(golden: Callable[[str, str], None]) -> None:
    golden("kernel/tiles.ll", llvm_text(kernel((BF16, BF16), F32), TARGET))
    golden("kernel/tiles.txt", kernel_text(kernel((BF16, BF16), F32)))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="there are tiles 0 to 7, and no tile 8"):
        llvm_text(kernel((BF16, BF16), F32, tile=8), TARGET)
    with pytest.raises(TypeError, match="no instruction adds products of i8 and bf16 in tiles here"):
        llvm_text(kernel((I8, BF16), F32), TARGET)
    with pytest.raises(TypeError, match="this processor has no tiles"):
        llvm_text(kernel((I8, I8), I32), CpuTarget(TARGET.triple, TARGET.name, PROCESSOR.without_tiles().features))
    half = CpuTarget(TARGET.triple, TARGET.name, TARGET.features.replace("+amx-int8", "-amx-int8"))
    with pytest.raises(TypeError, match="no instruction adds products of i8 and i8 in tiles here"):
        llvm_text(kernel((I8, I8), I32), half)
    with pytest.raises(TypeError, match="there are tiles in CPU kernels only"):
        opencl_text(kernel((I8, I8), I32))
