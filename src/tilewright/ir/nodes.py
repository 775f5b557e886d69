"""The core language: one A-normal-form IR from the frontends to just before the kernel language.

    program    ::= name parameters body
    body       ::= statement* results             -- results are atoms
    statement  ::= variable, ... = expression     -- every name is bound once in a program
    atom       ::= variable | literal             -- both carry their type
    type       ::= scalar | array of a scalar with symbolic sizes ([] for a scalar)

Arrays of tuples do not exist: a construct that gives several values per element gives several arrays [S2]. A size may
mention the program's size names and every i64 scalar in scope. The semantics of each node is `interpreter.py`'s.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import Size, SizeLike, size


class Level(Enum):
    """Who runs a construct's body: a node of a cluster, a thread block (CPU core), a thread (SIMD lane)."""

    CLUSTER = "cluster"
    BLOCK = "block"
    THREAD = "thread"


@dataclass(frozen=True)
class Type:
    """An element type and a shape; shape () is a scalar."""

    element: ScalarType
    shape: tuple[Size, ...] = ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def row(self) -> Type:
        """The type of one element along the outermost dimension."""
        return Type(self.element, self.shape[1:])

    def array_of(self, *outer: SizeLike) -> Type:
        """The type with further outer dimensions."""
        return Type(self.element, (*map(size, outer), *self.shape))

    def __str__(self) -> str:
        return "".join(f"[{extent}]" for extent in self.shape) + str(self.element)


@dataclass(frozen=True)
class Variable:
    """A name with its type, where it is bound and where it is used."""

    name: str
    type: Type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal:
    """A scalar constant: a Python bool, int, float or complex of the given scalar type.

    Literals are equal if their bits are: nan is nan, but 0.0 is not -0.0 (1 / 0.0 is not 1 / -0.0).
    """

    value: bool | int | float | complex
    scalar: ScalarType

    @property
    def type(self) -> Type:
        """Its (scalar) type."""
        return Type(self.scalar)

    @property
    def _bits(self) -> tuple[object, ...]:
        if not (self.scalar.is_float or self.scalar.is_complex):
            return (self.value,)
        number = complex(self.value)
        return (number.real.hex(), number.imag.hex())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return self.scalar == other.scalar and self._bits == other._bits

    def __hash__(self) -> int:
        return hash((self._bits, self.scalar))

    def __str__(self) -> str:
        return f"{self.value}{self.scalar}"


Atom: TypeAlias = Variable | Literal


@dataclass(frozen=True)
class Body:
    """Statements and the atoms that they are for."""

    statements: tuple[Statement, ...]
    results: tuple[Atom, ...]


@dataclass(frozen=True)
class Lambda:
    """A function of some variables; it may use every variable in scope."""

    parameters: tuple[Variable, ...]
    body: Body


@dataclass(frozen=True)
class Statement:
    """targets = expression."""

    targets: tuple[Variable, ...]
    expression: Expression


# --- scalars and control ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alias:
    """The atom itself (what copy propagation removes)."""

    atom: Atom


@dataclass(frozen=True)
class Apply:
    """A scalar operator (`operators.py`) on scalars."""

    operator: str
    operands: tuple[Atom, ...]


@dataclass(frozen=True)
class Cast:
    """Conversion of a scalar to another type, as C converts."""

    scalar: ScalarType
    operand: Atom


@dataclass(frozen=True)
class SizeValue:
    """A size expression as an i64 scalar."""

    size: Size


@dataclass(frozen=True)
class Threshold:
    """parallelism >= the value of the named free choice `name`: a bool that picks one of several versions [S2]."""

    name: str
    parallelism: Size


@dataclass(frozen=True)
class If:
    """if condition then body else body; both give the same types."""

    condition: Atom
    then: Body
    otherwise: Body


@dataclass(frozen=True)
class ForLoop:
    """index = 0 .. bound-1."""

    index: Variable
    bound: Size


@dataclass(frozen=True)
class WhileLoop:
    """Go on while `condition` (a function of the merge values giving one bool) holds."""

    condition: Lambda


@dataclass(frozen=True)
class Loop:
    """Sequential loop: `parameters` begin as `initial`, each round rebinds them to the results of `body`."""

    parameters: tuple[Variable, ...]
    initial: tuple[Atom, ...]
    form: ForLoop | WhileLoop
    body: Body


# --- arrays -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Index:
    """array[indices]: an element, or a sub-array if there are fewer indices than dimensions. Indices are i64, >= 0.

    `line` is where the user wrote it, if it was a user (see `written_indices`), and `checked` whether it is checked to
    be in range when the program runs. They say nothing about its value, and are no part of the program's text; so too
    below.
    """

    array: Variable
    indices: tuple[Atom, ...]
    line: str = field(default="", compare=False, repr=False)
    checked: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True)
class SliceDimension:
    """Elements start, start+step, ..., `count` of them; the step is a constant and may be negative, not zero."""

    start: Size
    count: Size
    step: int = 1


@dataclass(frozen=True)
class Slice:
    """A slice of every dimension."""

    array: Variable
    dimensions: tuple[SliceDimension, ...]
    line: str = field(default="", compare=False, repr=False)
    checked: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True)
class Update:
    """A copy of `array` with array[indices] = value (value: the element or sub-array there)."""

    array: Variable
    indices: tuple[Atom, ...]
    value: Atom
    line: str = field(default="", compare=False, repr=False)
    checked: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True)
class Iota:
    """[0, 1, ..., count-1] of an integer type."""

    count: Size
    scalar: ScalarType = I64


@dataclass(frozen=True)
class Replicate:
    """`count` copies of a scalar or array along a new outermost dimension."""

    count: Size
    value: Atom


@dataclass(frozen=True)
class Concat:
    """Arrays joined along dimension `axis`."""

    axis: int
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class Reshape:
    """The same elements in row-major order under another shape."""

    array: Variable
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Rearrange:
    """Dimensions permuted: dimension d of the result is dimension permutation[d] of the array."""

    array: Variable
    permutation: tuple[int, ...]


@dataclass(frozen=True)
class Copy:
    """A fresh row-major copy, in the memory of `level` if given ([S4] toLocal is a copy to `block`)."""

    array: Variable
    level: Level | None = None


# --- second-order array combinators (SOACs) ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Map:
    """function applied to each of `width` rows of the arrays; one result array per result of the function."""

    width: Size
    function: Lambda
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class Reduce:
    """combine over the rows, from `neutral`. combine is associative; commutative too if so declared."""

    width: Size
    combine: Lambda
    neutral: tuple[Atom, ...]
    arrays: tuple[Variable, ...]
    commutative: bool = False


@dataclass(frozen=True)
class Scan:
    """Inclusive prefix combination over the rows."""

    width: Size
    combine: Lambda
    neutral: tuple[Atom, ...]
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class Redomap:
    """reduce combine neutral (map function arrays), fused.

    The first len(neutral) results of `function` are reduced; further ones are mapped out as arrays of `width` rows.
    """

    width: Size
    combine: Lambda
    neutral: tuple[Atom, ...]
    function: Lambda
    arrays: tuple[Variable, ...]
    commutative: bool = False


@dataclass(frozen=True)
class Scanomap:
    """scan combine neutral (map function arrays), fused; further results of `function` are mapped out."""

    width: Size
    combine: Lambda
    neutral: tuple[Atom, ...]
    function: Lambda
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class Scatter:
    """A copy of `destination` with destination[indices[i]] = values[i]; indices out of range are ignored.

    Two equal indices must come with equal values (which one is written is not defined otherwise).
    """

    destination: Variable
    indices: Variable
    values: Variable


@dataclass(frozen=True)
class Sweep:
    """One pass over the rows: maps, a scan of what they give, and maps and scatters of that.

    For each row `before` gives what is scanned (as many values as there are neutral elements: maybe none) and others;
    `after`, given the prefixes and those others, gives an index and a value for each destination, then what is mapped
    out. Results: with `totals` the last prefixes; each destination, scattered into as by `Scatter`; the mapped arrays.
    """

    width: Size
    before: Lambda
    combine: Lambda
    neutral: tuple[Atom, ...]
    after: Lambda
    destinations: tuple[Variable, ...]
    arrays: tuple[Variable, ...]
    totals: bool = False


@dataclass(frozen=True)
class OffsetFolds:
    """Folds of rows that lie one after another: for each i < count, `result` of i, starts[i], starts[i+1] and
    redomap combine neutral function (rows starts[i] .. starts[i+1]-1 of the arrays).

    That is so if 0 <= starts[0] <= starts[1] <= ... <= starts[count] <= width; `otherwise` says what it is if not.
    """

    count: Size
    width: Size
    starts: Variable
    function: Lambda
    combine: Lambda
    neutral: tuple[Atom, ...]
    result: Lambda
    arrays: tuple[Variable, ...]
    otherwise: Body


@dataclass(frozen=True)
class Hist:
    """Reduce by index: for each i, destinations[indices[i]] = combine(destinations[indices[i]], values[i]).

    `combine` is associative and commutative; indices out of range are ignored.
    """

    destinations: tuple[Variable, ...]
    combine: Lambda
    neutral: tuple[Atom, ...]
    indices: Variable
    values: tuple[Variable, ...]


@dataclass(frozen=True)
class StreamSeq:
    """Sequential stream [S3]: the arrays are cut into chunks of `chunk` rows (the last may be shorter).

    `function` takes (chunk length: i64, accumulators..., one array of chunk-length rows per array) and gives the new
    accumulators, then arrays of chunk-length rows that are concatenated. Results: accumulators, then those arrays.
    """

    width: Size
    chunk: Size
    function: Lambda
    initial: tuple[Atom, ...]
    arrays: tuple[Variable, ...]


# --- segmented operations over a space of parallel indices, tagged with a level [S2] ----------------------------------


@dataclass(frozen=True)
class SegSpace:
    """Parallel indices (i64 variables) with their extents, outermost first."""

    dimensions: tuple[tuple[Variable, Size], ...]

    @property
    def shape(self) -> tuple[Size, ...]:
        """The extents."""
        return tuple(extent for _, extent in self.dimensions)


@dataclass(frozen=True)
class SegMap:
    """body for every point of the space; each result gets the space's dimensions in front."""

    level: Level
    space: SegSpace
    body: Body


@dataclass(frozen=True)
class SegRed:
    """Like SegMap, then the first len(neutral) results are reduced along the innermost dimension of the space."""

    level: Level
    space: SegSpace
    combine: Lambda
    neutral: tuple[Atom, ...]
    body: Body
    commutative: bool = False


@dataclass(frozen=True)
class SegScan:
    """Like SegMap, then the first len(neutral) results are scanned along the innermost dimension of the space."""

    level: Level
    space: SegSpace
    combine: Lambda
    neutral: tuple[Atom, ...]
    body: Body


@dataclass(frozen=True)
class SegHist:
    """body gives (bin: i64, values...); along the innermost dimension values are combined into that segment's bins.

    `destinations` have the outer dimensions of the space, then the bins.
    """

    level: Level
    space: SegSpace
    destinations: tuple[Variable, ...]
    combine: Lambda
    neutral: tuple[Atom, ...]
    body: Body


Expression: TypeAlias = (
    Alias | Apply | Cast | SizeValue | Threshold | If | Loop
    | Index | Slice | Update | Iota | Replicate | Concat | Reshape | Rearrange | Copy
    | Map | Reduce | Scan | Redomap | Scanomap | Scatter | Sweep | OffsetFolds | Hist | StreamSeq
    | SegMap | SegRed | SegScan | SegHist
)  # fmt: skip
ScalarCode: TypeAlias = Alias | Apply | Cast | SizeValue
Reduction: TypeAlias = Reduce | Redomap
Fold: TypeAlias = Reduction | Scan | Scanomap
Segmented: TypeAlias = SegMap | SegRed | SegScan | SegHist
"""What is asked for together, each under one name."""


@dataclass(frozen=True)
class Program:
    """A named function of arrays and scalars."""

    name: str
    parameters: tuple[Variable, ...]
    body: Body

    def __str__(self) -> str:
        from tilewright.ir.printer import print_program

        return print_program(self)

    @property
    def size_names(self) -> tuple[str, ...]:
        """The size names that the parameters' shapes introduce, in order of first use."""
        bound = {one.name for one in self.parameters}
        extents = [extent for one in self.parameters for extent in one.type.shape]
        return tuple(dict.fromkeys(name for one in extents for name in sorted(one.names - bound)))


def array(element: ScalarType, *shape: SizeLike) -> Type:
    """The type of an array: `array(F32, "n", 4)` is [n][4]f32."""
    return Type(element, tuple(map(size, shape)))


def index_literal(value: int) -> Literal:
    """An i64 literal."""
    return Literal(value, I64)


def atom_size(atom: Atom) -> Size:
    """An i64 atom as a size; others are a TypeError."""
    if atom.type != Type(I64):
        raise TypeError(f"{atom} of type {atom.type} cannot be a size or an index; i64 is needed")
    return size(atom.name) if isinstance(atom, Variable) else size(int(atom.value.real))
