"""The LLVM form of a kernel: text that the in-process JIT compiles for a CPU.

Calling convention of the function that a kernel `NAME` becomes:

    void NAME(ptr arguments, i64 first_block, i64 last_block, ptr workspace)

`arguments` points to slots of 8 bytes: first the addresses of the buffers, then the scalar parameters, each at the
start of its slot (little-endian; bool as a byte 0 or 1). The body runs for BlockIndex = first_block .. last_block-1.
`workspace` points to `Kernel.workspace_bytes` bytes aligned to 64, private to the caller's thread.

NAME itself only loads the slots and calls NAME.body, where the buffers are `noalias` parameters: the strongest way to
tell LLVM that they do not overlap. The one permitted overlap (an input that is the output, element by element) is
harmless: an element is read before it is written, and the value written depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.constant_tests import has_constant_tests
from tilewright.kernel.ir import Constant, Expression, Kernel, Statement, Store, VectorType
from tilewright.kernel.llvm_emitter import CpuTarget, Emitter, literal, scalar_spelling, spelling
from tilewright.kernel.llvm_expressions import (
    BLOCK,
    buffer_register,
    element_address,
    element_spelling,
    emit_expression,
    emit_prefetch,
    emit_store,
)
from tilewright.kernel.llvm_operators import LIBRARY_SYMBOLS
from tilewright.kernel.llvm_tiles import configure_tiles, emit_tiles
from tilewright.kernel.llvm_vector_math import calls_vectors
from tilewright.kernel.neighbours import vector_bits
from tilewright.kernel.tiles import TileLoad, TileMultiply, TileStore, TileZero

__all__ = ["CpuTarget", "llvm_text"]

STACK_LIMIT = 1 << 20
WORKSPACE = "%.workspace"
CONSTANT_TESTS = "; innermost loops have tests that are the same in all rounds"
"""The first line of a text of which that is so."""


def llvm_text(kernel: Kernel, target: CpuTarget) -> str:
    """The kernel as LLVM IR for one CPU (calling convention: see this module).

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Store, load, operation
        >>> x = Buffer("x", F32)
        >>> double = operation("add", load(x, BlockIndex()), load(x, BlockIndex()))
        >>> text = llvm_text(Kernel("double", (x,), (), (), (Store(x, BlockIndex(), double),)), CpuTarget("x86_64"))
        >>> "fadd contract float" in text
        True

    Raises:
        TypeError: if the kernel has more than one thread per block or a barrier, or is not well typed.
        ValueError: if its private arrays do not fit on a stack, or its name is that of a C library function.
    """
    if kernel.threads_per_block != 1:
        raise TypeError(f"kernel {kernel.name} has {kernel.threads_per_block} threads per block; a CPU runs 1")
    if kernel.name in LIBRARY_SYMBOLS:
        raise ValueError(f"kernel {kernel.name} has the name of a C function that kernels call; choose another")
    emitter = Emitter(target, mixed=kernel.scalar_loops)
    _arrays(emitter, kernel)
    emitter.names = {scalar.name: f"%{scalar.name}" for scalar in kernel.scalars}
    if any(isinstance(one, ir.Let) and one.value == ir.BlockIndex(after=True) for one in kernel.body):
        emitter.effect(f"{BLOCK} = add i64 %.first, 0")
        _body(emitter, kernel.body)
    else:
        blocks = ("%.first", "%.last", "1")
        _counted_loop(emitter, "block", "i64", blocks, body=lambda: _body(emitter, kernel.body), index=BLOCK)
    if emitter.writes_around_cache and target.is_x86:
        # Stores past the cache are ordered with nothing else until this.
        emitter.declarations["llvm.x86.sse.sfence"] = "declare void @llvm.x86.sse.sfence()"
        emitter.effect("call void @llvm.x86.sse.sfence()")
    if emitter.has_tiles:
        configure_tiles(emitter)
    emitter.effect("ret void")
    marks = [CONSTANT_TESTS] if has_constant_tests(kernel.body) else []
    return "\n".join((*marks, *_module(emitter, kernel))) + "\n"


# --- the module around the body ---------------------------------------------------------------------------------------


def _parameters(kernel: Kernel) -> list[tuple[str, str, str]]:
    """(type, attributes, register) of the body's own parameters in the order of the slots."""
    parameters = []
    for buffer in kernel.buffers:
        attributes = " noalias nonnull" + (" readonly" if buffer.read_only else "")
        alignment = max(buffer.alignment, buffer.element.bytes)
        parameters.append(("ptr", f"{attributes} align {alignment}", buffer_register(buffer)))
    for scalar in kernel.scalars:
        parameters.append((scalar_spelling(scalar.type), "", f"%{scalar.name}"))
    return parameters


def _module(emitter: Emitter, kernel: Kernel) -> list[str]:
    parameters = _parameters(kernel)
    signature = [f"{type_}{attributes} {register}" for type_, attributes, register in parameters]
    common = ["i64 %.first", "i64 %.last", f"ptr noalias align 64 {WORKSPACE}"]
    bits = vector_bits(kernel, emitter.target.preferred_vector_bits, emitter.target.loads_two_lines)
    # Vectors are kept on the stack around a call. LLVM begins the frame with one only if it is told to; else they lie
    # across two cache lines in three processes of four, and each call takes 5 to 15 nanoseconds more.
    frame = ' "stackrealign"' if calls_vectors(emitter) else ""
    return [
        f"; kernel {kernel.name}",
        f'target triple = "{emitter.target.triple}"',
        "",
        f"define void @{kernel.name}(ptr %.arguments, i64 %.first, i64 %.last, ptr {WORKSPACE}) #0 {{",
        *_unpack(kernel),
        "}",
        "",
        f"define internal void @{kernel.name}.body({', '.join(signature + common)}) #0{frame} {{",
        "entry:",
        *emitter.allocations,
        *emitter.lines,
        "}",
        "",
        *sorted(emitter.declarations.values()),
        *_kept(emitter),
        "",
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" }}',
        # The C library's functions as we use them: they neither read nor write memory that we could see.
        "attributes #1 = { nounwind willreturn memory(none) }",
        *emitter.metadata,
    ]


def _kept(emitter: Emitter) -> list[str]:
    """Keep declarations that only an attribute names, for LLVM drops those that nothing calls."""
    if not emitter.kept:
        return []
    names = ", ".join(f"ptr @{name}" for name in sorted(emitter.kept))
    array = f"[{len(emitter.kept)} x ptr] [{names}]"
    return [f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"']


def _unpack(kernel: Kernel) -> list[str]:
    """The lines of NAME: load the slots, call NAME.body."""
    lines, arguments = [], []
    types = [("ptr", None) for _ in kernel.buffers] + [(scalar_spelling(s.type), s.type) for s in kernel.scalars]
    for slot, (type_, scalar) in enumerate(types):
        lines.append(f"  %slot.{slot} = getelementptr inbounds i64, ptr %.arguments, i64 {slot}")
        if scalar == BOOL:
            lines.append(f"  %byte.{slot} = load i8, ptr %slot.{slot}, align 8")
            lines.append(f"  %value.{slot} = icmp ne i8 %byte.{slot}, 0")
        else:
            lines.append(f"  %value.{slot} = load {type_}, ptr %slot.{slot}, align 8")
        arguments.append(f"{type_} %value.{slot}")
    arguments += ["i64 %.first", "i64 %.last", f"ptr {WORKSPACE}"]
    return [*lines, f"  call void @{kernel.name}.body({', '.join(arguments)})", "  ret void"]


def _arrays(emitter: Emitter, kernel: Kernel) -> None:
    """Private (and, with one thread per block, shared) arrays on the stack; workspace arrays at constant offsets."""
    offset = stack = 0
    for array in kernel.arrays:
        if array.size is None or array.space is ir.Space.GLOBAL:
            raise TypeError(f"array {array.name} of kernel {kernel.name} needs a size and a space other than global")
        register = buffer_register(array)
        size = array.size * array.element.bytes
        if array.space is ir.Space.WORKSPACE:
            line = f"  {register} = getelementptr inbounds i8, ptr {WORKSPACE}, i64 {offset}"
            offset += -(-size // 64) * 64
        else:
            line = f"  {register} = alloca [{array.size} x {element_spelling(emitter, array)}], align 64"
            stack += size
        emitter.allocations.append(line)
    if stack > STACK_LIMIT:
        raise ValueError(f"the private arrays of kernel {kernel.name} take {stack} bytes; at most {STACK_LIMIT} fit")


# --- statements -------------------------------------------------------------------------------------------------------


def _body(emitter: Emitter, body: Sequence[Statement]) -> None:
    for statement in body:
        _statement(emitter, statement)


def _statement(emitter: Emitter, statement: Statement) -> None:
    match statement:
        case ir.Let(name=name, value=value):
            with emitter.statement():
                before = len(emitter.lines)
                register = emit_expression(emitter, value)
                # What emits no line (abs(u), a cast of i64 to u64) has the register of something else, which keeps its
                # name.
                emitter.names[name] = register if len(emitter.lines) == before else emitter.rename_last(register, name)
        case ir.Declare(name=name, value=value):
            slot = emitter.allocate(spelling(value.type), f"{name}.address")
            _assign(emitter, slot, value)
            emitter.variables[name] = (slot, value.type)
        case ir.Assign(name=name, value=value):
            if name not in emitter.variables:
                raise TypeError(f"variable {name!r} is assigned but was not declared")
            slot, type_ = emitter.variables[name]
            if type_ != value.type:
                raise TypeError(f"variable {name} of type {type_} is assigned a value of type {value.type}")
            _assign(emitter, slot, value, statement.settled)
        case Store():
            with emitter.statement():
                emit_store(emitter, statement)
        case ir.AtomicUpdate(buffer=buffer):
            raise TypeError(f"a kernel for a CPU updates nothing atomically: buffer {buffer.name}")
        case ir.Prefetch(buffer=buffer, index=index, level=level):
            with emitter.statement():
                emit_prefetch(emitter, buffer, index, level)
        case TileZero() | TileLoad() | TileStore() | TileMultiply():
            with emitter.statement():
                emit_tiles(emitter, statement, partial(element_address, emitter), partial(emit_expression, emitter))
        case ir.For():
            _for(emitter, statement)
        case ir.While():
            _while(emitter, statement)
        case ir.If():
            _if(emitter, statement)
        case ir.Barrier():
            raise TypeError("a kernel for a CPU has no barriers: it runs one thread per block")
        case ir.Comment(text=text):
            emitter.lines.extend(f"  ; {line}" for line in text.splitlines())


def _assign(emitter: Emitter, slot: str, value: Expression, settled: bool = False) -> None:
    with emitter.statement():
        register = emit_expression(emitter, value)
    type_ = spelling(value.type)
    if settled and _fills_a_register(value.type, emitter.target):
        # No instruction, but LLVM moves no read from behind it to before it.
        kind = "v" if emitter.target.vector_bits == 512 else "x"  # All registers: x86 calls those that AVX-512 has so.
        register = emitter.emit(f'call {type_} asm sideeffect "", "={kind},0"({type_} {register})')
    emitter.effect(f"store {type_} {register}, ptr {slot}")


def _fills_a_register(type_: ir.ValueType, target: CpuTarget) -> bool:
    """Whether a value may be named as x86's vector registers are: LLVM ends the process over others."""
    if not (target.is_x86 and isinstance(type_, ir.VectorType)) or type_.element.bits < 32:
        return False
    bits = type_.lanes * type_.element.bits
    return bits in {128, 256, 512} and bits <= target.vector_bits


def _new_label(emitter: Emitter, name: str) -> str:
    return emitter.fresh(name)[1:]


def _counted_loop(
    emitter: Emitter,
    hint: str,
    type_: str,
    bounds: tuple[str, str, str],
    *,
    body: Callable[[], None],
    index: str,
    comparison: str = "icmp slt",
    no_wrap: str = "nsw",
    guarded: bool = True,
    metadata: str = "",
) -> None:
    """A loop in the form that LLVM likes best: guard, preheader, body, latch that tests and jumps back."""
    start, stop, step = bounds
    label = _new_label(emitter, hint)
    if guarded:
        enter = emitter.emit(f"{comparison} {type_} {start}, {stop}")
        emitter.effect(f"br i1 {enter}, label %{label}.preheader, label %{label}.exit")
    else:
        emitter.effect(f"br label %{label}.preheader")
    emitter.label(f"{label}.preheader")
    emitter.effect(f"br label %{label}.body")
    emitter.label(f"{label}.body")
    following = emitter.fresh(f"{hint}.next")
    emitter.effect(f"{index} = phi {type_} [ {start}, %{label}.preheader ], [ {following}, %{label}.latch ]")
    body()
    emitter.effect(f"br label %{label}.latch")
    emitter.label(f"{label}.latch")
    emitter.effect(f"{following} = add {no_wrap} {type_} {index}, {step}")
    again = emitter.emit(f"{comparison} {type_} {following}, {stop}")
    emitter.effect(f"br i1 {again}, label %{label}.body, label %{label}.exit{metadata}")
    emitter.label(f"{label}.exit")


def _for(emitter: Emitter, node: ir.For) -> None:
    type_ = node.start.type
    if not isinstance(type_, ScalarType) or not type_.is_integer or node.stop.type != type_:
        raise TypeError(f"loop {node.index} runs from {type_} to {node.stop.type}; both must be one integer type")
    constant = isinstance(node.start, Constant) and isinstance(node.stop, Constant)
    if isinstance(node.start, Constant) and isinstance(node.stop, Constant) and node.start.value >= node.stop.value:
        return
    with emitter.statement():
        start, stop = emit_expression(emitter, node.start), emit_expression(emitter, node.stop)
        step = _step(emitter, node, type_)
    group = emitter.node("distinct !{}") if node.independent else ""
    if group:
        emitter.access_groups.append(group)
    emitter.names[node.index] = index = emitter.fresh(node.index)
    signed = type_.kind == "i"
    _counted_loop(
        emitter,
        f"for.{node.index}",
        scalar_spelling(type_),
        (start, stop, step),
        body=lambda: _body(emitter, node.body),
        index=index,
        comparison="icmp slt" if signed else "icmp ult",
        no_wrap="nsw" if signed else "nuw",
        guarded=not constant,
        metadata=_loop_metadata(emitter, node, group),
    )
    if group:
        emitter.access_groups.pop()


def _step(emitter: Emitter, node: ir.For, type_: ScalarType) -> str:
    """The step in the index's type; a constant of another integer type is taken over."""
    if isinstance(node.step, Constant):
        if not node.step.value > 0:
            raise TypeError(f"loop {node.index} has the step {node.step.value}, which is not positive")
        return literal(node.step.value, type_)
    if node.step.type != type_:
        raise TypeError(f"loop {node.index} of type {type_} has a step of type {node.step.type}")
    return emit_expression(emitter, node.step)


def _loop_metadata(emitter: Emitter, node: ir.For, group: str) -> str:
    properties = []
    if node.unroll:
        properties.append(emitter.node('!{!"llvm.loop.unroll.full"}'))
    if group:
        properties.append(emitter.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))
    if node.scalar:
        properties.append(emitter.node('!{!"llvm.loop.vectorize.enable", i1 false}'))
    if emitter.mixed and not node.unroll and _has_own_vectors(node):
        properties.append(emitter.node('!{!"llvm.loop.unroll.disable"}'))
    if not properties:
        return ""
    return ", !llvm.loop " + emitter.node(f"distinct !{{@, {', '.join(properties)}}}")


def _has_own_vectors(node: ir.For) -> bool:
    """The loop's own statements compute on vectors, several at a time as a rule. Unrolled by LLVM as well, they would
    take longer to compile, and no less to run.
    """
    return any(isinstance(one, ir.Let | ir.Declare) and isinstance(one.value.type, VectorType) for one in node.body)


def _while(emitter: Emitter, node: ir.While) -> None:
    label = _new_label(emitter, "while")
    emitter.effect(f"br label %{label}.head")
    emitter.label(f"{label}.head")
    _body(emitter, node.prelude)
    with emitter.statement():
        condition = _condition(emitter, node.condition)
    emitter.effect(f"br i1 {condition}, label %{label}.body, label %{label}.exit")
    emitter.label(f"{label}.body")
    _body(emitter, node.body)
    emitter.effect(f"br label %{label}.head")
    emitter.label(f"{label}.exit")


def _if(emitter: Emitter, node: ir.If) -> None:
    label = _new_label(emitter, "if")
    with emitter.statement():
        condition = _condition(emitter, node.condition)
    emitter.effect(f"br i1 {condition}, label %{label}.then, label %{label}.{'else' if node.otherwise else 'end'}")
    emitter.label(f"{label}.then")
    _body(emitter, node.then)
    emitter.effect(f"br label %{label}.end")
    if node.otherwise:
        emitter.label(f"{label}.else")
        _body(emitter, node.otherwise)
        emitter.effect(f"br label %{label}.end")
    emitter.label(f"{label}.end")


def _condition(emitter: Emitter, node: Expression) -> str:
    if node.type != BOOL:
        raise TypeError(f"a condition has type {node.type}, not bool")
    return emit_expression(emitter, node)
