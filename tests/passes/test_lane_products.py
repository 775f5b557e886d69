"""Products in lanes: contractions with a small operand whose vectors are shared by several dimensions."""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, extent, operands_of, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.ir.scalars import C64, C128, F16, F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.passes.contractions.lane_choice import choose_lane_product
from tilewright.passes.lane_products import form as lane_form
from tilewright.passes.lane_products.form import lane_product_of
from tilewright.passes.lane_products.kernel import write_lane_product
from tilewright.report.explain import explain_contraction

HOST = host_machine()
SCALARS = (F32, F64, C64, C128)


@st.composite
def products(draw: st.DrawFn) -> Contraction:
    """A large operand with all of the sum's indices and most others, in any order, and a small one; powers of two above
    all, since these fill vectors.
    """
    extents = st.sampled_from([2, 2, 2, 2, 4, 4, 8, 1, 3, 5])
    kept, summed, new = (draw(st.integers(low, high)) for low, high in ((1, 4), (1, 3), (0, 3)))
    labels = "abcdefghij"
    m, k, n = labels[:kept], labels[kept : kept + summed], labels[kept + summed : kept + summed + new]
    sizes = {one: draw(extents) for one in m + k + n}
    sizes[m[0]] = draw(st.sampled_from([1, 2, 7, 16, 33, 64]))
    large, small, out = ("".join(draw(st.permutations(one))) for one in (m + k, k + n, m + n))
    text = f"{large},{small}->{out}" if draw(st.booleans()) else f"{small},{large}->{out}"
    contraction = einsum_contraction(text, sizes, draw(st.sampled_from(SCALARS)))
    array = draw(st.sampled_from(["left", "right", "out"]))
    if draw(st.booleans()):  # one that begins later, and whose outermost index leaves something out
        outermost = dict(zip(("left", "right", "out"), text.replace("->", ",").split(","), strict=True))[array][0]
        stride = f"stride_{array}"
        contraction = dataclasses.replace(
            contraction,
            **{array: dataclasses.replace(getattr(contraction, array), offset=size(5))},
            dimensions=tuple(
                dataclasses.replace(one, **{stride: 2 * getattr(one, stride)}) if one.name == outermost else one
                for one in contraction.dimensions
            ),
        )
    return contraction


@settings(max_examples=150)
@given(contraction=products(), machine=st.sampled_from([HOST, CPU_AVX512, CPU_AVX2, CPU_NEON]), seed=st.integers(0, 99),
       threads=st.integers(1, 2))  # fmt: skip
def test_random_products(contraction: Contraction, machine: Any, seed: int, threads: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lane_form, "LEAST_LARGE", 0)
        form = lane_product_of(contraction, machine)
    if isinstance(form, str):
        return
    read, written = form.lanes
    assert {read, written} <= {2, 4, 8, 16}
    assert max(read, written) <= machine.lanes(form.element.bytes)
    assert all(held <= lanes < 2 * held for held, lanes in zip(form.held, form.lanes, strict=True))
    rows, columns = form.tile
    assert rows * columns <= lane_form.ACCUMULATORS
    buffers = random_buffers(contraction, seed)
    assert_close(contraction, run_cpu(write_lane_product(form), buffers, {}, threads), buffers, {})


GATES = {  # of 12 qubits, with what the vectors of a wide machine hold
    (0,): (16, 16), (7,): (16, 16), (9,): (16, 16), (10,): (16, 16), (11,): (16, 16), (0, 11): (16, 16),
    (3, 10): (16, 16), (10, 11): (16, 16), (9, 10, 11): (16, 16),
}  # fmt: skip


def gate(qubits: tuple[int, ...], scalar: ScalarType, count: int = 12) -> Contraction:
    labels, new = "abcdefghijklmnopqrst"[:count], "uvwxyz"[: len(qubits)]
    out = list(labels)
    for qubit, label in zip(qubits, new, strict=True):
        out[qubit] = label
    text = f"{labels},{new}{''.join(labels[one] for one in qubits)}->{''.join(out)}"
    return einsum_contraction(text, dict.fromkeys(labels + new, 2), scalar)


@pytest.mark.parametrize("qubits", GATES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_gates_fill_their_vectors(qubits: tuple[int, ...], scalar: ScalarType) -> None:
    form = lane_product_of(gate(qubits, scalar), CPU_AVX512)
    if not scalar.is_complex and qubits in ((0,), (7,)):
        assert form == "its vectors lie along one dimension"
        return
    assert not isinstance(form, str)
    assert form.lanes == (GATES[qubits] if scalar in (F32, C64) else (8, 8))
    buffers = random_buffers(form.contraction, 3)
    assert_close(form.contraction, run_cpu(write_lane_product(form), buffers, {}, 2), buffers, {})


@pytest.mark.parametrize(
    ("text", "sizes", "held"),
    [
        ("ij,bjk->bik", {"i": 3, "j": 3, "k": 3, "b": 1001}, (9, 9)),
        ("ij,bj->bi", {"i": 3, "j": 3, "b": 1000}, (15, 15)),
        ("ij,bj->bi", {"i": 4, "j": 3, "b": 1000}, (12, 16)),
        ("ij,bj->bi", {"i": 5, "j": 3, "b": 1001}, (3, 5)),
    ],
)
def test_vectors_whose_last_lanes_are_masked(text: str, sizes: dict[str, int], held: tuple[int, int]) -> None:
    contraction = einsum_contraction(text, sizes, F32)
    form = lane_product_of(contraction, CPU_AVX512)
    assert not isinstance(form, str)
    assert form.held == held
    buffers = random_buffers(contraction, 3)
    assert_close(contraction, run_cpu(write_lane_product(form), buffers, {}, 2), buffers, {})


@pytest.mark.parametrize("qubit", [0, 11, 19])
def test_gates_on_complex_numbers_are_computed_so(qubit: int) -> None:
    assert not isinstance(choose_lane_product(gate((qubit,), C64, 20), CPU_AVX512), str)


def test_what_products_in_lanes_are_not_for() -> None:
    def why(text: str, scalar: ScalarType = C64, **sizes: int) -> str:
        found = lane_product_of(einsum_contraction(text, sizes, scalar), CPU_AVX512)
        assert isinstance(found, str)
        return found

    assert "of one floating-point type" in why("akb,nk->anb", F16, a=64, k=2, b=2, n=2)
    assert "of one floating-point type" in why("akb,nk->anb", I32, a=64, k=2, b=2, n=2)
    assert "in all arrays" in why("akb,ank->anb", a=64, k=2, b=2, n=2)
    assert "has one term" in why("akb,nk->anb", a=64, k=1, b=2, n=2)
    assert "small beside" in why("ak,nk->an", a=64, k=64, n=64)
    assert "is empty" in why("akb,nk->anb", a=0, k=2, b=2, n=2)
    assert "no vector" in why("akb,nk->nba", F32, a=99, k=3, b=7, n=3)
    tropical = einsum_contraction("akb,nk->anb", dict(a=64, k=2, b=2, n=2), F32, "add", "min", np.inf)
    assert "more than a sum of products" in str(lane_product_of(tropical, CPU_AVX512))


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_infinities_and_nan_stay_where_they_belong(dtype: str) -> None:
    """Neighbours in a vector are not multiplied by 0 and added."""
    state, matrix = np.ones((4096, 2, 2), dtype), np.full((2, 2), 0.5, dtype)
    state[7, 0, 1], state[9, 1, 0] = np.inf, np.nan
    found = tw.einsum("akb,nk->anb", state, matrix)
    wrong = ~np.isfinite(found)
    assert np.argwhere(wrong).tolist() == [[7, 0, 1], [7, 1, 1], [9, 0, 0], [9, 1, 0]]
    assert np.isin(found[~wrong], [1]).all()


def test_the_explanation_tells_of_lanes() -> None:
    contraction = gate((18,), C64, 20)
    told = explain_contraction(contraction, CPU_AVX512)
    assert told.form == "lanes"
    assert told.lanes is not None
    assert (told.lanes.left, told.lanes.held, told.lanes.picks) == (True, (16, 16), 4)
    assert told.blocks == contraction_launches(contraction, CPU_AVX512)[0].blocks
    assert "4 vectors of 16 for the output are picked" in str(told)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's mprotect")
@settings(max_examples=30)
@given(contraction=products(), at_end=st.booleans())
def test_nothing_outside_of_the_operands_is_read(contraction: Contraction, at_end: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lane_form, "LEAST_LARGE", 0)
        form = lane_product_of(contraction, HOST)
    if isinstance(form, str):
        return
    needed = {operand.buffer: extent(contraction, operand, strides) for operand, strides in operands_of(contraction)}
    buffers = {name: array[: needed[name]] for name, array in random_buffers(contraction, 1).items()}
    launch = write_lane_product(form)

    class Guarded(np.ndarray):
        """Copies of it lie against a page that nobody may touch."""

        def copy(self, *_: Any) -> Any:
            return guarded(np.asarray(self), at_end)

    run_cpu(launch, {name: array.view(Guarded) for name, array in buffers.items()}, {})


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    pages = -(-array.nbytes // mmap.PAGESIZE)
    whole = np.frombuffer(mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        address = ctypes.c_void_p(whole.ctypes.data + page * mmap.PAGESIZE)
        assert libc.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    start = (pages + 1) * mmap.PAGESIZE - array.nbytes if at_end else mmap.PAGESIZE
    copy = whole[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


def test_rows_of_whole_vectors_that_sums_run_along_are_left_to_register_tiles() -> None:
    def refused(k: int, n: int, b: int = 1) -> bool:
        sizes = {"a": 1 << 16, "k": k, "n": n} | ({"b": b} if b > 1 else {})
        text = "akb,kn->anb" if b > 1 else "ak,kn->an"
        return isinstance(lane_product_of(einsum_contraction(text, sizes, F64), CPU_AVX512), str)

    assert refused(72, 24)
    assert not refused(8, 24) and not refused(8, 8, b=2)
