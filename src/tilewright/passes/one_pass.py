"""Statements that one pass over their rows computes together, on processors that run one thread in a block."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.nodes import Body, Statement
from tilewright.passes.offset_form import Offsets, with_offsets
from tilewright.passes.sweep_form import Sweep, sweeps_of


def one_pass_forms(body: Body) -> Iterator[Statement | Sweep | Offsets]:
    """The statements of a body in an order in which they can run, some of them together."""
    found = list(with_offsets(body))
    if any(isinstance(one, Offsets) for one in found):
        yield from found
    else:
        yield from sweeps_of(body)
