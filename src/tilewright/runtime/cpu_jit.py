"""From a kernel to machine code in this process: LLVM text, passes, object code, a callable address.

    compile_text(text, optimisation) -> bytes         slow (milliseconds): optimise, generate code
    load_object(bytes, name, ...)    -> NativeKernel  fast: link into the process
    text_key(text, optimisation)     -> str           names everything that the bytes depend on

The disk cache is between the first two, under the third's name. llvmlite is imported at first use only.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import Kernel
from tilewright.kernel.llvm import CONSTANT_TESTS, CpuTarget, llvm_text
from tilewright.kernel.llvm_operators import LIBRARY_SYMBOLS
from tilewright.kernel.llvm_vector_math import FUNCTIONS, variants
from tilewright.machine.llvm_lock import LLVM_LOCK
from tilewright.machine.processors import Processor
from tilewright.runtime.digest import sha256
from tilewright.runtime.elf_image import Foreign, Unsuitable, image_of
from tilewright.runtime.known_processor import known_processor
from tilewright.runtime.native_image import ImageError, LoadedImage, NativeKernel, library_function

Optimisation = Literal["quick", "none", "large", "deep", "checked", "full"]
"""quick: for code that a call runs once: LLVM's fast code generation takes a tenth of the time of the other.
none: for kernels whose vectors are explicit (registers for variables, loop unrolling where asked, code generation).
full: LLVM's whole pipeline with the loop and superword vectorisers. Tests are taken out of loops only where innermost
loops have such (`CONSTANT_TESTS`) and loops are few (`MANY_LOOPS`): it copies whole nests, and the larger the kernel,
the less of its time is spent in the one that gains.
checked: the same for kernels of few loops that check indices (see `_emitting`).
deep: the same without taking tests out of loops, which for a deep nest takes a second.
large: nor unrolling loops, which is nearly half of LLVM's work on a kernel of very many loops, and gains nothing there:
few of them run often enough, and their code is then too much for the instruction cache."""

MANY_LOOPS = 20
_LEVELS = {"quick": 0, "none": 1, "large": 2, "deep": 2, "checked": 3, "full": 3}
_MAGIC = b"TWOBJ001"  # object code travels as this, its SHA-256, and itself: LLVM crashes on a damaged object file


class JitError(RuntimeError):
    """LLVM rejected a kernel's text or could not link its code."""


@dataclass(frozen=True)
class LoadedCode:
    """Object code in this process, and the image that it was made of (b"" where LLVM's linker loaded it)."""

    image: bytes
    address: Callable[[str], int]
    kept: Any


@functools.cache
def _binding() -> Any:
    """llvmlite, initialised."""
    with LLVM_LOCK:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        return binding


@contextmanager
def _emitting(optimisation: Optimisation = "none") -> Iterator[None]:
    """Machine code is made, by one thread at a time, in which conditional moves stay what they are.

    Recurrences of least values (edit distances, say) take either side at random: LLVM's branches, guessed wrong half of
    the time, take ten times as long.

    Loops that LLVM puts into vectors keep the addresses that they are written with: its search for better ones (loop
    strength reduction) takes up to two thirds of making their code, and on x86, where a load adds two registers at no
    cost, that is then slower more often than faster. The search gains in register tiles, and where indices are loaded
    and checked, whose loops stay scalar.

    Explicit vectors are computed in the order in which they are written. LLVM's scheduler would read all elements that
    a register tile broadcasts first, and so keep sums of the tile in memory.

    The options are of the whole process, where others may use LLVM, too.
    """
    options = []
    if platform.machine().lower() in ("x86_64", "amd64"):
        options.append(("-x86-cmov-converter=0", "-x86-cmov-converter=1"))
        if optimisation == "none":
            options.append(("-enable-misched=0", "-enable-misched=1"))
        elif optimisation not in ("quick", "checked"):
            options.append(("-disable-lsr=1", "-disable-lsr=0"))
    with LLVM_LOCK:
        try:
            for ours, _ in options:
                _binding().set_option("tilewright", ours)
            yield
        finally:
            for _, usual in options:
                _binding().set_option("tilewright", usual)


@functools.cache
def _linker() -> Any:
    """llvmlite, with the C library's functions known to its linker."""
    binding = _binding()
    with LLVM_LOCK:
        with suppress(RuntimeError):  # not glibc, or not on this architecture: vectors call the scalar functions
            binding.load_library_permanently("libmvec.so.1")
        for symbol in LIBRARY_SYMBOLS:
            if binding.address_of_symbol(symbol) is None:
                with suppress(ImageError):  # the linker will name it, should a kernel need it
                    binding.add_symbol(symbol, library_function(symbol))
        return binding


@functools.cache
def host_cpu() -> CpuTarget:
    """The CPU that this process runs on, as LLVM names it (`machine.processors`)."""
    cpu = cpu_target(known_processor())
    return replace(cpu, vector_functions=_vector_functions(cpu))


def cpu_target(processor: Processor) -> CpuTarget:
    """A processor as the printer of LLVM text takes it, without functions of any library."""
    return CpuTarget(processor.triple, processor.name, processor.features)


def _vector_functions(cpu: CpuTarget) -> tuple[str, ...]:
    """The C functions of which this host's vector library (libmvec of glibc) has forms for this CPU."""
    names = [name + end for name in FUNCTIONS for end in ("", "f")]
    claimed = replace(cpu, vector_functions=tuple(names))
    return tuple(name for name in names if (forms := variants(claimed, name)) and all(_exists(one) for _, one in forms))


def _exists(symbol: str) -> bool:
    with suppress(ImageError):
        return bool(library_function(symbol))
    return False


def object_for(kernel: Kernel, optimisation: Optimisation = "full") -> bytes:
    """The kernel's object code for this CPU.

    Raises:
        TypeError: if the kernel is not one for a CPU or is not well typed.
        JitError: if LLVM rejects the text.
    """
    return compile_text(llvm_text(kernel, host_cpu()), optimisation)


def compile_kernel(kernel: Kernel, optimisation: Optimisation = "full") -> NativeKernel:
    """Compile and load a kernel.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.kernel.ir import BlockIndex, Buffer, Constant, Kernel, Store
        >>> y = Buffer("y", F32)
        >>> compile_kernel(Kernel("ones", (y,), (), (), (Store(y, BlockIndex(), Constant(1.0, F32)),))).name
        'ones'

    Raises:
        TypeError: if the kernel is not one for a CPU or is not well typed.
        JitError: if LLVM rejects the text.
    """
    return load_object(object_for(kernel, optimisation), kernel.name, kernel.workspace_bytes)


def load_object(code: bytes, name: str, workspace_bytes: int = 0) -> NativeKernel:
    """Link object code (of `object_for`) into this process.

    Raises:
        JitError: if the bytes are damaged or do not define `name`.
    """
    loaded = load_code(code)
    address = loaded.address(name)
    if not address:
        raise JitError(f"the object code of {len(code)} bytes does not define the function {name}")
    return NativeKernel(name, address, workspace_bytes, loaded.kept, loaded.image)


def load_code(code: bytes) -> LoadedCode:
    """Object code, linked: as an image on 64-bit x86 with ELF, elsewhere by LLVM.

    LLVM's linker asks for the pages of every section by themselves. In an x86 process of many mappings they may lie
    gigabytes apart, too far for references of the small code model, and it ends the process. So what has no image,
    though it might have one, is an error.

    Raises:
        JitError: if the bytes are damaged, or cannot be linked.
    """
    head = len(_MAGIC) + sha256().digest_size
    content = code[head:]
    if code[:head] != _MAGIC + sha256(content).digest():
        raise JitError(f"cannot load {len(code)} bytes of object code: they are damaged or of another version")
    try:
        image = image_of(content)
        loaded = LoadedImage(image)
    except Foreign:
        return _linked_by_llvm(content)
    except (Unsuitable, ImageError) as error:
        raise JitError(f"cannot link {len(code)} bytes of object code: {error}") from error
    return LoadedCode(image, lambda name: loaded.functions.get(name, 0), loaded)


def _linked_by_llvm(content: bytes) -> LoadedCode:
    binding = _linker()
    with LLVM_LOCK:
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine(2, host_cpu()))
        engine.add_object_file(binding.ObjectFileRef.from_data(content))
        engine.finalize_object()

    def address(name: str) -> int:
        with LLVM_LOCK:
            found: int = engine.get_function_address(name)
        return found

    return LoadedCode(b"", address, engine)


def compile_text(text: str, optimisation: Optimisation = "full", cpu: CpuTarget | None = None) -> bytes:
    """Object code of LLVM text, for this CPU (or a part of it: `cpu`), with a checksum in front.

    Raises:
        JitError: if LLVM rejects the text.
    """
    content = object_file(text, optimisation, cpu or host_cpu())
    return _MAGIC + sha256(content).digest() + content


def object_file(text: str, optimisation: Optimisation, cpu: CpuTarget) -> bytes:
    """An object file (ELF on Linux) of LLVM text for any CPU that LLVM knows, of this computer or another.

    Raises:
        JitError: if LLVM rejects the text.
    """
    machine, module = _optimised(text, optimisation, cpu)
    with _emitting(optimisation):
        content: bytes = machine.emit_object(module)
    return content


def assembly(kernel: Kernel, optimisation: Optimisation = "full", cpu: CpuTarget | None = None) -> str:
    """The kernel's machine code as text, for readers; for this CPU if no other is given."""
    cpu = cpu or host_cpu()
    machine, module = _optimised(llvm_text(kernel, cpu), optimisation, cpu)
    with _emitting(optimisation):
        text: str = machine.emit_assembly(module)
    return text


def text_key(text: str, optimisation: Optimisation) -> str:
    """A hexadecimal digest of all that the object code of LLVM text depends on; see `compile_text`."""
    import llvmlite

    cpu = host_cpu()
    parts = (text, optimisation, cpu.triple, cpu.name, cpu.features, *cpu.vector_functions, llvmlite.__version__, "4")
    return sha256("\0".join(parts).encode()).hexdigest()


def _target_machine(level: int, cpu: CpuTarget) -> Any:
    """Position-independent code of the small model: constants and local calls are addressed relative to the code."""
    binding = _binding()
    if cpu.architecture != host_cpu().architecture:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(cpu.triple)
    return target.create_target_machine(cpu.name, cpu.features, opt=level, reloc="pic", codemodel="small", jit=True)


def _optimised(text: str, optimisation: Optimisation, cpu: CpuTarget) -> tuple[Any, Any]:
    """The target machine and the module after its passes."""
    if optimisation not in _LEVELS:
        raise ValueError(f"optimisation {optimisation!r} is none of {', '.join(_LEVELS)}")
    binding = _binding()
    with LLVM_LOCK:
        machine = _target_machine({"quick": 0, "none": 2}.get(optimisation, 3), cpu)
        try:
            module = binding.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise JitError(f"LLVM rejects the text: {error}") from error
        module.data_layout = str(machine.target_data)
        tests = text.startswith(CONSTANT_TESTS) and text.count(".latch:") < MANY_LOOPS
        level = min(_LEVELS[optimisation], 3 if tests else 2)
        tuning = binding.create_pipeline_tuning_options(level)
        tuning.loop_vectorization = tuning.slp_vectorization = optimisation not in ("quick", "none")
        tuning.loop_unrolling = optimisation in ("deep", "checked", "full")
        builder = binding.create_pass_builder(machine, tuning)
        if optimisation not in ("quick", "none"):
            builder.getModulePassManager().run(module, builder)
        else:
            _short_pipeline(binding, unroll="llvm.loop.unroll.full" in text).run(module, builder)
        return machine, module


def _short_pipeline(binding: Any, unroll: bool) -> Any:
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    if unroll:
        passes.add_loop_simplify_pass()
        passes.add_loop_unroll_pass()
        passes.add_simplify_cfg_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes
