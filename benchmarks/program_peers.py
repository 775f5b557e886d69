"""The examples as one would write them with NumPy, numba, JAX and torch; `peers(package)` gives them by name.

A peer is a function of a program's NumPy arguments that gives a call without arguments: what is not computing (copies
to JAX's arrays, tensors that share memory) is done before the clock runs. Constants are written so that nobody computes
in double precision where we do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Call = Callable[[], Any]
Peers = dict[str, Callable[..., Call]]
COEFFICIENTS = (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429)


def array_peers(xp: Any, jit: Callable[[Any], Any], given: Callable[[Any], Any], end: Callable[[Any], Any]) -> Peers:
    """What NumPy, JAX and torch write alike: broadcasting and reductions."""

    def prepared(function: Callable[..., Any]) -> Callable[..., Call]:
        compiled = jit(function)

        def prepare(*arguments: Any) -> Call:
            own = [given(one) if isinstance(one, np.ndarray) else one for one in arguments]
            return lambda: end(compiled(*own))

        return prepare

    def total(x: Any) -> Any:
        return xp.sum(x, -1)

    def nbody(xs: Any, ys: Any, zs: Any, masses: Any, softening: Any) -> Any:
        dx, dy, dz = (one[None, :] - one[:, None] for one in (xs, ys, zs))
        inverse = 1 / xp.sqrt(dx * dx + dy * dy + dz * dz + softening)
        strength = masses * inverse * inverse * inverse
        return total(strength * dx), total(strength * dy), total(strength * dz)

    def lavamd(xs: Any, ys: Any, zs: Any, charges: Any, neighbours: Any, alpha: Any) -> Any:
        boxes = len(xs)
        others = [one[neighbours].reshape(boxes, 1, -1) for one in (xs, ys, zs, charges)]
        dx, dy, dz = (one[:, :, None] - other for one, other in zip((xs, ys, zs), others, strict=False))
        potential = others[3] * xp.exp(-2 * alpha * alpha * (dx * dx + dy * dy + dz * dz))
        strength = 2 * potential
        return total(potential), total(strength * dx), total(strength * dy), total(strength * dz)

    def normal(x: Any) -> Any:
        k = 1 / (1 + 0.2316419 * xp.abs(x))
        series = 0.0
        for one in reversed(COEFFICIENTS):
            series = k * (one + series)
        tail = 0.3989422804014327 * xp.exp(-0.5 * x * x) * series
        return xp.where(x < 0, tail, 1 - tail)

    def blackscholes(stocks: Any, strikes: Any, years: Any, rate: Any, volatility: Any) -> Any:
        spread = volatility * xp.sqrt(years)
        d1 = (xp.log(stocks / strikes) + (rate + 0.5 * volatility * volatility) * years) / spread
        discounted = strikes * xp.exp(-rate * years)
        call = stocks * normal(d1) - discounted * normal(d1 - spread)
        return call, call + discounted - stocks

    def padded(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Any:
        return total(entries * x[places])

    def attention(queries: Any, keys: Any, values: Any, bias: Any) -> Any:
        token = xp.arange(queries.shape[1])
        distance = xp.clip(token[:, None] - token, 0, bias.shape[1] - 1)
        scores = queries @ xp.swapaxes(keys, 1, 2) / queries.shape[2] ** 0.5 + bias[:, distance]
        scores = xp.where(token <= token[:, None], scores, -math.inf)
        weights = xp.exp(scores - xp.amax(scores, -1)[..., None])
        return (weights / total(weights)[..., None]) @ values

    return {
        "matmul": prepared(lambda a, b: a @ b),
        "matmul_left_transposed": prepared(lambda a, b: a.T @ b),
        "matmul_right_transposed": prepared(lambda a, b: a @ b.T),
        "matmul_both_transposed": prepared(lambda a, b: a.T @ b.T),
        "nbody": prepared(nbody), "lavamd": prepared(lavamd), "blackscholes": prepared(blackscholes),
        "padded": prepared(padded), "attention": prepared(attention),
        "solve": prepared(lambda matrices, sides: xp.linalg.solve(matrices, sides[..., None])[..., 0]),
    }  # fmt: skip


def numpy_peers() -> Peers:
    found = array_peers(np, lambda f: f, lambda x: x, lambda x: x)

    def mandelbrot(real: Any, imaginary: Any, limit: Any) -> Any:
        a, b = np.broadcast_arrays(real[None, :], imaginary[:, None])
        x, y, counts, inside = np.zeros_like(a), np.zeros_like(a), np.zeros(a.shape, np.int32), np.ones(a.shape, bool)
        for _ in range(int(limit)):
            inside &= x * x + y * y < 4
            counts += inside
            x, y = np.where(inside, x * x - y * y + a, x), np.where(inside, 2 * x * y + b, y)
        return counts

    def histogram(values: Any, weights: Any, bins: int) -> Any:
        return np.bincount((values * np.float32(bins)).astype(np.int64), minlength=bins)

    def weighted(values: Any, weights: Any, bins: int) -> Any:
        return np.bincount((values * np.float32(bins)).astype(np.int64), weights, minlength=bins)

    def filtered(values: Any, threshold: Any) -> Any:
        kept = values[values > threshold]
        out = np.zeros_like(values)
        out[: len(kept)] = kept
        return out, len(kept)

    def kmeans(points: Any, start: Any, rounds: int) -> Any:
        centres = start
        for _ in range(rounds):
            owners = np.argmin(np.sum(centres * centres, axis=1) - 2 * points @ centres.T, axis=1)
            count = np.bincount(owners, minlength=len(centres))
            sums = [np.bincount(owners, points[:, d], minlength=len(centres)) for d in range(points.shape[1])]
            centres = (np.array(sums) / count).T.astype(np.float32)
        return centres

    def needleman(one: Any, two: Any, gap: Any) -> Any:
        places = np.arange(len(two) + 1, dtype=np.int32)
        row = -gap * places
        for i in range(len(one)):
            best = np.empty_like(row)
            best[0] = -gap * (i + 1)
            np.maximum(row[:-1] + np.where(two == one[i], 3, -2), row[1:] - gap, out=best[1:])
            row = np.maximum.accumulate(best + gap * places) - gap * places
        return row[1:]

    def heat(plate: Any, rate: Any, steps: int) -> Any:
        now = np.pad(plate, 1)
        for _ in range(steps):
            inner = now[1:-1, 1:-1]
            inner += rate * (now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * inner)
        return now[1:-1, 1:-1]

    def locvolcalib(*arguments: Any) -> Any:
        import locvolcalib as example

        return example.solution(*arguments)

    further = {
        "mandelbrot": mandelbrot, "histogram": histogram, "weighted_histogram": weighted, "filter_above": filtered,
        "kmeans": kmeans, "needleman": needleman, "heat": heat, "heat_indexed": heat, "locvolcalib": locvolcalib,
    }  # fmt: skip
    return found | {name: partial(partial, one) for name, one in further.items()} | _scipy_peers()


def _scipy_peers() -> Peers:
    try:
        from scipy.sparse import csr_array
    except ImportError:
        return {}

    def segmented(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Call:
        matrix = csr_array((values, columns, starts.astype(np.int32)), shape=(len(x), len(x)))
        return lambda: matrix @ x

    return {"segmented": segmented}


def torch_peers(threads: int) -> Peers:
    import torch

    torch.set_num_threads(threads)
    found = array_peers(torch, lambda f: f, torch.from_numpy, lambda x: x)

    def prepared(function: Callable[..., Any]) -> Callable[..., Call]:
        return lambda *given: partial(
            function, *(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in given)
        )

    def segmented(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Call:
        parts = [torch.from_numpy(one) for one in (starts, columns.astype(np.int64), values)]
        matrix, vector = torch.sparse_csr_tensor(*parts, size=(len(x), len(x))), torch.from_numpy(x)
        return lambda: matrix @ vector

    def histogram(values: Any, weights: Any, bins: int) -> Any:
        return torch.bincount((values * bins).long(), minlength=bins)

    def weighted(values: Any, weights: Any, bins: int) -> Any:
        return torch.bincount((values * bins).long(), weights, minlength=bins)

    def filtered(values: Any, threshold: Any) -> Any:
        kept = values[values > float(threshold)]
        out = torch.zeros_like(values)
        out[: len(kept)] = kept
        return out, len(kept)

    def kmeans(points: Any, start: Any, rounds: int) -> Any:
        centres = start
        for _ in range(rounds):
            owners = torch.argmin(torch.sum(centres * centres, 1) - 2 * points @ centres.T, 1)
            count = torch.bincount(owners, minlength=len(centres))
            centres = torch.zeros_like(centres).index_add_(0, owners, points) / count[:, None]
        return centres

    def heat(plate: Any, rate: Any, steps: int) -> Any:
        now = torch.nn.functional.pad(plate, (1, 1, 1, 1))
        for _ in range(steps):
            inner = now[1:-1, 1:-1]
            inner += float(rate) * (now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * inner)
        return now[1:-1, 1:-1]

    def attention(queries: Any, keys: Any, values: Any, bias: Any) -> Any:
        token = torch.arange(queries.shape[1])
        distance = torch.clip(token[:, None] - token, 0, bias.shape[1] - 1)
        mask = bias[:, distance].masked_fill(token > token[:, None], -math.inf)
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)

    further = {"histogram": histogram, "weighted_histogram": weighted, "filter_above": filtered, "kmeans": kmeans,
               "heat": heat, "heat_indexed": heat, "attention": attention}  # fmt: skip
    return found | {name: prepared(one) for name, one in further.items()} | {"segmented": segmented}


def jax_peers() -> Peers:
    import jax
    import jax.numpy as jnp
    from jax import lax

    jax.config.update("jax_enable_x64", True)
    found = array_peers(jnp, jax.jit, jnp.asarray, jax.block_until_ready)

    def prepared(function: Callable[..., Any], *static: int) -> Callable[..., Call]:
        compiled = jax.jit(function, static_argnums=static)

        def prepare(*given: Any) -> Call:
            own = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in given]
            return lambda: jax.block_until_ready(compiled(*own))

        return prepare

    def mandelbrot(real: Any, imaginary: Any, limit: Any) -> Any:
        def pixel(a: Any, b: Any) -> Any:
            def step(now: Any) -> Any:
                x, y, count = now
                return x * x - y * y + a, 2 * x * y + b, count + 1

            start = (jnp.float32(0), jnp.float32(0), jnp.int32(0))
            return lax.while_loop(lambda now: (now[0] ** 2 + now[1] ** 2 < 4) & (now[2] < limit), step, start)[2]

        return jax.vmap(lambda b: jax.vmap(lambda a: pixel(a, b))(real))(imaginary)

    def histogram(values: Any, weights: Any, bins: int) -> Any:
        return jnp.zeros(bins, jnp.int32).at[(values * bins).astype(jnp.int32)].add(1)

    def weighted(values: Any, weights: Any, bins: int) -> Any:
        return jnp.zeros(bins, jnp.float32).at[(values * bins).astype(jnp.int32)].add(weights)

    def filtered(values: Any, threshold: Any) -> Any:
        kept = values > threshold
        places = jnp.where(kept, jnp.cumsum(kept) - 1, len(values))
        return jnp.zeros_like(values).at[places].set(values, mode="drop"), jnp.sum(kept)

    def segmented(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Any:
        rows = jnp.repeat(jnp.arange(len(x)), jnp.diff(starts), total_repeat_length=len(values))
        return jax.ops.segment_sum(values * x[columns], rows, len(x), indices_are_sorted=True)

    def kmeans(points: Any, start: Any, rounds: int) -> Any:
        def step(_: Any, centres: Any) -> Any:
            owners = jnp.argmin(jnp.sum(centres * centres, 1) - 2 * points @ centres.T, 1)
            count = jnp.zeros(len(centres), jnp.float32).at[owners].add(1)
            return jnp.zeros_like(centres).at[owners].add(points) / count[:, None]

        return lax.fori_loop(0, rounds, step, start)

    def needleman(one: Any, two: Any, gap: Any) -> Any:
        places = jnp.arange(len(two) + 1, dtype=jnp.int32)

        def step(row: Any, given: Any) -> Any:
            i, letter = given
            score = jnp.where(two == letter, jnp.int32(3), jnp.int32(-2))
            best = jnp.maximum(row[:-1] + score, row[1:] - gap)
            best = jnp.concatenate([jnp.reshape(-gap * (i + 1), 1), best])
            return lax.cummax(best + gap * places) - gap * places, None

        return lax.scan(step, -gap * places, (jnp.arange(len(one), dtype=jnp.int32), one))[0][1:]

    def heat(plate: Any, rate: Any, steps: int) -> Any:
        def step(_: Any, now: Any) -> Any:
            wide = jnp.pad(now, 1)
            return now + rate * (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * now)

        return lax.fori_loop(0, steps, step, plate)

    further = {
        "mandelbrot": prepared(mandelbrot), "histogram": prepared(histogram, 2), "kmeans": prepared(kmeans),
        "weighted_histogram": prepared(weighted, 2), "filter_above": prepared(filtered), "heat": prepared(heat),
        "segmented": prepared(segmented), "needleman": prepared(needleman), "heat_indexed": prepared(heat),
        "locvolcalib": prepared(partial(_jax_locvolcalib, jnp, lax)),
    }  # fmt: skip
    return found | further


def _jax_locvolcalib(
    jnp: Any, lax: Any, strikes: Any, x: Any, y: Any, times: Any, dxx: Any, dyy: Any, nu: Any, beta: Any
) -> Any:
    """All strikes and lines at once, the elimination a scan along the line."""

    def eliminate(a: Any, b: Any, c: Any, right: Any) -> Any:  # along the first dimension
        def down(carried: Any, row: Any) -> Any:
            c_before, r_before = carried
            ai, bi, ci, ri = row
            pivot = bi - ai * c_before
            now = (ci / pivot, (ri - ai * r_before) / pivot)
            return now, now

        def up(after: Any, row: Any) -> Any:
            now = row[1] - row[0] * after
            return now, now

        zero = jnp.zeros_like(right[0])
        a, b, c = (jnp.broadcast_to(one, right.shape) for one in (a, b, c))
        _, (cs, rs) = lax.scan(down, (zero, zero), (a, b, c, right))
        return lax.scan(up, zero, (cs, rs), reverse=True)[1]

    def second(values: Any, factors: Any) -> Any:
        wide = jnp.concatenate([values[:1], values, values[-1:]])
        return sum(part * factors[:, k, None, None] for k, part in enumerate((wide[:-2], values, wide[2:])))

    def step(number: Any, now: Any) -> Any:
        at = len(times) - 2 - number
        rate = 1 / (times[at + 1] - times[at])
        variance = 0.5 * jnp.exp(2 * (beta * jnp.log(x)[:, None, None] + y[:, None] - 0.5 * nu * nu * times[at]))
        v = (0.5 * nu * nu * second(now.swapaxes(0, 1), dyy)).swapaxes(0, 1)
        right = rate * now + 0.5 * variance * second(now, dxx) + v
        a, b, c = (-0.5 * variance * dxx[:, k, None, None] for k in range(3))
        u = eliminate(a, rate + b, c, right)
        a, b, c = (-0.25 * nu * nu * dyy[:, k, None, None] for k in range(3))
        return eliminate(a, rate + b, c, (rate * u - 0.5 * v).swapaxes(0, 1)).swapaxes(0, 1)

    start = jnp.broadcast_to(jnp.maximum(x[:, None, None] - strikes, 0), (len(x), len(y), len(strikes)))
    return lax.fori_loop(0, len(times) - 1, step, start).transpose(2, 0, 1)


def peers(package: str, threads: int) -> Peers:
    """The programs of a package, by the names of ours.

    Raises:
        ImportError: if it is not installed.
    """
    if package == "numba":
        from program_peers_numba import numba_peers

        return numba_peers(threads)
    if package == "pykeops":
        from program_peers_keops import keops_peers

        return keops_peers()
    return {"numpy": numpy_peers, "torch": partial(torch_peers, threads), "jax": jax_peers}[package]()
