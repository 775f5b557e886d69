"""`tilewright.einsum`: NumPy's einsum, compiled, over any semiring, with fused epilogues; and plans of it.

>>> import numpy as np
>>> einsum("ij,jk->ik", np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
[[1.0, 2.0], [3.0, 4.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, as_arrays, check_factors, check_out
from tilewright.frontend.einsum_quick import label_lists, with_first
from tilewright.frontend.einsum_stored import StoredEinsum, record_key, store_einsum, stored_einsum
from tilewright.frontend.function_key import function_key
from tilewright.frontend.torch_tensors import einsum_of_tensors, is_tensor
from tilewright.runtime.collecting import collection_later, imported
from tilewright.runtime.environment import read_environment
from tilewright.runtime.result_arrays import check_is_array

if TYPE_CHECKING:  # imported with the compiler, when something is compiled
    from tilewright.frontend.einsum_bind import BoundEinsum
    from tilewright.frontend.einsum_hurried import HurriedEinsum
    from tilewright.frontend.semiring import Semiring
    from tilewright.runtime.cpu_entry import NativeEntry
    from tilewright.runtime.devices import Device

_CALLS: dict[Hashable, BoundEinsum | StoredEinsum | HurriedEinsum] = {}
_LARGEST_CALL_CACHE = 4096
_RECENT: dict[Hashable, tuple[NativeEntry, ...]] = {}  # by expression and options: short cuts of the forms met last
_NDARRAY = np.ndarray
_TARGET = b"TILEWRIGHT_TARGET"
_OPTIONS = (
    *("dtype", "order", "casting", "optimize", "semiring", "epilogue"),
    *("epilogue_operands", "alpha", "beta", "target", "tiles"),
)

_SAFE, _PLUS_TIMES, _NO_OPERANDS, _ONE, _ZERO = "safe", "plus_times", (), 1, 0  # objects that plain calls have


def einsum(
    *operands: Any,
    out: Array | None = None,
    dtype: Any = None,
    order: str | None = None,
    casting: str = "safe",
    optimize: Any = True,
    semiring: str | Semiring = "plus_times",
    epilogue: Callable[..., Any] | None = None,
    epilogue_operands: Sequence[Any] = (),
    alpha: int | float | complex = 1,
    beta: int | float | complex = 0,
    target: str | Device | None = None,
    tiles: Mapping[Any, Any] | None = None,
    memory_limit: int | None = None,
) -> Any:
    """Contract arrays as an index expression says.

    The expressions and options of `numpy.einsum`, and more: any letters and any hashable labels, output indices that
    repeat ("i->ii" writes a diagonal), other semirings, an epilogue that is computed before results are stored. Arrays
    are of bool, integers of 8 to 64 bits, f16, bf16, f32, f64, c64 and c128; what else NumPy takes (longdouble,
    objects, views of dates, texts and records, masked arrays, an expression in bytes) is refused. In a function
    decorated with `tw.program` it takes the program's arrays, with `dtype`, `optimize` and `semiring`; what is done to
    its result there is fused.

    Args:
        *operands: an expression and its operands, `einsum("ij,jk->ik", a, b)`, or operands and label lists in turns,
            `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Operands are NumPy arrays of any strides, numbers, lists, or objects
            with `__array__` or `__dlpack__`. Of torch's tensors the result is a tensor, which has gradients (sums of
            products in new tensors), and `torch.compile` takes the einsum into its graphs. A dimension of size 1 goes
            with any size of its index; "..." stands for the dimensions that are not named.
        out: an array for the result, which is returned; it must have the result's shape and share no memory with the
            operands.
        dtype: the type to compute in (default: `numpy.result_type` of the operands and, without an epilogue, of `out`).
            f16 and bf16 accumulate in f32 and are rounded once. bf16 has no type in common with f16 and with integers
            of 16 bits and more: there a dtype is needed.
        order: memory order of the result, "C", "F", "A" or "K", as in NumPy. By default a new array is C-ordered
            (NumPy's default is "K", which follows the operands), and a view stays a view.
        casting: which casts of operands to `dtype` and of the result to `out` are allowed, as in `numpy.can_cast`.
        optimize: the order of contraction of three and more operands: True, False (one loop nest), a method of
            opt_einsum ("greedy", "optimal", "dp", ...), an optimiser of opt_einsum or cotengra, a tree of
            cotengra's, or a path as `numpy.einsum_path` gives.
        semiring: what multiplies and adds: "plus_times", "min_plus", "max_plus", "max_times", "or_and", "log_sum_exp",
            or a `Semiring`. `or_and` is bitwise on integers (2 and 1 give 0): give arrays of bool where numbers other
            than 0 are to count as true. Integers wrap around, and where a sum of `min_plus` or `max_plus` does, that is
            no semiring: of three and more operands, and of an index that one operand alone has, the result depends on
            the order of contraction then. Also the greatest integer is no infinity: it wraps around with whatever is
            above 0. Only the result of sums that stay in the range of the type is the same in every order.
        epilogue: a Python function that is traced: of an element of the (alpha times) result, and one of each epilogue
            operand, giving the element to store. One that is written in a loop is traced in the first round only, if
            all that it finds outside of it is numbers, texts, and what packages and functions like it hold.
        epilogue_operands: arrays, broadcast against the result as in NumPy, or pairs (array, indices), such as
            `(bias, "j")`, with indices of the output.
        alpha: factor of the contraction (a compile-time constant).
        beta: factor of what `out` held: out = epilogue(alpha * contraction) + beta * out.
        target: the device: "cpu", "opencl", "cuda:1", a `Device`; default the variable TILEWRIGHT_TARGET as it is at
            the time of the call, or the CPU.
        tiles: tile sizes for devices with thread blocks, by index: (T, R) = threads and registers of an index of the
            output, Q = piece of a contracted one; indices that are left out get (1, 1), or at most 16. By default the
            cost model chooses.
        memory_limit: bytes that intermediates and the result (if it is not `out`) may take, as for `einsum_tree`: where
            that is too little for the whole, slices of some indices are computed one after another. Only for sums of
            products as they are: without another semiring, `epilogue`, `alpha`, `beta` and `tiles`, for output indices
            that do not repeat, with an `out` of the type that is computed in, and any casting but "unsafe". Views take
            no memory.

    Returns:
        `out`; a new array; for a result without dimensions a NumPy scalar; and where one operand's dimensions are only
        picked and permuted ("ij->ji", "ii->i"), a writeable view of it, as in NumPy: of the operand's type and order of
        bytes, whatever the semiring is, as nothing is computed.

    Raises:
        ValueError: for expressions, shapes, paths, and option values that do not fit, naming the operand, the index
            and the sizes.
        TypeError: for dtypes that are not supported, casts that are not allowed, arguments of a wrong type.
        MemoryError: if `memory_limit` cannot be kept, with the peak and the least that slices can reach.

    Example:
        >>> import numpy as np
        >>> distances = np.array([[0.0, 3.0], [1.0, 0.0]])
        >>> einsum("ij,jk->ik", distances, distances, semiring="min_plus").tolist()
        [[0.0, 3.0], [1.0, 0.0]]
        >>> bias = np.array([10.0, -10.0])
        >>> einsum("ij,jk->ik", distances, distances, epilogue=lambda c, b: np.maximum(c + b, 0),
        ...        epilogue_operands=[(bias, "k")]).tolist()
        [[13.0, 0.0], [10.0, 0.0]]
    """
    if memory_limit is not None:
        return _within_limit(operands, out, memory_limit, (
            dtype, order, casting, optimize, semiring, epilogue, epilogue_operands, alpha, beta, target, tiles,
        ))  # fmt: skip
    place = read_environment(_TARGET) if target is None else target
    recent: Hashable = None
    extra: tuple[Array, ...] = ()
    epilogue_labels: tuple[Any, ...] = ()
    try:
        if (
            dtype is None and optimize is True and epilogue is None and place is None and tiles is None
            and alpha is _ONE and beta is _ZERO and casting is _SAFE and semiring is _PLUS_TIMES
            and epilogue_operands is _NO_OPERANDS
        ):  # fmt: skip
            recent = operands[0] if order is None else (operands[0], order)  # of the others' keys none is as short
        else:
            if type(optimize) is list:  # a path as `numpy.einsum_path` gives it
                optimize = tuple(tuple(one) if type(one) is list else one for one in optimize)
            if epilogue_operands is not _NO_OPERANDS:
                extra, epilogue_labels = _plain_arrays(epilogue_operands)
            recent = (  # 0.0 and -0.0 are equal, and are not the same factor
                operands[0], dtype, order, casting, optimize, semiring,
                None if epilogue is None else function_key(epilogue), epilogue_labels,
                alpha or repr(alpha), beta, place, tiles,
            )  # fmt: skip
        if extra:
            for entry in _RECENT.get(recent, ()):
                found = entry(*operands[1:], *extra, out)
                if found is not None:
                    return found
        elif len(operands) == 3:  # without slices and lists, which take a tenth of a microsecond
            _, first, second = operands
            for entry in _RECENT.get(recent, ()):
                found = entry(first, second, out)
                if found is not None:
                    return found
        elif len(operands) == 2:
            _, first = operands
            for entry in _RECENT.get(recent, ()):
                found = entry(first, out)
                if found is not None:
                    return found
        else:
            for entry in _RECENT.get(recent, ()):
                found = entry(*operands[1:], out)
                if found is not None:
                    return found
    except (TypeError, ValueError, IndexError):  # options without a hash, operands and indices in turns, or none at all
        recent = None
    options = (dtype, order, casting, optimize, semiring, epilogue, epilogue_operands, alpha, beta, target, tiles)
    if recent is None and operands and type(operands[0]) is _NDARRAY:
        recent, found = _in_turns(operands, out, options, place)
        if found is not None:
            return found
    return _by_form(operands, out, options, place, recent)


def _plain_arrays(epilogue_operands: Any) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
    """The arrays that an epilogue is given, and their indices.

    Raises:
        TypeError, ValueError: for what is no array and no pair of an array and indices; `_by_form` looks at it again.
    """
    pairs = [(one, None) if type(one) is _NDARRAY else one for one in epilogue_operands]
    for array, _ in pairs:
        if type(array) is not _NDARRAY:
            raise TypeError
    return tuple(array for array, _ in pairs), tuple(labels for _, labels in pairs)


def _within_limit(operands: tuple[Any, ...], out: Array | None, limit: int, options: tuple[Any, ...]) -> Any:
    """The result of a call with a limit of memory. `options`: those of `_OPTIONS`."""
    named = dict(zip(_OPTIONS, options, strict=True))
    if any(map(is_tensor, operands)) or is_tensor(out):
        return einsum_of_tensors(operands, out, named | {"memory_limit": limit})
    if any(hasattr(one, "__tilewright_apply__") for one in operands):
        return imported("tilewright.frontend.einsum_traced").traced_einsum(
            operands, None, True, _PLUS_TIMES, memory_limit=limit
        )
    if operands and isinstance(operands[0], str):
        expression: Hashable = operands[0]
        terms = operands[1:]
    else:
        from tilewright.frontend.einsum_lists import interleaved

        expression, terms = interleaved(operands)
    return imported("tilewright.frontend.einsum_memory").einsum_within(expression, terms, limit, out, **named)


def _in_turns(
    operands: tuple[Any, ...], out: Array | None, options: tuple[Any, ...], place: Any
) -> tuple[Hashable, Any]:
    """The key of short cuts of a call that gives operands and indices in turns, and the result of one that fits."""
    turns = label_lists(operands)
    *simple, epilogue, epilogue_operands, alpha, beta, _, tiles = options
    if turns is None or tiles is not None or epilogue_operands:
        return None, None
    recent = (turns[0], *simple, function_key(epilogue), alpha or repr(alpha), beta, place)
    try:
        for entry in _RECENT.get(recent, ()):
            found = entry(*turns[1], out)
            if found is not None:
                return recent, found
    except (TypeError, ValueError):
        return None, None
    return recent, None


def _by_form(
    operands: tuple[Any, ...], out: Array | None, options: tuple[Any, ...], place: Any, recent: Hashable
) -> Any:
    """The result of a call that no short cut took: of one like it before, of the disk's, or bound anew.

    `options`: those of `_OPTIONS`. `place`: the target, which the environment may name. `recent`: the key under which
    a short cut that the call gives is kept.
    """
    if any(map(is_tensor, operands)) or is_tensor(out):
        given = {} if type(recent) is str else dict(zip(_OPTIONS, options, strict=True))  # a str: no option was given
        return einsum_of_tensors(operands, out, given)
    dtype, order, casting, optimize, semiring, epilogue, epilogue_operands, alpha, beta, target, tiles = options
    if any(hasattr(one, "__tilewright_apply__") for one in operands):
        return imported("tilewright.frontend.einsum_traced").traced_einsum(
            operands, dtype, optimize, semiring, out=out, order=order, epilogue=epilogue, target=target, tiles=tiles,
            casting=None if casting == "safe" else casting, epilogue_operands=epilogue_operands or None,
            alpha=None if alpha == 1 else alpha, beta=beta or None,
        )  # fmt: skip
    expression, arrays = _expression_and_arrays(operands)
    labels: tuple[Any, ...] = ()
    operand_count = len(arrays)
    if type(epilogue_operands) is not tuple or epilogue_operands:
        extra, labels = imported("tilewright.frontend.einsum_calls").epilogue_operands(epilogue_operands)
        arrays = (*arrays, *extra)
    if alpha is not _ONE or beta is not _ZERO:
        check_factors(alpha=alpha, beta=beta)
    if out is None and beta:
        raise ValueError(f"einsum: beta = {beta} needs out, whose elements it multiplies")
    if out is not None:
        check_is_array(out, "einsum")
    forms = [(one.dtype, one.shape, one.strides) for one in arrays]
    form_of_out = None if out is None else (out.dtype, out.shape, out.strides)
    made_for = (expression, operand_count, *forms, form_of_out)
    tiling = () if tiles is None else _hashable_tiles(tiles)
    key: tuple[Any, ...] = (
        *made_for, *options[:5], function_key(epilogue), labels, alpha or repr(alpha), beta, place, tiling,
    )  # fmt: skip
    try:
        bound, known = _CALLS.get(key), True
    except TypeError:  # what cannot be hashed is refused below
        bound, known = None, False
    record: tuple[str, ...] | None = None
    if bound is None:
        others = {"extra_labels": labels, "alpha": alpha, "beta": beta, "target": target, "tiles": tiles}
        named = dict(zip(_OPTIONS[:6], options, strict=False)) | others
        compiled = partial(_compiled, expression, operand_count, forms, form_of_out, named)
        with collection_later():
            record = record_key(key, arrays, out) if known else None
            bound, is_stored = _found_or_bound(record, compiled, operand_count)
        record = None if is_stored else record
        if known:
            _remember(_CALLS, key, bound)
    if out is not None:
        check_out(out, arrays, operand_count)
    result = bound.run(arrays, out)
    if record is not None:
        kept: Any = bound
        store_einsum(record, getattr(kept, "bound", kept), arrays, result, getattr(kept, "calls", 0))
    known_again = type(operands[0]) is str or type(operands[0]) is _NDARRAY
    if recent is not None and known_again and not tiling and bound.quick and bound.quick.entries:
        _remember(_RECENT, recent, with_first(bound.quick.entries[0], _RECENT.get(recent, ())))
    return result


def _found_or_bound(
    record: tuple[str, ...] | None, compiled: Callable[..., BoundEinsum], operand_count: int
) -> tuple[BoundEinsum | StoredEinsum | HurriedEinsum, bool]:
    """What runs calls of a form that has not been met: of its record on the disk, or compiled; and whether of that."""
    stored = None if record is None else stored_einsum(record, partial(compiled, "cpu"))
    if stored is not None and not stored.calls:
        return stored, True
    hurried = imported("tilewright.frontend.einsum_hurried")
    return hurried.bound_or_hurried(stored, compiled, operand_count, record), stored is not None


def _expression_and_arrays(operands: tuple[Any, ...]) -> tuple[Hashable, tuple[Array, ...]]:
    if operands and isinstance(operands[0], str):
        expression: Hashable = str(operands[0])
        arrays = operands[1:]
        if len(arrays) == 1 and type(arrays[0]) in (list, tuple) and "," in operands[0]:
            raise TypeError(
                f"einsum {expression!r}: operands are given one by one, einsum(expression, a, b); a list is one operand"
            )
    else:
        from tilewright.frontend.einsum_lists import interleaved

        expression, arrays = interleaved(operands)
    for one in arrays:
        if type(one) is not _NDARRAY:
            return expression, as_arrays(arrays)
    return expression, arrays


def _hashable_tiles(tiles: Mapping[Any, Any]) -> Hashable:
    from tilewright.frontend.einsum_options import hashable_tiles

    return hashable_tiles(tiles)


def _compiled(
    expression: Hashable, operand_count: int, forms: Sequence[Any], out: Any, options: dict[str, Any],
    target: str | None = None, hurried: bool = False,
) -> BoundEinsum:  # fmt: skip
    """A call bound to its program, which is compiled when it first runs; on `target` if one is given."""
    from tilewright.frontend.einsum_calls import bound_call

    return bound_call(
        expression, operand_count, forms, out, options if target is None else options | {"target": target}, hurried
    )


def _remember(kept: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    if len(kept) >= _LARGEST_CALL_CACHE:
        kept.clear()
    kept[key] = value
