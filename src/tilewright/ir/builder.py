"""Writing core programs from Python: a `Builder` collects statements, names results and derives their types.

>>> from tilewright.ir.scalars import F32
>>> from tilewright.ir.nodes import array
>>> b = Builder()
>>> x = b.variable("x", array(F32, "n"))
>>> doubled = b.map([x], lambda e: b.apply("add", e, e))
>>> program = b.program("double", [x], [doubled])
>>> print(program.body.results[0].type)
[n]f32
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import Size, SizeLike, size
from tilewright.ir.traversal import FreshNames
from tilewright.ir.typing import result_types

Results: TypeAlias = Atom | Sequence[Atom]


def _atoms(results: Results) -> tuple[Atom, ...]:
    return (results,) if isinstance(results, Variable | Literal) else tuple(results)


class Builder:
    """Collects statements. Nested scopes (`scope`, or the callables given to `map`, `reduce`, ...) become bodies."""

    def __init__(self, names: FreshNames | None = None) -> None:
        self.names = names or FreshNames()
        self._scopes: list[list[Statement]] = [[]]

    def variable(self, hint: str, type_: Type) -> Variable:
        """A new variable (a parameter, for example). The names of its sizes are not given to later variables."""
        for extent in type_.shape:
            for name in extent.names:
                self.names.reserve(name)
        return Variable(self.names(hint), type_)

    def emit(self, expression: Expression, *hints: str) -> tuple[Variable, ...]:
        """Append a statement and return what it binds; its types are derived (ill-formed ones raise TypeError)."""
        types = result_types(expression)
        chosen = [hints[i] if i < len(hints) else "t" for i in range(len(types))]
        targets = tuple(self.variable(hint, one) for hint, one in zip(chosen, types, strict=True))
        self._scopes[-1].append(Statement(targets, expression))
        return targets

    def bind(self, expression: Expression, hint: str = "t") -> Variable:
        """Append a statement that gives one value."""
        targets = self.emit(expression, hint)
        if len(targets) != 1:
            raise TypeError(f"{type(expression).__name__} gives {len(targets)} values, not one")
        return targets[0]

    @contextmanager
    def scope(self) -> Iterator[list[Statement]]:
        """Statements emitted inside go into the list instead of the surrounding body."""
        statements: list[Statement] = []
        self._scopes.append(statements)
        try:
            yield statements
        finally:
            self._scopes.pop()

    def body(self, write: Callable[[], Results]) -> Body:
        """The body that `write` emits, for the results that it returns."""
        with self.scope() as statements:
            results = _atoms(write())
        return Body(tuple(statements), results)

    def function(self, types: Sequence[Type], write: Callable[..., Results], hints: Sequence[str] = ()) -> Lambda:
        """A lambda over parameters of these types."""
        parameters = tuple(self.variable(hints[i] if i < len(hints) else "x", one) for i, one in enumerate(types))
        return Lambda(parameters, self.body(lambda: write(*parameters)))

    def definition(self, variable: Atom) -> Expression | None:
        """The expression that a variable was bound to in the scopes that are open; None for what is not."""
        bound = (one for scope in reversed(self._scopes) for one in reversed(scope) if variable in one.targets)
        return next((one.expression for one in bound), None)

    # scalars

    def apply(self, operator: str, *operands: Atom) -> Variable:
        """A scalar operation."""
        return self.bind(nodes.Apply(operator, operands))

    def cast(self, scalar: ScalarType, operand: Atom) -> Atom:
        """Conversion, or the operand itself where it has that type already."""
        return operand if operand.type == Type(scalar) else self.bind(nodes.Cast(scalar, operand))

    def size_value(self, value: SizeLike) -> Atom:
        """A size as an i64 scalar."""
        constant = size(value).constant
        return nodes.index_literal(constant) if constant is not None else self.bind(nodes.SizeValue(size(value)))

    def index(self, array: Variable, *indices: Atom) -> Variable:
        """array[indices]."""
        return self.bind(nodes.Index(array, indices))

    def rearrange(self, array: Variable, permutation: Sequence[int], hint: str = "t") -> Variable:
        """Permuted dimensions, or the array itself for the identity."""
        if tuple(permutation) == tuple(range(array.type.rank)):
            return array
        return self.bind(nodes.Rearrange(array, tuple(permutation)), hint)

    # control

    def cond(
        self, condition: Atom, then: Callable[[], Results], otherwise: Callable[[], Results]
    ) -> tuple[Variable, ...]:
        """if."""
        return self.emit(nodes.If(condition, self.body(then), self.body(otherwise)))

    def for_loop(self, bound: SizeLike, initial: Sequence[Atom], write: Callable[..., Results]) -> tuple[Variable, ...]:
        """for i < bound: carried = write(i, *carried)."""
        counter = self.variable("i", Type(I64))
        parameters = tuple(self.variable("carried", one.type) for one in initial)
        body = self.body(lambda: write(counter, *parameters))
        return self.emit(nodes.Loop(parameters, tuple(initial), nodes.ForLoop(counter, size(bound)), body))

    def while_loop(
        self, initial: Sequence[Atom], condition: Callable[..., Atom], write: Callable[..., Results]
    ) -> tuple[Variable, ...]:
        """while condition(*carried): carried = write(*carried)."""
        types = [one.type for one in initial]
        parameters = tuple(self.variable("carried", one) for one in types)
        form = nodes.WhileLoop(self.function(types, condition))
        return self.emit(nodes.Loop(parameters, tuple(initial), form, self.body(lambda: write(*parameters))))

    # combinators

    def map_many(
        self, arrays: Sequence[Variable], write: Callable[..., Results], hint: str = "t"
    ) -> tuple[Variable, ...]:
        """map; `write` gives any number of results."""
        width = arrays[0].type.shape[0]
        return self.emit(nodes.Map(width, self.function([a.type.row for a in arrays], write), tuple(arrays)), hint)

    def map(self, arrays: Sequence[Variable], write: Callable[..., Atom], hint: str = "t") -> Variable:
        """map with one result."""
        return self.map_many(arrays, write, hint)[0]

    def operator(self, name: str, scalar: ScalarType) -> Lambda:
        """A binary scalar operator as a lambda."""
        return self.function([Type(scalar), Type(scalar)], lambda a, b: self.apply(name, a, b), ("a", "b"))

    def reduce(self, combine: Lambda, neutral: Atom, array: Variable, commutative: bool = False) -> Variable:
        """reduce of one array with a one-value operator."""
        return self.bind(nodes.Reduce(array.type.shape[0], combine, (neutral,), (array,), commutative))

    def scan(self, combine: Lambda, neutral: Atom, array: Variable) -> Variable:
        """Inclusive scan of one array."""
        return self.bind(nodes.Scan(array.type.shape[0], combine, (neutral,), (array,)))

    def redomap(
        self,
        combine: Lambda,
        neutral: Atom,
        arrays: Sequence[Variable],
        write: Callable[..., Atom],
        commutative: bool = False,
    ) -> Variable:
        """reduce combine neutral (map write arrays) with one result."""
        function = self.function([a.type.row for a in arrays], write)
        width: Size = arrays[0].type.shape[0]
        return self.bind(nodes.Redomap(width, combine, (neutral,), function, tuple(arrays), commutative))

    def program(self, name: str, parameters: Sequence[Variable], results: Sequence[Atom]) -> Program:
        """The program of everything emitted so far."""
        if len(self._scopes) != 1:
            raise ValueError("a program ends outside all scopes")
        return Program(name, tuple(parameters), Body(tuple(self._scopes[0]), tuple(results)))
