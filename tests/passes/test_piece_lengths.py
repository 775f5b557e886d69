"""How long pieces are that tiles ask for in runs, and which tiles do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from naive import einsum_contraction

import tilewright as tw
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import TWO_MULTIPLY_ADDS
from tilewright.passes.direct import choice
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.next_pieces import HELD_BYTES, PIECE_BYTES, tiles_of_piece

MACHINE = replace(
    CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, pace=TWO_MULTIPLY_ADDS
)  # fmt: skip


def form_of(text: str, scalar: ScalarType, **sizes: int) -> DirectForm:
    found = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), MACHINE)
    assert not isinstance(found, str)
    return found[0]


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_all_steps_of_a_piece_are_held_together(scalar: ScalarType) -> None:
    form = form_of("aeb,ce->acb", scalar, a=72, e=72, b=5184, c=24)
    assert form.in_runs and (len(form.lanes), form.rows) == (3, 8)
    width = form.width * scalar.bytes
    assert 0 < tiles_of_piece(form) * width * 72 <= HELD_BYTES < (tiles_of_piece(form) + 1) * width * 72
    short = form_of("aeb,ce->acb", scalar, a=500, e=12, b=12288, c=20)
    assert short.in_runs and tiles_of_piece(short) * short.width * scalar.bytes <= PIECE_BYTES


def test_tiles_compute_few_rows_twice() -> None:
    form = form_of("afb,df->adb", F32, a=44, f=44, b=34496, d=20)
    assert form.in_runs and (len(form.lanes), form.rows) == (4, 5)


def test_sums_for_many_rows_hide_the_wait() -> None:
    assert not form_of("aeb,ce->acb", F32, a=72, e=72, b=5184, c=72).in_runs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1024, 1031, 2111])
@pytest.mark.parametrize("steps", [9, 72, 300])
def test_results_are_right(monkeypatch: pytest.MonkeyPatch, dtype: Any, columns: int, steps: int) -> None:
    monkeypatch.setattr(choice, "APART", 1 << 10)
    monkeypatch.setattr(choice, "level_of", lambda size, machine: 4)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, steps, columns)).astype(dtype), rng.standard_normal((24, steps)).astype(dtype)
    assert np.allclose(tw.einsum("xky,zk->xzy", a, b), np.einsum("xky,zk->xzy", a, b), rtol=1e-3, atol=1e-3)
