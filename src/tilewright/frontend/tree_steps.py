"""From a tree to the steps that compute it.

Three kinds of nodes leave no step behind: a permutation is an order of its operand's result, a sum over an index that
nothing else uses is drawn into the contraction below it (sums distribute over products), and an activation is the
epilogue of the step that it is applied to. What is left are contractions, and reductions or maps of single inputs.

>>> from tilewright.frontend.tree_parse import parse_tree
>>> tree = resolve_tree(parse_tree("[[0,1],[1,2]->[0,2]]->[2,0]"), {0: 4, 1: 5, 2: 6})
>>> [(one.operands, one.output) for one in tree.steps]  # indices are numbered from the result's on
[((0, 1), (0, 1))]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace

from tilewright.frontend.deep_trees import Walk, answer
from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_parse import Label, Leaf, Node, Tree
from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass


@dataclass(frozen=True)
class TreeStep:
    """One statement: a contraction of two values, or a reduction, map or copy of one.

    Attributes:
        operands: numbers of values: inputs are 0, 1, ... from left to right, then the results of the steps follow.
        output: the indices of the result (how they lie in memory is decided later).
        contracted: the indices that are summed over.
        activations: what is applied to each element of the result, in order.
    """

    operands: tuple[int, ...]
    output: Labels
    contracted: Labels
    activations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    """Statements that follow one another, with numbered indices.

    Attributes:
        inputs: the indices of each input.
        steps: operands before those who use them; the last one gives the result.
        sizes: the size of each index.
    """

    inputs: tuple[Labels, ...]
    steps: tuple[TreeStep, ...]
    sizes: tuple[int, ...]

    @property
    def root(self) -> int:
        """The number of the result."""
        return len(self.inputs) + len(self.steps) - 1

    def labels(self, value: int) -> Labels:
        """The indices of a value."""
        return self.inputs[value] if value < len(self.inputs) else self.step(value).output

    def step(self, value: int) -> TreeStep:
        """The step that computes a value."""
        return self.steps[value - len(self.inputs)]

    @cached_property
    def parents(self) -> dict[int, int]:
        """For each value but the result the one that it is an operand of."""
        first = len(self.inputs)
        return {one: first + number for number, step in enumerate(self.steps) for one in step.operands}

    def volume(self, labels: Labels, sizes: tuple[int, ...] | None = None) -> int:
        """Elements of an array with these indices."""
        known = self.sizes if sizes is None else sizes
        return math.prod(known[label] for label in labels)


@dataclass(frozen=True)
class ResolvedTree(Steps):
    """A tree with numbered indices.

    An index that is contracted in one subtree and occurs again in another is two indices here, so that each belongs to
    one place of the tree.

    Attributes:
        tree: as it was written.
        output: the indices of the result, in order.
        names: what each index was called.
    """

    tree: Node
    output: Labels
    names: tuple[str, ...]

    def flops(self, step: TreeStep) -> int:
        """Multiplications and additions of a step, one each per point, and its activations."""
        points = self.volume((*step.output, *step.contracted))
        products = len(step.operands) - 1 + bool(step.contracted)
        return points * products + self.volume(step.output) * len(step.activations)

    def text(self, labels: Labels) -> str:
        """Indices as they were called: [0,1,2]."""
        return "[" + ",".join(self.names[label] for label in labels) + "]"


def resolve_tree(tree: Node, sizes: Mapping[Label, int]) -> ResolvedTree:
    """The steps of a checked tree."""
    resolver = _Resolver(sizes)
    output = tuple(resolver.fresh(label) for label in tree.labels)
    root = answer(resolver.build(tree, dict(zip(tree.labels, output, strict=True)), frozenset(output)))
    if root < resolver.leaf_limit:  # the whole tree permutes an input: a copy
        root = resolver.add(TreeStep((root,), output, ()))
    steps = [replace(one, operands=tuple(map(resolver.number, one.operands))) for one in resolver.steps]
    steps[-1] = replace(steps[-1], output=output)
    return ResolvedTree(
        tuple(resolver.inputs), tuple(steps), tuple(resolver.extents), tree, output, tuple(resolver.names)
    )


@dataclass
class _Resolver:
    """Numbers indices and collects steps. Until all inputs are known, results are numbered from `leaf_limit` on."""

    sizes: Mapping[Label, int]
    inputs: list[Labels] = field(default_factory=list)
    steps: list[TreeStep] = field(default_factory=list)
    extents: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    leaf_limit: int = 1 << 40

    def fresh(self, label: Label) -> int:
        self.extents.append(self.sizes[label])
        self.names.append(str(label))
        return len(self.extents) - 1

    def number(self, value: int) -> int:
        return value if value < self.leaf_limit else value - self.leaf_limit + len(self.inputs)

    def add(self, step: TreeStep) -> int:
        self.steps.append(step)
        return self.leaf_limit + len(self.steps) - 1

    def labels(self, value: int) -> Labels:
        return self.inputs[value] if value < self.leaf_limit else self.steps[value - self.leaf_limit].output

    def build(self, tree: Tree, scope: Mapping[Label, int], needed: frozenset[int]) -> Walk[int]:
        """The value of a tree with just the indices `needed`; the others are summed over. `scope` numbers its own."""
        labels = tuple(scope[label] for label in tree.labels)
        if isinstance(tree, Leaf):
            self.inputs.append(labels)
            return self.reduced(len(self.inputs) - 1, needed)
        if tree.activation is not None:
            value: int = yield self.contraction(tree, scope, labels)
            if value < self.leaf_limit:
                return self.reduced(self.add(TreeStep((value,), labels, (), (tree.activation,))), needed)
            step = self.steps[value - self.leaf_limit]
            self.steps[value - self.leaf_limit] = replace(step, activations=(*step.activations, tree.activation))
            return self.reduced(value, needed)
        found: int = yield self.contraction(tree, scope, tuple(label for label in labels if label in needed))
        return found

    def contraction(self, node: Node, scope: Mapping[Label, int], output: Labels) -> Walk[int]:
        """The value of a node before its activation, with the indices `output`."""
        known = {label: scope[label] for label in node.labels}
        for operand in node.operands:
            for label in operand.labels:
                if label not in known:
                    known[label] = self.fresh(label)
        present = [{known[label] for label in operand.labels} for operand in node.operands]
        if len(node.operands) == 1:
            value: int = yield self.build(node.operands[0], known, frozenset(output))
            if value >= self.leaf_limit:
                step = self.steps[value - self.leaf_limit]
                self.steps[value - self.leaf_limit] = replace(step, output=output)
            return value
        shared = present[0] & present[1]
        used = shared | set(output)
        left: int = yield self.build(node.operands[0], known, frozenset(used & present[0]))
        right: int = yield self.build(node.operands[1], known, frozenset(used & present[1]))
        contracted = tuple(label for label in self.labels(left) if label in shared and label not in output)
        return self.add(TreeStep((left, right), output, contracted))

    def reduced(self, value: int, needed: frozenset[int]) -> int:
        """The value with the indices summed over that are not needed."""
        labels = self.labels(value)
        kept = tuple(label for label in labels if label in needed)
        if len(kept) == len(labels):
            return value
        gone = tuple(label for label in labels if label not in needed)
        return self.add(TreeStep((value,), kept, gone))
