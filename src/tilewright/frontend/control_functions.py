"""Control flow of programs: `cond`, `loop`, `while_loop`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.decided_truth import plain
from tilewright.frontend.program_tracing import (
    Tracer,
    as_element,
    atom_of,
    check_regular,
    current,
    describe_value,
    fresh_parameters,
    is_array,
    is_number,
    name_of,
    number_type,
    parameter_names,
    size_of,
    type_of,
    values_of,
    wrap,
    wrap_results,
)
from tilewright.frontend.scalar_constants import TYPED_NUMBERS, constant
from tilewright.frontend.scalar_tracing import ScalarProxy, WeakProxy, common_type, convert
from tilewright.ir.nodes import Atom, Body, ForLoop, If, Lambda, Loop, Statement, Type, Variable, WhileLoop
from tilewright.ir.scalars import BOOL, I64


def cond(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` if the condition holds, else `otherwise`; only that one is computed.

    Args:
        condition: a bool scalar.
        then: a function without parameters (it uses what it needs from around it), or a value.
        otherwise: likewise; its results have the same shapes, and types that can be converted without loss of kind.

    Returns:
        One value or a tuple, as the functions give.

    Raises:
        TypeError: if the branches give different things.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def halved(xs: tw.f64["n"], wanted: tw.bool_):
        ...     return tw.cond(wanted, lambda: xs / 2, lambda: xs)
        >>> halved(np.ones(2), True).tolist()
        [0.5, 0.5]
    """
    tracer = current("cond")
    condition = plain(condition)
    if isinstance(condition, bool | np.bool_):
        return _branch(then) if condition else _branch(otherwise)
    if not isinstance(condition, ScalarProxy) or condition.scalar != BOOL:
        raise TypeError(f"cond: the condition must be a bool, not {describe_value(condition)}; compare, x != 0")
    test = condition.atom
    written: list[tuple[list[Statement], list[Any], bool]] = []
    for branch in (then, otherwise):
        with tracer.scope() as statements:
            values, several = values_of(_branch(branch), f"cond: {_branch_name(branch)}")
        written.append((statements, values, several))
    (first, left, several), (second, right, also) = written
    if len(left) != len(right) or several != also:
        raise TypeError(f"cond: the branches give {_count(left, several)} and {_count(right, also)}")
    types = [_common(a, b) for a, b in zip(left, right, strict=True)]
    bodies = [_branch_body(tracer, *one, types) for one in ((first, left), (second, right))]
    return wrap_results(tracer, tracer.emit(If(test, *bodies)), several, "cond")


def _branch(branch: Any) -> Any:
    return branch() if callable(branch) else branch


def _branch_name(branch: Any) -> str:
    return name_of(branch) if callable(branch) else "the branch"


def _count(values: Sequence[Any], several: bool) -> str:
    return f"a tuple of {len(values)}" if several else "one value"


def _common(left: Any, right: Any) -> Type:
    """The type of both branches' results: equal for arrays, the common one of scalars and NumPy's numbers; Python's
    numbers take the other's.
    """
    if is_array(left) or is_array(right):
        if not (is_array(left) and is_array(right)) or left.variable.type != right.variable.type:
            raise TypeError(f"cond: the branches give {describe_value(left)} and {describe_value(right)}")
        found: Type = left.variable.type
        return found
    is_weak = [is_number(one) and not isinstance(one, np.generic) for one in (left, right)]
    if is_weak[0] == is_weak[1]:
        return Type(common_type([number_type(left), number_type(right)]))
    number, typed = (left, right) if is_weak[0] else (right, left)
    scalar = number_type(typed)
    own = number_type(number, scalar)
    # A whole number fits a float; 0.5 makes the result of an integer branch a float.
    return Type(scalar if common_type([own, scalar]).kind == scalar.kind else own)


def _branch_body(tracer: Tracer, statements: list[Statement], values: Sequence[Any], types: Sequence[Type]) -> Body:
    with tracer.scope() as conversions:
        atoms = tuple(_converted(tracer, one, type_) for one, type_ in zip(values, types, strict=True))
    body = Body((*statements, *conversions), atoms)
    check_regular(body, atoms, "cond: a branch")
    return body


def _converted(tracer: Tracer, value: Any, type_: Type) -> Atom:
    if is_array(value):
        return atom_of(value)
    if isinstance(value, ScalarProxy):
        return convert(tracer, type_.element, value.atom)
    return as_element(tracer, value, type_.element, "cond: the result")


def loop(count: Any, initial: Any, body: Callable[..., Any]) -> Any:
    """Sequential loop: carried = initial; for i in range(count): carried = body(i, *carried).

    Args:
        count: how often: a number, `x.shape[0]`, an integer scalar. A function makes this a `while_loop`.
        initial: a value or a tuple of values. Plain numbers take the type that the body gives them.
        body: a function of the index and the carried values, that gives the new ones. The index takes the type of
            what it meets, as the numbers of Python's `range` do in NumPy: of elements of f32 `i * x` is of f32, and of
            bytes it wraps around. Where it is to be an i64 as such, or a float, say so: `i.astype(tw.f64) / 3`.

    Returns:
        The last carried values, one or a tuple as `initial` is.

    Raises:
        TypeError: if the body's results are not of the carried types.

    Example:
        >>> import tilewright as tw
        >>> @tw.program
        ... def fibonacci(n: tw.i64):
        ...     return tw.loop(n, (0, 1), lambda i, a, b: (b, a + b))[0]
        >>> print(fibonacci(10))
        55
        >>> @tw.program
        ... def ramp(start: tw.f32):
        ...     return tw.loop(4, start, lambda i, x: x + i / 2)
        >>> print(ramp(1.0), ramp(1.0).dtype)
        4.0 float32
    """
    if callable(count):
        return while_loop(count, initial, body)
    tracer = current("loop")
    bound = size_of(count, "the count of loop")
    name = f"loop: {name_of(body)}"
    _check_order(initial, "loop(count, initial, body)")
    carried, several = values_of(initial, "loop: what it starts from")
    hints = parameter_names(body)
    _check_takes(name, body, 1 + len(carried), "the index and each carried value")
    index = tracer.variable(hints[0] if hints else "i", Type(I64))

    def write(*values: Any) -> Any:
        return body(tracer.counter_proxy(index, weak=True), *values)

    atoms = _initial(tracer, name, carried, write, hints[1:])
    parameters, inside = _body(tracer, name, atoms, write, hints[1:], several)
    targets = tracer.emit(Loop(parameters, atoms, ForLoop(index, bound), inside))
    return wrap_results(tracer, targets, several, "loop")


def _check_order(initial: Any, order: str) -> None:
    """Refuse a function in place of values: other packages take the body first."""
    if callable(initial) and not is_array(initial):
        raise TypeError(f"what a loop starts from is a function; the arguments are {order}")


def _check_takes(name: str, function: Callable[..., Any], count: int, what: str) -> None:
    """Refuse a function that cannot be called with so many values, which come one by one and not as a tuple."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # ufuncs
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise TypeError(
            f"{name}{signature} is called with {count} argument{'s' if count > 1 else ''}, {what}: {error}"
        ) from None


def while_loop(condition: Callable[..., Any], initial: Any, body: Callable[..., Any]) -> Any:
    """Sequential loop: carried = initial; while condition(*carried): carried = body(*carried).

    Args:
        condition: a function of the carried values that gives a bool scalar.
        initial: a value or a tuple of values. Plain numbers take the type that the body gives them.
        body: a function of the carried values that gives the new ones.

    Returns:
        The last carried values, one or a tuple as `initial` is.

    Raises:
        TypeError: if the body's results are not of the carried types, or the condition is no bool.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def root(x: tw.f64):
        ...     return tw.while_loop(lambda y: abs(y * y - x) > 1e-9, x, lambda y: (y + x / y) / 2)
        >>> round(float(root(2.0)), 6)
        1.414214
    """
    tracer = current("while_loop")
    name = f"while_loop: {name_of(body)}"
    _check_order(initial, "while_loop(condition, initial, body)")
    carried, several = values_of(initial, "while_loop: what it starts from")
    hints = parameter_names(body)
    for function, what in ((condition, f"while_loop: {name_of(condition)}"), (body, name)):
        _check_takes(what, function, len(carried), "each carried value")
    atoms = _initial(tracer, name, carried, body, hints)
    parameters, inside = _body(tracer, name, atoms, body, hints, several)
    form = WhileLoop(_condition(tracer, condition, [one.type for one in atoms]))
    targets = tracer.emit(Loop(parameters, atoms, form, inside))
    return wrap_results(tracer, targets, several, "while_loop")


def _condition(tracer: Tracer, condition: Callable[..., Any], types: Sequence[Type]) -> Lambda:
    parameters = fresh_parameters(tracer, types, parameter_names(condition))
    with tracer.scope() as statements:
        value = plain(condition(*(wrap(tracer, one) for one in parameters)))
        if isinstance(value, bool | np.bool_) or not isinstance(value, ScalarProxy) or value.scalar != BOOL:
            raise TypeError(
                f"while_loop: the condition, {name_of(condition)}, must give a traced bool, not {describe_value(value)}"
            )
        atom = value.atom
    return Lambda(tuple(parameters), Body(tuple(statements), (atom,)))


def _initial(
    tracer: Tracer, name: str, carried: Sequence[Any], write: Callable[..., Any], hints: Sequence[str]
) -> tuple[Atom, ...]:
    """What the loop starts from, as atoms. What began as a plain number takes the type that one round gives it.

    For that the body is traced once with weak proxies; what it writes, and the names that it takes, are dropped.
    """
    types = [None if is_number(one) else type_of(one) for one in carried]
    if all(types):
        return tuple(atom_of(one) for one in carried)
    supply, tracer.names = tracer.names, tracer.names.copy()
    with tracer.scope():
        begun = [type_ or Type(number_type(one)) for one, type_ in zip(carried, types, strict=True)]
        trial = [
            _weak(tracer, variable) if type_ is None else wrap(tracer, variable)
            for variable, type_ in zip(fresh_parameters(tracer, begun, hints), types, strict=True)
        ]
        results, _ = values_of(write(*trial), name)
    tracer.names = supply
    _check_count(name, carried, results)
    return tuple(
        atom_of(one) if type_ is not None else _started(tracer, one, result)
        for one, type_, result in zip(carried, types, results, strict=True)
    )


def _weak(tracer: Tracer, variable: Variable) -> ScalarProxy:
    return (ScalarProxy if variable.type.element == BOOL else WeakProxy)(variable, tracer)


def _started(tracer: Tracer, number: Any, result: Any) -> Atom:
    own = number_type(number)
    if is_array(result) or not isinstance(result, ScalarProxy) or result.weak:
        scalar = own if not isinstance(result, WeakProxy) else common_type([own, result.scalar])
    else:
        scalar = result.scalar if common_type([own, result.scalar]).kind == result.scalar.kind else own
    return convert(tracer, scalar, number.atom) if isinstance(number, ScalarProxy) else constant(number, scalar)


def _check_count(name: str, carried: Sequence[Any], results: Sequence[Any]) -> None:
    if len(carried) != len(results):
        raise TypeError(f"{name} gives {len(results)} values, but the loop carries {len(carried)}")


def _body(
    tracer: Tracer, name: str, atoms: Sequence[Atom], write: Callable[..., Any], hints: Sequence[str], several: bool
) -> tuple[tuple[Variable, ...], Body]:
    """The loop's parameters and its body, whose results have their types."""
    parameters = fresh_parameters(tracer, [one.type for one in atoms], hints)
    with tracer.scope() as statements:
        values, also = values_of(write(*(wrap(tracer, one) for one in parameters)), name)
        _check_count(name, atoms, values)
        if several != also:
            raise TypeError(f"{name} gives {_count(values, also)}, but the loop carries {_count(values, several)}")
        results = tuple(_carried(tracer, name, one, p) for one, p in zip(values, parameters, strict=True))
    body = Body(tuple(statements), results)
    check_regular(body, results, name)
    return tuple(parameters), body


def _carried(tracer: Tracer, name: str, value: Any, parameter: Variable) -> Atom:
    """A new carried value: exactly of the type of the old one."""
    if is_number(value) and not parameter.type.rank:
        return as_element(tracer, value, parameter.type.element, f"{name}: the new {parameter}")
    atom = atom_of(value)
    if atom.type != parameter.type:
        advice = _kept_advice(atom.type, parameter.type)
        raise TypeError(
            f"{name} gives {atom.type} for {parameter}, which the loop carries as {parameter.type}; {advice}"
        )
    return atom


def _kept_advice(given: Type, carried: Type) -> str:
    """What to do about a new carried value of another type: of other dimensions, sizes, or elements."""
    if given.rank != carried.rank:
        return "what is carried has as many dimensions after each round as before it"
    if given.shape != carried.shape:
        sizes = ", ".join(map(str, carried.shape)) + ("," if carried.rank == 1 else "")
        return (
            "what is carried keeps its size: carry an array that is large enough, and how many of its elements count; "
            f"or, if sizes are equal, say so with tw.reshape(..., ({sizes})), which is checked when the program runs"
        )
    return f"convert with .astype, or give what it starts from that type; {TYPED_NUMBERS}"
