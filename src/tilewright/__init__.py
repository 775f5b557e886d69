"""Tilewright: a compiler for regular data-parallel array programs.

>>> import numpy as np
>>> import tilewright as tw
>>> tw.einsum("i,i->", np.arange(3.0), np.arange(3.0)).item()
5.0

contractions   einsum, tensordot; plan and EinsumPlan, compiled ahead of the data; einsum_tree, plan_tree and TreePlan;
               Semiring; TensorOperation and TensorDimension; empty, an array for results
programs       program and TracedProgram; map, reduce, scan, redomap, scanomap, hist, scatter; loop, while_loop, cond;
               iota, replicate, concat, reshape, rearrange, transpose, roll, update
their types    x: tw.f32["n", "m"] is a matrix: bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, c64,
               c128; of any dtype array and any_, of some float_, integer_, complex_
of scalars     abs, acos, acosh, asin, asinh, atan, atan2, atanh, cast, cbrt, ceil, clip, conj, copysign, cos, cosh,
               erf, erfc, exp, exp2, expm1, floor, fma, fmod, hypot, isfinite, isinf, isnan, log, log10, log1p, log2,
               maximum, minimum, relu, rint, rsqrt, sigmoid, sign, sin, sinh, sqrt, square, tan, tanh, trunc, where
machines       devices, device_for, Device; num_threads, set_num_threads, get_num_threads, register_with_threadpoolctl
errors         DeviceError, DeviceMemoryError, IllegalTiling

`help(tw.einsum)` and the like have shapes, errors and examples; the guides are in docs/. Names are imported
when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from sys import modules
from time import time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.contraction.tensor_operation import TensorDimension as TensorDimension
    from tilewright.contraction.tensor_operation import TensorOperation as TensorOperation
    from tilewright.frontend.array_functions import concat as concat
    from tilewright.frontend.array_functions import iota as iota
    from tilewright.frontend.array_functions import map as map
    from tilewright.frontend.array_functions import rearrange as rearrange
    from tilewright.frontend.array_functions import replicate as replicate
    from tilewright.frontend.array_functions import reshape as reshape
    from tilewright.frontend.array_functions import roll as roll
    from tilewright.frontend.array_functions import scatter as scatter
    from tilewright.frontend.array_functions import transpose as transpose
    from tilewright.frontend.array_functions import update as update
    from tilewright.frontend.control_functions import cond as cond
    from tilewright.frontend.control_functions import loop as loop
    from tilewright.frontend.control_functions import while_loop as while_loop
    from tilewright.frontend.einsum import einsum as einsum
    from tilewright.frontend.einsum_plan import EinsumPlan as EinsumPlan
    from tilewright.frontend.einsum_plan import plan as plan
    from tilewright.frontend.fold_functions import hist as hist
    from tilewright.frontend.fold_functions import redomap as redomap
    from tilewright.frontend.fold_functions import reduce as reduce
    from tilewright.frontend.fold_functions import scan as scan
    from tilewright.frontend.fold_functions import scanomap as scanomap
    from tilewright.frontend.new_arrays import empty as empty
    from tilewright.frontend.program import TracedProgram as TracedProgram
    from tilewright.frontend.program import program as program
    from tilewright.frontend.scalar_functions import abs as abs
    from tilewright.frontend.scalar_functions import acos as acos
    from tilewright.frontend.scalar_functions import acosh as acosh
    from tilewright.frontend.scalar_functions import asin as asin
    from tilewright.frontend.scalar_functions import asinh as asinh
    from tilewright.frontend.scalar_functions import atan as atan
    from tilewright.frontend.scalar_functions import atan2 as atan2
    from tilewright.frontend.scalar_functions import atanh as atanh
    from tilewright.frontend.scalar_functions import cast as cast
    from tilewright.frontend.scalar_functions import cbrt as cbrt
    from tilewright.frontend.scalar_functions import ceil as ceil
    from tilewright.frontend.scalar_functions import clip as clip
    from tilewright.frontend.scalar_functions import conj as conj
    from tilewright.frontend.scalar_functions import copysign as copysign
    from tilewright.frontend.scalar_functions import cos as cos
    from tilewright.frontend.scalar_functions import cosh as cosh
    from tilewright.frontend.scalar_functions import erf as erf
    from tilewright.frontend.scalar_functions import erfc as erfc
    from tilewright.frontend.scalar_functions import exp as exp
    from tilewright.frontend.scalar_functions import exp2 as exp2
    from tilewright.frontend.scalar_functions import expm1 as expm1
    from tilewright.frontend.scalar_functions import floor as floor
    from tilewright.frontend.scalar_functions import fma as fma
    from tilewright.frontend.scalar_functions import fmod as fmod
    from tilewright.frontend.scalar_functions import hypot as hypot
    from tilewright.frontend.scalar_functions import isfinite as isfinite
    from tilewright.frontend.scalar_functions import isinf as isinf
    from tilewright.frontend.scalar_functions import isnan as isnan
    from tilewright.frontend.scalar_functions import log as log
    from tilewright.frontend.scalar_functions import log1p as log1p
    from tilewright.frontend.scalar_functions import log2 as log2
    from tilewright.frontend.scalar_functions import log10 as log10
    from tilewright.frontend.scalar_functions import maximum as maximum
    from tilewright.frontend.scalar_functions import minimum as minimum
    from tilewright.frontend.scalar_functions import relu as relu
    from tilewright.frontend.scalar_functions import rint as rint
    from tilewright.frontend.scalar_functions import rsqrt as rsqrt
    from tilewright.frontend.scalar_functions import sigmoid as sigmoid
    from tilewright.frontend.scalar_functions import sign as sign
    from tilewright.frontend.scalar_functions import sin as sin
    from tilewright.frontend.scalar_functions import sinh as sinh
    from tilewright.frontend.scalar_functions import sqrt as sqrt
    from tilewright.frontend.scalar_functions import square as square
    from tilewright.frontend.scalar_functions import tan as tan
    from tilewright.frontend.scalar_functions import tanh as tanh
    from tilewright.frontend.scalar_functions import trunc as trunc
    from tilewright.frontend.scalar_functions import where as where
    from tilewright.frontend.semiring import Semiring as Semiring
    from tilewright.frontend.tensordot import tensordot as tensordot
    from tilewright.frontend.tree import einsum_tree as einsum_tree
    from tilewright.frontend.tree import plan_tree as plan_tree
    from tilewright.frontend.tree_plan import TreePlan as TreePlan
    from tilewright.passes.tiled.tiling import IllegalTiling as IllegalTiling
    from tilewright.runtime.devices import Device as Device
    from tilewright.runtime.devices import device_for as device_for
    from tilewright.runtime.devices import devices as devices
    from tilewright.runtime.errors import DeviceError as DeviceError
    from tilewright.runtime.errors import DeviceMemoryError as DeviceMemoryError
    from tilewright.runtime.thread_count import get_num_threads as get_num_threads
    from tilewright.runtime.thread_count import num_threads as num_threads
    from tilewright.runtime.thread_count import set_num_threads as set_num_threads
    from tilewright.runtime.thread_limits import register_with_threadpoolctl as register_with_threadpoolctl

    # In annotations a checker takes what has no type for Any, whatever the brackets hold: names of sizes are no types.
    any_: Any
    array: Any
    bf16: Any
    bool_: Any
    c128: Any
    c64: Any
    complex_: Any
    f16: Any
    f32: Any
    f64: Any
    float_: Any
    i16: Any
    i32: Any
    i64: Any
    i8: Any
    integer_: Any
    u16: Any
    u32: Any
    u64: Any
    u8: Any

__version__ = "0.1.0"
_IMPORTED_AT = time_ns()
"""Source files that change after this are not those of which this process's modules were made."""

_MODULES = {
    "tilewright.contraction.tensor_operation": ("TensorDimension", "TensorOperation"),
    "tilewright.frontend.einsum": ("einsum",),
    "tilewright.frontend.einsum_plan": ("EinsumPlan", "plan"),
    "tilewright.frontend.new_arrays": ("empty",),
    "tilewright.frontend.semiring": ("Semiring",),
    "tilewright.frontend.tensordot": ("tensordot",),
    "tilewright.frontend.tree": ("einsum_tree", "plan_tree"),
    "tilewright.frontend.tree_plan": ("TreePlan",),
    "tilewright.runtime.devices": ("Device", "device_for", "devices"),
    "tilewright.runtime.thread_count": ("get_num_threads", "num_threads", "set_num_threads"),
    "tilewright.runtime.thread_limits": ("register_with_threadpoolctl",),
    "tilewright.runtime.errors": ("DeviceError", "DeviceMemoryError"),
    "tilewright.passes.tiled.tiling": ("IllegalTiling",),
    "tilewright.frontend.program": ("TracedProgram", "program"),
    "tilewright.frontend.array_functions": (
        "concat", "iota", "map", "rearrange", "replicate", "reshape", "roll", "scatter", "transpose", "update",
    ),
    "tilewright.frontend.fold_functions": ("hist", "reduce", "redomap", "scan", "scanomap"),
    "tilewright.frontend.control_functions": ("cond", "loop", "while_loop"),
    "tilewright.frontend.annotations": (
        "any_", "array", "bf16", "bool_", "c128", "c64", "complex_", "f16", "f32", "f64", "float_", "i16", "i32", "i64",
        "i8", "integer_", "u16", "u32", "u64", "u8",
    ),
    "tilewright.frontend.scalar_functions": (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cast", "cbrt", "ceil", "clip", "conj",
        "copysign", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "fma", "fmod", "hypot", "isfinite",
        "isinf", "isnan", "log", "log10", "log1p", "log2", "maximum", "minimum", "relu", "rint", "rsqrt", "sigmoid",
        "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "where",
    ),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(["__version__", *_HOMES])  # noqa: PLE0605  # one table serves both


def _imported(name: str) -> Any:
    if name not in _HOMES:
        hint = import_module("tilewright.runtime.messages").instead_of(name)
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}{hint}", name=name, obj=modules[__name__])
    import_module("tilewright.machine.forking")  # first: a child of a fork does not wait for what is imported after it
    with import_module("tilewright.runtime.collecting").collection_later():
        value = getattr(import_module(_HOMES[name]), name)
        import_module("tilewright.frontend.torch_compiler").tell_torch_compiler()
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a checker would take any name for one of ours
    __getattr__ = _imported


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
