"""Reading einsum expressions: strings and interleaved label lists, then what they mean for operands of given shapes.

>>> parsed = parse_string("ij,jk->ik")
>>> resolved = resolve(parsed, [(2, 3), (3, 4)])
>>> resolved.spec
EinsumSpec(inputs=((0, 1), (1, 2)), output=(0, 2))
>>> resolved.sizes
(2, 3, 4)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from tilewright.frontend.einsum_lists import Label
from tilewright.ir.dataclass import dataclass

BROADCAST = -1
"""The label of a dimension of size 1 that is read at index 0 for every value of the index."""

Labels: TypeAlias = tuple[int, ...]
Extent = TypeVar("Extent", bound=Hashable)


class ExtentError(ValueError):
    """Sizes of one index that differ."""


@dataclass(frozen=True)
class EinsumSpec:
    """An einsum up to the names of its indices: labels are numbered in order of first appearance.

    An input label may be repeated (a diagonal) or `BROADCAST`; an output label may be repeated (a diagonal is written).
    """

    inputs: tuple[Labels, ...]
    output: Labels

    @property
    def label_count(self) -> int:
        """Number of distinct labels."""
        return 1 + max((label for labels in (*self.inputs, self.output) for label in labels), default=-1)


@dataclass(frozen=True)
class ParsedEinsum:
    """The labels as written; `Ellipsis` stands for itself. `output` is None if it was not given."""

    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...] | None
    text: str


@dataclass(frozen=True)
class EllipsisDimension:
    """The label of a dimension under an ellipsis, counted from the right (-1 is the last)."""

    position: int

    def __str__(self) -> str:
        return f"...[{self.position}]"


@dataclass(frozen=True)
class ResolvedEinsum:
    """A spec with what its labels are called and how large they are here.

    Attributes:
        spec: the canonical expression.
        names: the name of each label, as the user wrote it.
        sizes: the size of each label.
        labels: each label as it was written, for operands of an epilogue.
    """

    spec: EinsumSpec
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: tuple[Label, ...]

    def text(self, labels: Labels) -> str:
        """Labels as the user wrote them, the broadcast ones as 1."""
        return _joined("1" if one == BROADCAST else self.names[one] for one in labels)

    @property
    def expression(self) -> str:
        """The whole expression."""
        return ",".join(map(self.text, self.spec.inputs)) + "->" + self.text(self.spec.output)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.sizes[one] for one in self.spec.output)


def _joined(names: Iterable[str]) -> str:
    listed = list(names)
    return ("" if all(len(one) == 1 or one == "..." for one in listed) else " ").join(listed)


# --- syntax -----------------------------------------------------------------------------------------------------------


def _is_letter(character: str) -> bool:
    return character.isalpha() if character.isascii() else character.isprintable() and not character.isspace()


def read_term(term: str, expression: str) -> tuple[Label, ...]:
    """The labels of one operand or of the output, from its letters.

    Raises:
        ValueError: for a character that is no letter and a misplaced or second ellipsis.
    """
    labels: list[Label] = []
    rest = term.replace(" ", "")
    while rest:
        if rest.startswith("..."):
            if Ellipsis in labels:
                raise ValueError(f"einsum {expression!r}: {term.strip()!r} has more than one ellipsis")
            labels.append(Ellipsis)
            rest = rest[3:]
        elif _is_letter(rest[0]):
            labels.append(rest[0])
            rest = rest[1:]
        else:
            reason = "an ellipsis is three dots" if rest[0] == "." else "an index is one letter"
            raise ValueError(f"einsum {expression!r}: unexpected {rest[0]!r} in {term.strip()!r}; {reason}")
    return tuple(labels)


@lru_cache(maxsize=4096)
def parse_string(expression: str) -> ParsedEinsum:
    """An expression such as "ij, jk -> ik", "...ii->...i" or "ij,jk".

    Raises:
        ValueError: saying which part cannot be read.
    """
    if "[" in expression:
        raise ValueError(
            f"einsum {expression!r}: brackets are the notation of trees, which einsum_tree and plan_tree take; an "
            "index of an einsum is one letter, as in 'ij,jk->ik'"
        )
    left, arrow, right = expression.partition("->")
    if "-" in left or ">" in left or "-" in right or ">" in right:
        raise ValueError(f"einsum {expression!r}: the arrow -> may occur once, and - and > only in it")
    if "," in right:
        raise ValueError(f"einsum {expression!r}: there is one output, but {right.strip()!r} names several")
    inputs = tuple(read_term(term, expression) for term in left.split(","))
    return ParsedEinsum(inputs, read_term(right, expression) if arrow else None, expression)


def parse_interleaved(inputs: tuple[tuple[Label, ...], ...], output: tuple[Label, ...] | None) -> ParsedEinsum:
    """The expression of label lists as `einsum_lists.interleaved_key` gives them."""
    terms = [_joined("..." if one is Ellipsis else str(one) for one in labels) for labels in inputs]
    text = ",".join(terms)
    if output is not None:
        text += "->" + _joined("..." if one is Ellipsis else str(one) for one in output)
    return ParsedEinsum(inputs, output, text)


# --- meaning ----------------------------------------------------------------------------------------------------------


def resolve(parsed: ParsedEinsum, shapes: Sequence[tuple[int, ...]]) -> ResolvedEinsum:
    """What an expression means for operands of these shapes.

    Raises:
        ValueError: naming the operand, the index and the sizes that do not fit.
    """
    for number, shape in enumerate(shapes):
        if any(extent < 0 for extent in shape):
            raise ValueError(
                f"einsum {parsed.text!r}: operand {number} has the shape {shape}, and a size cannot be negative"
            )
    spec, sizes = resolve_extents(parsed, shapes)
    return ResolvedEinsum(spec, tuple(map(str, sizes)), tuple(sizes.values()), tuple(sizes))


def resolve_extents(
    parsed: ParsedEinsum, shapes: Sequence[tuple[Extent, ...]]
) -> tuple[EinsumSpec, dict[Label, Extent]]:
    """The spec of an expression for operands of these shapes, and the size of each label, in order of their numbers.

    Args:
        parsed: the expression.
        shapes: of each operand numbers, or anything else that stands for a size and is equal only to the same one.

    Raises:
        ValueError: naming the operand, the index and the sizes that do not fit.
    """
    if len(shapes) != len(parsed.inputs):
        raise ValueError(
            f"einsum {parsed.text!r} is of {len(parsed.inputs)} operands ({_numbered(parsed)}), "
            f"but {len(shapes)} were given"
        )
    inputs = [_expand(parsed, number, len(shape)) for number, shape in enumerate(shapes)]
    output = _output(parsed, inputs)
    sizes = _sizes(parsed, inputs, shapes)
    numbers = {label: number for number, label in enumerate(sizes)}
    spec_inputs = tuple(
        tuple(
            BROADCAST if extent == 1 and sizes[label] != 1 else numbers[label]
            for label, extent in zip(labels, shape, strict=True)
        )
        for labels, shape in zip(inputs, shapes, strict=True)
    )
    return EinsumSpec(spec_inputs, tuple(numbers[label] for label in output)), sizes


def _numbered(parsed: ParsedEinsum) -> str:
    return ", ".join(
        f"{number}: {_joined('...' if one is Ellipsis else str(one) for one in labels) or 'a scalar'}"
        for number, labels in enumerate(parsed.inputs)
    )


_WORDS = "; each letter is an index: words go into lists, einsum(a, ['row', 'column'], b, ['column', 'k'])"


def _has_words(text: str) -> bool:
    words = text.replace(",", " ").replace("->", " ").split()
    return " " in text and any(len(one) > 1 and one.isalpha() for one in words)


def _expand(parsed: ParsedEinsum, number: int, rank: int) -> list[Label]:
    """An operand's labels with the ellipsis replaced by one label per dimension."""
    labels = parsed.inputs[number]
    named = len(labels) - (Ellipsis in labels)
    if named > rank or (Ellipsis not in labels and named != rank):
        least = "at least " if Ellipsis in labels else ""
        text = _joined("..." if one is Ellipsis else str(one) for one in labels)
        raise ValueError(
            f"einsum {parsed.text!r}: operand {number} ({text or 'a scalar'}) needs {least}{named} dimensions, "
            f"but has {rank}{_WORDS if _has_words(parsed.text) else ''}"
        )
    return expand_ellipsis(labels, rank - named)


def expand_ellipsis(labels: Sequence[Label], count: int) -> list[Label]:
    """Labels with the ellipsis, if there is one, replaced by `count` ellipsis dimensions."""
    expanded: list[Label] = []
    for one in labels:
        expanded += [EllipsisDimension(position - count) for position in range(count)] if one is Ellipsis else [one]
    return expanded


def _output(parsed: ParsedEinsum, inputs: Sequence[Sequence[Label]]) -> list[Label]:
    counts = Counter(label for labels in inputs for label in labels)
    covered = max((sum(isinstance(one, EllipsisDimension) for one in labels) for labels in inputs), default=0)
    if parsed.output is None:
        once = [label for label, count in counts.items() if count == 1 and not isinstance(label, EllipsisDimension)]
        return expand_ellipsis([Ellipsis], covered) + _sorted(once)
    output = expand_ellipsis(parsed.output, covered)
    if covered and Ellipsis not in parsed.output:
        raise ValueError(
            f"einsum {parsed.text!r}: the ellipsis of the operands covers {covered} dimensions, "
            "so the output needs an ellipsis too"
        )
    for label in output:
        if label not in counts:
            known = ", ".join(str(one) for one in counts) or "none"
            raise ValueError(
                f"einsum {parsed.text!r}: output index {str(label)!r} occurs in no operand; their indices are {known}"
            )
    return output


def _sorted(labels: list[Label]) -> list[Label]:
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError:  # labels that have no order among each other stay in order of appearance
        return labels


def _sizes(
    parsed: ParsedEinsum, inputs: Sequence[Sequence[Label]], shapes: Sequence[tuple[Extent, ...]]
) -> dict[Label, Extent]:
    """The size of each label, in order of first appearance; size 1 gives way to any other size."""
    found: dict[Label, tuple[Extent, int]] = {}
    for number, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        here: dict[Label, Extent] = {}
        for label, extent in zip(labels, shape, strict=True):
            if here.setdefault(label, extent) != extent:
                raise ExtentError(
                    f"einsum {parsed.text!r}: index {str(label)!r} is repeated in operand {number}, whose sizes there "
                    f"are {here[label]} and {extent}, but must be equal"
                )
            size, first = found.setdefault(label, (extent, number))
            if size == 1:
                found[label] = (extent, number)
            elif extent not in (1, size):
                raise ExtentError(
                    f"einsum {parsed.text!r}: index {str(label)!r} has size {size} in operand {first}, "
                    f"but size {extent} in operand {number}"
                )
    return {label: size for label, (size, _) in found.items()}
