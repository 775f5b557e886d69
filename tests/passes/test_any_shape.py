"""The kernel of any shape: one for all sizes and strides, which computes the bits of the forms that it stands for."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers
from test_lane_products import guarded

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.frontend.einsum_calls import bound_call
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.any_shape import any_shape_form, any_shape_launch, parameters_of
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.packed.form import MOST_STEPS, PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.examples import matmul
from tilewright.runtime.flat_plan import ANY_SHAPE

OPTIONS: dict[str, Any] = {
    "dtype": None, "order": None, "casting": "safe", "optimize": True, "semiring": "plus_times", "epilogue": None,
    "extra_labels": (), "alpha": 1, "beta": 0, "target": "cpu", "tiles": None,
}  # fmt: skip
LETTERS = {"C": "ab", "M": "cde", "N": "fgh", "K": "ijk"}


@st.composite
def products(draw: st.DrawFn) -> tuple[str, tuple[tuple[int, ...], ...], str]:
    """An expression of two operands whose indices come in any order, their shapes, and a type."""
    counts = {kind: draw(st.integers(kind in "KM", len(letters))) for kind, letters in LETTERS.items()}
    used = {kind: LETTERS[kind][:count] for kind, count in counts.items()}
    sizes = {
        letter: draw(st.integers(1, {"C": 3, "M": 20, "N": 20, "K": 12}[kind] if len(used[kind]) < 3 else 6))
        for kind in used
        for letter in used[kind]
    }

    def shuffled(kinds: str) -> str:
        return "".join(draw(st.permutations([letter for kind in kinds for letter in used[kind]])))

    left, right, out = shuffled("CMK"), shuffled("CNK"), shuffled("CMN")
    shapes = tuple(tuple(sizes[letter] for letter in term) for term in (left, right))
    return f"{left},{right}->{out}", shapes, draw(st.sampled_from(["f4", "f8", "c8", "c16"]))


def some(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    real = generator.standard_normal(shape)
    return (real + 1j * generator.standard_normal(shape) if dtype[0] == "c" else real).astype(dtype)


def bound(expression: str, arrays: tuple[Any, ...], hurried: bool) -> Any:
    forms = [(one.dtype, one.shape, one.strides) for one in arrays]
    return bound_call(expression, 2, forms, None, OPTIONS, hurried)


def kernels_of(einsum: Any, arrays: tuple[Any, ...], result: Any) -> list[str]:
    plan = einsum.executable.flat_plan(arrays, result if einsum.shape else None)
    return [] if plan is None else [one.native.name for one in plan.launches]


FOUND: list[bool] = []


@settings(max_examples=60)
@given(products(), st.integers(0, 9))
def test_bits_are_those_of_its_own_kernel(product: tuple[str, Any, str], seed: int) -> None:
    expression, shapes, dtype = product
    arrays = tuple(some(shape, dtype, seed + number) for number, shape in enumerate(shapes))
    hurried = bound(expression, arrays, True)
    result = hurried.run(arrays, None)
    FOUND.append(kernels_of(hurried, arrays, result) == [ANY_SHAPE])
    own = bound(expression, arrays, False)
    wanted = own.run(arrays, None)
    assert ANY_SHAPE not in kernels_of(own, arrays, wanted)
    np.testing.assert_array_equal(result, wanted)
    again = hurried.run(arrays, None)  # by native code
    np.testing.assert_array_equal(again, wanted)


def test_random_products_reached_the_kernel() -> None:
    """Runs after the one before, whose examples are always the same."""
    if len(FOUND) >= 40:
        assert sum(FOUND) >= len(FOUND) // 4


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("ij,jk->ik", ((33, 47), (47, 29))),
        ("ji,kj->ki", ((100, 7), (65, 100))),
        ("axb,btvd->atvxd", ((19, 5, 13), (13, 2, 2, 27))),
        ("bij,bjk->bik", ((5, 9, 31), (5, 31, 17))),
        ("ijk,kl->lij", ((3, 40, 70), (70, 100))),
    ],
)
def test_examples_have_it_and_its_bits(expression: str, shapes: Any, dtype: str) -> None:
    arrays = tuple(some(shape, dtype, number) for number, shape in enumerate(shapes))
    hurried = bound(expression, arrays, True)
    result = hurried.run(arrays, None)
    assert kernels_of(hurried, arrays, result) == [ANY_SHAPE]
    np.testing.assert_array_equal(result, tw.plan(expression, *arrays)(*arrays))
    wanted = np.einsum(expression, *(one.astype("c16") for one in arrays))
    np.testing.assert_allclose(result, wanted, atol=1e-3 if dtype in ("f4", "c8") else 1e-11)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected as on Linux")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("n", [3, 21, 40, 49])
@pytest.mark.parametrize("expression", ["bij,bjk->bik", "bij,bkj->bki", "ajk,ij->aik"])
def test_nothing_outside_the_arrays_is_touched(expression: str, n: int, dtype: str, at_end: bool) -> None:
    """Vectors that are not full, and whole ones without elements."""
    sizes = {"a": 3, "b": 2, "i": 11, "j": 7, "k": n}
    left, right, out = (tuple(sizes[letter] for letter in term) for term in re.split(",|->", expression))
    arrays = tuple(guarded(some(shape, dtype, 3).ravel(), at_end).reshape(shape) for shape in (left, right))
    result = guarded(np.full(math.prod(out), 7, dtype), at_end).reshape(out)
    hurried = bound(expression, arrays, True)
    np.testing.assert_array_equal(hurried.run(arrays, result), tw.plan(expression, *arrays)(*arrays))
    assert kernels_of(hurried, arrays, result) == [ANY_SHAPE]


def contraction(n: int, m: int, k: int) -> Contraction:
    return normalise(matmul(n, m, k))


def test_its_parameters_are_those_that_the_writer_gives_and_the_kernel_is_one() -> None:
    kernels = set()
    for sizes in ((40, 50, 60), (33, 100, 7), (64, 64, 64), (17, 300, 200)):
        one = contraction(*sizes)
        form = choose_form(one, CPU_AVX512).form
        assert isinstance(form, DirectForm | PackedForm)
        launch = any_shape_launch(one, CPU_AVX512)
        assert isinstance(launch, Launch)
        packed = any_shape_form(form, one, CPU_AVX512)
        written = write_packed_kernel(packed)
        assert (written.kernel, written.scalars, written.blocks) == (launch.kernel, launch.scalars, launch.blocks)
        assert written.buffers == launch.buffers
        assert len(parameters_of(packed)) >= len(launch.scalars)
        kernels.add(id(launch.kernel))
    assert len(kernels) == 1


@pytest.mark.parametrize(("sizes", "reason"), [((500, 500, 500), "worth it"), ((20, 20, MOST_STEPS + 1), "pieces")])
def test_what_has_its_own_kernel(sizes: tuple[int, int, int], reason: str) -> None:
    one = contraction(*sizes)
    declined = any_shape_launch(one, CPU_AVX512)
    assert isinstance(declined, str) and reason in declined


@pytest.mark.parametrize("machine", [CPU_AVX2, CPU_AVX512, CPU_NEON], ids=["avx2", "avx512", "neon"])
@pytest.mark.parametrize("scalar", [F32, F64, C64], ids=str)
@pytest.mark.parametrize("text", ["bij,bjk->bik", "ij,kj->ik", "ji,jk->ki"])
def test_vectors_of_any_length(text: str, scalar: ScalarType, machine: Machine) -> None:
    """With masks for vectors that are not full, where the machine has such, and without."""
    contraction = einsum_contraction(text, {"b": 3, "i": 13, "j": 9, "k": 37}, scalar)
    launch = any_shape_launch(contraction, machine)
    assert isinstance(launch, Launch) and launch.kernel.name == ANY_SHAPE
    buffers = random_buffers(contraction, 5)
    for threads in (1, 2):
        assert_close(contraction, run_cpu(launch, buffers, {}, threads), buffers, {})
