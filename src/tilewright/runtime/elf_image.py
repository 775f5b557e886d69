"""From an object file to an image (`native_image`): the little of a linker's work that our kernels need.

LLVM writes ELF object files. The sections that are read at run time are laid out one after the other, and the
references between them, which are all relative to the referring instruction, are resolved. A function of the C library
that is called gets a stub: a jump through a slot that takes the function's address when the image is loaded.

Sources: System V Application Binary Interface, chapters 4 and 5 (object files), and its AMD64 supplement, section 4.4
(relocation types).
"""

from __future__ import annotations

import struct

from tilewright.ir.dataclass import dataclass
from tilewright.runtime.native_image import write_image

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_X86_64, _RELOCATABLE = 62, 1
_PROGBITS, _SYMBOLS, _WITH_ADDENDS, _WITHOUT_ADDENDS, _UNWINDING = 1, 2, 4, 9, 0x70000001
_WRITE, _ALLOCATED, _THREAD_LOCAL = 0x1, 0x2, 0x400
_UNDEFINED, _FUNCTION, _GLOBAL = 0, 2, 1
_PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX = 2, 4, 9, 41, 42
_THROUGH_SLOTS = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_PAGE = 4096

_DAMAGE = (struct.error, IndexError, ValueError)
_STUB = b"\xff\x25\x02\x00\x00\x00\xcc\xcc"  # jmp *2(%rip), and two bytes that are never reached; then the slot


class Unsuitable(Exception):
    """An object file that has no image; the message says why."""


class Foreign(Unsuitable):
    """An object file of another processor, or of a system that does not use ELF."""


@dataclass(frozen=True)
class _Section:
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    binding: int
    type: int
    section: int
    value: int


class _Object:
    """The tables of an object file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        try:
            header = _HEADER.unpack_from(data)
            if header[:3] != (b"\x7fELF", 2, 1) or header[5:7] != (_RELOCATABLE, _X86_64):
                raise Foreign("it is no object file for 64-bit x86 in ELF's form")
            start, entry, count, names = header[10], header[15], header[16], header[17]
            self.sections = [_Section(*_SECTION.unpack_from(data, start + n * entry)) for n in range(count)]
            strings = self.content(self.sections[names])
            self.names = [_text(strings, one.name) for one in self.sections]
            self.symbols = [symbol for one in self.sections if one.type == _SYMBOLS for symbol in self._symbols(one)]
        except _DAMAGE as error:
            raise Unsuitable(f"its tables are damaged: {error}") from error

    def content(self, section: _Section) -> bytes:
        """The bytes of a section."""
        found = self.data[section.offset : section.offset + section.size]
        if len(found) != section.size:
            raise Unsuitable("a section lies outside the file")
        return found

    def _symbols(self, table: _Section) -> list[_Symbol]:
        strings = self.content(self.sections[table.link])
        return [
            _Symbol(_text(strings, name), info >> 4, info & 15, section, value)
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self.content(table))
        ]

    def loaded(self) -> list[int]:
        """The numbers of the sections that are needed at run time. Tables for unwinding are not: nothing throws."""
        found = []
        for number, (section, name) in enumerate(zip(self.sections, self.names, strict=True)):
            unwinding = name == ".eh_frame" or section.type == _UNWINDING
            if not section.flags & _ALLOCATED or not section.size or unwinding:
                continue
            if section.type != _PROGBITS or section.flags & (_WRITE | _THREAD_LOCAL) or section.alignment > _PAGE:
                raise Unsuitable(f"its section {name} is more than code and constants")
            found.append(number)
        return found


def image_of(data: bytes) -> bytes:
    """The image of an object file.

    Raises:
        Foreign: if the file is for another processor or system.
        Unsuitable: if it is damaged, or needs more of a linker than is done here.
    """
    file = _Object(data)
    places: dict[int, int] = {}
    code = bytearray()
    for number in file.loaded():
        section = file.sections[number]
        code += b"\xcc" * (-len(code) % max(1, section.alignment))
        places[number] = len(code)
        code += file.content(section)
    slots = _Slots(code)
    for section in file.sections:
        if section.type in (_WITH_ADDENDS, _WITHOUT_ADDENDS) and section.info in places:
            if section.type == _WITHOUT_ADDENDS:
                raise Unsuitable("its relocations have no addends")
            _relocate(file, section, places, slots)
    functions = [
        (one.name, places[one.section] + one.value)
        for one in file.symbols
        if one.type == _FUNCTION and one.binding == _GLOBAL and one.section in places
    ]
    return write_image(functions, list(slots.places.items()), bytes(code))


class _Slots:
    """The stubs at the end of the code, one for each function from outside."""

    def __init__(self, code: bytearray) -> None:
        self.code = code
        self.places: dict[str, int] = {}

    def slot(self, name: str) -> int:
        """Where the address of the function stands."""
        if name not in self.places:
            self.code += b"\xcc" * (-len(self.code) % 16) + _STUB + bytes(8)
            self.places[name] = len(self.code) - 8
        return self.places[name]

    def stub(self, name: str) -> int:
        """Where to call the function."""
        return self.slot(name) - len(_STUB)


def _relocate(file: _Object, table: _Section, places: dict[int, int], slots: _Slots) -> None:
    """Resolve the references of one section: S + A - P, 32 bits, where P is the place, S the target, A the addend."""
    try:
        relocations = list(_RELOCATION.iter_unpack(file.content(table)))
    except _DAMAGE as error:
        raise Unsuitable(f"its relocations are damaged: {error}") from error
    for offset, info, addend in relocations:
        kind, number = info & 0xFFFFFFFF, info >> 32
        if number >= len(file.symbols) or offset + 4 > file.sections[table.info].size:
            raise Unsuitable("a relocation lies outside")
        symbol = file.symbols[number]
        if symbol.section in places and kind in (_PC32, _PLT32):
            target = places[symbol.section] + symbol.value
        elif symbol.section == _UNDEFINED and symbol.name and kind == _PLT32:
            target = slots.stub(symbol.name)
        elif symbol.section == _UNDEFINED and symbol.name and kind in _THROUGH_SLOTS:
            target = slots.slot(symbol.name)
        else:
            raise Unsuitable(f"a relocation of type {kind} refers to {symbol.name or 'a section'}")
        place = places[table.info] + offset
        distance = target + addend - place
        if not -(1 << 31) <= distance < 1 << 31:
            raise Unsuitable(f"a reference to {symbol.name or 'a section'} goes too far")
        slots.code[place : place + 4] = distance.to_bytes(4, "little", signed=True)


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()
