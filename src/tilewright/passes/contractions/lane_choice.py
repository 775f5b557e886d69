"""Whether a contraction is computed as a product in lanes: by what the models say of that and of the other forms."""

from __future__ import annotations

import dataclasses

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.contractions.relaid import cycles_of
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.lane_products.form import LaneProduct, lane_product_of
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.form import PackedForm

GAIN = 0.8
"""The model must find the product in lanes to take less than this share, since it errs."""
FAR_GAIN = 1.1
"""The same where the other form waits for the memory, and numbers are complex: tiles read and write several rows at
once there, a product in lanes whole lines in order (gates on two of 20 qubits take up to half as long on a Zen 5).
"""


@dataclass(frozen=True)
class LaneChoice:
    """A product in lanes, and what the models say of it and of the form that there is otherwise."""

    form: LaneProduct
    cycles: float
    without: float

    @property
    def reason(self) -> str:
        """Why it is chosen."""
        return f"the model says {self.cycles / 1000:.3g} thousand cycles, {self.without / 1000:.3g} in another form"


def choose_lane_product(contraction: Contraction, machine: Machine) -> LaneChoice | str:
    """The product in lanes for a contraction with known sizes on a CPU, or why it is computed in another form.

    Raises:
        LoweringError: if the contraction has no other form.
    """
    form = lane_product_of(contraction, machine)
    if isinstance(form, str):
        return form
    machine = dataclasses.replace(machine, cores=1)  # the bits of results must not depend on the number of threads
    ready = normalise(contraction)
    other = choose_form(ready, machine)
    cycles, without = form.cycles(machine), cycles_of(other, ready, machine)
    if cycles >= (FAR_GAIN if _waits(other.form, machine) else GAIN) * without:
        return f"a product in lanes would take {cycles / 1000:.3g} thousand cycles, {without / 1000:.3g} without"
    return LaneChoice(form, cycles, without)


def _waits(form: DirectForm | PackedForm | MatrixVectorForm, machine: Machine) -> bool:
    """Whether a form of complex numbers waits for the memory longer than it computes."""
    if not isinstance(form, DirectForm) or form.numbers is None:
        return False
    cost = direct_cost(form, machine)
    return cost.memory + cost.past > cost.work
