"""Products whose sums are in tiles: every layout, type and length, several pieces, padding, results of all kinds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import Case, cases, run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers
from test_packed_dots import BYTES, HOST, LAYOUTS, cut, narrowed, run_halves

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import BF16, F32, I32, ScalarType
from tilewright.kernel.tiles import TileMultiply
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_TILES
from tilewright.passes.packed import choice
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

SMALL_CACHES = replace(CPU_TILES, l1_bytes=1 << 10, l2_bytes=1 << 14, l3_bytes=1 << 16)
SHAPES = [(2, 32), (1, 48), (3, 16), (1, 16), (2, 16), (1, 32)]

needs_tiles = pytest.mark.skipif(
    HOST.tiles != ("bf16", "i8"), reason="this processor has no tiles, or may not use them"
)


def tiles_of(contraction: Contraction, machine: Machine, shape: tuple[int, int] | None = None) -> PackedForm:
    """The form in tiles, of this shape and for however few results, if the types have such."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "shape_in_tiles", lambda totals, steps, machine: (0.0, shape or (2, 32)))
        return make_packed_form(normalise(contraction), machine)


def uses_tiles(form: PackedForm) -> bool:
    used = any(isinstance(one, TileMultiply) for one in walk(write_packed_kernel(form).kernel.body))
    assert used == form.in_tiles
    return used


# --- all layouts ------------------------------------------------------------------------------------------------------


@needs_tiles
@settings(max_examples=examples(60))
@given(case=cases(I32, "plus_times"), types=st.sampled_from(BYTES), data=st.data())
def test_any_contraction_of_bytes(case: Case, types: tuple[ScalarType, ScalarType], data: st.DataObject) -> None:
    contraction = narrowed(case.contraction, *types)
    machine, shape = data.draw(st.sampled_from([CPU_TILES, SMALL_CACHES])), data.draw(st.sampled_from(SHAPES))
    form = cut(tiles_of(contraction, machine, shape), data)
    buffers = random_buffers(contraction, case.seed)
    got = run_cpu(write_packed_kernel(form), buffers, case.scalars, threads=3)
    assert_close(contraction, got, buffers, case.scalars)


@needs_tiles
@settings(max_examples=examples(60))
@given(case=cases(F32, "plus_times"), data=st.data())
def test_any_contraction_of_bf16(case: Case, data: st.DataObject) -> None:
    machine, shape = data.draw(st.sampled_from([CPU_TILES, SMALL_CACHES])), data.draw(st.sampled_from(SHAPES))
    form = tiles_of(narrowed(case.contraction, BF16, BF16), machine, shape)
    run_halves(case.contraction, cut(form, data), case.buffers(), case.scalars)


@pytest.mark.parametrize("text", LAYOUTS[:-1])
@pytest.mark.parametrize("length", [64, 127, 129, 1500])
@needs_tiles
def test_bytes_of_each_layout(text: str, length: int) -> None:
    for left, right in BYTES:
        dense = einsum_contraction(text, dict(a=37, b=75, c=3, p=2, q=length), I32)
        contraction = narrowed(dense, left, right)
        form = tiles_of(contraction, SMALL_CACHES)
        assert uses_tiles(form)
        buffers = random_buffers(contraction, length)
        assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})


@pytest.mark.parametrize("text", LAYOUTS[:-1])
@pytest.mark.parametrize("length", [32, 63, 65, 1500])
@needs_tiles
def test_bf16_of_each_layout(text: str, length: int) -> None:
    dense = einsum_contraction(text, dict(a=80, b=96, c=3, p=2, q=length), F32)
    for machine in (CPU_TILES, SMALL_CACHES):
        form = tiles_of(narrowed(dense, BF16, BF16), machine)
        assert uses_tiles(form)
        run_halves(dense, form, random_buffers(dense, length))
