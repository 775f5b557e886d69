"""Core programs from text: the inverse of `printer.py`, which states the grammar.

Types stand in the text only where names are bound; a use gets its type from the binding in scope. A size name of the
program's parameters may be used as an i64 scalar. What is read is well-formed text, not yet a correct program:
`verifier.py` checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilewright.ir import nodes
from tilewright.ir.lexer import CONSTRUCTS, INFIX, SIZE_FUNCTIONS, SPECIAL_FLOATS, Cursor, ParseError
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import BOOL, I64, SCALAR_TYPES, ScalarType
from tilewright.ir.sizes import ZERO, Size, size, size_function

Item = TypeVar("Item")
_COMPLEX = tuple(name for name, scalar in SCALAR_TYPES.items() if scalar.is_complex)
_LEVELS = {level.value: level for level in nodes.Level}
MOST_NESTING = 60


def parse_program(text: str) -> Program:
    """The program that `print_program` wrote.

    >>> program = parse_program("def f (x: [n]f32, i: i64) = let (y: f32) = x[i] in (y)")
    >>> program.body.results
    (Variable(name='y', type=Type(element=f32, shape=())),)

    Raises:
        ParseError: with line and column, and what was expected there.
    """
    parser = _Parser(text)
    try:
        program = parser.program()
    except RecursionError:
        raise parser.too_deep() from None
    if parser.cursor.peek().kind != "end":
        raise parser.cursor.fail("the end of the text after the program's results")
    return program


class _Parser:
    """Recursive descent: one method per line of the grammar. `scope` has the type of every name that may be used."""

    def __init__(self, text: str) -> None:
        self.cursor = Cursor(text)
        self.scope: dict[str, Type] = {}
        self.depth = 0

    def too_deep(self) -> ParseError:
        """The error of a text that no pass could go through by recursion."""
        token = self.cursor.peek()
        return ParseError(f"nested more deeply than {MOST_NESTING} bodies", token.line, token.column)

    @contextmanager
    def inner(self, *variables: Variable) -> Iterator[None]:
        """A scope with these variables, which ends what is bound inside."""
        outer = self.scope
        self.scope = outer | {one.name: one.type for one in variables}
        try:
            yield
        finally:
            self.scope = outer

    def list_of(self, item: Callable[[], Item], opening: str = "(", closing: str = ")") -> tuple[Item, ...]:
        """Items with commas between them, in brackets."""
        self.cursor.expect(opening)
        items: list[Item] = []
        if not self.cursor.accept(closing):
            items.append(item())
            while self.cursor.accept(","):
                items.append(item())
            if not self.cursor.accept(closing):
                raise self.cursor.fail(f"',' or {closing!r}")
        return tuple(items)

    # programs, bodies, lambdas

    def program(self) -> Program:
        self.cursor.expect("def")
        name = self.cursor.expect_name("the program's name")
        parameters = self.list_of(self.binding)
        self.cursor.expect("=")
        size_names = Program(name, parameters, Body((), ())).size_names
        with self.inner(*(Variable(one, Type(I64)) for one in size_names), *parameters):
            return Program(name, parameters, self.body())

    def binding(self) -> Variable:
        name = self.cursor.expect_name()
        self.cursor.expect(":")
        return Variable(name, self.type())

    def body(self, *variables: Variable) -> Body:
        """A body in whose scope are these variables too."""
        self.depth += 1
        if self.depth > MOST_NESTING:
            raise self.too_deep()
        with self.inner(*variables):
            statements: list[Statement] = []
            while self.cursor.at("let"):
                statements.append(self.statement())
            if statements:
                if not self.cursor.at("in"):
                    raise self.cursor.fail("'let' or 'in'")
                self.cursor.take()
            elif not self.cursor.at("("):
                raise self.cursor.fail("a body: 'let' or results in parentheses")
            self.depth -= 1
            return Body(tuple(statements), self.list_of(self.atom))

    def statement(self) -> Statement:
        self.cursor.expect("let")
        targets = self.list_of(self.binding)
        self.cursor.expect("=")
        expression = self.expression()
        self.scope.update({one.name: one.type for one in targets})
        return Statement(targets, expression)

    def function(self) -> Lambda:
        self.cursor.expect("(")
        self.cursor.expect("\\")
        parameters = self.list_of(self.binding)
        self.cursor.expect("->")
        body = self.body(*parameters)
        self.cursor.expect(")")
        return Lambda(parameters, body)

    # types and sizes

    def scalar(self) -> ScalarType:
        if not self.cursor.at(*SCALAR_TYPES):
            raise self.cursor.fail(f"a scalar type ({', '.join(SCALAR_TYPES)})")
        return SCALAR_TYPES[self.cursor.take().text]

    def type(self) -> Type:
        shape: list[Size] = []
        while self.cursor.accept("["):
            shape.append(self.size())
            self.cursor.expect("]")
        return Type(self.scalar(), tuple(shape))

    def size(self) -> Size:
        total = -self.product() if self.cursor.accept("-") else self.product()
        while self.cursor.at("+", "-"):
            negative = self.cursor.take().text == "-"
            term = self.product()
            total = total - term if negative else total + term
        return total

    def product(self) -> Size:
        total = self.size_argument()
        while self.cursor.accept("*"):
            total = total * self.size_argument()
        return total

    def size_argument(self) -> Size:
        """A number, name, function, or a size in parentheses."""
        if self.cursor.at(*SIZE_FUNCTIONS):
            token = self.cursor.take()
            arguments = self.list_of(self.size)
            if len(arguments) != 2:
                raise self.cursor.fail(f"two sizes as arguments of {token.text}", token)
            if token.text in ("floordiv", "mod") and arguments[1] == ZERO:
                raise self.cursor.fail("a divisor that is not zero", token)
            return size_function(token.text, *arguments)
        if self.cursor.accept("("):
            inside = self.size()
            self.cursor.expect(")")
            return inside
        if self.cursor.at_name():
            return size(self.cursor.take().text)
        if self.cursor.peek().kind == "number":
            return size(self.cursor.expect_integer("an integer without a type in a size"))
        raise self.cursor.fail("a size")

    # atoms

    def variable(self) -> Variable:
        token = self.cursor.peek()
        name = self.cursor.expect_name("a variable")
        if name not in self.scope:
            raise ParseError(f"the name {name!r} is not bound here", token.line, token.column)
        return Variable(name, self.scope[name])

    def variables(self) -> tuple[Variable, ...]:
        """Variables up to the first token that is none."""
        found: list[Variable] = []
        while self.cursor.at_name():
            found.append(self.variable())
        return tuple(found)

    def atom(self) -> Atom:
        if self.cursor.at_name():
            return self.variable()
        return self.literal()

    def atoms(self) -> tuple[Atom, ...]:
        return self.list_of(self.atom)

    def literal(self) -> Literal:
        start = self.cursor.peek()
        negative = self.cursor.accept("-")
        token = self.cursor.peek()
        if token.kind == "number":
            return self.number(negative)
        if self.cursor.at(*SPECIAL_FLOATS):
            value, scalar = SPECIAL_FLOATS[self.cursor.take().text]
            return Literal(-value if negative else value, scalar)
        if not negative and self.cursor.at("true", "false"):
            return Literal(self.cursor.take().text == "true", BOOL)
        if not negative and self.cursor.at(*_COMPLEX):
            scalar = SCALAR_TYPES[self.cursor.take().text]
            parts = self.list_of(self.complex_part)
            if len(parts) != 2:
                raise self.cursor.fail("the real and the imaginary part", token)
            return Literal(complex(*parts), scalar)
        raise self.cursor.fail("an atom: a name or a literal with its type, such as 1i32", start)

    def number(self, negative: bool) -> Literal:
        token = self.cursor.take()
        if token.suffix is None:
            raise self.cursor.fail(f"a type after the number, such as {token.text}i64", token)
        scalar = SCALAR_TYPES.get(token.suffix)
        sign = -1 if negative else 1
        if scalar is not None and scalar.is_float:
            return Literal(sign * float(token.text), scalar)
        if scalar is not None and scalar.is_integer and token.text.isdecimal():
            return Literal(sign * int(token.text), scalar)
        raise self.cursor.fail("a number of an integer or float type", token)

    def complex_part(self) -> float:
        sign = -1 if self.cursor.accept("-") else 1
        if self.cursor.at("inf", "nan") or (self.cursor.peek().kind == "number" and not self.cursor.peek().suffix):
            return sign * float(self.cursor.take().text)
        raise self.cursor.fail("a number without a type, inf or nan")

    # expressions

    def line(self) -> str:
        """Where the cursor is, for messages of a program that runs."""
        return f"line {self.cursor.peek().line}"

    def expression(self) -> Expression:
        token, line = self.cursor.peek(), self.line()
        if token.kind == "name" and token.text in CONSTRUCTS:
            return self.construct(self.cursor.take().text)
        if token.kind == "name" and token.text not in _COMPLEX and self.cursor.at("(", ahead=1):
            return self.call()
        if not self.cursor.at_name():
            return self.after_atom(self.literal())
        variable = self.variable()
        if self.cursor.at("["):
            return self.subscript(variable)
        if self.cursor.accept("with"):
            indices = self.list_of(self.atom, "[", "]")
            self.cursor.expect("=")
            return nodes.Update(variable, indices, self.atom(), line)
        return self.after_atom(variable)

    def call(self) -> Expression:
        """operator(atoms), or size(SIZE)."""
        token = self.cursor.take()
        if token.text == "size":
            self.cursor.expect("(")
            value = self.size()
            self.cursor.expect(")")
            return nodes.SizeValue(value)
        if token.text not in OPERATORS:
            raise self.cursor.fail("an expression that begins with an operator or a word of the language", token)
        return nodes.Apply(token.text, self.atoms())

    def after_atom(self, first: Atom) -> Expression:
        if self.cursor.accept("as"):
            return nodes.Cast(self.scalar(), first)
        if self.cursor.at(*INFIX):
            operator = INFIX[self.cursor.take().text]
            return nodes.Apply(operator, (first, self.atom()))
        return nodes.Alias(first)

    def subscript(self, array: Variable) -> Expression:
        ahead, line = 1, self.line()
        while not self.cursor.at("]", ":+", ahead=ahead) and self.cursor.peek(ahead).kind != "end":
            ahead += 1
        if not self.cursor.at(":+", ahead=ahead):
            return nodes.Index(array, self.list_of(self.atom, "[", "]"), line)
        if ahead == 1:  # x[:+], the slice of no dimension
            self.cursor.expect("[")
            self.cursor.expect(":+")
            self.cursor.expect("]")
            return nodes.Slice(array, ())
        return nodes.Slice(array, self.list_of(self.slice_dimension, "[", "]"), line)

    def slice_dimension(self) -> nodes.SliceDimension:
        start = self.size()
        self.cursor.expect(":+")
        count = self.size()
        return nodes.SliceDimension(start, count, self.cursor.expect_integer() if self.cursor.accept("by") else 1)

    def construct(self, word: str) -> Expression:
        """The expression that begins with a word of the language, which was just read."""
        match word:
            case "if":
                condition = self.atom()
                self.cursor.expect("then")
                then = self.body()
                self.cursor.expect("else")
                return nodes.If(condition, then, self.body())
            case "loop":
                return self.loop()
            case "threshold":
                return nodes.Threshold(self.cursor.expect_name("the threshold's name"), self.size_argument())
            case "iota":
                return nodes.Iota(self.size_argument(), self.scalar())
            case "replicate":
                return nodes.Replicate(self.size_argument(), self.atom())
            case "concat":
                return nodes.Concat(self.cursor.expect_integer("an axis"), self.variables())
            case "reshape":
                shape = self.list_of(self.size)
                return nodes.Reshape(self.variable(), shape)
            case "rearrange":
                permutation = self.list_of(self.cursor.expect_integer)
                return nodes.Rearrange(self.variable(), permutation)
            case "copy":
                return nodes.Copy(self.variable(), self.level() if self.cursor.at("@") else None)
            case "scatter":
                return nodes.Scatter(self.variable(), self.variable(), self.variable())
            case "hist":
                destinations = self.list_of(self.variable)
                return nodes.Hist(destinations, self.function(), self.atoms(), self.variable(), self.variables())
            case _ if word.startswith("seg"):
                return self.segmented(word)
            case _:
                return self.combinator(word)

    def combinator(self, word: str) -> Expression:
        width, commutative = self.size_argument(), word.endswith("_comm")
        match word.removesuffix("_comm"):
            case "map":
                return nodes.Map(width, self.function(), self.variables())
            case "stream_seq":
                return nodes.StreamSeq(width, self.size_argument(), self.function(), self.atoms(), self.variables())
            case "offset_folds":
                head = self.size_argument(), self.variable(), self.function(), self.function(), self.atoms()
                result, arrays = self.function(), self.variables()
                self.cursor.expect("else")
                return nodes.OffsetFolds(width, *head, result, arrays, self.body())
            case "sweep" | "sweep_totals":
                scan = self.function(), self.function(), self.atoms(), self.function()
                return nodes.Sweep(width, *scan, self.list_of(self.variable), self.variables(), word == "sweep_totals")
            case "reduce":
                return nodes.Reduce(width, self.function(), self.atoms(), self.variables(), commutative)
            case "scan":
                return nodes.Scan(width, self.function(), self.atoms(), self.variables())
            case "redomap":
                return nodes.Redomap(
                    width, self.function(), self.atoms(), self.function(), self.variables(), commutative
                )
            case _:
                return nodes.Scanomap(width, self.function(), self.atoms(), self.function(), self.variables())

    def loop(self) -> nodes.Loop:
        parameters = self.list_of(self.binding)
        self.cursor.expect("=")
        initial = self.atoms()
        if self.cursor.accept("while"):
            condition = self.function()
            self.cursor.expect("do")
            return nodes.Loop(parameters, initial, nodes.WhileLoop(condition), self.body(*parameters))
        if not self.cursor.accept("for"):
            raise self.cursor.fail("'for' or 'while'")
        index, bound = self.dimension()
        self.cursor.expect("do")
        return nodes.Loop(parameters, initial, nodes.ForLoop(index, bound), self.body(*parameters, index))

    def level(self) -> nodes.Level:
        self.cursor.expect("@")
        if not self.cursor.at(*_LEVELS):
            raise self.cursor.fail(f"a level ({', '.join(_LEVELS)})")
        return _LEVELS[self.cursor.take().text]

    def dimension(self) -> tuple[Variable, Size]:
        index = self.binding()
        self.cursor.expect("<")
        return index, self.size()

    def segmented(self, word: str) -> Expression:
        level = self.level()
        space = nodes.SegSpace(self.list_of(self.dimension))
        destinations = self.list_of(self.variable) if word == "seghist" else ()
        if word == "segmap":
            return nodes.SegMap(level, space, self.segment_body(space))
        combine, neutral = self.function(), self.atoms()
        body = self.segment_body(space)
        match word:
            case "seghist":
                return nodes.SegHist(level, space, destinations, combine, neutral, body)
            case "segscan":
                return nodes.SegScan(level, space, combine, neutral, body)
            case _:
                return nodes.SegRed(level, space, combine, neutral, body, word == "segred_comm")

    def segment_body(self, space: nodes.SegSpace) -> Body:
        self.cursor.expect("do")
        return self.body(*(index for index, _ in space.dimensions))
