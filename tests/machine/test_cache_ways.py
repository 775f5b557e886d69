"""How many lines a set of a cache has, and what that decides."""

from dataclasses import replace
from pathlib import Path

from tilewright.ir.scalars import F32
from tilewright.machine import detect
from tilewright.machine.named import named_machine
from tilewright.passes.permute.choose import permute_form


def test_ways_are_read_from_the_system(tmp_path: Path) -> None:
    for number, (level, kind, ways) in enumerate([(1, "Data", 12), (1, "Instruction", 8), (2, "Unified", 16)]):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, value in (("level", level), ("type", kind), ("ways_of_associativity", ways)):
            (index / name).write_text(f"{value}\n")
    assert [detect.cache_ways(level, tmp_path) for level in (1, 2, 3)] == [12, 16, 0]
    (tmp_path / "index2" / "ways_of_associativity").unlink()
    assert detect.cache_ways(2, tmp_path) == 0


def test_tiles_past_the_caches_are_larger_where_sets_have_many_lines() -> None:
    machine = named_machine("cpu-avx2")  # with vectors of whole lines, columns are carried along instead
    forms = [
        permute_form(F32, (250, 260, 254), (1, 250, 65_000), (66_040, 254, 1), replace(machine, l2_ways=ways))
        for ways in (0, 8, 16)
    ]
    assert forms[1].overlapped is not None  # where they are known to have few, nothing waits in the second cache
    tiles = [one.tile for one in (forms[0], forms[2])]
    assert tiles[0] is not None
    assert tiles[1] is not None
    assert tiles[0].stage_words < tiles[1].stage_words <= machine.l2_bytes // 4
