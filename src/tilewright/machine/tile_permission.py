"""The system's permission for this process to use tiles (AMX), whose registers are large: it is given when asked for.

Linux enlarges what it saves of a thread only if the process has asked, by a system call, and ends a process that uses
tiles all the same. The answer holds for all threads, also of the processes that this one forks; it is no where the
system or its processor has no tiles, and where some thread has set up a stack for signals that is too small.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

# From Linux: arch/x86/include/asm/unistd_64.h, arch/x86/include/uapi/asm/prctl.h, arch/x86/include/asm/fpu/types.h.
_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILE_DATA = 18


@cache
def tiles_are_permitted() -> bool:
    """Ask the system for tiles, once; whether it allows them.

    Example:
        >>> tiles_are_permitted() in (True, False)
        True
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):  # a C library that cannot be asked
        return False
    call.restype = ctypes.c_long
    numbers = (ctypes.c_long(one) for one in (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILE_DATA))
    return bool(call(*numbers) == 0)
