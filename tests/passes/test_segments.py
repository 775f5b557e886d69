"""Folds and scans of segments in all shapes, on the CPU and on OpenCL, against the interpreter."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples
from segment_cases import OPERATORS, histogram, in_pieces, plain, random_values, segmented, shared_out

from tilewright.passes.items.lower_columns import COLUMNS

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
WIDTHS = [0, 1, 2, 3, 15, 16, 33, 100, 257, 700]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["segred", "segscan"])
def test_segments_in_every_sharing(device: str, kind: str) -> None:
    @settings(max_examples=examples(25 if device == "cpu" else 12))
    @given(
        name=st.sampled_from(sorted(OPERATORS)),
        segments=st.sampled_from([0, 1, 2, 5, 40]),
        width=st.sampled_from(WIDTHS),
        group=st.sampled_from([1, 2, 8, 64, 256]),
        chunks=st.sampled_from([1, 1, 2, 7]),
        adjacent=st.booleans(),
        mapped=st.booleans(),
        seed=st.integers(0, 99),
    )
    def run(
        name: str, segments: int, width: int, group: int, chunks: int, adjacent: bool, mapped: bool, seed: int
    ) -> None:
        width = min(width, 4000 // max(1, segments))
        program = segmented(OPERATORS[name], kind, adjacent, mapped)
        with shared_out(1 if device == "cpu" else group, chunks):
            check(program, random_values(name, (segments, width), seed, adjacent), device)

    run()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["reduce", "scan"])
def test_one_segment_in_every_sharing(device: str, kind: str) -> None:
    @settings(max_examples=examples(25 if device == "cpu" else 12))
    @given(
        name=st.sampled_from(sorted(OPERATORS)),
        width=st.sampled_from([*WIDTHS, 3000]),
        group=st.sampled_from([1, 4, 256]),
        chunks=st.sampled_from([1, 2, 9, 40]),
        seed=st.integers(0, 99),
    )
    def run(name: str, width: int, group: int, chunks: int, seed: int) -> None:
        with shared_out(1 if device == "cpu" else group, chunks):
            check(plain(OPERATORS[name], kind), random_values(name, (width,), seed), device)

    run()


@pytest.mark.parametrize("device", DEVICES)
def test_histograms_in_every_number_of_pieces(device: str) -> None:
    @settings(max_examples=examples(30 if device == "cpu" else 12))
    @given(
        name=st.sampled_from(sorted(name for name, one in OPERATORS.items() if one.commutes)),
        segments=st.sampled_from([None, None, 0, 1, 3]),
        width=st.sampled_from(WIDTHS),
        bins=st.sampled_from([1, 2, 7, 40]),
        pieces=st.sampled_from([1, 2, 3, 20]),
        copies=st.sampled_from([1, 4]),
        group=st.sampled_from([1, 4]),
        chunks=st.sampled_from([1, 3]),
        seed=st.integers(0, 99),
    )
    def run(
        name: str, segments: int | None, width: int, bins: int, pieces: int, copies: int, group: int, chunks: int,
        seed: int,
    ) -> None:  # fmt: skip
        outer = () if segments is None else (segments,)
        at = np.random.default_rng(seed).integers(-2, bins + 2, (*outer, width))  # some of them out of range
        arrays = [at, *random_values(name, (*outer, width), seed), *random_values(name, (*outer, bins), seed + 1)]
        with shared_out(group, chunks), in_pieces(pieces, copies):
            check(histogram(OPERATORS[name], segments is not None), arrays, device)

    run()


@settings(max_examples=examples(16))
@given(
    name=st.sampled_from(["sum", "float sum", "half sum", "any", "largest and sum", "affine maps"]),
    kind=st.sampled_from(["segred", "segscan"]),
    segments=st.sampled_from([COLUMNS - 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 3]),
    width=st.sampled_from([1, 2, 5]),
    chunks=st.sampled_from([1, 2]),
    adjacent=st.booleans(),
    order=st.sampled_from("CF"),
    step=st.sampled_from([1, 2, -1]),
)
def test_neighbouring_segments_together(
    name: str, kind: str, segments: int, width: int, chunks: int, adjacent: bool, order: Literal["C", "F"], step: int
) -> None:
    arrays = random_values(name, (segments * abs(step), width), 1, adjacent)
    arrays = [np.asarray(one, order=order) for one in arrays]
    arrays = [one[:, ::step] if adjacent else one[::step] for one in arrays]
    with shared_out(1, chunks):
        check(segmented(OPERATORS[name], kind, adjacent, True), arrays)
