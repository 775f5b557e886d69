"""Kernel statements once more, under new names: every name of a kernel is bound once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.scalars import ScalarType
from tilewright.ir.traversal import fields_of
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Assign, AtomicUpdate, Declare, For, Let, Name, Statement
from tilewright.kernel.traversal import walk
from tilewright.passes.items.scalar_values import KernelBuilder


def renamed(emit: KernelBuilder, index: Name, body: Sequence[Statement]) -> tuple[Name, tuple[Statement, ...]]:
    """A loop's index and body with a new name for each that they bind.

    >>> from tilewright.ir.scalars import I64
    >>> index, (one,) = renamed(KernelBuilder(), Name("i", I64), [Let("t", kernel.add(Name("i", I64), Name("n", I64)))])
    >>> index.name, one.name, one.value.operands[0] == index, one.value.operands[1].name
    ('i_1', 't_1', True, 'n')
    """
    names = {index.name: emit.name(index.name)}
    for one in walk(tuple(body)):
        match one:
            case Let(name=name) | Declare(name=name) | AtomicUpdate(old=name) | For(index=name):
                names[name] = emit.name(name)

    def visit(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(map(visit, node))
        if isinstance(node, Name):
            return Name(names.get(node.name, node.name), node.type)
        fields = fields_of(type(node))
        if not fields or isinstance(node, kernel.Buffer | kernel.Constant | kernel.VectorType | ScalarType):
            return node
        changes = {name: visit(getattr(node, name)) for name in fields}
        if isinstance(node, Let | Declare | Assign):
            changes["name"] = names.get(node.name, node.name)
        elif isinstance(node, For):
            changes["index"] = names[node.index]
        elif isinstance(node, AtomicUpdate):
            changes["old"] = names[node.old]
        return type(node)(**changes)

    return Name(names[index.name], index.type), visit(tuple(body))
