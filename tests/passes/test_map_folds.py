"""Maps of folds of one array, read in order: which nests they are, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.contraction.form import Contraction, Kind
from tilewright.frontend.einsum_bind import bind
from tilewright.frontend.einsum_layout import Signature
from tilewright.frontend.einsum_options import EinsumOptions
from tilewright.frontend.einsum_parse import parse_string
from tilewright.ir.nodes import Map, Statement
from tilewright.kernel.launch import LaunchDeclined
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.contractions.map_folds import fold_launches, fold_of_one_array
from tilewright.passes.matrix_vector.form import choose_matrix_vector_form


def nest_of(text: str, *shape: int) -> Statement:
    """The map nest of an einsum of one array."""
    array = np.empty(shape, np.float32)
    signature = Signature(array.dtype, array.shape, array.strides)
    program = bind(parse_string(text), [signature], [], None, EinsumOptions()).program
    assert program is not None
    (found,) = (one for one in program.body.statements if isinstance(one.expression, Map))
    return found


def values_of(contraction: Contraction, extent: int) -> dict[str, int]:
    """All names of the sums of the columns of a square matrix: sizes, strides and offsets."""
    values: dict[str, int] = {}
    for operand in (contraction.left, contraction.out):
        values |= {f"{operand.buffer}.stride0": extent if operand is contraction.left else 1}
        values |= {f"{operand.buffer}.stride1": 1, f"{operand.buffer}.offset": 0}
    return values | {name: extent for one in contraction.dimensions for name in one.size.names}


@pytest.mark.parametrize(("text", "kinds"), [
    ("ij->j", {Kind.M: 1, Kind.K: 1}),
    ("ijk->k", {Kind.M: 1, Kind.K: 2}),
    ("ijk->j", {Kind.M: 1, Kind.K: 2}),
    ("ijk->ik", {Kind.M: 2, Kind.K: 1}),
])  # fmt: skip
def test_maps_of_folds_are_contractions_without_a_second_operand(text: str, kinds: dict[Kind, int]) -> None:
    found = fold_of_one_array(nest_of(text, *(5 for one in text.partition("->")[0])))
    assert isinstance(found, Contraction)
    assert {kind: len(found.of_kind(kind)) for kind in Kind if found.of_kind(kind)} == kinds
    assert all(one.stride_right == 0 * one.size for one in found.dimensions)
    assert found.left.buffer == found.right.buffer


def test_a_short_fold_is_declined_with_the_reason() -> None:
    found = fold_of_one_array(nest_of("ij->j", 5, 5))
    assert found is not None
    sizes = values_of(found, 5)
    with pytest.raises(LaunchDeclined, match="does not lie so that vectors can run"):
        fold_launches(found, CPU_AVX512, sizes)
    (launch,) = fold_launches(found, CPU_AVX512, values_of(found, 64))
    assert len(launch.kernel.buffers) == 3


@settings(max_examples=examples(40))
@given(data=st.data())
def test_sums_of_one_array_are_within_the_bound_of_their_sums(data: st.DataObject) -> None:
    """|error| <= n u sum |terms| for a sum of n terms in any order [Higham, section 4.2]; for the largest, none."""
    rank = data.draw(st.integers(2, 4))
    letters = "ijkl"[:rank]
    shape = [data.draw(st.sampled_from([1, 2, 3, 9, 17])) for _ in letters[1:]]
    shape.append(data.draw(st.sampled_from([16, 33, 64, 131])))
    kept = data.draw(st.lists(st.sampled_from(letters), min_size=1, max_size=rank - 1, unique=True))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    array = rng.uniform(-99, 99, shape).astype(dtype)
    array = array.transpose(data.draw(st.permutations(range(rank))))
    if data.draw(st.booleans()):
        array = array[..., ::-1]
    text = f"{letters}->{''.join(kept)}"
    got = tw.einsum(text, array)
    if dtype is np.int32:
        np.testing.assert_array_equal(got, np.einsum(text, array))
        return
    terms = array.size // max(1, got.size)
    exact = np.einsum(text, array.astype(np.longdouble))
    magnitude = np.einsum(text, np.abs(array).astype(np.longdouble))
    assert np.all(np.abs(got - exact) <= terms * np.finfo(dtype).eps / 2 * magnitude)
    largest = tw.einsum(text, array, semiring="max_plus")
    np.testing.assert_array_equal(largest, array.max(tuple(n for n, one in enumerate(letters) if one not in kept)).
                                  transpose(np.argsort(np.argsort([letters.index(one) for one in kept]))))  # fmt: skip


def test_sums_of_functions_of_the_elements_are_read_in_order_too() -> None:
    array = np.random.default_rng(3).uniform(-1, 1, (300, 130)).astype(np.float32)

    @tw.program
    def squares(x: tw.f32["n", "m"]) -> Any:  # type: ignore[valid-type]  # noqa: F821, UP037
        return tw.map(lambda column: tw.reduce(lambda a, b: a + b, 0.0, tw.map(lambda one: one * one, column)), x.T)

    exact = (array.astype(np.float64) ** 2).sum(0)
    assert np.all(np.abs(squares(array) - exact) <= 300 * np.finfo(np.float32).eps * exact)


def _forms_chosen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    chosen: list[Any] = []

    def remembered(*arguments: Any) -> Any:
        form = choose_matrix_vector_form(*arguments)
        chosen.append(form)
        return form

    monkeypatch.setattr("tilewright.passes.contractions.map_folds.choose_matrix_vector_form", remembered)
    return chosen


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("shape", [(300, 130), (130, 300), (7, 33)])
def test_what_kernels_compute_once_may_follow_the_sums(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: str
) -> None:
    """Means divide by a size, which is a scalar in memory; point by point columns took 70 times as long."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    chosen = _forms_chosen(monkeypatch)

    @tw.program
    def means(x: tw.any_["n", "m"]) -> Any:  # type: ignore[valid-type]  # noqa: F821, UP037
        return x.mean(axis=0), tw.map(lambda row: tw.reduce("add", 0, row) / x.shape[1], x)

    random = np.random.default_rng(4)
    array = (random.uniform(-1, 1, shape) + (1j * random.uniform(-1, 1, shape) if dtype == "c8" else 0)).astype(dtype)
    found = means(array)
    assert chosen and not any(isinstance(one, str) and "epilogue" in one for one in chosen)
    for axis, one in enumerate(found):
        exact = array.astype(np.complex128).mean(axis)
        bound = 2 * max(shape) * np.finfo(dtype).eps * np.abs(array).mean(axis)
        assert np.all(np.abs(one - exact) <= bound)


def test_other_arrays_may_follow_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    chosen = _forms_chosen(monkeypatch)

    @tw.program
    def shifted(x: tw.f64["n", "m"], shift: tw.f64["m"]) -> Any:  # type: ignore[valid-type]  # noqa: F821, UP037
        return tw.map(lambda column, one: tw.reduce("add", 0, column) + one, x.T, shift)

    array = np.ones((40, 64))
    assert (shifted(array, np.arange(64.0)) == 40 + np.arange(64.0)).all()
    assert chosen and not any(isinstance(one, str) for one in chosen)
