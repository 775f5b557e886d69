"""Processors as code is generated for them: LLVM's triple and name, and the features that are on.

The features alone decide which instructions are used, how wide vectors are and how many there are; the name only
chooses models of what is fast, LLVM's and ours (`paces.py`). So a processor that came after this version of LLVM, or
one whose maker nobody heard of, gets the same code as any other with its features, and a feature that the system keeps
switched off (in a virtual machine, or by not saving the registers: LLVM asks XGETBV for the state of the vector
registers as well as CPUID) is not used, whatever the name promises. Tiles are used only if the system allows them to
this process, which asks for them here.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

from tilewright.ir.dataclass import dataclass
from tilewright.machine.llvm_lock import LLVM_LOCK
from tilewright.machine.tile_permission import tiles_are_permitted

CPU_VARIABLE = "TILEWRIGHT_CPU"

WITH_TILES = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")

LINUX_X86 = "x86_64-unknown-linux-gnu"
LINUX_ARM = "aarch64-unknown-linux-gnu"


@dataclass(frozen=True)
class Processor:
    """A CPU in LLVM's words: its triple, its name, and its features as "+avx2,-avx512f,...".

    Example:
        >>> named_processor("haswell").vector_registers
        (32, 16)
    """

    triple: str
    name: str
    features: str

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the features that are on."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))

    @property
    def known(self) -> frozenset[str]:
        """The names of the features that are said to be on or off."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature)

    @property
    def is_arm(self) -> bool:
        """True for 64-bit Arm."""
        return self.triple.split("-", 1)[0] in ("aarch64", "arm64")

    @property
    def vector_registers(self) -> tuple[int, int]:
        """Bytes of a vector register and how many there are.

        Scalable vectors (SVE) are not used: their first 128 bits are the NEON registers.
        """
        if self.is_arm:
            return 16, 32
        if "avx512f" in self.enabled:
            return 64, 32
        return (32, 16) if "avx" in self.enabled else (16, 16)

    @property
    def dots(self) -> tuple[str, ...]:
        """The types of elements of which several products are added to a lane of the widest vectors by one instruction
        (`kernel/llvm_dots.py`).

        Example:
            >>> named_processor("znver4").dots, named_processor("skylake-avx512").dots
            (('bf16', 'i16', 'i8'), ())
        """
        if self.is_arm:
            return ()
        enabled, wide = self.enabled, "avx512f" in self.enabled
        floats = ("bf16",) if wide and "avx512bf16" in enabled else ()
        return (*floats, "i16", "i8") if ("avx512vnni" if wide else "avxvnni") in enabled else floats

    @property
    def tiles(self) -> tuple[str, ...]:
        """The types of elements whose products are added in tiles (`kernel/llvm_tiles.py`), of 16 x 16 sums. What is
        packed for them lies in vectors as long as a row of a tile.

        Example:
            >>> named_processor("sapphirerapids").tiles, named_processor("znver5").tiles
            (('bf16', 'i8'), ())
        """
        if self.is_arm or not self.enabled.issuperset(("amx-tile", "avx512f", "avx512bw")):
            return ()
        return tuple(one for one, feature in (("bf16", "amx-bf16"), ("i8", "amx-int8")) if feature in self.enabled)

    def without_tiles(self) -> Processor:
        """This processor with all features of tiles off."""
        features = (one for one in self.features.split(",") if one)
        return replace(
            self, features=",".join("-" + one[1:] if one[1:].startswith("amx-") else one for one in features)
        )

    def lacks(self, other: Processor) -> tuple[str, ...]:
        """The features of another processor that this one has not; all of them if the architectures differ."""
        same = self.triple.split("-", 1)[0] == other.triple.split("-", 1)[0]
        return tuple(sorted(other.enabled - self.enabled if same else other.enabled))

    def restricted_to(self, other: Processor) -> Processor:
        """This processor with only those features on that the other one has too, and with its name.

        Every feature that is known of here is said to be on or off, so that the name cannot bring any back.
        """
        signs = ((one, "+" if one in self.enabled & other.enabled else "-") for one in sorted(self.known))
        return Processor(self.triple, other.name, ",".join(sign + one for one, sign in signs))


# --- processors by name -----------------------------------------------------------------------------------------------

# From LLVM's X86TargetParser.cpp and AArch64Processors.td: the features that its code generator can make use of.
_V1 = "64bit cmov cx8 fxsr mmx sse sse2"
_V2 = f"{_V1} crc32 cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
_HASWELL = f"{_V3} fsgsbase invpcid pclmul rdrnd xsaveopt"
_SKYLAKE_X = f"{_HASWELL} {_V4} adx aes clflushopt clwb prfchw rdseed xsavec xsaves"
_ZEN_2 = (
    f"{_V3} adx aes clflushopt clwb clzero fsgsbase pclmul prfchw rdpid rdrnd rdseed sha sse4a xsavec xsaveopt xsaves"
)
_ZEN_4 = (
    f"{_ZEN_2} {_V4} avx512bf16 avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512vpopcntdq gfni invpcid "
    "vaes vpclmulqdq"
)
_ZEN_5 = f"{_ZEN_4} avx512vp2intersect avxvnni movdir64b movdiri prefetchi"
_SAPPHIRE_RAPIDS = (
    f"{_SKYLAKE_X} amx-bf16 amx-int8 amx-tile avx512bf16 avx512bitalg avx512fp16 avx512ifma avx512vbmi avx512vbmi2 "
    "avx512vnni avx512vpopcntdq avxvnni gfni movdir64b movdiri rdpid sha vaes vpclmulqdq"
)
_ARM_V8 = "fp-armv8 neon"
_NEOVERSE_N1 = f"{_ARM_V8} aes crc dotprod fullfp16 lse rcpc rdm sha2 v8.2a"
_APPLE_M1 = f"{_ARM_V8} aes altnzcv complxnum crc dotprod fp16fml fptoint fullfp16 jsconv lse rcpc rdm sha2 sha3 v8.4a"


def _processor(triple: str, name: str, features: str) -> Processor:
    return Processor(triple, name, ",".join(f"+{one}" for one in sorted(set(features.split()))))


NAMED_PROCESSORS: dict[str, Processor] = {
    name: _processor(LINUX_X86, name, features)
    for name, features in (
        ("x86-64", _V1), ("x86-64-v2", _V2), ("x86-64-v3", _V3), ("x86-64-v4", _V4), ("haswell", _HASWELL),
        ("skylake-avx512", _SKYLAKE_X), ("znver2", _ZEN_2), ("znver4", _ZEN_4), ("znver5", _ZEN_5),
        ("sapphirerapids", _SAPPHIRE_RAPIDS),
    )
} | {
    "armv8-a": _processor(LINUX_ARM, "generic", _ARM_V8),
    "neoverse-n1": _processor(LINUX_ARM, "neoverse-n1", _NEOVERSE_N1),
    "apple-m1": _processor(LINUX_ARM, "apple-m1", _APPLE_M1),
}  # fmt: skip


def named_processor(name: str) -> Processor:
    """The processor of a name.

    Raises:
        KeyError: if there is none; the message lists the names.

    Example:
        >>> sorted(named_processor("x86-64-v3").enabled - named_processor("x86-64-v2").enabled)[:3]
        ['avx', 'avx2', 'bmi']
    """
    if name not in NAMED_PROCESSORS:
        raise KeyError(f"no processor is named {name!r}; there are {', '.join(NAMED_PROCESSORS)}")
    return NAMED_PROCESSORS[name]


# --- the one that this process runs on --------------------------------------------------------------------------------


_recalled: list[Processor] = []


@lru_cache(maxsize=1)
def host_processor() -> Processor:
    """The CPU that this process runs on, or the one of the environment variable TILEWRIGHT_CPU (read once).

    The variable takes a name of `NAMED_PROCESSORS`, all of whose features this CPU must have: to have the
    vectors and instructions of another computer, or to compare them.

    Raises:
        ValueError: if the variable names no processor, or one with features that are missing here.
    """
    host = as_permitted(_recalled[0] if _recalled else ask_llvm())
    return chosen_processor(host, os.environ.get(CPU_VARIABLE, "").strip())


def as_permitted(processor: Processor) -> Processor:
    """A processor that was found here, as this process may use it: without tiles if the system refuses them."""
    return processor.without_tiles() if processor.tiles and not tiles_are_permitted() else processor


def recall_host(processor: Processor) -> None:
    """Spare `host_processor` the import of LLVM: this is what it told (`ask_llvm`) another process of this computer."""
    _recalled[:] = [processor]


def ask_llvm() -> Processor:
    """The CPU that this process runs on, as LLVM finds it; importing LLVM takes longer than most compilations."""
    with LLVM_LOCK:
        from llvmlite import binding

        features: dict[str, bool] = dict(binding.get_host_cpu_features())
        flags = ",".join(("+" if features[one] else "-") + one for one in sorted(features))
        return known_by_tiles(Processor(binding.get_process_triple(), binding.get_host_cpu_name(), flags))


def known_by_tiles(processor: Processor) -> Processor:
    """A processor with tiles under the name of one that has them.

    Virtual machines give processors numbers that are others' or nobody's, and LLVM then names them after a desktop's:
    its model, and our pace of it (`paces.py`), would be of a core that starts half as many multiply-adds.

    Example:
        >>> masked = replace(named_processor("sapphirerapids"), name="rocketlake")
        >>> known_by_tiles(masked).name
        'sapphirerapids'
    """
    if not processor.tiles or processor.name in WITH_TILES:
        return processor
    return replace(processor, name="graniterapids" if "amx-fp16" in processor.enabled else "sapphirerapids")


def chosen_processor(host: Processor, name: str) -> Processor:
    """The host itself, or (with a name) the part of it that the named processor has; see `host_processor`."""
    if not name:
        return host
    if name not in NAMED_PROCESSORS:
        raise ValueError(f"{CPU_VARIABLE} is {name!r}, no processor known; there are {', '.join(NAMED_PROCESSORS)}")
    missing = host.lacks(NAMED_PROCESSORS[name])
    if missing:
        raise ValueError(f"{CPU_VARIABLE} is {name!r}, but this processor ({host.name}) lacks {', '.join(missing)}")
    return host.restricted_to(NAMED_PROCESSORS[name])
