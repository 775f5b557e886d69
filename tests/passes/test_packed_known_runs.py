"""What sizes and strides say about vectors of the packed form before its kernel is written (runs.py)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.kernel.ir import Load, Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.passes.packed.runs import BROKEN, QUARTERS, WHOLE, possible_marks, runs_of

ONE_CORE = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=1 << 25)


def form_of(text: str, scalar: ScalarType = F32, machine: object = ONE_CORE, **sizes: int) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), machine)  # type: ignore[arg-type]


def marks_found(dimensions: list[tuple[int, int]], unit: int, lanes: int) -> set[int]:
    """The marks of all vectors that begin with multiples of a number, as the kernel finds them."""
    places = itertools.product(*(range(size) for size, _ in dimensions))
    offsets = [sum(i * stride for i, (_, stride) in zip(place, dimensions, strict=True)) for place in places]
    found, quarter = set(), max(1, lanes // 4)
    for start in range(0, len(offsets) - lanes + 1, unit):
        breaks = [lane for lane in range(1, lanes) if offsets[start + lane] - offsets[start + lane - 1] != 1]
        found.add(WHOLE if not breaks else QUARTERS if all(lane % quarter == 0 for lane in breaks) else BROKEN)
    return found


@settings(max_examples=examples(200))
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 20]), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=3, max_size=3),
    unit=st.sampled_from([1, 2, 4, 8, 12, 16]),
    lanes=st.sampled_from([4, 8, 16]),
)
def test_no_vector_is_more_broken_than_was_said(sizes: list[int], steps: list[int], unit: int, lanes: int) -> None:
    """Code for the least mark serves those above it; the marks that were said are those of some sizes at least."""
    dimensions: list[tuple[int, int]] = []
    stride = 1
    for size, step in zip(sizes, steps, strict=False):
        stride *= step
        dimensions.insert(0, (size, stride))
        stride *= size
    said, found = possible_marks(dimensions, unit, lanes), marks_found(dimensions, unit, lanes)
    assert not found or min(said) <= min(found)
    if all(step == 1 for step in steps[: len(sizes)]):
        assert said == {WHOLE}
    if BROKEN in said and len(said) == 1 and lanes >= 8:
        assert found <= {BROKEN}


def test_squares_have_code_for_whole_vectors_only() -> None:
    runs = runs_of(form_of("ij,jk->ik", i=1024, j=1024, k=1024), True)
    assert (runs.source, runs.out, runs.ends) == ({WHOLE}, {WHOLE}, False)
    turned = runs_of(form_of("ij,kj->ik", i=1024, j=1024, k=1024), True)
    assert (turned.source, turned.depth) == ({BROKEN}, {WHOLE})
    odd = runs_of(form_of("ij,jk->ik", i=1000, j=1001, k=999), True)
    assert (odd.source, odd.out) == ({WHOLE}, {WHOLE})
    assert (odd.source_masked, odd.out_masked) == (True, True)


def test_what_cannot_occur_is_not_written() -> None:
    """A kernel of whole vectors transposes nothing and stores nothing in quarters; a masked one reads no more."""
    for k in (1024, 999):
        body = list(walk(write_packed_kernel(form_of("ij,jk->ik", i=1000, j=1001, k=k)).kernel.body))
        stored = [one.value.type.lanes for one in body if isinstance(one, Store) and one.buffer.name.startswith("out")
                  and isinstance(one.value.type, VectorType)]  # fmt: skip
        assert set(stored) == {16}
        masked = [one for one in body if isinstance(one, Load | Store) and one.mask is not None]
        assert bool(masked) == (k == 999)
        assert len(body) < 12_000


@pytest.mark.parametrize("machine", [ONE_CORE, CPU_AVX2, CPU_NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("scalar", [F32, F64, I32, C64], ids=str)
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("ij,jk->ik", dict(i=13, j=37, k=75)),
        ("ij,jk->ik", dict(i=12, j=64, k=128)),
        ("ij,kj->ik", dict(i=13, j=37, k=75)),
        ("ji,jk->ik", dict(i=31, j=20, k=33)),
        ("xij,jkx->ikx", dict(x=3, i=13, j=17, k=75)),
        ("iaj,jbk->aibk", dict(i=3, a=5, j=19, b=4, k=20)),
        ("iaj,jkb->abik", dict(i=3, a=5, j=16, b=4, k=24)),
    ],
)
def test_ends_of_every_kind_are_right(text: str, sizes: dict[str, int], scalar: ScalarType, machine: object) -> None:
    contraction = einsum_contraction(text, sizes, scalar)
    buffers = random_buffers(contraction, 5)
    whole = form_of(text, scalar, machine, **sizes)
    tile = whole.vector_tile
    for form in (
        whole,
        replace(whole, depth=max(1, min(whole.depth, 16))),
        replace(whole, vector_block=tile, scalar_block=whole.rows),
        replace(whole, vector_chunk=tile, vector_block=tile),
        replace(whole, far=True),
    ):
        if form.levels or form.buffered or form.boxes is not None:
            continue
        assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})
