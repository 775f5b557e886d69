"""`ArrayProxy`: what stands for an array while a program is traced, with its indexing and elementwise operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.foreign_functions import array_function, array_ufunc, hint_of, torch_function
from tilewright.frontend.program_tracing import (
    IndexProxy,
    Tracer,
    active_tracer,
    describe_value,
    index_size,
    is_array,
    user_location,
    wrap,
)
from tilewright.frontend.scalar_powers import power
from tilewright.frontend.scalar_tracing import ScalarProxy, apply, foreign
from tilewright.ir.counts import element_count, is_natural
from tilewright.ir.nodes import Atom, Index, Slice, SliceDimension, Variable
from tilewright.ir.scalars import BOOL, I8, U64, ScalarType
from tilewright.ir.sizes import ZERO, Size, ceil_division, maximum, size
from tilewright.ir.written_indices import UNSIGNED, written_index

_LARGEST_UNROLLED_ITERATION = 64
_LONGEST_NAME = 60


class ArrayProxy:
    """An array of the traced program.

    Operators and the functions of scalars work elementwise on arrays of one shape and scalars; an array of fewer
    dimensions goes with each row of one whose rows are like it. Indexing takes integers, traced integers and slices;
    constants below 0 count from the end.

    Attributes:
        builder: where operations on it are written.
    """

    __slots__ = ("_variable", "builder", "index_like")
    __hash__ = None  # type: ignore[assignment]  # == is elementwise
    __tilewright_array__ = True

    def __init__(self, variable: Variable, builder: Tracer) -> None:
        self._variable = variable
        self.builder = builder
        self.index_like = False  # elements are indices: the result of iota

    @property
    def variable(self) -> Variable:
        """The array.

        Raises:
            TypeError: while another program is traced, in which this name means nothing or something else.
        """
        if active_tracer() not in (self.builder, None):
            raise TypeError(foreign(self._variable))
        return self._variable

    @property
    def shape(self) -> tuple[IndexProxy, ...]:
        """The sizes, as scalars that can also be counts, extents and bounds."""
        return tuple(
            IndexProxy(extent, self.builder, weak=True, value=None if is_natural(extent) else maximum(extent, ZERO))
            for extent in self.variable.type.shape
        )

    @property
    def scalar(self) -> ScalarType:
        """The element type."""
        return self.variable.type.element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self.scalar.numpy

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.variable.type.rank

    @property
    def size(self) -> Any:
        """Number of elements."""
        return IndexProxy(element_count(self.variable.type.shape), self.builder, weak=True)

    @property
    def T(self) -> Any:
        """Dimensions in reverse order."""
        from tilewright.frontend.array_functions import transpose

        return transpose(self)

    def astype(self, dtype: object, *, copy: bool = True) -> Any:
        """Elements converted to another scalar type; `copy` has no meaning here, where arrays do not change."""
        from tilewright.frontend.array_functions import elementwise

        return elementwise(lambda one: one.astype(dtype), [self])

    @property
    def real(self) -> Any:
        """The real parts (itself for real types)."""
        from tilewright.frontend.array_functions import elementwise

        return elementwise(lambda one: one.real, [self])

    @property
    def imag(self) -> Any:
        """The imaginary parts (zeros for real types)."""
        from tilewright.frontend.array_functions import elementwise

        return elementwise(lambda one: one.imag, [self])

    def conj(self) -> Any:
        """The complex conjugates (itself for real types)."""
        return apply("conj", self)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """The elements in row-major order, or in column-major order ("F"), under another shape; -1 stands for what is
        left, and `copy` has no meaning here.
        """
        from tilewright.frontend.shape_functions import reshape

        return reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape, order)

    def with_item(self, indices: Any, value: Any) -> Any:
        """A copy with one element or sub-array replaced (`tw.update`)."""
        from tilewright.frontend.array_functions import update

        return update(self, indices, value)

    def __getitem__(self, key: Any) -> Any:
        return subscript(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            f"{self.variable}[...] = ... : arrays of a program do not change; write "
            f"{self.variable} = tw.update({self.variable}, index, value), or tw.scatter for many elements"
        )

    def __len__(self) -> int:
        return self.shape[0].__index__()

    def __iter__(self) -> Iterator[Any]:
        count = self.variable.type.shape[0].constant
        if count is None or count > _LARGEST_UNROLLED_ITERATION:
            raise TypeError(
                f"Python cannot go over the {self.variable.type.shape[0]} rows of {self.variable} while the function "
                "is traced; use tw.map, tw.reduce, tw.scan or tw.loop"
            )
        return (self[i] for i in range(count))

    def __bool__(self) -> bool:
        raise TypeError(
            f"{known_as(self)[0]} is an array, which has no truth value while the function is traced: of each element "
            "write tw.where(condition, a, b), & | ~ instead of `and` `or` `not`, and (0 < x) & (x < 1) instead of "
            "0 < x < 1; of all elements, with .any() or .all(), tw.cond"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"the array {self.variable} has no values while the function is traced, so NumPy's functions cannot work "
            "on it; use the functions of tilewright"
        )

    __array_ufunc__, __array_function__ = array_ufunc, array_function
    __torch_function__: Any = classmethod(torch_function)

    def __tilewright_apply__(self, operator: str, operands: Sequence[Any]) -> Any:
        from tilewright.frontend.array_functions import elementwise

        return elementwise(lambda *x: power(*x) if operator == "pow" else apply(operator, *x), operands)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by protocols, also of a proxy that is being made
            raise AttributeError(name)
        from tilewright.frontend.numpy_functions import METHODS, traced_method

        if name in METHODS:
            return traced_method(self, name, str(self._variable))
        hint = hint_of(name, True)
        instead = f"it has {', '.join(METHODS)}, and there are the functions of tilewright"
        raise AttributeError(
            f"the array {self._variable} of type {self._variable.type} has no attribute {name!r} while the function is "
            f"traced; {instead if hint is None else f'write {hint}'}"
        )

    def __matmul__(self, other: Any) -> Any:
        from tilewright.frontend.matrix_products import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        from tilewright.frontend.matrix_products import matmul

        return matmul(other, self)

    def __format__(self, form: str) -> str:
        if form:
            raise TypeError(f"the elements of {self.variable} are not known while the function is traced")
        return str(self)

    def __repr__(self) -> str:
        name = "" if self._variable.name in self.builder.origins else f" {self._variable}"
        return f"<array{name} of type {self._variable.type}>"

    __add__, __radd__ = ScalarProxy.__add__, ScalarProxy.__radd__
    __sub__, __rsub__ = ScalarProxy.__sub__, ScalarProxy.__rsub__
    __mul__, __rmul__ = ScalarProxy.__mul__, ScalarProxy.__rmul__
    __truediv__, __rtruediv__ = ScalarProxy.__truediv__, ScalarProxy.__rtruediv__
    __floordiv__, __rfloordiv__ = ScalarProxy.__floordiv__, ScalarProxy.__rfloordiv__
    __mod__, __rmod__ = ScalarProxy.__mod__, ScalarProxy.__rmod__
    __rpow__ = ScalarProxy.__rpow__
    __and__, __rand__ = ScalarProxy.__and__, ScalarProxy.__rand__
    __or__, __ror__ = ScalarProxy.__or__, ScalarProxy.__ror__
    __xor__, __rxor__ = ScalarProxy.__xor__, ScalarProxy.__rxor__
    __lshift__, __rlshift__ = ScalarProxy.__lshift__, ScalarProxy.__rlshift__
    __rshift__, __rrshift__ = ScalarProxy.__rshift__, ScalarProxy.__rrshift__
    __eq__, __ne__ = ScalarProxy.__eq__, ScalarProxy.__ne__
    __lt__, __le__, __gt__, __ge__ = ScalarProxy.__lt__, ScalarProxy.__le__, ScalarProxy.__gt__, ScalarProxy.__ge__
    __neg__, __abs__, __invert__ = ScalarProxy.__neg__, ScalarProxy.__abs__, ScalarProxy.__invert__
    __divmod__, __rdivmod__ = ScalarProxy.__divmod__, ScalarProxy.__rdivmod__

    def __pow__(self, other: Any) -> Any:
        if self.scalar == BOOL and type(other) is int and other == 2:  # NumPy's way of squares, which has another type
            return self.astype(I8)
        return power(self, other)

    def __pos__(self) -> Any:
        return np.positive(self)

    def __round__(self, digits: int | None = None) -> Any:
        from tilewright.frontend.array_functions import elementwise

        return elementwise(lambda one: round(one, digits), [self])


# --- indexing ---------------------------------------------------------------------------------------------------------


def subscript(array: ArrayProxy, key: Any, checked: bool = True) -> Any:
    """array[key]: integers pick, slices cut, None makes a dimension of size 1, `...` is the dimensions in between;
    arrays of indices gather. Slices that are sure to be in range need not be `checked`.

    Raises:
        IndexError: for too many indices, and constants that are out of range.
        TypeError: for what is no integer and no slice.
    """
    tracer, variable = array.builder, array.variable
    keys = _expanded(array, key)
    if any(isinstance(one, list | np.ndarray) or is_array(one) for one in keys):
        from tilewright.frontend.gather_functions import gathered

        return gathered(array, keys)
    if any(one is None for one in keys):
        from tilewright.frontend.shape_functions import with_new_dimensions

        part = subscript(array, tuple(one for one in keys if one is not None))
        remaining = [one for one in keys if one is None or isinstance(one, slice)]
        return with_new_dimensions(part, [place for place, one in enumerate(remaining) if one is None])
    picked = [d for d, one in enumerate(keys) if not isinstance(one, slice)]
    kept = [d for d, one in enumerate(keys) if isinstance(one, slice)]
    indices = [index_atom(array, d, keys[d]) for d in picked]
    if picked:
        turned = tracer.rearrange(variable, (*picked, *kept))
        variable = tracer.bind(Index(turned, tuple(indices), written(array, keys, picked)))
        name, own = known_as(array)
        tracer.parts_of[variable.name] = (name, tuple(own[d] for d in kept))
        if not kept and own == tuple(range(array.ndim)) and array.variable.name == name:
            tracer.written[variable.name] = f"{name}[{', '.join(map(_key_text, keys))}]"
    if any(part is not None for d in kept for part in (keys[d].start, keys[d].stop, keys[d].step)):
        cuts = tuple(_cut(array, d, keys[d]) for d in kept)
        variable = tracer.bind(Slice(variable, cuts, written(array, keys, kept), checked))
        tracer.parts_of[variable.name] = (_cut_text(array, keys), tuple(range(len(kept))))
    if variable is array.variable:
        return array
    tracer.origins[variable.name] = f"part of {array.variable} at {user_location()}"
    return wrap(tracer, variable)


def _expanded(array: ArrayProxy, key: Any) -> list[Any]:
    """One index or slice per dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [one[()] if isinstance(one, np.ndarray) and not one.ndim else one for one in keys]
    for one in keys:
        if isinstance(one, bool):
            raise TypeError(f"{array.variable}[...]: {one} is no index; integers, slices and arrays are")
    given = sum(one is not Ellipsis and one is not None for one in keys)
    if given > array.ndim or sum(one is Ellipsis for one in keys) > 1:
        raise IndexError(f"{given} indices for {array.variable} of type {array.variable.type}")
    missing = [slice(None)] * (array.ndim - given)
    at = next((n for n, one in enumerate(keys) if one is Ellipsis), None)
    return [*keys, *missing] if at is None else [*keys[:at], *missing, *keys[at + 1 :]]


def known_as(array: ArrayProxy) -> tuple[str, tuple[int, ...]]:
    """The name by which the user knows the array, or one that it is part of, and which dimensions of that it has."""
    name = array.variable.name
    if name in array.builder.parts_of:
        return array.builder.parts_of[name]
    origin = array.builder.origins.get(name)
    return name if origin is None else f"the result of {origin}", tuple(range(array.ndim))


def written(array: ArrayProxy, keys: Sequence[Any], dimensions: Sequence[int]) -> str:
    """The `line` of a node that indexes or cuts these dimensions of an array."""
    name, own = known_as(array)
    picked = [keys[d] for d in dimensions]
    below = [_told_constant(one) for one in picked]
    cut = _cut_text(array, keys) if any(isinstance(one, slice) for one in picked) else ""
    line = user_location()
    if name == array.variable.name and tuple(dimensions) == own[: len(dimensions)] and not cut and not any(below):
        return line  # as the node has it
    return written_index(line, name, [own[d] for d in dimensions], below, cut)


def _told_constant(key: Any) -> int | str | None:
    """What messages need to know of an index beside its value as an i64."""
    if isinstance(key, ScalarProxy):
        return UNSIGNED if key.scalar == U64 else None
    return int(key) if isinstance(key, int | np.integer) and key < 0 else None


def _cut_text(array: ArrayProxy, keys: Sequence[Any]) -> str:
    """A slice as it is written, or of what it is a part."""
    name, own = known_as(array)
    last = max(d for d, one in enumerate(keys) if _key_text(one) != ":")
    text = f"{name}[{', '.join(map(_key_text, keys[: last + 1]))}]"
    is_short = own == tuple(range(array.ndim)) and len(text) <= _LONGEST_NAME and array.variable.name == name
    return text if is_short else f"part of {name.removeprefix('part of ')}"


def _key_text(key: Any) -> str:
    """An index or a slice as it is written, as far as that is known."""
    if isinstance(key, slice):
        ends = ["" if one is None else _key_text(one) for one in (key.start, key.stop)]
        return ":".join([*ends, *([] if key.step is None else [_key_text(key.step)])])
    if isinstance(key, IndexProxy):
        return str(key.extent)
    return key.shown() if isinstance(key, ScalarProxy) else str(key)


def index_atom(array: ArrayProxy, dimension: int, key: Any) -> Atom:
    """An index of a dimension as an i64 atom.

    Raises:
        IndexError: for a constant that is out of range.
        TypeError: for what is no integer.
    """
    what = f"the index of dimension {dimension} of {array.variable}"
    extent = array.variable.type.shape[dimension]
    if isinstance(key, ScalarProxy) and key.scalar.is_integer and not isinstance(key, IndexProxy):
        return key.astype("i64").atom
    index = index_size(key, extent, what)
    known, count = index.constant, extent.constant
    if known is not None and (known < 0 or known >= (2**63 if count is None else count)):
        name, own = known_as(array)
        raise IndexError(f"index {key} of {name} is out of range in dimension {own[dimension]} of extent {extent}")
    return IndexProxy(index, array.builder).atom


def _cut(array: ArrayProxy, dimension: int, cut: slice) -> SliceDimension:
    """A slice of a dimension. Constants are cut off at known sizes, as in Python; at others they must be in range."""
    extent = array.variable.type.shape[dimension]
    what = f"slice of dimension {dimension} of {array.variable}"
    step = 1 if cut.step is None else cut.step
    if not isinstance(step, int | np.integer) or isinstance(step, bool) or step == 0:
        raise TypeError(f"{what}: the step must be a constant that is not 0, not {describe_value(step)}")
    step = int(step)
    if extent.constant is not None and all(isinstance(one, int | None) for one in (cut.start, cut.stop)):
        places = range(*slice(cut.start, cut.stop, step).indices(extent.constant))
        return SliceDimension(size(places.start if places else 0), size(len(places)), step)
    first, last = (ZERO, extent) if step > 0 else (extent - 1, size(-1))
    start = first if cut.start is None else _bound(cut.start, extent, f"start of the {what}")
    stop = last if cut.stop is None else _bound(cut.stop, extent, f"end of the {what}")
    count = ceil_division(stop - start, step) if step > 0 else ceil_division(start - stop, -step)
    return SliceDimension(start, ZERO if (count.constant or 0) < 0 else count, step)


def _bound(key: Any, extent: Size, what: str) -> Size:
    """Where a slice begins or ends. TypeError for -k, which NumPy counts from the end."""
    bound = index_size(key, extent, what)
    if not isinstance(key, int | np.integer) and bound.terms and all(coefficient < 0 for _, coefficient in bound.terms):
        raise TypeError(f"{what}: {bound} is computed, and so counts from 0; from the end on it is {extent + bound}")
    return bound
