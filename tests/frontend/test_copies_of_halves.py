"""Copies of f16 and bf16 move their elements as they are; through f32 they were written one by one."""

import numpy as np
import pytest

from tilewright.frontend.einsum import einsum
from tilewright.frontend.einsum_parse import EinsumSpec
from tilewright.frontend.einsum_program import Epilogue, einsum_program
from tilewright.ir.nodes import Cast
from tilewright.ir.scalars import BF16, F16, F32
from tilewright.ir.traversal import all_statements

TURNED = EinsumSpec(((0, 1),), (1, 0))
SUMMED = EinsumSpec(((0, 1),), (0,))


@pytest.mark.parametrize(
    ("spec", "element", "options", "converted"),
    [
        (TURNED, F16, {}, False),
        (TURNED, BF16, {}, False),
        (TURNED, F16, {"out": F32}, True),
        (TURNED, F16, {"epilogue": Epilogue(function=lambda x: x * x)}, True),
        (SUMMED, F16, {}, True),
    ],
)
def test_only_what_is_computed_is_converted(spec, element, options, converted):
    program = einsum_program(spec, [element], element, **options)
    assert any(isinstance(one.expression, Cast) for one in all_statements(program.body)) == converted


@pytest.mark.parametrize("expression", ["ij->ji", "ii->i", "i->ii"])
def test_copies_keep_every_bit(expression):
    bits = np.random.default_rng(0).integers(0, 2**16, (48, 48), dtype=np.uint16)
    bits = np.where((bits & 0x7C00 == 0x7C00) & (bits & 0x3FF != 0), bits | 0x200, bits)  # quiet NaNs
    given = bits[0] if expression == "i->ii" else bits
    wanted = {"ij->ji": bits.T, "ii->i": np.diagonal(bits), "i->ii": np.diag(bits[0])}[expression]
    out = np.ones(wanted.shape, np.float16)
    einsum(expression, np.ascontiguousarray(given).view(np.float16), out=out)
    assert np.array_equal(out.view(np.uint16), wanted)
