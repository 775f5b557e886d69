"""What is wrong with a program is said with names, sizes, and the line where it is."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

X = np.ones(3, np.float32)


def error_of(function: Callable[..., Any], *dtypes: Any) -> str:
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError, AttributeError)) as caught:
        tw.program(function).trace(*dtypes)
    return str(caught.value)


def traced_line(message: str) -> str:
    found = re.match(r"test_program_errors\.py:(\d+): in program \w+: ", message)
    assert found is not None, message
    with open(__file__, encoding="utf-8") as source:
        return source.read().splitlines()[int(found[1]) - 1].strip()


def if_on_scalar(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: x if x > 0 else -x, xs)


def while_on_scalar(x: tw.f32) -> Any:
    while x > 1:
        x = x / 2
    return x


def if_on_array(xs: tw.f32["n"]) -> Any:
    return xs if xs else -xs


def chained_comparison_of_array(xs: tw.f32["n"]) -> Any:
    return 0 < xs < 1


def for_over_array(xs: tw.f32["n"]) -> Any:
    return [x + 1 for x in xs]


def range_of_size(xs: tw.f32["n"]) -> Any:
    return [xs[i] for i in range(xs.shape[0])]


def range_of_scalar(k: tw.i32) -> Any:
    return [i + k for i in range(k)]


def length(xs: tw.f32["n"]) -> Any:
    return len(xs)


def numpy_function(xs: tw.f32["n"]) -> Any:
    return np.median(xs)


def numpy_accumulate(xs: tw.f32["n"]) -> Any:
    return np.add.accumulate(xs)


def numpy_trapezoid(xs: tw.f32["n"]) -> Any:
    return np.trapezoid(xs)


def numpy_keyword(xs: tw.f32["n"]) -> Any:
    return np.add(xs, xs, where=False)


def numpy_constant(xs: tw.f32["n"]) -> Any:
    return xs + np.zeros(3, np.float32)


def unknown_attribute(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: x.item(), xs)


def unknown_function(xs: tw.f32["n"]) -> Any:
    return tw.log3(xs)


def formatted(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: float(f"{x:.2f}"), xs)


def largest(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: max(x, 0), xs)


def rounded_to_what(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: round(x, x), xs)


def rounded_integer(xs: tw.i32["n"]) -> Any:
    return round(xs, -2)


def assignment(xs: tw.f32["n"]) -> Any:
    xs[0] = 1
    return xs


def unequal_names(xs: tw.f32["n"], ys: tw.f32["m"]) -> Any:
    return tw.map(lambda x, y: x + y, xs, ys)


def unequal_constants(xs: tw.f32[3], ys: tw.f32[4]) -> Any:
    return tw.map(lambda x, y: x + y, xs, ys)


def unequal_elementwise(xs: tw.f32["n"], ys: tw.f32["m"]) -> Any:
    return xs + ys


def unequal_intermediate(xs: tw.f32["n"]) -> Any:
    return tw.reduce(lambda a, b: a, (0, 0), xs, tw.scan("+", 0, xs[1:]))


def map_of_scalar(x: tw.f32) -> Any:
    return tw.map(lambda e: e, x)


def map_of_count(n: tw.i64) -> Any:
    return tw.map(lambda e: e, n)


def captured_array(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda a, b: a + b, xs, X)


def missing_return(xs: tw.f32["n"]) -> Any:
    def nothing(x: Any) -> None:
        x + 1

    return tw.map(nothing, xs)


def dict_of_results(xs: tw.f32["n"]) -> Any:
    return {"a": xs, "b": xs + 1}


def nested_results(xs: tw.f32["n"]) -> Any:
    return xs, (xs[0], xs.shape[0])


def nested_in_a_map(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: (x, [x]), xs)


def size_as_key(xs: tw.f32["n"]) -> Any:
    return {xs.shape[0]: xs}


def roll_by_a_float(xs: tw.f32["n"]) -> Any:
    return tw.roll(xs, xs[0])


def index_beyond_i64(xs: tw.f32["n"]) -> Any:
    return xs[2**70]


def count_beyond_i64(xs: tw.f32["n"]) -> Any:
    return tw.reshape(xs, (2**70, -1))


def mask_that_has_no_name(xs: tw.f32["n"]) -> Any:
    return xs[xs > 1]


def if_on_an_element(xs: tw.f32["n"]) -> Any:
    return min(xs[0] * 2 + 1, 3)


def axis_by_float(xs: tw.f32["n"]) -> Any:
    return xs.sum(axis=1.0)


def wrong_arity(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda a, b: a + b, xs)


def unknown_operator(xs: tw.f32["n"]) -> Any:
    return tw.reduce("plus", 0, xs)


def widening_operator(xs: tw.f32["n"]) -> Any:
    return tw.reduce(lambda a, b: (a + b).astype(tw.f64), 0, xs)


def neutral_that_does_not_fit(xs: tw.i32["n"]) -> Any:
    return tw.reduce("+", 0.5, xs)


def missing_neutral(xs: tw.i32["n"], ys: tw.i32["n"]) -> Any:
    return tw.reduce(lambda a, b: a, 0, xs, ys)


def irregular(n: tw.i64) -> Any:
    return tw.map(lambda i: tw.iota(i), tw.iota(n))  # noqa: PLW0108


def leaked(xs: tw.f32["n"]) -> Any:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x + 1)
        return x

    return tw.map(keep, xs), kept[0]


def index_out_of_range(xs: tw.f32[3]) -> Any:
    return xs[3]


def too_many_indices(xs: tw.f32["n"]) -> Any:
    return xs[0, 1]


def index_by_float(xs: tw.f32["n"], x: tw.f32) -> Any:
    return xs[x]


def index_by_mask(xs: tw.f32["n"]) -> Any:
    return xs[xs > 0]


def traced_step(xs: tw.f32["n"], k: tw.i64) -> Any:
    return xs[::k]


def branches_differ(c: tw.bool_, xs: tw.f32["n"]) -> Any:
    return tw.cond(c, lambda: xs, lambda: xs[1:])


def branches_count(c: tw.bool_, x: tw.f32) -> Any:
    return tw.cond(c, lambda: (x, x), lambda: x)


def condition_is_a_number(x: tw.f32) -> Any:
    return tw.cond(x, 1, 2)


def loop_changes_type(xs: tw.f32["n"]) -> Any:
    return tw.loop(3, xs[0], lambda i, x: x.astype(tw.f64))


def loop_changes_shape(xs: tw.f32["n"]) -> Any:
    return tw.loop(3, xs, lambda i, ys: ys[1:])


def loop_counts(xs: tw.f32["n"]) -> Any:
    return tw.loop(3, (xs, 0), lambda i, ys, k: ys)


def negative_count() -> Any:
    return tw.iota(-1)


def reshape_to_another_size(xs: tw.f32[3, 4]) -> Any:
    return tw.reshape(xs, (5, 2))


def reshape_cannot_say(xs: tw.f32["n"], ys: tw.f32["m"]) -> Any:
    return tw.reshape(xs, (ys.shape[0], -1))


def concat_of_types(xs: tw.f32["n"], ys: tw.f64["n"]) -> Any:
    return tw.concat(xs, ys)


def scatter_of_rows(xs: tw.f32["n"], places: tw.i64["m"], rows: tw.f32["m", 2]) -> Any:
    return tw.scatter(xs, places, rows)


def scatter_by_floats(xs: tw.f32["n"]) -> Any:
    return tw.scatter(xs, xs, xs)


def complex_into_real(xs: tw.f32["n"], z: tw.c64) -> Any:
    return tw.update(xs, 0, z)


def undefined_operator(xs: tw.c64["n"]) -> Any:
    return tw.map(lambda x: x < 1, xs)


MESSAGES = [
    (if_on_scalar, "write where(condition, a, b) instead of `if`", "tw.cond"),
    (while_on_scalar, "tw.while_loop instead of `while`", "the value of x > 1.0 is not known"),
    (if_on_array, "xs is an array, which has no truth value", "of all elements, with .any() or .all()"),
    (chained_comparison_of_array, "the result of map at test_program_errors.py:", "(0 < x) & (x < 1)"),
    (for_over_array, "n rows of xs", "tw.map"),
    (range_of_size, "value of n is not known", "tw.loop"),
    (range_of_scalar, "value of k is not known", "tw.loop"),
    (length, "value of n is not known", ""),
    (numpy_function, "numpy.median cannot be traced", "use np.median outside of the program"),
    (numpy_trapezoid, "numpy.trapezoid cannot be traced", "use ((ys[1:] + ys[:-1]) * (xs[1:] - xs[:-1])).sum() / 2"),
    (numpy_keyword, "numpy.add with where cannot be traced", ""),
    (numpy_constant, "a NumPy array of shape (3,) meets traced values", "are its parameters"),
    (unknown_attribute, "the scalar x of type f32 has no attribute 'item'", ""),
    (unknown_function, "module 'tilewright' has no attribute 'log3'", ""),
    (formatted, "the value of x is not known while the function is traced", ""),
    (largest, "maximum and minimum instead of max() and min()", ""),
    (rounded_to_what, "round needs a constant number of digits", ""),
    (rounded_integer, "round to -2 digits is not defined on i32", ""),
    (numpy_accumulate, "numpy.add.accumulate cannot be traced", "use tw.reduce, tw.scan"),
    (assignment, "xs = tw.update(xs, index, value)", "tw.scatter"),
    (unequal_names, "map over xs with n rows and ys with m rows", "write the same size for both"),
    (unequal_constants, "map over xs with 3 rows and ys with 4 rows: they must be equal", ""),
    (unequal_elementwise, "xs of type [n]f32 and ys of type [m]f32", "tw.map"),
    (unequal_intermediate, "reduce over xs with n rows and t_", "(scan at test_program_errors.py:"),
    (map_of_scalar, "argument 0 must be an array, not a traced f32", ""),
    (map_of_count, "argument 0 must be an array", "tw.iota(count)"),
    (captured_array, "argument 1 must be an array, not a NumPy array of shape (3,)", "parameters"),
    (missing_return, "the function nothing gives no value (is a `return` missing?)", ""),
    (
        dict_of_results,
        "gives {'a': <array xs of type [n]f32>, 'b': <array of type [n]f32>} of type dict",
        "give a tuple",
    ),
    (
        nested_results,
        "gives (<scalar of type f32>, <integer n>) of type tuple as value 1 of a tuple",
        "give one of all",
    ),
    (nested_in_a_map, "the lambda gives [<scalar x of type f32>] of type list as value 1 of a tuple", "`a, b, c`"),
    (size_as_key, "unhashable type: 'traced integer'", ""),
    (roll_by_a_float, "roll: the shift must be an integer, not a traced f32", ""),
    (index_beyond_i64, f"index {2**70} of xs is out of range in dimension 0 of extent n", ""),
    (count_beyond_i64, f"a size of reshape is {2**70}; the greatest that there is is {2**63 - 1}", ""),
    (mask_that_has_no_name, "xs[mask]: a mask is no index", "tw.where(mask, xs, 0)"),
    (if_on_an_element, "the value of ((xs[0] * 2.0) + 1.0) > 3.0 is not known", ""),
    (axis_by_float, "sum: an axis is an integer, not 1.0 of type float", ""),
    (wrong_arity, "missing 1 required positional argument: 'b'", ""),
    (unknown_operator, "'plus' is no operator; there are add,", ""),
    (widening_operator, "the lambda gives f64 for elements of type f32", ".astype"),
    (neutral_that_does_not_fit, "constant 0.5 does not fit the type i32", ""),
    (missing_neutral, "1 neutral element for 2 arrays", ""),
    (irregular, "array of type [i]i64, whose size i is computed inside", "regular"),
    (leaked, "used outside of it; return it", ""),
    (index_out_of_range, "index 3 of xs is out of range in dimension 0 of extent 3", ""),
    (too_many_indices, "2 indices for xs of type [n]f32", ""),
    (index_by_float, "the index of dimension 0 of xs must be an integer, not a traced f32", ""),
    (index_by_mask, "is no index", "tw.map(lambda i: xs[i], indices)"),
    (traced_step, "the step must be a constant", ""),
    (branches_differ, "the array xs of type [n]f32 and the array", "[n - 1]f32"),
    (branches_count, "a tuple of 2 and one value", ""),
    (condition_is_a_number, "the condition must be a bool, not a traced f32", ""),
    (loop_changes_type, "gives f64 for x, which the loop carries as f32", ".astype"),
    (loop_changes_shape, "gives [n - 1]f32 for ys, which the loop carries as [n]f32", ""),
    (loop_counts, "gives 1 values, but the loop carries 2", ""),
    (negative_count, "the count of iota is -1; it cannot be negative", ""),
    (reshape_to_another_size, "12 elements do not fill the shape (5, 2) of 10", ""),
    (reshape_cannot_say, "n elements in m parts", ""),
    (concat_of_types, "xs of type [n]f32 and ys of type [n]f64 must agree in dtype", ""),
    (scatter_of_rows, "rows of type [2]f32, the destination xs has f32", ""),
    (scatter_by_floats, "the indices xs have type [n]f32; [n]i64 is needed", ""),
    (complex_into_real, "must be f32, not c64", ""),
    (undefined_operator, "lt is not defined on c64", ""),
]


@pytest.mark.parametrize(("function", "said", "also"), MESSAGES, ids=lambda one: getattr(one, "__name__", ""))
def test_messages(function: Callable[..., Any], said: str, also: str) -> None:
    message = error_of(function)
    assert said in message and also in message


def test_the_line_is_named() -> None:
    assert traced_line(error_of(if_on_scalar)) == "return tw.map(lambda x: x if x > 0 else -x, xs)"
    assert traced_line(error_of(while_on_scalar)) == "while x > 1:"
    assert traced_line(error_of(assignment)) == "xs[0] = 1"


def test_errors_of_the_users_own_code_are_left_alone() -> None:
    def broken(x: tw.f32) -> Any:
        return {}["nothing"] + x

    def refusing(x: tw.f32) -> Any:
        raise ValueError("not today")

    with pytest.raises(KeyError, match=r"^'nothing'$"):
        tw.program(broken).trace()
    with pytest.raises(ValueError, match=r"^not today$"):
        tw.program(refusing).trace()


def test_annotations() -> None:
    def bare(xs) -> Any:  # type: ignore[no-untyped-def]
        return xs

    def foreign(xs: np.ndarray) -> Any:  # type: ignore[type-arg]
        return xs

    def unknown(xs: nothing["n"]) -> Any:  # type: ignore[name-defined]
        return xs

    def several(*xs: tw.f32) -> Any:
        return xs

    def reserved(out: tw.f32["n"]) -> Any:
        return out

    def size_is_no_integer(n: tw.f32, xs: tw.f32["n"]) -> Any:
        return xs

    def no_sizes(xs: tw.array) -> Any:
        return xs

    cases = [
        (bare, "parameter xs has no annotation; write its type"), (foreign, "parameter xs is annotated with"),
        (unknown, "name 'nothing' is not defined"), (several, "fixed number of parameters"), (reserved, "called out"),
        (size_is_no_integer, "mentions parameter n, which is f32"), (no_sizes, "tw.array needs sizes"),
    ]  # fmt: skip
    for function, said in cases:
        with pytest.raises(TypeError, match=said):
            tw.program(function)
    for sizes, said in (
        (-1, "not negative"),
        ("2 n", "is no size"),
        ("n][m", "is no size"),
        (2.5, "a number or a name"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            tw.f32[sizes]
    with pytest.raises(TypeError, match="has its sizes already"):
        tw.f32["n"]["m"]


@tw.program
def axpy(alpha: tw.f32, xs: tw.f32["n"], ys: tw.f32["n"]) -> Any:
    return tw.map(lambda x, y: alpha * x + y, xs, ys)


@tw.program
def doubled(xs: tw.float_["n"]) -> Any:
    return xs + xs


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((1, X, X.astype("f8")), TypeError, "parameter ys .*float64"),
        ((1, X, X[:2]), ValueError, r"dimension 0 of parameter ys must be n = 3, but is 2"),
        ((1, X[None], X), ValueError, "parameter xs .*rank 2"),
        ((1j, X, X), TypeError, "parameter alpha"),
        ((X, X, X), (TypeError, ValueError), "parameter alpha"),
        ((1, [1.0, 2.0], X), TypeError, r"parameter xs: f32\[n\] needs an array, not \[1.0, 2.0\] of type list"),
        ((1, X), TypeError, r"program axpy\(alpha: f32, xs: f32\[n\], ys: f32\[n\]\): missing .*'ys'"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        axpy(*arguments)


def test_wrong_generic_arguments_and_dtypes() -> None:
    with pytest.raises(TypeError, match=r"parameter xs: float_\[n\] does not take dtype i64 but f16, .*: .* tw.array"):
        doubled(np.arange(3))
    with pytest.raises(TypeError, match=r"generic parameter \(xs\)"):
        doubled.trace("f4", "f4")
    with pytest.raises(TypeError, match=r"generic parameter \(xs\)"):
        _ = doubled.ir
    with pytest.raises(TypeError, match="does not take dtype f64"):
        axpy.trace("f4", "f8", "f4")


@pytest.mark.parametrize("type_", ["f16", "bf16", "f32", "i64", "u64", "u8"])
def test_numbers_beyond_a_type_that_are_given_back(type_: str) -> None:
    """Results that are arguments, which no kernel reads."""
    if type_ == "bf16":
        pytest.importorskip("ml_dtypes")
    annotation = getattr(tw, type_)

    @tw.program
    def same(value: annotation) -> Any:  # type: ignore[valid-type]
        return value

    for _ in range(2):  # by the plan of the first call, too
        if type_ in ("f16", "bf16", "f32"):
            assert float(same(2**200)) == np.inf
            with pytest.raises(OverflowError, match=r"parameter value of type b?f(16|32) does not hold an integer"):
                same(2**2000)
        else:
            for number in (-(2**63) - 1, 2**64):
                with pytest.raises(OverflowError, match=f"parameter value of type {type_} does not hold {number}"):
                    same(number)
        assert same(100) == 100


def test_what_is_no_number_for_a_generic_parameter() -> None:
    @tw.program
    def same(value: tw.integer_) -> Any:
        return value

    for wrong, said in ((None, "None of type NoneType"), ("1", "'1' of type str"), (2**70, f"{2**70} of type int")):
        with pytest.raises(TypeError, match=f"program same: parameter value: integer_ does not take {said}"):
            same(wrong)


def test_wrong_out() -> None:
    with pytest.raises(ValueError, match="shape"):
        axpy(1, X, X, out=np.empty(4, "f4"))
    with pytest.raises(TypeError, match="float64"):
        axpy(1, X, X, out=np.empty(3))


def test_arguments_that_would_be_misread() -> None:
    @tw.program
    def scaled(xs: tw.f32["n"], factor: tw.f32) -> Any:
        return tw.map(lambda x: factor * x, xs)

    for _ in range(2):
        with pytest.raises(TypeError, match=r"parameter xs: f32\[n\] does not take a masked array"):
            scaled(np.ma.masked_equal(X, 1), 2)
        with pytest.raises(OverflowError, match="parameter factor of type f32 does not hold an integer beyond"):
            scaled(X, 10**400)
        with pytest.raises(TypeError, match="target must be a device's name or a Device, not 3 of type int"):
            scaled(X, 2, target=3)
        assert scaled(X, 2).tolist() == [2, 2, 2]


def test_outside_of_programs() -> None:
    with pytest.raises(TypeError, match=r"tw\.map has a meaning only while"):
        tw.map(lambda x: x, X)
    with pytest.raises(TypeError, match=r"tw\.iota has a meaning only while"):
        tw.iota(3)


def test_inner_programs_check_their_arguments() -> None:
    @tw.program
    def square(xs: tw.f32["k", "k"]) -> Any:
        return xs

    def outer(xs: tw.f32["n", "m"]) -> Any:
        return square(xs)

    def element(xs: tw.f64["n", "n"]) -> Any:
        return square(xs)

    assert "parameter xs: f32[k, k] does not take xs of type [n][m]f32: k is n here" in error_of(outer)
    assert "does not take xs of type [n][n]f64" in error_of(element)


def test_values_of_another_program() -> None:
    kept: list[Any] = []

    def first(xs: tw.f32["n"], a: tw.f32) -> Any:
        kept.extend((xs, a))
        return xs

    def array_of_another(xs: tw.f32["n"], a: tw.f32) -> Any:
        return tw.map(lambda x, y: x + y, xs, kept[0])

    def scalar_of_another(xs: tw.f32["n"], a: tw.f32) -> Any:
        return tw.map(lambda x: x + kept[1], xs)

    def result_of_another(xs: tw.f32["n"], a: tw.f32) -> Any:
        return kept[1]

    tw.program(first).trace()
    for wrong in (array_of_another, scalar_of_another, result_of_another):
        assert "while another program was traced" in error_of(wrong)


def test_keyword_only_parameters() -> None:
    @tw.program
    def scaled(xs: tw.f32["n"], *, factor: tw.f32 = 3) -> Any:
        return tw.map(lambda x: factor * x, xs)

    @tw.program
    def outer(xs: tw.f32["n"]) -> Any:
        return scaled(xs, factor=5)

    assert scaled(X, factor=2).tolist() == [2, 2, 2]
    assert scaled(X).tolist() == [3, 3, 3]
    assert outer(X).tolist() == [5, 5, 5]
    with pytest.raises(TypeError, match="too many positional arguments"):
        scaled(X, 2)


def test_sizes_that_no_argument_tells() -> None:
    def halves(xs: tw.f32["2*n"]) -> Any:
        return xs

    message = error_of(halves)
    assert "size n cannot be solved for" in message and "give it as a parameter of type tw.i64" in message
    assert "return it from that function" not in message


def test_one_array_for_two_results_is_refused() -> None:
    @tw.program
    def both(xs: tw.f32["n"]) -> Any:
        return xs + 1, xs + 2

    with pytest.raises(ValueError, match="both gives 2 results: out must be a tuple of as many arrays"):
        both(X, out=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="both gives 2 results, but out is a tuple of 1"):
        both(X, out=(np.zeros(3, np.float32),))


def test_carried_values_have_the_names_of_the_function() -> None:
    """Also where numbers among them have no type before a round is traced, and where a condition names them too."""

    def rows_that_differ(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        return tw.loop(3, (xs, 0), lambda i, state, k: (tw.map(lambda x, y: x + y, state, ys), k + 1))

    def another_size(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        return tw.while_loop(lambda state, k: k < 3, (xs, 0), lambda state, k: (tw.map(lambda y: y + 1.0, ys), k + 1))

    def inner(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        def one_round(_: Any, state: Any, total: Any) -> Any:
            return tw.loop(2, state, lambda j, within: tw.map(lambda x, y: x + y, within, ys)), total

        return tw.loop(3, (xs, 0.0), one_round)

    assert "map over state with n rows and ys with m rows" in error_of(rows_that_differ)
    assert "gives [m]f64 for state, which the loop carries as [n]f64" in error_of(another_size)
    assert "map over within with n rows and ys with m rows" in error_of(inner)


def test_advice_about_shapes_is_not_about_types() -> None:
    def shorter(xs: tw.f64["n"]) -> Any:
        return tw.while_loop(lambda state: state[0] < 3, xs, lambda state: state[1:])

    def of_another_rank(xs: tw.f64["n"]) -> Any:
        return tw.while_loop(lambda state: state < 3, 0.0, lambda state: xs)

    def folded(xs: tw.f64["n", "m"]) -> Any:
        return tw.reduce(lambda a, b: a[:1], 0, xs)

    assert error_of(shorter).endswith("say so with tw.reshape(..., (n,)), which is checked when the program runs")
    assert error_of(of_another_rank).endswith("as many dimensions after each round as before it")
    assert error_of(folded).endswith("of type [m]f64; what it gives has the shape of one element")
