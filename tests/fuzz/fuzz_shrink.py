"""Smaller programs that fail as a given one does.

Steps, as long as any of them helps: one result instead of several; an argument that is a contiguous array; a statement
of the program replaced by a parameter with the value that the interpreter finds; a statement anywhere left out, with
its targets' uses replaced by literals or another variable of the type in scope; then what nobody uses is removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from fuzz_trials import Failure, Trial, run_trial

from tilewright.ir.interpreter import Environment, infer_sizes
from tilewright.ir.nodes import Body, Lambda, Literal, Loop, Map, Program, Statement, Variable
from tilewright.ir.traversal import sub_bodies, substitute
from tilewright.ir.verifier import IRError, verify
from tilewright.passes.core.used_names import size_names
from tilewright.runtime.devices import Device

SECONDS = 60.0
Run: TypeAlias = Callable[[Trial, Device], Failure | None]


def shrunk(failure: Failure, device: Device, seconds: float = SECONDS, run: Run = run_trial) -> Failure:
    """The failure of a smaller program, if one is found in time; `run` runs a trial, in place of the interpreter."""
    kind = _kind(failure)
    until = time.monotonic() + seconds
    best = failure

    def fails(trial: Trial) -> Failure | None:
        try:
            verify(trial.program)
        except IRError:  # what was taken out is still used: no candidate
            return None
        found = run(trial, device)
        return found if found is not None and _kind(found) == kind else None

    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for candidate in _smaller(best.trial, run is run_trial):
            if time.monotonic() > until:
                break
            found = fails(candidate)
            if found is not None:
                best, progress = found, True
                break
    return best


def _kind(failure: Failure) -> str:
    problem = failure.problem
    for start in ("the first call: ", "the second call: ", "the last call: ", "the out call: "):
        problem = problem.removeprefix(start)
    return "interpreter" if failure.way == "interpreter" else problem.split(":")[0].split(" ")[0]


def _smaller(trial: Trial, interpreted: bool) -> Iterator[Trial]:
    program = trial.program
    results = program.body.results
    if len(results) > 1:
        for one in results:
            yield _with(trial, replace(program, body=replace(program.body, results=(one,))))
    cleaned = _cleaned(program)
    if cleaned != program:
        yield _with(trial, cleaned)
    yield from _plain(trial)
    for body in _with_fewer_results(program.body):
        yield _with(trial, _cleaned(replace(program, body=body)))
    if interpreted:
        yield from _cut(trial)
    for body in _without_one(program.body):
        yield _with(trial, _cleaned(replace(program, body=body)))


def _with(trial: Trial, program: Program) -> Trial:
    """The trial of a program with some of the parameters."""
    place = {one.name: number for number, one in enumerate(trial.program.parameters)}
    arguments = tuple(trial.arguments[place[one.name]] for one in program.parameters)
    further = tuple(trial.further[place[one.name]] for one in program.parameters) if trial.further else ()
    return replace(trial, program=program, arguments=arguments, further=further)


def _plain(trial: Trial) -> Iterator[Trial]:
    """One thing fewer that is out of the common."""
    if trial.further:
        yield replace(trial, further=())
    if trial.threads > 1:
        yield replace(trial, threads=1)
    if trial.small_grains:
        yield replace(trial, small_grains=False)
    if trial.further_grains:
        yield replace(trial, further_grains=())
    for grain in trial.further_grains if len(trial.further_grains) > 1 else ():
        yield replace(trial, further_grains=tuple(one for one in trial.further_grains if one != grain))
    if not trial.contractions:
        yield replace(trial, contractions=True)
    for place, one in enumerate(trial.arguments):
        if isinstance(one, np.ndarray) and not (one.flags.c_contiguous and one.flags.writeable and one.flags.aligned):
            arguments = list(trial.arguments)
            arguments[place] = np.array(one)
            yield replace(trial, arguments=tuple(arguments))


# --- parts of programs ------------------------------------------------------------------------------------------------


def _cleaned(program: Program) -> Program:
    """Without statements and parameters that nobody uses."""
    body = _live(program.body)
    used = _names(body)
    sized = {name for one in program.parameters if one.name in used for e in one.type.shape for name in e.names} | used
    kept, seen = [], set[str]()
    for one in program.parameters:
        gives = {name for extent in one.type.shape for name in extent.names}
        if one.name in sized or (gives & (size_names(body) | sized)) - seen:
            kept.append(one)
            seen |= gives
    return replace(program, parameters=tuple(kept), body=body)


def _names(body: Body) -> set[str]:
    """Names that are used anywhere in a body."""
    found = {one.name for one in body.results if isinstance(one, Variable)} | set(size_names(body))
    for statement in body.statements:
        found |= _uses(statement)
    return found


def _uses(statement: Statement) -> set[str]:
    from tilewright.ir.traversal import used_variables

    found = {one.name for one in used_variables(statement.expression)}
    inside = Body((statement,), ())
    return found | set(size_names(inside))


def _live(body: Body) -> Body:
    """Without the statements of a body that nobody uses, outermost ones only."""
    wanted = {one.name for one in body.results if isinstance(one, Variable)}
    wanted |= {name for one in body.results for extent in one.type.shape for name in extent.names}
    kept: list[Statement] = []
    for statement in reversed(body.statements):
        if any(one.name in wanted for one in statement.targets):
            kept.insert(0, statement)
            wanted |= _uses(statement)
    return Body(tuple(kept), body.results)


def _cut(trial: Trial) -> Iterator[Trial]:
    """A statement of the program becomes parameters with its values; the later, the more is cut off."""
    program = trial.program
    sizes = infer_sizes(program, trial.arguments)
    environment = Environment({})
    with np.errstate(all="ignore"):
        for name, value in sizes.items():
            environment.values[name] = np.int64(value)
        environment.bind(program.parameters, trial.arguments)
        environment.body(program.body)
    values = dict(environment.values)
    for number in reversed(range(len(program.body.statements))):
        statement = program.body.statements[number]
        if any(not {n for e in one.type.shape for n in e.names} <= set(sizes) for one in statement.targets):
            continue
        statements = (*program.body.statements[:number], *program.body.statements[number + 1 :])
        parameters = (*program.parameters, *statement.targets)
        given = (*trial.arguments, *(_stored(values[one.name], one) for one in statement.targets))
        made = Program(program.name, parameters, Body(statements, program.body.results))
        yield _with(replace(trial, program=made, arguments=given, further=()), _cleaned(made))


def _stored(value: Any, variable: Variable) -> Any:
    return np.array(value, variable.type.element.numpy)[()]


def _without_one(body: Body) -> Iterator[Body]:
    """The body with one statement anywhere left out, or an inner body made smaller."""
    for number, statement in enumerate(body.statements):
        before, after = body.statements[:number], body.statements[number + 1 :]
        stand_ins = [_stand_in(one, before) for one in statement.targets]
        if all(one is not None for one in stand_ins):
            values: dict[str, Any] = {
                target.name: one for target, one in zip(statement.targets, stand_ins, strict=True)
            }
            rest = tuple(replace(one, expression=substitute(one.expression, values)) for one in after)
            results = tuple(values.get(one.name, one) if isinstance(one, Variable) else one for one in body.results)
            yield Body((*before, *rest), results)
        for rebuild, inner in _inner(statement):
            for one in _without_one(inner):
                yield Body((*before, rebuild(_live(one)), *after), body.results)


def _with_fewer_results(body: Body) -> Iterator[Body]:
    """Maps of the body without one of the results that nobody uses."""
    for number, statement in enumerate(body.statements):
        expression = statement.expression
        if not isinstance(expression, Map) or len(statement.targets) == 1:
            continue
        rest = Body(body.statements[number + 1 :], body.results)
        inside = expression.function.body
        for place, target in enumerate(statement.targets):
            if target.name not in _names(rest):
                kept = [one for n, one in enumerate(inside.results) if n != place]
                function = replace(expression.function, body=_live(Body(inside.statements, tuple(kept))))
                targets = tuple(one for one in statement.targets if one is not target)
                changed = replace(statement, targets=targets, expression=replace(expression, function=function))
                yield Body((*body.statements[:number], changed, *body.statements[number + 1 :]), body.results)


def _stand_in(target: Variable, before: tuple[Statement, ...]) -> Any:
    """What may stand for a target: an earlier target of the same type, or a literal."""
    for statement in reversed(before):
        for one in statement.targets:
            if one.type == target.type:
                return one
    if target.type.rank == 0:
        scalar = target.type.element
        return Literal({"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1.0 + 0.0j}[scalar.kind], scalar)
    return None


def _inner(statement: Statement) -> Iterator[tuple[Callable[[Body], Statement], Body]]:
    """The bodies of a statement, and how to put others in their place."""
    expression: Any = statement.expression
    for field in ("function", "combine"):
        one = getattr(expression, field, None)
        if isinstance(one, Lambda):
            yield _putting(statement, field, lambda body, one=one: replace(one, body=body)), one.body  # type: ignore[misc]
    for field in ("then", "otherwise", "body"):
        one = getattr(expression, field, None)
        if isinstance(one, Body) and (field != "body" or sub_bodies(expression) or isinstance(expression, Loop)):
            yield _putting(statement, field, lambda body: body), one


def _putting(statement: Statement, field: str, made: Callable[[Body], Any]) -> Callable[[Body], Statement]:
    expression: Any = statement.expression
    return lambda body: replace(statement, expression=replace(expression, **{field: made(body)}))
