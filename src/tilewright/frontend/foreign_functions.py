"""What functions of NumPy and of torch do with traced values: they call these, as methods of proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_INSTEAD = {
    "gelu": "0.5 * x * (1 + tw.erf(x / 2**0.5))",
    "silu": "x * tw.sigmoid(x)",
    "softplus": "tw.log1p(tw.exp(x))",
    "leaky_relu": "tw.where(x > 0, x, slope * x)",
    "clamp": "tw.clip(x, lower, upper)",
    "pow": "x ** y",
    "masked_fill": "tw.where(mask, value, x)",
    **dict.fromkeys(("to", "type", "float"), "x.astype(tw.f32)"),
    **{name: f"x.astype(tw.{ours})" for name, ours in {
        "double": "f64", "half": "f16", "bfloat16": "bf16", "int": "i32", "long": "i64", "bool": "bool_",
    }.items()},
    **dict.fromkeys(("detach", "clone", "contiguous"), "x: values of a program do not change"),
}  # fmt: skip
"""What is written in place of functions and methods of torch."""

_SHIFTED = "x - x.max(axis=-1, keepdims=True)"
_INSTEAD_OF_ARRAYS = _INSTEAD | {
    "softmax": f"e / e.sum(axis=-1, keepdims=True) of e = np.exp({_SHIFTED})",
    "log_softmax": f"y - np.log(np.exp(y).sum(axis=-1, keepdims=True)) of y = {_SHIFTED}",
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), "x @ y"),
    "cat": "tw.concat(x, y)",
    "gather": "np.take_along_axis(x, indices, axis)",
    "index_select": "np.take(x, indices, axis)",
    "view": "x.reshape(shape)",
    "permute": "x.transpose(axes)",
    "unsqueeze": "x[None], or x[:, None] and so on",
    "expand": "np.broadcast_to(x, shape)",
    "size": "x.shape",
}
"""The same for arrays."""


def hint_of(name: str, of_array: bool) -> str | None:
    """What is written in place of a function or method `name` of x, that values of programs do not have."""
    from tilewright.frontend.numpy_functions import is_traced_function

    found = (_INSTEAD_OF_ARRAYS if of_array else _INSTEAD).get(name)
    if found is None and of_array and is_traced_function(name):
        return f"np.{name}, with axis= and keepdims="
    return f"tw.{name}(x)" if found is None and _namesake(name) is not None else found


def _namesake(name: str) -> Any:
    """The function of scalars of this name."""
    from tilewright.frontend import scalar_functions

    found = getattr(scalar_functions, name, None)
    return found if getattr(found, "__module__", "") == scalar_functions.__name__ else None


def array_ufunc(_: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's protocol for universal functions (`__array_ufunc__`)."""
    from tilewright.frontend.numpy_ufuncs import traced_ufunc

    return traced_ufunc(ufunc, method, inputs, options)


def array_function(_: Any, function: Any, __: Any, arguments: Any, options: Any) -> Any:
    """NumPy's protocol for other functions (`__array_function__`)."""
    from tilewright.frontend.numpy_functions import traced_function

    return traced_function(function, arguments, options)


def torch_function(
    kind: type, function: Any, __: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
) -> Any:
    """Torch's protocol (`__torch_function__`): functions of scalars that have a namesake here are that.

    Raises:
        TypeError: for all others, with what is written instead.
    """
    name, given = getattr(function, "__name__", str(function)), dict(options or {})
    ours = _namesake(name)
    if ours is not None and not given.pop("inplace", False):
        return ours(*arguments, **given)
    instead = hint_of(name, getattr(kind, "__tilewright_array__", False)) or "the functions of tilewright, as tw.relu"
    raise TypeError(f"torch's {name} cannot be traced; use {instead}")
