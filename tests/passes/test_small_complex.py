"""Small products of complex numbers: vectors are no longer than the side that lies along them needs."""

from __future__ import annotations

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, C128, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel

HOST = host_machine()


@pytest.mark.parametrize(
    ("machine", "scalar", "lanes"),
    [
        (CPU_AVX512, C64, {2: 4, 4: 4, 5: 8, 8: 8, 9: 16, 16: 16, 40: 16}),
        (CPU_AVX512, C128, {3: 4, 4: 4, 5: 8, 8: 8, 30: 8}),
        (CPU_AVX2, C64, {4: 4, 5: 8, 8: 8}),
        (CPU_NEON, C64, {2: 4, 9: 4}),
    ],
)
def test_lanes(machine: Machine, scalar: ScalarType, lanes: dict[int, int]) -> None:
    for n, expected in lanes.items():
        contraction = einsum_contraction("zij,zjk->zik", dict(z=100, i=n, j=n, k=n), scalar)
        assert make_packed_form(normalise(contraction), machine).lanes == expected


@settings(max_examples=25)
@given(
    text=st.sampled_from(["zij,zjk->zik", "zji,zjk->zik", "zij,zkj->zki", "ijz,zjk->zik", "ij,jk->ik", "zj,zjk->zk"]),
    sizes=st.fixed_dictionaries({"i": st.integers(1, 17), "j": st.integers(1, 20), "k": st.integers(1, 9)}),
    scalar=st.sampled_from([C64, C128]),
    threads=st.integers(1, 2),
)
def test_results(text: str, sizes: dict[str, int], scalar: ScalarType, threads: int) -> None:
    contraction = einsum_contraction(text, {one: (sizes | {"z": 5})[one] for one in "ijkz" if one in text}, scalar)
    buffers = random_buffers(contraction, 7)
    form = make_packed_form(normalise(contraction), HOST)
    got = run_cpu(write_packed_kernel(form), buffers, {}, threads)
    assert np.isfinite(got).all()
    assert_close(contraction, got, buffers, {})
