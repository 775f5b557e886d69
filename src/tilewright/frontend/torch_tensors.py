"""Torch's tensors as operands: read where they lie, and results that are tensors again.

Nothing here imports torch: where there is a tensor, torch has been imported. With gradients, under `torch.func`'s
transforms and in graphs an einsum is an operator of torch's own (`torch_operator.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Any

import numpy as np

DEFAULTS: dict[str, Any] = {
    "dtype": None, "order": None, "casting": "safe", "optimize": True, "semiring": "plus_times", "epilogue": None,
    "epilogue_operands": (), "alpha": 1, "beta": 0, "target": None, "tiles": None, "memory_limit": None,
}  # fmt: skip
"""Of the options of `einsum`."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    if type(value) is np.ndarray or "torch" not in sys.modules:
        return False
    kind = getattr(sys.modules["torch"], "Tensor", None)
    return isinstance(kind, type) and isinstance(value, kind)


def are_followed(tensors: Sequence[Any]) -> bool:
    """Whether torch follows what is computed with tensors: for a gradient, a tangent, a batch, or a graph."""
    torch: Any = sys.modules["torch"]
    core = torch._C  # there is no public way to ask whether torch.func, or a mode that records operators, is at work
    if core._are_functorch_transforms_active() or core._len_torch_dispatch_stack():
        return True
    forward = torch.autograd.forward_ad
    for one in tensors:
        if one.requires_grad and torch.is_grad_enabled():
            return True
        if type(one) is not torch.Tensor and type(one) is not torch.nn.Parameter:
            return True
        if one.is_meta or (forward._current_level >= 0 and forward.unpack_dual(one).tangent is not None):
            return True
    return False


def array_of(tensor: Any, what: str) -> Any:
    """A tensor's memory as a NumPy array; `what` names it in errors.

    Raises:
        RuntimeError: for a tensor that torch follows, for what is computed here would be lost to it.
        TypeError: for tensors that are not in the memory of the host, sparse ones, and the like.
    """
    require_elements(tensor, what)
    if are_followed((tensor,)):
        raise RuntimeError(
            f"{what}: torch follows this tensor (for a gradient or a transform of torch.func), and cannot see what is "
            "computed with it here; give tensor.detach(), or call under torch.no_grad(). Only tilewright.einsum has "
            "gradients"
        )
    return _memory(tensor, what)


def require_elements(tensor: Any, what: str) -> None:
    """Refuse a tensor that is a shape alone, with a TypeError: no other call will make it one that can be read."""
    if tensor.is_meta:
        raise TypeError(
            f"{what}: a tensor of shape {tuple(tensor.shape)} on torch's meta device, which has no elements to compute "
            "with; give one on the CPU. Only sums of products by tilewright.einsum tell the shape of their result"
        )


def _memory(tensor: Any, what: str) -> Any:
    """The array of a tensor that torch does not follow."""
    try:
        return _numpy(tensor)
    except (RuntimeError, TypeError):
        plain = tensor.detach().resolve_conj().resolve_neg()
        try:
            return _numpy(plain)
        except (RuntimeError, TypeError) as error:
            raise (TypeError if isinstance(error, TypeError) else RuntimeError)(f"{what}: {error}") from error


def _numpy(tensor: Any) -> Any:
    """The array of a tensor, which torch refuses to give for bf16: that is an array of its bits first."""
    torch: Any = sys.modules["torch"]
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(_bf16())


@cache
def _bf16() -> Any:
    from tilewright.ir.scalars import BF16

    return BF16.numpy


def tensor_of(result: Any) -> Any:
    """A result as a tensor on the same memory; of a tuple of results each."""
    torch: Any = sys.modules["torch"]
    if type(result) is tuple:
        return tuple(map(tensor_of, result))
    array = result if type(result) is np.ndarray else np.asarray(result)
    if array.dtype.kind == "V" and array.dtype.type.__name__ == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def are_there(arguments: Sequence[Any], out: Any) -> bool:
    """Whether there are tensors among the arguments, or in `out`, an array or a tuple of them."""
    if "torch" not in sys.modules:
        return False
    return any(map(is_tensor, arguments)) or any(map(is_tensor, out if isinstance(out, tuple) else (out,)))


def on_arrays(function: Callable[..., Any], what: str, arguments: Sequence[Any], out: Any, **options: Any) -> Any:
    """What a function of arrays gives for arguments among which there are tensors: a tensor, or `out`.

    Args:
        function: takes the arguments, `out` if it is given, and the options.
        what: names an argument in errors; its number follows.
        arguments, out: for the function; tensors among them are read and written where they lie.
        **options: for the function.
    """
    arrays = [array_of(one, f"{what} {number}") if is_tensor(one) else one for number, one in enumerate(arguments)]
    if out is None:
        return tensor_of(function(*arrays, **options))
    places = tuple(map(_place, out)) if isinstance(out, tuple) else _place(out)
    function(*arrays, out=places, **options)
    for one in out if isinstance(out, tuple) else (out,):
        _tell_of_write(one)
    return out


def _place(out: Any) -> Any:
    """The memory that a result is written to.

    Raises:
        ValueError: for a tensor whose elements are not those of its memory.
    """
    if not is_tensor(out):
        return out
    if out.is_conj() or out.is_neg():
        raise ValueError(
            "out: the elements of this tensor are its memory's, conjugated or negated when they are read; give "
            ".resolve_conj().resolve_neg() of it, a tensor of its own, or the one that it was made of"
        )
    return array_of(out, "out")


def _tell_of_write(out: Any) -> None:
    """Torch is told that a tensor was written, so that no gradient is computed of what it was before."""
    if is_tensor(out):
        sys.modules["torch"].autograd.graph.increment_version(out)


def dtype_of(dtype: Any) -> Any:
    """A dtype, of torch's its name here."""
    name = str(dtype)
    if not name.startswith("torch."):
        return dtype
    return "bf16" if name == "torch.bfloat16" else name.removeprefix("torch.")


def einsum_of_tensors(operands: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
    """`einsum` (which see) where tensors are among the operands.

    Raises:
        RuntimeError: for gradients of what has none here.
    """
    einsum = _einsum()
    options = {name: one for name, one in options.items() if one is not DEFAULTS[name]}
    if "dtype" in options:
        options["dtype"] = dtype_of(options["dtype"])
    are_tensors = [is_tensor(one) for one in operands]
    if are_followed([*compress(operands, are_tensors)]):
        from tilewright.frontend.torch_operator import followed_einsum

        return followed_einsum(operands, out, options)
    if "epilogue_operands" in options:
        extra = options["epilogue_operands"]
        options["epilogue_operands"] = (
            [_epilogue_operand(one) for one in extra] if isinstance(extra, Sequence) else extra
        )
    pairs = zip(operands, are_tensors, strict=True)
    arrays = [_memory(one, "einsum: an operand") if is_one else one for one, is_one in pairs]
    if out is None:
        return tensor_of(einsum(*arrays, **options))
    einsum(*arrays, out=_place(out), **options)
    _tell_of_write(out)
    return out


@cache
def _einsum() -> Callable[..., Any]:
    from tilewright.frontend.einsum import einsum

    return einsum


def _epilogue_operand(given: Any) -> Any:
    if isinstance(given, tuple):
        return (_epilogue_operand(given[0]), *given[1:])
    return array_of(given, "einsum: an operand of the epilogue") if is_tensor(given) else given
