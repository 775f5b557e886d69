"""The `__init__` of our dataclasses is written when the first object is made, whoever makes it."""

from __future__ import annotations

import inspect
import threading
from dataclasses import field
from typing import Any

import pytest

from tilewright.ir import dataclass as module
from tilewright.ir.dataclass import dataclass


def _example() -> Any:
    @dataclass(frozen=True)
    class Example:
        """An example."""

        a: int
        b: int = 2

    return Example


def test_it_is_written_once_and_for_the_first_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNWRITTEN_OBJECTS", 0)
    written: list[type] = []
    write = module._initialiser
    monkeypatch.setattr(module, "_initialiser", lambda made, how: (written.append(made), write(made, how))[1])
    made = _example()
    assert written == []
    assert (made(1), made(b=3, a=1)) == (made(1, 2), made(1, 3)) and written == [made]
    assert inspect.isfunction(made.__dict__["__init__"])


def test_whoever_looks_first_sees_the_written_one() -> None:
    assert list(inspect.signature(_example()).parameters) == ["a", "b"]
    assert _example().__init__.__annotations__ == {"a": "int", "b": "int", "return": None}
    made = _example()

    class Plain(made):  # type: ignore[misc]
        """Without fields of its own."""

    class Calling(made):  # type: ignore[misc]
        """Calls what it inherits."""

        def __init__(self) -> None:
            super().__init__(7)

    assert (Plain(1).b, Calling().a, made(3).a) == (2, 7, 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        _example()()


def test_what_has_no_place_is_refused_where_the_class_is_defined() -> None:
    with pytest.raises(TypeError, match=r"Example\.a: this decorator gives every field a place"):

        @dataclass(frozen=True)
        class Example:
            """An example."""

            a: int = field(kw_only=True)


def test_threads_make_the_first_objects_at_once() -> None:
    for _ in range(50):
        made, start, seen = _example(), threading.Barrier(4), []

        def work(made: Any = made, start: threading.Barrier = start, seen: list[Any] = seen) -> None:
            start.wait()
            seen.append(made(1))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        assert seen == [made(1, 2)] * 4
