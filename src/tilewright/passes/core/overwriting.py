"""Which arrays of a loop are written where they lie: no round copies what it only replaces elements of.

    loop (a) = (a0) for i < n do  b = a with [i] = x  in (b)
    loop (a) = (a0) for i < n do  b = map (\\e -> e + x) a  in (b)

An array that a loop carries has memory of its own, into which what it starts from is copied once. Where each round
gives it back with elements replaced (some of them, or each by what is made of it alone), and mentions nothing of what
it was before once the next replacement is made, all of them go into that memory: a round writes one element, where
values that never change would be copied twice. So do replacements of an array that a step of the host makes.

This is asked of statements, for the code of work items, and of the host's steps, whose order may be another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Statement, Variable
from tilewright.ir.traversal import mentioned
from tilewright.passes.core.used_names import free_variables
from tilewright.runtime import host
from tilewright.runtime.liveness import names_in

Code: TypeAlias = Body | host.Block
Line: TypeAlias = Statement | host.Step


@dataclass(frozen=True)
class _Other:
    """`fresh`: the arrays that it gives lie in memory of their own."""

    targets: tuple[Variable, ...]
    fresh: bool


@dataclass(frozen=True)
class _Replaced:
    """Arrays (by the places of the targets that they become) of which parts are replaced, by what `others` say."""

    targets: tuple[Variable, ...]
    arrays: Mapping[int, Variable]
    others: tuple[object, ...]


@dataclass(frozen=True)
class _Either:
    targets: tuple[Variable, ...]
    branches: tuple[Code, Code]


@dataclass(frozen=True)
class _Rounds:
    targets: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    initial: tuple[Atom, ...]
    body: Code
    others: tuple[object, ...]


@dataclass(frozen=True)
class _Points:
    """Each row of the arrays becomes one of the targets, by itself."""

    targets: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    arrays: tuple[Variable, ...]
    body: Body


_Kind: TypeAlias = _Other | _Replaced | _Either | _Rounds | _Points


def overwriting(loop: Line) -> dict[str, Variable]:
    """What may be written over what in a loop: for each such target the array whose memory it takes over.

    The loop's own parameters that stay in one memory through all rounds stand for themselves.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> text = '''def f (x: [n]f64) =
        ...   let (y: [n]f64) = loop (a: [n]f64) = (x) for i: i64 < n do
        ...     let (b: [n]f64) = a with [i] = 1.0f64
        ...     in (b)
        ...   in (y)'''
        >>> {name: str(array) for name, array in overwriting(parse_program(text).body.statements[0]).items()}
        {'b': 'a', 'a': 'a'}
    """
    rounds = _kind(loop)
    assert isinstance(rounds, _Rounds)
    found: dict[str, Variable] = {}
    for position, parameter in enumerate(rounds.parameters):
        if parameter.type.rank:
            found |= _through(rounds, position) or {}
    return found


def taken_over(statement: Statement, counted: Collection[str]) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Which targets of a choice or loop could take over the memory of an array from outside, if nothing else used it.

    Args:
        statement: a choice or loop.
        counted: arrays that do not lie in memory.

    Returns:
        These targets with the arrays, and all that is written over something in the statement then.
    """
    over: dict[str, Variable] = {}
    inside: dict[str, Variable] = {}
    for one in free_variables(statement.expression):
        is_memory = one.type.rank and one.name not in counted
        after = _replacement(_kind(statement), one, {one.name}, ()) if is_memory else None
        if after is not None:
            over[after[0].name] = one
            inside |= after[1]
    return over, inside


def _through(rounds: _Rounds, position: int) -> dict[str, Variable] | None:
    """What is written over a carried array; None if a round gives back something else."""
    parameter = rounds.parameters[position]
    followed = _followed(rounds.body, parameter, {parameter.name}, position)
    return {**followed[1], parameter.name: parameter} if followed is not None and followed[0] == position else None


def _followed(
    code: Code, start: Variable, names: AbstractSet[str], place: int | None = None
) -> tuple[int, dict[str, Variable]] | None:
    """At which place the code gives an array, perhaps with parts replaced, and what is written over what on the way.

    Args:
        code: a body or block.
        start: the array.
        names: its name and those of views of it.
        place: where it shall be given.

    Returns:
        None if a former state of the array is mentioned after it was replaced, or it is not just one of the results.
    """
    wanted = code.results if place is None else code.results[place : place + 1]
    walked = _walked(code.statements if isinstance(code, Body) else code.steps, start, names, wanted)
    if walked is None:
        return None
    current, names, former, taken = walked
    at = _places(current, code.results)
    others = tuple(one for n, one in enumerate(code.results) if n not in at)
    return (at[0], taken) if len(at) == 1 and _mentions(others).isdisjoint(former | names) else None


def _walked(
    lines: Sequence[Line], start: Variable, names: AbstractSet[str], wanted: Collection[Atom], loops: bool = True
) -> tuple[Variable, set[str], set[str], dict[str, Variable]] | None:
    """What an array is after some lines: the array in its memory, its names, its former names, and what is written over
    what on the way. None if a former state is mentioned after it was replaced. Without `loops` these replace nothing.
    """
    current, names, former = start, set(names), set[str]()
    taken: dict[str, Variable] = {}
    for line in lines:
        named = _mentions(line)
        if not named.isdisjoint(former):
            return None
        if named.isdisjoint(names):
            continue
        kind = _kind(line)
        replaces = loops or not isinstance(kind, _Rounds)
        after = _replacement(kind, current, names, wanted) if replaces else None
        if after is not None:
            former |= names
            current, names = after[0], {after[0].name}
            taken |= after[1]
        elif not isinstance(kind, _Points) and not (isinstance(kind, _Other) and kind.fresh):
            names |= {one.name for one in kind.targets if one.type.rank or _is_seen_in_memory(line)}
    return current, names, former, taken


def _is_seen_in_memory(line: Line) -> bool:
    """Whether a scalar that is picked out of an array stays where it lies, until a later step reads it there."""
    return not isinstance(line, Statement | host.ScalarStep)


def _replacement(
    kind: _Kind, current: Variable, names: AbstractSet[str], wanted: Collection[Atom]
) -> tuple[Variable, dict[str, Variable]] | None:
    """The array that takes over the memory of `current`, and all that is written over it; None if none does. Of several
    that could, one of those `wanted`.
    """
    match kind:
        case _Points(targets, parameters, arrays, body):
            at = _places(current, arrays)
            beside = tuple(one for one in arrays if one.name != current.name)
            if len(at) != 1 or not names.isdisjoint(_mentions((beside, body))):
                return None
            row = parameters[at[0]]
            followed = _followed(body, row, {row.name}) if row.type.rank else None
            if row.type.rank and followed is None:
                return None
            able = targets if followed is None else (targets[followed[0]],)
            able = tuple(one for one in able if one.type == current.type)
            able = tuple(one for one in able if one in wanted) or able
            inside = {} if followed is None else followed[1]
            return (able[0], {**inside, able[0].name: current}) if able else None
        case _Replaced(targets, arrays, others):
            places = [place for place, one in arrays.items() if one.name == current.name]
            beside = tuple(one for one in arrays.values() if one.name != current.name)
            if len(places) == 1 and names.isdisjoint(_mentions((others, beside))):
                return targets[places[0]], {targets[places[0]].name: current}
        case _Either(targets, branches):
            first, second = (_followed(one, current, names) for one in branches)
            if first is not None and second is not None and first[0] == second[0] and (first[1] or second[1]):
                target = targets[first[0]]
                return target, {**first[1], **second[1], target.name: current}
        case _Rounds(targets, _, initial, body, others):
            at = _places(current, initial)
            rest = tuple(one for n, one in enumerate(initial) if n not in at)
            if len(at) == 1 and names.isdisjoint(_mentions((rest, body, others))):
                taken = _through(kind, at[0])
                return None if taken is None else (targets[at[0]], {**taken, targets[at[0]].name: current})
    return None


def _places(array: Variable, atoms: tuple[Atom, ...]) -> list[int]:
    return [n for n, one in enumerate(atoms) if isinstance(one, Variable) and one.name == array.name]


def _mentions(node: object) -> AbstractSet[str]:
    """As `names_in`; of statements that is remembered, as they are asked about for each array."""
    if not isinstance(node, Statement):
        return set(names_in(node))
    names = mentioned(node)
    return names.union(name.rpartition(".")[0] for name in names if "." in name)


def _kind(line: Line) -> _Kind:
    return _kind_of_statement(line) if isinstance(line, Statement) else _kind_of_step(line)


def _kind_of_statement(statement: Statement) -> _Kind:
    targets = statement.targets
    match statement.expression:
        case nodes.Update(array, indices, value):
            return _Replaced(targets, {0: array}, (indices, value))
        case nodes.Scatter(destination, indices, values):
            return _Replaced(targets, {0: destination}, (indices, values))
        case nodes.If(_, then, otherwise):
            return _Either(targets, (then, otherwise))
        case nodes.Loop(parameters, initial, form, body):
            return _Rounds(targets, parameters, initial, body, (form,))
        case nodes.Map(_, function, arrays):
            return _Points(targets, function.parameters, arrays, function.body)
        case nodes.Scan() | nodes.Concat() | nodes.Iota() | nodes.Hist():
            return _Other(targets, fresh=True)
    return _Other(targets, fresh=False)


def _kind_of_step(step: host.Step) -> _Kind:
    match step:
        case host.UpdateStep(target, array, _, value):
            # Indices, and a value that is a scalar, are read before anything is written.
            return _Replaced((target,), {0: array}, (value,) if value.type.rank else ())
        case host.KernelStep(targets=targets, copied=copied, reads=reads) if copied:
            return _Replaced(targets, dict(copied), reads)
        case host.IfStep(_, targets, host.Block() as then, host.Block() as otherwise):
            return _Either(targets, (then, otherwise))
        case host.LoopStep(targets, parameters, initial, body):
            return _Rounds(targets, parameters, initial, body, (step.bound, step.condition))
        case host.KernelStep(targets=targets) | host.SegmentStep(targets=targets):
            return _Other(targets, fresh=True)
        case host.ContractionStep(target=target) | host.ConcatStep(target=target):
            return _Other((target,), fresh=True)
        case host.ViewStep(target=target) | host.ThresholdStep(target=target):
            return _Other((target,), fresh=False)
        case host.GuardedStep(then=then, otherwise=otherwise):
            inside = (_kind(one).targets for block in (then, otherwise) for one in block.steps)
            return _Other(tuple(target for targets in inside for target in targets), fresh=False)
    return _Other(step.targets, fresh=False)


# --- the host's steps -------------------------------------------------------------------------------------------------


def with_overwriting(block: host.Block, known: Mapping[str, Variable] | None = None) -> host.Block:
    """The block with steps that write over what they replace: arrays that its loops carry, and those that it makes
    itself and needs no more. `known` is what is found around it.
    """
    known = {**(known or {}), **_made_inside(block)}
    return host.Block(tuple(_overwriting_step(one, known) for one in block.steps), block.results)


def _made_inside(block: host.Block) -> dict[str, Variable]:
    """What may be written over an array that a step of a block makes, as nothing else mentions what it was.

    t = replicate n 0; y = scatter t at xs  =>  y lies where t does

    Loops have memory of their own for what they carry.
    """
    found: dict[str, Variable] = {}
    for number, step in enumerate(block.steps):
        kind = _kind(step)
        for one in kind.targets if isinstance(kind, _Other) and kind.fresh else ():
            after = block.steps[number + 1 :]
            walked = _walked(after, one, {one.name}, block.results, loops=False) if one.type.rank else None
            if walked is not None and _mentions(block.results).isdisjoint(walked[2]):
                found |= walked[3]
    return found


def _overwriting_step(step: host.Step, known: Mapping[str, Variable]) -> host.Step:
    match step:
        case host.UpdateStep(target=target) if target.name in known:
            return replace(step, in_place=True)
        case host.KernelStep():
            return _overwriting_kernel(step, known)
        case host.IfStep(then=then, otherwise=otherwise):
            return replace(step, then=_overwriting_branch(then, known), otherwise=_overwriting_branch(otherwise, known))
        case host.GuardedStep(then=then, otherwise=otherwise):
            return replace(step, then=with_overwriting(then, known), otherwise=with_overwriting(otherwise, known))
        case host.RowsStep(body=body):
            return replace(step, body=with_overwriting(body))
        case host.LoopStep(targets, parameters, _, body):
            inside = {**known, **overwriting(step)}
            own = tuple(
                n
                for n, (parameter, target) in enumerate(zip(parameters, targets, strict=True))
                if parameter.name in inside and target.name not in known
            )
            whole = None if step.whole is None else _overwriting_kernel(step.whole, known)
            return replace(step, body=with_overwriting(body, inside), own=own, whole=whole)
    return step


def _overwriting_branch(branch: host.Block | host.Later, known: Mapping[str, Variable]) -> host.Block | host.Later:
    """A branch that is lowered later replaces nothing of what is known around it; it may have loops of its own."""
    if isinstance(branch, host.Block):
        return with_overwriting(branch, known)
    return host.Later(branch.results, branch.names, lambda: (with_overwriting(branch.made[0], known), branch.made[1]))


def _overwriting_kernel(step: host.KernelStep, known: Mapping[str, Variable]) -> host.KernelStep:
    places = (place for place, one in step.copied if known.get(step.targets[place].name) == one)
    return replace(step, in_place=tuple(places))
