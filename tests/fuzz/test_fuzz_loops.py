"""Loops that carry several arrays, by chance: rounds read old arrays after new ones are made, and swap places."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from fuzz_trials import Trial, laid_out, run_trial
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import Generator, random_arguments
from random_programs.loops import LOOP_STATEMENTS
from random_programs.variety import random_variety

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Loop, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE
from tilewright.ir.traversal import sub_bodies, used_variables
from tilewright.ir.verifier import verify
from tilewright.runtime.devices import device_for

EXAMPLES = 15 if os.environ.get("HYPOTHESIS_PROFILE") != "fuzz" else 2000


def looping(seed: int) -> Trial:
    """A program of nothing but such loops, with arguments."""
    random = Random(f"loops {seed}")
    variety = random_variety(random)
    variety = replace(variety, sizes=tuple(one for one in variety.sizes if one <= 33))
    g = Generator(Random(seed), variety=variety)
    element = random.choice(variety.scalars)
    shapes = (("n",), ("n",), ("n", "n"), ("m", "n"))[: random.choice((2, 3, 4))]
    parameters = [g.b.variable("a", nodes.array(element, *shape)) for shape in shapes]
    parameters.append(g.b.variable("s", nodes.Type(I64)))
    g.size_names = {name for shape in shapes for name in shape}
    g.given = len(parameters)
    with g.inside(parameters):
        for _ in range(random.randint(1, 2)):
            random.choice(LOOP_STATEMENTS)(g)
        made = [one for one in g.scopes[-1] if one not in parameters]
        program = g.b.program("loops", parameters, made or parameters)
    verify(program)
    given_, further = (random_arguments(program, seed + one, variety) for one in (0, 1))
    return Trial(
        seed, program, tuple(laid_out(one, random) for one in given_),
        threads=random.choice((1, 2)), small_grains=random.random() < 0.5, flattenings=(None, "incremental"),
        quick=random.random() < 0.9, further=tuple(laid_out(one, random) for one in further),
    )  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32 - 1))
def test_loops_of_several_arrays(seed: int) -> None:
    failure = run_trial(looping(seed), device_for("cpu"))
    assert failure is None, str(failure)


def loops_in(body: Body, around: tuple[object, ...] = ()) -> Iterator[tuple[Loop, tuple[object, ...]]]:
    """All loops, with the expressions around each."""
    for statement in body.statements:
        if isinstance(statement.expression, Loop):
            yield statement.expression, around
        for inner in sub_bodies(statement.expression):
            yield from loops_in(inner, (*around, statement.expression))


def kinds_of(loop: Loop) -> set[str]:
    """What a round does that goes wrong easily."""
    found = set()
    arrays = [one for one in loop.parameters if one.type.rank]
    if len(arrays) > 1:
        found.add("several arrays")
    results = [one.name if isinstance(one, Variable) else one for one in loop.body.results]
    if any(one.name in results and results.index(one.name) != place for place, one in enumerate(loop.parameters)):
        found.add("an array is carried on at another place")
    if len(set(results)) < len(results):
        found.add("two places have the same array")
    made = set[str]()
    for statement in loop.body.statements:
        read = {one.name for one in used_variables(statement.expression)}
        if made and read & {one.name for one in arrays}:
            found.add("an old array is read after a new one is made")
        made |= {one.name for one in statement.targets if one.type.rank and one.name in results}
        if isinstance(statement.expression, nodes.Update | nodes.Scatter):
            found.add("elements are replaced")
    if any(one.type.rank == 0 for one in loop.parameters):
        found.add("a scalar goes along")
    return found


def test_they_are_of_all_kinds() -> None:
    """What conjugate gradients are made of, in programs, in points, and in single points."""
    found: Counter[str] = Counter()
    for seed in range(120):
        for loop, around in loops_in(looping(seed).program.body):
            kinds = kinds_of(loop)
            maps = [one for one in around if isinstance(one, nodes.Map)]
            place = "alone" if not maps else "in one point" if maps[-1].width == ONE else "in points"
            found.update({*kinds, place, f"{place}, everything"} if len(kinds) >= 5 else {*kinds, place})
    wanted = {"several arrays", "an array is carried on at another place", "two places have the same array",
              "an old array is read after a new one is made", "elements are replaced", "a scalar goes along",
              "alone", "in points", "in one point", "alone, everything", "in points, everything"}  # fmt: skip
    assert {one for one in wanted if found[one] >= 3} == wanted, found
