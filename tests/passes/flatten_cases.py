"""Programs for the tests of flattening: those of the slides [S2], and random programs inside maps."""

from __future__ import annotations

from tilewright.ir.nodes import Body, Lambda, Map, Program, Statement, Variable
from tilewright.ir.parser import parse_program
from tilewright.ir.sizes import size
from tilewright.ir.traversal import FreshNames
from tilewright.ir.verifier import verify
from tilewright.passes.core.fuse import fuse_further
from tilewright.passes.core.simplify import simplify
from tilewright.passes.flattening.flatten import flatten_fully, flatten_incrementally, flatten_outer, fuse_segments
from tilewright.passes.pipelines import Pass, PassFunction, standard_pipeline


def _pipeline(name: str, why: str, run: PassFunction) -> tuple[Pass, ...]:
    return (
        *standard_pipeline,
        Pass("fuse further", "every nest becomes a kernel: the fewer, the better", fuse_further),
        Pass(name, why, run),
        Pass("simplify", "reads of rows of rows become one read", simplify),
        Pass("fuse segments", "distribution leaves scalar maps before the operations that need them", fuse_segments),
        Pass("simplify", "what was read is now computed in place", simplify),
    )


full_flattening_pipeline = _pipeline("flatten", "kernels can only be flat; every parallelism is used", flatten_fully)
outer_flattening_pipeline = _pipeline("flatten outer", "only the outermost parallelism is used", flatten_outer)
incremental_flattening_pipeline = _pipeline(
    "flatten incrementally", "how much parallelism pays is only known when the program runs", flatten_incrementally
)


def verified(text: str) -> Program:
    """A program from its text."""
    program = parse_program(text)
    verify(program)
    return program


def batched(program: Program, count: str) -> Program:
    """A program of arrays with a further outer dimension: the program for each of its `count` rows.

    Results whose sizes the program computes are left out: there is no array of them.
    """
    names = FreshNames(program, Variable(count, program.parameters[0].type))
    sizes = set(program.size_names)
    kept = [one for one in program.body.results if all(extent.names <= sizes for extent in one.type.shape)]
    kept = kept or [program.parameters[0]]
    arrays = tuple(Variable(names(one.name), one.type.array_of(count)) for one in program.parameters)
    targets = tuple(Variable(names("batch"), one.type.array_of(count)) for one in kept)
    function = Lambda(program.parameters, Body(program.body.statements, tuple(kept)))
    body = Body((Statement(targets, Map(size(count), function, arrays)),), targets)
    return Program(program.name, arrays, body)


RUNNING_EXAMPLE = """\
def example (pss: [m][m]i64, n: i64) =
  let (asss: [m][m][m]i64, bss: [m][m]i64) = map m (\\(ps: [m]i64) ->
    let (ass: [m][m]i64) = map m (\\(p: i64) ->
      let (is: [p]i64) = iota p i64
      let (cs: [p]i64) = scan p (\\(x1: i64, y1: i64) ->
        let (z1: i64) = x1 + y1
        in (z1)) (0i64) is
      let (r: i64) = reduce p (\\(x2: i64, y2: i64) ->
        let (z2: i64) = x2 + y2
        in (z2)) (0i64) cs
      let (as1: [m]i64) = map m (\\(p1: i64) ->
        let (s: i64) = p1 + r
        in (s)) ps
      in (as1)) ps
    let (bs: [m]i64) = loop (ws: [m]i64) = (ps) for i: i64 < n do
      let (ws1: [m]i64) = map m (\\(as2: [m]i64, w: i64) ->
        let (d: i64) = reduce m (\\(x3: i64, y3: i64) ->
          let (z3: i64) = x3 + y3
          in (z3)) (0i64) as2
        let (e: i64) = d + w
        let (f: i64) = 2i64 * e
        in (f)) ass ws
      in (ws1)
    in (ass, bs)) pss
  in (asss, bss)
"""
