"""Trees, and einsums within a limit of memory, from the disk: the same results and errors, without planning."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_checks import files, forget, some

import tilewright as tw
from tilewright.frontend import einsum_memory, einsum_stored, tree
from tilewright.frontend.tree_stored import StoredTree, in_order
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.flat_plan import EntryLaunch, FlatPlan

TREE = "[[0,1],[1,2]->[0,2]r],[2,3]->[3,0]"
PLANNER = ("tilewright.frontend.tree_plan", "tilewright.frontend.einsum_parse", "tilewright.ir", "tilewright.passes",
           "tilewright.runtime.stored_program", "opt_einsum", "llvmlite", "json", "dataclasses")  # fmt: skip
SCRIPT = """
import sys
import numpy as np
import tilewright as tw
before = set(sys.modules)
a, b, c = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5), np.arange(10.0).reshape(5, 2)
for _ in range(3):
    assert (tw.einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[3,0]", None, [a, b, c]) == (a @ b @ c).T).all()
    assert (tw.einsum("ij,jk,kl->il", a, b, c, memory_limit=1000) == a @ b @ c).all()
print(" ".join(sorted(set(sys.modules) - before)))
"""


def operands(dtype: Any = np.float32) -> list[Any]:
    return [some(5, 7, dtype=dtype), some(7, 6, seed=1, dtype=dtype), some(6, 4, seed=2, dtype=dtype)]


def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process does not know of trees."""
    forget(monkeypatch)
    monkeypatch.setattr(tree, "_PLANS", MemoryCache(capacity=64))
    monkeypatch.setattr(tree, "_RECENT", {})
    monkeypatch.setattr(einsum_memory, "_FOUND", {})


def nothing_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a tree was planned")

    begin_anew(monkeypatch)
    monkeypatch.setattr(tree, "make_plan", fail)


def of_tree(arrays: list[Any], **options: Any) -> Any:
    return tw.einsum_tree(TREE, None, arrays, **options)


def of_limit(arrays: list[Any], **options: Any) -> Any:
    return tw.einsum("ij,jk,kl->li", *arrays, memory_limit=1 << 20, **options)


CALLS = pytest.mark.parametrize("call", [of_tree, of_limit])


def test_later_processes_plan_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "c"), "TILEWRIGHT_NUM_THREADS": "2"}
    later: list[str] = []
    for number in range(4):  # a process whose sources change meanwhile stores nothing
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        later = done.stdout.split()
        assert number > 0 or "tilewright.frontend.tree_plan" in later
        if number > 0 and "tilewright.frontend.tree_plan" not in later:
            break
    assert [name for name in later if name.startswith(PLANNER)] == []


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "c8"])
@pytest.mark.parametrize("sizes", [None, [5, 7, 6, 4], {0: 5, 1: 7, 2: 6, 3: 4}])
def test_trees_give_the_same(disk: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, sizes: Any) -> None:
    arrays, text = operands(dtype), TREE if dtype != "c8" else TREE.replace("r", "")
    out = np.zeros((4, 5), dtype, order="F")
    begin_anew(monkeypatch)
    expected = tw.einsum_tree(text, sizes, arrays)
    tw.einsum_tree(text, sizes, arrays, out=out)
    nothing_is_planned(monkeypatch)
    for _ in range(4):
        result = tw.einsum_tree(text, sizes, arrays)
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype and result.strides == expected.strides and result.flags.writeable
        out[...] = 0
        assert tw.einsum_tree(text, sizes, arrays, out=out) is out
        np.testing.assert_array_equal(out, expected)


TERMS = st.text("ijkl", min_size=1, max_size=3).map(lambda one: "".join(dict.fromkeys(one)))
EXTENTS = {"i": 3, "j": 4, "k": 5, "l": 2}


@given(st.lists(TERMS, min_size=2, max_size=4), st.data(), st.sampled_from(["f4", "f8", "i4"]), st.booleans())
@settings(max_examples=15)
def test_random_einsums_within_a_limit_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, terms: list[str], data: Any, dtype: str, brings: bool
) -> None:
    """Whatever the order in which a path takes the operands, some of which differ in nothing but their elements."""
    output = "".join(sorted(data.draw(st.sets(st.sampled_from("".join(terms))))))
    arrays = [some(*(EXTENTS[one] for one in term), seed=n, dtype=dtype) for n, term in enumerate(terms)]
    expression = ",".join(terms) + "->" + output
    out = np.zeros([EXTENTS[one] for one in output], dtype) if brings and output else None
    limit = data.draw(st.sampled_from([1 << 20, 400]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("disk")))
        known = ("this version",)
        patched.setattr(einsum_stored, "fingerprint", lambda: known)
        begin_anew(patched)
        first = np.array(tw.einsum(expression, *arrays, memory_limit=limit, out=out))
        np.testing.assert_allclose(first, np.einsum(expression, *arrays), rtol=1e-5)
        stored = [one for one in einsum_memory._FOUND.values() if one is not None]
        if stored:
            nothing_is_planned(patched)
        for _ in range(3):
            result = tw.einsum(expression, *arrays, memory_limit=limit, out=out)
            np.testing.assert_array_equal(result, first)
            assert result.dtype == np.dtype(dtype)
            for one in arrays:  # entries that mixed operands up would give other results
                one += 1
            first = np.array(tw.einsum(expression, *arrays))
            np.testing.assert_allclose(first, np.einsum(expression, *arrays), rtol=1e-5)


@CALLS
def test_what_differs_is_planned(disk: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    a, b, c = operands()
    begin_anew(monkeypatch)
    expected = call([a, b, c])
    nothing_is_planned(monkeypatch)
    np.testing.assert_array_equal(call([a.copy(), b, c]), expected)
    out = np.zeros((4, 5), np.float32)
    for arrays, options in (
        ([a.astype("f8"), b, c], {}), ([np.asfortranarray(a), b, c], {}), ([a[::-1], b, c], {}), ([a, b, c[:, :3]], {}),
        ([a, b, c], {"out": out}), ([a, b, c], {"dtype": "f8"}),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match="a tree was planned"):
            call(arrays, **options)
    with pytest.raises(AssertionError, match="a tree was planned"):
        tw.einsum_tree(TREE, None, [a, b, c], memory_limit=1 << 20)
    with pytest.raises(AssertionError, match="a tree was planned"):
        tw.einsum("ij,jk,kl->li", a, b, c, memory_limit=1 << 21)
    begin_anew(monkeypatch)
    with pytest.raises(AssertionError, match="a tree was planned"), tw.num_threads(tw.get_num_threads() + 1):
        call([a, b, c])


@CALLS
def test_an_out_that_cannot_be_written(disk: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    a, b, c = operands()
    out = np.zeros((4, 5), np.float32)
    begin_anew(monkeypatch)
    expected = call([a, b, c], out=out).copy()
    begin_anew(monkeypatch)
    for _ in range(4):
        assert call([a, b, c], out=out) is out
        np.testing.assert_array_equal(out, expected)
        out.flags.writeable = False
        with pytest.raises(ValueError, match="out is read-only"):
            call([a, b, c], out=out)
        out.flags.writeable = True
    memory = np.zeros(42, np.float32)
    within, whole = memory[:20].reshape(4, 5), memory[:42].reshape(7, 6)
    whole[...] = b
    for _ in range(3):
        with pytest.raises(ValueError, match="shares memory"):
            call([a, whole, c], out=within)
    wide = np.zeros((4, 5))
    if call is of_tree:
        with pytest.raises(TypeError, match="has dtype float64"):
            call([a, b, c], out=wide)
    else:  # computed in f64, as by any einsum
        np.testing.assert_allclose(call([a, b, c], out=wide), expected, rtol=1e-4)


def test_more_threads_are_used_later(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [some(150, 150, seed=n) for n in range(3)]
    with tw.num_threads(1):
        begin_anew(monkeypatch)
        expected = of_tree(arrays)
        begin_anew(monkeypatch)
        np.testing.assert_array_equal(of_tree(arrays), expected)
    (plan,) = tree._PLANS._values.values()
    assert isinstance(plan, StoredTree)
    kept = len(files(disk))
    with tw.num_threads(2):
        for _ in range(3):
            np.testing.assert_allclose(of_tree(arrays), expected, rtol=1e-6)
    records = [one for one in files(disk) if b'"facts"' in one.read_bytes()]
    assert len(records) <= kept  # nothing was stored for two threads under the key of one
    begin_anew(monkeypatch)
    with tw.num_threads(1):
        np.testing.assert_array_equal(of_tree(arrays), expected)


@pytest.mark.parametrize("name", ["TILEWRIGHT_VERIFY", "TILEWRIGHT_CACHE"])
def test_the_environment_switches_it_off(disk: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1" if name == "TILEWRIGHT_VERIFY" else "0")
    for _ in range(2):
        begin_anew(monkeypatch)
        for call in (of_tree, of_limit):
            call(operands())
        assert not [one for one in tree._PLANS._values.values() if isinstance(one, StoredTree)]
        assert not any(einsum_memory._FOUND.values())


def test_mistakes_are_told_after_a_call_from_the_disk(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = operands()
    of_limit([a, b, c])
    begin_anew(monkeypatch)
    of_limit([a, b, c])
    with pytest.raises(ValueError, match="does not go with alpha"):
        of_limit([a, b, c], alpha=1.0)
    with pytest.raises(ValueError, match="does not go with beta"):
        of_limit([a, b, c], beta=2)
    with pytest.raises(ValueError, match="number of bytes"):
        tw.einsum("ij,jk,kl->li", a, b, c, memory_limit=True)
    with pytest.raises(ValueError, match="number of bytes"):
        tw.einsum("ij,jk,kl->li", a, b, c, memory_limit=float(1 << 20))
    with pytest.raises(TypeError, match="out must be"):
        of_limit([a, b, c], out=[1])
    np.testing.assert_array_equal(of_limit([a, b, c], optimize=[(0, 1), (0, 1)]), of_limit([a, b, c]))


def test_operands_in_another_order() -> None:
    native: Any = None
    plan = FlatPlan(
        (3, 7, 15, 31), (64,), (EntryLaunch(native, 1, (0, 1, 4), ()), EntryLaunch(native, 1, (4, 2, 3), ()))
    )
    turned = in_order(plan, (2, 0, 1))
    assert turned.masks == (7, 15, 3, 31) and turned.temporaries == (64,)
    assert [one.buffers for one in turned.launches] == [(2, 0, 4), (4, 1, 3)]
