"""What LLVM calls this computer's processor, kept on the disk: later processes need not import LLVM to know it.

That import takes longer than preparing most programs, and a program whose kernels are on the disk needs nothing else
of it. The key is the fingerprint of stored plans, which tells processors and builds of LLVM apart.
"""

from __future__ import annotations

from functools import cache

from tilewright.machine.processors import Processor, ask_llvm, host_processor, recall_host
from tilewright.runtime.cache import default_disk_cache
from tilewright.runtime.fingerprint import fingerprint


@cache
def known_processor() -> Processor:
    """`machine.processors.host_processor`, from the disk where another process has asked LLVM.

    Raises:
        ValueError: as `host_processor`.
        ImportError: if llvmlite is not installed.
    """
    print_ = fingerprint()
    if print_ is not None:
        disk, key = default_disk_cache(), ("host processor", *print_)
        stored = disk.get(key)
        told = [] if stored is None else stored.decode().split("\n")
        if len(told) != 3:
            asked = ask_llvm()
            told = [asked.triple, asked.name, asked.features]
            disk.put(key, "\n".join(told).encode())
        recall_host(Processor(*told))
    return host_processor()
