"""What users of torch and cotengra write on their first day: taken where it has a meaning, else told what to write."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend.foreign_functions import hint_of, torch_function

XS = np.arange(12.0).reshape(3, 4)


def traced(body: Callable[[Any], Any]) -> Any:
    def function(x: tw.f64["n", "m"]) -> Any:
        return body(x)

    return tw.program(function)(XS)


def function_of_torch(name: str) -> Any:
    """What torch does with a traced value, without torch: it asks the value's protocol."""

    def function(*arguments: Any, **options: Any) -> Any:
        return torch_function(type(arguments[0]), function, (), arguments, options)

    function.__name__ = name
    return function


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda x: x.exp(), "write tw.exp(x)"),
        (lambda x: x.sigmoid(), "write tw.sigmoid(x)"),
        (lambda x: x.view(-1), "write x.reshape(shape)"),
        (lambda x: x.permute(1, 0), "write x.transpose(axes)"),
        (lambda x: x.unsqueeze(0), "write x[None]"),
        (lambda x: x.softmax(-1), "write e / e.sum(axis=-1, keepdims=True) of e = np.exp(x - x.max("),
        (lambda x: x.masked_fill(x > 1, 0.0), "write tw.where(mask, value, x)"),
        (lambda x: x.float(), "write x.astype(tw.f32)"),
        (lambda x: x.nothing_of_the_kind, "it has sum, prod,"),
    ],
)
def test_methods_of_tensors_are_told_with_what_to_write(body: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(AttributeError, match=r"test_words_of_other_packages\.py:\d+: in program function") as caught:
        traced(body)
    assert words in str(caught.value)


@pytest.mark.parametrize(("given", "instead"), [("dim", "axis"), ("keepdim", "keepdims")])
def test_names_of_torch_for_arguments_are_told_with_those_of_numpy(given: str, instead: str) -> None:
    with pytest.raises(
        TypeError, match=rf"py:\d+: in program function: x\.sum: .*'{given}'.*write {instead}="
    ) as caught:
        traced(lambda x: x.sum(**{given: 1}))
    assert isinstance(caught.value.__cause__, TypeError)


def test_other_arguments_that_a_method_lacks_have_the_line_too() -> None:
    with pytest.raises(TypeError, match=r"py:\d+: in program function: x\.sum: got an unexpected keyword .*'axes'$"):
        traced(lambda x: x.sum(axes=1))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("softmax", "use e / e.sum(axis=-1"),
        ("sum", "use np.sum, with axis= and keepdims="),
        ("bmm", "use x @ y"),
        ("clamp", "use tw.clip"),
        ("fft", "use the functions of tilewright"),
    ],
)
def test_functions_of_torch_are_told_with_what_to_write(name: str, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        traced(function_of_torch(name))
    assert f"torch's {name} cannot be traced; {words}" in str(caught.value)


def test_methods_of_elements_are_told_too() -> None:
    with pytest.raises(AttributeError, match=r"the scalar .* has no attribute 'exp' .*; use tw\.exp\(x\)"):
        traced(lambda x: tw.map(lambda row: tw.map(lambda one: one.exp(), row), x))


def test_functions_of_torch_with_a_namesake_are_that() -> None:
    np.testing.assert_allclose(traced(function_of_torch("exp")), np.exp(XS))


def test_what_is_hinted_at_exists() -> None:
    x = XS
    assert hint_of("exp", True) == hint_of("exp", False) == "tw.exp(x)"
    assert hint_of("nothing_of_the_kind", True) is None
    assert hint_of("softmax", False) is None  # an element has no axis
    np.testing.assert_allclose(eval(str(hint_of("square", False)), {"tw": tw, "x": x}), x * x)


class TreeLikeThoseOfCotengra:
    """What this package needs of `cotengra.ContractionTree`."""

    def get_path(self) -> list[tuple[int, ...]]:
        return [(1, 2), (0, 1)]


def test_a_contraction_tree_is_a_path() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.random((2, 3)), rng.random((3, 4)), rng.random((4, 5))
    for _ in range(2):
        found = tw.einsum("ij,jk,kl->il", a, b, c, optimize=TreeLikeThoseOfCotengra())
        np.testing.assert_allclose(found, a @ b @ c)
    plan = tw.plan("ij,jk,kl->il", a.shape, b.shape, c.shape, optimize=TreeLikeThoseOfCotengra())
    assert plan.bound.path == ((1, 2), (0, 1))


def test_a_contraction_tree_of_other_operands_is_refused() -> None:
    with pytest.raises(ValueError, match=r"for 2 operands|operands are left"):
        tw.einsum("ij,jk->ik", XS.T, XS, optimize=TreeLikeThoseOfCotengra())


def test_a_tree_of_cotengra() -> None:
    cotengra = pytest.importorskip("cotengra")
    shapes = [(2, 3), (3, 4), (4, 5)]
    tree = cotengra.einsum_tree("ij,jk,kl->il", *shapes, optimize="greedy")
    arrays = [np.random.default_rng(1).random(shape) for shape in shapes]
    np.testing.assert_allclose(tw.einsum("ij,jk,kl->il", *arrays, optimize=tree), arrays[0] @ arrays[1] @ arrays[2])


@pytest.mark.parametrize(
    ("name", "words"),
    [("jit", "the decorator tw.program"), ("vmap", "tw.map in a program"), ("sum", "np.sum of an array in a program")],
)
def test_names_of_other_packages_are_told_with_ours(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'tilewright' has no attribute '{name}'; use {words}"):
        getattr(tw, name)
    assert not hasattr(tw, name)


def test_hints_are_for_names_that_there_are_not() -> None:
    from tilewright.runtime.messages import _OF_OTHERS

    assert [one for one in _OF_OTHERS if one in tw.__all__] == []
    for one, words in _OF_OTHERS.items():
        if words == f"np.{one} of an array in a program":
            assert hasattr(np, one)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda x: tw.map(x, lambda row: row), "map: argument 0 must be an array, not .*; the function comes first"),
        (lambda x: tw.reduce("sum", 0.0, x[0]), "'sum' is no operator; write 'add'"),
    ],
)
def test_operators_and_functions_where_others_have_them(body: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        traced(body)


@pytest.mark.parametrize(("given", "instead"), [(int, "tw.i64"), (float, "tw.f64"), (bool, "tw.bool_")])
def test_types_of_python_are_told_with_ours(given: type, instead: str) -> None:
    def scaled(xs: tw.f64["n"], factor: Any) -> Any:
        return xs * factor

    scaled.__annotations__["factor"] = given
    with pytest.raises(
        TypeError, match=f"parameter factor is annotated with <class '{given.__name__}'>; write factor: {instead}$"
    ):
        tw.program(scaled)


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (np.nansum, lambda x: tw.where(tw.isnan(x), 0.0, x).sum()),
        (np.nanmean, lambda x: tw.where(tw.isnan(x), 0.0, x).sum() / (~tw.isnan(x)).sum()),
        (np.rot90, lambda x: np.flip(x.T, 0)),
        (lambda x: np.kron(x, x), lambda x: np.einsum("ij,kl->ikjl", x, x).reshape(9, 16)),
    ],
)
def test_what_is_told_in_place_of_functions_of_numpy_is_right(
    refused: Callable[[Any], Any], told: Callable[[Any], Any]
) -> None:
    with pytest.raises(TypeError, match=r"cannot be traced; use (tw|np)\."):
        traced(refused)
    np.testing.assert_allclose(traced(told), refused(XS))


def test_the_size_of_an_array_is_a_number() -> None:
    np.testing.assert_allclose(traced(lambda x: x.sum() / np.size(x)), XS.mean())
