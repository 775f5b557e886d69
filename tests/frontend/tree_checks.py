"""What the tests of trees share: the project's trees, a reference, random trees, and plans run by the interpreter."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.frontend.tree_parse import Label, Leaf, Node, Tree, leaves, parse_tree, sizes_of
from tilewright.frontend.tree_plan import CompiledPart, TreePlan
from tilewright.ir.interpreter import interpret

TREES = Path(__file__).parents[2] / "benchmarks" / "einsum_trees.json"
CASES: list[dict[str, Any]] = json.loads(TREES.read_text())["trees"]
NAMES = [case["name"] for case in CASES]


def case_named(name: str) -> tuple[Node, dict[Label, int]]:
    """A tree with the sizes scaled down to a few thousand multiplications."""
    case = next(one for one in CASES if one["name"] == name)
    tree = parse_tree(case["tree"])
    sizes = sizes_of(tree, case["sizes"])
    return tree, {
        label: min(extent, 2 + place % 4 + extent // 100) for place, (label, extent) in enumerate(sizes.items())
    }


def random_arrays(tree: Tree, sizes: Mapping[Label, int], dtype: Any, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, so that results are exact in every order."""
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.integers(-2, 3, [sizes[label] for label in leaf.labels])).astype(dtype) for leaf in leaves(tree)
    ]


def expected(tree: Tree, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """The value of a tree, node by node, by numpy.einsum."""
    return _value(tree, iter(arrays))


def _value(tree: Tree, arrays: Iterator[np.ndarray[Any, Any]]) -> Any:
    if isinstance(tree, Leaf):
        return next(arrays)
    numbers: dict[Label, int] = {}
    arguments: list[Any] = []
    for one in tree.operands:
        arguments += [_value(one, arrays), [numbers.setdefault(label, len(numbers)) for label in one.labels]]
    result = np.einsum(*arguments, [numbers[label] for label in tree.labels])
    return np.maximum(result, 0) if tree.activation == "relu" else result


def interpreted(plan: TreePlan) -> TreePlan:
    """The same plan with its programs run by the interpreter, which has nothing to compile."""

    def replaced(part: CompiledPart) -> CompiledPart:
        return dataclasses.replace(part, executable=_runner(part))

    return dataclasses.replace(plan, first=tuple(map(replaced, plan.first)), main=replaced(plan.main))


def _runner(part: CompiledPart) -> Callable[..., Any]:
    def run(*arrays: Any, out: Any = None) -> Any:
        (result,) = interpret(part.program, arrays)
        if out is None:
            return result
        out[...] = result
        return out

    return run


def random_tree(seed: int, depth: int = 3) -> tuple[Node, dict[Label, int]]:
    """A tree with permutations, sums over lone indices, outer products, batches and activations; and sizes."""
    rng = random.Random(seed)
    labels: list[Label] = list(range(6)) if rng.random() < 0.8 else list("ijklmn")
    root = _random_node(rng, labels, depth)
    used = {label for leaf in leaves(root) for label in leaf.labels}
    return root, {label: rng.choice((1, 2, 3, 4)) for label in labels if label in used}


def _random_node(rng: random.Random, labels: Sequence[Label], depth: int) -> Node:
    count = 1 if rng.random() < 0.25 else 2
    operands: tuple[Tree, ...] = tuple(
        _random_node(rng, labels, depth - 1)
        if depth > 1 and rng.random() < 0.7
        else Leaf(tuple(rng.sample(labels, rng.randint(0 if rng.random() < 0.1 else 1, 3))))
        for _ in range(count)
    )
    present = list(dict.fromkeys(label for one in operands for label in one.labels))
    kept = rng.sample(present, min(len(present), rng.randint(0 if rng.random() < 0.2 else 1, 4)))
    return Node(operands, tuple(kept), "relu" if rng.random() < 0.2 else None)


def smaller_limit(plan: TreePlan, share: float) -> int:
    """A limit between the result's own bytes and the plan's peak."""
    result = int(np.prod(plan.shape, dtype=np.int64)) * plan.dtype.bytes
    return int(result + share * (plan.peak_bytes - result))
