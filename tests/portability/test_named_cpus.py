"""The CPU's kernels for other CPUs than this one: every dtype and remainder, every form, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import semirings
from naive import assert_close, einsum_contraction, random_buffers
from named_cpus import ARM, X86, NamedBackend, machine_for, processor_at_hand, region_of, run_launch
from tensor_support import check, random_contraction, random_elementwise

from tilewright.contraction.normalise import normalise
from tilewright.contraction.tensor_operation import TensorOperation
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import BOOL, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, ScalarType
from tilewright.kernel.ir import BlockIndex, Buffer, For, Kernel, Name, Space, Store, add, integer, load, multiply
from tilewright.passes.compile import compile_program
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.passes.tensor.kernel import tensor_launch

CPUS = [*X86, *ARM]
FEW = ["x86-64", "haswell", "skylake-avx512", "neoverse-n1"]  # one of each vector length
FLOATS = [F16, F32, F64, C64, C128]
INTEGERS = [I8, I16, I32, I64, U8, U16, U32, U64]


def check_contraction(name: str, text: str, sizes: dict[str, int], scalar: ScalarType, semiring: str = "") -> None:
    contraction = einsum_contraction(text, sizes, scalar)
    if semiring:
        function, combine, neutral = semirings(scalar)[semiring]
        contraction = replace(contraction, map=function, combine=combine, neutral=neutral)
    buffers = random_buffers(contraction, 5)
    (launch,) = contraction_launches(normalise(contraction), machine_for(name))
    assert_close(contraction, run_launch(name, launch, buffers, {}, threads=2), buffers, {})


def remainders(name: str, scalar: ScalarType) -> list[tuple[int, int, int]]:
    """Sizes around whole vectors, tiles and pieces of the sum."""
    lanes = machine_for(name).lanes(scalar.bytes)
    return [(1, 1, 1), (lanes, 6, 8), (4 * lanes + 1, 13, 7), (lanes - 1 or 1, 5, 70), (9 * lanes - 1, 31, 3)]


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        *((name, scalar) for name in FEW for scalar in FLOATS),
        *((name, scalar) for name in ("haswell", "neoverse-n1") for scalar in INTEGERS),
        *(("skylake-avx512", scalar) for scalar in (I32, U64)),
    ],
    ids=str,
)
def test_matrix_products_of_every_type_and_remainder(name: str, scalar: ScalarType) -> None:
    for n, m, k in remainders(name, scalar):
        check_contraction(name, "aq,qb->ab", dict(a=m, b=n, q=k), scalar)


@pytest.mark.parametrize("name", CPUS)
def test_matrix_products_on_every_processor(name: str) -> None:
    for scalar in (F32, F64):
        check_contraction(name, "aq,qb->ab", dict(a=67, b=70, q=300), scalar)


@pytest.mark.parametrize("semiring", ["min_plus", "max_times"])
@pytest.mark.parametrize("name", FEW)
def test_other_semirings(name: str, semiring: str) -> None:
    check_contraction(name, "aq,qb->ab", dict(a=23, b=37, q=19), F32, semiring)


@pytest.mark.parametrize("name", FEW)
def test_booleans(name: str) -> None:
    contraction = replace(einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=17), BOOL, "and", "or", False))
    buffers = random_buffers(contraction, 1)
    (launch,) = contraction_launches(normalise(contraction), machine_for(name))
    assert_close(contraction, run_launch(name, launch, buffers, {}), buffers, {})


@pytest.mark.parametrize(
    "text",
    ["aebf,dfce->abcd", "bda,dc->abc", "qa,bq->ba", "xaq,xbq->bxa", "icaq,qbjc->abij"],
    ids=lambda text: text.replace(",", "_").replace("->", "_"),
)
@pytest.mark.parametrize("name", FEW)
def test_strided_contractions_with_transposing_packs(name: str, text: str) -> None:
    sizes = dict(a=17, b=9, c=5, d=8, e=6, f=7, i=3, j=11, q=18, x=3)
    for scalar in (F32, F64):
        check_contraction(name, text, sizes, scalar)


PROGRAMS = {
    "map": """
def scaled (x: [n]f32, y: [n]f32, s: f32) =
  let (z: [n]f32) = map n (\\(a: f32, b: f32) ->
    let (c: f32) = a * s
    let (d: f32) = exp(c)
    let (e: f32) = max(d, b)
    let (h: f32) = d / e
    in (h)) x y
  in (z)
""",
    "reduce": """
def rows (x: [n][m]f64) =
  let (sums: [n]f64) = map n (\\(row: [m]f64) ->
    let (total: f64) = redomap_comm m (\\(s: f64, t: f64) ->
      let (u: f64) = s + t
      in (u)) (0.0f64) (\\(a: f64) ->
      let (b: f64) = a * a
      in (b)) row
    in (total)) x
  in (sums)
""",
    "sum": """
def total (x: [n]i32) =
  let (total: i32) = reduce_comm n (\\(s: i32, t: i32) ->
    let (u: i32) = s + t
    in (u)) (0i32) x
  in (total)
""",
    "scan": """
def prefix (x: [n]i64) =
  let (sums: [n]i64) = scan n (\\(s: i64, t: i64) ->
    let (u: i64) = s + t
    in (u)) (0i64) x
  in (sums)
""",
    "half": """
def half (x: [n]f16, y: [n]f16) =
  let (z: [n]f16) = map n (\\(a: f16, b: f16) ->
    let (c: f16) = a * b
    let (d: f16) = sqrt(c)
    in (d)) x y
  in (z)
""",
    "integers": """
def integers (x: [n]i16, y: [n]i16) =
  let (z: [n]i16, r: [n]f32) = map n (\\(a: i16, b: i16) ->
    let (c: i16) = a // b
    let (d: i16) = a % b
    let (e: i16) = c - d
    let (f: f32) = e as f32
    in (e, f)) x y
  in (z, r)
""",
}  # fmt: skip


def arguments_of(program: object) -> list[object]:
    generator = np.random.default_rng(3)
    sizes = {"n": 203, "m": 37}
    made: list[object] = []
    for parameter in program.parameters:  # type: ignore[attr-defined]
        dtype = parameter.type.element.numpy
        shape = tuple(sizes[str(one)] for one in parameter.type.shape)
        values = generator.integers(1, 9, shape) if dtype.kind == "i" else generator.uniform(0.5, 2, shape)
        made.append(np.asarray(values).astype(dtype) if shape else dtype.type(values))
    return made


@pytest.mark.parametrize("program", sorted(PROGRAMS))
@pytest.mark.parametrize("name", FEW)
def test_programs(name: str, program: str) -> None:
    parsed = parse_program(PROGRAMS[program].lstrip())
    arguments = arguments_of(parsed)
    backend = NamedBackend(name)
    executable = compile_program(parsed, device_of(backend))
    executable._backend = backend
    executable._remember = lambda *_: None  # type: ignore[method-assign]  # repeated calls would run code of this CPU
    results = executable(*arguments)
    assert backend.launches > 0
    wanted = interpret(parsed, arguments)
    for got, want in zip(results if len(wanted) > 1 else (results,), wanted, strict=True):
        expected = np.asarray(want)
        assert np.asarray(got).dtype == expected.dtype
        if expected.dtype.kind == "i":
            np.testing.assert_array_equal(got, expected)
        else:
            # exp is within 4 units in the last place on either side; a sum of 37 squares below 4 rounds 37 times.
            np.testing.assert_allclose(got, expected, rtol=64 * np.finfo(expected.dtype).eps)


def device_of(backend: NamedBackend) -> object:
    from tilewright.runtime.devices import Device

    return Device("cpu", backend.machine, backend.machine.name)


@pytest.mark.parametrize("name", FEW)
def test_tensor_operations(name: str) -> None:
    for seed, dtype in enumerate(["f32", "f64", "c64", "f16", "i8"] * 2):
        check_operation(name, random_contraction(seed, dtype), seed)
    for seed, main in enumerate(["copy", "transpose", "relu", "add", "mul", "sqrt"]):
        check_operation(name, random_elementwise(seed, "f32", main), seed)


def check_operation(name: str, operation: TensorOperation, seed: int) -> None:
    launch = tensor_launch(operation, machine_for(name))

    def compiled(in0: np.ndarray | None, in1: np.ndarray | None, out: np.ndarray) -> np.ndarray:
        regions = [region_of(one) for one in (in0, in1, out) if one is not None]
        processor_at_hand(name).run(launch.kernel, "none", regions, launch.scalars, launch.blocks, 2)
        return out

    check(operation, compiled, seed)


@pytest.mark.parametrize("name", ARM)
def test_the_thread_pool_on_another_architecture(name: str) -> None:
    """Every block runs exactly once in each of many launches, through each worker's own workspace."""
    y, scratch = Buffer("y", I64), Buffer("scratch", I64, Space.WORKSPACE, 16)
    i = Name("i", I64)
    at = add(multiply(BlockIndex(), integer(16)), i)
    counted = add(load(scratch, i), integer(1))
    body = (
        For("i", integer(0), integer(16), (Store(scratch, i, load(y, at)),)),
        For("i", integer(0), integer(16), (Store(y, at, counted),)),
    )
    kernel = Kernel("counting", (y,), (), (scratch,), body)
    out = np.zeros((100, 16), np.int64)
    processor = processor_at_hand(name)
    processor.run(kernel, "none", [region_of(out)], (), 100, threads=4, rounds=200)  # type: ignore[call-arg]
    np.testing.assert_array_equal(out, 200)
