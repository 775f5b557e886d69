"""Flattening that leaves contractions to the tiling.

A nest that is a contraction has forms of its own, which flattening would destroy; so it is spared wherever it stands at
the level of the host: in the program as written, and where distribution has laid it bare. The incremental flattening
keeps it as the first of the versions of its nest, picked by a threshold `contraction_k` that is 0 until it is tuned.

The incremental flattening also leaves alone what is flat as it is written, since there is no other version of it: maps
of scalar code, scans and scatters between them have lowerings together (one pass over their rows, say).
"""

from __future__ import annotations

import itertools

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Program, Statement, Type, Variable
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import product
from tilewright.ir.traversal import host_statements, with_fresh_names
from tilewright.passes.core.found_contractions import NESTS, contractions, is_contraction
from tilewright.passes.core.fuse import fuse_further
from tilewright.passes.core.simplify import simplify
from tilewright.passes.flattening.flat_programs import is_flat, is_flat_statement
from tilewright.passes.flattening.flatten import (
    full_flattening,
    fuse_segments,
    incremental_flattening,
    number_inside,
    outer_flattening,
)
from tilewright.passes.flattening.flatten_tree import CONTRACTION
from tilewright.passes.flattening.kinds import Flattening, check_flattening
from tilewright.passes.pipelines import Pass
from tilewright.rewrite.derivation import Recording
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_nest import nest_of
from tilewright.rewrite.rules.flatten_regular import SOAC
from tilewright.rewrite.rules.flatten_versions import comparisons, threshold_names
from tilewright.rewrite.strategy import Strategy, rewritten


def flat_statements(program: Program) -> frozenset[str]:
    """What the statements of the host bind whose parallelism is all their own."""
    flat = (one for one in host_statements(program.body) if isinstance(one.expression, SOAC) and is_flat_statement(one))
    return frozenset(target.name for one in flat for target in one.targets)


# --- which places are spared ------------------------------------------------------------------------------------------


def _at_host(at: Place) -> bool:
    around = (body.statements[index].expression for body, index in at.chain[:-1])
    return all(isinstance(one, nodes.If | nodes.Loop) for one in around)


def _is_contraction_at(at: Place) -> bool:
    return isinstance(at.expression, NESTS) and _at_host(at) and is_contraction(at.statement, at.program)


def _asked_for_contraction(at: Place) -> int | None:
    """In which branch (0, 1) of the question for a contraction this place stands; None if in none."""
    for (body, index), (_, number) in zip(at.chain[:-1], at.site.path, strict=True):
        expression = body.statements[index].expression
        if isinstance(expression, nodes.If):
            asked = comparisons(body, expression.condition)
            if asked and asked[0][0].name.startswith(CONTRACTION):
                return number
    return None


def _in_stream(at: Place) -> bool:
    """A sequential stream is one kernel, in which nothing is parallel and no version can be picked."""
    return any(isinstance(body.statements[index].expression, nodes.StreamSeq) for body, index in at.chain[:-1])


def _is_spared(at: Place) -> bool:
    return _in_stream(at) or _is_contraction_at(at)


def _is_kept_version(at: Place) -> bool:
    return _in_stream(at) or (_asked_for_contraction(at) == 0 and _is_contraction_at(at))


@rule("contraction versions", nodes.Map)
def version_contraction(at: Place) -> Body | Declined:
    """c = (S |- redomap f xs ys)  =>  if Par(S) >= t then c by tiling else (S |- redomap f xs ys), if c contracts"""
    if not _is_contraction_at(at):
        return no_match("it is no contraction at the level of the host")
    if _asked_for_contraction(at) is not None:
        return no_match("it was already asked whether to tile it")
    copy = with_fresh_names(at.statement, at.names)
    targets = tuple(Variable(at.names(one.name), one.type) for one in at.statement.targets)
    taken = threshold_names(at.program.body)
    name = next(one for number in itertools.count() if (one := f"{CONTRACTION}{number}") not in taken)
    enough = Variable(at.names("enough"), Type(BOOL))
    question = Statement((enough,), nodes.Threshold(name, product(nest_of(at.statement).shape)))
    tiled, flat = Body((copy,), copy.targets), Body((Statement(targets, at.expression),), targets)
    return at.replace(question, Statement(at.statement.targets, nodes.If(enough, tiled, flat)))


# --- passes -----------------------------------------------------------------------------------------------------------


def fuse_around_contractions(program: Program, derivation: Recording | None = None) -> Program:
    """The program fused further, unless it is flat as it is, or that would leave fewer contractions."""
    if is_flat(program):
        return program
    recording = Recording(program) if derivation is not None else None
    fused = fuse_further(program, recording)
    if len(contractions(fused)) < len(contractions(program)):
        return program
    if derivation is not None and recording is not None:
        derivation.add(recording.derivation.steps, recording.derivation.refusals)
    return fused


def _strategy(program: Program, flattening: Flattening, contractions: bool) -> Strategy:
    """Flattening around contractions, if these are spared; incrementally around what is flat already too."""
    if flattening != "incremental":
        whole = full_flattening if flattening == "full" else outer_flattening
        return whole(_is_spared if contractions else _in_stream)
    flat = flat_statements(program)
    others = _is_kept_version if contractions else _in_stream

    def spared(at: Place) -> bool:
        known = any(one.name in flat for one in at.statement.targets)
        return others(at) or (known and isinstance(at.expression, SOAC))

    return incremental_flattening(spared, *((version_contraction,) if contractions else ()))


def flatten_for_host(
    program: Program, flattening: Flattening, contractions: bool = True, derivation: Recording | None = None
) -> Program:
    """The program flattened where the host can run the result; with `contractions`, these are spared.

    c = a @ b; s = map sum c  =>  c = a @ b; s = segred (i < n, j < m) (+) 0 do c[i, j]
    """
    if flattening == "incremental" and is_flat(program):
        return program
    return rewritten(program, _strategy(program, flattening, contractions), derivation)


def flattening_pipeline(flattening: Flattening, contractions: bool = True) -> tuple[Pass, ...]:
    """What follows the standard pipeline for a flattened program; `contractions` says whether these are spared.

    Raises:
        ValueError: if there is no such flattening.
    """
    check_flattening(flattening)

    def flatten(program: Program, derivation: Recording | None = None) -> Program:
        return flatten_for_host(program, flattening, contractions, derivation)

    return (
        Pass("fuse further", "every nest becomes a kernel: the fewer, the better",
             fuse_around_contractions if contractions else fuse_further),
        Pass("flatten", "kernels can only be flat", flatten),
        Pass("simplify", "reads of rows of rows become one read", simplify),
        Pass("fuse segments", "distribution leaves scalar maps before the operations that need them", fuse_segments),
        Pass("simplify", "what was read is now computed in place", simplify),
        Pass("number inside", "numbers in order need no memory where they are used", number_inside),
    )  # fmt: skip
