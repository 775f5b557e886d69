"""Lowerings that are tried: what they have changed in a work item is undone where they turn out to be impossible."""

from __future__ import annotations

from tilewright.passes.items.item_memory import Item


class ItemState:
    """What a work item holds, so that an attempt can be undone."""

    def __init__(self, item: Item) -> None:
        self.lists = {one: list(getattr(item, one)) for one in ("scratch", "private", "checks")}
        tables = ("buffers", "buffer_names", "scalars", "destinations", "arrays")
        self.tables = {one: dict(getattr(item, one)) for one in tables}
        self.taken, self.scalar_loops = item.taken, item.scalar_loops
        self.values = dict(item.emit.values)

    def restore(self, item: Item) -> None:
        """Undo what came after."""
        for name, value in (*self.lists.items(), *self.tables.items()):
            setattr(item, name, value)
        item.taken, item.scalar_loops = self.taken, self.scalar_loops
        item.emit.values = self.values
