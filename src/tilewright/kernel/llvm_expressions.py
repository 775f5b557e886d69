"""LLVM instructions for the expressions of the kernel language: memory accesses, vectors, operators."""

from __future__ import annotations

from tilewright.ir.scalars import BF16, BOOL, F16, I64, ScalarType, compute_type
from tilewright.kernel import ir
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.ir import Buffer, Constant, Expression, Load, Name, Store, ValueType, VectorType, element_of
from tilewright.kernel.llvm_conversions import convert, float_to_half, half_to_float
from tilewright.kernel.llvm_dots import emit_dots
from tilewright.kernel.llvm_emitter import (
    INDEX,
    Emitter,
    lanes_of,
    literal,
    scalar_spelling,
    spelling,
    splat,
    suffix,
    vector_of,
)
from tilewright.kernel.llvm_lanes import emit_lanes
from tilewright.kernel.llvm_operators import Context, emit_operator

BLOCK, LAST = "%.block", "%.last"  # the registers of the index of the current block, and after the call's last: i64


def emit_expression(emitter: Emitter, node: Expression) -> str:
    """Print an expression; gives its register or literal.

    Raises:
        TypeError: where operands do not have the types that the node needs, with the names and types involved.
    """
    known = emitter.recall(id(node))
    return known if known is not None else emitter.remember(id(node), _emit(emitter, node))


def _emit(emitter: Emitter, node: Expression) -> str:
    match node:
        case Constant(value=value, type=type_):
            scalar_spelling(type_)
            return literal(value, type_)
        case Name(name=name, type=type_):
            return _name(emitter, name, type_)
        case ir.BlockIndex(type=type_, after=after):
            return convert(emitter, LAST if after else BLOCK, I64, type_)
        case ir.ThreadIndex():
            return "0"
        case ir.Address(buffer=buffer):
            return emitter.emit(f"ptrtoint ptr {buffer_register(buffer)} to i64", "address")
        case ir.Operation():
            return _operation(emitter, node)
        case ir.Cast(operand=operand, type=type_):
            if lanes_of(operand.type) != lanes_of(type_):
                raise TypeError(f"cannot cast {operand.type} to {type_}: the numbers of lanes differ")
            return convert(emitter, emit_expression(emitter, operand), operand.type, type_)
        case Load():
            refuse_order(node)
            return _load(emitter, node)
        case ir.Broadcast(operand=operand, type=type_):
            return _broadcast(emitter, operand, type_)
        case ir.Lane(operand=operand, lane=lane):
            vector = emit_expression(emitter, operand)
            if not 0 <= lane < lanes_of(operand.type):
                raise TypeError(f"lane {lane} of a value of type {operand.type} does not exist")
            return emitter.emit(f"extractelement {spelling(operand.type)} {vector}, i32 {lane}")
        case ir.FirstLanes(count=count, type=type_):
            return _first_lanes(emitter, count, type_)
        case ir.Window() | ir.PackedLanes() | ir.CountLanes() | ir.LaneNumbers() | ir.AnyLane():
            return emit_lanes(emitter, node, lambda operand: emit_expression(emitter, operand))
        case Bits() | Dot():
            return emit_dots(emitter, node, lambda operand: emit_expression(emitter, operand))
        case ir.Shuffle(first=first, second=second, lanes=lanes):
            text = spelling(first.type)
            if first.type != second.type or not lanes or not 0 <= min(lanes) <= max(lanes) < 2 * lanes_of(first.type):
                raise TypeError(f"cannot pick the lanes {lanes} from {first.type} and {second.type}")
            left, right = emit_expression(emitter, first), emit_expression(emitter, second)
            mask = f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
            return emitter.emit(f"shufflevector {text} {left}, {text} {right}, {mask}")


def _name(emitter: Emitter, name: str, type_: ValueType) -> str:
    if name in emitter.variables:
        slot, declared = emitter.variables[name]
        if declared != type_:
            raise TypeError(f"variable {name} of type {declared} is used as {type_}")
        return emitter.emit(f"load {spelling(type_)}, ptr {slot}", name)
    if name not in emitter.names:
        raise TypeError(f"the name {name!r} is used but neither bound nor a parameter")
    return emitter.names[name]


def _operation(emitter: Emitter, node: ir.Operation) -> str:
    operands = node.operands
    values = operands[1:] if node.operator == "select" else operands
    if not values or any(value.type != values[0].type for value in values):
        types = ", ".join(str(operand.type) for operand in operands)
        raise TypeError(f"operator {node.operator} needs operands of one type, got {types}")
    registers = [emit_expression(emitter, operand) for operand in operands]
    context = Context(emitter, values[0].type)
    if node.operator == "select":
        condition = operands[0].type
        if element_of(condition) != BOOL or lanes_of(condition) not in (0, context.lanes):
            raise TypeError(f"select needs a condition of type bool or one bool per lane, not {condition}")
        chosen, then, otherwise = registers
        return emitter.emit(f"select {spelling(condition)} {chosen}, {context.text} {then}, {context.text} {otherwise}")
    return emit_operator(context, node.operator, registers)


def _broadcast(emitter: Emitter, operand: Expression, type_: VectorType) -> str:
    element, text = scalar_spelling(type_.element), spelling(type_)
    if operand.type != type_.element:
        raise TypeError(f"cannot broadcast {operand.type} to {type_}")
    value = emit_expression(emitter, operand)
    if isinstance(operand, Constant):
        return splat(value, element, type_.lanes)
    if emitter.target.is_arm and isinstance(operand, Load):
        # Arm's multiply-adds take one factor from a lane for free, while a load into all lanes also occupies a vector
        # unit (Arm, Neoverse N1 Software Optimization Guide, LD1R). LLVM would join load and broadcast; this keeps
        # them apart.
        value = emitter.emit(f"freeze {element} {value}")
    first = emitter.emit(f"insertelement {text} poison, {element} {value}, i32 0")
    return emitter.emit(f"shufflevector {text} {first}, {text} poison, <{type_.lanes} x i32> zeroinitializer")


def _first_lanes(emitter: Emitter, count: Expression, type_: VectorType) -> str:
    if count.type != I64 or type_.element != BOOL:
        raise TypeError(f"the first lanes of {type_} are counted by an i64 and are bools, not {count.type}")
    text = vector_of("i32", type_.lanes)
    narrow = emitter.emit(f"trunc i64 {emit_expression(emitter, count)} to i32")
    first = emitter.emit(f"insertelement {text} poison, i32 {narrow}, i32 0")
    every = emitter.emit(f"shufflevector {text} {first}, {text} poison, <{type_.lanes} x i32> zeroinitializer")
    lanes = ", ".join(f"i32 {lane}" for lane in range(type_.lanes))
    return emitter.emit(f"icmp ugt {text} {every}, <{lanes}>")


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_spelling(element: ScalarType, target_has_half: bool) -> str:
    """LLVM's name of one element in memory."""
    if element == BOOL:
        return "i8"
    if element == F16 and target_has_half:
        return "half"
    return "i16" if element in (F16, BF16) else scalar_spelling(element)


def buffer_register(buffer: Buffer) -> str:
    """The register that holds a buffer's address."""
    return f"%{buffer.name}"


def element_spelling(emitter: Emitter, buffer: Buffer) -> str:
    """LLVM's name of one element of a buffer."""
    return memory_spelling(buffer.element, emitter.target.has_half_conversion)


def element_address(emitter: Emitter, buffer: Buffer, index: Expression, inside: bool = True) -> str:
    """Print where an element of a buffer lies; gives the register of the address. Where it need not lie `inside` the
    buffer, LLVM is not told so.
    """
    if not isinstance(index.type, ScalarType) or not index.type.is_integer:
        raise TypeError(f"the index into buffer {buffer.name} has type {index.type}, not an integer type")
    position = convert(emitter, emit_expression(emitter, index), index.type, I64)
    element = element_spelling(emitter, buffer)
    kind = "getelementptr inbounds" if inside else "getelementptr"
    return emitter.emit(f"{kind} {element}, ptr {buffer_register(buffer)}, {INDEX} {position}", "p")


def _access(
    emitter: Emitter, buffer: Buffer, index: Expression, value: ValueType, aligned: bool, inside: bool
) -> tuple[str, str]:
    """The address and the trailing attributes of an access; the address is emitted."""
    lanes = lanes_of(value)
    if element_of(value) != compute_type(buffer.element):
        raise TypeError(f"buffer {buffer.name} of {buffer.element} cannot be accessed as {value}")
    address = element_address(emitter, buffer, index, inside)
    whole = max(lanes, 1) * buffer.element.bytes
    is_whole = aligned and whole.bit_count() == 1
    attributes = f", align {whole if is_whole else buffer.element.bytes}"
    if emitter.access_groups and buffer.space is not ir.Space.PRIVATE:
        groups = emitter.access_groups
        node = groups[0] if len(groups) == 1 else emitter.node(f"!{{{', '.join(groups)}}}")
        attributes += f", !llvm.access.group {node}"
    return address, attributes


def _load(emitter: Emitter, node: Load) -> str:
    buffer, lanes = node.buffer, lanes_of(node.type)
    memory = memory_spelling(buffer.element, emitter.target.has_half_conversion)
    if isinstance(node.index.type, VectorType):
        return _read(emitter, node, _gather(emitter, node, memory), memory)
    address, attributes = _access(emitter, buffer, node.index, node.type, node.aligned, node.mask is None)
    if node.mask is None:
        raw = emitter.emit(f"load {vector_of(memory, lanes)}, ptr {address}{attributes}", buffer.name)
    else:
        raw = _masked_load(emitter, node, vector_of(memory, lanes), address)
    return _read(emitter, node, raw, memory)


def _read(emitter: Emitter, node: Load, raw: str, memory: str) -> str:
    """What is loaded as elements of memory, as values."""
    buffer, lanes = node.buffer, lanes_of(node.type)
    if buffer.element == BOOL:
        return emitter.emit(f"icmp ne {vector_of('i8', lanes)} {raw}, {splat('0', 'i8', lanes)}")
    if memory == "half":
        return emitter.emit(f"fpext {vector_of('half', lanes)} {raw} to {vector_of('float', lanes)}")
    if buffer.element in (F16, BF16):
        return half_to_float(emitter, buffer.element, raw, lanes)
    return raw


def _gather(emitter: Emitter, node: Load, memory: str) -> str:
    """An element for each lane: LLVM's intrinsic, an instruction where the processor has a fast one."""
    buffer, lanes, places = node.buffer, lanes_of(node.type), node.index.type
    element = compute_type(buffer.element)
    if node.type != VectorType(element, lanes) or places != VectorType(I64, lanes):
        raise TypeError(
            f"lanes of {node.type} cannot be gathered from buffer {buffer.name} at indices of type {places}"
        )
    text, bools = vector_of(memory, lanes), vector_of("i1", lanes)
    mask = splat("true", "i1", lanes) if node.mask is None else _mask(emitter, node.mask, node.type, buffer)
    index = emit_expression(emitter, node.index)
    kind = "getelementptr inbounds" if node.mask is None else "getelementptr"
    place = f"{kind} {memory}, ptr {buffer_register(buffer)}, {spelling(places)} {index}"
    pointers = vector_of("ptr", lanes)
    return emitter.call(
        f"llvm.masked.gather.{suffix(text)}.v{lanes}p0",
        text,
        (pointers, emitter.emit(place, "p")),
        ("i32", str(buffer.element.bytes)),
        (bools, mask),
        (text, "zeroinitializer"),
    )


def _mask(emitter: Emitter, mask: Expression, value: ValueType, buffer: Buffer) -> str:
    if lanes_of(value) < 2 or mask.type != VectorType(BOOL, lanes_of(value)):
        raise TypeError(f"an access of {value} to buffer {buffer.name} has a mask of type {mask.type}")
    return emit_expression(emitter, mask)


def _masked_load(emitter: Emitter, node: Load, text: str, address: str) -> str:
    """LLVM's intrinsic: an instruction where the processor has one, else a branch for each lane."""
    assert node.mask is not None
    mask = _mask(emitter, node.mask, node.type, node.buffer)
    return emitter.call(
        f"llvm.masked.load.{suffix(text)}.p0",
        text,
        ("ptr", address),
        ("i32", str(node.buffer.element.bytes)),
        (vector_of("i1", lanes_of(node.type)), mask),
        (text, "zeroinitializer"),
    )


def emit_prefetch(emitter: Emitter, buffer: Buffer, index: Expression, level: int) -> None:
    """Print a prefetch for reading, into the cache of a level and those beyond it."""
    address = element_address(emitter, buffer, index, inside=False)
    emitter.declarations.setdefault(
        "llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)"
    )
    emitter.effect(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 {4 - level}, i32 1)")


def refuse_order(node: Load | Store) -> None:
    """Refuse what no kernel for a CPU does: its blocks wait for none another."""
    if node.order is not ir.Order.PLAIN:
        raise TypeError(f"{node.order.value} accesses, in GPU kernels only: buffer {node.buffer.name}")


def emit_store(emitter: Emitter, node: Store) -> None:
    """Print a store: the value in the buffer's element type, aligned and past the cache where asked."""
    buffer, type_ = node.buffer, node.value.type
    refuse_order(node)
    if buffer.read_only:
        raise TypeError(f"buffer {buffer.name} is read-only and is stored to")
    lanes = lanes_of(type_)
    value = emit_expression(emitter, node.value)
    address, attributes = _access(emitter, buffer, node.index, type_, node.aligned, node.mask is None)
    memory = memory_spelling(buffer.element, emitter.target.has_half_conversion)
    if buffer.element == BOOL:
        value = emitter.emit(f"zext {vector_of('i1', lanes)} {value} to {vector_of('i8', lanes)}")
    elif memory == "half":
        value = emitter.emit(f"fptrunc {vector_of('float', lanes)} {value} to {vector_of('half', lanes)}")
    elif buffer.element in (F16, BF16):
        value = float_to_half(emitter, buffer.element, value, lanes)
    if emitter.target.is_arm and lanes * buffer.element.bytes * 8 > emitter.target.vector_bits:
        # LLVM would join interleaving and storing to one instruction (ST2), which wants its registers side by side,
        # and would keep them so in the loops that compute them, with copies and spills there; this prevents it.
        value = emitter.emit(f"freeze {vector_of(memory, lanes)} {value}")
    if node.mask is not None:
        text, mask = vector_of(memory, lanes), _mask(emitter, node.mask, type_, buffer)
        name, bits = f"llvm.masked.store.{suffix(text)}.p0", vector_of("i1", lanes)
        emitter.declarations.setdefault(name, f"declare void @{name}({text}, ptr, i32 immarg, {bits})")
        alignment = buffer.element.bytes
        emitter.effect(f"call void @{name}({text} {value}, ptr {address}, i32 {alignment}, {bits} {mask})")
        return
    if node.nontemporal and node.aligned and lanes > 1:
        attributes += f", !nontemporal {emitter.node('!{i32 1}')}"
        emitter.writes_around_cache = True
    emitter.effect(f"store {vector_of(memory, lanes)} {value}, ptr {address}{attributes}")
