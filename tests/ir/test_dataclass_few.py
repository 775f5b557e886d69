"""Of classes with few objects no `__init__` is written: these objects are as those of the written one are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir import dataclass as module
from tilewright.ir.dataclass import dataclass

NAMES = ("a", "b", "c", "d")
ARGUMENTS = st.lists(st.integers(0, 3), max_size=5)
NAMED = st.dictionaries(st.sampled_from([*NAMES, "e"]), st.integers(4, 7), max_size=4)


def _frozen() -> Any:
    @dataclass(frozen=True)
    class Example:
        """An example."""

        a: int
        b: int
        c: int = 8
        d: list[int] = field(default_factory=list)

    return Example


def _mutable() -> Any:
    @dataclass
    class Example:
        """An example that counts what is assigned."""

        a: int
        b: int
        c: int = field(default=8)
        d: list[int] = field(default_factory=list)

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, "count", getattr(self, "count", 0) + 1)
            object.__setattr__(self, name, value)

        def __post_init__(self) -> None:
            self.d = [*self.d, self.a]

    return Example


def outcome(made: Any, given: list[int], named: dict[str, int]) -> Any:
    """The values of an object, or what making it raises."""
    try:
        one = made(*given, **{name: [value] if name == "d" else value for name, value in named.items()})
    except TypeError as error:
        return str(error)
    return [getattr(one, place.name) for place in fields(one)], getattr(one, "count", None), repr(one), list(vars(one))


@pytest.mark.parametrize("define", [_frozen, _mutable])
@given(ARGUMENTS, NAMED)
def test_any_arguments(define: Callable[[], Any], given: list[int], named: dict[str, int]) -> None:
    given = [[one] if place == 3 else one for place, one in enumerate(given)]  # type: ignore[misc]
    few, many = define(), define()
    _ = many.__init__  # which has it written
    assert isinstance(few.__dict__["__init__"], module._Unwritten)
    assert not isinstance(many.__dict__["__init__"], module._Unwritten)
    assert outcome(few, given, named) == outcome(many, given, named)


def test_lists_of_defaults_are_fresh_ones() -> None:
    made = _frozen()
    objects = [made(1, 2) for _ in range(module._UNWRITTEN_OBJECTS + 3)]
    assert len({id(one.d) for one in objects}) == len(objects)
    assert not isinstance(made.__dict__["__init__"], module._Unwritten)


def test_the_first_objects_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[type] = []
    write = module._initialiser
    monkeypatch.setattr(module, "_initialiser", lambda made, how: (written.append(made), write(made, how))[1])
    made = _frozen()
    for number in range(module._UNWRITTEN_OBJECTS):
        assert made(number, 1).a == number
    assert written == []
    assert made(1, 2) == made(1, 2)
    assert written == [made]


def test_arguments_that_are_called_like_those_of_python() -> None:
    @dataclass(frozen=True)
    class Example:
        """An example."""

        instance: int
        given: int = 2
        named: int = 3

    assert vars(Example(instance=1, named=4, given=5)) == {"instance": 1, "given": 5, "named": 4}
