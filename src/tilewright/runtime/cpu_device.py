"""Compiling kernels for the CPU through the caches."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kernel.decided import Answers, Questions, as_decided, questions_of
from tilewright.kernel.ir import Declare, For, Kernel, Let, Statement, VectorType, While
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.traversal import bodies, walk
from tilewright.runtime.cache import IdentityCache, MemoryCache, default_disk_cache, package_version
from tilewright.runtime.collecting import collection_later
from tilewright.runtime.cpu_jit import MANY_LOOPS, Optimisation, compile_text, host_cpu, load_object, text_key
from tilewright.runtime.host import ERRORS_BUFFER
from tilewright.runtime.native_image import NativeKernel

_KERNELS: MemoryCache[str, NativeKernel] = MemoryCache(capacity=1024)
DEEP = 10
"""Loops in each other from which on LLVM may not take tests out of them."""
LARGE = 64
"""Loops altogether from which on LLVM may not unroll any either."""
_SAME: IdentityCache[Kernel, NativeKernel] = IdentityCache()
_ASKED: IdentityCache[Kernel, tuple[Questions, dict[Answers, Kernel]]] = IdentityCache()
MOST_VERSIONS = 4
"""Of a kernel with branches left out; where launches need more, there is one for all of them."""


def taken_by(kernel: Kernel, scalars: Mapping[str, int]) -> Kernel:
    """The kernel without the large branches that a launch with these scalars does not take.

    Each version is compiled when a launch first takes it, and is the same object for all that take it.
    """
    questions, versions = _ASKED.get_or_build(kernel, lambda kernel: (questions_of(kernel), {}))
    answers = questions.answers(scalars)
    if not answers or (answers not in versions and len(versions) >= MOST_VERSIONS):
        return kernel
    return versions.get(answers) or versions.setdefault(answers, as_decided(kernel, answers))


def compile_for_cpu(kernel: Kernel) -> NativeKernel:
    """The kernel as machine code in this process: compiled once, and taken from the disk in later processes.

    A kernel with vectors of its own gets the short pipeline; other ones, and those with `scalar_loops`, get LLVM's
    vectorisers.
    """
    return _SAME.get_or_build(kernel, _compile)


def _compile(kernel: Kernel) -> NativeKernel:
    optimisation = optimisation_of(kernel)
    with collection_later():
        text = llvm_text(kernel, host_cpu())
    key = text_key(text, optimisation)

    def build() -> NativeKernel:
        disk = default_disk_cache()
        parts = ("cpu", package_version(), key)
        code = disk.get(parts)
        if code is None:
            code = compile_text(text, optimisation)
            disk.put(parts, code)
        return load_object(code, kernel.name, kernel.workspace_bytes)

    return _KERNELS.get_or_build(f"{key} {kernel.name} {kernel.workspace_bytes}", build)


def optimisation_of(kernel: Kernel) -> Optimisation:
    """How much LLVM makes of a kernel."""
    if has_vectors(kernel) and not kernel.scalar_loops:
        return "none"
    loops = sum(isinstance(one, For | While) for one in walk(kernel.body))
    if loops >= LARGE:
        return "large"
    if loop_depth(kernel.body) >= DEEP:
        return "deep"
    checks = any(one.name == ERRORS_BUFFER for one in kernel.buffers)
    return "checked" if checks and loops < MANY_LOOPS else "full"


def loop_depth(body: tuple[Statement, ...]) -> int:
    """How many loops there are in each other at the most.

    Example:
        >>> from tilewright.kernel.ir import For, integer
        >>> loop_depth((For("i", integer(0), integer(4), ()),))
        1
    """
    inside = ((isinstance(one, For | While), inner) for one in body for inner in bodies(one))
    return max((is_loop + loop_depth(inner) for is_loop, inner in inside), default=0)


def has_vectors(kernel: Kernel) -> bool:
    """Whether the kernel's own code computes on vectors."""
    return any(isinstance(one, Let | Declare) and isinstance(one.value.type, VectorType) for one in walk(kernel.body))
