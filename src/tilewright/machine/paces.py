"""How fast a core is at all else, beside its vector multiply-adds: what the cost models of contractions count with.

The unit of time is what it takes to start one multiply-add of whole vectors: a cycle of a core that starts one, half a
cycle of one that starts two. A core that does twice as much of everything has the same numbers; what differs from one
to the other is the balance, and with it which form and which register tile is the fastest.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.ir.dataclass import dataclass
from tilewright.machine.processors import WITH_TILES

LEAST_TERMS = 5  # of a sum, from which on stores wait for each other: shorter ones wait for the memory


@dataclass(frozen=True)
class Pace:
    """Times in multiply-adds of whole vectors, and bytes in the time of one; what is given is measured on a Zen 4.

    Attributes:
        chain: until the result of a multiply-add can be added to.
        vector_load: of a vector that begins with a line, from the first cache.
        far_load: of a vector that is read in place and comes from the second cache.
        stray: of a step whose vectors are read in place in the second cache, each on another page than the last.
        element_load: of an element that is broadcast.
        hidden_load: of any load of a direct form's step, or a tensor operation's, that multiply-adds hide, as `beside`
            is of panels.
        panel_load: of a vector of a panel of the packed form, which comes from the second cache.
        beside: of any load that multiply-adds hide: what a core's other thread has to wait for, and this one for that.
        tile: of the products of two tiles.
        tile_load: of a tile from a panel.
        tile_end: to begin a tile of sums, and to bring them to where they go.
        packed_tile: to begin a register tile of the packed form, with its tables and tests.
        cached_tile: the same where its results do not go past the caches.
        queued: vectors that a register tile stores at once before the stores wait for each other, and all after them.
        queue_wait: what each vector beyond these takes more.
        narrow: the least that a multiply-add of a narrower vector takes.
        mixed: to bring the elements of two rows together in one vector, or those of two such vectors.
        run: to go on with another row of an operand, within a sum that runs along rows of both.
        other: times as long as on a Zen 4: loops, addresses and stores of register tiles, copies of single elements.
        panels: the same for copies of vectors into the small panels of the direct form.
        gathered: the same for elements that lie apart.
        gathers: whether a vector of elements that lie anywhere is read as fast as it is element by element.
        packing: the same for copies into the packed form's panels, with its tables.
        hidden: the share of these that arithmetic hides where register tiles copy, and ask for the next block: unless
            it is 0, they do not wait for pieces of that either.
        waiting: as `other`, for pieces of memory that no prefetcher foresees.
        pieces: the same for pieces of an output in main memory.
        going_on: the share of it for pieces past the caches that the next tile goes on with, out of small panels.
        panels_again: as many times as long as they take else, such panels come from the second cache again.
        asked: for a piece of main memory that the kernel asks for ahead.
        near: for a piece of the third cache that nothing foresees.
        second_cache, third_cache, memory: bytes that come from there.
        past: bytes that are written past the caches.
        again: bytes that come from the second cache where nearly all of them come in time.
        again_past: the same while an output is written past the caches: fewer where these stores wait in the buffers in
            which misses of the first cache do.
        written: times as long as reading it takes to write a byte of an output that stays in the caches.
        panel_wait: until a panel of the direct form can be read that was made just before.
        collected: times as long as counted tiles take whose results are collected.
        copied_results: of that time, the share that the model must find them to take at the most in the operand's order
            and copied then (contractions/relaid.py): above 1 where it underrates collecting; 0 where copies never pay.
        in_place: times as long as their multiply-adds take steps whose vectors are all read in place, across lines.
        held: bytes of the third cache, at the most, in which one core finds again what it has read or written.
        skips_third: whether a copy that the second cache does not hold is better written past the third one, too.
        block: the part of what a side leaves of the second cache that panels of the other take.
        longest_panel: the part of the second cache that one panel of the vector side takes at the most.
        packed_far: to pack a vector once more that comes from beyond the second cache.
        asks_third: whether packing asks ahead for what the third cache holds, too.
        asks_points: the share of the second cache, at the most, that a point's operands fill for the next one's to be
            asked for where they are runs of memory (direct/points.py); 0 where that gains nothing.
        points_wait: of the time of a point's multiply-adds, the part that reading it takes at the least for that.
        asked_piece: the share of the second cache that a piece of a sum takes whose next one is asked for meanwhile
            (direct/sum_pieces.py); 0 where sums are not cut for that.
        asked_rows: rows of main memory that packing asks for in turns: a few come faster than one after another does.
        asks_results: steps of a sum, at the most, whose tiles ask for the lines of their results unless the first cache
            holds them; unless it is 0, copies within the caches ask for lines of the target that nothing foresees, too.
        long_pieces: whether pieces that results are collected from come the faster the longer they are, if each step
            asks for a line of them, however short it is.
        box_run: bytes of a run of collected results, at the least, that are assembled before they are written.
        row_pairs: rows of two operands, each of them with its own, that are best read together where they are long.
        channels: powers of two from this on are distances of bytes at which parts of memory share its channels;
            infinite where addresses are hashed.
        in_strips: whether long rows are best transposed past the caches in strips (`permute/strips.py`), wherever in a
            line they begin, rather than line by line, or with a line of each column of a matrix carried along.
    """

    chain: float = 4.0
    vector_load: float = 1.0
    far_load: float = 4.0
    stray: float = 0.0
    element_load: float = 0.5
    hidden_load: float = 0.0
    panel_load: float = 3.0
    beside: float = 0.04
    tile: float = 16.0
    tile_load: float = 16.0
    tile_end: float = 60.0
    packed_tile: float = 8.0
    cached_tile: float = 8.0
    queued: float = 16
    queue_wait: float = 2.5
    narrow: float = 0.5
    mixed: float = 0.2
    run: float = 0.0
    other: float = 1.0
    panels: float = 1.0
    gathered: float = 1.0
    gathers: bool = False
    packing: float = 1.0
    hidden: float = 0.0
    waiting: float = 1.0
    pieces: float = 1.0
    going_on: float = 1.0
    panels_again: float = 1.0
    asked: float = 24.0
    near: float = 0.0
    second_cache: float = 32.0
    third_cache: float = 12.0
    memory: float = 7.0
    past: float = 7.0
    again: float = 80.0
    again_past: float = 80.0
    written: float = 2.0
    panel_wait: float = 0.0
    collected: float = 1.0
    copied_results: float = 0.0
    in_place: float = 1.0
    held: float = math.inf
    skips_third: bool = False
    block: float = 1.0
    longest_panel: float = 0.25
    packed_far: float = 8.0
    asks_third: bool = True
    asks_points: float = 1.0
    points_wait: float = 0.0
    asked_piece: float = 0.0
    asked_rows: int = 1
    asks_results: int = 0
    long_pieces: bool = False
    box_run: int = 512
    row_pairs: int = 1
    channels: float = 1024
    in_strips: bool = False

    def __post_init__(self) -> None:
        """Refuse what no core has.

        Raises:
            ValueError: if a time is negative, a part is more than the whole, or no byte comes from somewhere.
        """
        for name, value in vars(self).items():
            if value < 0:
                raise ValueError(f"the pace of a core: {name} is {value}, and must not be negative")
        if self.block > 1:
            raise ValueError(f"the pace of a core: block is {self.block}, and panels hold no more than 1")
        if 0 in (self.second_cache, self.third_cache, self.memory, self.past, self.again, self.again_past):
            raise ValueError("the pace of a core: bytes come from all caches and from memory, and so many are none")

    def stored_at_once(self, terms: int) -> float:
        """Vectors of a register tile, of sums of so many terms, whose stores do not wait for each other.

        Example:
            >>> Pace().stored_at_once(64)
            16
        """
        return self.queued if terms >= LEAST_TERMS else math.inf

    def stored(self, vectors: float, terms: int) -> float:
        """The time to store so many vectors of a register tile at once.

        Example:
            >>> [Pace().stored(vectors, terms=64) for vectors in (16, 24)]
            [16.0, 44.0]
        """
        return vectors + self.queue_wait * max(0.0, vectors - self.stored_at_once(terms))

    @property
    def shares_buffers(self) -> bool:
        """Whether misses of the first cache and stores past the caches wait for each other."""
        return self.again_past < self.again

    def bytes_from(self, level: int) -> float:
        """Bytes that come from a level of the memory in the time of one multiply-add: 2 and 3 are caches, 4 is main
        memory; what the first cache gives costs what its loads do.

        Example:
            >>> [Pace().bytes_from(level) for level in (2, 3, 4)]
            [32.0, 12.0, 7.0]
        """
        return (math.inf, self.second_cache, self.third_cache, self.memory)[level - 1]

    def bytes_again_from(self, level: int) -> float:
        """The same for what is read a second time.

        Example:
            >>> [Pace().bytes_again_from(level) for level in (2, 3, 4)]
            [80.0, 12.0, 7.0]
        """
        return self.again if level == 2 else self.bytes_from(level)


ONE_MULTIPLY_ADD = Pace()
"""One multiply-add and one load of 512 bits in a cycle, or two loads of single elements: a Zen 4."""

TWO_MULTIPLY_ADDS = Pace(
    chain=8.0,
    tile=32.0,
    tile_load=28.0,
    tile_end=120.0,
    packed_tile=50.0,
    cached_tile=50.0,
    queued=math.inf,
    far_load=4.2,
    element_load=1.2,
    narrow=1.0,
    mixed=0.0,
    asks_points=0.0,
    run=20.0,
    other=1.5,
    panels=0.8,
    gathered=2.0,
    packing=2.2,
    hidden=0.8,
    waiting=3.0,
    pieces=3.0,
    going_on=0.3,
    panels_again=0.4,
    asked=14.0,
    near=30.0,
    second_cache=16.0,
    third_cache=8.0,
    memory=4.0,
    past=4.0,
    again=50.0,
    again_past=50.0,
    written=0.7,
    panel_wait=2000.0,
    row_pairs=4,
    in_place=1.28,
)
"""Two multiply-adds of 512 bits in a cycle, and two loads, be it of vectors or of elements: fitted to a Zen 5."""

TWO_NARROW = Pace(
    chain=9.5,
    element_load=1.4,
    cached_tile=50.0,
    queued=math.inf,
    panel_load=2.0,
    beside=0.2,
    narrow=1.0,
    mixed=0.0,
    asks_points=0.0,
    other=2.0,
    panels=1.5,
    gathered=2.0,
    packing=2.0,
    waiting=2.0,
    pieces=2.0,
    second_cache=16.0,
    third_cache=6.0,
    memory=3.0,
    past=3.0,
    again=40.0,
    again_past=40.0,
    row_pairs=4,
    asked_rows=4,
)
"""Two multiply-adds of 256 bits in a cycle, and two loads. `chain` and `element_load` are fitted to register tiles on a
Zen 3, with the addresses of rows that LLVM computes in each step, `panel_load` and `beside` to packed ones of 2 by 6
and 3 by 4 vectors beside a busy thread of the same core; `asked_rows` to reads of rows in C, of one at a time (8 to 10
GB/s) and of eight in turns (13 to 17); `packed_tile`, which is a Zen 4's, fits short sums past the caches there, too
(6 x 2 vectors of 16 terms: 0.80 of the peak). The rest is about what a Zen 4 takes, in half cycles.
"""

MESH = replace(
    TWO_MULTIPLY_ADDS,
    gathers=True,
    stray=3.0,
    collected=1.3,
    copied_results=1.5,
    asks_points=0.25,
    points_wait=0.1,
    asked_piece=1 / 16,
    hidden_load=0.02,
    panel_load=4.2,
    waiting=1.0,
    pieces=1.0,
    asked=42.0,
    third_cache=4.5,
    memory=2.6,
    past=3.9,
    again=36.0,
    held=48 << 20,
    skips_third=True,
    block=0.6,
    longest_panel=1 / 16,
    packed_far=24.0,
    asks_third=False,
    asks_results=32,
    long_pieces=True,
    box_run=128,
    again_past=8.0,
    channels=math.inf,
)
"""The same on a server whose third cache all cores share through a mesh: fitted to an Emerald Rapids. In C it
gathers and multiplies 50000 rows of 16 elements in 0.25 ms, which a load and a multiplication for each do in 0.62.
`collected`, `copied_results`, `asks_points`, `points_wait`, `pieces` and `asked` are fitted to a Granite Rapids.
"""

REDWOOD = replace(MESH, in_strips=True)
"""The same of the cores since Granite Rapids, which write single lines past the caches as fast as pairs. GB/s of copies
with a line of each column carried along or line by line, and in strips: 4097 x 2047 f64 21, 24, 4095 x 4097 f32 16, 19,
`acb` of 20 x 1500 x 1501 f32 12, 18.
"""

_TWO = ("znver5", "skylake-avx512", "cascadelake", "cooperlake", "icelake-server")
_MESH = ("sapphirerapids", "emeraldrapids")
_REDWOOD = tuple(name for name in WITH_TILES if name not in _MESH)
_REDWOOD_INSTRUCTIONS = 64 << 10  # bytes of the first instruction cache, of which the cores before have half
_NARROW = ("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake", "raptorlake", "meteorlake", "arrowlake",
           "arrowlake-s", "lunarlake", "znver2", "znver3")  # fmt: skip
PACES: dict[str, Pace] = (
    dict.fromkeys(_TWO, TWO_MULTIPLY_ADDS)
    | dict.fromkeys(_MESH, MESH)
    | dict.fromkeys(_REDWOOD, REDWOOD)
    | dict.fromkeys(_NARROW, TWO_NARROW)
)
"""By LLVM's name of a processor: those that start two multiply-adds of 512 bits in a cycle, or of 256 at the most."""


def pace_of(processor: str, instruction_cache: int = 0) -> Pace:
    """The pace of a processor by LLVM's name of it; those that are not known are taken for a Zen 4.

    Args:
        processor: its name. Virtual machines may hide which of the processors with tiles they run on.
        instruction_cache: bytes of the first level's, which tells these apart; 0 if it is not known.

    Example:
        >>> [pace_of(name).chain for name in ("znver5", "znver4", "znver3", "of next year")]
        [8.0, 4.0, 9.5, 4.0]
        >>> [pace_of("sapphirerapids", kib << 10).in_strips for kib in (32, 64)]
        [False, True]
    """
    known = PACES.get(processor, ONE_MULTIPLY_ADD)
    return REDWOOD if known is MESH and instruction_cache >= _REDWOOD_INSTRUCTIONS else known
