"""Launches that are remembered by the sizes and strides, and the number of threads, that they were made for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.runtime.cpu_pool import get_num_threads

Launches: TypeAlias = Callable[[Mapping[str, int]], tuple[Launch, ...]]
MOST_KNOWN = 64
"""Of the sizes and strides that launches of a statement were made for, those met last are known."""


def remembered(names: Sequence[str], make: Launches) -> Launches:
    """`make`, asked once for the same values of these names; rounds of loops and runs that are not repeated ask often.

    LaunchDeclined is remembered too.
    """

    @functools.lru_cache(MOST_KNOWN)
    def known(_: int, values: tuple[int, ...]) -> tuple[Launch, ...] | str:
        try:
            return make(dict(zip(names, values, strict=True)))
        except LaunchDeclined as error:
            return str(error)  # not the error, which holds on to what was tried

    def launches(values: Mapping[str, int]) -> tuple[Launch, ...]:
        found = known(get_num_threads(), tuple(values[name] for name in names))
        if isinstance(found, str):
            raise LaunchDeclined(found)
        return found

    return launches
