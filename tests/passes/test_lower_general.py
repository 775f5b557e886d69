"""The general lowering, construct by construct, on the CPU and on OpenCL, against the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lowering_checks import check, compiled

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Redomap, Type, array
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import F16, I32
from tilewright.ir.sizes import size
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.machine.named import named_machine
from tilewright.passes.compile import program_block
from tilewright.runtime import host
from tilewright.runtime.devices import Device
from tilewright.runtime.host import Layout

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
ADD = "(\\(p{0}: f32, q{0}: f32) -> let (sum{0}: f32) = p{0} + q{0} in (sum{0}))"


def add(number: int) -> str:
    """A lambda that adds, with names of its own."""
    return ADD.format(number)


def floats(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).integers(-16, 17, shape) / 8).astype(np.float32)


VIEWS = """\
def views (x: [n][m]f32, i: i64, e: f32) =
  let (a: [m]f32) = x[i]
  let (b: f32) = x[i, 1i64]
  let (c: [n][2]f32) = x[n - 1 :+ n by -1, 1 :+ 2]
  let (d: [m][n]f32) = rearrange (1, 0) x
  let (f: [m*n]f32) = reshape (m*n) d
  let (g: [2][m]f32) = replicate 2 a
  let (h: [3]f32) = replicate 3 b
  let (j: [n][2*m]f32) = concat 1 x x
  let (k: [n][m]f32) = x with [i, 0i64] = e
  let (l: [n][m]f32) = k with [i] = a
  let (o: [n]i32) = iota n i32
  let (p: [1][1]f32) = reshape (1, 1) e
  let (q: f32) = e[:+]
  let (r: [n][m]f32) = copy x
  let (s: [4]f32) = replicate 4 e
  in (a, b, c, d, f, g, h, j, k, l, o, p, q, r, s, i)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_views_and_copies_at_the_top(device: str) -> None:
    check(VIEWS, [floats(4, 5), 2, 0.5], device)
    check(VIEWS, [np.asfortranarray(floats(4, 5))[::-1], 3, 0.5], device)


INSIDE = """\
def inside (x: [n][m]f32, j: [n]i64) =
  let (r1: [n][m]f32, r2: [n][m][2]f32, r3: [n][2*m]f32, r4: [n][m]f32, r5: [n][m]f32, r6: [n]f32) =
    map n (\\(row: [m]f32, at: i64) ->
      let (scanned: [m]f32) = scan m ADD1 (0.0f32) row
      let (two: [2][m]f32) = replicate 2 scanned
      let (flat: [2*m]f32) = reshape (2*m) two
      let (turned: [m][2]f32) = rearrange (1, 0) two
      let (joined: [2*m]f32) = concat 0 row scanned
      let (changed: [m]f32) = row with [at] = 9.0f32
      let (numbers: [m]i64) = iota m i64
      let (back: [m]f32) = map m (\\(k: i64) ->
        let (last: i64) = size(m - 1)
        let (mirrored: i64) = last - k
        let (e: f32) = changed[mirrored]
        in (e)) numbers
      let (picked: f32) = flat[at]
      in (back, turned, joined, changed, scanned, picked)) x j
  in (r1, r2, r3, r4, r5, r6)
""".replace("ADD1", add(1))


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_inside_a_work_item(device: str) -> None:
    check(INSIDE, [floats(6, 5), np.array([0, 1, 4, 2, 3, 0])], device)
    check(INSIDE, [floats(600, 3).T.copy().T, np.arange(600) % 3], device)  # more work items than one block has threads
    check(INSIDE, [floats(0, 5), np.zeros(0, np.int64)], device)


FOLDS = """\
def folds (x: [n]f32, y: [n][3]f32, j: [n]i64, bins: [m]f32, rows: [m][3]f32) =
  let (a: f32) = reduce n ADD1 (0.0f32) x
  let (b: f32, c: [n]f32) = redomap n ADD2 (0.0f32) (\\(e: f32) ->
    let (d: f32) = e * e
    in (d, d)) x
  let (f: [3]f32) = reduce n (\\(u: [3]f32, v: [3]f32) ->
    let (w: [3]f32) = map 3 ADD3 u v
    in (w)) (zero) y
  let (g: [n]f32) = scan n ADD4 (0.0f32) x
  let (h1: [n]f32, h2: [n]f32) = scanomap n ADD5 (0.0f32) (\\(k: f32) ->
    let (k2: f32) = k + 1.0f32
    in (k2, k)) x
  let (o: [m]f32) = scatter bins j x
  let (p: [m]f32) = hist (bins) ADD6 (0.0f32) j x
  let (r: [m][3]f32) = hist (rows) (\\(u2: [3]f32, v2: [3]f32) ->
    let (w2: [3]f32) = map 3 ADD7 u2 v2
    in (w2)) (zero) j y
  let (s1: f32, s2: [n]f32) = stream_seq n 4 (\\(length: i64, acc: f32, chunk: [length]f32) ->
    let (t: [length]f32) = scan length ADD8 (0.0f32) chunk
    let (total: f32) = reduce length ADD9 (0.0f32) chunk
    let (acc2: f32) = acc + total
    in (acc2, t)) (0.0f32) x
  in (a, b, c, f, g, h1, h2, o, p, r, s1, s2)
"""
for _number in range(1, 10):
    FOLDS = FOLDS.replace(f"ADD{_number}", add(_number))
FOLDS = FOLDS.replace("=\n  let (a: f32)", "=\n  let (zero: [3]f32) = replicate 3 0.0f32\n  let (a: f32)", 1)


@pytest.mark.parametrize("device", DEVICES)
def test_folds_at_the_top(device: str) -> None:
    for n in (0, 1, 11):
        indices = np.random.default_rng(n).permutation(n + 4)[:n] - 2  # some of them out of range
        check(FOLDS, [floats(n), floats(n, 3), indices, floats(n + 1), floats(n + 1, 3)], device)


MATRICES = """\
def matrices (a: [n]i64, b: [n]i64) =
  let (r: i64, s: i64) = reduce n (\\(a1: i64, b1: i64, a2: i64, b2: i64) ->
    let (c: i64) = a1 * a2
    let (d: i64) = b1 * a2
    let (e: i64) = d + b2
    in (c, e)) (1i64, 0i64) a b
  in (r, s)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_reduction_in_chunks_keeps_the_order(device: str) -> None:
    """Affine maps compose associatively but do not commute."""
    random = np.random.default_rng(1)
    n = 40_000
    a, b = random.integers(-9, 10, n) * 2 + 1, random.integers(-9, 10, n)
    r, s = 1, 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        r, s = r * x % 2**64, (s * x + y) % 2**64
    results = compiled(MATRICES, device)(a, b)
    assert [int(one) % 2**64 for one in results] == [r, s]


@pytest.mark.parametrize("device", DEVICES)
def test_commutative_reduction_in_lanes(device: str) -> None:
    b = Builder()
    x, y = b.variable("x", array(F16, "n")), b.variable("y", array(I32, "n"))
    types = [Type(F16), Type(I32)]
    combine = b.function(types * 2, lambda a, c, d, e: [b.apply("max", a, d), b.apply("add", c, e)])
    function = b.function(types, lambda a, c: [b.apply("neg", a), b.apply("mul", c, c), c])
    neutral = (Literal(-float("inf"), F16), Literal(0, I32))
    results = b.emit(Redomap(size("n"), combine, neutral, function, (x, y), commutative=True))
    run = compiled(b.program("lanes", [x, y], results), device)
    for n in (70_001, 65_536, 100_063):
        values = np.random.default_rng(n).integers(-99, 99, n)
        largest, total, mapped = run(values.astype(np.float16), values.astype(np.int32))
        assert (largest, total) == (np.float16(-values.min()), (values * values).sum())
        np.testing.assert_array_equal(mapped, values)


SEGMENTED = """\
def segmented (y: [n][m]f32, bins: [n][4]f32, j: [n][m]i64) =
  let (a: [n][m]f32) = segmap@block (i1: i64 < n, i2: i64 < m) do
    let (e: f32) = y[i1, i2]
    let (f: f32) = e + 1.0f32
    in (f)
  let (b: [n]f32, c: [n][m]f32) = segred@block (i3: i64 < n, i4: i64 < m) ADD1 (0.0f32) do
    let (g: f32) = y[i3, i4]
    in (g, g)
  let (d: f32) = segred@thread (i5: i64 < n) ADD2 (0.0f32) do (2.5f32)
  let (h: [n][m]f32) = segscan@block (i6: i64 < n, i7: i64 < m) ADD3 (0.0f32) do
    let (k: f32) = y[i6, i7]
    in (k)
  let (l: [n][4]f32) = seghist@block (i20: i64 < n, i9: i64 < m) (bins) ADD4 (0.0f32) do
    let (o: i64) = j[i20, i9]
    in (o, 1.0f32)
  let (p: [n]f32) = segmap@cluster (i10: i64 < n) do
    let (q: f32) = segred@thread (i11: i64 < m) ADD5 (0.0f32) do
      let (r: f32) = y[i10, i11]
      in (r)
    let (s: [m]f32) = segscan@thread (i12: i64 < m) ADD6 (0.0f32) do (q)
    let (t: f32) = s[0i64]
    in (t)
  in (a, b, c, d, h, l, p)
"""
for _number in range(1, 7):
    SEGMENTED = SEGMENTED.replace(f"ADD{_number}", add(_number))


@pytest.mark.parametrize("device", DEVICES)
def test_segmented_operations(device: str) -> None:
    indices = np.random.default_rng(0).integers(-1, 5, (6, 7))
    check(SEGMENTED, [floats(6, 7), floats(6, 4), indices], device)


LOOPS = """\
def loops (x: [n]f32, rounds: i64, limit: f32) =
  let (a: [n]f32, b: [n]f32) = loop (u: [n]f32, v: [n]f32) = (x, x) for i: i64 < rounds do
    let (w: [n]f32) = map n ADD1 u v
    in (v, w)
  let (c: [n]f32, d: f32) = loop (y: [n]f32, z: f32) = (x, 0.0f32) while (\\(y2: [n]f32, z2: f32) ->
    let (again: bool) = z2 < limit
    in (again)) do
    let (t: [n]f32) = map n ADD2 y y
    let (total: f32) = reduce n ADD3 (1.0f32) t
    let (more: f32) = z + 3.0f32
    let (next: f32) = max(more, total)
    in (t, next)
  let (big: bool) = d > 10.0f32
  let (e: [n]f32) = if big then
    let (f: [n]f32) = map n ADD4 a c
    in (f)
  else (x)
  let (g: [n]f32, h: i64) = loop (g1: [n]f32, h1: i64) = (x, 0i64) for k: i64 < n do
    let (o: f32) = g1[h1]
    let (p: f32) = o + 1.0f32
    let (q: [n]f32) = g1 with [k] = p
    in (q, k)
  in (a, b, c, d, e, g, h)
"""
for _number in range(1, 5):
    LOOPS = LOOPS.replace(f"ADD{_number}", add(_number))


@pytest.mark.parametrize("device", DEVICES)
def test_loops_and_ifs_at_the_top(device: str) -> None:
    for rounds, limit in ((0, -1.0), (5, 20.0)):
        check(LOOPS, [floats(4), rounds, limit], device)


IRREGULAR = """\
def irregular (x: [n]i64) =
  let (a: [n]i64) = map n (\\(e: i64) ->
    let (ones: [e]i64) = replicate e 1i64
    let (numbers: [e]i64) = iota e i64
    let (sums: [e]i64) = map e (\\(o: i64, p: i64) ->
      let (q: i64) = o + p
      in (q)) ones numbers
    let (scanned: [e]i64) = scan e (\\(c: i64, d: i64) ->
      let (f: i64) = c + d
      in (f)) (0i64) sums
    let (total: i64) = reduce e (\\(g: i64, h: i64) ->
      let (k: i64) = g + h
      in (k)) (0i64) scanned
    in (total)) x
  in (a)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_that_only_a_row_knows(device: str) -> None:
    run = check(IRREGULAR, [np.array([3, 0, 5, 1])], device)
    assert "row by row on the host" in run.explain()
    assert "depends on e, which only the work item knows" in run.explain()
    check(IRREGULAR, [np.zeros(0, np.int64)], device)


@pytest.mark.parametrize("device", DEVICES)
def test_folds_over_rows_of_sizes_that_only_a_row_knows(device: str) -> None:
    folds = """\
def folds (x: [n]i64) =
  let (a: i64, b: [n]i64) = redomap n (\\(c: i64, d: i64) ->
    let (f: i64) = c + d
    in (f)) (0i64) (\\(e: i64) ->
    let (numbers: [e]i64) = iota e i64
    let (sums: [e]i64) = scan e (\\(g: i64, h: i64) ->
      let (k: i64) = g + h
      in (k)) (0i64) numbers
    let (total: i64) = reduce e (\\(g2: i64, h2: i64) ->
      let (k2: i64) = g2 + h2
      in (k2)) (0i64) sums
    in (total, e)) x
  in (a, b)
"""
    check(folds, [np.array([3, 0, 5, 1])], device)


TRIANGLE = """\
def triangle (x: [n]f32) =
  let (numbers: [n]i64) = iota n i64
  let (a: [n]f32) = map n (\\(e: i64) ->
    let (s: f32) = loop (acc: f32) = (0.0f32) for i: i64 < n do
      let (part: [i]f32) = x[0 :+ i]
      let (doubled: [i]f32) = scan i ADD1 (0.0f32) part
      let (t: f32) = reduce i ADD2 (0.0f32) doubled
      let (u: f32) = acc + t
      in (u)
    in (s)) numbers
  in (a)
""".replace("ADD1", add(1)).replace("ADD2", add(2))


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_below_a_loop_bound_are_bounded(device: str) -> None:
    run = check(TRIANGLE, [floats(6)], device)
    assert "row by row" not in run.explain()


CHECKED = """\
def checked (x: [n]f32, j: [k]i64) =
  let (a: [k]f32) = map k (\\(i: i64) ->
    let (e: f32) = x[i]
    in (e)) j
  in (a)
"""


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_out_of_range_is_named(device: str) -> None:
    run = check(CHECKED, [floats(5), np.array([0, 4, 2])], device)
    for _ in range(2):
        with pytest.raises(IndexError, match="checked: index 5 of x is out of range in dimension 0 of extent 5"):
            run(floats(5), np.array([0, 5, 2]))
        with pytest.raises(IndexError, match="index -1 of x"):
            run(floats(5), np.array([0, -1, 2]))
    with pytest.raises(IndexError, match="index 0 of x is out of range in dimension 0 of extent 0"):
        run(floats(0), np.array([0]))


SLICED = """\
def sliced (x: [n]f32, j: [k]i64) =
  let (a: [k]f32) = map k (\\(i: i64) ->
    let (part: [2]f32) = x[i :+ 2 by -1]
    let (e: f32) = reduce 2 ADD1 (0.0f32) part
    in (e)) j
  in (a)
""".replace("ADD1", add(1))


@pytest.mark.parametrize("device", DEVICES)
def test_a_slice_out_of_range_is_named(device: str) -> None:
    run = check(SLICED, [floats(5), np.array([1, 4, 2])], device)
    with pytest.raises(IndexError, match="sliced: index -1 of x is out of range in dimension 0 of extent 5"):
        run(floats(5), np.array([1, 0]))
    with pytest.raises(IndexError, match="index 5 of x"):
        run(floats(5), np.array([5, 1]))


CHASE = """\
def chase (next: [n]i64, starts: [k]i64) =
  let (a: [k]i64) = map k (\\(start: i64) ->
    let (end: i64) = loop (p: i64) = (start) while (\\(q: i64) ->
      let (again: bool) = q != 1i64
      in (again)) do
      let (r: i64) = next[p]
      in (r)
    in (end)) starts
  in (a)
"""


def test_a_loop_that_goes_out_of_range_ends() -> None:
    run = check(CHASE, [np.array([2, 0, 1]), np.array([0, 2, 1])])
    with pytest.raises(IndexError, match="chase: index 7 of next"):
        run(np.array([2, 0, 7]), np.array([0, 1]))


def kernel_steps(block: host.Block) -> Iterator[host.KernelStep]:
    """The kernels of a block, those inside host control flow included."""
    for step in block.steps:
        parts = [getattr(step, name, None) for name in ("whole", "first", "second")]
        yield from (one for one in (step, *parts) if isinstance(one, host.KernelStep))
        inner = [getattr(step, name, None) for name in ("then", "otherwise", "body", "condition")]
        for one in inner:
            if isinstance(one, host.Block):
                yield from kernel_steps(one)


@pytest.mark.parametrize("text", [VIEWS, INSIDE, FOLDS, SEGMENTED, LOOPS], ids=lambda text: text.split()[1])
def test_general_kernels_compile_for_cuda(text: str) -> None:
    """No GPU is needed for that."""
    pytest.importorskip("cuda.bindings.nvrtc")
    program = parse_program(text)
    device = Device("cuda:0", named_machine("h100"), "for its limits only")
    texts = []
    for step in kernel_steps(program_block(program, device)[0]):
        dense = Layout((), dense=True, at_start=True)
        arrays = [one.name for one in (*step.reads, *step.targets) if one.type.rank or one in step.targets]
        plan = step.lower(tuple((name, dense) for name in arrays))
        texts.append(cuda_text(plan.kernel))
    assert texts
    for one in texts[:12]:
        assert compile_cuda(one, "sm_90a").cubin
