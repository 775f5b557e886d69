"""The rules, by family: a module for each group (`FAMILIES`), the equation at the head of each rule.

flatten_nest.py and flatten_regular.py are what the rules of flattening share.
"""

from __future__ import annotations

from importlib import import_module

# in the order in which their rules are tried, with the families that they belong to
FAMILIES: dict[str, tuple[str, ...]] = {
    "scalars": ("simplification",),
    "views": ("simplification",),
    "simplification": ("simplification", "dead code"),
    "maps": ("simplification",),
    "hoisting": ("simplification",),
    "fusion": ("fusion",),
    "turned_maps": ("fusion",),
    "best_values": ("shared folds",),
    "horizontal": ("horizontal fusion",),
    "fusion_further": ("further fusion",),
    "concats": ("concatenations",),
    "divided_maps": ("nests", "nested folds"),
    "looping_folds": ("looping folds",),
    "flatten_invariant": ("flattening",),
    "flatten_distribute": ("flattening",),
    "flatten_arrays": ("flattening",),
    "flatten_segments": ("flattening",),
    "flatten_versions": ("incremental flattening",),
    "flatten_fusion": ("segment fusion", "numbering"),
    "joined_rows": ("joined rows", "rows in one pass"),
    "columns": ("computed columns",),
    "histograms": ("histogram rows",),
    "offsets": ("one pass",),
    "sweeps": ("one pass",),
}
MODULES = tuple(f"{__name__}.{name}" for name in FAMILIES)


def load(family: str | None = None) -> None:
    """Import the modules of a family of rules, or all of them: that registers them."""
    for module, families in zip(MODULES, FAMILIES.values(), strict=True):
        if family is None or family in families:
            import_module(module)
