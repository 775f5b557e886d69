"""Copies that are gathered in tiles ask for every line of the next tile before its turn."""

from dataclasses import replace

import numpy as np
import pytest
from permute_support import SMALL_CACHES
from test_permute_ahead import marked

from tilewright.ir.scalars import F32, F64, U8
from tilewright.kernel.ir import Buffer
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.kernel import permute_launch
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import argument_block
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.memory import aligned_empty

PAST = replace(SMALL_CACHES[0], l2_bytes=1 << 16)


@pytest.mark.parametrize(
    ("element", "shape", "order"),
    [
        (F32, (40, 96, 80), (0, 2, 1)),
        (F32, (13, 97, 83), (0, 2, 1)),
        (F32, (24, 28, 12, 10, 32), (4, 2, 1, 3, 0)),
        (F32, (300, 290, 3), (1, 0, 2)),
        (U8, (400, 320, 3), (1, 0, 2)),
        (F64, (400, 200, 3), (1, 0, 2)),
    ],
)
def test_every_line_of_the_next_tile_is_asked_for(element, shape, order):
    count = int(np.prod(shape))
    source = aligned_empty((count,), np.dtype(f"u{element.bytes}"))
    target = aligned_empty((count,), source.dtype)
    seen = np.zeros(count + 2, np.uint8)
    view = np.zeros(shape, np.uint8).transpose(order)
    steps = np.zeros(view.shape, np.uint8).strides
    assert permute_form(element, view.shape, view.strides, steps, PAST).tile is not None
    launch = permute_launch(element, view.shape, view.strides, steps, (0, 0), PAST)
    asked = Buffer("asked", U8)
    code = replace(
        launch.kernel, buffers=(*launch.kernel.buffers, asked), body=marked(launch.kernel.body, asked, count)
    )
    block = argument_block(code, launch.scalars)
    block[0], block[1], block[2] = source.ctypes.data, target.ctypes.data, seen.ctypes.data
    cpu_pool.launch(compile_for_cpu(code), block, launch.blocks, 1)
    lines = np.resize(seen[1:-1], -(-count * element.bytes // 64) * 64 // element.bytes)
    assert lines.reshape(-1, 64 // element.bytes).any(axis=1).all()


def test_a_part_is_asked_for_beside_the_squares():
    view = np.zeros((13, 97, 83), np.uint8).transpose(0, 2, 1)
    launch = permute_launch(F32, view.shape, view.strides, np.zeros(view.shape, np.uint8).strides, (0, 0), PAST)
    values = list(zip((one.name for one in launch.kernel.scalars), launch.scalars, strict=True))
    early, total = (next(value for name, value in values if name.startswith(hint)) for hint in ("early", "total"))
    assert 0 < early < total
