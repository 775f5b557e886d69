"""The ground under the LLVM printer: the target CPU, the spelling of types and constants, and the text being built."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, F32, I64, ScalarType
from tilewright.kernel.ir import ValueType, VectorType, element_of


@dataclass(frozen=True)
class CpuTarget:
    """A CPU in LLVM's words: its triple, its name, and its features as "+avx2,-avx512f,...".

    `vector_functions` lists the C functions ("exp", "expf", ...) of which the host's libmvec has vector forms.

    Example:
        >>> CpuTarget("x86_64-unknown-linux-gnu", "haswell", "+avx,+avx2,+fma,+f16c").vector_bits
        256
    """

    triple: str
    name: str = ""
    features: str = ""
    vector_functions: tuple[str, ...] = ()

    @cached_property
    def enabled(self) -> frozenset[str]:
        """The names of the features that are on."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))

    def has(self, *features: str) -> bool:
        """True if all these features are on."""
        return self.enabled.issuperset(features)

    @property
    def architecture(self) -> str:
        """The first word of the triple: x86_64, aarch64, ..."""
        return self.triple.split("-", 1)[0]

    @property
    def is_x86(self) -> bool:
        """True for x86-64."""
        return self.architecture in ("x86_64", "amd64")

    @property
    def is_arm(self) -> bool:
        """True for 64-bit Arm."""
        return self.architecture in ("aarch64", "arm64")

    @property
    def has_fma(self) -> bool:
        """True if a*b + c is one instruction."""
        return self.is_arm or self.has("fma")

    @property
    def has_half_conversion(self) -> bool:
        """True if f16 <-> f32 are instructions, so that no support library is called."""
        return self.is_arm or self.has("f16c")

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register."""
        if self.is_x86 and self.has("avx512f"):
            return 512
        return 256 if self.is_x86 and self.has("avx") else 128

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.is_arm or self.vector_bits == 512 else 16

    @property
    def preferred_vector_bits(self) -> int:
        """Width that LLVM's own vectoriser should use.

        The first CPUs with 512-bit registers slow their clock down when they are used a little; those that came later
        (told by the bit-manipulation features that were added with them) do not.
        """
        return 256 if self.vector_bits == 512 and not self.has("avx512vbmi2") else self.vector_bits

    @property
    def loads_two_lines(self) -> bool:
        """Whether a core loads two vectors of a cache line in a cycle, as all with such vectors do but Zen 4."""
        return self.vector_bits == 512 and self.name != "znver4"


# --- types and constants ----------------------------------------------------------------------------------------------


def scalar_spelling(scalar: ScalarType) -> str:
    """LLVM's name of the type in which values of a scalar type are held in registers."""
    if scalar.kind == "c" or (scalar.kind == "f" and scalar.bits == 16):
        raise TypeError(f"values of type {scalar} do not exist in the kernel language; only buffers hold f16 and bf16")
    if scalar.kind == "f":
        return "float" if scalar == F32 else "double"
    return "i1" if scalar == BOOL else f"i{scalar.bits}"


def vector_of(spelling: str, lanes: int) -> str:
    """The vector type of a scalar spelling; with 0 lanes the scalar itself."""
    return f"<{lanes} x {spelling}>" if lanes else spelling


def lanes_of(type_: ValueType) -> int:
    """Lanes of a vector type, 0 for a scalar."""
    return type_.lanes if isinstance(type_, VectorType) else 0


def spelling(type_: ValueType) -> str:
    """LLVM's name of a value type."""
    return vector_of(scalar_spelling(element_of(type_)), lanes_of(type_))


def suffix(text: str) -> str:
    """The mangling of a type in an intrinsic's name: "<4 x float>" gives "v4f32"."""
    if text.startswith("<"):
        lanes, element = text[1:-1].split(" x ")
        return f"v{lanes}{suffix(element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(text, text)


def literal(value: int | float | bool, scalar: ScalarType) -> str:
    """A constant of a scalar type in LLVM's spelling: integers wrapped to the width, floats as exact hexadecimals."""
    if scalar.is_float:
        number = float(value)
        if scalar == F32:
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if scalar == BOOL:
        return "true" if value else "false"
    wrapped = int(value) & ((1 << scalar.bits) - 1)
    return str(wrapped - (1 << scalar.bits) if wrapped >> (scalar.bits - 1) else wrapped)


def splat(text: str, element: str, lanes: int) -> str:
    """A literal repeated over the lanes (0 lanes: as it is)."""
    return "<" + ", ".join([f"{element} {text}"] * lanes) + ">" if lanes else text


# --- the text under construction --------------------------------------------------------------------------------------


@dataclass
class Emitter:
    """Collects the lines of one function, the declarations that they need, and the module's metadata."""

    target: CpuTarget
    lines: list[str] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    mixed: bool = False  # beside loops that LLVM shall put into vectors there are some that compute on vectors
    access_groups: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    variables: dict[str, tuple[str, ValueType]] = field(default_factory=dict)
    writes_around_cache: bool = False
    has_tiles: bool = False
    kept: set[str] = field(default_factory=set)  # functions that must stay declared although nothing calls them
    _memo: dict[int, str] = field(default_factory=dict)
    _count: int = 0

    def fresh(self, hint: str = "v") -> str:
        """A register name that was not used before."""
        self._count += 1
        return f"%{hint}.{self._count}"

    def emit(self, text: str, hint: str = "v") -> str:
        """Append an instruction with a result; gives the register."""
        register = self.fresh(hint)
        self.lines.append(f"  {register} = {text}")
        return register

    def effect(self, text: str) -> None:
        """Append an instruction without result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{name}:")

    def allocate(self, text: str, hint: str) -> str:
        """A stack slot of the function (made once, in its entry block)."""
        register = self.fresh(hint)
        self.allocations.append(f"  {register} = alloca {text}")
        return register

    def rename_last(self, register: str, name: str) -> str:
        """Give the register of the last line a speaking name, where that line defines it."""
        prefix = f"  {register} = "
        if not (self.lines and self.lines[-1].startswith(prefix)):
            return register
        speaking = self.fresh(name)
        self.lines[-1] = f"  {speaking} = {self.lines[-1][len(prefix) :]}"
        return speaking

    def call(
        self, name: str, result: str, *arguments: tuple[str, str], attributes: str = "", at_call: str = "",
        flags: str = "",
    ) -> str:  # fmt: skip
        """Call a function of (type, value) arguments, declared (with `attributes`) at first use."""
        types = ", ".join(type_ for type_, _ in arguments)
        self.declarations.setdefault(name, f"declare {result} @{name}({types}){attributes}")
        listed = ", ".join(f"{type_} {value}" for type_, value in arguments)
        return self.emit(f"call {flags}{result} @{name}({listed}){at_call}")

    def node(self, text: str) -> str:
        """Append a metadata node; `@` in the text stands for the node itself."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {text.replace('@', name)}")
        return name

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Within one statement, an expression object that occurs twice is computed once."""
        self._memo = {}
        yield
        self._memo = {}

    def remember(self, identity: int, value: str) -> str:
        """Keep the register of an expression object until its statement ends."""
        self._memo[identity] = value
        return value

    def recall(self, identity: int) -> str | None:
        """The register of an expression object computed earlier in this statement."""
        return self._memo.get(identity)


INDEX = scalar_spelling(I64)
