"""Dataclasses that cost a tenth as much to define.

The compiler consists of some four hundred small classes, most of them immutable. The standard decorator writes six
methods as text for each of them and has Python compile these, and describes each field by an object: nearly half of
what importing the compiler takes, in the first call of every process that compiles. Here only `__init__`, which has to
be fast, is written as text, and only for classes of which some objects are made: writing it takes as long as making
thirty. The fields are described when somebody asks for them, and the other methods are functions that all classes
share, or closures over the names of the fields. In everything else, and for type checkers, this is
`dataclasses.dataclass`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["dataclass"]

if TYPE_CHECKING:  # the same in all that a type checker sees
    from dataclasses import dataclass
else:

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
        places = None if options else _places(cls, frozen)
        if places is None:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, **options)
        own = set(cls.__dict__)
        without_hash = cls.__dict__.get("__hash__") is None  # Python puts None where a class defines only __eq__
        _mark(cls, places, frozen)
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refuse_to_assign, _refuse_to_delete
        if "__init__" not in own:
            cls.__init__ = _Unwritten(cls, frozen)
        if "__match_args__" not in own:
            cls.__match_args__ = tuple(places)
        if repr and "__repr__" not in own:
            cls.__repr__ = _represented
        if eq:
            key = _key(tuple([name for name, (_, one) in places.items() if type(one) is not Field or one.compare]))
            if "__eq__" not in own:
                cls.__eq__ = _equality(key)
            if without_hash:
                cls.__hash__ = _hash(key) if frozen else None
        return cls


_PLACES = "_places_in_init"
"""The attribute of our classes that names their fields, each with its type and its default, a `field` or `MISSING`."""
_DESCRIPTIONS, _FLAGS = "__dataclass_fields__", "__dataclass_params__"  # by which `dataclasses` knows its classes
_Places: TypeAlias = dict[str, tuple[str, Any]]


def _places(cls: type, frozen: bool) -> _Places | None:
    """The fields of a class and its bases; None for a class that is left to the standard decorator.

    Raises:
        TypeError: for a field that has no place of its own in `__init__`.
    """
    places: _Places = {}
    if "__slots__" in cls.__dict__:
        return None
    for base in cls.__mro__[-2:0:-1]:
        if _DESCRIPTIONS in base.__dict__:
            if _PLACES not in base.__dict__ or getattr(base, _FLAGS) is not _flags(frozen):
                return None
            places |= base.__dict__[_PLACES]
    for name, type_ in cls.__annotations__.items():
        if type(type_) is not str or "ClassVar" in type_ or "InitVar" in type_ or "KW_ONLY" in type_:
            return None
        default = getattr(cls, name, MISSING)
        if type(default) is Field:
            if not default.init or default.kw_only is True:
                raise TypeError(f"{cls.__qualname__}.{name}: this decorator gives every field a place in __init__")
        elif default.__class__.__hash__ is None:
            return None  # a list: the standard decorator refuses it
        places[name] = type_, default
    return places


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Mutable:
    """With a docstring, since the standard decorator would make one of a signature, which takes a millisecond."""

    example: int


_FLAGS_OF_FROZEN = copy.copy(getattr(_Mutable, _FLAGS))
_FLAGS_OF_FROZEN.frozen = True
_ORDINARY = fields(_Mutable)[0]._field_type  # type: ignore[attr-defined]  # how `fields` knows what is no class variable


def _flags(frozen: bool) -> Any:
    return _FLAGS_OF_FROZEN if frozen else getattr(_Mutable, _FLAGS)


def _mark(cls: type, places: _Places, frozen: bool) -> None:
    """Make a class one that the functions of `dataclasses` know."""
    for name in cls.__annotations__:
        default = places[name][1]
        if type(default) is Field:
            if default.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, default.default)
    setattr(cls, _PLACES, places)
    setattr(cls, _FLAGS, _flags(frozen))
    setattr(cls, _DESCRIPTIONS, _Undescribed(cls))
    if hasattr(_Mutable, "__replace__"):  # which `copy.replace` of Python 3.13 asks for
        cls.__replace__ = _Mutable.__replace__  # type: ignore[attr-defined]


class _Undescribed:
    """The place of the objects that describe fields, which are made when somebody asks for them."""

    def __init__(self, made: type) -> None:
        self._made = made

    def __get__(self, instance: Any, owner: type | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, (type_, default) in getattr(self._made, _PLACES).items():
            one: Any = default if type(default) is Field else field(default=default)
            one.name, one.type, one.kw_only, one._field_type = name, type_, False, _ORDINARY
            found[name] = one
        setattr(self._made, _DESCRIPTIONS, found)  # where two threads come at once, either one's will do
        return found


def _refuse_to_assign(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_UNWRITTEN_OBJECTS = 6
"""Objects of a class that are made without an `__init__` of its own; of most classes no more are made."""


class _Unwritten:
    """The place of an `__init__` that is written when objects have been made, or when somebody looks at it."""

    def __init__(self, made: type, frozen: bool) -> None:
        self._made, self._frozen, self._left = made, frozen, _UNWRITTEN_OBJECTS

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or isinstance(instance, type) or self._left <= 0:  # a class: `inspect` looks
            return self._written().__get__(instance, owner)
        self._left -= 1
        return partial(self._fill, instance)

    def _written(self) -> Any:
        written = _initialiser(self._made, "_set(self, {0!r}, {1})" if self._frozen else "self.{0} = {1}")
        self._made.__init__ = written  # type: ignore[misc]  # where two threads come at once, either one's will do
        return written

    def _fill(self, instance: Any, /, *given: Any, **named: Any) -> None:
        """What `__init__` does; arguments that are too many or too few, or have other names, it refuses itself."""
        places: _Places = getattr(self._made, _PLACES)
        values = dict(zip(places, given, strict=False))
        missing = places.keys() - values.keys()
        if len(given) > len(places) or not named.keys() <= missing:
            self._written()(instance, *given, **named)
            return
        values |= named
        for name in missing - named.keys():
            value = _made_default(places[name][1])
            if value is MISSING:
                self._written()(instance, *given, **named)
                return
            values[name] = value
        assign = object.__setattr__ if self._frozen else setattr
        for name in places:
            assign(instance, name, values[name])
        if hasattr(self._made, "__post_init__"):
            instance.__post_init__()


def _made_default(default: Any) -> Any:
    """The value of a field that is left out; MISSING if it may not be."""
    if type(default) is not Field:
        return default
    factory: Any = default.default_factory
    return default.default if factory is MISSING else factory()


def _initialiser(made: type, assigned: str) -> Callable[..., None]:
    """The standard `__init__`; the text holds nothing but the names of the fields, each `assigned` its value."""
    parameters, lines = ["self"], []
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": MISSING}
    places: _Places = getattr(made, _PLACES)
    for name, (_, default) in places.items():
        value = name
        factory: Any = MISSING
        if type(default) is Field:
            factory, default = default.default_factory, default.default
        if default is not MISSING:
            scope[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
        elif factory is not MISSING:
            scope[f"_make_{name}"] = factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        else:
            parameters.append(name)
        lines.append(assigned.format(name, value))
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"]), scope)
    written: Callable[..., None] = scope["__init__"]
    written.__qualname__ = f"{made.__qualname__}.__init__"
    written.__annotations__ = {name: type_ for name, (type_, _) in places.items()} | {"return": None}
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
