"""Programs and plans that go to other processes: by name, and as what was asked for."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pickled_programs import Family, doubled, plus_bias, row_sums

import tilewright as tw


def _again(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("program", [doubled, row_sums, Family.halved])
def test_a_program_of_a_module_is_itself_again(program):
    assert _again(program) is program
    assert copy.copy(program) is program
    assert copy.deepcopy(program) is program


def test_a_program_keeps_the_options_that_were_given_later():
    threshold = next(iter(row_sums.thresholds()))
    rows = np.arange(6.0).reshape(2, 3)
    for value in (0.0, float("inf")):
        forced = _again(row_sums.with_thresholds({threshold: value}))
        assert forced.thresholds()[threshold] == value
        np.testing.assert_allclose(forced(rows), rows.sum(1), rtol=1e-15)
    assert threshold in row_sums.thresholds()


def test_a_program_that_no_module_has_is_refused_with_what_to_do():
    @tw.program
    def local(xs: tw.f64["n"]):
        return xs

    with pytest.raises(TypeError, match=r"\.local cannot be pickled: .* at the top of a module"):
        pickle.dumps(local)
    assert copy.deepcopy(local) is local


def test_a_plan_is_planned_anew():
    rng = np.random.default_rng(0)
    a, b, bias = rng.integers(-9, 9, (3, 4)), rng.integers(-9, 9, (4, 5)), rng.integers(-9, 9, 5)
    made = tw.plan(
        "ij,jk->ik", a.T.copy().T, b, epilogue=plus_bias, epilogue_operands=[(bias, "k")], alpha=2, order="F"
    )
    again = _again(made)
    assert repr(again) == repr(made)
    assert (again(a, b, bias) == 2 * (a @ b) + bias).all()
    assert again(a, b, bias).flags.f_contiguous


def test_a_plan_of_a_view_and_of_an_interleaved_expression():
    assert _again(tw.plan("ij->ji", (2, 3)))(np.ones((2, 3))).shape == (3, 2)
    assert _again(tw.plan([["row", 1], [1, "column"], ["row", "column"]], (2, 3), (3, 4))).flops == 48


def test_a_tree_plan_is_planned_anew():
    rng = np.random.default_rng(1)
    a, b, c = rng.standard_normal((20, 30)), rng.standard_normal((30, 40)), rng.standard_normal((40, 50))
    tree = "[[i,j],[j,k]->[i,k]],[k,l]->[i,l]"
    made = tw.plan_tree(tree, {"i": 20, "j": 30, "k": 40, "l": 50}, memory_limit=12_000)
    again = _again(made)
    assert again.slices == made.slices > 1
    assert repr(again) == repr(made)
    assert (again(a, b, c) == made(a, b, c)).all()


def test_a_compiled_tensor_operation_is_compiled_anew():
    lists = ("MNK", ["seq"] * 3, (4, 5, 6), (1, 0, 4), (0, 6, 1), (1, 4, 0))
    operation = tw.TensorOperation.from_lists("f32", "contraction", *lists, "zero", "clamp", (-1, 2.5)).optimise()
    made = operation.compile("cpu")
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((6, 4)).astype("f"), rng.standard_normal((5, 6)).astype("f")
    want = made(a, b, np.empty((5, 4), "f"))
    assert len(pickle.dumps(made)) < 2 * len(pickle.dumps(operation))  # without code
    for again in (_again(made), _again(_again(made)), copy.copy(made), copy.deepcopy(made)):
        assert again.operation == operation and repr(again) == repr(made)
        assert (again(a, b, np.empty((5, 4), "f")) == want).all()
    assert repr(made).startswith("compiled tensor operation on f32\n")


def test_a_process_that_is_spawned_gets_programs_and_plans(tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text(
        """
import multiprocessing, numpy as np, tilewright as tw
from pickled_programs import doubled

@tw.program
def tripled(xs: tw.f64["n"]):
    return tw.map(lambda x: 3.0 * x, xs)

def run(task):
    one, other, plan = task
    return one(np.ones(2)).tolist(), other(np.ones(2)).tolist(), plan(np.ones((1, 3)), np.ones((3, 2))).tolist()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(run, [(doubled, tripled, tw.plan("ij,jk->ik", (1, 3), (3, 2)))]))
"""
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(tw.__file__).parents[1])])
    found = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert found.stdout == "([2.0, 2.0], [3.0, 3.0], [[3.0, 3.0]])\n", found.stderr
