"""How sweeps (`ir.nodes.Sweep`) run on a CPU: what is kept of a row, what is read again, and which are filters.

Where the indices number the rows that a flag picks, neither these nor prefixes are computed: the picked values of a
vector are packed and stored behind those of the vector before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Lambda, Statement, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import FreshNames, is_plain, mentioned, with_fresh_names
from tilewright.passes.core.fills import NOTHING, Fills
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.rewrite.rules.sweeps import picked_flag, without_indices


@dataclass(frozen=True)
class Scattered:
    """One array that rows are scattered into: it begins as `destination`, or filled with a scalar of that name."""

    target: Variable
    destination: Atom


@dataclass(frozen=True)
class SweepForm:
    """One pass over `width` rows.

    Attributes:
        arrays, before: what is read, and a function of a row of them: the values to be scanned, then those kept.
        combine, neutral: of the scan; there may be none.
        again, after: a function of the scan's results, the kept values, and a row of the arrays `again`: an index and a
            value for each of `scattered` (of a filter the value alone), then the values of `mapped`.
        totals: scalars that are the scan's last results; only of a filter.
        picks: of a filter the position, among the kept values, of the flag that picks rows.
    """

    width: Size
    arrays: tuple[Variable, ...]
    before: Lambda
    combine: Lambda
    neutral: tuple[Atom, ...]
    again: tuple[Variable, ...]
    after: Lambda
    scattered: tuple[Scattered, ...]
    mapped: tuple[Variable, ...]
    totals: tuple[Variable, ...] = ()
    picks: int | None = None

    @property
    def targets(self) -> tuple[Variable, ...]:
        """What it gives."""
        return (*self.totals, *(one.target for one in self.scattered), *self.mapped)


def sweep_form(targets: tuple[Variable, ...], sweep: nodes.Sweep, fills: Fills = NOTHING) -> SweepForm | None:
    """The form of a sweep that gives `targets`; None if its rows are not scalars, computed by code without loops, or if
    it is to give totals and is no filter.

    Args:
        fills: the scalars that some destinations are full of; those of filters need not be in memory.
    """
    flag = picked_flag(sweep)
    if not _is_simple(sweep) or (sweep.totals and flag is None):
        return None
    count, parameters = len(sweep.neutral), sweep.before.parameters
    results, given = sweep.before.body.results, sweep.after.parameters
    places = range(count, len(results))
    again = [k for k in places if results[k] in parameters and sweep.neutral and flag != k - count]
    kept = [k for k in places if k not in again]
    before, arrays = _used(sweep.before, sweep.arrays, (*results[:count], *(results[k] for k in kept)))
    after = sweep.after if flag is None else without_indices(sweep)
    known = {one.name: array for one, array in zip(parameters, sweep.arrays, strict=True)}
    totals = len(sweep.neutral) if sweep.totals else 0
    into, mapped = targets[totals : totals + len(sweep.destinations)], targets[totals + len(sweep.destinations) :]
    scattered = (
        Scattered(target, one if flag is None else fills.get(one.name, one))
        for target, one in zip(into, sweep.destinations, strict=True)
    )
    return SweepForm(
        sweep.width, arrays, before, sweep.combine, sweep.neutral,
        tuple(known[str(results[k])] for k in again),
        Lambda((*given[:count], *(given[k] for k in kept), *(given[k] for k in again)), after.body),
        tuple(scattered), mapped, targets[:totals], None if flag is None else kept.index(flag + count),
    )  # fmt: skip


def _is_simple(sweep: nodes.Sweep) -> bool:
    types = [one.type for one in (*sweep.arrays, *sweep.neutral, *sweep.destinations, *sweep.after.body.results)]
    if any(one.element.is_complex for one in types) or any(one.type.rank != 1 for one in sweep.arrays):
        return False
    plain = is_plain(sweep.before.body) and is_plain(sweep.after.body)
    return plain and not any(one.type.rank for one in sweep.after.body.results) and is_vectorisable([sweep.combine])


def is_filter(expression: nodes.Expression) -> bool:
    """Whether an expression is a sweep whose form is a filter."""
    return isinstance(expression, nodes.Sweep) and picked_flag(expression) is not None and _is_simple(expression)


def _used(
    function: Lambda, arrays: Sequence[Variable], results: tuple[Atom, ...]
) -> tuple[Lambda, tuple[Variable, ...]]:
    """A function with other results, without the parameters that it then does not need."""
    body = Body(function.body.statements, results)
    pairs = [pair for pair in zip(function.parameters, arrays, strict=True) if pair[0].name in mentioned(body)]
    return Lambda(tuple(one for one, _ in pairs), body), tuple(array for _, array in pairs)


def unfolded(statement: Statement, sweep: nodes.Sweep) -> tuple[Statement, ...]:
    """out, ms = sweep f op ne g dest xs
    =>  zs, ws = scanomap op ne f xs; is, vs, ms = map g zs ws; out = scatter dest is vs
    """
    names, count, width = FreshNames(statement), len(sweep.neutral), sweep.width
    targets = list(statement.targets)
    totals = tuple(targets.pop(0) for _ in range(count if sweep.totals else 0))
    into = [targets.pop(0) for _ in sweep.destinations]

    def arrays_of(atoms: Sequence[Atom], hint: str) -> tuple[Variable, ...]:
        return tuple(Variable(names(f"{statement.targets[0]}.{hint}"), one.type.array_of(width)) for one in atoms)

    scanned, others = sweep.before.body.results[:count], sweep.before.body.results[count:]
    rows = (*arrays_of(scanned, "prefix"), *arrays_of(others, "row"))
    first: nodes.Expression = nodes.Map(width, sweep.before, sweep.arrays)
    if count:
        first = nodes.Scanomap(width, sweep.combine, sweep.neutral, sweep.before, sweep.arrays)
    made = [Statement(rows, first)]
    if totals:
        combine, before = (with_fresh_names(one, names) for one in (sweep.combine, sweep.before))
        function = Lambda(before.parameters, Body(before.body.statements, before.body.results[:count]))
        made.append(Statement(totals, nodes.Redomap(width, combine, sweep.neutral, function, sweep.arrays)))
    given = arrays_of(sweep.after.body.results[: 2 * len(into)], "given")
    made.append(Statement((*given, *targets), nodes.Map(width, sweep.after, rows)))
    for number, (target, destination) in enumerate(zip(into, sweep.destinations, strict=True)):
        made.append(Statement((target,), nodes.Scatter(destination, *given[2 * number : 2 * number + 2])))
    return tuple(made)
