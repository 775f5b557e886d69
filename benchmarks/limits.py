"""What a core of this machine can do at most: fused multiply-adds, and bytes to and from memory (of several, too).

    python benchmarks/limits.py

GFLOP/s count a fused multiply-add as two; GB/s are 1e9 bytes, of a copy those read and those written.
"""

from __future__ import annotations

from tilewright.runtime.speeds import bandwidth, multiply_add_peak


def limits(threads: int = 1) -> dict[str, float]:
    """All of them, by name: multiply-adds of one core, and bytes of so many threads together."""
    peaks = {f"{dtype} GFLOP/s": peak(dtype) for dtype in ("f32", "f64")}
    return peaks | {f"{kind} GB/s": 1e-9 * bandwidth(kind, threads) for kind in ("read", "write", "copy")}


def peak(dtype: str) -> float:
    """GFLOP/s of fused multiply-adds, now."""
    return 1e-9 * multiply_add_peak(dtype)


def roofline(gflop: float, read_bytes: float, written_bytes: float, dtype: str, known: dict[str, float]) -> float:
    """The most GFLOP/s that work of this size can reach if each array crosses the memory bus once."""
    memory = 1e-9 * (read_bytes / known["read GB/s"] + written_bytes / known["write GB/s"])
    return gflop / max(gflop / known[f"{dtype} GFLOP/s"], memory)


if __name__ == "__main__":
    for name, value in limits().items():
        print(f"{name:<12}{value:8.1f}")
