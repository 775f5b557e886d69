"""Every family of tiled kernels at tiny ragged sizes under oclgrind: no race, no stray access, no divergent barrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import scalar_values, with_semiring
from naive import assert_close, einsum_contraction, extent, operands_of, random_buffers
from race_runner import GrindLaunch, grind, is_installed

from tilewright.contraction.form import Contraction, EpilogueOperand, Operand
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import BOOL, C64, F16, F32, F64, I8, I64
from tilewright.ir.sizes import size
from tilewright.kernel.c_names import entry_name
from tilewright.kernel.ir import Barrier, For, If, Kernel, Load, Statement, Store, VectorType
from tilewright.kernel.launch import Launch
from tilewright.kernel.opencl import opencl_text
from tilewright.kernel.traversal import expressions, walk
from tilewright.machine.named import OPENCL_CPU
from tilewright.passes.contractions.contraction_launches import tiled_form
from tilewright.passes.tiled.form import PartialTiles, make_form
from tilewright.passes.tiled.kernel import write_kernel
from tilewright.passes.tiled.tiling import Place, Tiling

pytestmark = [pytest.mark.opencl, pytest.mark.skipif(not is_installed(), reason="oclgrind is not installed")]
TILES = {"a": (4, 2), "b": (4, 1), "q": 4}
SIZES = {
    PartialTiles.NONE: dict(a=8, b=8, q=8),
    PartialTiles.CONTRACTED: dict(a=8, b=4, q=7),
    PartialTiles.OUTER: dict(a=9, b=7, q=4),
    PartialTiles.BOTH: dict(a=7, b=5, q=5),
}


@dataclass(frozen=True)
class Example:
    """A contraction in some form."""

    name: str
    contraction: Contraction
    launch: Launch
    scalars: dict[str, Any] = field(default_factory=dict)


def with_epilogue(contraction: Contraction) -> Contraction:
    """max(alpha * total, further[b, a])."""
    b = Builder()
    alpha = Variable("alpha", Type(F32))
    function = b.function([Type(F32)] * 2, lambda total, one: b.apply("max", b.apply("mul", alpha, total), one))
    sizes = {d.name: d.size for d in contraction.dimensions}
    strides = {"a": size(1), "b": sizes["a"]}
    operand = Operand("D", F32, size(2))
    further = EpilogueOperand(operand, tuple(strides.get(d.name, size(0)) for d in contraction.dimensions))
    return replace(contraction, epilogue=function, epilogue_operands=(further,), scalars=(alpha,))


def examples() -> Iterator[Example]:
    def example(name: str, contraction: Contraction, tiles: Any = None, **scalars: Any) -> Example:
        form = tiled_form(contraction, OPENCL_CPU, tiles or TILES)
        return Example(name, contraction, write_kernel(form), scalars)

    for partial, sizes in SIZES.items():
        plain = einsum_contraction("aq,qb->ab", sizes, F32)
        assert tiled_form(plain, OPENCL_CPU, TILES).partial is partial
        kind = partial.value
        yield example(f"plain {kind}", plain)
        yield example(f"unpaddable {kind}", with_semiring(plain, F32, "unpaddable"))
        yield example(f"complex {kind}", einsum_contraction("qa,bq->ba", sizes, C64))
        yield example(f"f16 {kind}", einsum_contraction("aq,bq->ab", sizes, F16))
        yield example(f"epilogue {kind}", with_epilogue(plain), alpha=0.75)
        batch = einsum_contraction("caq,qbc->acb", sizes | {"c": 3}, F64)
        yield example(f"batch {kind}", batch, TILES | {"c": (2, 1)})
        boolean = replace(einsum_contraction("aq,qb->ab", sizes, BOOL, "eq", "eq"))
        yield example(f"bool {kind}", with_semiring(boolean, BOOL, "or_and"))
        form = replace(tiled_form(plain, OPENCL_CPU, TILES), index_type=I64)
        yield Example(f"64 bits {kind}", plain, write_kernel(form))
    for scalar, width in ((F32, 4), (F64, 2), (F16, 8), (I8, 16)):
        for text in ("qa,bq->ab", "aq,qb->ab"):
            wide = einsum_contraction(text, dict(a=2 * width, b=2 * width + 1, q=2 * width), scalar)
            tiles = {"a": (width, 1), "b": (width, 1), "q": width}
            found = example(f"vectors of {width} {text}", wide, tiles)
            loads = [e for s in walk(found.launch.kernel.body) for e in expressions(s) if isinstance(e, Load)]
            assert any(e.type == VectorType(e.type.element, width) for e in loads if isinstance(e.type, VectorType))
            yield found
    two = with_semiring(einsum_contraction("apq,qpb->ab", dict(a=5, b=6, p=3, q=5), F64), F64, "unpaddable")
    yield example("two sums without padding", two, TILES | {"p": 2})
    yield example("copies in a loop", einsum_contraction("aq,qb->ab", dict(a=17, b=3, q=40), F32),
                  {"a": (1, 8), "b": (2, 1), "q": 16})  # fmt: skip
    yield example("empty sum", einsum_contraction("aq,qb->ab", dict(a=5, b=6, q=0), F32))
    for partial, sizes in SIZES.items():
        for semiring in ("plus_times", "unpaddable"):
            held = with_semiring(einsum_contraction("qa,qb->ab", sizes, F32), F32, semiring)
            tiling = Tiling((8, 1), (1, 4), (4,), left=Place.REGISTERS)
            yield Example(f"held {semiring} {partial.value}", held, write_kernel(make_form(held, tiling)))
    alone = einsum_contraction("qc,cq->c", dict(c=7, q=5), C64)
    tiling = Tiling((4,), (1,), (2,), Place.REGISTERS, Place.REGISTERS)
    yield Example("nothing is shared", alone, write_kernel(make_form(alone, tiling)))
    seven = einsum_contraction("icaq,qbjk->abcijk", dict(a=2, b=3, c=2, i=3, j=2, k=3, q=5), F32)
    yield example("seven dimensions", seven, {"a": (2, 1), "b": (2, 1), "j": (1, 2), "k": (2, 1), "i": (1, 2), "q": 4})


def exact_buffers(contraction: Contraction) -> dict[str, np.ndarray]:
    """Arrays without a spare element, so that every stray access is one."""
    buffers = random_buffers(contraction, 3)
    lengths = {operand.buffer: extent(contraction, operand, strides) for operand, strides in operands_of(contraction)}
    return {name: array[: lengths[name]] for name, array in buffers.items()}


def grind_launch(example: Example, buffers: dict[str, np.ndarray], kernel: Kernel | None = None) -> GrindLaunch:
    launch, kernel = example.launch, kernel or example.launch.kernel
    scalars = [
        parameter.type.numpy.type(value)
        for parameter, value in zip(kernel.scalars, scalar_values(launch, example.scalars), strict=True)
    ]
    arrays = [in_memory(buffers[name]) for name in launch.buffers]
    return GrindLaunch(
        opencl_text(kernel), entry_name(kernel), [*arrays, *scalars], launch.blocks, kernel.threads_per_block
    )


def in_memory(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs, bools as bytes."""
    if array.dtype.kind == "c":
        return array.view(array.real.dtype)
    return array.view(np.uint8) if array.dtype == bool else array


def test_all_families_are_clean() -> None:
    found = list(examples())
    buffers = [exact_buffers(example.contraction) for example in found]
    results, log = grind([grind_launch(one, held) for one, held in zip(found, buffers, strict=True)])
    assert log == ""
    for example, held, arrays in zip(found, buffers, results, strict=True):
        output = held[example.launch.buffers[2]]
        assert_close(example.contraction, arrays[2].view(output.dtype), held, example.scalars)


def without_barriers(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, For):
            statement = replace(statement, body=without_barriers(statement.body))
        if not isinstance(statement, Barrier):
            kept.append(statement)
    return tuple(kept)


def without_guards(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Stores to global memory happen whatever their condition says."""
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, If) and any(isinstance(s, Store) for s in walk(statement.then)):
            kept.extend(statement.then)
        else:
            kept.append(statement)
    return tuple(kept)


@pytest.mark.parametrize(("broken", "message"), [(without_barriers, "race"), (without_guards, "Invalid write")])
def test_broken_kernels_are_caught(broken: Any, message: str) -> None:
    """The same kernel without its barriers, or without its guards, is not clean."""
    example = next(one for one in examples() if one.name == "plain both")
    kernel = replace(example.launch.kernel, body=broken(example.launch.kernel.body))
    _, log = grind([grind_launch(example, exact_buffers(example.contraction), kernel)])
    assert message in log
