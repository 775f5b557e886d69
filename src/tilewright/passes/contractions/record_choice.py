"""Whether a contraction is computed as a product of records: by what is shuffled for it, and the form otherwise.

Shuffles bound it, at some one a cycle; what they replace was measured, on a Zen 5: other forms take least where records
fill vectors by themselves, and most where panels would be packed.
"""

from __future__ import annotations

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import normalise
from tilewright.machine.model import Machine
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.contractions.relaid import relaid_of
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.lane_products.form import LaneProduct, lane_product_of
from tilewright.passes.lane_products.records import RecordProduct, record_product_of
from tilewright.passes.matrix_vector.form import MatrixVectorForm

MOST_PACKED, MOST_STREAMED, MOST_BATCHED, MOST_LANES, MOST_DIRECT = 64.0, 12.0, 11.0, 8.0, 3.0
"""Shuffles of a record up to which it pays: instead of packed panels or no form, of rows read in order, of small
products fed directly, of products in lanes that are masked, and of one large product fed directly."""
SHORT = 4
"""Numbers of a record that are taken apart sooner than summed in lanes, though they fill vectors."""


def choose_record_product(contraction: Contraction, machine: Machine) -> RecordProduct | str:
    """The product of records for a contraction with known sizes on a CPU, or why it is computed in another form."""
    form = record_product_of(contraction, machine)
    if isinstance(form, str):
        return form
    most = _worth(form, lane_product_of(contraction, machine), machine)
    if form.shuffles > most:
        return f"{form.shuffles:.3g} shuffles of a record, where {most:.3g} would pay"
    return form


def _worth(form: RecordProduct, in_lanes: LaneProduct | str, machine: Machine) -> float:
    """How many shuffles of a record are less than what the form takes that there is otherwise."""
    contraction = normalise(form.contraction)
    if not isinstance(in_lanes, str):
        return MOST_LANES if in_lanes.held[0] != in_lanes.lanes[0] else 0.0
    if not isinstance(relaid_of(contraction, machine), str):
        return MOST_PACKED
    try:
        otherwise = choose_form(contraction, machine).form
    except LoweringError:
        return MOST_PACKED
    longest = max(one.numbers for one in form.arrays)
    if isinstance(otherwise, MatrixVectorForm):
        return MOST_STREAMED if longest <= SHORT or longest.bit_count() > 1 else 0.0
    if not isinstance(otherwise, DirectForm):
        return MOST_PACKED
    if form.along.kind is Kind.C:
        return MOST_BATCHED
    return MOST_DIRECT if contraction.of_kind(Kind.K) else 0.0
