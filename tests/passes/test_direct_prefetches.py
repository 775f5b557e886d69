"""Which tiles ask for the vectors of the next one."""

from __future__ import annotations

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.report.kernel_text import kernel_text


def chosen(text: str, scalar: ScalarType, **sizes: int) -> DirectForm:
    found = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), CPU_AVX512)
    assert not isinstance(found, str), found
    return found[0]


@pytest.mark.parametrize("scalar", [F32, F64])
@pytest.mark.parametrize("n", [8, 16])
def test_batches_of_one_tile_ask_for_nothing_in_each_step(n: int, scalar: ScalarType) -> None:
    form = chosen("zij,zjk->zik", scalar, z=1 << 24 >> n.bit_length(), i=n, j=n, k=n)
    assert form.vector_tiles == 1 and not form.prefetched
    assert "prefetch vector_side" not in kernel_text(write_direct_kernel(form).kernel)


def test_the_next_of_several_tiles_is_asked_for() -> None:
    form = chosen("zij,zjk->zik", F32, z=2, i=8, j=64, k=1 << 20)
    assert form.vector_tiles > 1
    assert form.prefetched
