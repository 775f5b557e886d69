"""Our decorator makes the same classes as the standard one."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir import dataclass as module

ours: Callable[..., Any] = module.dataclass
BOTH = [dataclasses.dataclass, ours]

NAMES = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=5)
VALUES = st.one_of(st.integers(-2, 2), st.sampled_from(["", "x"]), st.none(), st.floats(), st.just((1, 2)))
FLAGS = st.fixed_dictionaries({"compare": st.booleans(), "repr": st.booleans()})


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def define(decorator: Callable[..., Any], names: list[str], flags: list[dict[str, bool]]) -> Any:
    body: dict[str, Any] = {"__annotations__": dict.fromkeys(names, "int"), "__doc__": "An example."}
    body |= {name: dataclasses.field(**flag) for name, flag in zip(names, flags, strict=True)}  # type: ignore[call-overload]
    return decorator(frozen=True)(type("Example", (), body))


@given(NAMES, st.data())
def test_the_same_methods(names: list[str], data: Any) -> None:
    flags = [data.draw(FLAGS) for _ in names]
    standard, light = (define(decorator, names, flags) for decorator in BOTH)
    left = [data.draw(VALUES) for _ in names]
    right = [data.draw(st.sampled_from([value, 1])) for value in left]
    a, b = standard(*left), standard(*right)
    x, y = light(*left), light(*right)
    assert (a == b, a != b, hash(a) == hash(b), repr(a)) == (x == y, x != y, hash(x) == hash(y), repr(x))
    assert hash(a) == hash(x) and x != a and (x == left) is False
    assert dataclasses.astuple(x) == dataclasses.astuple(a) or any(map(_is_nan, left))
    assert light.__match_args__ == standard.__match_args__
    assert dataclasses.replace(x) == x and copy.copy(x) == x
    for name in names:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(x, name, 0)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(x, name)


@pytest.mark.parametrize("decorator", BOTH)
def test_what_a_class_defines_itself_stays(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True)
    class Own:  # noqa: PLW1641  # the decorator adds the hash
        """An example."""

        value: float
        other: int = 3

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and round(self.value) == round(other.value)

        def __repr__(self) -> str:
            return "mine"

    assert Own(1.1) == Own(0.9) and repr(Own(1)) == "mine" and hash(Own(2)) == hash((2, 3))

    @decorator(frozen=True)
    class Hashed:
        """An example."""

        value: list[int]

        def __hash__(self) -> int:
            return 7

    assert hash(Hashed([])) == 7 and Hashed([1]) == Hashed([1])


@pytest.mark.parametrize("decorator", BOTH)
def test_inheritance_defaults_and_same_objects(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True)
    class Base:
        """An example."""

        x: float

    @decorator(frozen=True)
    class Derived(Base):
        """An example."""

        items: list[int] = dataclasses.field(default_factory=list, compare=False)

        def __post_init__(self) -> None:
            self.items.append(1)

    assert Base(1) != Derived(1) and Derived(1) == Derived(1, [2]) and Derived(2).items == [1]
    assert repr(Derived(1)).endswith("Derived(x=1, items=[1])")
    same = math.nan
    if decorator is ours or sys.version_info < (3, 13):  # since when the standard ones compare no objects
        assert Base(same) == Base(same)
    assert Base(1).__eq__(1) is NotImplemented
    with pytest.raises(TypeError):
        Derived(1, 2, 3)


@pytest.mark.parametrize("options", [{}, {"order": True, "frozen": True}, {"slots": True, "frozen": True}])
def test_other_options_are_the_standard_ones(options: dict[str, bool]) -> None:
    @ours(**options)
    class Pair:
        """An example."""

        a: int
        b: int

    assert Pair(1, 2) == Pair(1, 2) and repr(Pair(1, 2)).endswith("Pair(a=1, b=2)")
    if options.get("order"):
        assert Pair(1, 2) < Pair(1, 3)
    if options.get("slots"):
        assert not hasattr(Pair(1, 2), "__dict__")
    if not options:
        pair = Pair(1, 2)
        pair.a = 5
        assert pair.a == 5


def test_identity_as_equality() -> None:
    @ours(frozen=True, eq=False)
    class One:
        """An example."""

        a: int

    one = One(1)
    assert one != One(1) and len({one, one, One(1)}) == 2


def test_arguments_by_place_name_and_default() -> None:
    def define_one(decorator: Callable[..., Any]) -> Any:
        @decorator(frozen=True)
        class Example:
            """An example."""

            a: int
            b: tuple[int, ...] = (1, 2)
            c: list[int] = dataclasses.field(default_factory=list)

        return Example

    standard, light = define_one(dataclasses.dataclass), define_one(ours)
    for places, names in [((1,), {}), ((1, 2), {}), ((1,), {"c": [3]}), ((), {"a": 4, "b": 5}), ((1, 2, [3]), {})]:
        assert dataclasses.astuple(light(*places, **names)) == dataclasses.astuple(standard(*places, **names))
    assert light(1).c is not light(1).c
    assert list(inspect.signature(light).parameters) == list(inspect.signature(standard).parameters)
    for places, names in [((), {}), ((1,), {"a": 1}), ((1,), {"d": 1}), ((1, 2, 3, 4), {})]:
        for one in (standard, light):
            with pytest.raises(TypeError, match="__init__"):
                one(*places, **names)


def test_fields_that_are_no_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Example\.a: this decorator gives every field a place in __init__"):

        @ours(frozen=True)
        class Example:
            """An example."""

            a: int = dataclasses.field(default=1, init=False)
