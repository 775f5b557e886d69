"""Products of matrices of f16 and bf16 with vectors: read once, in vectors along the rows, and rounded at the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import BF16, F16, F32, I8, I16, I32, U8, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way, choose_matrix_vector_form
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel
from tilewright.passes.matrix_vector.row_products import choose_row_products
from tilewright.passes.packed.form import PackedForm


def halves(text: str, sizes: dict[str, int], element: ScalarType, relu: bool = False) -> Contraction:
    """Summed in f32, stored as halves."""
    dense, b = einsum_contraction(text, sizes, F32), Builder()
    operands = [Type(element)] * 2
    return replace(
        dense,
        left=replace(dense.left, element=element),
        right=replace(dense.right, element=element),
        out=replace(dense.out, element=element),
        map=b.function(operands, lambda x, y: b.apply("mul", b.cast(F32, x), b.cast(F32, y))),
        epilogue=b.function([Type(F32)], lambda t: b.cast(element, b.apply("abs", t) if relu else t)),
    )


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("text", "sizes"),
    [("ik,k->i", dict(i=67, k=301)), ("bik,bk->bi", dict(b=3, i=20, k=40)), ("ik,ik->i", dict(i=35, k=129)),
     ("ik,k->i", dict(i=8, k=5000)), ("ik,jk->ij", dict(i=3, j=4, k=900))],
)  # fmt: skip
def test_rows_of_f16(text: str, sizes: dict[str, int], relu: bool) -> None:
    contraction = halves(text, sizes, F16, relu)
    form = choose_form(normalise(contraction), host_machine()).form
    assert isinstance(form, MatrixVectorForm) and form.way is Way.DOTS
    buffers = random_buffers(contraction, 4)
    assert_close(contraction, run_cpu(write_matrix_vector_kernel(form), buffers, {}), buffers, {})


def test_rows_of_bf16() -> None:
    contraction = halves("ik,k->i", dict(i=67, k=301), BF16)
    form = choose_form(normalise(contraction), host_machine()).form
    assert isinstance(form, MatrixVectorForm)
    wide = np.random.default_rng(1).uniform(-1, 1, 67 * 301 + 301).astype(np.float32)
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    arrays = {"A": bits[: 67 * 301], "B": bits[67 * 301 :], "C": np.zeros(67, np.uint16)}
    got = run_cpu(write_matrix_vector_kernel(form), arrays, {})
    exact = values[: 67 * 301].reshape(67, 301) @ values[67 * 301 :]
    found = (got.astype(np.uint32) << 16).view(np.float32)
    assert (np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + 1e-4).all()


def test_pairs_of_bf16_along_rows_are_summed_by_one_instruction() -> None:
    """Rows that end anywhere in a vector, and infinities, which masked lanes must not meet."""
    machine = host_machine()
    for length in (32, 33, 63, 64, 65, 200, 301, 20_011):
        for text, shape in (("ik,k->i", (19, 1)), ("ik,ik->i", (5, 5)), ("ik,jk->ij", (3, 4))):
            sizes = dict(i=shape[0], j=shape[1], k=length)
            contraction = halves(text, sizes, BF16)
            contraction = replace(contraction, epilogue=None, out=replace(contraction.out, element=F32))
            form = choose_matrix_vector_form(normalise(contraction), machine)
            if isinstance(form, str):
                found = choose_row_products(normalise(contraction), machine)
                if isinstance(found, str):
                    continue
                form = found.form
            assert (form.dots is not None) == ("bf16" in machine.dots)
            left, right = shape[0] * length, shape[1] * length
            wide = np.random.default_rng(length).uniform(-1, 1, left + right).astype(np.float32)
            bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
            bits[left - 1] = 0x7F80  # infinity at the end of the last row
            values = (bits.astype(np.uint32) << 16).view(np.float32)
            shapes = (shape[0], length), (length,) if text == "ik,k->i" else (shape[1], length)
            a, b = values[:left].reshape(shapes[0]), values[left:].reshape(shapes[1])
            arrays = {"A": bits[:left], "B": bits[left:], "C": np.zeros(1000, np.float32)}
            got = run_cpu(write_matrix_vector_kernel(form), arrays, {})
            exact = np.einsum(text, a.astype(np.float64), b.astype(np.float64))
            magnitude = np.einsum(text, np.abs(a).astype(np.float64), np.abs(b).astype(np.float64))
            found_values = got[: exact.size].reshape(exact.shape)
            finite = np.isfinite(exact)
            assert (np.isinf(found_values) == ~finite).all()
            bound = length * 2.0**-24 * magnitude
            assert (np.abs(found_values[finite] - exact[finite]) <= bound[finite]).all()


@pytest.mark.parametrize(("left", "right"), [(U8, I8), (I8, U8), (I16, I16), (I8, I8)], ids=str)
def test_rows_of_integers_wrap_around(left: ScalarType, right: ScalarType) -> None:
    b = Builder()
    for length in (64, 333):
        dense = einsum_contraction("ik,k->i", dict(i=13, k=length), I32)
        contraction = replace(
            dense,
            left=replace(dense.left, element=left),
            right=replace(dense.right, element=right),
            map=b.function([Type(left), Type(right)], lambda x, y: b.apply("mul", b.cast(I32, x), b.cast(I32, y))),
        )
        form = choose_matrix_vector_form(normalise(contraction), host_machine())
        assert isinstance(form, MatrixVectorForm)
        assert (form.dots is not None) == ("i8" in host_machine().dots and (left, right) != (I8, I8))
        buffers = random_buffers(contraction, 4)
        assert_close(contraction, run_cpu(write_matrix_vector_kernel(form), buffers, {}), buffers, {})


def test_sums_that_wait_in_the_output_do_not_wait_in_halves() -> None:
    form = choose_form(normalise(halves("k,kj->j", dict(k=300, j=600), F16)), CPU_AVX512).form
    assert not isinstance(form, MatrixVectorForm)


def test_halves_that_are_widened_often_are_packed() -> None:
    """Each is widened once when it is packed, and at each use when it is fed directly."""
    square = normalise(halves("ik,kj->ij", dict(i=64, j=64, k=64), F16))
    assert isinstance(choose_form(square, replace(CPU_AVX512, pace=host_machine().pace)).form, PackedForm)
    wide = normalise(einsum_contraction("ik,kj->ij", dict(i=64, j=64, k=64), F32))
    costs = [choose_direct_form(one, CPU_AVX512)[1] for one in (square, wide)]
    assert costs[0].cycles > 2 * costs[1].cycles
