"""Vector forms of the C library's functions (glibc's libmvec), where the host has them.

libmvec names its functions `_ZGV` + letter of the instruction set + `N` + lanes + a `v` per argument + `_` + the
scalar function; their results are within 4 units in the last place. Vectors of the kernel language call them
directly. Scalar code names them in an attribute of the scalar call, by which LLVM's loop vectoriser finds them.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel.llvm_emitter import CpuTarget, Emitter, vector_of

FUNCTIONS = {
    "exp": 1, "log": 1, "sin": 1, "cos": 1, "pow": 2, "log1p": 1, "expm1": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "atan2": 2, "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "exp2": 1, "log2": 1, "log10": 1,
    "cbrt": 1, "hypot": 2, "erf": 1, "erfc": 1,
}  # fmt: skip


def _function_of(symbol: str) -> str:
    """The function that a symbol computes: "expf" and "exp" are "exp", while "erf" is itself."""
    return symbol if symbol in FUNCTIONS else symbol.removesuffix("f")


def vector_symbol(letter: str, lanes: int, symbol: str) -> str:
    """The name of a vector function: ("e", 16, "expf") gives "_ZGVeN16v_expf"."""
    return f"_ZGV{letter}N{lanes}{'v' * FUNCTIONS[_function_of(symbol)]}_{symbol}"


def variants(target: CpuTarget, symbol: str) -> list[tuple[int, str]]:
    """(lanes, name) of the vector forms of a scalar function that this CPU can run, widest first."""
    if symbol not in target.vector_functions or not target.is_x86:
        return []
    bits = 64 if symbol in FUNCTIONS else 32
    widths = [("e", 512)] if target.has("avx512f", "avx512dq", "avx512vl") else []
    widths += [("d", 256)] if target.has("avx2", "fma") else []
    return [(width // bits, vector_symbol(letter, width // bits, symbol)) for letter, width in [*widths, ("b", 128)]]


def calls_vectors(emitter: Emitter) -> bool:
    """Whether vector forms of functions are called, or may be after LLVM's loop vectoriser."""
    return any(name.startswith("_ZGV") for name in emitter.declarations)


def call_in_pieces(emitter: Emitter, symbol: str, lanes: int, element: str, operands: tuple[str, ...]) -> str | None:
    """Call the vector form of a function on vectors of any length; None where there is no form that fits.

    Longer vectors are cut into the widest pieces of which a power of two makes the whole.
    """
    forms = variants(emitter.target, symbol)
    fitting = [(width, name) for width, name in forms if lanes % width == 0 and (lanes // width).bit_count() == 1]
    if not fitting:
        return None
    width, name = fitting[0]
    piece = vector_of(element, width)

    def call(*parts: str) -> str:
        return emitter.call(name, piece, *((piece, part) for part in parts), attributes=" #1")

    return in_pieces(emitter, lanes, width, element, operands, call)


def in_pieces(
    emitter: Emitter, lanes: int, width: int, element: str, operands: tuple[str, ...], call: Callable[..., str]
) -> str:
    """A function of vectors by what `call` gives of pieces of `width` lanes, a power of two of which make the whole."""
    if width == lanes:
        return call(*operands)
    whole = vector_of(element, lanes)
    results: list[str] = []
    for start in range(0, lanes, width):
        mask = f"<{width} x i32> <{', '.join(f'i32 {lane}' for lane in range(start, start + width))}>"
        results.append(call(*(emitter.emit(f"shufflevector {whole} {o}, {whole} poison, {mask}") for o in operands)))
    while len(results) > 1:
        results = _joined(emitter, results, element, lanes // len(results))
    return results[0]


def _joined(emitter: Emitter, pieces: list[str], element: str, width: int) -> list[str]:
    """Neighbouring pieces of `width` lanes concatenated."""
    piece = vector_of(element, width)
    mask = f"<{2 * width} x i32> <{', '.join(f'i32 {lane}' for lane in range(2 * width))}>"
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return [emitter.emit(f"shufflevector {piece} {left}, {piece} {right}, {mask}") for left, right in pairs]


def advertise(emitter: Emitter, symbol: str, element: str) -> str:
    """Declare the vector forms of a scalar function; gives the attributes for calls of it (empty if there are none)."""
    forms = variants(emitter.target, symbol)
    for lanes, name in forms:
        text = vector_of(element, lanes)
        arguments = ", ".join([text] * FUNCTIONS[_function_of(symbol)])
        emitter.declarations[name] = f"declare {text} @{name}({arguments}) #1"
        emitter.kept.add(name)
    if not forms:
        return ""
    return f' "vector-function-abi-variant"="{",".join(f"{name}({name})" for _, name in forms)}"'
