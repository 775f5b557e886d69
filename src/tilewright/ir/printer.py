"""Core programs as text, which `parser.py` reads back exactly.

    program    ::= def NAME (bindings) = body
    body       ::= {let (bindings) = expression} in (atoms)   |   (atoms)
    bindings   ::= NAME: TYPE, ...            -- types stand only where a name is bound: [n][2*m]f32
    lambda     ::= (\\(bindings) -> body)
    atom       ::= NAME | 1i32 | -0.5f32 | f32.inf | f64.nan | c64(1.0, -2.0) | true
    expression ::= atom | atom + atom | exp(atom) | atom as TYPE | size(SIZE)
                 | threshold NAME SIZE                                  -- SIZE >= the choice called NAME
                 | if atom then body else body
                 | loop (bindings) = (atoms) for NAME: i64 < SIZE do body
                 | loop (bindings) = (atoms) while lambda do body
                 | x[atom, ...] | x[SIZE :+ SIZE by STEP, ...] | x with [atom, ...] = atom     -- start :+ count
                 | iota SIZE TYPE | replicate SIZE atom | concat AXIS x y | reshape (SIZE, ...) x
                 | rearrange (1, 0) x | copy x | copy x @block
                 | map SIZE lambda x y | reduce SIZE combine (neutral) x y | scan ...
                 | redomap SIZE combine (neutral) function x y | scanomap ...       -- reduce_comm, redomap_comm:
                 | scatter x indices values | hist (x, y) combine (neutral) indices values   -- commutative
                 | stream_seq SIZE CHUNK function (initial) x y
                 | sweep SIZE before combine (neutral) after (destinations) x y      -- sweep_totals: with the totals
                 | offset_folds COUNT SIZE starts function combine (neutral) result x y else body
                 | segmap@block (i: i64 < SIZE, ...) do body | segred@block space combine (neutral) do body
                 | segscan@... | seghist@block space (destinations) combine (neutral) do body

A size that follows a word directly stands in parentheses if it is a sum or a product. `lexer.py` says how names are
quoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilewright.ir import nodes
from tilewright.ir.lexer import quote
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.operators import OPERATORS
from tilewright.ir.sizes import Size

_STEP = "  "


def print_program(program: Program) -> str:
    """The program as text that ends with a newline.

    >>> from tilewright.ir.builder import Builder
    >>> from tilewright.ir.nodes import array
    >>> from tilewright.ir.scalars import F32
    >>> b = Builder()
    >>> x = b.variable("x", array(F32, "n"))
    >>> print(print_program(b.program("double", [x], [b.map([x], lambda e: b.apply("add", e, e))])), end="")
    def double (x: [n]f32) =
      let (t_1: [n]f32) = map n (\\(x_1: f32) ->
        let (t: f32) = x_1 + x_1
        in (t)) x
      in (t_1)
    """
    body = _body(program.body, 1)
    separator = "" if program.body.statements else "\n" + _STEP
    return f"def {quote(program.name)} {_bindings(program.parameters)} ={separator}{body}\n"


def print_statement(statement: Statement, indent: int = 0) -> str:
    """A statement; lines after the first are indented for a statement `indent` steps deep."""
    return f"let {_bindings(statement.targets)} = {print_expression(statement.expression, indent)}"


def print_lambda(function: Lambda, indent: int = 0) -> str:
    """A lambda in its parentheses, whose body's lines are one step deeper than `indent`."""
    separator = "" if function.body.statements else " "
    return f"(\\{_bindings(function.parameters)} ->{separator}{_body(function.body, indent + 1)})"


def print_type(type_: Type) -> str:
    """A type, such as [n][2*m]f32."""
    return "".join(f"[{print_size(extent)}]" for extent in type_.shape) + str(type_.element)


def print_atom(atom: Atom) -> str:
    """A name or a literal with its type."""
    return quote(atom.name) if isinstance(atom, Variable) else _literal(atom)


def print_size(size: Size) -> str:
    """A size as `str` gives it, with names quoted where they must be."""
    return size.text(quote)


def _size_argument(size: Size) -> str:
    """A size after a word: in parentheses unless it is one number, name or function."""
    alone = len(size.terms) == 0 or (
        len(size.terms) == 1
        and size.terms[0][1] > 0
        and len(size.terms[0][0]) + (size.terms[0][1] != 1 or not size.terms[0][0]) == 1
    )
    return print_size(size) if alone else f"({print_size(size)})"


def _literal(literal: Literal) -> str:
    value, scalar = literal.value, literal.scalar
    if scalar.is_complex:
        return f"{scalar}({complex(value).real!r}, {complex(value).imag!r})"
    if isinstance(value, complex):
        raise TypeError(f"the literal {value} of type {scalar} is complex")
    if scalar.is_float:
        number = float(value)
        if math.isfinite(number):
            return f"{number!r}{scalar}"
        return f"{'-' if number < 0 else ''}{scalar}.{'nan' if math.isnan(number) else 'inf'}"
    if int(value) != value:
        raise TypeError(f"the literal {value} of type {scalar} is no integer")
    return ("true" if value else "false") if scalar.kind == "b" else f"{int(value)}{scalar}"


def _list(parts: Iterable[str]) -> str:
    return "(" + ", ".join(parts) + ")"


def _bindings(variables: Sequence[Variable]) -> str:
    return _list(map(_binding, variables))


def _binding(variable: Variable) -> str:
    return f"{quote(variable.name)}: {print_type(variable.type)}"


def _atoms(atoms: Sequence[Atom]) -> str:
    return _list(map(print_atom, atoms))


def _body(body: Body, indent: int) -> str:
    """The body's lines, each after a newline, or its results alone."""
    if not body.statements:
        return _atoms(body.results)
    lines = [print_statement(one, indent) for one in body.statements]
    start = "\n" + _STEP * indent
    return "".join(start + line for line in [*lines, f"in {_atoms(body.results)}"])


def _block(word: str, body: Body, indent: int) -> str:
    return word + ("" if body.statements else " ") + _body(body, indent + 1)


def _space(space: nodes.SegSpace) -> str:
    return _list(f"{_binding(index)} < {print_size(extent)}" for index, extent in space.dimensions)


def _slice(one: nodes.SliceDimension) -> str:
    step = "" if one.step == 1 else f" by {one.step}"
    return f"{print_size(one.start)} :+ {print_size(one.count)}{step}"


def _words(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _names(variables: Sequence[Variable]) -> str:
    return " ".join(map(print_atom, variables))


def _tag(word: str, level: nodes.Level, space: nodes.SegSpace) -> str:
    return f"{word}@{level.value} {_space(space)}"


def print_expression(expression: Expression, indent: int = 0) -> str:
    """An expression of a statement that is `indent` steps deep."""
    match expression:
        case nodes.Alias(atom):
            return print_atom(atom)
        case nodes.Apply(operator, operands):
            symbol = OPERATORS[operator].symbol if operator in OPERATORS else None
            if symbol and len(operands) == 2:
                return f"{print_atom(operands[0])} {symbol} {print_atom(operands[1])}"
            return operator + _atoms(operands)
        case nodes.Cast(scalar, operand):
            return f"{print_atom(operand)} as {scalar}"
        case nodes.SizeValue(size):
            return f"size({print_size(size)})"
        case nodes.Threshold(name, parallelism):
            return f"threshold {quote(name)} {_size_argument(parallelism)}"
        case nodes.If(condition, then, otherwise):
            first = _block(f"if {print_atom(condition)} then", then, indent)
            separator = "\n" + _STEP * indent if then.statements else " "
            return first + separator + _block("else", otherwise, indent)
        case nodes.Loop(parameters, initial, form, body):
            begin = f"loop {_bindings(parameters)} = {_atoms(initial)}"
            if isinstance(form, nodes.ForLoop):
                head = f"for {_binding(form.index)} < {print_size(form.bound)}"
            else:
                head = f"while {print_lambda(form.condition, indent)}"
            return _block(f"{begin} {head} do", body, indent)
        case nodes.SegMap() | nodes.SegRed() | nodes.SegScan() | nodes.SegHist():
            return _segmented(expression, indent)
        case (
            nodes.Map()
            | nodes.Reduce()
            | nodes.Scan()
            | nodes.Redomap()
            | nodes.Scanomap()
            | nodes.Hist()
            | nodes.StreamSeq()
            | nodes.Sweep()
            | nodes.OffsetFolds()
        ):
            return _combinator(expression, indent)
        case _:
            return _array(expression)


def _array(expression: Expression) -> str:
    match expression:
        case nodes.Index(array, indices):
            return f"{print_atom(array)}[{', '.join(map(print_atom, indices))}]"
        case nodes.Slice(array, dimensions):
            return f"{print_atom(array)}[{', '.join(map(_slice, dimensions)) or ':+'}]"
        case nodes.Update(array, indices, value):
            return f"{print_atom(array)} with [{', '.join(map(print_atom, indices))}] = {print_atom(value)}"
        case nodes.Iota(count, scalar):
            return f"iota {_size_argument(count)} {scalar}"
        case nodes.Replicate(count, value):
            return f"replicate {_size_argument(count)} {print_atom(value)}"
        case nodes.Concat(axis, arrays):
            return _words("concat", str(axis), _names(arrays))
        case nodes.Reshape(array, shape):
            return f"reshape {_list(map(print_size, shape))} {print_atom(array)}"
        case nodes.Rearrange(array, permutation):
            return f"rearrange {_list(map(str, permutation))} {print_atom(array)}"
        case nodes.Copy(array, level):
            return f"copy {print_atom(array)}" + (f" @{level.value}" if level else "")
        case nodes.Scatter(destination, indices, values):
            return f"scatter {_names([destination, indices, values])}"
    raise TypeError(f"not an expression: {expression!r}")


def _combinator(
    node: nodes.Map
    | nodes.Reduce
    | nodes.Scan
    | nodes.Redomap
    | nodes.Scanomap
    | nodes.Hist
    | nodes.StreamSeq
    | nodes.Sweep
    | nodes.OffsetFolds,
    indent: int,
) -> str:
    if isinstance(node, nodes.Hist):
        operator = f"{print_lambda(node.combine, indent)} {_atoms(node.neutral)}"
        return _words("hist", _atoms(node.destinations), operator, print_atom(node.indices), _names(node.values))
    width, arrays = _size_argument(node.width), _names(node.arrays)
    if isinstance(node, nodes.Map):
        return _words("map", width, print_lambda(node.function, indent), arrays)
    if isinstance(node, nodes.StreamSeq):
        chunk, function = _size_argument(node.chunk), print_lambda(node.function, indent)
        return _words("stream_seq", width, chunk, function, _atoms(node.initial), arrays)
    if isinstance(node, nodes.OffsetFolds):
        first, combine, last = (print_lambda(one, indent) for one in (node.function, node.combine, node.result))
        head = _words("offset_folds", _size_argument(node.count), width, print_atom(node.starts), first, combine)
        return _block(_words(head, _atoms(node.neutral), last, arrays, "else"), node.otherwise, indent)
    if isinstance(node, nodes.Sweep):
        before, combine, after = (print_lambda(one, indent) for one in (node.before, node.combine, node.after))
        word = "sweep_totals" if node.totals else "sweep"
        return _words(word, width, before, combine, _atoms(node.neutral), after, _atoms(node.destinations), arrays)
    commutative = "_comm" if isinstance(node, nodes.Reduction) and node.commutative else ""
    function = print_lambda(node.function, indent) if isinstance(node, nodes.Redomap | nodes.Scanomap) else ""
    combine = print_lambda(node.combine, indent)
    return _words(type(node).__name__.lower() + commutative, width, combine, _atoms(node.neutral), function, arrays)


def _segmented(node: nodes.Segmented, indent: int) -> str:
    commutative = "_comm" if isinstance(node, nodes.SegRed) and node.commutative else ""
    parts = [_tag(type(node).__name__.lower() + commutative, node.level, node.space)]
    if isinstance(node, nodes.SegHist):
        parts.append(_atoms(node.destinations))
    if not isinstance(node, nodes.SegMap):
        parts += [print_lambda(node.combine, indent), _atoms(node.neutral)]
    return _block(_words(*parts, "do"), node.body, indent)
