"""What flattening may take apart: which parallelism is regular, and which statements of a nest belong together [S2].

A value of a nest is regular if its sizes are the same at every point: then its values at all points are one array. An
irregular value stays inside the function that makes it, together with everything that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Statement, Variable
from tilewright.ir.traversal import bodies_of, bound, mentioned
from tilewright.rewrite.names import used
from tilewright.rewrite.rules.flatten_nest import Nest

SOAC = (nodes.Map, nodes.Reduce, nodes.Scan, nodes.Redomap, nodes.Scanomap, nodes.Scatter, nodes.Hist)


def _fixed(node: object, varying: frozenset[str]) -> bool:
    """True if a node uses no name that varies."""
    return (mentioned(node) - bound(node)).isdisjoint(varying)


def is_regular(variables: Iterable[Variable], varying: frozenset[str]) -> bool:
    """True if the sizes of all variables are the same at every point."""
    return all(mentioned(one.type).isdisjoint(varying) for one in variables)


def exploitable(statement: Statement, varying: frozenset[str]) -> bool:
    """Whether a statement is regular parallelism, or a loop or an if that can be interchanged with the nest around it.

    `varying` has every name that may differ from one point of the nest to another.
    """
    if not is_regular(statement.targets, varying):
        return False
    match statement.expression:
        case nodes.Map(width=width):
            return _fixed(width, varying)
        case nodes.Reduce() | nodes.Scan() | nodes.Redomap() | nodes.Scanomap() as fold:
            return _fixed(fold.width, varying) and _fixed((fold.combine, fold.neutral), varying)
        case nodes.Scatter(destination, indices, values):
            return is_regular((destination, indices, values), varying)
        case nodes.Hist(destinations, combine, neutral, indices, values):
            return is_regular((*destinations, indices, *values), varying) and _fixed((combine, neutral), varying)
        case nodes.Loop() as loop:
            return can_interchange_loop(loop, varying)
        case nodes.If() as branch:
            return can_interchange_if(branch, varying)
    return False


def can_interchange_loop(loop: nodes.Loop, varying: frozenset[str]) -> bool:
    """Whether every point runs the loop equally often, carries regular values, and has parallelism inside."""
    if not isinstance(loop.form, nodes.ForLoop) or not _fixed(loop.form.bound, varying):
        return False
    if not is_regular(loop.parameters, varying):
        return False
    inside = varying.union(bound(loop)) - {loop.form.index.name}  # outside the nest, the index is one number for all
    return any(exploitable(one, inside) for one in loop.body.statements)


def can_interchange_if(branch: nodes.If, varying: frozenset[str]) -> bool:
    """Whether all points take the same branch, and there is parallelism in one."""
    inside = varying.union(bound(branch))
    both = branch.then.statements + branch.otherwise.statements
    return _fixed(branch.condition, varying) and any(exploitable(one, inside) for one in both)


def holds_parallelism(body: Body, varying: frozenset[str]) -> bool:
    """Whether flattening can go on inside a body."""
    return any(exploitable(one, varying) for one in body.statements)


def holds_combinator(body: Body) -> bool:
    """Whether there is any combinator in a body, at any depth."""
    return any(
        isinstance(one.expression, SOAC) or any(map(holds_combinator, bodies_of(one.expression)))
        for one in body.statements
    )


# --- which statements stay together -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Statements of a nest's body that become one nest: one parallel statement (or view), or sequential ones."""

    statements: tuple[Statement, ...]
    alone: bool


def groups_of(nest: Nest) -> list[Group]:
    """The statements of a nest's body in an order in which they can be distributed, in as few groups as possible."""
    statements, varying = nest.body.statements, nest.varying
    alone = _alone(nest)
    needs = _needs(statements)
    parts = _together(statements, needs, varying)
    sequential = {part: len(part) > 1 or not alone[part[0]] for part in parts}
    groups: list[Group] = []
    done: set[int] = set()
    waiting = sorted(parts)
    while waiting:
        ready = [part for part in waiting if all(needs[k] <= done.union(part) for k in part)]
        chosen = [part for part in ready if sequential[part]] or ready[:1]
        if not sequential[chosen[0]]:
            groups.append(Group((statements[chosen[0][0]],), True))
        else:
            here = tuple(statements[k] for k in sorted(k for part in chosen for k in part))
            before = groups.pop().statements if groups and not groups[-1].alone else ()
            groups.append(Group(before + here, False))
        done.update(k for part in chosen for k in part)
        waiting = [part for part in waiting if part not in chosen]
    return groups


def _alone(nest: Nest) -> list[bool]:
    """For each statement whether it becomes a nest of its own: parallelism, and views of what nests make or read."""
    varying = nest.varying
    rows = {one.name for level in nest.levels[-1:] for one in level.parameters}
    found: list[bool] = []
    for statement in nest.body.statements:
        match statement.expression:
            case nodes.Rearrange(array) | nodes.Reshape(array) | nodes.Slice(array) | nodes.Copy(array, None):
                free = mentioned(statement.expression) - {array.name}
                single = array.name in rows and free.isdisjoint(varying)
            case nodes.Concat(_, arrays):
                single = all(one.name in rows for one in arrays)
            case nodes.Replicate(count, value):
                single = isinstance(value, Variable) and value.name in rows and _fixed(count, varying)
            case _:
                single = exploitable(statement, varying)
        single = single and is_regular(statement.targets, varying)
        if single:
            rows.update(one.name for one in statement.targets)
        found.append(single)
    return found


def _needs(statements: Sequence[Statement]) -> list[frozenset[int]]:
    """For each statement the earlier ones that it uses."""
    made: dict[str, int] = {}
    needs: list[frozenset[int]] = []
    for index, statement in enumerate(statements):
        needs.append(frozenset(made[name] for name in used(statement) if name in made))
        made.update((one.name, index) for one in statement.targets)
    return needs


def _together(
    statements: Sequence[Statement], needs: Sequence[frozenset[int]], varying: frozenset[str]
) -> list[tuple[int, ...]]:
    """Sets of statements that irregular values tie together, closed so that the sets can be put in order."""
    part = {k: frozenset((k,)) for k in range(len(statements))}

    def join(one: int, other: int) -> None:
        joined = part[one] | part[other]
        part.update(dict.fromkeys(joined, joined))

    for user, need in enumerate(needs):
        for maker in need:
            tied = [one for one in statements[maker].targets if one.name in used(statements[user])]
            if not is_regular(tied, varying):
                join(maker, user)
    while circle := _circle(part, needs):
        join(*circle)
    return sorted({tuple(sorted(one)) for one in part.values()})


def _circle(part: Mapping[int, frozenset[int]], needs: Sequence[frozenset[int]]) -> tuple[int, int] | None:
    """Statements of two sets that need each other, if there are any; the statements of a set need what any needs."""
    reach = {k: set().union(*(needs[one] for one in part[k])) for k in part}
    growing = True
    while growing:
        sizes = [len(one) for one in reach.values()]
        reach = {k: known.union(*(reach[one] for one in known)) for k, known in reach.items()}
        growing = sizes != [len(one) for one in reach.values()]
    for k, known in reach.items():
        for one in sorted(known - part[k]):
            if k in reach[one]:
                return k, one
    return None
