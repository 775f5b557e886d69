"""Our threads under the control of threadpoolctl, if the user wants that.

    import threadpoolctl, tilewright as tw
    tw.register_with_threadpoolctl()
    with threadpoolctl.threadpool_limits(1):
        ...                                   # launches of this thread take one thread

threadpoolctl finds libraries by the files that a process has loaded, and our code has none: it is compiled in memory.
So our controller goes with a file without which nothing of ours runs, NumPy's core; `threadpool_info` shows its path.
"""

from __future__ import annotations

import functools

from tilewright.runtime import thread_count
from tilewright.runtime.cache import package_version

_FILE = "_multiarray_umath"


@functools.cache
def register_with_threadpoolctl() -> None:
    """Let threadpoolctl see and limit our threads, as user_api "tilewright"; further calls change nothing.

    A limit holds for launches of the thread that sets it, like `num_threads`.

    Raises:
        ImportError: if threadpoolctl (3.2 or later) is not installed.

    Example:
        >>> register_with_threadpoolctl()
        >>> import threadpoolctl
        >>> with threadpoolctl.threadpool_limits(1, user_api="tilewright"):
        ...     thread_count.get_num_threads()
        1
    """
    import threadpoolctl

    class TilewrightController(threadpoolctl.LibController):  # type: ignore[misc]  # its base has no types
        """What threadpoolctl asks for."""

        user_api = internal_api = "tilewright"
        filename_prefixes = (_FILE,)

        def get_num_threads(self) -> int:
            return thread_count.get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            thread_count.limit_this_thread(num_threads)

        def get_version(self) -> str:
            return package_version()

    threadpoolctl.register(TilewrightController)
