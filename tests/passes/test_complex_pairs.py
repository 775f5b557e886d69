"""Complex numbers in vectors that hold both parts in turns: results, bits, and what has no such form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, C128, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.contractions.any_shape import any_shape_launch
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.explain import explain_contraction

HOST = host_machine()
WIDE = replace(HOST, vector_registers=32)
TEXTS = [
    "ik,kj->ij",
    "ki,kj->ij",
    "ki,kj->ji",
    "zik,zkj->zij",
    "kil,lkj->ij",
    "ikl,klj->ij",
    "k,kj->j",
    "aibk,kj->abij",
    "ik,jk->ij",  # panels that are turned
    "kil,ljk->ij",
    "ilk,jlk->ij",
    "ik,jakl->ijal",
    "il,jkl->jki",
    "kja,ki->aij",  # and others that are gathered
]


def form_of(text: str, scalar: ScalarType, **sizes: int) -> DirectForm:
    found = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), WIDE)
    assert not isinstance(found, str), found
    return found[0]


@settings(max_examples=40, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    sizes=st.fixed_dictionaries(
        {"i": st.integers(1, 15), "j": st.integers(1, 37), "k": st.integers(1, 19), "l": st.integers(1, 5)}
    ),
    scalar=st.sampled_from([C64, C128]),
    threads=st.integers(1, 2),
    which=st.integers(0, 1 << 20),
)
def test_every_form_gives_the_sums(
    text: str, sizes: dict[str, int], scalar: ScalarType, threads: int, which: int
) -> None:
    all_sizes = sizes | {"z": 3, "a": 2, "b": 3}
    contraction = einsum_contraction(text, {one: all_sizes[one] for one in all_sizes if one in text}, scalar)
    forms = list(direct_forms(normalise(contraction), WIDE))
    if not forms:  # the output's innermost dimension may have been dropped, which leaves none of unit stride
        assert sizes["i"] == 1 or sizes["j"] == 1
        return
    form = forms[which % len(forms)]
    form = replace(form, rows_prefetched=which % 2 == 0 and not form.scalar_packed, nontemporal=which % 3 == 0)
    buffers = random_buffers(contraction, which)
    assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, threads), buffers, {})


@pytest.mark.parametrize("scalar", [C64, C128], ids=str)
def test_long_sums_are_trees(scalar: ScalarType) -> None:
    contraction = einsum_contraction("ik,kj->ij", dict(i=5, j=9, k=3001), scalar)
    buffers = random_buffers(contraction, 1)
    for form in list(direct_forms(normalise(contraction), WIDE))[::4]:
        assert_close(contraction, run_cpu(write_direct_kernel(form), buffers, {}, 1), buffers, {})


@pytest.mark.parametrize("text", ["ik,kj->ij", "ki,kj->ij", "zik,zkj->zij"])
@pytest.mark.parametrize("scalar", [C64, C128], ids=str)
def test_the_bits_are_those_of_panels_and_of_the_kernel_of_any_shape(text: str, scalar: ScalarType) -> None:
    sizes = {one: size for one, size in dict(z=3, i=13, j=21, k=50).items() if one in text}
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    buffers = random_buffers(contraction, 5)
    direct = run_cpu(write_direct_kernel(form_of(text, scalar, **sizes)), buffers, {}, 1)
    panels = run_cpu(write_packed_kernel(make_packed_form(contraction, WIDE)), buffers, {}, 1)
    assert direct.tobytes() == panels.tobytes()
    launch = any_shape_launch(contraction, HOST)
    assert not isinstance(launch, str)
    assert direct.tobytes() == run_cpu(launch, buffers, {}, 1).tobytes()


def test_infinities_stay_where_they_belong() -> None:
    contraction = einsum_contraction("ik,kj->ij", dict(i=3, j=20, k=4), C64)
    buffers = random_buffers(contraction, 2)
    buffers["B"][7] = complex(np.inf, 0)
    form = form_of("ik,kj->ij", C64, i=3, j=20, k=4)
    got = run_cpu(write_direct_kernel(form), buffers, {}, 1)[:60].reshape(3, 20)
    assert np.isfinite(np.delete(got, 7, axis=1)).all()
    assert not np.isfinite(got[:, 7]).any()


def test_what_takes_panels() -> None:
    def why(text: str, machine: object = CPU_AVX512) -> object:
        sizes = {one: 8 for one in text if one.isalpha()}
        return choose_direct_form(normalise(einsum_contraction(text, sizes, C64)), machine)  # type: ignore[arg-type]

    assert not isinstance(why("ik,kj->ij"), str)
    for refused in (why("ik,kj->ij", CPU_AVX2), why("ikz,kjz->ijz")):
        assert isinstance(refused, str)
        assert "two components" in refused


def test_it_is_explained_as_it_was_written() -> None:
    explained = explain_contraction(einsum_contraction("ik,kj->ij", dict(i=40, j=30, k=20), C64), CPU_AVX512)
    assert explained.form == "direct"
    assert [(one.name, str(one.size)) for one in explained.contraction.dimensions] == [
        ("i", "40"),
        ("j", "30"),
        ("k", "20"),
    ]
    assert "with the parts of complex numbers in turns" in str(explained)
