"""The rules, by family: a module for each group, the equation at the head of each rule."""

from __future__ import annotations

from importlib import import_module

# in the order in which their rules are tried
MODULES = tuple(
    f"{__name__}.{name}"
    for name in (
        "scalars", "views", "simplification", "maps", "hoisting", "fusion", "horizontal", "fusion_further", "concats",
        "flatten_distribute", "flatten_arrays", "flatten_segments", "flatten_versions", "flatten_fusion",
    )
)  # fmt: skip


def load() -> None:
    """Import every module of rules: that registers them."""
    for module in MODULES:
        import_module(module)
