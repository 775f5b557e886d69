"""Tokens of the printed core language, and how names are written in it.

A name is written as it is if it looks like one (letters of any alphabet, digits, `_` and `.`) and is no reserved word;
any other name stands in backquotes, where `\\{60}` is the character with the hexadecimal code 60.

>>> print(quote("row_1.offset"), quote("map"), quote("×"), quote("a`b"))
row_1.offset `map` `×` `a\\{60}b`
"""

from __future__ import annotations

import re

from tilewright.ir.dataclass import dataclass
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import SCALAR_TYPES

SIZE_FUNCTIONS = ("floordiv", "mod", "min", "max")
CONSTRUCTS = frozenset(
    (
        "if", "loop", "iota", "replicate", "concat", "reshape", "rearrange", "copy",
        "map", "reduce", "reduce_comm", "scan", "redomap", "redomap_comm", "scanomap", "scatter", "hist", "stream_seq",
        "sweep", "sweep_totals", "offset_folds", "segmap", "segred", "segred_comm", "segscan", "seghist", "threshold",
    )
)  # fmt: skip
SPECIAL_FLOATS = {
    f"{scalar}.{value}": (float(value), scalar)
    for scalar in SCALAR_TYPES.values()
    if scalar.is_float
    for value in ("inf", "nan")
}
RESERVED = CONSTRUCTS.union(
    SIZE_FUNCTIONS,
    SCALAR_TYPES,
    SPECIAL_FLOATS,
    ("def", "let", "in", "then", "else", "do", "for", "while", "as", "with", "by", "true", "false", "inf", "nan"),
)
INFIX = {operator.symbol: operator.name for operator in OPERATORS.values() if operator.symbol}

_NAME = re.compile(r"[^\W\d][\w.]*")
_ESCAPE = re.compile(r"\\\{([0-9a-f]+)\}")
_TOKEN = r"""(?P<space>\s+|--[^\n]*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?P<suffix>[^\W\d]\w*)?
    |(?P<name>[^\W\d][\w.]*)
    |`(?P<quoted>[^`\n]*)`
    |(?P<symbol>:\+|->|\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%&|^<>()\[\]:,=\\@])"""
"""Compiled when something is read: names are also written in processes that read nothing."""


class ParseError(ValueError):
    """A text that is not a core program: `line` and `column` (from 1) of the first token that does not fit."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Token:
    """`kind` is number, name, quoted, symbol or end; `suffix` the scalar type written after a number."""

    kind: str
    text: str
    line: int
    column: int
    suffix: str | None = None

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"{self.text + (self.suffix or '')!r}"


def quote(name: str) -> str:
    """A name as it is written in a printed program."""
    if _NAME.fullmatch(name) and name not in RESERVED:
        return name
    return "`" + "".join(c if c.isprintable() and c not in "`\\" else f"\\{{{ord(c):x}}}" for c in name) + "`"


def _unquote(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, with one of kind "end" after the last; comments run from -- to the end of the line.

    Raises:
        ParseError: at a character that begins no token.
    """
    token = re.compile(_TOKEN, re.VERBOSE)
    tokens: list[Token] = []
    position, line, line_start = 0, 1, 0
    while position < len(text):
        column = position - line_start + 1
        found = token.match(text, position)
        if found is None:
            raise ParseError(f"unexpected character {text[position]!r}", line, column)
        if (number := found["number"]) is not None:
            tokens.append(Token("number", number, line, column, found["suffix"]))
        elif (quoted := found["quoted"]) is not None:
            try:
                tokens.append(Token("quoted", _unquote(quoted), line, column))
            except (ValueError, OverflowError) as error:
                raise ParseError(f"the name `{quoted}` has an escape that is no character", line, column) from error
        elif found["space"] is None:
            kind = "name" if found["name"] is not None else "symbol"
            tokens.append(Token(kind, found[0], line, column))
        if newlines := found[0].count("\n"):
            line += newlines
            line_start = position + found[0].rfind("\n") + 1
        position = found.end()
    return [*tokens, Token("end", "", line, position - line_start + 1)]


class Cursor:
    """A position in the tokens of a text; the `expect` methods raise `ParseError` where something else stands."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._position = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes next, or one further on."""
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, stepping over it."""
        token = self.peek()
        self._position += 1
        return token

    def fail(self, expected: str, token: Token | None = None) -> ParseError:
        """The error that `expected` should stand where the next token (or the given one) is."""
        token = token or self.peek()
        return ParseError(f"expected {expected}, found {token}", token.line, token.column)

    def at(self, *texts: str, ahead: int = 0) -> bool:
        """True if one of these words or symbols comes next."""
        token = self.peek(ahead)
        return token.kind in ("name", "symbol") and token.text in texts

    def accept(self, text: str) -> bool:
        """Step over this word or symbol if it comes next."""
        if self.at(text):
            self._position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Step over this word or symbol."""
        if not self.at(text):
            raise self.fail(repr(text))
        return self.take()

    def at_name(self) -> bool:
        """True if a name comes next that is no reserved word."""
        token = self.peek()
        return token.kind == "quoted" or (token.kind == "name" and token.text not in RESERVED)

    def expect_name(self, what: str = "a name") -> str:
        """Step over a name."""
        if not self.at_name():
            raise self.fail(what)
        return self.take().text

    def expect_integer(self, what: str = "an integer") -> int:
        """Step over an integer without a suffix, with or without a sign."""
        sign = -1 if self.accept("-") else 1
        token = self.peek()
        if token.kind != "number" or token.suffix or not token.text.isdecimal():
            raise self.fail(what)
        return sign * int(self.take().text)
