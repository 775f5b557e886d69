"""Plans: what they tell, and that they run as `einsum` does."""

from __future__ import annotations

import numpy as np
import pytest
from einsum_checks import backend

import tilewright as tw
from tilewright.frontend.einsum_plan import plan

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_costs_and_kinds() -> None:
    batched = plan("bij,bjk->bik", (7, 2, 3), (7, 3, 4), dtype="f32")
    (step,) = batched.steps
    assert step.flops == 2 * 7 * 2 * 3 * 4 == batched.flops
    assert step.bytes == 4 * 7 * (2 * 3 + 3 * 4 + 2 * 4)
    assert step.kinds == {"M": (1,), "N": (3,), "K": (2,), "C": (0,), "folded": ()}
    chain = plan("ij,jk,kl->il", (8, 100), (100, 100), (100, 4), dtype=["f32", "f32", "f32"])
    assert [one.contraction for one in chain.steps] == ["jk,kl->lj", "ij,lj->il"]
    outer = plan("ij,k->ik", (2, 3), (4,)).steps[0]
    assert outer.kinds["folded"] == (1,) and outer.flops == 2 * 3 + 2 * 4


def test_the_table_is_readable() -> None:
    text = repr(plan("ij,jk->ik", (512, 512), (512, 512), dtype="f32"))
    head, titles, row, *explanation = text.splitlines()
    assert head.startswith("EinsumPlan ij,jk->ik  float32[512, 512] on cpu")
    assert titles.split() == ["step", "contraction", "M", "N", "K", "C", "folded", "flops", "bytes", "flop/byte"]
    assert row.split() == [*["1", "ij,jk->ik", "i=512", "k=512", "j=512", "-", "-", "268", "M", "3.15", "M", "85.3"]]
    assert explanation


def test_explanations_are_in_the_user_s_letters() -> None:
    explained = plan("zij,zjb->zib", (7, 8, 9), (7, 9, 4), dtype="f32").explain()
    for dimension in ("z:C[7]", "i:M[8]", "b:N[4]", "j:K[9]"):
        assert dimension in explained.splitlines()[1]
    _, first, second, *_ = plan("ij,jk,kl->il", (8, 10), (10, 20), (20, 4), dtype="f32").explain().splitlines()
    assert "k:K[20]" in first
    assert "j:K[10]" in second


def test_calls() -> None:
    with backend("interpreter") as target:
        product = plan("ij,jk->ik", A, B, target=target)
        np.testing.assert_array_equal(product(A, B), A @ B)
        np.testing.assert_array_equal(product(A[::-1], B[:, ::-1]), A[::-1] @ B[:, ::-1])
        out = np.zeros((2, 4), np.float32)
        assert product(A, B, out=out) is out
        np.testing.assert_array_equal(out, A @ B)
        shifted = plan(
            [[0, 1], [1, 2], [0, 2]], (2, 3), (3, 4), dtype="f4", epilogue=lambda c, b: c + b,
            epilogue_operands=[((4,), [2])], beta=2, target=target,
        )  # fmt: skip
        shifted(A, B, np.ones(4, np.float32), out=out)
        np.testing.assert_array_equal(out, 3 * (A @ B) + 1)
        assert plan("ij->ji", (2, 3), dtype="f4")(A).base is A.base
        assert plan("ij->j", (2, 3), dtype="f4", out_dtype="f8", target=target)(A).dtype == np.float64


def test_plans_of_views_write_into_out() -> None:
    for expression, out in (("ij->ji", np.ones((3, 2), np.float32)), ("ij->ij", np.ones((2, 6), np.float32)[:, ::2])):
        assert tw.plan(expression, A)(A, out=out) is out
        np.testing.assert_array_equal(out, np.einsum(expression, A))
        tw.plan(expression, A, beta=2)(A, out=out)
        np.testing.assert_allclose(out, 3 * np.einsum(expression, A), rtol=1e-6)
    memory = A.copy()
    with pytest.raises(ValueError, match="shares memory with operand 0"):
        tw.plan("ij->ij", A)(memory, out=memory)


@pytest.mark.parametrize("expression", ["ijk->kji", "ijk->ijk", "iij->ji", "ijj->ij"])
@pytest.mark.parametrize("dtype", ["f4", "c16", "i2", ">f8", "?"])
def test_plans_of_views_copy_with_a_kernel(expression: str, dtype: str) -> None:
    shape = {"iij->ji": (5, 5, 7), "ijj->ij": (5, 7, 7)}.get(expression, (5, 6, 7))
    operand = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    planned = tw.plan(expression, operand)
    result = np.einsum(expression, operand)
    for memory in (np.zeros(result.shape, planned.dtype), np.zeros(result.shape[::-1], planned.dtype).T):
        for source in (operand, operand.copy(order="F")):
            assert planned(source, out=memory) is memory
            np.testing.assert_array_equal(memory, result)
            memory[...] = 0
    assert planned.copying.bound.executable is not None  # and not NumPy, which takes ten times as long for large ones
    with pytest.raises(ValueError, match="out has shape"):
        planned(operand, out=np.zeros(3, planned.dtype))


def test_an_out_that_is_an_operand_of_the_epilogue_is_called_so() -> None:
    a, out = np.ones((3, 3)), np.ones((3, 3))
    options = {"epilogue": lambda x, y: x + y}
    planned = tw.plan("ij,jk->ik", a, a, epilogue_operands=[out], **options)
    for _ in range(3):
        with pytest.raises(ValueError, match=r"einsum: out shares memory with epilogue operand 0, which is still read"):
            tw.einsum("ij,jk->ik", a, a, out=out, epilogue_operands=[out], **options)
        with pytest.raises(ValueError, match=r"out shares memory with epilogue operand 0"):
            planned(a, a, out, out=out)


def test_refusals() -> None:
    with backend("interpreter") as target:
        product = tw.plan("ij,jk->ik", A, B, target=target)
        with pytest.raises(ValueError, match="takes 2 arrays, not 1"):
            product(A)
        with pytest.raises(ValueError, match=r"operand 1 has shape \(4, 3\), planned was \(3, 4\)"):
            product(A, B.T)
        with pytest.raises(TypeError, match="operand 0 has dtype float64, planned was float32"):
            product(A.astype(np.float64), B)
        with pytest.raises(TypeError, match="out has dtype float64, the result float32"):
            product(A, B, out=np.zeros((2, 4)))
        with pytest.raises(ValueError, match=r"out has shape \(4, 2\)"):
            product(A, B, out=np.zeros((4, 2), np.float32))
        with pytest.raises(ValueError, match="beta needs out"):
            tw.plan("ij,jk->ik", A, B, beta=1, target=target)(A, B)
    with pytest.raises(ValueError, match="1 dtypes for 2 operands"):
        tw.plan("i,i", (3,), (3,), dtype=["f4"])
    with pytest.raises(ValueError, match="index 'j' has size 3 in operand 0, but size 5 in operand 1"):
        tw.plan("ij,jk->ik", (2, 3), (5, 4))
