"""Which instructions are used follows from features alone, whatever a processor calls itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.machine.paces import pace_of
from tilewright.machine.processors import (
    CPU_VARIABLE,
    LINUX_ARM,
    LINUX_X86,
    NAMED_PROCESSORS,
    Processor,
    chosen_processor,
    host_processor,
    known_by_tiles,
    named_processor,
)

V4 = named_processor("x86-64-v4").features


@pytest.mark.parametrize(
    ("triple", "name", "features", "expected"),
    [
        (LINUX_X86, "generic", "+avx512f,+avx", (64, 32)),
        (LINUX_X86, "a processor of the year 2040", V4, (64, 32)),
        # A name that promises more than the features: switched off in a virtual machine, or registers not saved.
        (LINUX_X86, "znver5", "-avx512f,-avx512vl,+avx,+avx2", (32, 16)),
        (LINUX_X86, "skylake-avx512", "+sse2,-avx,-avx512f", (16, 16)),
        ("x86_64-apple-darwin23.0.0", "haswell", "+avx", (32, 16)),
        (LINUX_ARM, "generic", "", (16, 32)),
        (LINUX_ARM, "neoverse-v2", "+neon,+sve,+sve2", (16, 32)),
        ("arm64-apple-darwin23.0.0", "apple-m4", "", (16, 32)),
    ],
)
def test_vector_registers_follow_from_features(
    triple: str, name: str, features: str, expected: tuple[int, int]
) -> None:
    assert Processor(triple, name, features).vector_registers == expected


def test_a_processor_with_tiles_is_not_called_by_the_name_of_one_without() -> None:
    """Virtual machines give numbers of others: a server's core was taken for a desktop's (LLVM's `rocketlake`)."""
    tiles = named_processor("sapphirerapids").features
    for called, features, expected in [
        ("rocketlake", tiles, "sapphirerapids"),
        ("generic", f"{tiles},+amx-fp16", "graniterapids"),
        ("emeraldrapids", tiles, "emeraldrapids"),
        ("rocketlake", named_processor("skylake-avx512").features, "rocketlake"),
        ("znver5", named_processor("znver5").features, "znver5"),
    ]:
        found = known_by_tiles(Processor(LINUX_X86, called, features))
        assert (found.name, found.features) == (expected, features)
    assert pace_of("rocketlake") not in (pace_of("sapphirerapids"), pace_of("graniterapids"))


def test_named_processors_contain_their_predecessors() -> None:
    for small, large in [("x86-64", "x86-64-v2"), ("x86-64-v2", "x86-64-v3"), ("x86-64-v3", "x86-64-v4"),
                         ("x86-64-v3", "haswell"), ("haswell", "skylake-avx512"), ("x86-64-v3", "znver2"),
                         ("znver2", "znver4"), ("znver4", "znver5"), ("x86-64-v4", "znver4"),
                         ("armv8-a", "neoverse-n1"), ("armv8-a", "apple-m1")]:  # fmt: skip
        assert named_processor(small).enabled < named_processor(large).enabled, (small, large)
    with pytest.raises(KeyError, match=r"no processor is named 'z80'; there are x86-64, x86-64-v2"):
        named_processor("z80")


def test_a_part_of_a_processor_says_of_every_feature_whether_it_is_on() -> None:
    host = Processor(LINUX_X86, "future", f"{V4},+avx1024,-sse5")
    part = chosen_processor(host, "x86-64-v3")
    assert part.name == "x86-64-v3" and part.triple == host.triple
    assert part.known == host.known
    assert part.enabled == named_processor("x86-64-v3").enabled
    assert "-avx512f" in part.features.split(",") and "-avx1024" in part.features.split(",")
    assert chosen_processor(host, "") is host


def test_a_processor_that_is_not_part_of_this_one_is_refused() -> None:
    host = Processor(LINUX_X86, "small", named_processor("x86-64-v3").features)
    with pytest.raises(ValueError, match=r"TILEWRIGHT_CPU is 'x86-64-v4', but this processor \(small\) lacks avx512bw"):
        chosen_processor(host, "x86-64-v4")
    with pytest.raises(ValueError, match=r"TILEWRIGHT_CPU is 'apple-m1', but .* lacks aes"):
        chosen_processor(host, "apple-m1")
    with pytest.raises(ValueError, match="TILEWRIGHT_CPU is 'z80', no processor known; there are x86-64"):
        chosen_processor(host, "z80")


@pytest.mark.skipif(platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="needs Linux on x86")
def test_the_features_are_those_that_the_system_enabled() -> None:
    """Linux lists vector features only if it saves their registers."""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    told = set(flags.partition(":")[2].split())
    for ours, theirs in [("avx", "avx"), ("avx2", "avx2"), ("fma", "fma"), ("f16c", "f16c"), ("avx512f", "avx512f"),
                         ("avx512vl", "avx512vl"), ("avx512bw", "avx512bw"), ("avx512dq", "avx512dq"),
                         ("avx512vbmi2", "avx512_vbmi2")]:  # fmt: skip
        assert (ours in host_processor().enabled) == (theirs in told), ours


SCRIPT = """
import numpy as np, tilewright as tw
from tilewright.machine.detect import host_machine
from tilewright.runtime.cpu_jit import host_cpu
machine, cpu = host_machine(), host_cpu()
assert machine.architecture == cpu.name and (8 * machine.vector_bytes, machine.vector_registers) == (
    cpu.vector_bits, cpu.vector_registers)
a, b = np.random.default_rng(0).uniform(-1, 1, (2, 131, 131)).astype(np.float32)
np.testing.assert_allclose(tw.einsum("ij,jk->ik", a, b), a.astype(float) @ b, atol=131 * 131 * 2**-23)
small = tw.einsum("ij,jk->ik", a[:8, :8], b[:8, :8])
np.testing.assert_allclose(small, a[:8, :8].astype(float) @ b[:8, :8], atol=64 * 2**-23)
print(cpu.name, machine.vector_bytes, len(cpu.vector_functions) > 0)
"""


@pytest.mark.parametrize("name", [one for one in NAMED_PROCESSORS if not named_processor(one).is_arm])
def test_the_environment_chooses_a_smaller_processor(name: str) -> None:
    missing = host_processor().lacks(named_processor(name))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, CPU_VARIABLE: name}, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    if missing:
        assert done.returncode != 0 and f"lacks {', '.join(missing)}" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:2] == [name, str(named_processor(name).vector_registers[0])]
