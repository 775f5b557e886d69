"""The bracket notation of contraction trees: parser, printer, and the sizes of indices.

    root     = operands "->" indices suffix?        suffix  = "r" (a ReLU of every element)
    operands = operand ("," operand)?               indices = "[" (index ("," index)*)? "]"
    operand  = indices | "[" root "]"               index   = a number or a name

A node of two operands contracts them: indices that are in neither its output nor anywhere outside are summed over. A
node of one operand permutes it, sums over the indices that its output lacks, or both.

>>> tree = parse_tree("[[0,1],[2,0]->[2,1]],[1,3]->[2,3]")
>>> tree.labels, [str(one) for one in tree.operands]
((2, 3), ['[0,1],[2,0]->[2,1]', '[1,3]'])
>>> str(parse_tree("[ [i,k], [k,j] -> [i,j]r ] -> [j,i]"))
'[[i,k],[k,j]->[i,j]r]->[j,i]'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tilewright.frontend.deep_trees import Walk, answer
from tilewright.ir.dataclass import dataclass
from tilewright.runtime.messages import value_text

Label: TypeAlias = int | str
ACTIVATIONS = {"r": "relu"}
"""What may stand after a node's output, and what it means."""

_TOKEN = re.compile(r"\s*(?:(->)|([\[\],])|([0-9]+)|([^\W\d]\w*))")
_MOST_OPERANDS = 2


class TreeError(ValueError):
    """A tree that is not written or not meant right; the message shows the place in the text."""


@dataclass(frozen=True)
class Leaf:
    """An input array, by its indices in the order of its dimensions. `position` is where it stands in the text."""

    labels: tuple[Label, ...]
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return _indices(self.labels)


@dataclass(frozen=True)
class Node:
    """A contraction of two operands, or a permutation or reduction of one.

    Attributes:
        operands: one or two trees.
        labels: the indices of the result, in order.
        activation: the name of what is applied to every element of the result ("relu"), or None.
        position: where the node's operands begin in the text.
    """

    operands: tuple[Tree, ...]
    labels: tuple[Label, ...]
    activation: str | None = None
    position: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return answer(_text(self))

    def __eq__(self, other: object) -> bool:
        return _parts(self) == _parts(other) if isinstance(other, Node) else NotImplemented

    def __hash__(self) -> int:
        return hash(_parts(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a list of its parts, in which no object lies deep."""
        parts = [
            one if isinstance(one, Leaf) else (len(one.operands), one.labels, one.activation, one.position)
            for one in _in_order(self)
        ]
        return _of_parts, (parts,)


Tree: TypeAlias = Leaf | Node


def _text(node: Node) -> Walk[str]:
    inner: list[str] = []
    for one in node.operands:
        inner.append(str(one) if isinstance(one, Leaf) else f"[{(yield _text(one))}]")
    suffix = next((letter for letter, name in ACTIVATIONS.items() if name == node.activation), "")
    return f"{','.join(inner)}->{_indices(node.labels)}{suffix}"


def _in_order(tree: Tree) -> list[Tree]:
    """The parts of a tree from left to right, each node after its operands."""
    found: list[Tree] = []
    ahead: list[Tree] = [tree]
    while ahead:
        one = ahead.pop()
        found.append(one)
        if isinstance(one, Node):
            ahead += one.operands
    return found[::-1]


def _parts(node: Node) -> tuple[tuple[Any, ...], ...]:
    """All that trees are compared by; the number of operands tells a node from a leaf, and which are its own."""
    return tuple(
        (one.labels,) if isinstance(one, Leaf) else (one.labels, one.activation, len(one.operands))
        for one in _in_order(node)
    )


def _of_parts(parts: Sequence[Any]) -> Tree:
    """The tree that was pickled as these parts."""
    built: list[Tree] = []
    for one in parts:
        if isinstance(one, Leaf):
            built.append(one)
        else:
            count, labels, activation, position = one
            first = len(built) - count
            built[first:] = [Node(tuple(built[first:]), labels, activation, position)]
    (root,) = built
    return root


def _indices(labels: Sequence[Label]) -> str:
    return "[" + ",".join(map(str, labels)) + "]"


@lru_cache(maxsize=1024)
def parse_tree(text: str) -> Node:
    """The tree that a text in bracket notation stands for.

    Raises:
        TreeError: saying what is wrong and where.
    """
    if not isinstance(text, str):
        raise TypeError(f"a tree is a string or a Node, not {value_text(text)}")
    parser = _Parser(text)
    root = answer(parser.node())
    parser.expect("", "the end of the text")
    check_tree(root, text)
    return root


class _Parser:
    """One pass over the tokens, with one token of foresight."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.place = 0

    @property
    def token(self) -> str:
        return self.tokens[self.place][0]

    @property
    def position(self) -> int:
        return self.tokens[self.place][1]

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1][0]

    def expect(self, wanted: str, what: str) -> None:
        if self.token != wanted:
            found = f"found {self.token!r}" if self.token else "the text ends"
            raise _error(self.text, self.position, f"expected {what}, but {found}")
        self.take()

    def node(self) -> Walk[Node]:
        position = self.position
        operands: list[Tree] = [(yield self.operand())]
        while self.token == ",":
            self.take()
            operands.append((yield self.operand()))
        if len(operands) > _MOST_OPERANDS:
            raise _error(self.text, position, f"a node has one or two operands, this one has {len(operands)}")
        self.expect("->", "',' or '->' and the node's indices")
        labels = self.indices()
        activation = None
        if self.token and (self.token[0].isalpha() or self.token[0] == "_"):
            if self.token not in ACTIVATIONS:
                known = ", ".join(f"{letter!r} ({name})" for letter, name in ACTIVATIONS.items())
                raise _error(self.text, self.position, f"unknown suffix {self.token!r}; there is {known}")
            activation = ACTIVATIONS[self.take()]
        return Node(tuple(operands), labels, activation, position)

    def operand(self) -> Walk[Tree]:
        position = self.position
        if self.token == "[" and self.tokens[self.place + 1][0] != "[":
            return Leaf(self.indices(), position)
        self.expect("[", "'[' and an operand")
        inner: Node = yield self.node()
        self.expect("]", "']' after an inner node")
        return inner

    def indices(self) -> tuple[Label, ...]:
        self.expect("[", "'[' and indices")
        labels: list[Label] = []
        while self.token != "]":
            if labels:
                self.expect(",", "',' or ']' in a list of indices")
            if not self.token or not (self.token[0].isalnum() or self.token[0] == "_"):
                raise _error(self.text, self.position, "expected an index (a number or a name)")
            labels.append(int(self.token) if self.token.isdecimal() else self.token)
            self.take()
        self.take()
        return tuple(labels)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            place += len(text[place:]) - len(text[place:].lstrip())
            raise _error(text, place, f"unexpected character {text[place]!r}")
        token = found[found.lastindex or 0]
        yield token, found.end() - len(token)
        place = found.end()
    yield "", len(text)


def _error(text: str, position: int, message: str) -> TreeError:
    """The message with the text and a caret under the place."""
    begin, end = max(0, position - 60), position + 40
    shown = text[begin:end].replace("\n", " ")
    return TreeError(f"tree, at position {position}: {message}\n  {shown}\n  {' ' * (position - begin)}^")


def check_tree(root: Node, text: str | None = None) -> None:
    """Refuse a tree whose indices do not fit together.

    Raises:
        TreeError: for an index twice in one list, and an output index that no operand has.
    """
    shown = str(root) if text is None else text

    def visit(tree: Tree) -> Walk[None]:
        position = 0 if text is None else tree.position
        twice = next((one for one in tree.labels if tree.labels.count(one) > 1), None)
        if twice is not None:
            raise _error(
                shown, position,
                f"index {twice} occurs twice in {_indices(tree.labels)}; trees take no diagonals",
            )  # fmt: skip
        if isinstance(tree, Leaf):
            return
        if not 1 <= len(tree.operands) <= _MOST_OPERANDS:
            raise _error(shown, position, f"a node has one or two operands, this one has {len(tree.operands)}")
        if tree.activation is not None and tree.activation not in ACTIVATIONS.values():
            raise _error(shown, position, f"unknown activation {tree.activation!r}")
        for one in tree.operands:
            yield visit(one)
        present = {label for one in tree.operands for label in one.labels}
        missing = [label for label in tree.labels if label not in present]
        if missing:
            operands = " nor ".join(_indices(one.labels) for one in tree.operands)
            raise _error(
                shown, position,
                f"output index {missing[0]} of {_indices(tree.labels)} is not in {operands}",
            )  # fmt: skip

    answer(visit(root))


def leaves(tree: Tree) -> tuple[Leaf, ...]:
    """The inputs, from left to right."""
    return tuple(one for one in _in_order(tree) if isinstance(one, Leaf))


def sizes_of(tree: Tree, sizes: Mapping[Any, int] | Sequence[int]) -> dict[Label, int]:
    """The size of each index of a tree.

    Args:
        tree: the tree.
        sizes: a mapping from indices (numbers may be written as strings), or a sequence: entry i is index i's size.

    Raises:
        TreeError: for an index without a size, a size without an index, and what is no size.
        TypeError: for what is neither a mapping nor a sequence.

    Example:
        >>> sizes_of(parse_tree("[0,1],[1,2]->[0,2]"), [4, 5, 6])
        {0: 4, 1: 5, 2: 6}
    """
    labels = list(dict.fromkeys(label for leaf in leaves(tree) for label in leaf.labels))
    given: dict[Label, Any]
    if isinstance(sizes, Mapping):
        given = {}
        for written in sizes:
            one = int(written) if isinstance(written, str) and written.isdecimal() else written
            if one in given:
                raise TreeError(f"tree {tree}: sizes has index {one} twice, the second time as {written!r}")
            given[one] = sizes[written]
        unknown = [one for one in given if one not in labels]
        if unknown:
            raise TreeError(f"tree {tree}: sizes has {unknown[0]!r}, which is no index of the tree")
    else:
        named = [one for one in labels if isinstance(one, str)]
        if named:
            raise TreeError(f"tree {tree}: index {named[0]!r} is a name, so that sizes must be a mapping")
        if isinstance(sizes, str | Set) or not isinstance(sizes, Iterable):
            raise TypeError(f"tree {tree}: sizes must be a mapping or a sequence, not {value_text(sizes)}")
        given = dict(enumerate(sizes))
        largest = max((one for one in labels if isinstance(one, int)), default=-1)
        if len(given) > largest + 1:
            raise TreeError(f"tree {tree}: sizes has {len(given)} entries, but the largest index is {largest}")
    for one in labels:
        if one not in given:
            raise TreeError(f"tree {tree}: index {one} has no size; sizes has {len(given)} entries")
        if not isinstance(given[one], int | np.integer) or isinstance(given[one], bool) or given[one] < 0:
            raise TreeError(f"tree {tree}: the size of index {one} is {given[one]!r}; a number of elements is needed")
    return {one: int(given[one]) for one in labels}
