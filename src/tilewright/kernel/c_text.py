"""Statements and expressions of the kernel language as C, for the OpenCL and CUDA printers.

`print_body` gives the lines of a kernel's body and the helper functions that they call; a printer puts its own
signature and arrays around them. What a language does differently is in its `Dialect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, F64, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.c_dialect import PREFIX, RELATION, Dialect, Helpers, Piece, literal
from tilewright.kernel.c_expressions import ExpressionPrinter
from tilewright.kernel.c_names import NameTable, name_table
from tilewright.kernel.c_operators import FUNCTIONS, infix, operator_text
from tilewright.kernel.ir import Buffer, Constant, Expression, Statement
from tilewright.kernel.ranges import kernel_ranges
from tilewright.kernel.tiles import TileLoad, TileMultiply, TileStore, TileZero
from tilewright.kernel.traversal import depends_on, expressions, expressions_in, walk


@dataclass(frozen=True)
class CText:
    """The printed parts of a kernel: the lines of its body, its helper functions, and the spelling of its names."""

    lines: tuple[str, ...]
    helpers: Helpers
    names: NameTable


def print_body(kernel: ir.Kernel, dialect: Dialect) -> CText:
    """Print the body of a kernel, one level indented.

    Raises:
        TypeError: for complex values, values of f16 or bf16, workspace arrays, or vectors that the language lacks.
        ValueError: for a name that is used where it is not bound, or an array without a size.
    """
    check_buffers(kernel)
    names = name_table(kernel)
    bound: dict[str, ir.ValueType] = {scalar.name: scalar.type for scalar in kernel.scalars}
    printer = _Printer(ExpressionPrinter(kernel, dialect, names, kernel_ranges(kernel), bound=bound), dialect)
    printer.indices()
    printer.block(kernel.body)
    return CText(tuple(printer.lines), printer.values.helpers, names)


def all_expressions(kernel: ir.Kernel) -> Iterator[Expression]:
    """Every distinct expression object in the kernel's body, outside in."""
    seen: set[int] = set()
    for statement in walk(kernel.body):
        pending = list(expressions(statement))
        while pending:
            expression = pending.pop()
            if id(expression) not in seen:
                seen.add(id(expression))
                yield expression
                pending.extend(expressions(expression))


def uses_f64(kernel: ir.Kernel) -> bool:
    """True if any buffer, scalar or value of the kernel is f64."""
    held = [buffer.element for buffer in (*kernel.buffers, *kernel.arrays)] + [s.type for s in kernel.scalars]
    return F64 in held or any(ir.element_of(expression.type) == F64 for expression in all_expressions(kernel))


def widest_access(kernel: ir.Kernel, buffer: Buffer) -> int:
    """The bytes of the largest aligned access to a buffer, which the buffer's own alignment must allow; 0: none."""
    lanes = [0]
    for statement in walk(kernel.body):
        if isinstance(statement, ir.Store) and statement.buffer == buffer and statement.aligned:
            type_ = statement.value.type
            lanes.append(type_.lanes if isinstance(type_, ir.VectorType) else 1)
    for expression in all_expressions(kernel):
        if isinstance(expression, ir.Load) and expression.buffer == buffer and expression.aligned:
            lanes.append(expression.type.lanes if isinstance(expression.type, ir.VectorType) else 1)
    return max(lanes) * buffer.element.bytes


def check_buffers(kernel: ir.Kernel) -> None:
    """Refuse buffers that a GPU kernel cannot have.

    Raises:
        TypeError: for a workspace array or a parameter that is not global.
        ValueError: for a local array without a size.
    """
    for buffer in kernel.buffers:
        if buffer.space is not ir.Space.GLOBAL:
            raise TypeError(f"parameter {buffer.name} of kernel {kernel.name} is in {buffer.space.value} memory")
    for array in kernel.arrays:
        if array.space not in (ir.Space.SHARED, ir.Space.PRIVATE):
            raise TypeError(f"array {array.name} of kernel {kernel.name}: no {array.space.value} arrays on a GPU")
        if array.size is None or array.size < 1:
            raise ValueError(f"array {array.name} of kernel {kernel.name} needs a positive size, not {array.size}")


@dataclass
class _Printer:
    """The text being built: statements here, their expressions by `values`."""

    values: ExpressionPrinter
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    mutable: set[str] = field(default_factory=set)
    depth: int = 1

    def line(self, text: str) -> None:
        """Append a line at the present depth."""
        self.lines.append("    " * self.depth + text)

    def indices(self) -> None:
        """Name the block and thread index, in each type in which the body uses them."""
        everything = all_expressions(self.values.kernel)
        used = {(type(e), e.type) for e in everything if isinstance(e, ir.BlockIndex | ir.ThreadIndex)}
        for kind, builtin in ((ir.BlockIndex, self.dialect.block), (ir.ThreadIndex, self.dialect.thread)):
            for type_ in sorted((t for k, t in used if k is kind), key=str):
                spelled = self.dialect.type_name(type_)
                self.line(f"const {spelled} {self.values.index_name(kind, type_)} = ({spelled}){builtin};")

    def block(self, body: tuple[Statement, ...]) -> None:
        """Print statements; the names that they bind are gone afterwards."""
        outside, mutable = dict(self.values.bound), set(self.mutable)
        for statement in body:
            self.statement(statement)
        self.values.bound, self.mutable = outside, mutable

    def nested(self, body: tuple[Statement, ...]) -> None:
        """Print statements one level deeper."""
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def statement(self, statement: Statement) -> None:
        """Print one statement."""
        match statement:
            case ir.Let(name=name, value=value):
                self.line(f"const {self.declared(name, value)};")
            case ir.Declare(name=name, value=value):
                self.line(f"{self.declared(name, value)};")
                self.mutable.add(name)
            case ir.Assign(name=name, value=value):
                if name not in self.mutable:
                    raise ValueError(f"kernel {self.values.kernel.name} assigns to {name}, which is not declared there")
                self.line(f"{self.values.names.values[name]} = {self.values.text(value).code};")
            case ir.Store():
                self.line(self.values.store(statement))
            case ir.AtomicUpdate(old=old, value=value):
                update = self.values.atomic(statement)
                self.values.bound[old] = value.type
                spelled = self.dialect.type_name(value.type)
                self.line(f"const {spelled} {self.values.names.values[old]} = {update};")
            case ir.Prefetch(buffer=buffer):
                raise TypeError(f"buffer {buffer.name} is prefetched, in CPU kernels only")
            case TileZero() | TileLoad() | TileStore() | TileMultiply():
                raise TypeError("there are tiles in CPU kernels only")
            case ir.For():
                self.loop(statement)
            case ir.While():
                self.while_loop(statement)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                self.line(f"if ({self.values.text(condition).code}) {{")
                self.nested(then)
                if otherwise:
                    self.line("} else {")
                    self.nested(otherwise)
                self.line("}")
            case ir.Barrier():
                self.line(f"{self.dialect.barrier};")
            case ir.Comment(text=text):
                for part in text.splitlines() or [""]:
                    self.line(f"// {part.rstrip().rstrip(chr(92))}".rstrip())

    def declared(self, name: str, value: Expression) -> str:
        """`type name = value`; the name is bound from here on."""
        code = self.values.text(value).code
        self.values.bound[name] = value.type
        return f"{self.dialect.type_name(value.type)} {self.values.names.values[name]} = {code}"

    def loop(self, statement: ir.For) -> None:
        """A for loop; bounds that the body might change are evaluated once, before it."""
        type_ = statement.start.type
        if isinstance(type_, ir.VectorType) or not type_.is_integer:
            name = self.values.kernel.name
            raise TypeError(f"loop {statement.index} of kernel {name} counts in {type_}; it needs integers")
        index, spelled = self.values.names.values[statement.index], self.dialect.type_name(type_)
        start = self.values.text(statement.start).code
        stop = self.fixed(statement.stop, type_, f"{index}_stop")
        step = self.fixed(statement.step, type_, f"{index}_step")
        advance = f"++{index}" if step.code.rstrip("uUlL") == "1" else f"{index} += {step.code}"
        if statement.unroll:
            self.line("#pragma unroll" if self.dialect.unrolls_calls or not _calls(statement) else "#pragma unroll 1")
        condition = infix(Piece(index), "<", stop, RELATION).code
        self.line(f"for ({spelled} {index} = {start}; {condition}; {advance}) {{")
        outside = dict(self.values.bound)
        self.values.bound[statement.index] = type_
        self.nested(statement.body)
        self.values.bound = outside
        self.line("}")

    def fixed(self, bound: Expression, type_: ScalarType, name: str) -> Piece:
        """A loop's stop or step: as it is where nothing in the loop can change it, else held in a variable."""
        if isinstance(bound, Constant):
            return literal(self.dialect, bound.value, type_)
        piece = self.values.text(bound) if bound.type == type_ else self.values.cast(ir.Cast(bound, type_))
        if not depends_on(bound, self.mutable):
            return piece
        self.line(f"const {self.dialect.type_name(type_)} {PREFIX}{name} = {piece.code};")
        return Piece(f"{PREFIX}{name}")

    def while_loop(self, statement: ir.While) -> None:
        """A while loop; with a prelude, an endless one that is left in its middle."""
        if not statement.prelude:
            self.line(f"while ({self.values.text(statement.condition).code}) {{")
            self.nested(statement.body)
            self.line("}")
            return
        self.line("for (;;) {")
        self.depth += 1
        outside, mutable = dict(self.values.bound), set(self.mutable)
        for inner in statement.prelude:
            self.statement(inner)
        negated = operator_text(self.dialect, self.values.helpers, "not", BOOL, [self.values.text(statement.condition)])
        self.line(f"if ({negated.code}) break;")
        self.block(statement.body)
        self.values.bound, self.mutable = outside, mutable
        self.depth -= 1
        self.line("}")


def _calls(loop: ir.For) -> bool:
    """Whether a loop calls a mathematical function; `fma` is an instruction."""
    called = FUNCTIONS.keys() - {"fma"}
    return any(isinstance(one, ir.Operation) and one.operator in called for one in expressions_in(loop.body))
