"""Copies straight from registers ask for every line of the next tile before its turn."""

from dataclasses import replace

import numpy as np
import pytest
from permute_support import SMALL_CACHES

from tilewright.ir.scalars import F32, F64, U8, U16
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, add, integer, operation
from tilewright.kernel.traversal import bodies, walk, with_bodies
from tilewright.machine.paces import MESH
from tilewright.passes.permute.kernel import permute_launch
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.memory import aligned_empty

PAST = replace(SMALL_CACHES[0], l2_ways=16)


def marked(body, asked, count):
    """The statements, with a mark in `asked` in place of each prefetch; what lies outside is one more word."""
    found = []
    for one in body:
        if isinstance(one, kernel.Prefetch):
            at = operation("min", operation("max", add(one.index, integer(1)), integer(0)), integer(count + 1))
            found.append(kernel.Store(asked, at, kernel.Constant(1, U8)))
        else:
            found.append(with_bodies(one, tuple(marked(inner, asked, count) for inner in bodies(one))))
    return tuple(found)


@pytest.mark.parametrize("pace", [PAST.pace, replace(MESH, held=0)], ids=["", "mesh"])
@pytest.mark.parametrize(
    ("element", "shape", "order"),
    [
        (F32, (512, 1024), (1, 0)),  # a part of a row for each square
        (F32, (512, 1040), (1, 0)),  # of which there are more than a square has lanes
        (F32, (16, 16, 16, 16, 16), (4, 3, 2, 1, 0)),
        (F32, (24, 28, 24, 32), (3, 1, 2, 0)),  # rows of fewer lines
        (U16, (256, 2048), (1, 0)),
        (U8, (1088, 1984), (1, 0)),
        (F64, (512, 520), (1, 0)),
    ],
)
def test_every_line_is_asked_for(element, shape, order, pace):
    count = int(np.prod(shape))
    source = aligned_empty((count,), np.dtype(f"u{element.bytes}"))
    target = aligned_empty((count,), source.dtype)
    seen = np.zeros(count + 2, np.uint8)
    view = np.zeros(shape, np.uint8).transpose(order)
    steps = np.zeros(view.shape, np.uint8).strides
    launch = permute_launch(element, view.shape, view.strides, steps, (0, 0), replace(PAST, pace=pace))
    asked = Buffer("asked", U8)
    code = launch.kernel
    assert source.ctypes.data % 64 == 0
    assert any(isinstance(one, kernel.Prefetch) for one in walk(code.body))
    code = replace(code, buffers=(*code.buffers, asked), body=marked(code.body, asked, count))
    block = argument_block(code, launch.scalars)
    block[0], block[1], block[2] = source.ctypes.data, target.ctypes.data, seen.ctypes.data
    cpu_pool.launch(compile_for_cpu(code), block, launch.blocks, 1)
    lines = seen[1:-1].reshape(-1, 64 // element.bytes).any(axis=1)
    assert lines.all()  # the last tile asks for the first one
