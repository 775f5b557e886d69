"""The packed form in whole programs: work is shared out among the threads that may be used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive import einsum_contraction

import tilewright as tw
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import MESH, TWO_MULTIPLY_ADDS, Pace
from tilewright.passes.packed.choice import make_packed_form
from tilewright.runtime import cpu_pool

SIZE = 300


@pytest.mark.parametrize("threads", [1, 2, 5], indirect=True)
def test_as_many_blocks_as_threads_need(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread packs each side once; several get several blocks each, and all compute the same."""
    blocks: list[int] = []
    prepare = cpu_pool.prepare

    def prepared(native, arguments, count, *rest, **named):  # type: ignore[no-untyped-def]
        blocks.append(count)
        return prepare(native, arguments, count, *rest, **named)

    monkeypatch.setattr(cpu_pool, "prepare", prepared)
    generator = np.random.default_rng(threads)
    left, right = generator.random((SIZE, SIZE)), generator.random((SIZE, SIZE))
    got = tw.einsum("ij,jk->ik", left, right, out=np.empty((SIZE, SIZE)))
    bound = (SIZE + 2) * np.finfo(np.float64).eps
    np.testing.assert_allclose(got, left @ right, rtol=2 * bound)
    assert blocks
    assert max(blocks) == 1 if threads == 1 else max(blocks) >= threads


@pytest.mark.parametrize(("expression", "sizes", "scalar", "parts"), [
    ("dca,cbd->ba", {"a": 200, "b": 188, "c": 188, "d": 200}, F64, 1),  # 60 MB are read in place by each part
    ("ij,jk->ik", dict.fromkeys("ijk", 1024), F32, 4),  # 4 MB are
])  # fmt: skip
def test_what_comes_from_memory_is_read_by_one_part(
    expression: str, sizes: dict[str, int], scalar: ScalarType, parts: int
) -> None:
    """On two threads of an Emerald Rapids seven parts of 32 columns were slower than one thread."""
    machine = replace(CPU_AVX512, cores=2, pace=MESH, l2_bytes=2 << 20, l3_bytes=48 << 20)
    form = make_packed_form(normalise(einsum_contraction(expression, sizes, scalar)), machine)
    assert form.scalar_rows
    assert form.scalar_in_place
    assert -(-sizes[expression[-1]] // form.vector_block) == parts


@pytest.mark.parametrize(("pace", "bytes_"), [(MESH, 0.6), (TWO_MULTIPLY_ADDS, 1.0)])
def test_panels_leave_room_for_those_that_are_asked_for(pace: Pace, bytes_: float) -> None:
    """On an Emerald Rapids `ceda,dbe->cba` is 1.1 times as fast with panels of a quarter of the second cache."""
    machine = replace(CPU_AVX512, cores=1, pace=pace, l2_bytes=2 << 20, l3_bytes=48 << 20)
    form = make_packed_form(normalise(einsum_contraction("ceda,dbe->cba", dict.fromkeys("abcde", 72), F32)), machine)
    scalar = 72 * form.depth * 4
    assert form.far and form.vector_block * form.depth * 4 <= bytes_ * ((1 << 20) - scalar / 2)
    assert (form.vector_block * form.depth * 4 > 0.6 * ((1 << 20) - scalar / 2)) == (bytes_ > 0.6)
