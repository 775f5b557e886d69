"""Lines of random programs of NumPy's functions: each function here writes one expression of what is known, or none.

With the text it says whether the numbers are still exact, so that functions that jump may be taken of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import numpy as np

import tilewright as tw

Line: TypeAlias = "tuple[str, bool] | None"

MOST_GATHERED = 1_000_000
"""Elements times places, of which a gather of rows may have as many."""


@dataclass(frozen=True)
class Known:
    """A name, the value it has in NumPy, and whether every order of additions gives that."""

    name: str
    value: Any
    exact: bool

    @property
    def ndim(self) -> int:
        """Its dimensions."""
        return np.ndim(self.value)

    @property
    def kind(self) -> str:
        """The kind of its elements, as NumPy has it."""
        return np.asarray(self.value).dtype.kind


@dataclass
class Scope:
    """What there is to write of."""

    random: Random
    known: list[Known] = field(default_factory=list)
    rows: int = 0  # functions of rows around what is written
    special: bool = False  # some floats are infinite or undefined

    def keep(self, name: str, value: Any, exact: bool) -> None:
        """One more."""
        number = np.asarray(value)
        if exact and number.dtype.kind in "fc":
            parts = np.asarray([number.real, number.imag]).astype(np.float64) * 64
            exact = bool(np.all((parts == np.round(parts)) | ~np.isfinite(parts)))
        self.known.append(Known(name, value, exact))

    def one(self, kinds: str = "biufc", least: int = 0, most: int = 4, exact: bool = False) -> Known | None:
        """One of these kinds and ranks, rather of the last ones."""
        fits = [
            one
            for one in self.known
            if one.kind in kinds and least <= one.ndim <= most and (one.exact or not exact or one.kind in "biu")
        ]
        return fits[max(self.random.randrange(len(fits)) for _ in range(2))] if fits else None

    def finite(self, kinds: str, least: int = 0) -> Known | None:
        """One whose elements are exact and finite."""
        return self.one("".join(set(kinds) - set("fc")) if self.special else kinds, least, exact=True)

    def like(self, first: Known, scalars: bool = True) -> Known:
        """One that may go with another elementwise."""
        dtype = np.asarray(first.value).dtype
        fits = [
            one
            for one in self.known
            if np.asarray(one.value).dtype == dtype and (scalars or one.ndim) and _broadcasts(one, first)
        ]
        return self.random.choice(fits)

    def axis(self, one: Known) -> int:
        """A dimension, sometimes counted from the end."""
        return self.random.randrange(-one.ndim, one.ndim)


def _broadcasts(one: Known, other: Known) -> bool:
    try:
        np.broadcast_shapes(np.shape(one.value), np.shape(other.value))
    except ValueError:
        return False
    return True


_SMOOTH = ("sin", "cos", "tanh", "arctan", "square", "negative", "abs", "conj", "exp2", "expm1", "arcsinh", "real")
_EXACT = ("square", "negative", "abs", "conj", "real")
_JUMPS = ("floor", "ceil", "trunc", "rint", "sign", "signbit", "fix", "round", "logical_not")


def smooth(s: Scope) -> Line:
    """A function of each number."""
    one = s.one("fc")
    if one is None:
        return None
    complex_names = ("negative", "abs", "conj", "real", "imag", "exp", "sqrt", "angle")
    if s.special:  # whether parts of products are infinite or no numbers depends on how these are computed
        complex_names = ("negative", "conj")
    names = _SMOOTH if one.kind == "f" else complex_names
    name = s.random.choice(names)
    if one.kind == "f" and s.random.random() < 0.2:
        return s.random.choice((f"np.sqrt(np.abs({one.name}))", f"np.log1p(np.abs({one.name}))")), False
    return f"np.{name}({one.name})", one.exact and name in _EXACT


def jumping(s: Scope) -> Line:
    """A function of each number that jumps."""
    one = s.one("fiu", exact=True)
    if one is None:
        return None
    names = _JUMPS if one.kind == "f" else ("sign", "abs", "negative", "invert", "logical_not", "square", "positive")
    return f"np.{s.random.choice(names)}({one.name})", True


def arithmetic(s: Scope) -> Line:
    """Two arrays, or one and a constant."""
    first = s.one("iufc")
    if first is None:
        return None
    constants = {"f": ("2", "0.5", "-1.5", "3"), "c": ("2", "0.5", "1j")}.get(first.kind, ("2", "1", "3"))
    second = s.like(first)
    other = s.random.choice(constants) if s.random.random() < 0.3 else second.name
    operators = ("+", "-", "*") if first.kind in "fc" else ("+", "-", "*", "//", "%", "&", "|", "^")
    pair = (first.name, other) if s.random.random() < 0.5 else (other, first.name)
    exact = first.exact and second.exact
    if first.kind in "fc" and s.random.random() < 0.15:
        return f"{first.name} / (np.abs({first.name}) + 1)", False
    if first.kind == "f" and s.random.random() < 0.25:
        name = s.random.choice(("minimum", "maximum", "hypot", "arctan2", "logaddexp", "fmax", "fmin"))
        return f"np.{name}({pair[0]}, {pair[1]})", exact and name in ("minimum", "maximum", "fmax", "fmin")
    return f"{pair[0]} {s.random.choice(operators)} {pair[1]}", exact


def comparison(s: Scope) -> Line:
    """Which is less, and what is chosen by that."""
    first = s.one("biuf", exact=True)
    if first is None:
        return None
    second = s.like(first)
    if not second.exact and second.kind == "f":
        return None
    operator = s.random.choice(("<", "<=", "==", "!=", ">", ">="))
    condition = f"({first.name} {operator} {second.name})"
    match s.random.randrange(4):
        case 0:
            return f"np.where({condition}, {first.name}, {second.name})", True
        case 1:
            return f"np.clip({first.name}, -1, 2)" if first.kind in "if" else f"np.clip({first.name}, 1, 2)", True
        case 2 if first.kind == "b":
            return f"np.logical_{s.random.choice(('and', 'or', 'xor'))}({first.name}, {second.name})", True
    return condition, True


def cast(s: Scope) -> Line:
    """Another type."""
    one = s.finite("biuf")
    if one is None:
        return None
    if one.kind in "bu" or s.random.random() < 0.5:
        return f"{one.name}.astype(np.{s.random.choice(('float32', 'float64', 'int32', 'int64'))})", True
    return f"{one.name}.astype(np.{s.random.choice(('float64', 'int32', 'int64', 'int16', 'complex128'))})", True


def fold(s: Scope) -> Line:
    """A fold along some dimensions."""
    one = s.one(least=1)
    if one is None:
        return None
    names = ["sum", "sum", "prod", "mean", "var", "std"] if one.kind in "fc" else ["sum", "prod", "mean", "var"]
    if one.kind != "c":
        names += ["max", "min", "amax"]
        if one.exact or one.kind in "biu":
            names += ["argmax", "argmin", "any", "all", "count_nonzero"]
    name = s.random.choice(names)
    axes = [None, s.axis(one), s.axis(one)]
    if one.ndim > 1 and not name.startswith("arg"):
        axes.append(tuple(s.random.sample(range(one.ndim), 2)))  # type: ignore[arg-type]
    given = f"{one.name}, axis={s.random.choice(axes)}" + s.random.choice(("", "", ", keepdims=True"))
    exact = one.exact and name not in ("prod", "mean", "var", "std")
    if name == "prod" and one.kind in "fc":
        given = given.replace(one.name, f"np.cos({one.name})", 1) if one.kind == "f" else given
    return f"np.{name}({given})", exact


def scan(s: Scope) -> Line:
    """Sums of the first ones."""
    one = s.one("biuf", least=1)
    if one is None:
        return None
    axis = s.random.choice((None, s.axis(one), s.axis(one)))
    if s.random.random() < 0.3 and one.kind == "f":
        return f"np.cumprod(np.cos({one.name}), axis={axis})", False
    factor = " / 8" if one.kind == "f" else ""
    return f"np.cumsum({one.name}{factor}, axis={axis})", one.exact


def moved(s: Scope) -> Line:
    """The same elements elsewhere, or in another shape."""
    one = s.one(least=1)
    if one is None:
        return None
    x, axis, order = one.name, s.axis(one), list(range(one.ndim))
    s.random.shuffle(order)
    ways = [
        f"{x}.T", f"np.transpose({x}, {tuple(order)})", f"{x}.reshape(-1)", f"{x}.ravel()", f"{x}[None]",
        f"{x}[..., None]", f"{x}[:, None]", f"np.expand_dims({x}, {axis})", f"np.flip({x})", f"np.flip({x}, {axis})",
        f"{x}[::-1]", f"{x}[..., ::-1]", f"{x}[::2]", f"{x}[1:]", f"{x}[:-1]", f"{x}[..., 1:]", f"{x}[..., :-1]",
        f"{x}[0]", f"{x}[-1]", f"{x}[..., 0]", f"{x}[..., -1]", f"{x}[::-2]", f"{x}[..., ::2]",
        f"np.roll({x}, {s.random.randint(-3, 3)}, axis={axis})", f"np.roll({x}.ravel(), 1)",
        f"np.repeat({x}, {s.random.randint(1, 3)}, axis={axis})", f"np.repeat({x}, 2)",
        f"np.tile({x}, {s.random.randint(1, 3)})", f"np.tile({x}, (2, {s.random.randint(1, 3)}))",
        f"np.diff({x}, axis={axis})", f"np.zeros_like({x})", f"np.ones_like({x})", f"np.full_like({x}, 1)",
        f"{x}.copy()", f"np.squeeze({x}[None], 0)", f"{x}.reshape(1, -1)", f"{x}.reshape(-1, 1)",
        f"{x}.reshape({x}.shape[-1], -1)", f"np.diag({x})",
    ]  # fmt: skip
    if one.ndim > 1 and len(set(np.shape(one.value)[:2])) == 1:
        ways += [f"np.diagonal({x})", f"np.trace({x})"] * 3
    if one.ndim > 1:
        ways += [
            f"np.swapaxes({x}, 0, {axis})", f"np.moveaxis({x}, {axis}, 0)", f"np.moveaxis({x}, 0, {axis})",
            f"{x}[:, ::-1]", f"{x}[:, 0]", f"{x}[1:, :-1]", f"{x}[:, None, ...]", f"{x}[-1, ::-1]",
        ]  # fmt: skip
    return s.random.choice(ways), one.exact


def joined(s: Scope) -> Line:
    """Arrays side by side."""
    one = s.one(least=1)
    if one is None:
        return None
    alike = [k for k in s.known if np.shape(k.value) == np.shape(one.value) and np.asarray(k.value).dtype == np.asarray(
        one.value).dtype]  # fmt: skip
    parts = s.random.choices(alike, k=s.random.randint(1, 3))
    name = s.random.choice(("stack", "stack", "concatenate", "concatenate", "vstack", "hstack"))
    given = f", axis={s.axis(one)}" if name in ("stack", "concatenate") else ""
    text = ", ".join(part.name for part in parts)
    return f"np.{name}([{text}]{given})", all(part.exact for part in parts)


def product(s: Scope) -> Line:
    """A product of two arrays, each number made small before."""
    one = s.one("iufc", least=1, most=3)
    if one is None:
        return None
    dtype = np.asarray(one.value).dtype
    alike = [k for k in s.known if np.asarray(k.value).dtype == dtype and 1 <= k.ndim <= 3]
    other = s.random.choice(alike)
    small = " / 16" if one.kind in "fc" else ""
    x, y = f"({one.name}{small})", other.name
    letters = "ijkl"
    left = "".join(s.random.sample(letters, one.ndim))
    extents = dict(zip(left, np.shape(one.value), strict=True))
    right = "".join(
        s.random.choice([c for c in letters if extents.get(c, extent) == extent] or ["m"])
        for extent in np.shape(other.value)
    )
    both = sorted(set(left + right))
    result = "".join(s.random.sample(both, s.random.randint(0, min(3, len(both)))))
    ways = [f"np.einsum('{left},{right}->{result}', {x}, {y})"] * 4
    ways += [f"{x} @ {y}", f"{x} @ {y}.T", f"{x}.T @ {y}", f"np.dot({x}, {y})", f"np.inner({x}, {y})"]
    ways += [f"np.vdot({x}, {y})", f"np.tensordot({x}, {y}, axes=1)"]
    ways += [f"np.outer({x}, {y})"] if np.size(one.value) * np.size(other.value) <= MOST_GATHERED else []
    ways += [f"np.einsum('{left}->{left[::-1]}', {x})", f"np.einsum('{left}->{left[:1]}', {x})"]
    return s.random.choice(ways), False if one.kind in "fc" else one.exact


def of_each_row(s: Scope) -> Line:
    """Another line, of each row of an array."""
    one = s.one(least=1)
    if one is None or not np.shape(one.value)[0]:
        return None
    row = f"r{s.rows}"
    rows = [Known(row, np.asarray(one.value)[0], one.exact)] * (2 * len(s.known))
    write = of_each_row if s.rows == 0 and s.random.random() < 0.2 else s.random.choice(LINES)
    written = write(Scope(s.random, [*s.known, *rows], s.rows + 1, s.special))
    if written is None or row not in re.findall(r"\w+", written[0]):
        return None
    return f"each(lambda {row}: {written[0]}, {one.name})", written[1]


def placed(s: Scope) -> Line:
    """Reads, folds and writes at places that are computed, some of them often, and loops."""
    one = s.finite("iuf", 1) if s.random.random() < 0.5 else s.one("iuf", least=1)
    places = s.one("i", least=1, most=1)
    if one is None:
        return None
    x, k = one.name, s.random.randint(1, 4)
    ways = [f"rounds({k}, {x}, lambda y: y[::-1])", f"rounds({k}, {x}, lambda y: np.roll(y, 1, axis=0))",
            f"changed({x}, 0, {x}[-1])", f"changed({x}, {x}.shape[0] - 1, {x}[0])",
            f"taken({x}, np.argmin({x}.reshape({x}.shape[0], -1)[:, 0]))", f"halved({x})"]  # fmt: skip
    if one.ndim == 1:
        ways += [f"added({x}.shape[0], number({x}) * {k} % ({x}.shape[0] + 1), {x} / 8)" if one.kind == "f" else
                 f"added(5, number({x}) * {k} % 6 - 1, {x})"]  # fmt: skip
        ways += [f"written({x}, number({x}) // 2 * 2, {x} * 0)", f"{x}[0] + {x}"]
    if places is not None and np.asarray(places.value).dtype == np.int64:
        ways += [f"gathered({x}, {places.name} % {x}.shape[0])"] * 4
    exact = (one.exact and not s.special) or one.kind in "iu"
    text = s.random.choice(ways)
    return None if not exact and ("argmin" in text or "halved" in text) else (text, exact)


def _places(s: Scope) -> Known | None:
    """Integers that hold all sizes."""
    found = s.one("i", least=1, most=2, exact=True)
    return found if found is not None and np.asarray(found.value).dtype.itemsize >= 4 else None


def gathered(s: Scope) -> Line:
    """Elements that arrays of indices pick, some counted from the end."""
    one, places = s.one(least=1), _places(s)
    if one is None or places is None or np.size(one.value) * np.size(places.value) > MOST_GATHERED:
        return None
    x, axis = one.name, s.random.randrange(one.ndim)
    at = f"({places.name} % {x}.shape[{axis}])"
    if places.kind == "i" and s.random.random() < 0.4:
        at = f"({at} - {x}.shape[{axis}])"
    before = ":, " * axis
    kept = ":" if one.ndim < 2 else s.random.choice((":", "0", "::-1", "None, :"))
    ways = [f"{x}[{before}{at}]"] * 3 + [f"np.take({x}, {at}, axis={axis})", f"{x}[{before}{at}][::-1]"]
    ways += [f"np.take({x}, {places.name}, axis={axis}, mode='{mode}')" for mode in ("clip", "wrap")]
    if axis == 0:
        ways += [f"{x}[{at}, ..., None]", f"{x}[[0, -1]]", f"{x}[{at}, {kept}]" if one.ndim > 1 else f"{x}[{at}]"]
    if one.ndim > 1:
        other = _places(s) or places
        ways += [f"{x}[{places.name} % {x}.shape[0], {other.name} % {x}.shape[1]]"] * 3
        ways += [f"{x}[{kept}, {places.name} % {x}.shape[-1]]" if one.ndim == 2 else f"{x}[..., [0]]"]
    if one.ndim > 2:
        ways += [f"{x}[{places.name} % {x}.shape[0], :, {places.name} % {x}.shape[2]]"] * 2
    if one.exact and one.kind in "iuf" and not s.special:
        ways += [f"np.take_along_axis({x}, np.argmin({x}, axis={axis}, keepdims=True), axis={axis})"] * 2
    return s.random.choice(ways), one.exact


def neighbours(s: Scope) -> Line:
    """Borders, differences of neighbours, convolutions, triangles, places in sorted numbers."""
    one = s.one("iuf", least=1, most=3)
    if one is None:
        return None
    x, axis, k = one.name, s.axis(one), s.random.randint(-2, 2)
    widths = s.random.choice(("1", "(2, 1)", "0", str(tuple((s.random.randint(0, 2), 1) for _ in range(one.ndim)))))
    mode = s.random.choice(("constant", "edge", "reflect", "symmetric", "wrap"))
    inside = ", ".join(["1:-1"] * one.ndim)
    ways = [f"np.pad({x}, {widths}, '{mode}')"] * 3 + [f"np.pad({x}, {widths}, constant_values=2)"]
    ways += [f"np.tril({x}, {k})", f"np.triu({x}, {k})", f"np.roll({x}, {k})", f"np.diff({x}, n=2, axis={axis})"]
    ways += [f"{x}[{inside}].reshape(-1)", f"np.ravel({x}[{inside}] + 1)", f"np.sum({x}[{inside}] * 2)"] * 2
    ways += [f"np.ptp({x}, axis={axis})", f"np.broadcast_to({x}, (2, *{x}.shape))"]
    if one.kind == "f":
        ways += [f"np.gradient({x}, axis={axis})", f"np.gradient({x}, 0.5, axis={axis})"] * 2
    if one.ndim > 1:
        ways += [
            f"np.diagonal({x}, {k})",
            f"np.trace({x}, {k})",
            f"np.fliplr({x})",
            f"np.roll({x}, (1, {k}), axis=(0, 1))",
        ]
    if one.ndim == 1:
        other = s.one("iuf", least=1, most=1) or one
        small = f"({x} / 16)" if one.kind == "f" else x
        ways += [f"np.convolve({small}, {other.name}, '{m}')" for m in ("full", "same", "valid")]
        ways += [f"np.diag({x}, {k})"] if np.size(one.value) <= 1000 else []
    exact = one.exact
    sorted_ = s.finite("iuf", 1)
    if sorted_ is not None and one.exact and not s.special and s.random.random() < 0.3:
        return (
            f"np.searchsorted(np.cumsum(np.abs({sorted_.name})), {x}, side='{s.random.choice(('left', 'right'))}')",
            True,
        )
    text = s.random.choice(ways)
    return text, exact and "convolve" not in text


LINES: tuple[Callable[[Scope], Line], ...] = (
    smooth, jumping, arithmetic, arithmetic, arithmetic, comparison, comparison, cast, fold, fold, fold, scan, moved,
    moved, moved, moved, joined, product, product, of_each_row, of_each_row, of_each_row, placed, placed,
    gathered, gathered, neighbours, neighbours,
)  # fmt: skip


# --- what NumPy has no function for, there and traced -----------------------------------------------------------------


def _added(count: int, places: Any, values: Any) -> Any:
    made = np.zeros(int(count), values.dtype)
    inside = (places >= 0) & (places < count)
    np.add.at(made, places[inside], values[inside])
    return made


def _written(x: Any, places: Any, values: Any) -> Any:
    made = x.copy()
    inside = (places >= 0) & (places < len(x))
    made[places[inside]] = values[inside]
    return made


def _changed(x: Any, place: int, value: Any) -> Any:
    made = x.copy()
    made[place] = value
    return made


def _rounds(count: int, x: Any, once: Callable[[Any], Any]) -> Any:
    for _ in range(count):
        x = once(x)
    return x


def _halvings(number: Any) -> int:
    count = 0
    while abs(number) > 1:
        number, count = number / 2 if isinstance(number, np.floating) else number // 4, count + 1
    return count


def _halved(x: Any) -> Any:
    return np.array([_halvings(one) for one in np.ravel(x)], np.int64).reshape(np.shape(x))


def _halved_traced(x: Any) -> Any:
    if x.ndim:
        return tw.map(_halved_traced, x)
    half = (lambda v: v / 2) if x.scalar.is_float else (lambda v: v // 4)
    _, count = tw.while_loop(lambda v, c: abs(v) > 1, (x, tw.cast(0, "i64")), lambda v, c: (half(v), c + 1))
    return count


NUMPYS: dict[str, Any] = {
    "each": lambda function, x: np.stack([function(row) for row in x]),
    "gathered": lambda x, places: x[places], "taken": lambda x, place: x[place], "added": _added,
    "written": _written, "changed": _changed, "rounds": _rounds, "halved": _halved,
    "number": lambda x: np.arange(len(x)),
}  # fmt: skip
TRACED: dict[str, Any] = {
    "each": tw.map, "gathered": lambda x, places: tw.map(lambda i: x[i], places), "taken": lambda x, place: x[place],
    "added": lambda count, places, values: tw.hist("add", 0, count, places, values), "written": tw.scatter,
    "changed": tw.update, "rounds": lambda count, x, once: tw.loop(count, x, lambda _, y: once(y)),
    "halved": _halved_traced, "number": lambda x: tw.iota(x.shape[0]),
}  # fmt: skip
