"""Images of machine code: they do what LLVM's linker makes of the same object files; what they cannot do is told."""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.machine.processors import NAMED_PROCESSORS
from tilewright.runtime.cpu_jit import JitError, compile_text, cpu_target, host_cpu, load_code, object_file
from tilewright.runtime.elf_image import Foreign, Unsuitable, image_of
from tilewright.runtime.native_image import ImageError, LoadedImage, load_kernel, read_image, write_image

pytestmark = pytest.mark.skipif(not host_cpu().is_x86, reason="images are made for 64-bit x86")

# A constant, a call inside the module, a table of jumps, a loop over a table of numbers, and the C library.
TEXT = """
declare double @exp(double)
declare double @pow(double, double)
@numbers = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5], align 64
define double @number(i64 %n) noinline {
  %place = getelementptr inbounds [4 x double], ptr @numbers, i64 0, i64 %n
  %value = load double, ptr %place
  ret double %value
}
define double @chosen(i64 %n, double %x) {
entry:
  switch i64 %n, label %other [ i64 0, label %a
                                i64 1, label %b
                                i64 2, label %c
                                i64 3, label %d
                                i64 4, label %e
                                i64 5, label %f ]
a:
  %va = fadd double %x, 1.25
  ret double %va
b:
  %vb = call double @exp(double %x)
  ret double %vb
c:
  %vc = call double @pow(double %x, double 3.25)
  %wc = fmul double %vc, 7.0
  ret double %wc
d:
  %vd = call double @number(i64 3)
  %wd = fmul double %vd, %x
  ret double %wd
e:
  %ve = fdiv double 1.0, %x
  ret double %ve
f:
  %vf = call double @exp(double 1.0)
  %wf = fsub double %vf, %x
  ret double %wf
other:
  ret double -1.0
}
"""
EXPECTED: list[Callable[[float], float]] = [
    lambda x: x + 1.25, math.exp, lambda x: 7 * x**3.25, lambda x: 4.5 * x, lambda x: 1 / x, lambda x: math.e - x,
    lambda x: -1.0,
]  # fmt: skip
CHOSEN = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)


def object_of(text: str) -> bytes:
    return object_file(text, "none", host_cpu())


@pytest.fixture(scope="module")
def image() -> bytes:
    return image_of(object_of(TEXT))


# In a process of its own: in one of many mappings LLVM's linker may end it (see `load_code`).
BY_LLVM = """
import ctypes
import sys
from tilewright.runtime import cpu_jit
linked = cpu_jit._linked_by_llvm(sys.stdin.buffer.read())
chosen = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(linked.address("chosen"))
print([chosen(n, x) for n in range(7) for x in (0.5, 1.0, 2.75)])
"""


def test_an_image_does_what_the_text_says(image: bytes) -> None:
    loaded = LoadedImage(image)
    chosen = CHOSEN(loaded.functions["chosen"])
    ours = [chosen(n, x) for n in range(7) for x in (0.5, 1.0, 2.75)]
    assert ours == pytest.approx([expected(x) for expected in EXPECTED for x in (0.5, 1.0, 2.75)], rel=1e-15)
    assert CHOSEN(loaded.functions["number"])(2, 0.0) == 3.5
    theirs = subprocess.run([sys.executable, "-c", BY_LLVM], input=object_of(TEXT), capture_output=True, check=True)
    assert theirs.stdout.decode() == f"{ours}\n"


def test_only_the_functions_of_the_library_have_slots(image: bytes) -> None:
    functions, slots, _ = read_image(image)
    assert {name for name, _ in functions} == {"number", "chosen"}
    assert sorted(name for name, _ in slots) == ["exp", "pow"]  # once each, however often they are called


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mappings")
def test_pages_can_be_run_and_not_written(image: bytes) -> None:
    loaded = LoadedImage(image)
    address = loaded.functions["chosen"]
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, permissions = line.split()[:2]
        low, high = (int(one, 16) for one in area.split("-"))
        if low <= address < high:
            assert permissions == "r-xp"
            return
    pytest.fail("the image is not mapped")


def test_a_kernel_says_where_it_is(image: bytes) -> None:
    kernel = load_kernel(image, "chosen", 64)
    assert (kernel.name, kernel.workspace_bytes, kernel.image) == ("chosen", 64, image)
    assert f"{kernel.address:#x}" in repr(kernel) and str(image) not in repr(kernel)
    with pytest.raises(ImageError, match="does not define the function other"):
        load_kernel(image, "other")


NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1)
PLACES = st.lists(st.tuples(NAMES, st.integers(0, 92)))


@given(PLACES, PLACES, st.binary(min_size=100, max_size=120))
def test_what_is_written_can_be_read(
    functions: list[tuple[str, int]], slots: list[tuple[str, int]], code: bytes
) -> None:
    assert read_image(write_image(functions, slots, code)) == (functions, slots, code)


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"TWIMAGE1", b"TWIMAGE0" + bytes(100), write_image([("f", 4)], [], b"code"),
        write_image([], [("exp", 0)], bytes(7)), write_image([("f", -1)], [], b"code"),
        write_image([("a b", 0)], [], b"code"), write_image([("f", 0)], [], b"code").replace(b"function", b"fanction"),
        b"TWIMAGE1" + (2).to_bytes(8, "little") + b"\xff\xff",
    ],
)  # fmt: skip
def test_damaged_images_are_refused(damaged: bytes) -> None:
    with pytest.raises(ImageError, match=f"{len(damaged)} bytes are no image"):
        read_image(damaged)


def test_a_function_that_this_system_has_not_is_named() -> None:
    text = "declare double @no_such_function(double)\n" + TEXT.replace("@exp", "@no_such_function").split("\n", 2)[2]
    code = image_of(object_of(text))
    with pytest.raises(ImageError, match="have no function no_such_function"):
        LoadedImage(code)


UNSUITABLE = {
    "variable": "@n = global i64 7\ndefine i64 @f() {\n  %v = load i64, ptr @n\n  ret i64 %v\n}",
    "zeros": "@n = internal global [9 x i64] zeroinitializer\ndefine ptr @f() {\n  ret ptr @n\n}",
    "thread": "@n = thread_local global i64 7\ndefine i64 @f() {\n  %v = load i64, ptr @n\n  ret i64 %v\n}",
    "pointers": "@t = constant [2 x ptr] [ptr @f, ptr @g]\ndefine ptr @f() {\n  ret ptr @t\n}\n"
    "define ptr @g() {\n  ret ptr @f\n}",
    "data": "@n = external global i64\ndefine i64 @f() {\n  %v = load i64, ptr @n\n  ret i64 %v\n}",
}


@pytest.mark.parametrize("name", ["variable", "zeros", "thread", "pointers"])
def test_more_than_code_and_constants_is_refused(name: str) -> None:
    code = compile_text(UNSUITABLE[name], "none")
    with pytest.raises(JitError, match=rf"cannot link {len(code)} bytes.*(more than code and|a relocation of type)"):
        load_code(code)


def test_a_function_that_no_library_has_is_refused() -> None:
    text = "declare void @no_such_function()\ndefine void @f() {\n  call void @no_such_function()\n  ret void\n}"
    with pytest.raises(JitError, match="have no function no_such_function"):
        load_code(compile_text(text))


def test_other_processors_are_left_to_llvm() -> None:
    processor = NAMED_PROCESSORS["neoverse-n1"]
    code = object_file("define i64 @f() {\n  ret i64 1\n}", "none", cpu_target(processor))
    with pytest.raises(Foreign, match="no object file for 64-bit x86"):
        image_of(code)


@given(st.data())
def test_damaged_object_files_raise_nothing_else(data: Any) -> None:
    code = bytearray(object_of(UNSUITABLE["data"] if data.draw(st.booleans()) else TEXT))
    for _ in range(data.draw(st.integers(1, 8))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Unsuitable, ImageError):
        read_image(image_of(bytes(code[: data.draw(st.integers(0, len(code)))])))


def test_an_address_that_is_too_far_is_refused() -> None:
    code = bytearray(object_of(TEXT))
    addend = code.index(struct.pack("<q", -4))
    code[addend : addend + 8] = struct.pack("<q", 1 << 40)
    with pytest.raises(Unsuitable, match="too far"):
        image_of(bytes(code))


def test_a_library_call_through_the_table_of_addresses() -> None:
    taken = "declare double @exp(double)\ndefine ptr @f() {\n  ret ptr @exp\n}"
    loaded = LoadedImage(image_of(object_of(taken)))
    give = ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.functions["f"])
    exp = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(give())
    assert exp(1.0) == pytest.approx(math.e)
