"""What is told of indices as they are written, through what passes make of the nodes that have them."""

from __future__ import annotations

from tilewright.ir.written_indices import (
    chosen_indices,
    joined_indices,
    joined_lines,
    line_of,
    outside_text,
    written_index,
)

COLUMN = written_index("a.py:3", "x", [1], [-6])
PART = written_index("a.py:4", "x", [2, 0])


def told(written: str, dimension: int) -> str:
    return (
        outside_text(written, "t", dimension, 7, 5).replace(" is out of range in dimension", "").split(" of extent")[0]
    )


def test_what_is_told() -> None:
    assert [told("a.py:3", d) for d in (0, 1)] == ["index 7 of t 0", "index 7 of t 1"]
    assert told(COLUMN, 0) == "index -6 of x 1"
    assert told(COLUMN, 1) == "index 7 of t 1"  # of which nothing is told
    assert [told(PART, d) for d in (0, 1)] == ["index 7 of x 2", "index 7 of x 0"]
    cut = written_index("a.py:3", "x", [0, 1], cut="x[:3]")
    assert "x[:3] goes beyond; a slice is cut off where" in outside_text(cut, "t", 0, 2, 2)
    assert [line_of(one) for one in ("", "a.py:3", cut)] == ["", "a.py:3", "a.py:3"]


def test_names_may_be_slices() -> None:
    assert told(written_index("a.py:3", "x[a:b, 3:]", [1]), 0) == "index 7 of x[a:b, 3:] 1"


def test_chosen() -> None:
    assert [told(chosen_indices(PART, [1, 0]), d) for d in (0, 1)] == ["index 7 of x 0", "index 7 of x 2"]
    assert chosen_indices(PART, []) == chosen_indices("a.py:4", [0, 1]) == "a.py:4"


def test_joined() -> None:
    assert joined_indices("a.py:3", "x", (1, 1), "a.py:4") == "a.py:3 and a.py:4"
    assert joined_indices("", "x", (1, 1), "a.py:4") == "a.py:4"
    assert joined_lines(COLUMN, PART) == "a.py:3 and a.py:4"
    absolute, of_result = (
        joined_indices(COLUMN, "t", (1, 2), one) for one in (PART, written_index("a.py:4", "y", [1, 0]))
    )
    assert [told(absolute, d) for d in range(3)] == ["index -6 of x 1", "index 7 of x 2", "index 7 of x 0"]
    assert [told(of_result, d) for d in range(3)] == ["index -6 of x 1", "index 7 of x 2", "index 7 of x 0"]
    several = joined_indices(COLUMN, "t", (1, 2), "a.py:4")
    assert [told(several, d) for d in range(3)] == ["index -6 of x 1", "index 7 of x 0", "index 7 of x 2"]
    assert several.count("\t") == 4  # the slice that there is none of, and as many entries as indices
    after = joined_indices("a.py:3", "x", (2, 1), written_index("a.py:3", "y", [1], [-1]))
    assert line_of(after) == "a.py:3"
    assert [told(after, d) for d in range(3)] == ["index 7 of x 0", "index 7 of x 1", "index -1 of x 3"]
