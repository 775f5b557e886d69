"""Expressions of the kernel language as C: scalars inline, vectors natively or by one helper function per operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BF16, BOOL, F16, I32, U32, ScalarType, compute_type
from tilewright.kernel import ir
from tilewright.kernel.c_dialect import EQUALITY, PREFIX, PRIMARY, Access, Dialect, Helpers, Piece, cast_piece, literal
from tilewright.kernel.c_names import NameTable
from tilewright.kernel.c_operators import FUNCTIONS, Facts, call, infix, operator_text
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.ir import Buffer, Constant, Expression, Name
from tilewright.kernel.ranges import Ranges

_NATIVE_ON_VECTORS = {"add", "sub", "mul", "div", "neg"} | set(FUNCTIONS)


@dataclass
class ExpressionPrinter:
    """Prints the expressions of one kernel. `bound` holds the names in scope, `helpers` grows with what is used."""

    kernel: ir.Kernel
    dialect: Dialect
    names: NameTable
    ranges: Ranges
    helpers: Helpers = field(default_factory=dict)
    bound: dict[str, ir.ValueType] = field(default_factory=dict)

    def index_name(self, kind: type[ir.BlockIndex] | type[ir.ThreadIndex], type_: ScalarType) -> str:
        """The variable that holds the block or thread index in a type."""
        base = self.names.thread if kind is ir.ThreadIndex else self.names.block
        return base if type_ == self.kernel.index_type else f"{PREFIX}{base}_{type_}"

    def access(self, buffer: Buffer, index: Expression, type_: ir.ValueType, aligned: bool) -> Access:
        """The printable form of an access, checked."""
        if buffer.name not in self.names.buffers:
            raise ValueError(f"kernel {self.kernel.name} accesses {buffer.name}, which is none of its buffers")
        held = compute_type(buffer.element)
        if ir.element_of(type_) != held:
            raise TypeError(f"buffer {buffer.name} holds {held} values; kernel {self.kernel.name} accesses {type_}")
        self.dialect.type_name(type_)
        return Access(buffer, self.names.buffers[buffer.name], self.text(index), type_, aligned)

    def store(self, statement: ir.Store) -> str:
        """A store, as one statement."""
        if statement.buffer.read_only:
            raise ValueError(f"kernel {self.kernel.name} stores to {statement.buffer.name}, which is read-only")
        if statement.mask is not None:
            raise TypeError(f"a store to buffer {statement.buffer.name} is masked, in CPU kernels only")
        value, buffer = statement.value, statement.buffer
        access = self.access(buffer, statement.index, value.type, statement.aligned)
        if statement.order is ir.Order.PLAIN:
            return self.dialect.store(self.helpers, access, self.text(value))
        access = self.coherent(access, statement.order)
        if statement.order is ir.Order.COHERENT:
            return self.dialect.store(self.helpers, access, self.text(value))
        return f"{call(self.ordered('tw_publish'), [Piece(access.pointer), self.text(value)]).code};"

    def coherent(self, access: Access, order: ir.Order) -> Access:
        """The access to what all blocks see."""
        buffer, where = access.buffer, f"buffer {access.buffer.name} of {access.buffer.element}"
        if (
            buffer.space is not ir.Space.GLOBAL
            or isinstance(access.type, ir.VectorType)
            or buffer.element in (F16, BF16)
        ):
            raise TypeError(f"{where}: only single elements in global memory, and no halves, are accessed coherently")
        if order is ir.Order.ORDERED and buffer.element != U32:
            raise TypeError(f"{where}: ordered accesses are to elements of type u32")
        return replace(access, name=f"(({self.dialect.coherent(buffer)}){access.name})", aligned=False)

    def ordered(self, name: str) -> str:
        """The function of an ordered access, defined."""
        self.helpers.setdefault(name, self.dialect.function + self.dialect.ordered[name])
        return name

    def atomic(self, statement: ir.AtomicUpdate) -> str:
        """An atomic update, as an expression that gives what was there."""
        buffer, value = statement.buffer, statement.value
        if statement.operator not in ir.ATOMIC_OPERATORS or buffer.element not in (I32, U32):
            raise TypeError(f"buffer {buffer.name} of {buffer.element}: no atomic {statement.operator}")
        if buffer.space not in (ir.Space.GLOBAL, ir.Space.SHARED) or buffer.read_only:
            raise TypeError(f"buffer {buffer.name} is updated atomically; no other thread can write to it")
        access = self.access(buffer, statement.index, value.type, False)
        place = f"&{access.name}[{access.index.code}]"
        return f"{self.dialect.atomic(statement.operator)}({place}, {self.text(value).code})"

    def text(self, expression: Expression) -> Piece:
        """Print one expression."""
        match expression:
            case Constant(value=value, type=scalar):
                return literal(self.dialect, value, scalar)
            case Name(name=name, type=type_):
                if self.bound.get(name) != type_:
                    found = f"of type {self.bound[name]}" if name in self.bound else "not bound there"
                    raise ValueError(f"kernel {self.kernel.name} uses {name} as {type_}, but it is {found}")
                parameter = type_ == BOOL and any(name == scalar.name for scalar in self.kernel.scalars)
                spelled = self.names.values[name]
                return Piece(f"{spelled} != 0", EQUALITY) if parameter else Piece(spelled)
            case ir.BlockIndex(after=True):
                raise TypeError("several blocks are one call in CPU kernels only")
            case ir.BlockIndex(type=scalar) | ir.ThreadIndex(type=scalar):
                return Piece(self.index_name(type(expression), scalar))
            case ir.Address(buffer=buffer):
                raise TypeError(f"the address of buffer {buffer.name} is known to CPU kernels only")
            case ir.Operation():
                return self.operation(expression)
            case ir.Cast():
                return self.cast(expression)
            case ir.Window() | ir.FirstLanes() | ir.PackedLanes() | ir.CountLanes() | ir.LaneNumbers() | ir.AnyLane():
                raise TypeError("lanes are numbered and masked in CPU kernels only")
            case Bits() | Dot():
                raise TypeError("several elements lie in one lane in CPU kernels only")
            case ir.Load():
                return self.load(expression)
            case ir.Broadcast(operand=operand, type=type_):
                return self.by_lane(type_, "splat", [operand], lambda parts, lane: parts[0])
            case ir.Lane(operand=operand, lane=lane, type=scalar):
                return self.dialect.lane(self.text(operand).at(PRIMARY), lane, scalar)
            case ir.Shuffle(first=first, second=second, lanes=lanes, type=type_):
                return self.shuffle(first, second, lanes, type_)

    def load(self, load: ir.Load) -> Piece:
        """A load, as an expression."""
        buffer = load.buffer
        if load.mask is not None:
            raise TypeError(f"a load of {load.type} from buffer {buffer.name} is masked, in CPU kernels only")
        if isinstance(load.index.type, ir.VectorType):
            raise TypeError(f"elements of buffer {buffer.name} are gathered, in CPU kernels only")
        access = self.access(buffer, load.index, load.type, load.aligned)
        if load.order is not ir.Order.PLAIN:
            access = self.coherent(access, load.order)
        if load.order is ir.Order.ORDERED:
            return call(self.ordered("tw_observe"), [Piece(access.pointer)])
        return self.dialect.load(self.helpers, access)

    def operation(self, operation: ir.Operation) -> Piece:
        """An operator, elementwise on vectors."""
        operands = operation.operands
        type_ = operands[-1].type
        if not isinstance(type_, ir.VectorType):
            pieces = [self.text(operand) for operand in operands]
            return operator_text(
                self.dialect, self.helpers, operation.operator, type_, pieces, self.facts(operation, type_)
            )
        native = self.dialect.native_vectors and type_.element.is_float
        if native and operation.operator in _NATIVE_ON_VECTORS:
            pieces = [self.text(operand) for operand in operands]
            return operator_text(self.dialect, self.helpers, operation.operator, type_.element, pieces)
        result = ir.VectorType(BOOL, type_.lanes) if operation.operator in ir.PREDICATES else type_
        return self.by_lane(
            result,
            operation.operator,
            list(operands),
            lambda parts, lane: operator_text(self.dialect, self.helpers, operation.operator, type_.element, parts),
        )

    def facts(self, operation: ir.Operation, type_: ScalarType) -> Facts:
        """What makes the text of an integer operation simpler."""
        if not type_.is_integer or operation.operator in ir.COMPARISONS:
            return Facts()
        right = operation.operands[-1]
        constant = int(right.value) if isinstance(right, Constant) else None
        if constant is not None and type_.kind == "u":
            constant &= (1 << type_.bits) - 1
        match operation.operator:
            case "add" | "sub" | "mul" | "neg":
                return Facts(fits=self.ranges.fits(operation))
            case "floordiv" | "mod":
                return Facts(plain_division=self.ranges.divides_plainly(operation), right=constant)
            case "shl" | "shr":
                return Facts(right=constant)
        return Facts()

    def cast(self, cast: ir.Cast) -> Piece:
        """A conversion; to bool it is a comparison with zero."""
        source, target = cast.operand.type, cast.type
        if source == target:
            return self.text(cast.operand)
        if isinstance(target, ir.VectorType):
            if not isinstance(source, ir.VectorType) or source.lanes != target.lanes:
                raise TypeError(f"cannot cast {source} to {target}")
            return self.by_lane(
                target,
                f"cast_{target}",
                [cast.operand],
                lambda parts, lane: self.convert(parts[0], source.element, target.element),
            )
        if isinstance(source, ir.VectorType):
            raise TypeError(f"cannot cast {source} to {target}")
        return self.convert(self.text(cast.operand), source, target)

    def convert(self, operand: Piece, source: ScalarType, target: ScalarType) -> Piece:
        """A conversion of a scalar."""
        if target == BOOL and source != BOOL:
            return infix(operand, "!=", literal(self.dialect, 0, source), EQUALITY)
        return cast_piece(self.dialect, target, operand)

    def shuffle(self, first: Expression, second: Expression, lanes: tuple[int, ...], type_: ir.VectorType) -> Piece:
        """Lanes of two vectors; the helper is named after the lanes that it picks."""
        source = first.type
        if not isinstance(source, ir.VectorType) or second.type != source or len(lanes) != type_.lanes:
            raise TypeError(f"cannot shuffle {source} and {second.type} into {type_} by lanes {lanes}")
        if not all(0 <= lane < 2 * source.lanes for lane in lanes):
            raise ValueError(f"lanes {lanes} of a shuffle of two {source} are out of range")
        names = [f"a_{lane}" if lane < source.lanes else f"b_{lane - source.lanes}" for lane in lanes]

        def pick(parts: list[Piece], lane: int) -> Piece:
            which, index = names[lane].split("_")
            return self.dialect.lane(which, int(index), source.element)

        return self.by_lane(type_, f"shuffle_{'_'.join(map(str, lanes))}", [first, second], pick)

    def by_lane(
        self, result: ir.VectorType, action: str, operands: list[Expression], part: Callable[[list[Piece], int], Piece]
    ) -> Piece:
        """A call of a helper function that builds a vector lane by lane; scalar operands are the same in all lanes."""
        types = [operand.type for operand in operands]
        name = f"{PREFIX}{action}_{types[-1]}" + (f"_{result.lanes}" if action == "splat" else "")
        if isinstance(types[-1], ir.VectorType) and not isinstance(types[0], ir.VectorType):
            name += "_by_scalar"
        if name not in self.helpers:
            parameters = [f"{self.dialect.type_name(t)} {letter}" for t, letter in zip(types, "abc", strict=False)]
            lanes = []
            for lane in range(result.lanes):
                parts = [
                    self.dialect.lane(letter, lane, t.element) if isinstance(t, ir.VectorType) else Piece(letter)
                    for t, letter in zip(types, "abc", strict=False)
                ]
                lanes.append(part(parts, lane))
            built = self.dialect.vector(result, lanes).code
            head = f"{self.dialect.function}{self.dialect.type_name(result)} {name}({', '.join(parameters)})"
            self.helpers[name] = f"{head} {{\n    return {built};\n}}"
        return call(name, [self.text(operand) for operand in operands])
