"""Dataclasses that cost a quarter as much to define.

The compiler consists of some two hundred small classes, most of them immutable. The standard decorator writes six
methods as text for each of them and has Python compile these: nearly half of what importing the compiler takes, in the
first call of every process that compiles. Here only `__init__`, which has to be fast, is written as text; the others
are functions that all classes share, or closures over the names of the fields. In everything else, and for type
checkers, this is `dataclasses.dataclass`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:  # the same in all that a type checker sees
    from dataclasses import dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, **options):
        """As `dataclasses.dataclass`; classes without further options are made as this module says.

        Example:
            >>> @dataclass(frozen=True)
            ... class Point:
            ...     x: int
            ...     y: int = 0
            >>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1, 0))
            (Point(x=1, y=0), True, True)
        """
        if cls is None:
            return lambda one: dataclass(one, frozen=frozen, eq=eq, repr=repr, **options)
        if options:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, **options)
        own = set(cls.__dict__)
        without_hash = cls.__dict__.get("__hash__") is None  # Python puts None where a class defines only __eq__
        made = dataclasses.dataclass(cls, init=False, eq=False, repr=False)
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_to_assign, _refuse_to_delete
        if "__init__" not in own:
            _check_places(made)
            made.__init__ = _Unwritten(made, "_set(self, {0!r}, {1})" if frozen else "self.{0} = {1}")
        if repr and "__repr__" not in own:
            made.__repr__ = _represented
        if eq:
            key = _key(tuple(one.name for one in fields(made) if one.compare))
            if "__eq__" not in own:
                made.__eq__ = _equality(key)
            if without_hash:
                made.__hash__ = _hash(key) if frozen else None
        return made


def _refuse_to_assign(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Unwritten:
    """The place of an `__init__` that is written when it is first looked at: of many classes no object is made."""

    def __init__(self, made: type, assigned: str) -> None:
        self._made, self._assigned = made, assigned

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        written = _initialiser(self._made, self._assigned)
        self._made.__init__ = written  # type: ignore[misc]  # where two threads come at once, either one's will do
        return written.__get__(instance, owner)


def _check_places(made: type) -> None:
    for one in fields(made):
        if not one.init or one.kw_only:
            raise TypeError(f"{made.__qualname__}.{one.name}: this decorator gives every field a place in __init__")


def _initialiser(made: type, assigned: str) -> Callable[..., None]:
    """The standard `__init__`; the text holds nothing but the names of the fields, each `assigned` its value."""
    parameters, lines = ["self"], []
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": MISSING}
    for one in fields(made):
        value = one.name
        if one.default is not MISSING:
            scope[f"_default_{one.name}"] = one.default
            parameters.append(f"{one.name}=_default_{one.name}")
        elif one.default_factory is not MISSING:
            scope[f"_make_{one.name}"] = one.default_factory
            parameters.append(f"{one.name}=_absent")
            value = f"_make_{one.name}() if {one.name} is _absent else {one.name}"
        else:
            parameters.append(one.name)
        lines.append(assigned.format(one.name, value))
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"]), scope)
    written: Callable[..., None] = scope["__init__"]
    written.__qualname__ = f"{made.__qualname__}.__init__"
    written.__annotations__ = {one.name: one.type for one in fields(made)} | {"return": None}
    return written


def _represented(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _key(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What is compared: always a tuple, whose comparison takes objects that are the same for equal (such as a NaN)."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _equality(key: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        if other is self:
            return True
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(key: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __hash__
