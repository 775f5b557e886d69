"""Lines of random programs of numbers at the ends of their types: operations that have one right result.

Where more than one result is right, a name is marked: with "product" (added to something it may be rounded once), or
with "zero" (its sign is not known, as of a minimum of 0.0 and -0.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from fuzz_numpy_lines import Known, Scope, gathered, joined, moved

import tilewright as tw

Line: TypeAlias = "tuple[str, str] | None"
"""The text of an expression, and what it is marked with besides what it is made of."""


@dataclass
class Extremes(Scope):
    """What there is to write of, and the marks of each name."""

    marks: dict[str, frozenset[str]] = field(default_factory=dict)

    def marked(self, text: str, own: str = "") -> frozenset[str]:
        """The marks of what is made of the names in a text."""
        names = re.findall(r"\w+", text)
        return frozenset(own.split()).union(*(self.marks.get(one, frozenset()) for one in names))

    def number(self, kinds: str, least: int = 0, most: int = 4, without: str = "") -> Known | None:
        """One of these kinds and ranks that has none of these marks."""
        fits = [
            one
            for one in self.known
            if one.kind in kinds and least <= one.ndim <= most and not self.marked(one.name) & set(without.split())
        ]
        return fits[max(self.random.randrange(len(fits)) for _ in range(2))] if fits else None

    def beside(self, first: Known, kinds: str, without: str = "", mixed: float = 0.2) -> Known | None:
        """One that may go with another elementwise: of its type, sometimes of any type of these kinds."""
        mixed_types = self.random.random() < mixed
        fits = [
            one
            for one in self.known
            if one.kind in kinds
            and (mixed_types or np.asarray(one.value).dtype == np.asarray(first.value).dtype)
            and _broadcast(one, first)
            and not self.marked(one.name) & set(without.split())
        ]
        return self.random.choice(fits) if fits else None


def _broadcast(one: Known, other: Known) -> bool:
    try:
        np.broadcast_shapes(np.shape(one.value), np.shape(other.value))
    except ValueError:
        return False
    return True


def _width(one: Known) -> int:
    return 8 * np.asarray(one.value).dtype.itemsize


# --- lines ------------------------------------------------------------------------------------------------------------


def integers(s: Extremes) -> Line:
    """An operation on integers."""
    one = s.number("iu")
    if one is None:
        return None
    x, k = one.name, s.random.choice((1, 2, 3, 7, 100))
    other = s.beside(one, "iu")
    y = other.name if other is not None else x
    bits = _width(one)
    ways = [f"{x} {op} {y}" for op in ("+", "-", "*", "//", "%", "&", "|", "^", "//", "%")]
    ways += [f"np.{name}({x}, {y})" for name in ("fmod", "minimum", "maximum", "fmax", "floor_divide", "remainder")]
    ways += [f"np.divmod({x}, {y})[{s.random.randrange(2)}]", f"-{x}", f"~{x}", f"abs({x})", f"np.sign({x})"]
    ways += [f"{x} + {k}", f"{x} * {k}", f"{x} // {k}", f"{x} % {k}", f"{k} // {x}", f"{k} % {x}", f"{k} - {x}"]
    ways += [f"np.square({x})", f"np.clip({x}, 1, {k})", f"np.positive({x})", f"{x} ** {s.random.randint(0, 70)}"]
    ways += [f"{x} ** ({y} & 7)", f"{k} ** ({x} & 3)", f"np.floor({x})", f"np.trunc({x})"]
    if other is None or np.asarray(other.value).dtype == np.asarray(one.value).dtype:
        ways += [f"{x} << {y}", f"{x} >> {y}", f"{k} << {x}", f"np.right_shift({x}, {y})"]
    ways += [f"{x} << {s.random.choice((0, 1, bits // 2, bits - 1, bits, bits + 3))}"]
    ways += [f"{x} >> {s.random.choice((0, 1, bits // 2, bits - 1, bits, bits + 3))}"]
    if one.kind == "i":
        ways += [f"{x} // -1", f"{x} % -1", f"{x} // -{k}", f"{x} % -{k}", f"np.fmod({x}, -{k})"]
    text = s.random.choice(ways)
    return text, "product" if "*" in text else ""


def floats(s: Extremes) -> Line:
    """An operation on floats that is rounded once, if at all."""
    one = s.number("f")
    if one is None:
        return None
    x = one.name
    narrow = np.asarray(one.value).dtype.itemsize == 2
    ways = [(f"-{x}", ""), (f"abs({x})", ""), (f"np.sign({x})", "zero"), (f"np.floor({x})", ""), (f"np.ceil({x})", "")]
    ways += [(f"np.trunc({x})", ""), (f"np.rint({x})", ""), (f"np.fix({x})", ""), (f"np.isnan({x})", "")]
    ways += [(f"np.isfinite({x})", ""), (f"np.isinf({x})", ""), (f"np.clip({x}, -1.5, 2)", "zero")]
    ways += [(f"np.logical_not({x})", ""), (f"{x}.round()" if one.ndim else f"np.rint({x})", "")]
    other = s.beside(one, "f", mixed=0.0)
    if other is not None:
        y = other.name
        ways += [(f"np.{name}({x}, {y})", "zero") for name in ("minimum", "maximum", "fmin", "fmax")]
        if not s.marked(y) & {"zero"}:
            ways += [(f"np.copysign({x}, {y})", "")]
    if not s.marked(x) & {"zero"}:
        ways += [(f"np.signbit({x})", "")]
    if narrow:  # what is computed of f16 is carried in f32 until it is stored
        return s.random.choice(ways)
    ways += [(f"np.sqrt({x})", ""), (f"{x} * {s.random.choice((2, 0.5, 3, -1, 0, 1))}", "product")]
    ways += [(f"np.square({x})", "product"), (f"{x} / {s.random.choice((2, 3, -7))}", "")]
    if other is not None:
        y = other.name
        ways += [(f"{x} * {y}", "product"), (f"np.fmod({x}, {y})", ""), (f"np.heaviside({x}, {y})", "zero")]
        ways += [(f"{x} % {y}", "zero"), (f"{x} // {y}", "zero"), (f"{x} // 2", ""), (f"{x} % 3", "")]
        if not s.marked(y) & {"zero"}:
            ways += [(f"{x} / {y}", "")] * 2
        if not s.marked(f"{x} {y}") & {"product"}:
            ways += [(f"{x} + {y}", ""), (f"{x} - {y}", ""), (f"{x} + 1", ""), (f"{x} - 0.5", ""), (f"{x} + 0.0", "")]
    return s.random.choice(ways)


def complexes(s: Extremes) -> Line:
    """What is exact of complex numbers."""
    one = s.number("c")
    if one is None:
        return None
    x, other = one.name, s.beside(one, "c", mixed=0.0) or one
    ways = [f"-{x}", f"np.conj({x})", f"{x}.real", f"{x}.imag", f"np.real({x})", f"{x} == {other.name}"]
    ways += [f"{x} + {other.name}", f"{x} - {other.name}", f"{x} != {other.name}", f"np.imag({x})"]
    return s.random.choice(ways), "zero"


def compared(s: Extremes) -> Line:
    """Which is less, of any types."""
    one = s.number("biuf", without="product")
    other = s.beside(one, "biuf", "product", mixed=0.6) if one is not None else None
    if one is None or other is None or "float16" in (np.asarray(one.value).dtype, np.asarray(other.value).dtype):
        return None
    text = f"{one.name} {s.random.choice(('<', '<=', '==', '!=', '>', '>='))} {other.name}"
    if s.random.random() < 0.3:
        text = f"{one.name} {s.random.choice(('<', '<=', '==', '!=', '>', '>='))} {s.random.randint(0, 1)}"
    return text, ""


def chosen(s: Extremes) -> Line:
    """One of two, element by element or all of it."""
    one = s.number("biufc")
    other = s.beside(one, "biufc", mixed=0.1) if one is not None else None
    condition = s.number("b")
    if one is None or other is None or condition is None or not _broadcast(condition, one):
        return None
    x, y, c = one.name, other.name, condition.name
    if np.shape(one.value) == np.shape(other.value) and s.random.random() < 0.5 and condition.ndim < 2:
        flag = c if not condition.ndim else f"np.any({c})"
        same = np.asarray(one.value).dtype == np.asarray(other.value).dtype
        return (f"either({flag}, {x}, {y})", "") if same else None
    if one.kind in "iu" and s.random.random() < 0.3:
        return f"np.where({c}, {x}, 1)", ""
    return f"np.where({c}, {x}, {y})", ""


def cast(s: Extremes) -> Line:
    """Another type, which holds the number or wraps around."""
    one = s.number("biuf")
    if one is None:
        return None
    x, wide = one.name, s.random.choice(("float32", "float64", "float64", "bool"))
    whole = s.random.choice(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
    if one.kind != "f":
        return f"{x}.astype(np.{s.random.choice((whole, whole, wide))})", ""
    if np.asarray(one.value).dtype.itemsize == 2:
        return f"{x}.astype(np.{wide})", ""
    if s.random.random() < 0.4:
        return f"{x}.astype(np.{wide})", ""
    info = np.iinfo(whole)
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    if whole.endswith("32"):
        low, high = max(low, -(2**30)), min(high, 2**30)
    return (
        f"np.clip(np.where(np.isnan({x}), {s.random.randint(0, 3)}.0, {x}), {low}.0, {high}.0).astype(np.{whole})",
        "",
    )


def logic(s: Extremes) -> Line:
    """Operations on truth values, and what takes numbers for such."""
    one = s.number("b" if s.random.random() < 0.7 else "biuf")
    other = s.beside(one, "biuf", mixed=0.3) if one is not None else None
    if one is None or other is None:
        return None
    x, y = one.name, other.name
    ways = [f"np.logical_{name}({x}, {y})" for name in ("and", "or", "xor")]
    if one.kind == other.kind == "b":
        ways += [f"{x} {op} {y}" for op in ("&", "|", "^", "+", "*", "==", "<", ">=")] + [f"~{x}"]
    return s.random.choice(ways), ""


def folded(s: Extremes) -> Line:
    """A fold of integers, or of the order of floats."""
    one = s.number("biuf", 1, without="product" if s.random.random() < 0.8 else "")
    if one is None or 0 in np.shape(one.value):
        return None
    x, number = one.name, one.kind in "iu"
    if np.asarray(one.value).dtype.itemsize == 2 and not number and s.marked(x):
        return None
    names = ["max", "min", "argmax", "argmin"] if one.kind != "b" else ["max", "min", "sum", "argmax"]
    names += ["sum", "sum", "prod", "ptp"] if number else []
    names += ["any", "all", "count_nonzero"]
    axes = ["None", str(s.axis(one)), str(s.axis(one))]
    name = s.random.choice(names)
    if one.ndim > 1 and not name.startswith("arg"):
        axes.append(str(tuple(s.random.sample(range(one.ndim), 2))))
    if number and s.random.random() < 0.4:
        name = s.random.choice(("xor", "or", "and", "first", "last", "affine", "add", "mul"))
        return f"reduced('{name}', {x})", ""
    return f"np.{name}({x}, axis={s.random.choice(axes)}{s.random.choice(('', ', keepdims=True'))})", "zero"


def scanned(s: Extremes) -> Line:
    """Folds of the first ones."""
    one = s.number("iuf", 1)
    if one is None:
        return None
    x = one.name
    ways = [f"scanned('{name}', {x})" for name in ("max", "min")]
    if one.kind in "iu":
        ways += [f"np.{s.random.choice(('cumsum', 'cumprod'))}({x}, axis={s.random.choice((None, s.axis(one)))})"] * 2
        ways += [f"scanned('{s.random.choice(('xor', 'first', 'last', 'affine', 'add', 'mul', 'and'))}', {x})"] * 3
    return s.random.choice(ways), "zero"


def placed(s: Extremes) -> Line:
    """Writes at places that integers name, out of range or often, reads, loops."""
    one, places = s.number("iuf", 1, 1), s.number("iu", 1, 1)
    if one is None or places is None:
        return None
    x, at, count = one.name, places.name, s.random.choice((1, 2, 5, 64, 300))
    if len(one.value) != len(places.value):
        at = f"np.take({at}, number({x}) % {at}.shape[0])" if len(places.value) else f"number({x})"
    spread = s.random.choice((at, f"{at} % {count + 2} - 1" if places.kind == "i" else f"{at} % {count + 2}"))
    names = ("max", "min") if one.kind == "f" else ("max", "min", "add", "mul", "xor", "or", "and")
    k = s.random.choice((0, 1, 3))
    ways = [f"binned('{s.random.choice(names)}', {count}, {spread}, {x})"] * 3
    ways += [f"scattered({x}, (number({x}) * {s.random.choice((-1, 1, 2, -3))} + {k}), {x}[::-1])"]
    ways += [f"rounds({k}, {x}, lambda y: y[::-1])", f"counted({x}, {at})", f"np.take({x}, {at}, mode='clip')"]
    ways += [
        f"np.take({x}, {at} % 97, mode='wrap')",
        f"np.roll({x}, {at}[0])",
        f"np.searchsorted({x} > {x}, {x} > {x})",
    ]
    if not len(one.value):
        ways = ways[:5]
    return s.random.choice(ways), "zero"


def of_rows(s: Extremes) -> Line:
    """Another line, of each row of an array."""
    one = s.number("biufc", 1)
    if one is None or not np.shape(one.value)[0] or s.rows > 1:
        return None
    row = f"r{s.rows}"
    rows = [Known(row, np.asarray(one.value)[0], one.exact)] * (2 * len(s.known))
    inner = Extremes(s.random, [*s.known, *rows], s.rows + 1, marks={**s.marks, row: s.marked(one.name)})
    written = s.random.choice(LINES)(inner)
    if written is None or row not in re.findall(r"\w+", written[0]):
        return None
    return f"each(lambda {row}: {written[0]}, {one.name})", " ".join([written[1], *s.marked(one.name)])


def _unmarked(write: Callable[[Scope], Any]) -> Callable[[Extremes], Line]:
    def written(s: Extremes) -> Line:
        found = write(s)
        return None if found is None else (found[0], "")

    return written


LINES: tuple[Callable[[Extremes], Line], ...] = (
    *(integers,) * 6, *(floats,) * 5, complexes, *(compared,) * 3, *(chosen,) * 3, *(cast,) * 4, logic, logic,
    *(folded,) * 4, *(scanned,) * 2, *(placed,) * 3, *(of_rows,) * 3, _unmarked(moved), _unmarked(moved),
    _unmarked(joined), _unmarked(gathered),
)  # fmt: skip


# --- what NumPy has no function for, there and traced -----------------------------------------------------------------

_PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "xor": lambda a, b, w: a ^ b, "or": lambda a, b, w: a | b, "and": lambda a, b, w: a & b,
    "add": lambda a, b, w: a + b, "mul": lambda a, b, w: a * b, "max": lambda a, b, w: np.maximum(a, b),
    "min": lambda a, b, w: np.minimum(a, b), "first": lambda a, b, w: w(a != 0, a, b),
    "last": lambda a, b, w: w(b != 0, b, a),
}  # fmt: skip
_NEUTRAL = {"xor": 0, "or": 0, "and": -1, "add": 0, "mul": 1, "max": -np.inf, "min": np.inf, "first": 0, "last": 0}


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    value = _NEUTRAL[name]
    if value == -1 and dtype.kind == "u":
        return np.iinfo(dtype).max
    return value


def _chain(name: str, x: Any) -> Any:
    """Every prefix, combined from the first on."""
    if x.ndim > 1:
        return np.stack([_chain(name, row) for row in x])
    made = np.empty_like(x)
    if name == "affine":  # x -> a x + b of a = x, b = x + 1, composed
        total = x.dtype.type(0)
        for place, one in enumerate(x):
            made[place] = total = total * one + (one + x.dtype.type(1))
        return made
    for place, one in enumerate(x):
        made[place] = _PAIRS[name](made[place - 1], one, np.where) if place else one
    return made


def _traced_fold(name: str, x: Any, fold: Callable[..., Any]) -> Any:
    if x.ndim > 1:
        return tw.map(lambda row: _traced_fold(name, row, fold), x)
    if name != "affine":
        neutral = _neutral(name, x.dtype)
        return fold(lambda a, b: _PAIRS[name](a, b, tw.where), neutral, x)
    added = tw.map(lambda one: one + 1, x)
    return fold(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0), x, added)[1]


def _binned(name: str, count: int, places: Any, values: Any) -> Any:
    neutral = _neutral(name, values.dtype)
    if values.dtype.kind in "iu" and isinstance(neutral, float):
        neutral = np.iinfo(values.dtype).max if neutral > 0 else np.iinfo(values.dtype).min
    made = np.full(count, neutral, values.dtype)
    for place, value in zip(places.tolist(), values, strict=True):
        if 0 <= place < count:
            made[place] = _PAIRS[name](made[place], value, np.where)
    return made


def _binned_traced(name: str, count: int, places: Any, values: Any) -> Any:
    neutral = _neutral(name, values.dtype)
    return tw.hist(lambda a, b: _PAIRS[name](a, b, tw.where), neutral, count, places, values)


def _scattered(x: Any, places: Any, values: Any) -> Any:
    made = x.copy()
    inside = (places >= 0) & (places < len(x))
    made[places[inside]] = values[inside]
    return made


def _counted(x: Any, places: Any) -> Any:
    """As many rounds as an integer says, at most three: none where it is below 0."""
    made = x.copy()
    for row, rounds in enumerate(np.minimum(places, 3)):
        for _ in range(int(rounds)):
            made[row] = -made[row]
    return made


def _counted_traced(x: Any, places: Any) -> Any:
    return tw.map(lambda one, k: tw.loop(tw.minimum(k, 3).astype("int64"), one, lambda _, v: -v), x, places)


HERE: dict[str, Any] = {
    "either": lambda c, x, y: x if c else y, "reduced": lambda name, x: _chain(name, x)[..., -1],
    "scanned": _chain, "binned": _binned, "scattered": _scattered, "counted": _counted,
}  # fmt: skip
THERE: dict[str, Any] = {
    "either": lambda c, x, y: tw.cond(c, lambda: x, lambda: y),
    "reduced": lambda name, x: _traced_fold(name, x, tw.reduce),
    "scanned": lambda name, x: _traced_fold(name, x, tw.scan), "binned": _binned_traced, "scattered": tw.scatter,
    "counted": _counted_traced,
}  # fmt: skip
