"""Random well-typed programs and arguments for them, to test passes and backends against the interpreter.

Every seed gives the same program everywhere. Programs use all constructs of the source language on bool, i32, i64, f32
and f64, with symbolic sizes that may be zero; of other types and larger sizes (`variety`), and with segmented
operations, which flattening makes, if asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

from random_programs.arrays import ARRAY_STATEMENTS
from random_programs.further import FURTHER_STATEMENTS
from random_programs.idioms import IDIOM_STATEMENTS
from random_programs.loops import LOOP_STATEMENTS
from random_programs.pairs import PAIR_STATEMENTS
from random_programs.places import PLACE_STATEMENTS
from random_programs.products import PRODUCT_STATEMENTS
from random_programs.rows import ROW_STATEMENTS
from random_programs.scalars import clamp, random_literal, random_scalar
from random_programs.segmented import SEGMENTED_STATEMENTS
from random_programs.soacs import SOAC_STATEMENTS
from random_programs.variety import PLAIN, Variety
from tilewright.ir import nodes
from tilewright.ir.arguments import Argument, Array
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Literal, Program, Type, Variable
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import Size, SizeLike, product, size
from tilewright.ir.traversal import all_statements

SIZE_NAMES = ("n", "m", "k")
SIZE_VALUES = PLAIN.sizes
_DYNAMIC = 3  # the largest value of a size that the program computes


def random_program(
    seed: int,
    depth: int = 3,
    statements: int = 6,
    scalars: Sequence[ScalarType] | None = None,
    name: str = "random",
    segmented: bool = False,
    variety: Variety = PLAIN,
) -> Program:
    """A random program.

    Args:
        seed: any number; the same one gives the same program.
        depth: how deep combinators, loops and ifs nest.
        statements: how many constructs the outermost body has (each may be a few statements).
        scalars: the scalar types of its parameters; those of the variety if not given.
        name: the program's name.
        segmented: with segmented operations and thresholds.
        variety: what it is made of.
    """
    return Generator(Random(seed), scalars, segmented, variety).program(name, depth, statements)


class Generator:
    """The state of writing one program: the builder, and what is in scope at each level of nesting."""

    def __init__(
        self,
        random: Random,
        scalars: Sequence[ScalarType] | None = None,
        segmented: bool = False,
        variety: Variety = PLAIN,
    ) -> None:
        self.random = random
        self.segmented = segmented
        self.variety = variety
        self.level: nodes.Level | None = None
        self.scalars = variety.scalars if scalars is None else tuple(scalars)
        self.b = Builder()
        self.scopes: list[list[Variable]] = []
        self.size_names = set(SIZE_NAMES[: random.randint(1, 3)])
        self.extra_results: list[Variable] = []
        self.work = 1
        self.given = 0  # how many of the outermost variables are the program's parameters
        self.host = True
        for one in SIZE_NAMES:
            self.b.names.reserve(one)

    # what is in scope

    @contextmanager
    def inside(self, variables: Sequence[Variable], times: int = 1, host: bool = True) -> Iterator[None]:
        """A nested body with these variables, run `times` times; `host`: by the host, if what is around it is."""
        self.scopes.append(list(variables))
        self.work *= max(times, 1)
        outside, self.host = self.host, self.host and host
        try:
            yield
        finally:
            self.scopes.pop()
            self.work //= max(times, 1)
            self.host = outside

    def add(self, *variables: Variable) -> None:
        """Make variables available to later statements of the innermost body."""
        self.scopes[-1].extend(variables)

    def visible(self, accept: Callable[[Variable], bool]) -> list[Variable]:
        """The variables in scope that `accept` takes."""
        return [one for scope in self.scopes for one in scope if accept(one)]

    def arrays(self, accept: Callable[[Variable], bool] = lambda _: True) -> list[Variable]:
        """The arrays in scope that `accept` takes."""
        return self.visible(lambda one: one.type.rank > 0 and accept(one))

    def choose(self, variables: Sequence[Variable]) -> Variable | None:
        """One of some variables, later ones more often; None if there are none."""
        if not variables:
            return None
        return variables[max(self.random.randrange(len(variables)) for _ in range(2))]

    def is_indexable(self, type: Type) -> bool:
        """True if the sizes are the program's and no dimension is empty when its size names are largest."""
        return all(extent.names <= self.size_names and self.most(extent) > 0 for extent in type.shape)

    def leaves(self, type: Type) -> bool:
        """True if all sizes are made of names in scope outside of the innermost body."""
        names = self.size_names | {one.name for scope in self.scopes[:-1] for one in scope}
        return all(extent.names <= names for extent in type.shape)

    def most(self, extent: Size) -> int:
        """An upper bound of a size's value."""
        largest = self.variety.sizes[-1]
        return extent.evaluate({name: largest if name in self.size_names else _DYNAMIC for name in extent.names})

    def affordable(self, *shape: Size) -> bool:
        """True if an array of this shape is small enough to be made here."""
        elements = self.most(product(shape))
        return elements <= self.variety.most_elements and self.work * max(elements, 1) <= self.variety.most_work

    # values

    def atom(self, scalar: ScalarType) -> Atom:
        """A scalar in scope, or a literal."""
        found = self.choose(self.visible(lambda one: one.type == Type(scalar)))
        return random_literal(self.random, scalar) if found is None or self.random.random() < 0.15 else found

    def scalar(self, scalar: ScalarType | None = None) -> Atom:
        """A newly computed scalar."""
        wanted = scalar or self.random.choice(self.variety.scalars)
        atom = random_scalar(self.b, self.random, self.atom, wanted, self.variety.scalars)
        if isinstance(atom, Variable):
            self.add(atom)
        return atom

    def value(self, type: Type) -> Atom | None:
        """A value of a type: computed for a scalar, in scope or copied for an array; None if there is none."""
        if type.rank == 0:
            return self.scalar(type.element)
        return self.choose(self.arrays(lambda one: one.type == type))

    def each(self, value: Variable, write: Callable[[Atom], Atom]) -> Variable:
        """`write` of every element of an array, by nested maps."""
        return self.b.map([value], lambda row: self.each(row, write) if row.type.rank else write(row))

    def tame(self, atom: Atom) -> Atom:
        """A float or complex number, or an array of them, cut to the limits."""
        if not (atom.type.element.is_float or atom.type.element.is_complex):
            return atom
        if isinstance(atom, Literal) or atom.type.rank == 0:
            return clamp(self.b, atom)
        return self.each(atom, lambda one: clamp(self.b, one))

    def index_below(self, extent: Size) -> Atom:
        """An index that is in range for an extent of at least 1, unless the variety is careless."""
        atom = self.atom(I64)
        if self.variety.careless and self.random.random() < self.variety.careless:
            return self.b.apply("mod", atom, self.b.size_value(extent + 1))
        if isinstance(atom, Literal) or self.random.random() < 0.3:
            return nodes.index_literal(0)
        return self.b.apply("mod", atom, self.b.size_value(extent))

    # bodies

    def statements(self, count: int, depth: int) -> None:
        """Emit constructs into the innermost body."""
        for _ in range(count):
            kinds = [self.plain_scalar] * 2
            if self.work < self.variety.most_work:
                kinds += [lambda: self.random.choice(ARRAY_STATEMENTS)(self)] * 3
                if self.variety.further:
                    kinds += [lambda: self.random.choice(FURTHER_STATEMENTS)(self)] * 3
                    kinds += [lambda: self.random.choice(IDIOM_STATEMENTS)(self)] * 3
                    kinds += [lambda: self.random.choice(PAIR_STATEMENTS)(self)] * 2
                    kinds += [lambda: self.random.choice(LOOP_STATEMENTS)(self)] * 2
                    kinds += [lambda: self.random.choice(PLACE_STATEMENTS)(self)] * 2
                    kinds += [lambda: self.random.choice(PRODUCT_STATEMENTS)(self)] * 2
                    kinds += [lambda: self.random.choice(ROW_STATEMENTS)(self)]
                if depth > 0:
                    kinds += [lambda: self.random.choice(SOAC_STATEMENTS)(self, depth - 1)] * 6
                    kinds += [lambda: self.control(depth - 1)] * 2
                    if self.segmented:
                        kinds += [lambda: self.random.choice(SEGMENTED_STATEMENTS)(self, depth - 1)] * 8
            self.random.choice(kinds)()

    def plain_scalar(self) -> None:
        """One scalar operation."""
        atom = self.scalar()
        if self.random.random() < 0.05:
            self.add(self.b.bind(nodes.Alias(atom)))

    def results(self, width: Size) -> list[Atom]:
        """One to three results for a function that is mapped over `width` rows."""

        def fits(one: Variable) -> bool:
            elements = self.most(width * product(one.type.shape))
            small = self.affordable(*one.type.shape) and elements <= self.variety.most_elements
            return small and one.type.rank < 3 and self.leaves(one.type)

        last = [one for one in self.scopes[-1] if fits(one)][-3:]
        wanted: list[Atom] = [one for one in last if self.random.random() < 0.6]
        if self.variety.further and self.random.random() < 0.1:  # the same for all rows
            outside = [one for scope in self.scopes[:-1] for one in scope if fits(one)]
            wanted += [self.random.choice(outside)] if outside else []
        return wanted or [self.scalar()]

    def control(self, depth: int) -> None:
        """An if, a for loop or a while loop whose values have the types of values in scope."""
        types = [one.type for one in self.visible(lambda one: self.affordable(*one.type.shape))]
        if not types:
            return
        carried = [self.random.choice(types) for _ in range(self.random.randint(1, 2))]
        self.random.choice((self.emit_if, self.emit_for, self.emit_while))(carried, depth)

    def body_of(self, types: Sequence[Type], depth: int, tame: bool) -> list[Atom]:
        """Some statements, then a value of each type."""
        self.statements(self.random.randint(0, 2), depth)
        values = [self.value(one) for one in types]
        found = [one for one in values if one is not None]
        return [self.tame(one) for one in found] if tame else found

    def emit_if(self, types: Sequence[Type], depth: int) -> None:
        """if."""

        def branch() -> list[Atom]:
            with self.inside([]):
                return self.body_of(types, depth, tame=False)

        self.add(*self.b.cond(self.atom(BOOL), branch, branch))

    def emit_for(self, types: Sequence[Type], depth: int) -> None:
        """for with a size or a small constant as bound."""
        bound = self.random.choice([*map(size, (0, 1, 2, 3)), *map(size, sorted(self.size_names))])
        if self.work * self.most(bound) > self.variety.most_work:
            return
        initial = [one for one in map(self.value, types) if one is not None]

        def body(index: Variable, *parameters: Variable) -> list[Atom]:
            with self.inside([index, *parameters], self.most(bound)):
                return self.body_of(types, depth, tame=True)

        self.add(*self.b.for_loop(bound, initial, body))

    def emit_while(self, types: Sequence[Type], depth: int) -> None:
        """while a counter stays below a constant, and (sometimes) another value differs from zero."""
        rounds = self.random.randint(0, 3)
        initial = [nodes.index_literal(0), *(one for one in map(self.value, types) if one is not None)]

        def condition(counter: Variable, *parameters: Variable) -> Atom:
            going = self.b.apply("lt", counter, nodes.index_literal(rounds))
            for one in parameters:
                if one.type.rank == 0 and one.type.element.is_integer and self.random.random() < 0.5:
                    differs = self.b.apply("ne", one, Literal(0, one.type.element))
                    going = self.b.apply("and", going, differs)
            return going

        def body(counter: Variable, *parameters: Variable) -> list[Atom]:
            with self.inside([counter, *parameters], rounds):
                results = self.body_of(types, depth, tame=True)
            return [self.b.apply("add", counter, nodes.index_literal(1)), *results]

        self.add(*self.b.while_loop(initial, condition, body))

    def program(self, name: str, depth: int, statements: int) -> Program:
        """A whole program."""
        sizes = sorted(self.size_names)
        parameters = [self.b.variable("a", nodes.array(self.random.choice(self.scalars), one)) for one in sizes]
        for _ in range(self.random.randint(1, 3)):
            rank = self.random.choice((0, 0, 1, 2, 2, 3) if self.variety.further else (0, 0, 1, 2, 2))
            constant = size(self.random.choice(self.variety.constants))
            shape: list[SizeLike] = [self.random.choice((*map(size, sizes), constant)) for _ in range(rank)]
            if rank == 3:  # with more than one size by name it might be too large
                shape = [self.random.choice(sizes), constant, size(self.random.choice((2, 3)))]
                self.random.shuffle(shape)
            parameters.append(
                self.b.variable("a" if rank else "s", nodes.array(self.random.choice(self.scalars), *shape))
            )
        self.given = len(parameters)
        with self.inside(parameters):
            self.statements(statements, depth)
            made = [one for one in self.scopes[-1] if one not in parameters] + self.extra_results
            count = min(len(made), self.random.randint(1, 4))
            chosen: list[Atom] = [*made[-1:], *self.random.sample(made[:-1], count - 1)] if made else []
            return self.b.program(name, parameters, chosen or [self.scalar()])


def random_arguments(program: Program, seed: int, variety: Variety = PLAIN) -> list[Argument]:
    """Arguments for a program: sizes of the variety under which no index or slice is out of range.

    Floats are multiples of 1/8 within [-2, 2], integers within [-9, 9]. Index, Slice and Update are taken to be in
    range where the indexed extents are at least 1, as in the programs that `random_program` makes.
    """
    random = Random(seed)
    names = sorted(program.size_names)
    needed = _requirements(program, set(names))
    for _ in range(50):
        sizes = {name: random.choice(variety.sizes) for name in names}
        if all(extent.evaluate(sizes) >= least for extent, least in needed):
            break
    else:
        sizes = dict.fromkeys(names, variety.sizes[-1])
    return [
        _random_argument(one.type, [e.evaluate(sizes) for e in one.type.shape], random) for one in program.parameters
    ]


def _requirements(program: Program, names: set[str]) -> list[tuple[Size, int]]:
    """(size, least value) so that all Index, Update, Slice and Concat statements are legal."""
    needed: list[tuple[Size, int]] = []
    for statement in all_statements(program.body):
        match statement.expression:
            case nodes.Index(indexed, indices) | nodes.Update(indexed, indices, _):
                needed += [(extent, 1) for extent in indexed.type.shape[: len(indices)]]
            case nodes.Concat(axis, parts):
                needed += [(part.type.shape[axis], 0) for part in parts]
            case nodes.Slice(indexed, dimensions):
                for one, extent in zip(dimensions, indexed.type.shape, strict=True):
                    needed += _slice_requirements(one, extent)
    return [(extent, least) for extent, least in needed if extent.names <= names]


def _slice_requirements(one: nodes.SliceDimension, extent: Size) -> list[tuple[Size, int]]:
    return [(one.count, 0), (extent - one.count, 0)]


def _random_argument(type: Type, shape: Sequence[int], random: Random) -> Argument:
    count = int(np.prod(shape, dtype=np.int64))
    kind = type.element.kind
    if kind == "b":
        values: list[Any] = [random.random() < 0.5 for _ in range(count)]
    elif kind in "iu":
        values = [random.randint(-9 if kind == "i" else 0, 9) for _ in range(count)]
    else:
        values = [random.randint(-16, 16) / 8 for _ in range(count)]
        if kind == "c":
            values = [one + 1j * random.randint(-16, 16) / 8 for one in values]
    exact = np.array(values, {"f": np.float64, "c": np.complex128}.get(kind))
    result: Array = exact.astype(type.element.numpy).reshape(shape)
    return result if type.rank else result[()]
