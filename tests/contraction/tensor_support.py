"""Random tensor operations, arrays for them, and what they mean in NumPy."""

import random

import numpy as np

from tilewright.contraction.tensor_operation import TensorDimension, TensorOperation

BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum}
UNARY = {
    "none": lambda x: x, "zero": np.zeros_like, "copy": lambda x: x, "transpose": lambda x: x,
    "relu": lambda x: np.maximum(x, np.zeros((), x.dtype)), "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt,
    "exp": np.exp, "reciprocal": lambda x: 1 / x, "square": np.square,
}  # fmt: skip


def apply(operation: TensorOperation, primitive: str, value: np.ndarray) -> np.ndarray:
    if primitive == "clamp":
        return np.clip(value, *(value.dtype.type(bound) for bound in operation.clamp))
    return UNARY[primitive](value)


def offsets(operation: TensorOperation, array: int) -> np.ndarray:
    """Where each point of the iteration space is in an array; contracted dimensions last."""
    dimensions = sorted(operation.dimensions, key=lambda one: one.kind.value == "K")
    total = np.zeros((1,) * len(dimensions), np.int64)
    for axis, one in enumerate(dimensions):
        shape = [1] * len(dimensions)
        shape[axis] = one.size
        total = total + (np.arange(one.size) * one.strides[array]).reshape(shape)
    return np.broadcast_to(total, [one.size for one in dimensions])


def expected(operation: TensorOperation, in0, in1, out: np.ndarray) -> np.ndarray:
    """The output that the operation must leave, by its definition, in double precision."""
    result = out.copy()
    wide = {"f": np.float64, "c": np.complex128, "i": np.int64}[out.dtype.kind]
    contracted = tuple(axis for axis in range(len(operation.dimensions))
                       if axis >= sum(one.kind.value != "K" for one in operation.dimensions))  # fmt: skip
    where = offsets(operation, 2)
    where = where[tuple(slice(None) if axis not in contracted else 0 for axis in range(where.ndim))]
    main = operation.main.value
    if operation.main.family == "ternary":
        product = in0[offsets(operation, 0)].astype(wide) * in1[offsets(operation, 1)].astype(wide)
        before = apply(operation, operation.first_touch.value, out[where].astype(wide))
        value = before + product.sum(axis=contracted)
    elif main in BINARY:
        value = BINARY[main](in0[offsets(operation, 0)].astype(wide), in1[offsets(operation, 1)].astype(wide))
    elif main == "zero":
        value = np.zeros(where.shape, wide)
    else:
        value = apply(operation, main, in0[offsets(operation, 0)].astype(wide))
    result[where] = apply(operation, operation.last_touch.value, value).astype(out.dtype)
    return result


def arrays(operation: TensorOperation, seed: int) -> tuple:
    """Inputs and an output of just the needed length; positive where a logarithm or root may be taken."""
    rng = np.random.default_rng(seed)
    made = []
    for name, extent in zip(("in0", "in1", "out"), operation.extents, strict=True):
        dtype = (operation.out_dtype if name == "out" else operation.dtype).numpy
        if extent == 0:
            made.append(None)
        elif dtype.kind == "i":
            made.append(rng.integers(-9, 9, extent).astype(dtype))
        elif dtype.kind == "c":
            made.append((rng.integers(-8, 9, extent) / 4 + 1j * rng.integers(-8, 9, extent) / 4).astype(dtype))
        elif operation.main.family == "ternary":  # quarters: sums of their products are exact
            made.append((rng.integers(-8, 9, extent) / 4).astype(dtype))
        else:
            made.append(rng.uniform(0.25, 2.0, extent).astype(dtype) * rng.choice([-1, 1], extent).astype(dtype))
    return tuple(made)


def check(operation: TensorOperation, compiled, seed: int = 0) -> None:
    """Run on random arrays and compare every element of the output, the untouched ones too."""
    in0, in1, out = arrays(operation, seed)
    roots = {"sqrt", "exp"} & {one.value for one in (operation.first_touch, operation.main, operation.last_touch)}
    if roots and out.dtype.kind == "f":
        in0, in1 = (None if one is None else np.abs(one) * one.dtype.type(0.5) for one in (in0, in1))
        out = np.abs(out)
    want = expected(operation, in0, in1, out)
    got = compiled(in0, in1, out)
    assert got is out
    if out.dtype.kind == "i":
        np.testing.assert_array_equal(got, want)
    else:
        tolerance = 1e-14 if out.dtype in (np.float64, np.complex128) else 2e-6
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def _strides(r: random.Random, sizes: dict[int, int], unit: int | None = None, pad: bool = True) -> dict[int, int]:
    """Strides that put the dimensions of `sizes` one around the other in random order, `unit` innermost."""
    order = [number for number in sizes if number != unit]
    r.shuffle(order)
    order = order if unit is None else [unit, *order]
    strides, step = {}, 1 if not pad or r.random() < 0.8 else 2
    for number in order:
        strides[number] = step
        step = step * sizes[number] + (r.choice([0, 0, 1, 5]) if pad else 0)
    return strides


def random_contraction(seed: int, dtype: str = "f32") -> TensorOperation:
    """A gemm or brgemm with loops around it, any kinds of strides."""
    r = random.Random(seed)
    main = r.choice(["gemm", "brgemm"])
    choices = {"M": [1, 3, 8, 13, 16, 20, 33], "N": [1, 2, 5, 8, 17], "K": [1, 4, 16, 19]}
    prim = [(kind, r.choice(sizes)) for kind, sizes in choices.items()]
    if main == "brgemm":
        prim.insert(r.randrange(3), ("K", r.choice([1, 2, 5])))
    outer = [(r.choice("MNKC"), r.randint(1, 3)) for _ in range(r.randint(0, 3))]
    shared = [one for one in outer if one[0] != "K" and r.random() < 0.5]
    seq = [one for one in outer if one not in shared]
    if r.random() < 0.1:
        last = max(number for number, (kind, _) in enumerate(prim) if kind == "K")
        prim[last] = ("K", 600)  # more than fits into a gathered panel
    dims = [(k, "shared", s) for k, s in shared] + [(k, "seq", s) for k, s in seq] + [(k, "prim", s) for k, s in prim]

    def layout(kinds: str, pad: bool) -> dict[int, int]:
        have = {number: s for number, (k, _, s) in enumerate(dims) if k in kinds}
        inner = [number for number in have if dims[number][1] == "prim"]
        return _strides(r, have, r.choice(inner) if inner and r.random() < 0.8 else None, pad)

    in0, in1, out = layout("MKC", True), layout("NKC", True), layout("MNC", True)
    if r.random() < 0.2 and in1:
        in1[r.choice(sorted(in1))] = 0
    touches = {"f": ["none", "zero", "relu", "neg", "abs", "square", "clamp"], "c": ["none", "zero", "neg"],
               "i": ["none", "zero", "relu", "neg", "abs", "clamp"]}  # fmt: skip
    kind = "i" if dtype == "i8" else dtype[0] if dtype != "bf16" else "f"
    first, last = r.choice(touches[kind]), r.choice(touches[kind])
    return TensorOperation(
        dtype,
        main,
        [TensorDimension(k, e, s, in0.get(i, 0), in1.get(i, 0), out.get(i, 0)) for i, (k, e, s) in enumerate(dims)],
        first,
        last,
        (-2, 3) if "clamp" in (first, last) else None,
    )


def random_elementwise(seed: int, dtype: str = "f32", main: str = "copy") -> TensorOperation:
    """A unary or binary operation of one to four dimensions, any kinds of strides."""
    r = random.Random(seed)
    binary = main in BINARY
    count = r.randint(2, 4) if main == "transpose" else r.randint(1, 4)
    inner = 2 if main == "transpose" else min(count, r.randint(1, 2))
    shared = r.randint(0, count - inner)
    outer, block = [1, 2, 3, 7], [1, 3, 8, 16, 21, 40, 70]
    sizes = {i: r.choice(outer if i < count - inner else block) for i in range(count)}
    if main == "transpose":
        sizes.update({i: max(2, sizes[i]) for i in sizes})
    units = [r.choice([count - 1, count - inner, None]) for _ in range(3)]
    if main == "transpose":
        units[0], units[2] = r.sample([count - 1, count - 2], 2)
    layouts = [_strides(r, sizes, unit, pad=main != "transpose") for unit in units]
    if main != "transpose" and r.random() < 0.3:
        layouts[0][r.randrange(count)] = 0
    zero = dict.fromkeys(sizes, 0)
    layouts[1] = layouts[1] if binary else zero
    layouts[0] = zero if main == "zero" else layouts[0]
    last = r.choice(["none", "none", "relu", "exp", "neg", "clamp"])
    kinds = ["C"] * count if not binary else [*("MN"[r.randrange(2)] for _ in range(count - inner)), *"MN"[:inner]]
    executions = ["shared"] * shared + ["seq"] * (count - inner - shared) + ["prim"] * inner
    return TensorOperation(
        dtype,
        main,
        [TensorDimension(kinds[i], executions[i], sizes[i], *(layout[i] for layout in layouts)) for i in range(count)],
        last_touch=last,
        clamp=(-0.5, 0.75) if "clamp" in (last, main) else None,
    )
