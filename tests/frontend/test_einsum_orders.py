"""How intermediates of einsums lie: chosen beside operands and result, and what is computed stays the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.frontend import einsum_orders
from tilewright.frontend.einsum_orders import intermediate_orders
from tilewright.frontend.einsum_parse import parse_string, resolve
from tilewright.frontend.einsum_path import contraction_path, steps_of


def orders(text: str, width: int = 8, **sizes: int) -> list[str]:
    parsed = parse_string(text)
    resolved = resolve(parsed, [tuple(sizes[str(label)] for label in term) for term in parsed.inputs])
    path = contraction_path(resolved.spec, resolved.sizes)
    spec = resolved.spec
    chosen = intermediate_orders(spec, path, resolved.sizes, spec.inputs, spec.output, width)
    steps = steps_of(spec, path, True, chosen)
    assert [one.output for one in steps[:-1]] == list(chosen) or not chosen
    assert steps[-1].output == spec.output
    return [resolved.text(one.output) for one in steps[:-1]]


def test_what_stays_together_is_not_taken_apart() -> None:
    # both products are of matrices then, where the order of the result alone gave ipqn
    assert orders("mnpq,mi,nj->ijpq", m=5, n=5, p=12, q=12, i=5, j=5) == ["inpq"]


def test_a_short_summed_index_may_be_innermost() -> None:
    # rows of four lie side by side and are all read: nothing is gained by turning them
    assert orders("lmn,nop,pqr->lmoqr", l=8, m=8, n=8, o=8, p=4, q=4, r=8) == ["lmop"]


def test_a_small_gain_is_none() -> None:
    assert orders("ij,jk,kl->il", 4, i=8, j=100, k=100, l=4) == ["lj"]


def test_paths_of_other_steps_than_pairs_keep_the_order_of_the_result() -> None:
    spec = resolve(parse_string("ij,jk,kl,lm->im"), [(2, 2)] * 4).spec
    assert intermediate_orders(spec, ((0, 1, 2), (0, 1)), (2,) * 5, spec.inputs, spec.output, 8) == ()
    assert intermediate_orders(spec, ((0, 1, 2, 3),), (2,) * 5, spec.inputs, spec.output, 8) == ()


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]], int]:
    seed = draw(st.integers(0, 2**32 - 1))
    chosen = random.Random(seed)
    labels = "abcdefg"
    sizes = {label: chosen.choice([1, 2, 3, 4, 9]) for label in labels}
    terms = ["".join(chosen.sample(labels, chosen.randint(1, 4))) for _ in range(chosen.randint(3, 5))]
    if chosen.random() < 0.2:
        terms[0] += terms[0][0]
    used = sorted(set("".join(terms)))
    output = "".join(chosen.sample(used, chosen.randint(0, min(4, len(used)))))
    return f"{','.join(terms)}->{output}", [tuple(sizes[label] for label in term) for term in terms], seed


@given(chains())
def test_results_of_any_chain(case: tuple[str, list[tuple[int, ...]], int]) -> None:
    text, shapes, seed = case
    chosen = np.random.default_rng(seed)
    dtype = chosen.choice(["int64", "float32", "complex128"])
    arrays = [np.asfortranarray(chosen.integers(-2, 3, shape).astype(dtype)) for shape in shapes]
    assert np.array_equal(tw.einsum(text, *arrays), np.einsum(text, *arrays))


def test_a_plan_tells_the_order_that_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = ((5, 5, 12, 12), (5, 5), (5, 5))
    assert tw.plan("mnpq,mi,nj->ijpq", *shapes).steps[0].contraction.endswith("->inpq")
    monkeypatch.setattr(einsum_orders, "intermediate_orders", lambda *_: ())
    assert tw.plan("mnpq,mi,nj->ijpq", *shapes).steps[0].contraction.endswith("->ipqn")
