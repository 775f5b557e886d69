"""Which statements are maps of folds of one array; their kernels (`map_folds`) are imported when there is one."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.recognise import recognise
from tilewright.ir.nodes import Statement
from tilewright.ir.traversal import bound_variables, used_variables
from tilewright.ir.views import parameter_view
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.contractions.remembered import remembered
from tilewright.runtime.host import ContractionStep, Step


def with_streams(label: str, statement: Statement, otherwise: Step, machine: Machine) -> Step:
    """The step of a map: its folds by a kernel that reads their array in order, if it is a map of folds of one array on
    a CPU; `otherwise` where sizes or strides do not suit that.
    """
    found = None if machine.is_gpu_like else fold_of_one_array(statement)
    if found is None:
        return otherwise
    bound = {one.name for one in bound_variables(statement.expression)}
    reads = tuple(one for one in used_variables(statement.expression) if one.name not in bound)
    (target,) = statement.targets
    names = tuple(sorted(found.size_names))
    launches = remembered(names, functools.partial(_launches, found, machine))
    return ContractionStep(label, target, tuple(dict.fromkeys(reads)), launches, lambda: otherwise, names)


def fold_of_one_array(statement: Statement) -> Contraction | None:
    """The contraction without a second operand that a statement is, if it is one."""
    if len(statement.targets) != 1:
        return None
    bound = {one.name for one in bound_variables(statement.expression)}
    used = [one for one in used_variables(statement.expression) if one.type.rank and one.name not in bound]
    views = {one.name: parameter_view(one) for one in used}
    out = {target.name: parameter_view(target) for target in statement.targets}
    found = recognise(statement, views, out, alone=True)
    return None if isinstance(found, Refusal) else found


def _launches(contraction: Contraction, machine: Machine, values: Mapping[str, int]) -> tuple[Launch, ...]:
    from tilewright.passes.contractions.map_folds import fold_launches

    return fold_launches(contraction, machine, values)
