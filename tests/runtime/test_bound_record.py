"""Bound plans on the disk: what is read is what was written, and random programs run the same from there."""

from __future__ import annotations

import json
import math
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments, random_program
from random_programs.variety import random_variety

from tilewright.passes.compile import compile_program
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.runtime import bound_record, plan_record
from tilewright.runtime.bound_plan import BoundPlan
from tilewright.runtime.bound_record import store_bound_plan, stored_bound_plan
from tilewright.runtime.cache import DiskCache
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.devices import device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.recording import RecordedLaunch, flattened
from tilewright.runtime.stored_program import StoredProgram, form_text

pytestmark = pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")


def outcome(function: Any, arguments: Any) -> Any:
    """What a call gives, in bits, or how it fails."""
    try:
        result = function(*arguments)
    except (IndexError, ValueError) as error:
        return type(error), str(error)
    listed = result if isinstance(result, tuple) else (result,)
    return [(type(one), one.dtype, np.shape(one), np.asarray(one).tobytes()) for one in listed]


def stored(program: Any, disk: DiskCache, compiled: Any) -> StoredProgram:
    return StoredProgram(program, ("program", "of this test"), compiled, lambda executable: True)


@pytest.mark.parametrize("flattening", [None, "incremental"])
@given(st.integers(0, 1 << 20))
@settings(max_examples=20)
def test_random_programs_run_the_same_from_the_disk(
    tmp_path_factory: pytest.TempPathFactory, flattening: Any, seed: int
) -> None:
    variety = random_variety(Random(seed))
    program = random_program(seed, depth=2, statements=4, variety=variety)
    arguments = random_arguments(program, seed, variety)
    try:
        executable = compile_program(program, device_for("cpu"), flattening=flattening)
        expected = outcome(executable, arguments)
    except LoweringError:
        return

    def fail() -> Executable:
        raise AssertionError("the program was compiled")

    with pytest.MonkeyPatch.context() as patched:
        disk = DiskCache(tmp_path_factory.mktemp("cache"))
        patched.setattr("tilewright.runtime.stored_program.default_disk_cache", lambda: disk)
        assert outcome(stored(program, disk, lambda: executable), arguments) == expected
        key = executable.bound.key(arguments, executable.bound.given(None))
        if disk.get(("program", "of this test", form_text(key) or "none")) is None:
            return  # it looks at values, and cannot be repeated
        plan_record._KERNELS.clear()
        again = stored(program, disk, fail)
        entry = None
        try:
            for _ in range(3):
                assert outcome(again, arguments) == expected
            entry = again.entry(arguments, len(program.body.results) != 1)
        except AssertionError:
            # What only native code repeats may be too much for that, as in the process that compiled it.
            assert executable.bound.plans[key][1].has_rounds
            assert executable.bound.repeated(key, arguments, executable.bound.given(None)) is None
        if entry is not None and (given := entry(*arguments)) is not None:
            assert outcome(lambda *_: given, arguments) == expected


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    compared = 0
    for seed in range(24):
        program = random_program(seed, depth=2, statements=5)
        arguments = random_arguments(program, seed)
        executable = compile_program(program, device_for("cpu"), flattening=None)
        outcome(executable, arguments)
        for _, plan in executable.bound.plans.values():
            check_both_ways(plan, DiskCache(tmp_path / str(seed)))
            compared += 1
    assert compared >= 12


def check_both_ways(plan: BoundPlan, disk: DiskCache) -> None:
    assert store_bound_plan(disk, ("a",), plan, {"fact": 1})
    found = stored_bound_plan(disk, ("a",))
    assert found is not None and found[1] == {"fact": 1}
    read = found[0]
    assert store_bound_plan(disk, ("b",), read, {"fact": 1})
    assert disk.get(("a",)) == disk.get(("b",))
    assert (read.inputs, read.outputs, read.scalar_types) == (plan.inputs, plan.outputs, plan.scalar_types)
    assert (read.empty, read.spans, read.alignments) == (plan.empty, plan.spans, plan.alignments)
    both = [[*flattened(one.recording.records)] for one in (read, plan)]
    for one, other in zip(*both, strict=True):
        if isinstance(one, RecordedLaunch):
            assert isinstance(other, RecordedLaunch)
            assert (one.blocks, one.slots) == (other.blocks, other.slots)
            assert one.compiled[1].image == other.compiled[1].image
        else:
            assert one == other


@given(st.sampled_from(["bool", "i8", "i32", "i64", "u16", "u64", "f32", "f64"]), st.data())
def test_scalars_keep_their_bits(name: str, data: st.DataObject) -> None:
    type_ = bound_record.SCALAR_TYPES[name]
    if type_.is_float:
        value: Any = data.draw(st.floats(width=32 if name == "f32" else 64))
    elif type_.is_integer:
        limits = np.iinfo(type_.numpy)
        value = data.draw(st.integers(int(limits.min), int(limits.max)))
    else:
        value = data.draw(st.booleans())
    word = json.loads(json.dumps(bound_record._word(value, type_)))
    read = bound_record._scalar(word, type_)
    assert bound_record._word(read, type_) == word
    assert read == value or math.isnan(value)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (["version"], 2), (["slots"], 0), (["kernels"], []), (["kernels", 0, 2], "00"), (["kernels", 0, 3], 99),
        (["kernels", 0, 4], ["f64"]), (["records", 0, 0], "else"), (["records", 0], []), (["records", 0, 1], -1),
        (["results", 0, 2], 99), (["inputs", 0, 1], 99), (["inputs", 0, 2], "f128"), (["name"], None), (["facts"], 5),
    ],
)  # fmt: skip
def test_records_that_are_not_sound_are_not_used(tmp_path: Path, where: list[Any], value: Any) -> None:
    program = random_program(3, depth=1, statements=3)
    arguments = random_arguments(program, 5)
    executable = compile_program(program, device_for("cpu"), flattening=None)
    executable(*arguments)
    ((_, plan),) = executable.bound.plans.values()
    disk = DiskCache(tmp_path)
    assert store_bound_plan(disk, ("a",), plan, {})
    assert stored_bound_plan(disk, ("a",)) is not None
    record = json.loads(disk.get(("a",)) or b"")
    *path, last = where
    reduce(lambda part, one: part[one], path, record)[last] = value
    disk.put(("a",), json.dumps(record).encode())
    if where == ["name"]:
        assert stored_bound_plan(disk, ("a",)) is not None
    else:
        assert stored_bound_plan(disk, ("a",)) is None
