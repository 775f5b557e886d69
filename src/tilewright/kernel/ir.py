"""The kernel language: what one worker of a machine runs, in a form that prints as OpenCL C, CUDA C++ and LLVM IR.

    kernel     ::= name buffers scalars body            -- launched as `blocks` x `threads_per_block` workers
    statement  ::= Let | Declare | Assign | Store | AtomicUpdate | Prefetch | For | While | If | Barrier | Comment
                 | TileZero | TileLoad | TileStore | TileMultiply
    expression ::= Constant | Name | BlockIndex | ThreadIndex | Address | Operation | Cast | Load | Broadcast | Lane
                 | Shuffle | Window | FirstLanes | PackedLanes | CountLanes | LaneNumbers | AnyLane | Bits | Dot

Conventions, which every printer and every producer of kernels relies on:

* The launch is one-dimensional. A producer decomposes `BlockIndex()` and `ThreadIndex()` (of type i32 or i64 as the
  kernel's `index_type` says) by arithmetic with constants.
* There are no complex values: a complex array is a buffer of reals of twice the length, (re, im) interleaved.
* f16 and bf16 exist only as element types of buffers: `Load` widens them to f32 and `Store` rounds f32 to them.
  A bool buffer holds one byte per element.
* Integer arithmetic wraps around. `floordiv` and `mod` of integers have Python's signs and give 0 for a zero divisor.
* `Let` names are assigned once and never again, `Declare` names may be assigned; every name is unique in its kernel.
* Buffers of different names never overlap, except an input that the caller promised to be identical to the output
  element by element (beta accumulation).
* Shared and private arrays and the workspace have constant sizes. On a CPU `threads_per_block` is 1, `Barrier` is not
  allowed, and the LLVM form runs a range of blocks (its calling convention: kernel/llvm.py).
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, ScalarType, compute_type
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.tiles import TileLoad, TileMultiply, TileStore, TileZero


class Space(Enum):
    """Where a buffer lives: global, one block's shared memory, one thread's registers, one CPU worker's scratch."""

    GLOBAL = "global"
    SHARED = "shared"
    PRIVATE = "private"
    WORKSPACE = "workspace"


@dataclass(frozen=True)
class VectorType:
    """`lanes` values of one scalar type, held in one machine register (or several, as the target needs)."""

    element: ScalarType
    lanes: int

    def __str__(self) -> str:
        return f"{self.element}x{self.lanes}"


ValueType: TypeAlias = ScalarType | VectorType


@dataclass(frozen=True)
class Buffer:
    """An array of `element`s addressed flat. `size` (elements) is given for all spaces but global.

    `alignment` is in bytes and promised by the launcher for a global buffer.
    """

    name: str
    element: ScalarType
    space: Space = Space.GLOBAL
    size: int | None = None
    read_only: bool = False
    alignment: int = 0


@dataclass(frozen=True)
class ScalarParameter:
    """A scalar handed over at launch."""

    name: str
    type: ScalarType


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant:
    """A literal: a Python int, float (inf and nan included) or bool of the given scalar type."""

    value: int | float | bool
    type: ScalarType


@dataclass(frozen=True)
class Name:
    """A scalar parameter, loop index, or `Let`/`Declare`d variable."""

    name: str
    type: ValueType


@dataclass(frozen=True)
class BlockIndex:
    """The flat index of this block in the launch; with `after`, in CPU kernels only, of the block after the last one
    of this call: a body that binds that to a name of its own runs once for all blocks of the call.
    """

    type: ScalarType = I64
    after: bool = False


@dataclass(frozen=True)
class ThreadIndex:
    """The flat index of this thread in its block."""

    type: ScalarType = I64


@dataclass(frozen=True)
class Address:
    """The address of a buffer's first element in bytes; in CPU kernels only."""

    buffer: Buffer
    type: ScalarType = I64


@dataclass(frozen=True)
class Operation:
    """An operator of `tilewright.ir.operators` on operands of one type (comparisons give bool; select takes a bool).

    On vectors, elementwise. `fma(a, b, c)` is a*b + c, contracted where the target can; a CPU's `mul_apart` never is.
    """

    operator: str
    operands: tuple[Expression, ...]
    type: ValueType


@dataclass(frozen=True)
class Cast:
    """Conversion with C's meaning (float to integer truncates; to bool compares with zero); elementwise on vectors."""

    operand: Expression
    type: ValueType


class Order(Enum):
    """What an access has to do with other blocks that run; in kernels of GPUs, on scalars in global memory.

    PLAIN: none of them writes this element, or reads it if this is a store. COHERENT: the access is undivided, and is
    to what all blocks see. ORDERED (of u32 only): coherent too; what a thread, or before a barrier its block, wrote
    before it stores this element can be read by COHERENT loads after a load that reads what was stored.
    """

    PLAIN = "plain"
    COHERENT = "coherent"
    ORDERED = "ordered"


@dataclass(frozen=True)
class Load:
    """The element (or, with a vector type, the `lanes` consecutive elements) of `buffer` from flat `index` on.

    With an index for each lane (in CPU kernels only): the elements at these. `aligned` promises that a vector access
    starts at a multiple of its own size. Where `mask` (a bool for each lane) is false nothing is read: it is 0.
    """

    buffer: Buffer
    index: Expression
    type: ValueType
    aligned: bool = False
    mask: Expression | None = None
    order: Order = Order.PLAIN


@dataclass(frozen=True)
class Broadcast:
    """A vector with all lanes equal to a scalar."""

    operand: Expression
    type: VectorType


@dataclass(frozen=True)
class Lane:
    """One lane of a vector; `lane` is a constant."""

    operand: Expression
    lane: int
    type: ScalarType


@dataclass(frozen=True)
class Shuffle:
    """Lanes picked from the concatenation of two vectors of one type."""

    first: Expression
    second: Expression
    lanes: tuple[int, ...]
    type: VectorType


@dataclass(frozen=True)
class Window:
    """A vector from lane `begin` on (an i64, 0 to their number) of two in a row; of integers, f32, f64, on CPUs."""

    first: Expression
    second: Expression
    begin: Expression
    type: VectorType


@dataclass(frozen=True)
class FirstLanes:
    """A bool for each lane: true for those before `count` (an i64, not negative); in CPU kernels only."""

    count: Expression
    type: VectorType


@dataclass(frozen=True)
class PackedLanes:
    """Lanes of a vector of 64 bytes at most where `mask` is true, in order, then anything; in CPU kernels only."""

    operand: Expression
    mask: Expression
    type: VectorType


@dataclass(frozen=True)
class LaneNumbers:
    """0, 1, 2, ... in the lanes of a vector of integers; in CPU kernels only."""

    type: VectorType


@dataclass(frozen=True)
class CountLanes:
    """How many lanes of a vector of bools are true, as an i64; in CPU kernels only."""

    mask: Expression
    type: ScalarType = I64


@dataclass(frozen=True)
class AnyLane:
    """Whether any lane of a vector of bools is true; in CPU kernels only."""

    operand: Expression
    type: ScalarType = BOOL


Expression: TypeAlias = (
    Constant | Name | BlockIndex | ThreadIndex | Address | Operation | Cast | Load | Broadcast | Lane | Shuffle
    | Window | FirstLanes | PackedLanes | CountLanes | LaneNumbers | AnyLane | Bits | Dot
)  # fmt: skip


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Let:
    """Bind a name once."""

    name: str
    value: Expression


@dataclass(frozen=True)
class Declare:
    """A variable that `Assign` may change."""

    name: str
    value: Expression


@dataclass(frozen=True)
class Assign:
    """Change a declared variable. Of `settled` ones a CPU has a vector's value before it reads what comes later."""

    name: str
    value: Expression
    settled: bool = False


@dataclass(frozen=True)
class Store:
    """buffer[index] = value; a vector value writes consecutive elements. `nontemporal` asks a CPU to write past its
    caches. Where `mask` (a bool for each lane of a vector) is false nothing is written.
    """

    buffer: Buffer
    index: Expression
    value: Expression
    aligned: bool = False
    nontemporal: bool = False
    mask: Expression | None = None
    order: Order = Order.PLAIN


@dataclass(frozen=True)
class AtomicUpdate:
    """let old = buffer[index]; buffer[index] = operator(old, value), undivided by what other threads do.

    On GPUs only; the buffer is of i32 or u32, global or shared; `operator` is one of `ATOMIC_OPERATORS`.
    """

    old: str
    operator: str
    buffer: Buffer
    index: Expression
    value: Expression


@dataclass(frozen=True)
class Prefetch:
    """A hint to bring the line of `buffer[index]`, in the buffer or not, to the cache `level`; in CPU kernels only."""

    buffer: Buffer
    index: Expression
    level: int = 1


@dataclass(frozen=True)
class For:
    """for (index = start; index < stop; index += step) body. The index has the type of `start`; `step` is positive.

    `independent`: iterations may run in any order or in vector lanes (a promise of the producer). The compiler is
    asked for full unrolling by `unroll` (bounds are constants then); by `scalar` for no lanes, which would gather what
    they read.
    """

    index: str
    start: Expression
    stop: Expression
    body: tuple[Statement, ...]
    step: Expression = field(default_factory=lambda: Constant(1, I64))
    unroll: bool = False
    independent: bool = False
    scalar: bool = False


@dataclass(frozen=True)
class While:
    """Run `prelude`, stop when `condition` is false, else run `body` and begin again."""

    prelude: tuple[Statement, ...]
    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    """Conditional."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Barrier:
    """All threads of the block wait here; shared memory written before is visible after."""


@dataclass(frozen=True)
class Comment:
    """A line for the reader of the generated text."""

    text: str


Statement: TypeAlias = (
    Let | Declare | Assign | Store | AtomicUpdate | Prefetch | For | While | If | Barrier | Comment
    | TileZero | TileLoad | TileStore | TileMultiply
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kernel: its parameters (global buffers, then scalars), its local arrays, its launch shape and its body.

    `threads_per_block` is constant; the number of blocks is given at launch. `arrays` lists the shared, private and
    workspace buffers that the body uses. `scalar_loops`: beside code on vectors there are loops of scalars that a CPU's
    compiler shall put into vectors.
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[ScalarParameter, ...]
    arrays: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    threads_per_block: int = 1
    index_type: ScalarType = I64
    scalar_loops: bool = False

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block uses, in bytes."""
        return sum((b.size or 0) * b.element.bytes for b in self.arrays if b.space is Space.SHARED)

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory that one CPU worker needs, in bytes (each array rounded up to 64)."""
        return sum(-(-(b.size or 0) * b.element.bytes // 64) * 64 for b in self.arrays if b.space is Space.WORKSPACE)


# --- construction helpers ---------------------------------------------------------------------------------------------

ATOMIC_OPERATORS = ("add", "min", "max", "and", "or", "xor")
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
PREDICATES = COMPARISONS | {"isnan", "isinf"}


def element_of(value_type: ValueType) -> ScalarType:
    """The scalar type of a scalar or vector type."""
    return value_type.element if isinstance(value_type, VectorType) else value_type


def operation(operator: str, *operands: Expression) -> Operation:
    """An `Operation` whose type follows from its operands."""
    result = operands[1 if operator == "select" else 0].type
    if operator in PREDICATES:
        result = VectorType(BOOL, result.lanes) if isinstance(result, VectorType) else BOOL
    return Operation(operator, tuple(operands), result)


def integer(value: int, type_: ScalarType = I64) -> Constant:
    """An integer constant."""
    return Constant(value, type_)


def add(left: Expression, right: Expression) -> Expression:
    """left + right, folded where a side is a constant."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(left.value + right.value, left.type)
    for constant, other in ((left, right), (right, left)):
        if isinstance(constant, Constant) and constant.value == 0:
            return other
    return operation("add", left, right)


def multiply(left: Expression, right: Expression) -> Expression:
    """left * right for integers, folded where a side is a constant."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(left.value * right.value, left.type)
    for constant, other in ((left, right), (right, left)):
        if isinstance(constant, Constant) and constant.value in (0, 1):
            return other if constant.value == 1 else constant
    return operation("mul", left, right)


def load(buffer: Buffer, index: Expression, lanes: int = 1, aligned: bool = False) -> Load:
    """A `Load` whose type follows from the buffer."""
    element = compute_type(buffer.element)
    return Load(buffer, index, element if lanes == 1 else VectorType(element, lanes), aligned)
