"""Tests are taken out of innermost loops where these have such: kernels without are compiled faster."""

import pytest

from tilewright.ir.scalars import F64, I64
from tilewright.kernel import ir
from tilewright.kernel.constant_tests import has_constant_tests
from tilewright.kernel.ir import Buffer, Constant, Name, integer, load, operation
from tilewright.kernel.llvm import CONSTANT_TESTS, llvm_text
from tilewright.runtime.cpu_jit import assembly, host_cpu

X, FLAGS = Buffer("x", F64), Buffer("flags", I64)
N, ROUND, J = (Name(name, I64) for name in ("n", "i", "j"))


def branch(what):
    return ir.If(
        operation("gt", what, integer(3)),
        (ir.Store(X, ROUND, Constant(1.0, F64)),),
        (ir.Store(X, J, Constant(2.0, F64)),),
    )


def rounds(index, *body):
    return ir.For(index, integer(0), N, tuple(body))


def kernel(*body):
    return ir.Kernel("k", (X, FLAGS), (ir.ScalarParameter("n", I64),), (), tuple(body))


NESTS = {
    "of a scalar": (True, rounds("j", rounds("i", branch(N)))),
    "of what the loop around counts": (True, rounds("j", rounds("i", branch(J)))),
    "of what it is computed from": (
        True,
        rounds("j", rounds("i", ir.Let("t", operation("add", N, J)), branch(Name("t", I64)))),
    ),
    "of the round": (False, rounds("j", rounds("i", branch(ROUND)))),
    "of what is computed from the round": (
        False,
        rounds("j", rounds("i", ir.Let("t", operation("mul", ROUND, N)), branch(Name("t", I64)))),
    ),
    "of memory": (False, rounds("j", rounds("i", branch(load(FLAGS, ROUND))))),
    "of what changes": (
        False,
        rounds(
            "j", ir.Declare("v", N), rounds("i", branch(Name("v", I64)), ir.Assign("v", operation("add", ROUND, N)))
        ),
    ),
    "around a loop": (
        False,
        rounds("j", rounds("i", ir.If(operation("gt", N, J), (rounds("k", ir.Store(X, ROUND, load(X, J))),)))),
    ),
    "in no loop": (False, ir.If(operation("gt", N, integer(3)), (ir.Store(X, integer(0), Constant(1.0, F64)),))),
}


@pytest.mark.parametrize("name", sorted(NESTS))
def test_which_tests_are_found(name):
    expected, nest = NESTS[name]
    assert has_constant_tests((nest,)) == expected
    assert llvm_text(kernel(nest), host_cpu()).startswith(CONSTANT_TESTS) == expected


def test_what_goes_on_until_a_test_fails_is_a_loop():
    again = ir.While(
        (), operation("lt", Name("v", I64), N), (ir.Assign("v", operation("add", Name("v", I64), N)), branch(N))
    )
    assert has_constant_tests((rounds("j", rounds("i", ir.Declare("v", integer(0)), again)),))


def test_only_loops_with_such_tests_are_copied():
    with_test, without = (kernel(NESTS[name][1]) for name in ("of a scalar", "of the round"))
    assert assembly(with_test, "full") != assembly(with_test, "deep")
    assert assembly(without, "full") == assembly(without, "deep")
