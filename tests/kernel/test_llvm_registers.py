"""Operators that change nothing give the register of their operand, which keeps its name: it may be used again."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_support import run

from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import BOOL, F32, F64, I32, I64, U8, U32, U64, ScalarType
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Let, Name, Operation, Statement, Store, VectorType, load
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import device_for

TYPES = (BOOL, U8, U32, U64, I32, I64, F32, F64)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_an_operand_is_used_after_an_operator(type_: ScalarType, lanes: int) -> None:
    """Each operator in a kernel of its own, on an element that has just been loaded and is stored after it."""
    values = np.arange(lanes).astype(type_.numpy)
    held = VectorType(type_, lanes) if lanes > 1 else type_
    for name, operator in OPERATORS.items():
        if type_.kind not in operator.kinds or name == "select":
            continue
        made = result_type(name, (type_,) * operator.arity)
        x, same, found = Buffer("x", type_, read_only=True), Buffer("same", type_), Buffer("found", made)
        operands = (Name("e", held),) * operator.arity
        result = VectorType(made, lanes) if lanes > 1 else made
        body: tuple[Statement, ...] = (
            Let("e", load(x, BlockIndex(), lanes)),
            Let("t", Operation(name, operands, result)),
            Store(same, BlockIndex(), Name("e", held)),
            Store(found, BlockIndex(), Name("t", result)),
        )
        outputs = [np.ones(lanes, type_.numpy), np.ones(lanes, made.numpy)]
        run(Kernel("operator", (x, same, found), (), (), body), [values, *outputs])
        np.testing.assert_array_equal(outputs[0], values, err_msg=name)
        with np.errstate(all="ignore"):
            expected = operator.meaning(*(values,) * operator.arity)
        np.testing.assert_allclose(outputs[1], expected, rtol=1e-5, err_msg=name)


def test_the_size_of_an_unsigned_number() -> None:
    """Found by a random program: LLVM was asked for a value that had got the name of its size."""
    program = parse_program("""\
def sizes (xs: [n]u32) =
  let (ys: [n]u32) = map n (\\(x: u32) -> let (y: u32) = abs(x) let (z: u32) = y * x in (z)) xs
  in (ys)
""")
    xs = np.arange(5, dtype=np.uint32)
    np.testing.assert_array_equal(compile_program(program, device_for("cpu"))(xs), xs * xs)
