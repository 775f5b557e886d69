"""Calling compiled programs: arguments of any layout, results, errors, the caches and threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Type, array
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import C64, F64, I64
from tilewright.passes.compile import compile_program
from tilewright.runtime import bound_plan, bound_plans
from tilewright.runtime.devices import DeviceError, device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.recording import Allocation, flattened

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]

AXPY = """\
def axpy (alpha: f32, x: [n][m]f32, y: [n][m]f32) =
  let (r: [n][m]f32) = map n (\\(xs: [m]f32, ys: [m]f32) ->
    let (row: [m]f32) = map m (\\(a: f32, b: f32) ->
      let (c: f32) = alpha * a
      let (d: f32) = c + b
      in (d)) xs ys
    in (row)) x y
  in (r)
"""
MATMUL = """\
def matmul (a: [n][k]f32, b: [k][m]f32) =
  let (columns: [m][k]f32) = rearrange (1, 0) b
  let (c: [n][m]f32) = map n (\\(row: [k]f32) ->
    let (r: [m]f32) = map m (\\(column: [k]f32) ->
      let (e: f32) = redomap_comm k (\\(s: f32, t: f32) ->
        let (sum: f32) = s + t
        in (sum)) (0.0f32) (\\(x: f32, y: f32) ->
        let (xy: f32) = x * y
        in (xy)) row column
      in (e)) columns
    in (r)) a
  in (c)
"""


def executable(text: str, device: str = "cpu") -> Executable:
    try:
        return compile_program(parse_program(text), device_for(device))
    except DeviceError as error:
        pytest.skip(str(error))


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape, np.float32)


def record_field() -> Any:
    """Elements seven bytes apart."""
    records = np.zeros((4, 6), [("a", "f4"), ("b", "u1", 3)])
    records["a"] = floats(4, 6)
    return records["a"]


LAYOUTS: dict[str, Any] = {
    "row-major": lambda: floats(4, 6),
    "column-major": lambda: floats(6, 4).T,
    "reversed": lambda: floats(4, 6)[::-1, ::-1],
    "stepped": lambda: floats(8, 13)[::2, 1::2],
    "one row": lambda: np.broadcast_to(floats(6), (4, 6)),
    "one element": lambda: np.broadcast_to(np.float32(2.5), (4, 6)),
    "field of a record": record_field,
    "other byte order": lambda: floats(4, 6).astype(">f4"),
    "misaligned": lambda: np.frombuffer(b"x" + floats(24).tobytes(), np.float32, 24, 1).reshape(4, 6),
    "read-only": lambda: np.frombuffer(floats(24).tobytes(), np.float32).reshape(4, 6),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", DEVICES)
def test_arguments_of_any_layout(device: str, layout: str) -> None:
    axpy, matmul = executable(AXPY, device), executable(MATMUL, device)
    for _ in range(2):
        x, y = LAYOUTS[layout](), floats(4, 6, seed=1)
        np.testing.assert_allclose(axpy(0.5, x, y), 0.5 * x + y, rtol=1e-6)
        np.testing.assert_allclose(axpy(0.5, y, x), 0.5 * y + x, rtol=1e-6)
        np.testing.assert_allclose(matmul(x, y.T), x @ y.T, rtol=1e-5)
        np.testing.assert_allclose(matmul(x, x.T), x @ x.T, rtol=1e-5)


def test_one_plan_serves_arrays_of_one_form_only() -> None:
    """A misaligned array has the shape, strides and dtype of an aligned one."""
    axpy = executable(AXPY)
    x = floats(4, 6)
    misaligned = LAYOUTS["misaligned"]()
    for first, second in ((x, misaligned), (misaligned, x), (x, x.astype(">f4"))):
        for one in (first, second):
            np.testing.assert_allclose(axpy(2.0, one, x), 2 * one + x, rtol=1e-6)
    for alpha in (1, 2.5, np.float32(3), np.float64(4), True):
        if alpha is not True:
            np.testing.assert_allclose(axpy(alpha, x, x), np.float32(alpha) * x + x, rtol=1e-6)


@pytest.mark.parametrize("layout", ["misaligned", "other byte order", "field of a record"])
def test_plans_serve_copies_of_arrays_that_kernels_cannot_read(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    axpy = executable(AXPY)
    x, out = LAYOUTS[layout](), np.empty((4, 6), np.float32)
    expected = axpy(2.0, x, x)
    axpy(2.0, x, x, out=out)
    monkeypatch.setattr(axpy, "_run", None)
    np.testing.assert_array_equal(axpy(2.0, x, x), expected)
    assert axpy(2.0, x, x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(expected, 3 * x.astype(np.float32))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0, 0, 0), (0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1)])
def test_empty_arrays(device: str, shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    matmul = executable(MATMUL, device)
    for _ in range(2):
        a, b = floats(n, k), floats(k, m)
        result = matmul(a, b)
        assert result.shape == (n, m)
        np.testing.assert_allclose(result, a @ b, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_out(device: str) -> None:
    axpy = executable(AXPY, device)
    x, y = floats(4, 6), floats(4, 6, seed=1)
    for _ in range(2):
        for out in (
            np.zeros((4, 6), np.float32),
            np.zeros((6, 4), np.float32).T,
            np.zeros((8, 18), np.float32)[::-2, ::3],
        ):
            assert axpy(3.0, x, y, out=out) is out
            np.testing.assert_allclose(out, 3 * x + y, rtol=1e-6)


def test_out_may_overlap_arguments() -> None:
    axpy = executable(AXPY)
    for _ in range(2):
        x = floats(5, 6)
        expected = 2 * x[1:] + x[:-1]
        axpy(2.0, x[1:], x[:-1], out=x[:-1])
        np.testing.assert_allclose(x[:-1], expected, rtol=1e-6)
        square = floats(4, 4)
        expected = square @ square
        assert executable(MATMUL)(square, square, out=square) is square
        np.testing.assert_allclose(square, expected, rtol=1e-5)


def test_out_is_checked_before_anything_is_written() -> None:
    axpy = executable(AXPY)
    x = floats(4, 6)
    for out, error, message in (
        (np.zeros((6, 4), np.float32), ValueError, r"axpy: out\[0\] has shape \(6, 4\), the result has \(4, 6\)"),
        (np.zeros((4, 6)), TypeError, r"out\[0\] has dtype float64, the result has f32"),
        (np.broadcast_to(np.float32(0), (4, 6)), ValueError, "read-only"),
        ([1.0], TypeError, "must be a NumPy array"),
    ):
        with pytest.raises(error, match=message):
            axpy(1.0, x, x, out=out)
    with pytest.raises(ValueError, match="gives 1 result, but out is a tuple of 2"):
        axpy(1.0, x, x, out=(x, x))


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_untouched_by_a_call_that_fails(device: str) -> None:
    pick = executable(
        """\
def pick (x: [n]f32, j: [k]i64) =
  let (a: [k]f32) = map k (\\(i: i64) ->
    let (e: f32) = x[i]
    in (e)) j
  let (b: [k]f32) = map k (\\(f: f32) ->
    let (g: f32) = f + 1.0f32
    in (g)) a
  in (a, b)
""",
        device,
    )
    outs = (np.full(3, 7, np.float32), np.full(3, 8, np.float32))
    pick(floats(5), np.array([0, 1, 2]), out=tuple(one.copy() for one in outs))
    with pytest.raises(IndexError, match="index 9 of x is out of range in dimension 0 of extent 5"):
        pick(floats(5), np.array([0, 1, 9]), out=outs)
    assert (outs[0] == 7).all() and (outs[1] == 8).all()


def test_wrong_arguments_are_named() -> None:
    axpy = executable(AXPY)
    x = floats(4, 6)
    with pytest.raises(ValueError, match="dimension 1 of parameter y must be m = 6, but is 5"):
        axpy(1.0, x, floats(4, 5))
    with pytest.raises(ValueError, match=r"parameter x has type \[n\]\[m\]f32, but the argument has rank 1"):
        axpy(1.0, x[0], x)
    with pytest.raises(
        TypeError, match=r"parameter x has type \[n\]\[m\]f32, the argument has dtype float64; convert it: x"
    ):
        axpy(1.0, x.astype(np.float64), x)
    with pytest.raises(TypeError, match="parameter alpha of type f32"):
        axpy(1j, x, x)
    with pytest.raises(ValueError, match=r"axpy takes 3 arguments \(alpha, x, y\), not 2"):
        axpy(1.0, x)
    axpy(1.0, x, x)
    with pytest.raises((TypeError, ValueError), match="parameter alpha"):
        axpy(x, x, x)


@pytest.mark.parametrize("device", DEVICES)
def test_results_never_share_memory_with_arguments(device: str) -> None:
    same = executable(
        """\
def same (x: [n][m]f32) =
  let (turned: [m][n]f32) = rearrange (1, 0) x
  in (x, turned, x)
""",
        device,
    )
    for _ in range(2):
        x = floats(3, 4)
        results = same(x)
        for one, expected in zip(results, (x, x.T, x), strict=True):
            np.testing.assert_array_equal(one, expected)
            assert not np.may_share_memory(one, x)
        assert not np.may_share_memory(results[0], results[2])


def test_scalar_arguments_results_and_literals() -> None:
    b = Builder()
    e, z, k = b.variable("e", Type(F64)), b.variable("z", Type(C64)), b.variable("k", Type(I64))
    x = b.variable("x", array(C64, "n"))
    scaled = b.map([x], lambda one: b.apply("mul", one, z))
    doubled = b.apply("add", e, e)
    total = b.reduce(b.operator("add", C64), Literal(0j, C64), scaled)
    run = compile_program(
        b.program("scalars", [e, z, k, x], [e, doubled, k, total, scaled, Literal(3, I64)]), device_for("cpu")
    )
    for number in (1.5, 2.5):
        values = np.array([1 + 2j, 3 - 1j], np.complex64)
        results = run(number, 2 + 1j, 7, values)
        assert results[:3] == (number, 2 * number, 7) and results[5] == 3
        assert [type(one) for one in results[:3]] == [np.float64, np.float64, np.int64]
        np.testing.assert_allclose(results[3], (values * (2 + 1j)).sum(), rtol=1e-6)
        np.testing.assert_allclose(results[4], values * (2 + 1j), rtol=1e-6)


def test_a_scalar_argument_is_converted_once_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """\
def decay (rate: f32, x: [n]f32) =
  let (y: [n]f32) = loop (a: [n]f32) = (x) for i: i64 < 9 do
    let (b: [n]f32) = map n (\\(e: f32) ->
      let (r: f32) = rate * e
      in (r)) a
    in (b)
  in (y)
"""
    converted = []

    def counting(type_: Any, value: Any, _slot_bytes: Any = bound_plan.slot_bytes) -> Any:
        converted.append(value)
        return _slot_bytes(type_, value)

    run = compile_program(parse_program(source), device_for("cpu"))
    x = np.ones(40_000, np.float32)  # too much for one kernel of all rounds
    run(np.float32(0.5), x)
    monkeypatch.setattr(bound_plan, "slot_bytes", counting)
    assert set(run(np.float32(2.0), x)) == {512.0}
    assert len(converted) == 1
    assert set(run(np.float32(np.inf), x)) == {np.inf}
    assert set(run(1e300, x)) == {np.inf}


def test_scalar_arguments_that_are_sizes() -> None:
    take = executable(
        """\
def take (x: [n]f32, k: i64, from: i64) =
  let (a: [k]f32) = x[from :+ k]
  let (b: [k]f32) = map k (\\(e: f32) ->
    let (f: f32) = e + 1.0f32
    in (f)) a
  in (b)
"""
    )
    x = floats(9)
    for k, start in ((3, 1), (5, 4), (3, 1), (0, 9), (9, 0)):
        np.testing.assert_allclose(take(x, k, start), x[start : start + k] + 1, rtol=1e-6)
    with pytest.raises(IndexError, match="take: index 9 of x is out of range in dimension 0 of extent 9"):
        take(x, 3, 7)


@pytest.mark.parametrize("device", DEVICES)
def test_calls_from_threads(device: str) -> None:
    axpy, matmul = executable(AXPY, device), executable(MATMUL, device)
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for round_ in range(15):
            n = 1 + (number + round_) % 5
            x = floats(n, 4, seed=number)
            np.testing.assert_allclose(axpy(float(number), x, x), number * x + x, rtol=1e-6)
            np.testing.assert_allclose(matmul(x, x.T), x @ x.T, rtol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(work, number) for number in range(4)]:
            one.result()


def test_large_elementwise_maps_are_cut_into_blocks() -> None:
    axpy = executable(AXPY)
    for shape in ((3, 70_001), (70_001, 3), (1, 300_000), (300, 301)):
        x, y = floats(*shape), floats(*shape, seed=1)
        for _ in range(2):
            np.testing.assert_allclose(axpy(2.0, x, y.T.copy().T), 2 * x + y, rtol=1e-6)


def test_many_forms_of_arguments_are_forgotten_in_turn() -> None:
    axpy = executable(AXPY)
    for n in range(1, 280):
        x = np.ones((1, n), np.float32)
        assert axpy(1.0, x, x).sum() == 2 * n
    assert len(axpy._plans) <= 256


def test_a_loop_of_many_launches_is_repeated_from_its_plan() -> None:
    """Every round launches a scan and a map: they are looked up once, not in each call."""
    text = """\
def rounds (x: [n]f64) =
  let (y: [n]f64) = loop (a: [n]f64) = (x) for i: i64 < 600 do
    let (s: [n]f64) = scan n (\\(p: f64, q: f64) ->
      let (r: f64) = max(p, q)
      in (r)) (0.0f64) a
    let (b: [n]f64) = map n (\\(e: f64) ->
      let (f: f64) = e + 1.0f64
      in (f)) s
    in (b)
  in (y)
"""
    rounds = executable(text)
    x = np.random.default_rng(3).random(40_000)  # too much for one kernel of all rounds
    for _ in range(2):
        np.testing.assert_allclose(rounds(x), np.maximum.accumulate(x) + 600)
    ((_, plan),) = rounds._plans.values()
    assert plan.has_rounds
    temporary = [one for one in flattened(plan.recording.records) if isinstance(one, Allocation)]
    assert len(temporary) <= 4, "rounds share their arrays"


def test_plans_are_forgotten_when_they_are_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_plans, "RECORDS", 6)
    axpy = executable(AXPY)
    for n in range(1, 20):
        x = np.ones((1, n), np.float32)
        assert axpy(1.0, x, x).sum() == 2 * n
    assert 1 <= len(axpy._plans) < 6


def test_explain_tells_how_and_why() -> None:
    assert "c = map: a contraction over n:M[n], m:N[m], k:K[k]" in executable(MATMUL).explain()
    text = executable(AXPY).explain()
    assert "r = map: a kernel over n x m points" in text
    assert "not otherwise: not a contraction:" in text


def test_results_that_do_not_fit_are_refused() -> None:
    fill = executable(
        """\
def fill (n: i64) =
  let (a: [n]f64) = replicate n 0.0f64
  in (a)
"""
    )
    assert fill(3).tolist() == [0, 0, 0]
    with pytest.raises(MemoryError, match="fill"):
        fill(1 << 45)
