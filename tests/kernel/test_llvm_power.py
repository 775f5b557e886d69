"""Powers, and exponentials and logarithms of f64, as they are written out for AVX-512, against long doubles."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.float_["n"]
from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from named_cpus import processor_at_hand, region_of

import tilewright as tw
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel import llvm_power
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Operation, Store, integer, load, multiply

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-310, -1e-310, 1e-40, -1e-40,
    1e300, -1e300, 1e9, -1e9, 2.0**53, 2.0**24 + 1, 2.5, -2.5,
)  # fmt: skip
TYPES = {np.float32: (F32, 16), np.float64: (F64, 8)}


@tw.program
def powers(xs: tw.float_["n"], ys: tw.float_["n"]) -> Any:
    return xs**ys


def applied(name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The function on vectors of a processor with AVX-512; lengths are filled up to a multiple of its lanes."""
    scalar, lanes = TYPES[operands[0].dtype.type]
    size = operands[0].size
    filled = [np.concatenate([one, np.ones(-size % lanes, one.dtype)]) for one in operands]
    sources = [Buffer(f"source_{number}", scalar, read_only=True) for number in range(len(operands))]
    target, at = Buffer("target", scalar), multiply(BlockIndex(), integer(lanes))
    values = tuple(load(one, at, lanes) for one in sources)
    kernel = Kernel("k", (*sources, target), (), (), (Store(target, at, Operation(name, values, values[0].type)),))
    out = np.empty_like(filled[0])
    regions = [*map(region_of, filled), region_of(out)]
    processor_at_hand("znver4").run(kernel, "none", regions, (), out.size // lanes)
    return out[:size]


def check(found: np.ndarray, exact: np.ndarray, allowed: float = 1.0) -> None:
    """`allowed`: units in the last place."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(found.dtype)
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        assert np.all(same | (np.isfinite(found) & np.isfinite(rounded)))
        assert np.array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(rounded[~np.isnan(found)]))
        distance = np.abs(found.astype(np.longdouble) - exact) / np.spacing(np.abs(rounded)).astype(np.longdouble)
    worst = np.max(np.where(same, 0, distance), initial=0)
    assert worst <= allowed, f"{worst} units in the last place"


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of all sizes with powers that leave them in range or not, many near 1, and some negative ones."""
    rng, number = np.random.default_rng(5), 100_000
    bits = {np.float32: 7.0, np.float64: 10.0}[dtype]
    x = [
        rng.uniform(0.01, 30, number), np.exp2(rng.uniform(-1070, 1000, number)),
        1 + 0.01 * rng.standard_normal(number),
        1 + 1e-6 * rng.standard_normal(number), rng.uniform(0.4, 2.1, number), -rng.uniform(0, 5, number),
    ]  # fmt: skip
    y = [
        rng.uniform(-20, 20, number), rng.uniform(-1, 1, number), rng.uniform(-1, 1, number) * 2 ** (bits + 6),
        rng.uniform(-1, 1, number) * 2 ** (bits + 16), rng.uniform(-3, 3, number) * 2**bits,
        rng.integers(-20, 20, number),
    ]  # fmt: skip
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate(x).astype(dtype), np.concatenate(y).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_are_right_to_a_unit_in_the_last_place(dtype: type) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    check(applied("pow", [x, y]), exact)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_of_special_values(dtype: type) -> None:
    with np.errstate(all="ignore"):
        x, y = np.array(list(itertools.product(SPECIAL, repeat=2))).astype(dtype).T.copy()
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    check(applied("pow", [x, y]), exact)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_of_whole_numbers_are_exact(dtype: type) -> None:
    most = 2 ** (np.finfo(dtype).nmant + 1)
    found = [(base, power) for base in range(2, 200) for power in range(53) if base**power <= most]
    x, y = np.array(found, dtype).T.copy()
    assert applied("pow", [x, y]).tolist() == [base**power for base, power in found]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=40))
def test_any_two_numbers(numbers: list[tuple[float, float]]) -> None:
    for dtype in TYPES:
        x, y = np.array(numbers, dtype).T.copy()
        with np.errstate(all="ignore"):
            exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        # Programs take the C library's functions on other processors, which are right to four units.
        for found, allowed in ((applied("pow", [x, y]), 1.0), (powers(x, y, target="cpu"), 4.0)):
            check(found, exact, allowed)


@pytest.mark.parametrize("name", ["exp", "log"])
def test_functions_of_f64(name: str) -> None:
    rng = np.random.default_rng(6)
    ranges = {"exp": [(-750, 715), (-1, 1), (-1e-5, 1e-5)], "log": [(0, 3), (0.99, 1.01), (1e300, 1e308)]}
    x = np.concatenate([rng.uniform(*one, 100_000) for one in ranges[name]] + [np.array(SPECIAL)])
    with np.errstate(all="ignore"):
        check(applied(name, [x]), getattr(np, name)(x.astype(np.longdouble)))
        if name == "log":
            x = np.exp2(rng.uniform(-1074, 1023, 100_000))
            check(applied(name, [x]), np.log(x.astype(np.longdouble)))


def tables_of(scalar: ScalarType) -> Any:

    return llvm_power._F32 if scalar == F32 else llvm_power._F64


@pytest.mark.parametrize("scalar", [F32, F64])
def test_first_parts_of_logarithms_are_added_exactly(scalar: ScalarType) -> None:
    """Multiples of one power of two below another, between which there are no more bits than a number has."""
    constants, dtype = tables_of(scalar), np.float32 if scalar == F32 else np.float64
    two, _ = constants.parts(Decimal(2))
    for first in constants.tables[0]:
        assert dtype(first) == first and (first * 2**constants.table_bits).is_integer()
        for exponent in (-1074, -1, 1, 1023) if scalar == F64 else (-149, -1, 1, 127):
            assert dtype(exponent * two + first) == exponent * two + first
