"""Sums with what the result held: kernels that write each element once read it where it lies, others a copy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.runtime import cpu_entry
from tilewright.runtime.flat_plan import IN_PLACE, FlatPlan, updating
from tilewright.runtime.memory import aligned_empty

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")

EXPRESSIONS = [
    "ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ik,kj->ji", "ki,jk->ji", "aki,bkj->abij", "aik,bkj->ijab", "ikl,lkj->ij",
    "bik,bkj->bij", "ikb,kjb->ijb", "ik,k->i", "k,ki->i", "i,j->ij", "ij,ij->ij", "aik,k->ia", "ik,kab->iab",
]  # fmt: skip
LAYOUTS = ["C", "F", "steps", "backwards"]


def result_of(shape: tuple[int, ...], dtype: np.dtype, layout: str, shift: int) -> np.ndarray:
    """An array for a result that begins `shift` elements behind a cache line."""
    steps = (2, 1) if layout == "steps" else (1, 1)
    whole = (*shape[:-1], shape[-1] * steps[0])
    memory = aligned_empty((int(np.prod(whole)) + shift,), dtype)
    held = memory[shift:].reshape(whole[::-1]).T if layout == "F" else memory[shift:].reshape(whole)
    return held[..., :: steps[0]] if layout == "steps" else held[::-1] if layout == "backwards" else held


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_as_with_a_copy(data: st.DataObject) -> None:
    expression = data.draw(st.sampled_from(EXPRESSIONS))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "f8", "c8", "c16", "i4", "f2"])))
    inputs, output = expression.split("->")
    labels = sorted(set(inputs) - {","})
    most = 40 if len(labels) > 3 else 300
    extents = {one: data.draw(st.one_of(st.integers(1, 40), st.integers(1, most)), one) for one in labels}
    layout, shift = data.draw(st.sampled_from(LAYOUTS)), data.draw(st.integers(0, 17))
    alpha, beta = data.draw(st.sampled_from([1, 2, -1])), data.draw(st.sampled_from([1, -1, 3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))

    def some(term: str) -> np.ndarray:
        return rng.integers(-3, 4, [extents[one] for one in term]).astype(dtype)

    operands = [some(term) for term in inputs.split(",")]
    wide = np.result_type(dtype, "f8") if dtype.kind != "i" else dtype
    product = np.einsum(expression, *(one.astype(wide) for one in operands), optimize=True)
    if dtype == "f2" and np.abs(product).max(initial=0) > 600:
        return  # sums that f16 does not hold exactly
    out = result_of(product.shape, dtype, layout, shift)
    with tw.num_threads(data.draw(st.sampled_from([1, 2]), "threads")):
        for _ in range(4):  # the third call is the first one that may go the short way
            before = some(output)
            out[...] = before
            assert tw.einsum(expression, *operands, out=out, alpha=alpha, beta=beta, target="cpu") is out
            np.testing.assert_array_equal(out, (alpha * product + beta * before.astype(wide)).astype(dtype))


@pytest.mark.parametrize(
    ("expression", "shapes", "in_place"),
    [
        ("ik,kj->ij", ((40, 30), (30, 50)), True),
        ("ik,kj->ij", ((300, 400), (400, 350)), True),
        ("ik,k->i", ((300, 400), (400,)), False),  # whose last vector reaches back
        ("i,j,k->ijk", ((4,), (5,), (6,)), False),  # more than one kernel
    ],
)
def test_which_kernels_read_it_where_it_lies(
    expression: str, shapes: tuple[tuple[int, ...], ...], in_place: bool
) -> None:
    operands = [np.ones(shape) for shape in shapes]
    plan = tw.plan(expression, *operands, beta=1.0, target="cpu")
    out = np.zeros(plan.shape)
    plan(*operands, out=out)
    flat = plan.bound.flat_plan(plan.bound.prepared([*operands, out.copy()]), out)
    assert isinstance(flat, FlatPlan)
    found = updating(flat)
    assert (found is not None) == in_place
    if found is not None:
        (launch,) = found.launches
        assert launch.native.name == IN_PLACE
        assert len(found.masks) == len(operands) + 1
        assert launch.buffers.count(len(operands)) == 2  # is written, and read


def test_a_result_has_to_be_given_by_the_short_way_too() -> None:
    a, b = np.ones((600, 30)), np.ones((30, 700))  # a result whose memory is recycled
    out = np.zeros((600, 700))
    for rounds in range(1, 5):
        tw.einsum("ik,kj->ij", a, b, out=out, beta=1, target="cpu")
        assert (out == 30 * rounds).all()
        with pytest.raises(ValueError, match="beta = 1 needs out"):
            tw.einsum("ik,kj->ij", a, b, beta=1, target="cpu")
