"""What a product of records does, as text."""

from __future__ import annotations

from tilewright.passes.lane_products.records import RecordProduct


def record_lines(form: RecordProduct) -> list[str]:
    """The lines of a product of records in an explanation."""
    names = [
        f"{name} ({one.numbers} numbers each)"
        for name, one in zip(("left", "right", "out"), form.arrays, strict=True)
        if one.lies_apart
    ]
    return [
        f"form       records: {form.lanes} of {form.count} at a time, in the lanes of vectors",
        f"           taken apart or put together in registers: {', '.join(names)}; {form.shuffles:.3g} shuffles each",
    ]
