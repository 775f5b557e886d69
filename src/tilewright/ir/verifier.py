"""Checks that a core program is well-formed; every pass's result is put through it.

- Every name is bound once in the whole program, and every use is in the scope of its binding and has its type.
- The sizes in types and expressions mention i64 scalars in scope: variables, or size names of the program's parameters.
  Every size name is a whole dimension of some parameter, so that it is known once the arguments are.
- What a statement binds has the types that its expression gives (`typing.result_types`).
- A segmented operation stands only inside those of outer levels: cluster, then block, then thread.
- A threshold stands where the host runs the statements: in no function and no segmented operation.
- A literal's value is one of its type.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, size
from tilewright.ir.typing import result_types

_DEPTH = {level: depth for depth, level in enumerate((nodes.Level.CLUSTER, nodes.Level.BLOCK, nodes.Level.THREAD))}
_INDEX = Type(I64)


@dataclass(frozen=True)
class Defect:
    """What is wrong, and where: the statements on the way to it, such as `main / let c = map / let t = apply add`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class IRError(ValueError):
    """A program that is not well-formed; `defects` has everything that is wrong with it."""

    def __init__(self, program_name: str, defects: tuple[Defect, ...]) -> None:
        count = f"{len(defects)} defect{'s' if len(defects) > 1 else ''}"
        super().__init__("\n  ".join([f"the program {program_name} is not well-formed, {count}:", *map(str, defects)]))
        self.defects = defects


def verify(program: Program) -> None:
    """Do nothing for a well-formed program.

    >>> from tilewright.ir.parser import parse_program
    >>> verify(parse_program("def f (x: [n]f32) = let (y: f32) = x[0i64] in (y)"))
    >>> verify(parse_program("def f (x: [n]f32) = let (y: f64) = x[0i64] in (y)"))
    Traceback (most recent call last):
    ...
    tilewright.ir.verifier.IRError: the program f is not well-formed, 1 defect:
      f / let y = index: y is bound with type f64, but the expression gives f32

    Raises:
        IRError: listing every defect with its location and the types or sizes concerned.
    """
    checker = _Checker()
    checker.program(program)
    if checker.defects:
        raise IRError(program.name, tuple(checker.defects))


def kind_of(expression: Expression) -> str:
    """A short name for what an expression does: `apply add`, `stream_seq`, `segmap`."""
    if isinstance(expression, nodes.Apply):
        return f"apply {expression.operator}"
    name = type(expression).__name__
    return name.lower() if name.startswith("Seg") else re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class _Scope:
    """What holds at a place: the types of the names in scope, where it is, the innermost level around it, and whether
    it is the host that runs it.
    """

    types: dict[str, Type]
    path: str
    level: nodes.Level | None = None
    host: bool = True

    def within(self, step: str) -> _Scope:
        return dataclasses.replace(self, path=f"{self.path} / {step}")

    def binding(self, variables: tuple[Variable, ...]) -> _Scope:
        return dataclasses.replace(self, types=self.types | {one.name: one.type for one in variables})


class _Checker:
    """Collects defects; `bound` has where each name of the program was bound first."""

    def __init__(self) -> None:
        self.defects: list[Defect] = []
        self.bound: dict[str, str] = {}

    def report(self, scope: _Scope, message: str) -> None:
        self.defects.append(Defect(scope.path, message))

    def program(self, program: Program) -> None:
        names = program.size_names
        scope = _Scope(dict.fromkeys(names, _INDEX), program.name)
        self.bound = dict.fromkeys(names, f"{program.name} (a size of the parameters)")
        inner = scope.binding(program.parameters)
        self.bind(program.parameters, scope, inner)
        dimensions = [(one, extent) for one in program.parameters for extent in one.type.shape]
        for parameter, extent in dimensions:
            if extent.constant is not None and extent.constant < 0:
                self.report(scope, f"parameter {parameter.name} of type {parameter.type} has a negative size")
        for name in names:
            if not any(extent == size(name) for _, extent in dimensions):
                found = ", ".join(f"{one.name}: {one.type}" for one, extent in dimensions if name in extent.names)
                self.report(scope, f"size {name} cannot be solved for: no parameter has it as a dimension ({found})")
        self.body(program.body, inner)

    def bind(self, variables: tuple[Variable, ...], scope: _Scope, sizes_scope: _Scope) -> None:
        """Names bound in `scope`, whose types may mention what is in `sizes_scope`."""
        for one in variables:
            if one.name in self.bound:
                self.report(scope, f"{one.name} is bound again; it was first bound in {self.bound[one.name]}")
            self.bound.setdefault(one.name, scope.path)
            for extent in one.type.shape:
                self.size(extent, sizes_scope, f"the type {one.type} of {one.name}")

    def body(self, body: Body, scope: _Scope) -> None:
        scope = scope.binding(())  # a copy, which the statements add to
        for statement in body.statements:
            self.statement(statement, scope)
            scope.types.update((one.name, one.type) for one in statement.targets)
        for one in body.results:
            self.parts(one, scope.within("in"))

    def statement(self, statement: Statement, scope: _Scope) -> None:
        expression, targets = statement.expression, statement.targets
        here = scope.within(f"let {', '.join(one.name for one in targets)} = {kind_of(expression)}")
        self.expression(expression, here)
        self.bind(targets, here, here)
        try:
            types = result_types(expression)
        except TypeError as error:
            self.report(here, str(error))
            return
        if len(types) != len(targets):
            shown = ", ".join(map(str, types))
            self.report(here, f"{len(targets)} names are bound, but the expression gives {len(types)}: ({shown})")
            return
        for target, given in zip(targets, types, strict=True):
            if target.type != given:
                message = f"{target.name} is bound with type {target.type}, but the expression gives {given}"
                self.report(here, message)

    def expression(self, expression: Expression, scope: _Scope) -> None:
        match expression:
            case nodes.Loop(parameters, initial, form, body):
                self.parts(initial, scope)
                self.bind(parameters, scope, scope)
                inner = scope.binding(parameters)
                if isinstance(form, nodes.WhileLoop):
                    self.function(form.condition, scope.within("while"))
                elif isinstance(form, nodes.ForLoop):
                    self.size(form.bound, scope, "the bound of the loop")
                    self.bind((form.index,), scope, scope)
                    inner = inner.binding((form.index,))
                self.body(body, inner)
            case nodes.SegMap() | nodes.SegRed() | nodes.SegScan() | nodes.SegHist():
                self.segmented(expression, scope)
            case nodes.Threshold(name, parallelism):
                if not scope.host:
                    self.report(scope, f"the threshold {name} is asked in a function, which is not run by the host")
                self.parts(parallelism, scope)
            case _:
                chunk = expression.chunk.constant if isinstance(expression, nodes.StreamSeq) else None
                if isinstance(expression, nodes.StreamSeq) and chunk is not None and chunk < 1:
                    self.report(scope, f"the stream's chunk of {expression.chunk} rows is not positive")
                self.fields(expression, scope)

    def segmented(self, expression: nodes.Segmented, scope: _Scope) -> None:
        what = kind_of(expression)
        level = expression.level
        if scope.level is not None and _DEPTH[level] <= _DEPTH[scope.level]:
            message = f"a {what} at level {level.value} stands inside one at level {scope.level.value}"
            self.report(scope, message)
        scope = dataclasses.replace(scope, level=level, host=False)
        indices = tuple(index for index, _ in expression.space.dimensions)
        for index, extent in expression.space.dimensions:
            self.size(extent, scope, f"the extent of {index.name}")
            if index.type != _INDEX:
                self.report(scope, f"index {index.name} has type {index.type}, i64 is needed")
        self.bind(indices, scope, scope)
        for field in dataclasses.fields(expression):
            if field.name in ("destinations", "neutral"):
                self.parts(getattr(expression, field.name), scope)
        if not isinstance(expression, nodes.SegMap):
            self.function(expression.combine, scope.within("combine"))
        self.body(expression.body, scope.binding(indices))

    def fields(self, expression: Any, scope: _Scope) -> None:
        """The parts of an expression that binds nothing but in its bodies. Several bodies are told apart by name."""
        values = [(field.name, getattr(expression, field.name)) for field in dataclasses.fields(expression)]
        several = sum(isinstance(value, Lambda | Body) for _, value in values) > 1
        for name, value in values:
            self.parts(value, scope.within(name) if several and isinstance(value, Lambda | Body) else scope)

    def function(self, function: Lambda, scope: _Scope) -> None:
        inner = dataclasses.replace(scope, host=False).binding(function.parameters)
        self.bind(function.parameters, scope, inner)
        self.body(function.body, inner)

    def parts(self, value: Any, scope: _Scope) -> None:
        """Everything used in a part of an expression."""
        match value:
            case Variable():
                self.use(value, scope)
            case Literal():
                self.literal(value, scope)
            case Size():
                self.size(value, scope, f"the size {value}")
            case Lambda():
                self.function(value, scope)
            case Body():
                self.body(value, scope)
            case tuple():
                for one in value:
                    self.parts(one, scope)
            case _ if dataclasses.is_dataclass(value):
                for field in dataclasses.fields(value):
                    self.parts(getattr(value, field.name), scope)

    def use(self, variable: Variable, scope: _Scope) -> None:
        name = variable.name
        if name not in scope.types:
            self.report(scope, self.out_of_scope(name))
        elif scope.types[name] != variable.type:
            message = f"{name} is used with type {variable.type}, but bound with type {scope.types[name]}"
            self.report(scope, message)

    def size(self, extent: Size, scope: _Scope, what: str) -> None:
        for name in sorted(extent.names):
            if name not in scope.types:
                self.report(scope, f"{what}: {self.out_of_scope(name)}")
            elif scope.types[name] != _INDEX:
                self.report(scope, f"{what}: {name} has type {scope.types[name]}, a size must be i64")

    def out_of_scope(self, name: str) -> str:
        if name in self.bound:
            return f"{name} is out of scope; it is bound in {self.bound[name]}"
        return f"{name} is used before it is bound, or never bound"

    def literal(self, literal: Literal, scope: _Scope) -> None:
        if (problem := literal_problem(literal)) is not None:
            self.report(scope, problem)


def literal_problem(literal: Literal) -> str | None:
    """Why a literal's value is not one of its type; None if it is."""
    value, scalar = literal.value, literal.scalar
    allowed: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}.get(
        scalar.kind, (int, float, complex)
    )
    if not isinstance(value, allowed) or (isinstance(value, bool) and scalar.kind != "b"):
        return f"the literal {value!r} is a {type(value).__name__}, not a value of {scalar}"
    if scalar.is_integer and isinstance(value, int):
        low = -(1 << (scalar.bits - 1)) if scalar.kind == "i" else 0
        high = low + (1 << scalar.bits) - 1
        if not low <= value <= high:
            return f"the literal {value} does not fit {scalar} ({low} to {high})"
    return None
