"""What programs say with associative operators: `reduce`, `scan`, `redomap`, `scanomap`, `hist`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.frontend import program_tracing as tracing
from tilewright.frontend.array_arguments import arrays_of, common_width, fitted, index_array, operation, row_lambda
from tilewright.frontend.array_proxy import ArrayProxy
from tilewright.frontend.program_tracing import Tracer, as_element
from tilewright.frontend.scalar_constants import TYPED_NUMBERS, neutral_constant
from tilewright.frontend.scalar_tracing import ScalarProxy
from tilewright.ir.nodes import Apply, Atom, Hist, Lambda, Redomap, Reduce, Replicate, Scan, Scanomap, Type, Variable

_COMMUTATIVE = {"add", "mul", "min", "max", "and", "or", "xor"}


def reduce(op: Callable[..., Any] | str, neutral: Any, *arrays: Any, commutative: bool | None = None) -> Any:
    """All rows combined by an associative operator: op(op(x[0], x[1]), x[2]) ..., bracketed in any way.

    One version of Tilewright on one device brackets the same sizes and layouts in the same way at every call, with any
    number of threads, so that floats come out with the same bits. Long sums of floats are trees: a value goes through
    at most b additions in a node of b values (128 to 1024, most of them by vectors or several rows at once, so that
    less remains) and there are log(n) / log(b) levels. The error is at most as many units of the last place of
    sum(abs(x)) as there are additions on the longest path [Higham, Accuracy and Stability of Numerical Algorithms,
    section 4.2]: for a million values of one sign some 200 units, measured 1 to 15, where a chain has a million.

    Args:
        op: the operator: a Python function, `operator.add`, `tw.minimum`, or a name such as "add" or "+". For several
            arrays it takes two tuples (or twice as many scalars) and gives a tuple. On bool, + is "or", as in NumPy: to
            count, map with `.astype(tw.i64)` first.
        neutral: its neutral element, a tuple for several arrays; constants take the arrays' element types, infinities
            become the extremes of integer types.
        *arrays: arrays of one outer size.
        commutative: that op(a, b) = op(b, a); found out by itself for operators that are one addition, minimum, ...

    Returns:
        One value; for several arrays a tuple.

    Raises:
        TypeError: for sizes, types, and results of `op` that do not fit.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def argmin(xs: tw.f64["n"]):
        ...     def smaller(a, b):
        ...         second = b[0] < a[0]  # of equal ones the first is kept
        ...         return tw.where(second, b[0], a[0]), tw.where(second, b[1], a[1])
        ...     return tw.reduce(smaller, (np.inf, -1), xs, tw.iota(xs.shape[0]))[1]
        >>> print(argmin(np.array([3.0, 1.0, 2.0])))
        1
    """
    tracer, given = arrays_of("reduce", arrays)
    width = common_width(tracer, "reduce", given)
    neutrals, several = _neutrals(tracer, "reduce", neutral, [one.variable.type.row for one in given])
    combine = combine_lambda(tracer, "reduce", op, [one.type for one in neutrals])
    commutes = is_commutative(combine) if commutative is None else commutative
    variables = tuple(one.variable for one in given)
    return tracing.wrap_results(
        tracer, tracer.emit(Reduce(width, combine, neutrals, variables, commutes)), several, "reduce"
    )


def scan(op: Callable[..., Any] | str, neutral: Any, *arrays: Any) -> Any:
    """Every prefix combined by an associative operator, its own row included; arguments as of `reduce`.

    Sums of floats are trees, as those of `reduce`, and have the same bits at every call: on a CPU a value of a long
    scan goes through 6 additions in its vectors, one for each pair of vectors of its strip of 512 rows, 64 on each of
    two levels of a tree above, one for every 2 million rows, one for each chunk (eight for a core), and a few that join
    these. A prefix errs by at most so many units of the sum of the magnitudes: some 170 at a million rows.

    Raises:
        TypeError: as `reduce`.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def running(xs: tw.i64["n"]):
        ...     return tw.scan("add", 0, xs)
        >>> print(running(np.array([3, 1, 4, 1])))
        [3 4 8 9]
    """
    tracer, given = arrays_of("scan", arrays)
    width = common_width(tracer, "scan", given)
    neutrals, several = _neutrals(tracer, "scan", neutral, [one.variable.type.row for one in given])
    combine = combine_lambda(tracer, "scan", op, [one.type for one in neutrals])
    variables = tuple(one.variable for one in given)
    return tracing.wrap_results(tracer, tracer.emit(Scan(width, combine, neutrals, variables)), several, "scan")


def redomap(
    op: Callable[..., Any] | str,
    neutral: Any,
    function: Callable[..., Any] | str,
    *arrays: Any,
    commutative: bool | None = None,
) -> Any:
    """`reduce(op, neutral, map(function, arrays))` as one construct.

    As many results of `function` as there are neutral elements are reduced; further ones come back as arrays.

    Raises:
        TypeError: as `map` and `reduce` do.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def norm_and_squares(xs: tw.f64["n"]):
        ...     return tw.redomap("add", 0, lambda x: (x * x, x * x), xs)
        >>> total, squares = norm_and_squares(np.arange(3.0))
        >>> float(total), squares.tolist()
        (5.0, [0.0, 1.0, 4.0])
    """
    tracer, given = arrays_of("redomap", arrays)
    width = common_width(tracer, "redomap", given)
    rows, several = row_lambda(tracer, "redomap", operation(function), given)
    neutrals = _mapped_neutrals(tracer, "redomap", neutral, rows)
    combine = combine_lambda(tracer, "redomap", op, [one.type for one in neutrals])
    commutes = is_commutative(combine) if commutative is None else commutative
    variables = tuple(one.variable for one in given)
    targets = tracer.emit(Redomap(width, combine, neutrals, rows, variables, commutes))
    return tracing.wrap_results(tracer, targets, several, "redomap")


def scanomap(op: Callable[..., Any] | str, neutral: Any, function: Callable[..., Any] | str, *arrays: Any) -> Any:
    """`scan(op, neutral, map(function, arrays))` as one construct; further results of `function` are arrays.

    Raises:
        TypeError: as `map` and `scan` do.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def counts(xs: tw.f64["n"]):
        ...     return tw.scanomap("add", 0, lambda x: tw.where(x > 0, 1, 0), xs)
        >>> counts(np.array([1.0, -1.0, 2.0])).tolist()
        [1, 1, 2]
    """
    tracer, given = arrays_of("scanomap", arrays)
    width = common_width(tracer, "scanomap", given)
    rows, several = row_lambda(tracer, "scanomap", operation(function), given)
    neutrals = _mapped_neutrals(tracer, "scanomap", neutral, rows)
    combine = combine_lambda(tracer, "scanomap", op, [one.type for one in neutrals])
    targets = tracer.emit(Scanomap(width, combine, neutrals, rows, tuple(one.variable for one in given)))
    return tracing.wrap_results(tracer, targets, several, "scanomap")


def hist(op: Callable[..., Any] | str, neutral: Any, bins: Any, indices: Any, *values: Any) -> Any:
    """Reduce by index: bins[indices[i]] = op(bins[indices[i]], values[i]) for all i.

    No order of threads shows in the result: floats come out with the same bits at every call, and no float is added by
    an atomic operation. On a CPU long sums of floats are trees: after max(1024, 64 times the number of bins) rows the
    bins are added to others and begun anew, and these after 64 times so many. A bin errs by at most so many units of
    the sum of its magnitudes as values are added to it in one such node, plus 64, plus the number of nodes above: about
    64 + 64 + 1 where values are spread evenly, and the length of a node where all of them go into one bin. So are
    sums of rows, whose nodes have four times as many rows where there are four copies of the bins.

    Args:
        op: an associative and commutative operator, as of `reduce`.
        neutral: its neutral element, a tuple for several arrays of values.
        bins: how many bins there are, each beginning as the neutral element; or the array (a tuple of arrays for
            several values) to begin with.
        indices: for each value its bin; indices out of range are ignored.
        *values: arrays as long as the indices; one scalar stands for an array full of it, a plain number in the type of
            the bins (where only their number is given: i64 or f64, as it is written).

    Returns:
        The bins, a tuple for several arrays of values.

    Raises:
        TypeError: for sizes, types, and results of `op` that do not fit.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def counts(xs: tw.i64["n"]):
        ...     return tw.hist("add", 0, 4, xs, 1)
        >>> print(counts(np.array([0, 3, 3, 9])))
        [1 0 0 2]
    """
    if not values:
        raise TypeError("hist was given indices but no values: tw.hist(op, neutral, bins, indices, values)")
    tracer, (places,) = arrays_of("hist", [indices])
    places = index_array(places, "hist")
    _, given = arrays_of("hist", _filled(tracer, places, bins, values))
    common_width(tracer, "hist", [places, *given])
    neutrals, several = _neutrals(tracer, "hist", neutral, [one.variable.type.row for one in given])
    combine = combine_lambda(tracer, "hist", op, [one.type for one in neutrals])
    destinations = _bins(tracer, bins, neutrals)
    expression = Hist(destinations, combine, neutrals, places.variable, tuple(one.variable for one in given))
    return tracing.wrap_results(tracer, tracer.emit(expression), several, "hist")


def _filled(tracer: Tracer, places: ArrayProxy, bins: Any, values: Sequence[Any]) -> list[Any]:
    """The values, where scalars have become arrays."""
    found = list(values)
    begun = bins if isinstance(bins, tuple | list) else [bins] * len(found)
    for position, one in enumerate(found):
        if not isinstance(one, ScalarProxy | int | float | complex | np.generic):
            continue
        start = begun[position] if position < len(begun) else None
        is_typed = isinstance(start, ArrayProxy)
        element = as_element(tracer, one, start.scalar, "a value of hist") if is_typed else tracing.atom_of(one)  # type: ignore[union-attr]
        found[position] = tracing.wrap(tracer, tracer.bind(Replicate(places.variable.type.shape[0], element)))
    return found


def _bins(tracer: Tracer, bins: Any, neutrals: Sequence[Atom]) -> tuple[Variable, ...]:
    given = bins if isinstance(bins, tuple | list) else (bins,)
    if not any(isinstance(one, ArrayProxy) for one in given):
        count = tracing.size_of(bins, "the number of bins of hist")
        return tuple(tracer.bind(Replicate(count, one)) for one in neutrals)
    _, arrays = arrays_of("hist", given)
    if len(arrays) != len(neutrals):
        raise TypeError(f"hist: {len(arrays)} arrays of bins for {len(neutrals)} arrays of values")
    common_width(tracer, "hist", arrays)
    for one, neutral in zip(arrays, neutrals, strict=True):
        if one.variable.type.row != neutral.type:
            raise TypeError(f"hist: values of type {neutral.type} into bins {one.variable} of {one.variable.type.row}")
    return tuple(one.variable for one in arrays)


# --- neutral elements -------------------------------------------------------------------------------------------------


def _neutrals(tracer: Tracer, what: str, neutral: Any, types: Sequence[Type]) -> tuple[tuple[Atom, ...], bool]:
    """The neutral elements of rows of these types, and whether they came as a tuple."""
    several = isinstance(neutral, tuple | list)
    given = list(neutral) if several else [neutral]
    if len(given) != len(types):
        count = f"{len(given)} neutral element{'s' if len(given) > 1 else ''} for {len(types)} arrays"
        raise TypeError(f"{what}: {count}; give one for each, as a tuple")
    return tuple(_neutral(tracer, what, one, type_) for one, type_ in zip(given, types, strict=True)), several


def _mapped_neutrals(tracer: Tracer, what: str, neutral: Any, rows: Lambda) -> tuple[Atom, ...]:
    """The neutral elements for the first results of a function."""
    count = len(neutral) if isinstance(neutral, tuple | list) else 1
    results = [one.type for one in rows.body.results]
    if count > len(results):
        raise TypeError(f"{what}: {count} neutral elements for a function of {len(results)} results")
    return _neutrals(tracer, what, neutral, results[:count])[0]


def _neutral(tracer: Tracer, what: str, value: Any, expected: Type) -> Atom:
    if isinstance(value, ArrayProxy | ScalarProxy):
        return fitted(tracer, value, expected, f"the neutral element of {what}")
    (number,), _ = tracing.values_of(value, f"the neutral element of {what}")
    atom: Atom = neutral_constant(number, expected.element)
    for extent in reversed(expected.shape):
        atom = tracer.bind(Replicate(extent, atom))
    return atom


# --- operators --------------------------------------------------------------------------------------------------------


def combine_lambda(tracer: Tracer, what: str, op: Callable[..., Any] | str, types: Sequence[Type]) -> Lambda:
    """An operator of two elements of these types as a lambda.

    Raises:
        TypeError: if it does not give values of the same types.
    """
    function = operation(op)
    name = f"{what}: {tracing.name_of(function)}"
    count = len(types)
    hints = tracing.parameter_names(function)
    flat = count == 1 or len(hints) == 2 * count
    parameters = tracing.fresh_parameters(tracer, [*types, *types], hints if flat else [])

    def write() -> list[Atom]:
        left = tuple(tracing.wrap(tracer, one) for one in parameters[:count])
        right = tuple(tracing.wrap(tracer, one) for one in parameters[count:])
        values, _ = tracing.values_of(function(*left, *right) if flat else function(left, right), name)
        if len(values) != count:
            raise TypeError(f"{name} gives {len(values)} values for elements of {count}")
        return [_of_type(tracer, one, type_, name) for one, type_ in zip(values, types, strict=True)]

    return tracing.traced_lambda(tracer, parameters, write, name)


def _of_type(tracer: Tracer, value: Any, expected: Type, name: str) -> Atom:
    """A result of an operator: exactly of the type that the elements have."""
    if tracing.is_number(value):
        if expected.rank:
            raise TypeError(f"{name} gives {tracing.describe_value(value)} where {expected} is needed")
        return as_element(tracer, value, expected.element, f"{name}: its result")
    atom = tracing.atom_of(value)
    if atom.type != expected:
        converted = f"convert with .astype; {TYPED_NUMBERS}"
        advice = converted if atom.type.shape == expected.shape else "what it gives has the shape of one element"
        raise TypeError(f"{name} gives {atom.type} for elements of type {expected}; {advice}")
    return atom


def is_commutative(combine: Lambda) -> bool:
    """Whether each result is one commutative operator of the two elements' values at that place."""
    count = len(combine.parameters) // 2
    pairs = [set(combine.parameters[place::count]) for place in range(count)]
    expressions = {one.targets[0]: one.expression for one in combine.body.statements}
    if len(expressions) != count:
        return False
    for result, pair in zip(combine.body.results, pairs, strict=True):
        expression = expressions.get(result) if isinstance(result, Variable) else None
        if not (
            isinstance(expression, Apply)
            and expression.operator in _COMMUTATIVE
            and len(expression.operands) == 2
            and {one for one in expression.operands if isinstance(one, Variable)} == pair
        ):
            return False
    return True
