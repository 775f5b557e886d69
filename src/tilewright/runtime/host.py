"""What a compiled program is made of on the host: lowered kernels and the steps that run them.

A `HostProgram` is executed step by step (`executor.py`). Arrays in scope are known to a kernel by their `Layout`: what
the kernel may assume of how they lie in memory. A statement is lowered once for each combination of layouts that it
meets, so that contiguous arrays get code with constant unit strides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.joined import Part
from tilewright.ir.nodes import Atom, Expression, Program, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.collecting import collection_later

if TYPE_CHECKING:  # programs from the disk do without the kernel language
    from tilewright.kernel.ir import Kernel
    from tilewright.kernel.launch import Launch


@dataclass(frozen=True)
class Layout:
    """How an array (or a scalar that lies in memory: rank 0) is placed.

    `strides` has the constant -1, 0, 1 or a small one where the stride is that, so that vectors are read, None where it
    is known at launch only; `dense` promises a row-major array; `at_start` that its first element is the buffer's.
    """

    strides: tuple[int | None, ...]
    dense: bool = False
    at_start: bool = False


Layouts: TypeAlias = tuple[tuple[str, Layout], ...]


@dataclass(frozen=True)
class Scratch:
    """Memory that each worker of a launch needs for itself: `size` elements. `name` is that of the kernel's buffer."""

    name: str
    element: ScalarType
    size: Size


@dataclass(frozen=True)
class CheckedIndex:
    """An index that a kernel checks: entry number `position` of its error record is about this.

    `is_guard`: it is no error of the program, but means that what comes next may not be run (`GuardedStep`).
    `is_count`: not an index is checked, but that an array has as many elements as a shape.
    """

    array: str
    dimension: int
    line: str = ""
    is_guard: bool = False
    is_count: bool = False


class Schedule(Enum):
    """How the parallel points of a kernel are given to workers."""

    SEQUENTIAL = "sequential"
    BLOCKS = "blocks"
    THREADS = "threads"
    GROUPS = "groups"


# Names of the launch's own scalars, which no core program can contain.
ITEMS, PER_BLOCK, CHUNK, CHUNKS, THREADS_TOTAL = "%items", "%per_block", "%chunk", "%chunks", "%threads"
ERRORS = "%errors"
ERRORS_BUFFER = "errors_0"
"""What kernels call the array in which they note indices that are out of range."""
CLAIMS_BUFFER = "claims_0"
"""And the same memory as words of 32 bits, where threads settle which of them notes its own."""


@dataclass(frozen=True)
class KernelPlan:
    """A kernel and how its launches are sized.

    Attributes:
        kernel: the kernel.
        buffers: for each of its buffers the core array (or scalar in memory), scratch or error record that it is.
        scalars: for each of its scalars the core name, or one of the launch's own, and the component (1: imaginary).
        space: extents of the parallel dimensions, outermost first.
        schedule: how the points of the space are distributed.
        scratch: memory per worker.
        checks: what the entries of the error record are about.
        heavy: a point is more than a few scalar operations: it loops.
        group: threads of a block that share a point.
        together: points of the innermost dimension that run in lanes of vectors: chunks are whole groups of them.
        apart: unless there are fewer groups than cores, for points then go one by one.
        by_rows: points of the innermost dimension are folded beside each other, a row of them after the other.
        columns: the least and the most of them in a block where each of these rows has results, too.
        refused: why something does not run in lanes of vectors, a sentence each.
    """

    kernel: Kernel
    buffers: tuple[str, ...]
    scalars: tuple[tuple[str, int], ...]
    space: tuple[Size, ...]
    schedule: Schedule
    scratch: tuple[Scratch, ...] = ()
    checks: tuple[CheckedIndex, ...] = ()
    heavy: bool = False
    group: int = 1
    together: int = 1
    apart: bool = False
    by_rows: bool = False
    columns: tuple[int, int] | None = None
    refused: tuple[str, ...] = ()


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelStep:
    """Compute fresh arrays by a kernel: `targets` are allocated, `reads` are the arrays and scalars that it uses.

    `copied` arrays (with a target's position) are copied into them first; at places `in_place` they are the targets.
    A target of rank 0 is a scalar that stays in memory. `lower` makes the plan for the layouts of the arrays among
    `reads` and the targets; `size_names` are the further scalars whose values the sizes of the launch need.
    """

    label: str
    targets: tuple[Variable, ...]
    reads: tuple[Variable, ...]
    lower: Callable[[Layouts], KernelPlan] = field(repr=False, compare=False)
    copied: tuple[tuple[int, Variable], ...] = ()
    size_names: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()


@dataclass(frozen=True)
class ContractionStep:
    """Compute one array by the launches of a contraction, made when its sizes and strides are known.

    `launches` raises LaunchDeclined where the tiling declines; then the step that `otherwise` makes is run.
    `size_names` are what sizes and strides are made of.
    """

    label: str
    target: Variable
    reads: tuple[Variable, ...]
    launches: Callable[[Mapping[str, int]], tuple[Launch, ...]] = field(repr=False, compare=False)
    otherwise: Callable[[], Step] = field(repr=False, compare=False)
    size_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ViewStep:
    """An array that is another way to look at one in memory; `copies` if it turns out not to be one."""

    target: Variable
    expression: Expression


@dataclass(frozen=True)
class ScalarStep:
    """Scalar code that the host computes."""

    targets: tuple[Variable, ...]
    expression: Expression


@dataclass(frozen=True)
class ConcatStep:
    """Arrays copied one after another into a fresh one."""

    target: Variable
    axis: int
    arrays: tuple[Variable, ...]


@dataclass(frozen=True)
class UpdateStep:
    """A copy of an array, with a part of it replaced; `in_place`, the array itself, whose old value nothing uses."""

    target: Variable
    array: Variable
    indices: tuple[Atom, ...]
    value: Atom
    line: str = ""
    in_place: bool = False


@dataclass(frozen=True)
class SegmentPlan:
    """Kernels to run one after another, and the values of the sizes that they are told by name."""

    steps: tuple[KernelStep, ...]
    sizes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SegmentStep:
    """Folds, scans or histograms of segments, by kernels that are chosen when the `extents` are known.

    `temporaries` are the arrays that only these kernels use. `told`: what is special about them; `refused`: what might
    be and is not, and why, a sentence each.
    """

    label: str
    targets: tuple[Variable, ...]
    reads: tuple[Variable, ...]
    temporaries: tuple[Variable, ...]
    extents: tuple[Size, ...]
    choose: Callable[[tuple[int, ...]], SegmentPlan] = field(repr=False, compare=False)
    told: str = ""
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class ThresholdStep:
    """Whether there is as much parallelism as the threshold of this name says; the host decides, without a kernel."""

    target: Variable
    name: str
    parallelism: Size


@dataclass(frozen=True)
class IfStep:
    """The host decides."""

    condition: Atom
    targets: tuple[Variable, ...]
    then: Block | Later
    otherwise: Block | Later


@dataclass(frozen=True)
class GuardedStep:
    """What is right only where `guard`, a kernel, records nothing; and what is done where it does."""

    guard: KernelStep
    then: Block
    otherwise: Block


@dataclass(frozen=True)
class LoopStep:
    """The host loops: `index` runs to `bound`, or `condition` (a block with one result) is asked each round.

    `whole`, where there is one, is all of it as a sequential kernel, for rounds of little `work`, and for those that
    do so much less than launches (the second of `shared` to the first) that several cores are no faster. The arrays at
    the places `own` are copied before the first round, for rounds write into them.
    """

    targets: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    initial: tuple[Atom, ...]
    body: Block
    index: Variable | None = None
    bound: Size | None = None
    condition_parameters: tuple[Variable, ...] = ()
    condition: Block | None = None
    whole: KernelStep | None = None
    work: Size | None = None
    shared: tuple[Size, Size] | None = None
    own: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowsStep:
    """A map whose rows the host computes one after another, because their sizes are known only then."""

    targets: tuple[Variable, ...]
    width: Size
    parameters: tuple[Variable, ...]
    arrays: tuple[Variable, ...]
    body: Block


Step: TypeAlias = (
    KernelStep | ContractionStep | ViewStep | ScalarStep | ConcatStep | UpdateStep
    | SegmentStep | ThresholdStep | IfStep | GuardedStep | LoopStep | RowsStep
)  # fmt: skip


def written_by(step: Step) -> frozenset[str]:
    """Names of the arrays that a step computes into memory chosen for them."""
    match step:
        case KernelStep(targets=targets) | SegmentStep(targets=targets):
            return frozenset(target.name for target in targets)
        case ContractionStep(target=target) | ConcatStep(target=target) | UpdateStep(target=target):
            return frozenset((target.name,))
    return frozenset()


@dataclass(frozen=True)
class Block:
    """Steps and what they are for."""

    steps: tuple[Step, ...]
    results: tuple[Atom, ...]


@dataclass(frozen=True)
class Note:
    """How a statement was lowered, by which rewrites (their names and equations), and why not otherwise."""

    statement: str
    lowered: str
    reasons: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class Later:
    """A block that is lowered when it is first needed, once, whoever needs it; other threads wait for it meanwhile.

    `results` is what it is for, `names` holds all names in scope that it may mention. `make` lowers it, and tells how.
    """

    def __init__(
        self, results: tuple[Atom, ...], names: Collection[str], make: Callable[[], tuple[Block, Notes]]
    ) -> None:
        self.results = results
        self.names = names
        self._make = make
        self._made: tuple[Block, Notes] | None = None
        self._lock = ForkSafeLock()

    @property
    def made(self) -> tuple[Block, Notes]:
        """The block, and how each of its statements was lowered.

        Raises:
            LoweringError: if a statement cannot be lowered, each time.
        """
        if self._made is None:
            with self._lock:
                if self._made is None:
                    with collection_later():
                        self._made = self._make()
        return self._made


Notes: TypeAlias = tuple[Note | Later, ...]
"""How statements were lowered, in order; what waits for its first use has its own."""


def block_of(branch: Block | Later) -> Block:
    """The steps of a branch, lowered now if they have not been."""
    return branch.made[0] if isinstance(branch, Later) else branch


def _told(notes: Notes) -> Iterator[Note]:
    for one in notes:
        if isinstance(one, Later):
            yield from _told(one.made[1])
        else:
            yield one


@dataclass(frozen=True)
class HostProgram:
    """A program ready to be executed on one kind of device.

    `form` is its steps, and `lowered` tells how they were found. `size_arguments` are the positions of the scalar
    arguments on whose values sizes depend, `checked` says that something in it checks indices, and so may fail. `parts`
    are those of concatenations that calls check.
    """

    program: Program
    form: Block | Later
    lowered: Notes
    size_arguments: frozenset[int] = frozenset()
    checked: bool = True
    parts: tuple[Part, ...] = ()

    @property
    def block(self) -> Block:
        """The steps, lowered now if they have not been."""
        return block_of(self.form)

    def told(self, where: str) -> list[str]:
        """How each statement is lowered for a device or machine, and why not otherwise, line by line."""
        return [f"{self.program.name} on {where}", *self.lines]

    @property
    def notes(self) -> tuple[Note, ...]:
        """How each statement is lowered; all of them are lowered now."""
        return tuple(_told(self.lowered))

    @property
    def lines(self) -> list[str]:
        """How each statement is lowered, and why not otherwise."""
        lines = []
        for note in self.notes:
            lines.append(f"  {note.statement}: {note.lowered}")
            lines += [f"    by {step}" for step in note.steps]
            lines += [f"    not otherwise: {reason}" for reason in note.reasons]
        return lines


@dataclass(frozen=True)
class Copier:
    """How arrays are copied: `step` gives the general step for an element type and a rank.

    `launch` gives a launch for known places, or None where the general step does as well: of the element type, the
    shape, the strides and offsets (source, target) in elements; its buffers are `source` and `target`.
    """

    step: Callable[[ScalarType, int], KernelStep]
    launch: Callable[[ScalarType, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, int]], Launch | None]
