"""Random programs, alone and inside maps, give the interpreter's answers after every flattening, in every version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from flatten_cases import batched, full_flattening_pipeline, incremental_flattening_pipeline, outer_flattening_pipeline
from hypothesis import given
from hypothesis import strategies as st
from random_programs.generator import random_arguments, random_program

from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import (
    Alias,
    Body,
    Expression,
    Hist,
    If,
    Index,
    Iota,
    Level,
    Loop,
    Map,
    Program,
    Rearrange,
    Redomap,
    Reduce,
    Replicate,
    Reshape,
    Scan,
    Scanomap,
    SegHist,
    SegMap,
    SegRed,
    SegScan,
    Slice,
    Variable,
)
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.sizes import ZERO, Size, product
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.ir.verifier import verify
from tilewright.passes.flattening.flatten import flatten_fully, flatten_incrementally, flatten_outer
from tilewright.passes.flattening.flatten_tree import Decision, Work, decisions, version_settings
from tilewright.passes.pipelines import run_pipeline
from tilewright.rewrite.derivation import Derivation, Recording, agree
from tilewright.rewrite.rule import rules_of
from tilewright.rewrite.rules.flatten_versions import BLOCK_BYTES, BLOCK_THREADS, thresholds_of

DEPTH = 5
OPERATIONS = SegMap | SegRed | SegScan | SegHist
PIPELINES = (full_flattening_pipeline, outer_flattening_pipeline, incremental_flattening_pipeline)
SEEDS = st.integers(0, 2**32 - 1)


def nested_program(seed: int, maps: int) -> Program:
    """A random program inside this many maps; the deeper, the fewer levels of its own."""
    program = random_program(seed, depth=DEPTH - maps, statements=6 - maps)
    for number in range(maps):
        program = batched(program, f"outer{number}")
    verify(program)
    return program


def check_versions(source: Program, flat: Program, seed: int) -> None:
    """Every version of the flat program gives the source's results."""
    verify(flat)
    arguments = random_arguments(source, seed)
    expected = interpret(source, arguments)
    own = thresholds_of(source)
    for thresholds in ({}, *version_settings(flat)):
        wanted = interpret(source, arguments, thresholds) if own else expected
        difference = agree(wanted, interpret(flat, arguments, thresholds))
        assert difference is None, f"seed {seed}, thresholds {thresholds}: {difference}"


@pytest.mark.parametrize("maps", [0, 1, 2])
@given(seed=SEEDS)
def test_pipelines_keep_the_meaning(maps: int, seed: int) -> None:
    source = nested_program(seed, maps)
    for pipeline in PIPELINES:
        check_versions(source, run_pipeline(source, pipeline, verify=True), seed)


@given(seed=SEEDS)
def test_passes_alone_keep_the_meaning(seed: int) -> None:
    source = nested_program(seed, 1)
    for flatten in (flatten_fully, flatten_outer, flatten_incrementally):
        flat = flatten(source)
        assert parse_program(print_program(flat)) == flat
        check_versions(source, flat, seed)


@given(seed=SEEDS)
def test_what_is_flat_in_parts_can_be_flattened(seed: int) -> None:
    source = random_program(seed, segmented=True)
    for pipeline in PIPELINES:
        check_versions(source, run_pipeline(source, pipeline, verify=True), seed)


@pytest.mark.parametrize("seed", range(12))
def test_every_step_keeps_the_meaning_and_can_be_replayed(seed: int) -> None:
    source = nested_program(seed, 1 + seed % 2)
    for flatten in (flatten_fully, flatten_incrementally):
        recording = Recording(source)
        flat = flatten(source, recording)
        for step in recording.derivation.steps:
            verify(step.after)
        recording.derivation.check([random_arguments(source, seed)])
        assert Derivation(source, recording.derivation.steps).replay(source) == flat


def test_every_rule_fires_in_random_programs() -> None:
    fired: Counter[str] = Counter()
    for seed in range(130):
        source = nested_program(seed, 1 + seed % 2)
        recording = Recording(source)
        flatten_incrementally(source, recording)
        fired.update(step.rule for step in recording.derivation.steps)
    rules = {one.name for family in ("flattening", "incremental flattening") for one in rules_of(family)}
    assert rules <= set(fired)


def depth_of(body: Body) -> int:
    """The most combinators and loops around a statement."""
    depths = [0]
    for one in body.statements:
        depths += [1 + depth_of(inner) for inner in sub_bodies(one.expression)]
    return max(depths)


@pytest.mark.parametrize("seed", range(40))
def test_the_number_of_copies_is_bounded(seed: int) -> None:
    """A statement under d maps is copied at most 2*d + 1 times; counted for kinds that flattening does not make."""
    source = nested_program(seed, 1 + seed % 2)
    flat = flatten_incrementally(source)
    before, after = (Counter(type(one.expression).__name__ for one in all_statements(p.body)) for p in (source, flat))
    bound = 2 * depth_of(source.body) + 1
    for kind in ("Cast", "Update", "StreamSeq", "Loop"):
        assert after[kind] <= bound * before[kind]


def outside_of_operations(body: Body) -> list[Expression]:
    """Every expression that stands in no segmented operation."""
    found: list[Expression] = []
    for one in body.statements:
        found.append(one.expression)
        if not isinstance(one.expression, OPERATIONS):
            for inner in sub_bodies(one.expression):
                found += outside_of_operations(inner)
    return found


@pytest.mark.parametrize("maps", [0, 1])
def test_no_parallelism_stays_outside_of_operations(maps: int) -> None:
    kinds = Map | Reduce | Redomap | Scan | Scanomap | Hist
    for seed in range(60):
        flat = flatten_fully(nested_program(seed, maps))
        assert not [one for one in outside_of_operations(flat.body) if isinstance(one, kinds)], seed


def memory(body: Body) -> Size:
    """The bytes of the arrays that a block's body makes, without views, copies of one value, and its results."""
    views = Rearrange | Reshape | Slice | Iota | Replicate | Index | Alias
    results = {one.name for one in body.results if isinstance(one, Variable)}
    total = ZERO
    for one in body.statements:
        kept = [target for target in one.targets if target.name not in results]
        if isinstance(one.expression, Loop | If):
            kept = list(one.expression.parameters) if isinstance(one.expression, Loop) else kept
            total = sum((memory(inner) for inner in sub_bodies(one.expression)), total)
        if not isinstance(one.expression, views):
            arrays = [target.type for target in kept if target.type.rank]
            total = sum((product(type_.shape) * type_.element.bytes for type_ in arrays), total)
    return total


def block_versions(nodes: Sequence[Work | Decision]) -> Iterator[tuple[Decision, SegMap]]:
    """The decisions for blocks, each with the operation that then runs."""
    for one in nodes:
        if isinstance(one, Work):
            yield from block_versions(one.inside)
            continue
        yield from block_versions((*one.yes, *one.no))
        for work in one.yes:
            expression = work.statement.expression if isinstance(work, Work) else None
            if isinstance(expression, SegMap) and expression.level is Level.BLOCK:
                yield one, expression


@pytest.mark.parametrize("maps", [0, 1, 2])
def test_what_a_block_needs_is_bounded_by_what_is_asked(maps: int) -> None:
    """Bytes and threads, for sizes of 7: what flattening makes inside is at most what the thresholds compare."""
    found = 0
    for seed in range(30):
        source = nested_program(seed, maps)
        for flat in (flatten_incrementally(source), run_pipeline(source, incremental_flattening_pipeline)):
            for decision, block in block_versions(decisions(flat.body)):
                said = {one.name: one.parallelism for one, _ in decision.asked}
                operations = [one.expression for one in all_statements(block.body)]
                spaces = [product(one.space.shape) for one in operations if isinstance(one, OPERATIONS)]
                for name, actual in [(BLOCK_BYTES, memory(block.body)), *((BLOCK_THREADS, one) for one in spaces)]:
                    limit = said.get(name, ZERO)
                    sizes = dict.fromkeys(actual.names | limit.names, 7)
                    assert actual.evaluate(sizes) <= limit.evaluate(sizes), (seed, name, actual, limit)
                    found += 1
    assert found > 30
