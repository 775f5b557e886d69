"""Pieces of an operand that are asked for in runs: which forms do so, and that results are right at all ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.passes.direct import choice
from tilewright.passes.direct.form import DirectForm, Results


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1024, 1031, 2111])
def test_tiles_that_ask_for_the_next_piece(monkeypatch: pytest.MonkeyPatch, dtype: Any, columns: int) -> None:
    asked: list[bool] = []
    plain, has_registers = choice._in_pieces, host_machine().vector_registers >= 32

    def far(form: DirectForm, machine: Machine) -> DirectForm:
        if has_registers:  # the tile that this host would choose may be too narrow
            wide = form.lanes[:1] * choice.PIECE_VECTORS
            form = replace(form, lanes=wide, rows=4, rows_first=False, scalar_outer=False, prefetched=True)
        found = plain(form, machine)
        asked.append(found.in_runs and found.collected is None and len(found.lanes) == choice.PIECE_VECTORS)
        return found

    monkeypatch.setattr(choice, "APART", 1 << 10)
    monkeypatch.setattr(choice, "level_of", lambda size, machine: 4)
    monkeypatch.setattr(choice, "_in_pieces", far)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((3, 9, columns)).astype(dtype), rng.standard_normal((20, 9)).astype(dtype)
    found = tw.einsum("xky,zk->xzy", a, b)
    assert np.allclose(found, np.einsum("xky,zk->xzy", a, b), rtol=1e-4, atol=1e-4)
    assert columns < 1031 or asked == [has_registers]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_that_ask_for_the_next_piece_are_turned_in_squares(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Twenty rows were shared out equally among four tiles of five, which no square of registers has."""
    if host_machine().vector_registers < 32:
        pytest.skip("four vectors for each of four rows need more than sixteen registers")
    chosen: list[DirectForm] = []
    plain, every = choice._in_pieces, choice.direct_forms

    def turned(contraction: Contraction, machine: Machine) -> list[DirectForm]:
        return [one for one in every(contraction, machine) if one.results is Results.TURNED and len(one.lanes) >= 4]

    def remembered(form: DirectForm, machine: Machine) -> DirectForm:
        chosen.append(plain(form, machine))
        return chosen[-1]

    monkeypatch.setattr(choice, "APART", 1 << 10)
    monkeypatch.setattr(choice, "level_of", lambda size, machine: 4)
    monkeypatch.setattr(choice, "direct_forms", turned)
    monkeypatch.setattr(choice, "_in_pieces", remembered)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((3, 44, 1031)).astype(dtype), rng.standard_normal((20, 44)).astype(dtype)
    found = tw.einsum("afc,df->acd", a, b)
    assert np.allclose(found, np.einsum("afc,df->acd", a, b), rtol=1e-4, atol=1e-4)
    assert [form.results for form in chosen] == [Results.TURNED]
    assert chosen[0].rows in (4, 8, 16) and chosen[0].rows <= min(chosen[0].lanes)
