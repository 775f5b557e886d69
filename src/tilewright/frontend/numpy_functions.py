"""NumPy's functions where they meet traced values: what they are here, and what is written in place of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from tilewright.frontend import (
    array_functions,
    axis_functions,
    gather_functions,
    neighbour_functions,
    scalar_functions,
    shape_functions,
)
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.einsum import einsum
from tilewright.frontend.program_tracing import is_array
from tilewright.frontend.scalar_functions import rounded
from tilewright.frontend.scalar_tracing import apply
from tilewright.frontend.tensordot import tensordot


def traced_function(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Another function of NumPy, of traced values.

    Raises:
        TypeError: for one that cannot be traced, with what is written instead.
    """
    name = function.__name__
    if name in _OTHERS:
        try:
            signature(_OTHERS[name]).bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"numpy.{name} of traced arrays: {error}") from None
        return _OTHERS[name](*arguments, **options)
    instead = _INSTEAD.get(name, "tilewright's functions")
    raise TypeError(f"{function.__module__}.{name} cannot be traced; use {instead}")


def is_traced_function(name: str) -> bool:
    """Whether NumPy's function of this name can be traced."""
    return name in _OTHERS


def traced_method(array: Any, name: str, shown: str) -> Callable[..., Any]:
    """A method of a traced array, which is called `shown` in errors.

    Raises (when called):
        TypeError: for arguments that the method does not have.
    """

    def method(*arguments: Any, **options: Any) -> Any:
        try:
            signature(METHODS[name]).bind(array, *arguments, **options)
        except TypeError as error:
            named = [f"; write {ours}= for {torchs}=" for torchs, ours in _OF_TORCH.items() if torchs in options]
            raise TypeError(f"{shown}.{name}: {error}{''.join(named)}") from error
        return METHODS[name](array, *arguments, **options)

    return method


def _flipped(array: Any, axis: int | Sequence[int] | None = None) -> Any:
    chosen = range(array.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    turned = {dimension_of("flip", array, one) for one in chosen}
    return array[tuple(slice(None, None, -1 if d in turned else None) for d in range(array.ndim))]


def _clipped(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """`numpy.clip`, in which None is no bound."""
    return scalar_functions.clip(a, a_min if min is None else min, a_max if max is None else max)


def _transposed(array: Any, *axes: Any) -> Any:
    """The method, whose axes are one sequence, or given one by one."""
    one = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes
    return array_functions.transpose(array, one or None)


def _concatenated(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    if axis is None:
        return array_functions.concat(*(shape_functions.ravel(one) if is_array(one) else one for one in arrays))
    return array_functions.concat(*arrays, axis=axis)


def _angle(value: Any) -> Any:
    return apply("atan2", value.imag, value.real)


_OTHERS: dict[str, Callable[..., Any]] = {
    "where": scalar_functions.where,
    "clip": _clipped,
    "real": lambda value: value.real,
    "imag": lambda value: value.imag,
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "size": lambda array: array.size,
    "transpose": lambda array, axes=None: array_functions.transpose(array, axes),
    "roll": array_functions.roll,
    "flip": _flipped,
    "angle": _angle,
    "round": lambda value, decimals=0: rounded(value, decimals),
    "around": lambda value, decimals=0: rounded(value, decimals),
    "fix": lambda value: apply("trunc", value),
    "concatenate": _concatenated,
    "einsum": einsum,
    "tensordot": tensordot,
    **axis_functions.FUNCTIONS,
    **shape_functions.FUNCTIONS,
    **gather_functions.FUNCTIONS,
    **neighbour_functions.FUNCTIONS,
}

_OF_TORCH = {"dim": "axis", "keepdim": "keepdims"}
"""What torch calls arguments."""

_FILTER = "tw.where for arrays of the same size; examples/filter.py has how elements are kept, and counted"
_INSTEAD = {
    "trapezoid": "((ys[1:] + ys[:-1]) * (xs[1:] - xs[:-1])).sum() / 2",
    "bincount": 'tw.hist("add", 0, count, indices, weights)',
    "histogram": 'tw.hist("add", 0, bins, indices, 1), indices computed by tw.map',
    "nonzero": _FILTER,
    "flatnonzero": _FILTER,
    "argwhere": _FILTER,
    "compress": _FILTER,
    "extract": _FILTER,
    **dict.fromkeys(("inv", "solve", "det", "eig", "eigh", "qr", "svd", "cholesky"), "NumPy outside of the program"),
    "fft": "NumPy outside of the program",
    "split": "slices, xs[:middle] and xs[middle:]",
    "kron": "np.einsum('ij,kl->ikjl', xs, ys), reshaped",
    "meshgrid": "broadcasting, xs[:, None] and ys",
    "isclose": "tw.abs(xs - ys) <= tolerance",
    "nansum": "tw.where(tw.isnan(xs), 0.0, xs).sum()",
    "nanmean": "tw.where(tw.isnan(xs), 0.0, xs).sum() / (~tw.isnan(xs)).sum()",
    **dict.fromkeys(("apply_along_axis", "vectorize"), "tw.map"),
    **dict.fromkeys(("select", "piecewise"), "tw.where in tw.where"),
    "append": "tw.concat",
    "rot90": "np.flip(xs.T, 0)",
    "empty_like": "np.zeros_like",
    "digitize": "np.searchsorted(bins, xs, side='right')",
    "allclose": "(tw.abs(xs - ys) <= tolerance).all()",
    "nan_to_num": "tw.where(tw.isnan(xs), 0.0, xs)",
    "sort": "np.sort before the program: there is no sorting in programs",
    "argsort": "np.argsort before the program: there is no sorting in programs",
    "median": "np.median outside of the program: there is no sorting in programs",
    "percentile": "np.percentile outside of the program: there is no sorting in programs",
    "quantile": "np.quantile outside of the program: there is no sorting in programs",
    "unique": "np.unique outside of the program: there is no sorting in programs",
}
"""What is written in place of functions that go over the rows of arrays."""

METHODS: dict[str, Callable[..., Any]] = {
    **axis_functions.METHODS,
    **shape_functions.METHODS,
    **gather_functions.METHODS,
    "clip": _clipped,
    "round": lambda value, decimals=0: rounded(value, decimals),
    "transpose": _transposed,
}
"""What traced arrays have as methods, beside those that `ArrayProxy` has itself."""
