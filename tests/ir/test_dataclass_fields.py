"""Functions of `dataclasses` find in our classes what they find in standard ones."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tilewright.ir import dataclass as module

ours: Callable[..., Any] = module.dataclass
BOTH = [dataclasses.dataclass, ours]
FACTS = ("name", "type", "default", "default_factory", "repr", "hash", "init", "compare", "kw_only")


def family(decorator: Callable[..., Any]) -> tuple[Any, Any]:
    @decorator(frozen=True)
    class Base:
        """An example."""

        a: int
        b: tuple[int, ...] = (1, 2)
        c: list[int] = dataclasses.field(default_factory=list, repr=False)
        d: str = dataclasses.field(default="d", compare=False)

    @decorator(frozen=True)
    class Derived(Base):
        """Says again what two fields are; one keeps its default."""

        b: Any  # type: ignore[assignment]
        a: int = 7
        e: float = 0.5

    return Base, Derived


def described(kind: Any) -> list[list[Any]]:
    return [[getattr(one, fact) for fact in FACTS] for one in dataclasses.fields(kind)]


def test_fields_are_described_alike() -> None:
    for standard, light in zip(family(dataclasses.dataclass), family(ours), strict=True):
        assert dataclasses.is_dataclass(light) and described(light) == described(standard)
        one, other = light(1), standard(1)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert described(one) == described(light)
        assert dataclasses.replace(one, b=3).b == 3 and copy.deepcopy(one) == one
        assert {name: getattr(light, name, "-") for name in "abcde"} == {n: getattr(standard, n, "-") for n in "abcde"}
        assert light.__match_args__ == standard.__match_args__
        if hasattr(copy, "replace"):
            assert copy.replace(one, a=4) == dataclasses.replace(one, a=4)


def test_descriptions_are_made_once_and_in_any_order() -> None:
    base, derived = family(ours)
    assert [one.name for one in dataclasses.fields(derived)] == ["a", "b", "c", "d", "e"]
    assert dataclasses.fields(base)[0] is dataclasses.fields(base)[0]
    assert [one.default for one in dataclasses.fields(base)[:2]] == [dataclasses.MISSING, (1, 2)]


def test_the_standard_decorator_takes_ours_as_a_base() -> None:
    base, _ = family(ours)

    @dataclasses.dataclass(frozen=True)
    class Standard(base):  # type: ignore[misc]
        """An example."""

        e: int = 5

    assert dataclasses.astuple(Standard(1)) == (1, (1, 2), [], "d", 5)
    again = ours(frozen=True)(type("Again", (Standard,), {"__annotations__": {"f": "int"}, "f": 6, "__doc__": "One."}))
    assert dataclasses.astuple(again(1)) == (1, (1, 2), [], "d", 5, 6)


@pytest.mark.parametrize("decorator", BOTH)
def test_what_is_no_field_is_none(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True)
    class Example:
        """An example."""

        shared: ClassVar[int] = 3
        a: int = 1

    assert [one.name for one in dataclasses.fields(Example)] == ["a"] and Example(2).shared == 3


@pytest.mark.parametrize("decorator", BOTH)
def test_the_same_is_refused(decorator: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="mutable default"):
        decorator(type("Listed", (), {"__annotations__": {"a": "list"}, "a": []}))
    mutable = decorator(type("Mutable", (), {"__annotations__": {"a": "int"}, "__doc__": "One."}))
    with pytest.raises(TypeError, match="frozen"):
        decorator(frozen=True)(type("Frozen", (mutable,), {"__annotations__": {"b": "int"}}))
