"""A derivation as a page for a browser: each step's rule, equation, and statements before and after, side by side.

The page is one file that needs nothing else. It can be read and searched without scripts; with them it also shows the
whole program after each step, filters steps, and goes from step to step by the keys j and k.

>>> from tilewright.ir.parser import parse_program
>>> from tilewright.passes.pipelines import run_pipeline
>>> from tilewright.rewrite.derivation import Recording
>>> program = parse_program('''def twice (x: [n]f32) =
...   let (y: [n]f32) = rearrange (0) x
...   in (y)''')
>>> recording = Recording(program)
>>> _ = run_pipeline(program, derivation=recording)
>>> "rearrange_identity" in derivation_page(recording.derivation)
True
"""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from html import escape
from itertools import takewhile

from tilewright.ir.nodes import Body, Program
from tilewright.ir.printer import print_program, print_statement
from tilewright.rewrite.derivation import Derivation, Step
from tilewright.rewrite.rule import Refusal, rule_named


def derivation_page(derivation: Derivation) -> str:
    """A derivation as one page of HTML.

    Args:
        derivation: any; a long one (hundreds of steps of a program of a thousand lines) is a page of some megabytes.
    """
    name = escape(derivation.source.name)
    source = print_program(derivation.source)
    steps = "\n".join(_step(number, one) for number, one in enumerate(derivation.steps, 1))
    refusals = "\n".join(f"<li>{_refusal(one)}</li>" for one in derivation.refusals)
    count, rules = len(derivation.steps), len({one.rule for one in derivation.steps})
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{name}: derivation</title>
<style>{_STYLE}</style>
<h1>{name}</h1>
<p>{count} step{"s" * (count != 1)} of {rules} rule{"s" * (rules != 1)}.
<label class="scripted" hidden>Only steps with <input id="filter" type="search" placeholder="a rule, a name"></label>
<span class="scripted" hidden>Keys: j the next step, k the one before.</span></p>
<h2>The program as it was written</h2>
<pre>{escape(source)}</pre>
<h2>Steps</h2>
{steps or "<p>None.</p>"}
<h2>Not done</h2>
{f"<ul>{refusals}</ul>" if refusals else "<p>No rule has declined at a place that nearly had its shape.</p>"}
<h2>The program that the steps lead to</h2>
<pre>{escape(print_program(derivation.program))}</pre>
<script type="application/json" id="programs">{_as_data(_programs(derivation))}</script>
<script>{_SCRIPT}</script>
</html>
"""


def _refusal(refusal: Refusal) -> str:
    return f"<b>{escape(refusal.rule)}</b> at {escape(refusal.targets)}: {escape(refusal.reason)}"


def _step(number: int, step: Step) -> str:
    rule = rule_named(step.rule)
    before, after = step.before_text.splitlines(), step.after_text.splitlines()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    kept = matcher.get_matching_blocks()
    kept_before = {line for block in kept for line in range(block.a, block.a + block.size)}
    kept_after = {line for block in kept for line in range(block.b, block.b + block.size)}
    return f"""<details class="step" id="step-{number}"><summary>{number}. <b>{escape(step.rule)}</b>
<code>{escape(rule.equation)}</code></summary>
<p>{escape(rule.family)}, at statement {escape(str(step.site))}
<button class="scripted" hidden data-step="{number}">the whole program after it</button></p>
<div class="columns"><pre>{_lines(before, kept_before, "del")}</pre><pre>{_lines(after, kept_after, "ins")}</pre></div>
</details>"""


def _lines(lines: list[str], kept: set[int], tag: str) -> str:
    return "\n".join(
        escape(line) if number in kept else f"<{tag}>{escape(line)}</{tag}>" for number, line in enumerate(lines)
    )


def _programs(derivation: Derivation) -> dict[str, list[object]]:
    """The lines of the source, and of each step: where the program changes, how many lines go, which ones come."""
    known: dict[int, list[str]] = {}
    old = first = _program_lines(derivation.source, known)
    changes: list[object] = []
    for step in derivation.steps:
        new = _program_lines(step.after, known)
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        changes.append([head, len(old) - head - tail, new[head : len(new) - tail]])
        old = new
    return {"source": list(first), "changes": changes}


def _program_lines(program: Program, known: dict[int, list[str]]) -> list[str]:
    """The lines of a program's text; those of each statement are kept, since a step leaves most of them as they are."""
    head, end, _ = print_program(Program(program.name, program.parameters, Body((), program.body.results))).split("\n")
    if not program.body.statements:
        return [head, end]
    for one in program.body.statements:
        if id(one) not in known:
            known[id(one)] = f"  {print_statement(one, 1)}".split("\n")
    return [head, *(line for one in program.body.statements for line in known[id(one)]), f"  in {end.strip()}"]


def _common(one: list[str], two: list[str]) -> int:
    """How many lines two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _as_data(value: object) -> str:
    """JSON that may stand within a script element, whatever names a program has."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


_STYLE = """
:root { color-scheme: light dark; --quiet: #8883; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5em auto; max-width: 110em; padding: 0 1em; }
pre, code { font: 13px/1.4 ui-monospace, monospace; }
pre { background: var(--quiet); border-radius: 4px; margin: .4em 0; overflow: auto; padding: .6em; }
.columns { display: grid; gap: .6em; grid-template-columns: 1fr 1fr; }
.step { border-top: 1px solid var(--quiet); padding: .3em 0; }
.step[open] > summary { background: var(--quiet); }
summary { cursor: pointer; }
del { background: #e5534b44; text-decoration: none; }
ins { background: #57ab5a44; text-decoration: none; }
"""

_SCRIPT = """
"use strict";
const programs = JSON.parse(document.getElementById("programs").textContent);
const steps = [...document.querySelectorAll(".step")];
const shown = () => steps.filter((step) => !step.hidden);
for (const one of document.querySelectorAll(".scripted")) one.hidden = false;

function programAfter(number) {
  const lines = programs.source.slice();
  for (const [start, gone, come] of programs.changes.slice(0, number)) lines.splice(start, gone, ...come);
  const [start, , come] = programs.changes[number - 1];
  return [lines.slice(0, start), lines.slice(start, start + come.length), lines.slice(start + come.length)];
}

function show(button) {
  const place = document.createElement("pre");
  programAfter(Number(button.dataset.step)).forEach((lines, part) => {
    if (!lines.length) return;
    const piece = document.createElement(part === 1 ? "ins" : "span");
    piece.textContent = lines.join("\\n") + "\\n";
    place.append(piece);
  });
  button.closest(".step").append(place);
  button.remove();
}

function move(by) {
  const list = shown();
  const now = list.findLastIndex((step) => step.open);
  const next = list[Math.min(Math.max(now + by, 0), list.length - 1)];
  if (!next) return;
  for (const step of list) step.open = step === next;
  next.scrollIntoView({ block: "start" });
}

document.addEventListener("click", (event) => {
  if (event.target.dataset?.step) show(event.target);
});
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") move(1);
  if (event.key === "k") move(-1);
});
document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const step of steps) step.hidden = !step.textContent.toLowerCase().includes(wanted);
});
"""
