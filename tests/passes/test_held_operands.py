"""Operands that wait in the registers of single threads [S3, Parboil]: when they may, and what is computed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import cases, semirings, tilings
from cuda_emulation import compile_emulated, has_compiler
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant, order_dimensions, reclassify
from tilewright.ir.scalars import F16, F32, F64, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.checks import KernelReport, check_kernel
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Barrier
from tilewright.kernel.launch import Launch
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.kernel.traversal import walk
from tilewright.kernel.warp import Sample, touches
from tilewright.machine.model import Machine
from tilewright.machine.named import A100, H100, OPENCL_GPU
from tilewright.passes.contractions.contraction_launches import contraction_launches, tiled_form
from tilewright.passes.tiled.choice import best_by_place, not_held, placements, ranked_tilings, tile_cost
from tilewright.passes.tiled.form import HeldOperand, make_form
from tilewright.passes.tiled.kernel import write_kernel
from tilewright.passes.tiled.tiling import (
    Place,
    Tiling,
    broken_limit,
    facts_of,
    in_left,
    in_right,
    parallel_dimensions,
    tile_resources,
)
from tilewright.report.explain import explain_contraction

SHARED, REGISTERS = Place.SHARED, Place.REGISTERS
MACHINES = {"a100": A100, "h100": H100}
PARBOIL = Tiling((128, 1), (1, 16), (16,), left=REGISTERS)


def values_of(launch: Launch) -> dict[str, int]:
    pairs = zip(launch.kernel.scalars, launch.scalars, strict=True)
    return {parameter.name: int(value) for parameter, value in pairs if isinstance(value, int)}


def report(launch: Launch) -> KernelReport:
    return check_kernel(launch.kernel, values_of(launch))


# --- when -------------------------------------------------------------------------------------------------------------


def with_own_addresses(contraction: Contraction, tiling: Tiling) -> Contraction:
    """The same dimensions, no two elements of an operand at one address, not even past the ends of the arrays."""
    steps = dict(zip((d.name for d in parallel_dimensions(contraction)), tiling.block, strict=True))
    steps |= dict(zip((d.name for d in contraction.of_kind(Kind.K)), tiling.sequential, strict=True))
    dimensions, left, right = [], 1, 1
    for one in contraction.dimensions:
        reach = constant(one.size) + steps[one.name]
        dimensions.append(
            replace(
                one, stride_left=size(left if in_left(one) else 0), stride_right=size(right if in_right(one) else 0)
            )
        )
        left, right = left * reach if in_left(one) else left, right * reach if in_right(one) else right
    operands = {name: replace(getattr(contraction, name), offset=size(0)) for name in ("left", "right")}
    return replace(contraction, dimensions=tuple(dimensions), **operands)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_an_operand_may_be_held_if_no_two_threads_read_an_element(data: st.DataObject) -> None:
    """The rule by kinds and sizes against the addresses of the kernel, thread by thread."""
    ready = order_dimensions(reclassify(data.draw(cases()).contraction))
    assume(all(constant(d.size) for d in ready.dimensions))
    tiling = replace(data.draw(tilings(ready)), left=REGISTERS, right=REGISTERS)
    form = make_form(with_own_addresses(ready, tiling), tiling)
    launch = write_kernel(replace(form, guarded=(False,) * len(ready.dimensions)))
    for side in ("left", "right"):
        reason = not_held(ready, tiling, side)
        found = touches(launch.kernel, values_of(launch), Sample(0, 0, tiling.threads, 0))
        of_thread = [t.index for t in found if t.buffer.name.startswith(f"{side}_") and not t.is_store]
        assert of_thread
        for index in of_thread:
            assert index is not None
            alone = len(np.unique(np.broadcast_to(index, tiling.threads))) == tiling.threads
            assert alone == (reason is None or "at once" in reason), reason


@settings(max_examples=examples(60))
@given(data=st.data())
def test_operands_are_placed_by_the_rule(data: st.DataObject) -> None:
    case = data.draw(cases())
    ready = order_dimensions(reclassify(case.contraction))
    sizes = data.draw(tilings(ready))
    facts = facts_of(ready)
    found = placements(facts, sizes, H100)
    assert [seconds for seconds, _ in found] == sorted(seconds for seconds, _ in found)
    ways = {(one.left, one.right) for _, one in found}
    for places in itertools.product(Place, Place):
        refused = [
            not_held(ready, sizes, side)
            for side, place in zip(("left", "right"), places, strict=True)
            if place is REGISTERS
        ]
        one = replace(sizes, left=places[0], right=places[1])
        fits = broken_limit(one, tile_resources(facts, one), H100) is None
        assert (places in ways) == (fits and not any(refused)), (places, refused)


@pytest.mark.parametrize(
    ("tiling", "side", "reason"),
    [
        (Tiling((16, 8), (1, 1), (4,)), "left", "left does not change with b, along which 8 threads of a block would"),
        (Tiling((16, 8), (1, 1), (4,)), "right", "right does not change with a, along which 16 threads"),
        (Tiling((32, 1), (4, 8), (4,)), "left", "each thread needs 4 elements of left along a at once"),
        (Tiling((32, 1), (1, 8), (4,)), "left", None),
        (Tiling((1, 32), (8, 1), (4,)), "right", None),
    ],
)
def test_reasons(tiling: Tiling, side: str, reason: str | None) -> None:
    found = not_held(einsum_contraction("qa,qb->ab", dict(a=64, b=64, q=64), F32), tiling, side)
    assert found is None if reason is None else found is not None and reason in found


# --- which ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes", "scalar", "places"),
    [
        ("qa,qb->ab", dict(a=4096, b=4096, q=4096), F32, (SHARED, SHARED)),
        ("qa,qb->ab", dict(a=2**17, b=32, q=1024), F64, (REGISTERS, SHARED)),  # tall, and many times read
        ("qb,qa->ba", dict(a=2**17, b=32, q=1024), F64, (SHARED, REGISTERS)),
        ("aq,qb->ab", dict(a=2**17, b=32, q=1024), F64, (SHARED, REGISTERS)),  # the rows of left lie apart
        ("aq,bq->ab", dict(a=2**17, b=32, q=1024), F64, (SHARED, SHARED)),  # those of both do
        ("qa,q->a", dict(a=2**17, q=512), F32, (REGISTERS, SHARED)),
        ("aq,q->a", dict(a=2**17, q=512), F32, (SHARED, SHARED)),
        ("qc,qc->c", dict(c=2**16, q=64), F32, (REGISTERS, REGISTERS)),
        ("cq,cq->c", dict(c=2**16, q=64), F32, (SHARED, SHARED)),
    ],
)
def test_what_the_model_chooses(
    text: str, sizes: dict[str, int], scalar: ScalarType, places: tuple[Place, Place]
) -> None:
    """Held where a warp's reads coalesce and nobody shares them, staged where they do not."""
    contraction = einsum_contraction(text, sizes, scalar)
    form = tiled_form(contraction, A100)
    assert (form.tiling.left, form.tiling.right) == places
    best = best_by_place(form.contraction, A100)
    assert set(best) >= {(SHARED, SHARED), places}
    assert tile_cost(form.contraction, form.tiling, A100).seconds <= 1.2 * min(seconds for seconds, _ in best.values())
    for access in report(write_kernel(form)).global_accesses:
        assert access.is_store or (access.degree is not None and access.degree <= 2 * access.ideal), access


def test_tiles_given_by_hand_are_placed_too() -> None:
    contraction = einsum_contraction("qa,qb->ab", dict(a=4096, b=4096, q=256), F32)
    form = tiled_form(contraction, H100, {"a": (128, 1), "b": (1, 16), "q": 16})
    assert form.tiling == PARBOIL
    (launch,) = contraction_launches(contraction, H100, {"a": (128, 1), "b": (1, 16), "q": 16})
    assert launch.kernel.shared_bytes == 16 * 16 * 4  # of the right operand alone


def test_ranked_tilings_differ() -> None:
    """Each T, R and Q comes once, with the operands where the model wants them."""
    contraction = einsum_contraction("qa,qb->ab", dict(a=512, b=24, q=100), F32)
    found = list(itertools.islice(ranked_tilings(contraction, OPENCL_GPU), 200))
    assert len({(one.thread, one.register, one.sequential) for one in found}) == len(found)


def test_every_other_way_has_a_reason() -> None:
    explained = explain_contraction(einsum_contraction("qa,qb->ab", dict(a=4096, b=4096, q=4096), F32), H100)
    assert explained.tiled is not None and explained.tiled.places == (SHARED, SHARED)
    said = "\n".join(explained.declined)
    for way in ("left in registers, right in shared memory", "left in shared memory, right in registers"):
        assert f"not with {way}: the model says " in said
    assert "not with both operands in registers: left does not change with b, along which 16 threads of a block" in said
    alone = explain_contraction(einsum_contraction("qc,qc->c", dict(c=2**16, q=64), F32), A100)
    assert "variant to every parallel dimension, so no element is used twice" in "\n".join(alone.declined)
    assert "form       block and register tiles, both operands in registers" in str(alone)
    assert "shared     0 B per block\n" in str(alone)


# --- what it computes -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has_compiler(), reason="there is no g++")
def test_cuda_text_computes_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    """The tiled kernels in CUDA C++, each thread of a block a thread, for every placement and ragged sizes."""
    made: dict[str, tuple[Contraction, Launch]] = {}
    for (a, b, q), semiring in itertools.product(((16, 8, 8), (13, 6, 7)), ("plus_times", "unpaddable")):
        for scalar, text in ((F32, "qa,qb->ab"), (F64, "aq,qb->ba"), (F16, "qa,bq->ab")):
            function, combine, neutral = semirings(scalar)[semiring]
            dense = einsum_contraction(text, dict(a=a, b=b, q=q), scalar)
            contraction = order_dimensions(replace(dense, map=function, combine=combine, neutral=neutral))
            flat = contraction.dimensions[0].name == "a"
            for places in itertools.product(Place, Place):
                thread, register = ((8, 1), (1, 4)) if flat else ((1, 8), (4, 1))
                tiling = Tiling(thread, register, (4,), *places)
                name = f"contraction_{len(made)}"
                made[name] = contraction, write_kernel(make_form(contraction, tiling), name)
    emulated = compile_emulated({name: cuda_text(launch.kernel) for name, (_, launch) in made.items()})
    for name, (contraction, launch) in made.items():
        buffers = random_buffers(contraction, 11)
        scalars = [int(one) for one in launch.scalars]  # type: ignore[arg-type]
        arrays = [buffers[one] for one in launch.buffers]
        got = emulated.run(name, arrays, launch.blocks, launch.kernel.threads_per_block, scalars)[2]
        assert_close(contraction, got, buffers, {})
    assert "runtime error" not in capfd.readouterr().err


def test_nothing_shared_needs_no_barrier() -> None:
    contraction = einsum_contraction("qc,qc->c", dict(c=100, q=9), F32)
    launch = write_kernel(make_form(contraction, Tiling((32,), (1,), (4,), REGISTERS, REGISTERS)))
    assert not launch.kernel.arrays
    assert not any(isinstance(one, Barrier) for one in walk(launch.kernel.body))


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sizes", [dict(a=4096, b=64, q=64), dict(a=4001, b=30, q=61)], ids=["full", "ragged"])
def test_parboil_in_machine_code(sizes: dict[str, int], machine: str, scalar: ScalarType) -> None:
    """No spills, but for a pair of registers once, outside of the loops; one operand in shared memory, read without
    conflicts; the other straight from memory, coalesced.
    """
    target: Machine = MACHINES[machine]
    contraction = einsum_contraction("qa,qb->ab", sizes, scalar)
    form = make_form(contraction, PARBOIL)
    launch = write_kernel(form)
    compiled: Any = compile_cuda(cuda_text(launch.kernel), target.architecture)
    (registers,), (spilled,) = compiled.registers.values(), compiled.spill_bytes.values()
    ragged = sizes["a"] % 16 != 0
    assert spilled <= (16 if ragged and scalar == F64 and "a100" in machine.lower() else 0)
    assert registers <= 128
    assert isinstance(form.left, HeldOperand)
    assert launch.kernel.shared_bytes == 16 * 16 * scalar.bytes
    found = report(launch)
    assert found.worst_inner_conflict == 1
    loads = [one for one in found.global_accesses if not one.is_store and one.buffer.startswith("left")]
    assert loads and all(one.inner for one in loads)
    assert all(one.degree is not None and one.degree <= one.ideal + 1 for one in loads)
