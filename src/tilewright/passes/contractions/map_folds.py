"""Maps of folds of one array, such as sums of the columns of a matrix: where all of it is read once, in order.

Such a nest is a contraction whose second operand is not there: the map of `left[c, m, k]` ignores it. Its dimensions
are fused, ordered and read as those of a matrix times a vector (`matrix_vector_form`), whatever the nesting of maps and
folds looked like.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.machine.model import Machine
from tilewright.passes.contractions.array_folds import fold_of_one_array
from tilewright.passes.contractions.bound_contraction import check_indices
from tilewright.passes.contractions.contraction_launches import cpu_form, split_launches, write_cpu_kernel
from tilewright.passes.contractions.split_sums import split_of
from tilewright.passes.matrix_vector.form import choose_matrix_vector_form
from tilewright.passes.matrix_vector.kernel import write_matrix_vector_kernel
from tilewright.runtime.cpu_pool import get_num_threads

__all__ = ["fold_launches", "fold_of_one_array"]


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
