"""The protocol of single-pass scans (`passes/segments/look_back.py`), in all interleavings of their blocks.

The names are those of the code that writes it: a block takes tiles (`_take`), publishes what each of them gives
(`_publish`), and awaits the records of others (`_await`, in `_look_back`). A step is one access to memory that blocks
share. The threads of a block wait for one record each and then for one another, so that a block waits for all of them.
"""

from __future__ import annotations

import pytest
from interleavings import END, State, Step, Wrong, explore, ordered, store

THREADS = 2
"""Of a block: after so many tiles comes one that publishes what all tiles up to it give."""


def total(tile: int) -> int:
    """What a tile gives: sums of these are all different."""
    return int(1 << tile)


def block(me: str, tiles: int, change: str) -> dict[str, Step]:
    """A block that takes tiles until there are none left."""

    def take(s: State) -> str:
        tile = s[f"{me}.tile"] = s["tickets"] if change != "own tiles" else s[f"{me}.next"]
        s["tickets"] += 1
        s[f"{me}.next"] += s["blocks"]
        s[f"{me}.before"] = 0
        s[f"{me}.thread"] = 0
        if tile >= tiles:
            return END
        ends = tile % THREADS == THREADS - 1
        return "await" if ends else "publish"

    def publish(s: State, value: int) -> None:
        tile = s[f"{me}.tile"]
        assert s[f"states {tile}"] == 0, f"tile {tile} is published twice"
        store(s, me, f"values {tile}", value)  # Order.COHERENT

    def publish_own(s: State) -> str:
        publish(s, total(s[f"{me}.tile"]))
        return "published"

    def published(s: State, then: str) -> str:
        name = f"states {s[f'{me}.tile']}"
        if change == "states without order":
            store(s, me, name, 1)
        else:
            s[name] = 1  # Order.ORDERED
        return then

    def position(s: State) -> int | None:
        """The record that a thread awaits; None if there is none."""
        tile, thread = s[f"{me}.tile"], s[f"{me}.thread"]
        place = tile % THREADS
        found: int = tile - place + thread - 1
        return found if found >= 0 and thread <= place else None

    def await_(s: State) -> str | None:
        if s[f"{me}.thread"] == THREADS:
            return "joined"
        at = position(s)
        if at is None:
            s[f"{me}.thread"] += 1
            return "await"
        return "record" if s[f"states {at}"] else None

    def record(s: State) -> str:
        s[f"{me}.before"] += s[f"values {position(s)}"]
        s[f"{me}.thread"] += 1
        return "await"

    def joined(s: State) -> str:
        tile = s[f"{me}.tile"]
        right = sum(map(total, range(tile)))
        assert s[f"{me}.before"] == right, f"before tile {tile} stands {s[f'{me}.before']:b} and not {right:b}"
        if tile % THREADS != THREADS - 1:
            return "take"
        publish(s, right + total(tile))
        return "published.joined"

    steps: dict[str, Step] = {
        "take": take,
        "publish": publish_own,
        "published": lambda s: published(s, "await"),
        "await": await_,
        "record": record,
        "joined": joined,
        "published.joined": lambda s: published(s, "take"),
    }
    if change != "states without order":
        steps |= {name: ordered(steps[name], me) for name in ("published", "published.joined")}
    return steps


def states(tiles: int, resident: int, change: str = "") -> int:
    """Explore a scan of so many tiles by so many blocks; how many states there are."""
    names = [f"block {number}" for number in range(resident)]
    start: State = {"tickets": 0, "blocks": resident}
    start |= {f"{what} {tile}": 0 for tile in range(tiles) for what in ("values", "states")}
    start |= {f"{one}.{what}": 0 for one in names for what in ("tile", "before", "thread")}
    order = reversed(range(resident)) if change == "own tiles" else range(resident)
    start |= {f"{one}.next": first for one, first in zip(names, order, strict=True)}
    return explore(start, {one: block(one, tiles, change) for one in names})


@pytest.mark.parametrize("tiles, resident", [(5, 1), (5, 2), (4, 3)])
def test_what_stands_before_a_tile_is_right_and_nobody_waits_for_ever(tiles: int, resident: int) -> None:
    assert states(tiles, resident) > 10


def test_records_that_are_seen_before_their_values_are_found() -> None:
    with pytest.raises(Wrong, match="before tile 1 stands 0 and not 1"):
        states(2, 2, "states without order")


def test_tiles_that_wait_for_blocks_that_have_not_begun_are_found() -> None:
    """Tiles by the numbers of blocks: with fewer blocks at a time than there are, the first ones need not be there."""

    def late(s: State) -> str | None:
        return "take" if s["block 1.at"] == END else None  # there is room for one block at a time

    names = ["block 0", "block 1"]
    start: State = {"tickets": 0, "blocks": 2, "values 0": 0, "values 1": 0, "states 0": 0, "states 1": 0}
    start |= {f"{one}.{what}": 0 for one in names for what in ("tile", "before", "thread")}
    start |= {"block 0.next": 0, "block 1.next": 1}
    for change, stuck in (("own tiles", True), ("", False)):
        programs = {one: block(one, 2, change) for one in names}
        programs["block 0"] = {"wait": late, **programs["block 0"]}
        if stuck:
            with pytest.raises(Wrong, match="end cannot be reached"):
                explore(start, programs)
        else:
            explore(start, programs)
