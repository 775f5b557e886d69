"""Maps that divide their points' numbers by the length of rows become nests, and give what they gave."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_arguments

import tilewright as tw
from tilewright.ir.nodes import Apply, Map, Program, SizeValue
from tilewright.ir.traversal import all_statements
from tilewright.passes.pipelines import run_pipeline
from tilewright.rewrite.derivation import Recording

SIZES = st.sampled_from([0, 1, 2, 5, 33])


@tw.program
def outer(x: tw.f64["n"], y: tw.f64["m"]):
    n, m = x.shape[0], y.shape[0]
    return tw.map(lambda i: x[i // m] * y[i % m], tw.iota(n * m))


@tw.program
def numbered(x: tw.f64["n"], y: tw.f64["m"], z: tw.f64["n*m"]):
    """The number itself is used, too, and so is another array of as many rows; two results."""
    m = y.shape[0]
    return tw.map(lambda i, v: (x[i // m] + v, y[i % m] * tw.cast(i, "f64")), tw.iota(z.shape[0]), z)


@tw.program
def three(x: tw.f64["a"], y: tw.f64["b"], z: tw.f64["c"]):
    a, b, c = x.shape[0], y.shape[0], z.shape[0]
    return tw.map(lambda i: x[i // (b * c)] * y[(i // c) % b] + z[i % c], tw.iota(a * b * c))


@tw.program
def planes(x: tw.f64["a"], y: tw.f64["b", "c"]):
    """The remainder by several rows together."""
    b, c = y.shape
    return tw.map(
        lambda i: x[i // (b * c)] * y[(i // c) % b, i % c] + tw.cast(i % (b * c), "f64"), tw.iota(x.shape[0] * b * c)
    )


@tw.program
def turned(x: tw.f64["n", "m"]):
    n, m = x.shape
    return tw.map(lambda i: x[i % n, i // n], tw.iota(n * m))


@tw.program
def rows_of_three(x: tw.f64["n", "m"]):
    n, m = x.shape
    return tw.map(lambda i: tw.map(lambda k: x[i // m, i % m] + tw.cast(k, "f64"), tw.iota(3)), tw.iota(n * m))


@tw.program
def pixels(x: tw.f64["n", 40]):
    return tw.map(lambda i: x[i // 40, i % 40] * 2, tw.iota(x.shape[0] * 40))


@tw.program
def pictures(x: tw.f64["n", 20, 40]):
    return tw.map(lambda i: x[i // 800, i // 40 % 20, i % 40] + tw.cast(i % 800, "f64"), tw.iota(x.shape[0] * 800))


@tw.program
def pairs(x: tw.f64["n", 2]):
    return tw.map(lambda i: x[i // 2, i % 2] * 2, tw.iota(x.shape[0] * 2))


@tw.program
def by_a_number(x: tw.f64["n"], m: tw.i64):
    """What the number of rows is nobody knows, nor whether it is below 0."""
    return tw.map(lambda i: x[i // m], tw.iota(x.shape[0] * m))


@tw.program
def by_another_size(x: tw.f64["n"], y: tw.f64["m"]):
    return tw.map(lambda i: x[i // y.shape[0]], tw.iota(x.shape[0]))


@tw.program
def summed(x: tw.f64["n"], y: tw.f64["m"]):
    """Nothing is stored of what is summed."""
    n, m = x.shape[0], y.shape[0]
    return tw.reduce("add", 0.0, tw.map(lambda i: x[i // m] * y[i % m], tw.iota(n * m)))


def divisions(program: Program) -> int:
    operators = [one.expression.operator for one in all_statements(program.body) if isinstance(one.expression, Apply)]
    sizes = [str(one.expression.size) for one in all_statements(program.body) if isinstance(one.expression, SizeValue)]
    return sum(operator in ("floordiv", "mod") for operator in operators) + sum("(i, " in one for one in sizes)


@pytest.mark.parametrize("program", [outer, numbered, three, planes, turned, rows_of_three, pixels, pictures])
def test_nothing_is_divided(program: Any) -> None:
    before = program.trace()
    recording = Recording(before)
    after = run_pipeline(before, derivation=recording, verify=True)
    assert divisions(before) >= 2
    assert divisions(after) == 0
    assert any("map_divided" in step.rule for step in recording.derivation.steps)
    recording.derivation.check([random_arguments(before, seed) for seed in range(3)])


@pytest.mark.parametrize("program", [pairs, by_a_number, by_another_size, summed])
def test_others_stay_as_they_are(program: Any) -> None:
    after = run_pipeline(program.trace(), verify=True)
    assert divisions(after) == divisions(program.trace())
    assert not any(isinstance(one.expression, Map) for each in all_statements(after.body)
                   if isinstance(each.expression, Map) for one in each.expression.function.body.statements)  # fmt: skip


@given(SIZES, SIZES, SIZES, st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_results_stay(a: int, b: int, c: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, z = (generator.integers(0, 9, extent).astype("f8") for extent in (a, b, c))
    i = np.arange(a * b * c)
    if a * b * c:
        assert (three(x, y, z) == x[i // (b * c)] * y[i // c % b] + z[i % c]).all()
        plane = generator.integers(0, 9, (b, c)).astype("f8")
        assert (planes(x, plane) == x[i // (b * c)] * plane[i // c % b, i % c] + i % (b * c)).all()
    else:
        assert len(three(x, y, z)) == 0
    assert (outer(x, y) == np.outer(x, y).ravel()).all()
    more = generator.integers(0, 9, a * b).astype("f8")
    i = np.arange(a * b)
    first, second = numbered(x, y, more)
    assert (first == np.repeat(x, b) + more).all()
    assert (second == np.tile(y, a) * i).all()
    both = np.outer(x, y)
    assert (turned(both) == both.T.ravel()).all()
    assert (rows_of_three(both) == both.reshape(-1, 1) + np.arange(3.0)).all()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_constant_lengths(n: int) -> None:
    x = np.random.default_rng(n).random((n, 20, 40))
    assert (pictures(x) == x.ravel() + np.arange(x.size) % 800).all()
    assert (pixels(x[:, 3]) == x[:, 3].ravel() * 2).all()
    assert (pairs(x[:, 3, 4:6]) == x[:, 3, 4:6].ravel() * 2).all()


def test_indices_out_of_range_are_told() -> None:
    @tw.program
    def beyond(x: tw.f64["n"], y: tw.f64["m"]):
        m = y.shape[0]
        return tw.map(lambda i: x[i // m + 1] * y[i % m], tw.iota(x.shape[0] * m))

    with pytest.raises(IndexError, match="index 3 "):
        beyond(np.ones(3), np.ones(40))
