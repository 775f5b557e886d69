"""The exponential and the logarithm of f32 as they are written out for the CPU, against those of f64."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import pytest
from named_cpus import processor_at_hand, region_of

import tilewright as tw
from tilewright.ir.scalars import F32, I64
from tilewright.kernel.ir import BlockIndex, Buffer, Constant, Kernel, Operation, Store, integer, load, multiply
from tilewright.kernel.llvm import llvm_text
from tilewright.runtime.cpu_jit import host_cpu

UNDERFLOW = 16  # FE_UNDERFLOW of C

SPECIAL = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 88.72284, 88.7229, -87.33655, -103.97, -104, 1e-45, 1.1754942e-38, 3.4e38,
     0.70710677, 0.7071068, 0.99999994, 1.0000001, -1e-45, 1e-30, -1e-30], np.float32,
)  # fmt: skip


@tw.program
def exponentials(xs: tw.f32["n"]) -> Any:
    return tw.exp(xs)


@tw.program
def logarithms(xs: tw.f32["n"]) -> Any:
    return tw.log(xs)


def check(found: np.ndarray, expected: np.ndarray, allowed: float = 2.0) -> None:
    rounded = expected.astype(np.float32)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    assert np.all(same | (np.isfinite(found) & np.isfinite(rounded)))
    with np.errstate(invalid="ignore"):
        distance = np.abs(found - expected) / np.spacing(np.abs(rounded))
    worst = np.max(np.where(same, 0, distance), initial=0)
    assert worst <= allowed, f"{worst} units in the last place"


def exponents() -> np.ndarray:
    rng = np.random.default_rng(1)
    parts = [
        rng.uniform(-105, 90, 1_000_000),
        rng.uniform(-1, 1, 500_000),
        rng.standard_normal(100_000) * 1e-4,
        SPECIAL,
    ]
    return np.concatenate(parts).astype(np.float32)


def positive() -> np.ndarray:
    """Floats of all exponents, those below the normal ones too, and many around 1."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 0x7F800000, 1_000_000, dtype=np.uint32).view(np.float32)
    near = np.concatenate([rng.uniform(0.5, 2, 500_000), 1 + rng.standard_normal(100_000) * 1e-4])
    return np.concatenate([bits, near.astype(np.float32), SPECIAL])


@pytest.mark.parametrize("count", [None, 1, 15, 16, 17])
def test_exponentials(count: int | None) -> None:
    xs = exponents()[-count if count else 0 :]
    with np.errstate(all="ignore"):
        check(exponentials(xs, target="cpu"), np.exp(xs.astype(np.float64)))


@pytest.mark.parametrize("count", [None, 1, 15, 16, 17])
def test_logarithms(count: int | None) -> None:
    xs = positive()[-count if count else 0 :]
    with np.errstate(all="ignore"):
        check(logarithms(xs, target="cpu"), np.log(xs.astype(np.float64)))


def test_exact_results() -> None:
    assert exponentials(np.array([0, -0.0], "f"), target="cpu").tolist() == [1, 1]
    assert logarithms(np.array([1, 0, np.inf], "f"), target="cpu").tolist() == [0, -np.inf, np.inf]
    assert np.isnan(logarithms(np.array([-1, -np.inf, np.nan, -1e-45], "f"), target="cpu")).all()


@pytest.mark.parametrize("name", ["exp", "exp2", "log"])
@pytest.mark.parametrize("lanes", [1, 16])
def test_nothing_is_called(name: str, lanes: int) -> None:
    memory = Buffer("memory", F32)
    value = load(memory, Constant(0, I64), lanes)
    kernel = Kernel("k", (memory,), (), (), (Store(memory, Constant(0, I64), Operation(name, (value,), value.type)),))
    text = llvm_text(kernel, host_cpu())
    assert "@llvm.fm" in text
    assert f"@{name}f" not in text


def applied(name: str, xs: np.ndarray, lanes: int, processor: str) -> np.ndarray:
    """The function on vectors of a processor; the length is a multiple of `lanes`."""
    source, target = Buffer("source", F32, read_only=True), Buffer("target", F32)
    at = multiply(BlockIndex(), integer(lanes))
    value = load(source, at, lanes)
    kernel = Kernel("k", (source, target), (), (), (Store(target, at, Operation(name, (value,), value.type)),))
    out = np.empty_like(xs)
    processor_at_hand(processor).run(kernel, "none", [region_of(xs), region_of(out)], (), xs.size // lanes)
    return out


@pytest.mark.parametrize("name", ["exp", "exp2", "log"])
@pytest.mark.parametrize(("processor", "lanes"), [("haswell", 8), ("x86-64", 4), ("znver4", 16), ("znver4", 8)])
def test_on_processors(name: str, processor: str, lanes: int) -> None:
    xs = (positive() if name == "log" else exponents())[::-3]
    xs = xs[: xs.size // 16 * 16].copy()
    with np.errstate(all="ignore"):
        check(applied(name, xs, lanes, processor), getattr(np, name)(xs.astype(np.float64)))


@pytest.mark.slow
@pytest.mark.parametrize(("processor", "lanes", "worst"), [("haswell", 8, 2.0), ("znver4", 16, 1.0)])
@pytest.mark.parametrize("name", ["exp", "exp2", "log"])
def test_all_numbers(name: str, processor: str, lanes: int, worst: float) -> None:
    """Every float in steps of 5, so that all last bits come up."""
    for start in range(0, 1 << 32, 1 << 28):
        xs = np.arange(start, start + (1 << 28), 5, dtype=np.uint64).astype(np.uint32).view(np.float32)
        xs = xs[: xs.size // lanes * lanes].copy()
        with np.errstate(all="ignore"):
            check(applied(name, xs, lanes, processor), getattr(np, name)(xs.astype(np.float64)), worst)


@pytest.mark.parametrize("scalar", ["f32", "f64"])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_what_vanishes_is_not_computed(name: str, scalar: str) -> None:
    """Processors stop for results below the normal numbers: masked scores of -inf took sixteen times as long."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))

    def vanishing(xs: Any) -> Any:
        return getattr(np, name)(xs)

    vanishing.__annotations__["xs"] = getattr(tw, scalar)["n"]
    program = tw.program(vanishing)
    xs = np.tile(np.array([-np.inf, -1e30, -1080, 0, 1], scalar.replace("f", "float")), 100)
    before = tw.get_num_threads()
    tw.set_num_threads(1)
    try:
        program(xs)
        library.feclearexcept(UNDERFLOW)
        found = program(xs)
        assert not library.fetestexcept(UNDERFLOW)
    finally:
        tw.set_num_threads(before)
    np.testing.assert_allclose(found[:5], [0, 0, 0, 1, getattr(np, name)(1)], rtol=1e-6)
