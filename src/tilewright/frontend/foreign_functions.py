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
}


def array_ufunc(_: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's protocol for universal functions (`__array_ufunc__`)."""
    from tilewright.frontend.numpy_ufuncs import traced_ufunc

    return traced_ufunc(ufunc, method, inputs, options)


def array_function(_: Any, function: Any, __: Any, arguments: Any, options: Any) -> Any:
    """NumPy's protocol for other functions (`__array_function__`)."""
    from tilewright.frontend.numpy_functions import traced_function

    return traced_function(function, arguments, options)


def torch_function(
    _: type, function: Any, __: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
) -> Any:
    """Torch's protocol (`__torch_function__`): functions of scalars that have a namesake here are that.

    Raises:
        TypeError: for all others, with what is written instead.
    """
    from tilewright.frontend import scalar_functions

    name, given = getattr(function, "__name__", str(function)), dict(options or {})
    ours: Any = getattr(scalar_functions, name, None)
    if getattr(ours, "__module__", "") == scalar_functions.__name__ and not given.pop("inplace", False):
        return ours(*arguments, **given)
    instead = _INSTEAD.get(name, "the functions of tilewright, as tw.relu")
    raise TypeError(f"torch's {name} cannot be traced; use {instead}")
