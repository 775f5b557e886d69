"""The block- and register-tiled form, run on an OpenCL device, against the naive evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contraction_cases import Case, cases, run_gpu, tilings
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, examples

import tilewright as tw
from tilewright.contraction.normalise import order_dimensions, reclassify
from tilewright.passes.contractions.contraction_launches import tiled_form
from tilewright.passes.tiled.form import TileForm, make_form
from tilewright.passes.tiled.kernel import write_kernel

pytestmark = pytest.mark.opencl


def check(runtime: Any, case: Case, form: TileForm) -> None:
    buffers = case.buffers()
    got = run_gpu(runtime, write_kernel(form), buffers, case.scalars)
    assert_close(case.contraction, got, buffers, case.scalars)


@settings(max_examples=examples(50))
@given(data=st.data())
def test_any_tiling(opencl_runtime: Any, data: st.DataObject) -> None:
    case = data.draw(cases())
    ready = order_dimensions(reclassify(case.contraction))
    tiling = data.draw(tilings(ready))
    assume(tiling.threads > 1)  # a long unrolled body for one thread can crash Intel's compiler for CPUs
    form = make_form(ready, tiling)
    assume(form.shared_bytes <= opencl_runtime.device.machine.shared_bytes_per_block)
    check(opencl_runtime, case, form)


@settings(max_examples=examples(25))
@given(case=cases())
def test_default_tiling(opencl_runtime: Any, case: Case) -> None:
    check(opencl_runtime, case, tiled_form(case.contraction, opencl_runtime.device.machine))


@pytest.mark.parametrize(
    ("expression", "left", "right", "dtype"),
    [("cdi,tdkip->ctkp", (4, 2, 2), (4, 2, 2, 2, 2), "f8"), ("fead,fbce->dabc", (4, 2, 2, 2), (4, 2, 2, 2), "c16")],
)
def test_few_threads_stage_elements_in_another_order_than_theirs(
    opencl_runtime: Any, expression: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    """Intel's compiler for CPUs moved the reads of such tiles before the stores: the answers were memory at random."""
    a, b = (np.arange(float(np.prod(shape))).reshape(shape).astype(dtype) for shape in (left, right))
    result = tw.einsum(expression, a, b, target=opencl_runtime.device)
    np.testing.assert_array_equal(result, np.einsum(expression, a, b))
