"""Derivations: how a program came to be what it is, step by step: which rule, where, the term before and after.

A derivation can be printed, replayed on the source, and checked step by step with the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Program
from tilewright.rewrite.rule import Declined, Refusal, RewriteError, Site, body_at, replace_body, resolve, rule_named


@dataclass(frozen=True)
class Step:
    """One application of a rule: at `site` in the program `before`."""

    rule: str
    site: Site
    before: Program
    after: Program

    @property
    def before_text(self) -> str:
        """The statements that the step replaces."""
        return self._texts()[0]

    @property
    def after_text(self) -> str:
        """The statements that the step puts in their place."""
        return self._texts()[1]

    def _texts(self) -> tuple[str, str]:
        old, new = body_at(self.before, self.site.path), body_at(self.after, self.site.path)
        old_ids, new_ids = set(map(id, old.statements)), set(map(id, new.statements))
        results = old.results != new.results
        return _text(old, new_ids, results), _text(new, old_ids, results)

    def __str__(self) -> str:
        equation = rule_named(self.rule).equation
        before, after = _quoted(self.before_text), _quoted(self.after_text)
        return f"{self.rule} at {self.site}    {equation}\n{before}\n  =>\n{after}"


def _text(body: Body, unchanged: set[int], with_results: bool) -> str:
    from tilewright.ir.printer import print_atom, print_statement

    lines = [print_statement(one) for one in body.statements if id(one) not in unchanged]
    if with_results:
        lines.append(f"in ({', '.join(map(print_atom, body.results))})")
    return "\n".join(lines) if lines else "(nothing)"


def _quoted(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


@dataclass(frozen=True, repr=False)
class Derivation:
    """A source program, the steps taken from it, and what was not done and why."""

    source: Program
    steps: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def program(self) -> Program:
        """The program that the steps lead to."""
        return self.steps[-1].after if self.steps else self.source

    def __repr__(self) -> str:
        steps, refusals = len(self.steps), len(self.refusals)
        return f"<derivation of {self.source.name}: {steps} steps, {refusals} refusals; print it to see them>"

    def __str__(self) -> str:
        return self.print()

    def print(self) -> str:
        """All steps as text, with the rules' equations; `str(derivation)` is that, too."""
        lines = [f"{number}. {step}" for number, step in enumerate(self.steps, 1)]
        lines += [f"not done: {refusal}" for refusal in self.refusals]
        return "\n".join(lines) if lines else "no steps"

    def replay(self, source: Program) -> Program:
        """Apply the same rules at the same sites to `source`.

        Raises:
            RewriteError: if a site does not exist or a rule declines there, with its reason.
        """
        program = source
        for number, step in enumerate(self.steps, 1):
            place = resolve(program, step.site)
            body = rule_named(step.rule)(place)
            if isinstance(body, Declined):
                raise RewriteError(f"replay, step {number}: {step.rule} at {step.site} declines: {body.reason}")
            program = replace_body(place, body)
        return program

    def check(self, arguments_list: Sequence[Sequence[Any]]) -> None:
        """Verify the program after every step, interpret it on each list of arguments, and compare with the source's.

        Integers and booleans must agree exactly, floats within what reassociation explains (`agree`).

        Raises:
            RewriteError: naming the first step whose program is ill-formed, or that changes a result.
        """
        from tilewright.ir.interpreter import interpret
        from tilewright.ir.verifier import IRError, verify

        for number, step in enumerate(self.steps, 1):
            try:
                verify(step.after)
            except IRError as error:
                raise RewriteError(f"step {number} leads to what is no program: {error}\n{step}") from error
        for arguments in arguments_list:
            expected = interpret(self.source, arguments)
            for number, step in enumerate(self.steps, 1):
                try:
                    results = interpret(step.after, arguments)
                except Exception as error:  # of whatever kind: the source had none
                    raise RewriteError(f"after step {number}, {type(error).__name__}: {error}\n{step}") from error
                if difference := agree(expected, results):
                    raise RewriteError(f"step {number} changes the result, {difference}:\n{step}")


def agree(expected: Sequence[Any], results: Sequence[Any]) -> str | None:
    """None if two lists of results agree; otherwise where they do not."""
    if len(expected) != len(results):
        return f"{len(results)} results instead of {len(expected)}"
    for number, (want, got) in enumerate(zip(map(np.asarray, expected), map(np.asarray, results), strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            return f"result {number} is {got.shape} {got.dtype} instead of {want.shape} {want.dtype}"
        if want.dtype.kind in "biu":
            if not np.array_equal(want, got):
                return f"result {number} is {got} instead of {want}"
            continue
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-4 if want.dtype.kind == "c" else 1e-10}.get(want.dtype.itemsize, 1e-10)
        one, two = want.astype(wide), got.astype(wide)
        finite = np.abs(one[np.isfinite(one)])
        scale = float(finite.max()) if finite.size else 0.0
        if not np.allclose(one, two, rtol=tolerance, atol=tolerance * min(scale, 1e300), equal_nan=True):
            return f"result {number} is {got} instead of {want}"
    return None


class Recording:
    """What passes write the derivation of a program into: `recording.derivation` grows by their steps."""

    def __init__(self, source: Program) -> None:
        self.derivation = Derivation(source)

    def add(self, steps: tuple[Step, ...], refusals: tuple[Refusal, ...]) -> None:
        """Append steps, which must begin where the derivation ends, and refusals (each once).

        Raises:
            RewriteError: if the steps begin with another program.
        """
        if steps and steps[0].before is not self.derivation.program:
            name = self.derivation.source.name
            raise RewriteError(f"the steps begin with another program than the derivation of {name} ends with")
        old = self.derivation
        self.derivation = Derivation(old.source, old.steps + steps, tuple(dict.fromkeys((*old.refusals, *refusals))))
