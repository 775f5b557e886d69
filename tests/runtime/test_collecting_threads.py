"""The search for cycles does not wait for ever, and does not look at all that was made meanwhile."""

import gc
import threading
import weakref

import pytest

from tilewright.runtime import collecting
from tilewright.runtime.collecting import collection_later


class Cycle:
    def __init__(self):
        self.own = self


@pytest.fixture(autouse=True)
def searched():
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("longest, is_freed", [(0.0, True), (1000.0, False)])
def test_one_of_those_that_compile_without_a_break_searches(monkeypatch, longest, is_freed):
    monkeypatch.setattr(collecting, "LONGEST", longest)
    inside, leave = threading.Barrier(2), threading.Barrier(2)

    def hold():
        with collection_later():
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    lost = weakref.ref(Cycle())
    with collection_later():
        found = lost() is None
    leave.wait()
    thread.join()
    assert found == is_freed
    assert gc.isenabled()


def test_what_is_freed_by_the_search_may_compile(monkeypatch):
    monkeypatch.setattr(collecting, "LONGEST", 0.0)
    done = []

    class Compiles(Cycle):
        def __del__(self):
            with collection_later():
                done.append(gc.isenabled())

    with collection_later():
        Compiles()
        with collection_later():
            assert done == [False]


def test_what_the_compiler_makes_is_not_searched_when_it_is_done():
    with collection_later():
        made = [[number] for number in range(50_000)]
    assert len(gc.get_objects(generation=0)) < 10_000
    assert made[-1] == [49_999]


def test_frozen_objects_stay_frozen():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collection_later():
            pass
        assert 0 < frozen == gc.get_freeze_count()
    finally:
        gc.unfreeze()
