"""Casts that change nothing for LLVM: signed and unsigned integers of one width are one type there."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import device_for

TEXT = """\
def rows (xss: [b][n]f32) =
  let (yss: [b][n][n]SCALAR) = map b (\\(xs: [n]f32) ->
    let (ys: [n][n]SCALAR) = map n (\\(x: f32) ->
      let (zs: [n]SCALAR) = iota n SCALAR
      in (zs)) xs
    in (ys)) xss
  in (yss)
"""


@pytest.mark.parametrize("scalar", ["i64", "u64", "i32", "u32", "u8"])
def test_the_index_of_a_loop_as_an_unsigned_number(scalar: str) -> None:
    """Found by a random program: the register of the loop's index was given the name of the number."""
    program = parse_program(TEXT.replace("SCALAR", scalar))
    verify(program)
    found = compile_program(program, device_for("cpu"))(np.ones((3, 5), np.float32))
    np.testing.assert_array_equal(found, np.broadcast_to(np.arange(5), (3, 5, 5)))
