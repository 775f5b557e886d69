"""Maps of folds of one array, such as sums of the columns of a matrix: where all of it is read once, in order.

Such a nest is a contraction whose second operand is not there: the map of `left[c, m, k]` ignores it. Its dimensions
are fused, ordered and read as those of a matrix times a vector (`matrix_vector_form`), whatever the nesting of maps and
folds looked like.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.normalise import normalise
from tilewright.contraction.recognise import recognise
from tilewright.ir.nodes import Statement
from tilewright.ir.traversal import bound_variables, used_variables
from tilewright.ir.views import parameter_view
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.machine.model import Machine
from tilewright.passes.bound_contraction import check_indices
from tilewright.passes.matrix_vector.form import choose_matrix_vector_form
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel
from tilewright.passes.split_sums import split_of
from tilewright.passes.tiled.tile import cpu_form, split_launches, write_cpu_kernel
from tilewright.runtime.cpu_pool import get_num_threads
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
    launches = functools.partial(fold_launches, found, machine)
    return ContractionStep(label, target, tuple(dict.fromkeys(reads)), launches, lambda: otherwise)


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


def fold_launches(contraction: Contraction, machine: Machine, values: Mapping[str, int]) -> tuple[Launch, ...]:
    """The launches for known sizes and strides: several if there are few results, so that the folds are split.

    Raises:
        LaunchDeclined: if the array does not lie so that it can be read in order by vectors.
    """
    check_indices(contraction, values)
    machine = dataclasses.replace(machine, cores=get_num_threads())
    bound = contraction.bind(values)
    form = choose_matrix_vector_form(normalise(bound), machine)
    if isinstance(form, str):
        raise LaunchDeclined(f"the array is not read in order: {form}")
    split = split_of(bound, machine)
    if isinstance(split, str):
        return (write_matrix_vector_kernel(form, "fold"),)
    return split_launches(split, lambda one: _written(one, machine))


def _written(contraction: Contraction, machine: Machine) -> Launch:
    """The kernel of a piece: the one that reads its array in order, whose sums are trees; few rows have another."""
    form = choose_matrix_vector_form(normalise(contraction), machine)
    if isinstance(form, str):
        return write_cpu_kernel(cpu_form(contraction, machine).form)
    return write_matrix_vector_kernel(form, "fold")
