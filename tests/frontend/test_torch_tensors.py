"""Torch's tensors: results that are tensors, gradients, transforms, and what torch.compile makes of calls."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch", reason="torch is not installed: nothing of its tensors is tested")


@tw.program
def row_sums(xs: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda x: tw.reduce("add", 0, x), xs)


@tw.program
def sums_and_doubles(xs: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda x: tw.reduce("add", 0, x), xs), xs + xs


def tensors(*shapes: tuple[int, ...], dtype: Any = None, grad: bool = False) -> list[Any]:
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=dtype or torch.float32, requires_grad=grad) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16", "float16", "int32"])
def test_results_are_tensors(dtype: str) -> None:
    a, b = (one.to(getattr(torch, dtype)) for one in tensors((8, 9), (9, 7)))
    result = tw.einsum("ij,jk->ik", a, b)
    assert type(result) is torch.Tensor
    assert result.dtype is a.dtype
    wide = torch.complex128 if a.is_complex() else torch.float64
    torch.testing.assert_close(result.to(wide), a.to(wide) @ b.to(wide), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(tw.tensordot(a, b, 1), result)
    torch.testing.assert_close(tw.einsum(a, [0, 1], b, [1, 2], [0, 2]), result)
    scalar = tw.einsum("ij->", a)
    assert type(scalar) is torch.Tensor
    assert scalar.shape == ()


def test_trees_plans_and_programs_give_tensors() -> None:
    a, b = tensors((8, 9), (9, 7))
    torch.testing.assert_close(tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [a, b]), a @ b)
    torch.testing.assert_close(tw.plan_tree("[0,1],[1,2]->[0,2]", [8, 9, 7], dtype="f32")(a, b), a @ b)
    torch.testing.assert_close(tw.plan("ij,jk->ik", a.shape, b.shape, dtype="f32")(a, b), a @ b)
    torch.testing.assert_close(tw.einsum("ij,jk->ik", a, b, memory_limit=10_000), a @ b)
    torch.testing.assert_close(row_sums(a), a.sum(1))
    sums, doubles = sums_and_doubles(a)
    torch.testing.assert_close(sums, a.sum(1))
    torch.testing.assert_close(doubles, 2 * a)


def test_out_and_epilogues() -> None:
    a, b, bias = tensors((8, 9), (9, 7), (7,))
    out = torch.empty(8, 7)
    assert tw.einsum("ij,jk->ik", a, b, out=out) is out
    torch.testing.assert_close(out, a @ b)
    options = {"epilogue": lambda x, y: tw.maximum(x + y, 0), "epilogue_operands": [(bias, "k")]}
    layer = tw.einsum("ij,jk->ik", a, b, dtype=torch.float32, **options)
    torch.testing.assert_close(layer, torch.relu(a @ b + bias))
    sums, doubles = torch.empty(8), torch.empty(8, 9)
    assert sums_and_doubles(a, out=(sums, doubles))[0] is sums
    torch.testing.assert_close(doubles, 2 * a)
    place = np.empty((8, 7), np.float32)
    assert tw.einsum("ij,jk->ik", a, b, out=place) is place
    np.testing.assert_allclose(place, (a @ b).numpy(), rtol=1e-5, atol=1e-5)


def test_conjugated_and_negated_tensors_are_read_as_they_are() -> None:
    a, b = tensors((8, 9), (9, 7), dtype=torch.complex64)
    torch.testing.assert_close(tw.einsum("ij,jk->ik", a.conj(), b), a.conj() @ b)
    torch.testing.assert_close(tw.einsum("ij,jk->ik", torch._neg_view(a), b), -(a @ b))


CASES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("ij->ji", [(3, 4)]),
    ("ii->i", [(3, 3)]),
    ("i->ii", [(3,)]),
    ("ii", [(3, 3)]),
    ("i,i->", [(3,), (3,)]),
    (",->", [(), ()]),
    ("i,->i", [(3,), ()]),
    ("ijj,jk", [(2, 3, 3), (3, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
    ("bij,bjk,kl->bil", [(2, 3, 4), (1, 4, 5), (5, 2)]),
]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("expression", "shapes"), CASES)
def test_gradients(expression: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    operands = tensors(*shapes, dtype=getattr(torch, dtype), grad=True)
    assert torch.autograd.gradcheck(lambda *given: tw.einsum(expression, *given), operands, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda *given: tw.einsum(expression, *given), operands)


def test_gradients_of_parameters_real_operands_and_labels() -> None:
    x, w = tensors((8, 9), (9, 7))
    weight = torch.nn.Parameter(w)
    tw.einsum(x, [0, 1], weight, [1, 2], [0, 2]).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0)[:, None].expand(9, 7))
    (real,) = tensors((3, 4), dtype=torch.float64, grad=True)
    (complex_,) = tensors((4, 5), dtype=torch.complex128)
    ours = torch.autograd.grad(tw.einsum("ij,jk->ik", real, complex_).abs().sum(), real)[0]
    theirs = torch.autograd.grad((real.to(torch.complex128) @ complex_).abs().sum(), real)[0]
    torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert not tw.einsum("ij,jk->ik", x, weight).requires_grad
        torch.testing.assert_close(row_sums(weight), w.sum(1))


NO_GRADIENT: list[Callable[[Any, Any], Any]] = [
    lambda a, b: row_sums(a),
    lambda a, b: tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [a, b]),
    lambda a, b: tw.plan("ij,jk->ik", a.shape, b.shape, dtype="f32")(a, b),
    lambda a, b: tw.einsum("ij,jk->ik", a, b, semiring="min_plus"),
    lambda a, b: tw.einsum("ij,jk->ik", a, b, epilogue=lambda x: x * x),
    lambda a, b: tw.einsum("ij,jk->ik", a, b, out=torch.empty(8, 7)),
    lambda a, b: tw.einsum("ij,jk->ik", a, b, alpha=2),
]


@pytest.mark.parametrize("call", NO_GRADIENT)
def test_what_has_no_gradient_is_refused(call: Callable[[Any, Any], Any]) -> None:
    a, b = tensors((8, 9), (9, 7), grad=True)
    with pytest.raises(RuntimeError, match=r"torch follows .*; give tensor.detach\(\), or call under torch.no_grad"):
        call(a, b)
    assert type(call(a.detach(), b.detach())) is torch.Tensor


@pytest.mark.parametrize("call", NO_GRADIENT)
def test_tensors_of_the_meta_device_are_told_to_have_no_elements(call: Callable[[Any, Any], Any]) -> None:
    a, b = (one.to("meta") for one in tensors((8, 9), (9, 7)))
    with pytest.raises(TypeError, match=r"tensor of shape .* on torch's meta device, which has no elements"):
        call(a, b)


def test_transforms_of_torch_func() -> None:
    a, b = tensors((8, 9), (9, 7))
    torch.testing.assert_close(torch.func.vmap(lambda x: tw.einsum("j,jk->k", x, b))(a), a @ b)
    torch.testing.assert_close(
        torch.func.vmap(lambda x, y: tw.einsum("i,i->", x, y), in_dims=(0, 1))(a, a.T), (a * a).sum(1)
    )
    gradient = torch.func.grad(lambda x: tw.einsum("ij,jk->ik", x, b).square().sum())(a)
    torch.testing.assert_close(gradient, torch.func.grad(lambda x: (x @ b).square().sum())(a))
    per_row = torch.func.vmap(torch.func.grad(lambda x: tw.einsum("j,jk->k", x, b).square().sum()))(a)
    torch.testing.assert_close(per_row, gradient)
    torch.testing.assert_close(torch.func.jvp(lambda x: tw.einsum("ij,jk->ik", x, b), (a,), (a,))[1], a @ b)
    with pytest.raises(RuntimeError, match="program row_sums: argument 0: torch follows this tensor"):
        torch.func.vmap(row_sums)(a[None])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_transforms_compute_in_bytes_where_that_is_asked_for(dtype: Any) -> None:
    a, b = torch.full((3, 4), 100, dtype=dtype), torch.full((4, 5), 2, dtype=dtype)
    found = torch.func.vmap(lambda x: tw.einsum("j,jk->k", x, b, dtype=dtype))(a)
    torch.testing.assert_close(found, a @ b)


def test_what_records_operators_sees_one() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    a, b = tensors((8, 9), (9, 7))
    graph = make_fx(lambda x, y: tw.einsum("ij,jk->ik", x, y))(a, b)
    assert "torch.ops.tilewright.einsum" in graph.code
    assert tw.einsum("ij,jk->ik", a.to("meta"), b.to("meta")).shape == (8, 7)
    with pytest.raises(TypeError, match="row_sums: argument 0"):
        row_sums(a.to("meta"))


def test_the_operator_is_as_torch_wants_it() -> None:
    a, b = tensors((8, 9), (9, 7), grad=True)
    tw.einsum("ij,jk->ik", a, b)
    torch.library.opcheck(torch.ops.tilewright.einsum.default, ("ij,jk->ik", [a, b], "", "plus_times", ""))
    torch.library.opcheck(torch.ops.tilewright.einsum.default, ("ij->ji", [a.detach()], "", "plus_times", ""))


def test_dtypes_of_torch_and_orders_that_are_the_usual_one() -> None:
    a, b = tensors((8, 9), (9, 7))
    c, d = tensors((8, 9), (9, 7), grad=True)
    for one, other in ((a, b), (c, d)):
        wide = tw.einsum("ij,jk->ik", one, other, dtype=torch.float64, order="C")
        assert wide.dtype is torch.float64
        torch.testing.assert_close(wide, one.double() @ other.double())
        halves = tw.einsum("ij,jk->ik", one.bfloat16(), other.bfloat16(), dtype=torch.bfloat16)
        assert halves.dtype is torch.bfloat16
    narrow = tw.einsum("ij,jk->ik", a, b, dtype=torch.bfloat16, casting="unsafe")
    torch.testing.assert_close(narrow.float(), a @ b, rtol=5e-2, atol=5e-2)


COMPILED = """
import sys
import tilewright as tw
import torch

a, b = torch.randn(8, 9), torch.randn(9, 7)

@tw.program
def row_sums(xs: tw.f32["n", "m"]):
    return tw.map(lambda x: tw.reduce("add", 0, x), xs)

before = sys.argv[1]
if before == "tensors":
    tw.einsum("ij,jk->ik", a, b), row_sums(a)
if before == "arrays":
    tw.einsum("ij,jk->ik", a.numpy(), b.numpy()), row_sums(a.numpy())
assert "torch._dynamo" not in sys.modules

def compiled(function, **options):
    return torch.compile(function, backend="aot_eager", **options)

def close(one, other):
    torch.testing.assert_close(torch.as_tensor(one), other)

close(compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y) + 1, fullgraph=True)(a, b), a @ b + 1)
least = (a[:, :, None] + b).amin(1)
close(compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y, semiring="min_plus"), fullgraph=True)(a, b), least)
c, d = a.clone().requires_grad_(), b.clone().requires_grad_()
compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y).square().sum(), fullgraph=True)(c, d).backward()
e, f = a.clone().requires_grad_(), b.clone().requires_grad_()
(e @ f).square().sum().backward()
close(c.grad, e.grad)
close(d.grad, f.grad)
sizes = compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y), fullgraph=True, dynamic=True)
for n in (3, 5, 9):
    x, y = torch.randn(n, 4), torch.randn(4, n + 1)
    close(sizes(x, y), x @ y)
wide = compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y, dtype=torch.float64), fullgraph=True)(a, b)
close(wide, a.double() @ b.double())
half = compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y, dtype=torch.bfloat16), fullgraph=True)
assert half(a.bfloat16(), b.bfloat16()).dtype is torch.bfloat16
close(compiled(lambda x: row_sums(x) + 1)(a), a.sum(1) + 1)
close(compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y, epilogue=lambda z: tw.maximum(z, 0)))(a, b), (a @ b).relu())
close(compiled(lambda x, y: tw.einsum(x, [0, 1], y, [1, 2], [0, 2]) + 1)(a, b), a @ b + 1)
close(compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y) + 1)(a.numpy(), b.numpy()), a @ b + 1)
close(compiled(lambda x, y: tw.tensordot(x, y, 1) + 1)(a, b), a @ b + 1)
close(compiled(lambda x, y: tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [x, y]) + 1)(a, b), a @ b + 1)
try:
    compiled(lambda x, y: tw.einsum("ij,jk->ik", x, y, semiring="min_plus"))(c, d)
except RuntimeError as error:
    assert "semiring='min_plus'" in str(error), error
else:
    raise AssertionError("there is no such gradient")
print("done")
"""


@pytest.mark.parametrize("before", ["nothing", "arrays", "tensors"])
def test_calls_in_compiled_functions(before: str) -> None:
    """Whatever was called before torch's compiler was imported."""
    ran = subprocess.run([sys.executable, "-c", COMPILED, before], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "done", ran.stderr[-3000:]
