"""Quotients and remainders on vectors: what Python's `//` and `%` give, whatever numbers meet, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvm_support import run

from tilewright.ir.scalars import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, ScalarType
from tilewright.kernel.ir import Buffer, For, Kernel, Let, Name, ScalarParameter, Store, integer, load, operation

INDEX = I64
LANES = 16
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)


def divided(type_: ScalarType, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quotients and remainders, by vectors."""
    count = -(-len(left) // LANES) * LANES
    padded = [np.resize(one, count) for one in (left, right)]
    x, y = (Buffer(name, type_, read_only=True) for name in "xy")
    q, r = (Buffer(name, type_) for name in "qr")
    i = Name("i", INDEX)
    body = (
        Let("a", load(x, i, LANES)), Let("b", load(y, i, LANES)),
        *(Store(into, i, operation(what, *(Name(one, load(x, i, LANES).type) for one in "ab")))
          for into, what in ((q, "floordiv"), (r, "mod"))),
    )  # fmt: skip
    loop = For("i", integer(0), Name("n", INDEX), body, step=integer(LANES))
    results = [np.empty_like(padded[0]) for _ in range(2)]
    run(
        Kernel("divide", (x, y, q, r), (ScalarParameter("n", INDEX),), (), (loop,)),
        [*padded, *results],
        (count,),
        1,
        "none",
    )
    return results[0][: len(left)], results[1][: len(left)]


def check(type_: ScalarType, left: np.ndarray, right: np.ndarray) -> None:
    quotients, remainders = divided(type_, left, right)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotients, np.floor_divide(left, right))
        wanted = np.remainder(left, right)
    np.testing.assert_array_equal(remainders, wanted)
    if type_.is_float:
        there = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(remainders)[there], np.signbit(wanted)[there])


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
@given(data=st.data())
def test_integers(type_, data):
    limits = np.iinfo(type_.numpy)
    near = st.sampled_from([limits.min, limits.max, limits.max // 2, 0, 1]).flatmap(
        lambda edge: st.integers(max(limits.min, edge - 3), min(limits.max, edge + 3))
    )
    number = near | st.integers(limits.min, limits.max) | st.integers(0, type_.bits - 1).map(lambda n: limits.max >> n)
    right = data.draw(st.lists(number, min_size=1, max_size=40))
    multiples = st.tuples(st.sampled_from(right), number, st.integers(-1, 1)).map(
        lambda one: (one[0] * one[1] + one[2] - limits.min) % (limits.max - limits.min + 1) + limits.min
    )
    left = data.draw(st.lists(number | multiples, min_size=len(right), max_size=len(right)))
    check(type_, np.array(left, type_.numpy), np.array(right, type_.numpy))


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_many_integers(type_):
    generator = np.random.default_rng(5)
    limits = np.iinfo(type_.numpy)

    def numbers() -> np.ndarray:
        whole = generator.integers(limits.min, limits.max, 1 << 15, type_.numpy, endpoint=True)
        return whole >> generator.integers(0, type_.bits, 1 << 15).astype(type_.numpy)

    right = numbers()
    check(type_, numbers(), right)
    check(type_, right * numbers() - np.ones_like(right), right)


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@given(data=st.data())
def test_floats(type_, data):
    number = st.floats(width=type_.bits) | st.integers(-9, 9).map(lambda n: n / 4)
    right = data.draw(st.lists(number, min_size=1, max_size=40))
    with np.errstate(all="ignore"):
        multiples = [
            np.nextafter(type_.numpy.type(one) * type_.numpy.type(data.draw(st.integers(-1 << 26, 1 << 26))),
                         type_.numpy.type(data.draw(st.sampled_from([-np.inf, 0, np.inf]))))
            for one in right
        ]  # fmt: skip
    left = data.draw(st.lists(number | st.sampled_from(multiples), min_size=len(right), max_size=len(right)))
    check(type_, np.array(left, type_.numpy), np.array(right, type_.numpy))


@pytest.mark.parametrize("type_", [F32, F64], ids=str)
def test_floats_of_any_bits_and_beside_multiples(type_):
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 256, (2, type_.bytes << 15), np.uint8).view(type_.numpy)
    check(type_, *bits)
    right = generator.standard_normal(1 << 15).astype(type_.numpy)
    for largest in (1 << 10, 1 << 25, 1 << 55):
        whole = generator.integers(-largest, largest, 1 << 15).astype(type_.numpy) * right
        for toward in (-np.inf, 0, np.inf):
            check(type_, np.nextafter(whole, type_.numpy.type(toward)), right)
