"""The static checks on kernels whose conflicts, sectors and barriers are known beforehand."""

import numpy as np
import pytest

from tilewright.ir.scalars import F16, F32, F64, I32, I64, U8
from tilewright.kernel.checks import AccessReport, bank_degree, check_index_types, check_kernel, sectors
from tilewright.kernel.ir import (
    Assign,
    Barrier,
    BlockIndex,
    Buffer,
    Cast,
    Constant,
    Declare,
    Expression,
    For,
    If,
    Kernel,
    Let,
    Name,
    ScalarParameter,
    Space,
    Statement,
    Store,
    ThreadIndex,
    While,
    add,
    integer,
    load,
    multiply,
    operation,
)

THREAD = ThreadIndex()
ZERO = Constant(0.0, F32)


def kernel_of(*body: Statement, threads: int = 64, element=F32, size: int = 8192) -> tuple[Kernel, Buffer, Buffer]:
    shared = Buffer("tile", element, Space.SHARED, size=size)
    source = Buffer("a", element, read_only=True)
    parameters = (ScalarParameter("n", I64),)
    return Kernel("k", (source,), parameters, (shared,), body, threads_per_block=threads), shared, source


def only(index: Expression, element=F32, lanes: int = 1, threads: int = 64, scalars=None) -> AccessReport:
    """The report on one shared load."""
    shared = Buffer("tile", element, Space.SHARED, size=8192)
    kernel = Kernel(
        "k", (), (ScalarParameter("n", I64),), (shared,), (Let("x", load(shared, index, lanes, True)),), threads
    )
    (report,) = check_kernel(kernel, scalars or {}).bank_conflicts
    return report


@pytest.mark.parametrize(
    ("stride", "degree"), [(1, 1), (2, 2), (3, 1), (4, 4), (8, 8), (16, 16), (32, 32), (33, 1), (64, 32), (0, 1)]
)
def test_strides(stride: int, degree: int) -> None:
    assert only(multiply(THREAD, integer(stride))).degree == degree


def test_two_rows_of_sixteen_threads_conflict_only_where_their_words_differ() -> None:
    row, column = operation("floordiv", THREAD, integer(16)), operation("mod", THREAD, integer(16))
    assert only(row).degree == 1  # a broadcast within each half
    assert only(add(multiply(row, integer(32)), column)).degree == 2
    assert only(add(multiply(row, integer(48)), column)).degree == 1


def test_wide_accesses_are_served_in_parts() -> None:
    assert only(multiply(THREAD, integer(4)), lanes=4).degree == 1  # 128 bits each, consecutive
    assert only(multiply(THREAD, integer(32)), lanes=4).degree == 8  # 8 threads of a quarter-warp in the same 4 banks
    assert only(multiply(THREAD, integer(36)), lanes=4).degree == 1
    assert only(multiply(THREAD, integer(2)), lanes=2).degree == 1
    assert only(multiply(THREAD, integer(32)), lanes=2).degree == 16
    assert only(THREAD, element=F64).degree == 1
    assert only(multiply(THREAD, integer(16)), element=F64).degree == 16
    assert only(multiply(THREAD, integer(4)), element=F64, lanes=4).degree == 2


def test_narrow_elements_share_words() -> None:
    assert only(THREAD, element=F16).degree == 1
    assert only(THREAD, element=U8).degree == 1
    assert only(multiply(THREAD, integer(64)), element=F16).degree == 32
    assert bank_degree(np.array([0, 1, 2, 128]), 1) == 2


def test_scalars_decide_where_they_are_given() -> None:
    index = multiply(THREAD, Name("n", I64))
    assert only(index, scalars={"n": 32}).degree == 32
    assert only(index, scalars={"n": 33}).degree == 1
    assert only(index).degree is None
    assert "unknown" in str(only(index))


def test_values_that_do_not_fit_wrap_instead_of_raising() -> None:
    index = multiply(THREAD, Constant((1 << 64) + 32, I64))
    assert only(index).degree == 32
    assert only(multiply(THREAD, Name("n", I64)), scalars={"n": 1 << 64 | 2}).degree == 2


def test_the_last_warp_and_masks_count() -> None:
    assert only(multiply(THREAD, integer(32)), threads=8).degree == 8
    # the second warp alone conflicts: thread < 32 ? thread : thread * 32
    index = operation("select", operation("lt", THREAD, integer(32)), THREAD, multiply(THREAD, integer(32)))
    assert only(index).degree == 32
    shared = Buffer("tile", F32, Space.SHARED, size=8192)
    few = If(operation("lt", THREAD, integer(4)), (Store(shared, multiply(THREAD, integer(32)), ZERO),))
    kernel = Kernel("k", (), (), (shared,), (few,), 64)
    assert check_kernel(kernel, {}).bank_conflicts[0].degree == 4


def test_masked_threads_keep_their_place_in_the_quarter_warps() -> None:
    shared = Buffer("tile", F32, Space.SHARED, size=8192)
    every_eighth = If(
        operation("eq", operation("mod", THREAD, integer(8)), integer(0)),
        (Let("x", load(shared, multiply(THREAD, integer(32)), 4, True)),),
    )
    kernel = Kernel("k", (), (), (shared,), (every_eighth,), 32)
    assert check_kernel(kernel, {}).bank_conflicts[0].degree == 1


def test_inner_loops_and_staging_are_told_apart() -> None:
    shared, source = Buffer("tile", F32, Space.SHARED, size=8192), Buffer("a", F32, read_only=True)
    t, k = Name("t", I64), Name("k", I64)
    inner = For("k", integer(0), integer(8), (Assign("s", load(shared, multiply(add(THREAD, k), integer(32)))),))
    stage = Store(shared, THREAD, load(source, add(THREAD, t)))
    tiles = For("t", integer(0), Name("n", I64), (stage, Barrier(), inner, Barrier()), step=integer(64))
    kernel = Kernel("k", (source,), (ScalarParameter("n", I64),), (shared,), (Declare("s", ZERO), tiles), 64)
    report = check_kernel(kernel, {"n": 256})
    write, read = report.bank_conflicts
    assert (write.staging, write.inner, write.degree) == (True, False, 1)
    assert (read.staging, read.inner, read.degree) == (False, True, 32)
    assert read.location == "for t / for k / load tile[((thread + k) * 32)]"
    assert report.worst_inner_conflict == 32
    assert report.global_accesses[0].degree == report.global_accesses[0].ideal == 4
    assert report.divergent_barriers == ()


def test_coalescing() -> None:
    source = Buffer("a", F32, read_only=True)

    def judged(index: Expression, lanes: int = 1) -> tuple[int | None, int]:
        body = (Let("x", load(source, index, lanes)),)
        (report,) = check_kernel(Kernel("k", (source,), (), (), body, 64), {}).global_accesses
        return report.degree, report.ideal

    assert judged(THREAD) == (4, 4)
    assert judged(add(THREAD, integer(1))) == (5, 4)
    assert judged(multiply(THREAD, integer(2))) == (8, 4)
    assert judged(multiply(THREAD, integer(100))) == (32, 4)
    assert judged(integer(0)) == (1, 4)
    assert judged(multiply(THREAD, integer(4)), lanes=4) == (16, 16)
    assert sectors(np.array([0, 31, 32]), 1) == 2


def test_an_index_that_was_loaded_is_unknown() -> None:
    places, source = Buffer("places", I64, read_only=True), Buffer("a", F32, read_only=True)
    body = (Let("at", load(places, THREAD)), Let("x", load(source, Name("at", I64))))
    first, second = check_kernel(Kernel("k", (places, source), (), (), body, 32), {}).global_accesses
    assert (first.degree, first.ideal) == (8, 8)
    assert second.degree is None


# --- barriers ---------------------------------------------------------------------------------------------------------


def findings(*body: Statement) -> tuple[str, ...]:
    private = Buffer("mine", I64, Space.PRIVATE, size=4)
    kernel = Kernel("k", (Buffer("a", I64),), (ScalarParameter("n", I64),), (private,), body, 64)
    return check_kernel(kernel, {"n": 5}).divergent_barriers


N = Name("n", I64)
UNIFORM = operation("lt", BlockIndex(), N)


def test_uniform_barriers_pass() -> None:
    uniform_load = load(Buffer("a", I64), BlockIndex())
    assert findings(Barrier()) == ()
    assert findings(If(UNIFORM, (Barrier(),))) == ()
    assert findings(For("i", integer(0), N, (Barrier(),))) == ()
    assert findings(Let("m", uniform_load), For("i", integer(0), Name("m", I64), (Barrier(),))) == ()


def test_a_barrier_under_a_condition_on_the_thread_is_found() -> None:
    (found,) = findings(If(operation("lt", THREAD, N), (Barrier(),)))
    assert "condition of an if" in found
    assert findings(If(operation("lt", THREAD, N), (), (Barrier(),)))


def test_the_thread_index_is_followed_through_names() -> None:
    row = Let("row", operation("floordiv", THREAD, integer(8)))
    assert findings(row, For("i", integer(0), Name("row", I64), (Barrier(),)))
    assert findings(row, Let("more", add(Name("row", I64), N)), If(operation("eq", Name("more", I64), N), (Barrier(),)))
    loaded = load(Buffer("a", I64), THREAD)
    assert findings(Declare("m", integer(0)), Assign("m", loaded), If(operation("eq", Name("m", I64), N), (Barrier(),)))


def test_an_assignment_later_in_a_loop_reaches_its_beginning() -> None:
    m = Name("m", I64)
    loop = For("i", integer(0), N, (If(operation("lt", m, N), (Barrier(),)), Assign("m", THREAD)))
    assert findings(Declare("m", integer(0)), loop)


def test_an_assignment_by_some_threads_makes_a_name_differ() -> None:
    some = If(operation("lt", THREAD, integer(4)), (Assign("m", integer(1)),))
    assert findings(Declare("m", integer(0)), some, If(operation("eq", Name("m", I64), N), (Barrier(),)))
    assert not findings(Declare("m", integer(0)), some, If(UNIFORM, (Barrier(),)))


def test_private_arrays_and_while_loops_are_followed() -> None:
    private = Buffer("mine", I64, Space.PRIVATE, size=4)
    uniform = operation("lt", load(private, integer(0)), N)
    assert findings(Store(private, integer(0), THREAD), While((), uniform, (Barrier(),)))
    assert not findings(Store(private, integer(0), N), While((), uniform, (Barrier(),)))
    condition = operation("lt", Name("m", I64), N)
    assert findings(While((Let("m", THREAD), Barrier()), condition, ()))


# --- index types ------------------------------------------------------------------------------------------------------


def test_index_types() -> None:
    a = Buffer("a", F32)
    good = Kernel("k", (a,), (), (), (Store(a, THREAD, ZERO),), 32)
    assert check_index_types(good) == ()
    narrow = ThreadIndex(I32)
    (found,) = check_index_types(Kernel("k", (a,), (), (), (Store(a, narrow, ZERO),), 32, index_type=I64))[:1]
    assert "the index is i32" in found
    widened = Cast(multiply(narrow, Constant(3, I32)), I64)
    messages = check_index_types(Kernel("k", (a,), (), (), (Let("x", load(a, widened)),), 32))
    assert any("computed in i32, then cast to i64" in message for message in messages)
