"""The search for cycles waits while something is compiled, and goes on afterwards whatever happened."""

import gc
import os
import threading

import pytest
from children import true_in_a_child

import tilewright as tw
from tilewright.passes import compile as compiling
from tilewright.passes.compile import compile_program
from tilewright.runtime.collecting import collection_later
from tilewright.runtime.devices import device_for


@tw.program
def doubled(xs: tw.f64["n"]):  # noqa: F821
    return tw.map(lambda x: x + x, xs)


@pytest.fixture(params=[True, False])
def searched(request):
    """Whether cycles are searched for otherwise."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_waits_while_a_program_is_compiled(monkeypatch, searched):
    seen = []
    prepare = compiling.prepare_program
    monkeypatch.setattr(compiling, "prepare_program", lambda *given: (seen.append(gc.isenabled()), prepare(*given))[1])
    compile_program(doubled.trace(), device_for("cpu"))
    assert seen == [False]
    assert gc.isenabled() == searched


def test_it_goes_on_after_an_error(searched):
    with pytest.raises(KeyError), collection_later():
        raise KeyError
    assert gc.isenabled() == searched


def test_it_goes_on_after_the_last_of_several_threads(searched):
    inside, leave = threading.Barrier(5), threading.Barrier(5)

    def hold():
        with collection_later():
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for one in threads:
        one.start()
    inside.wait()
    assert not gc.isenabled()
    leave.wait()
    for one in threads:
        one.join()
    assert gc.isenabled() == searched


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_it_goes_on_in_a_child_of_a_process_that_compiles(searched):
    inside, leave = threading.Barrier(2), threading.Barrier(2)

    def hold():
        with collection_later():
            inside.wait()
            leave.wait()

    def goes_on():
        good = gc.isenabled() == searched
        with collection_later():
            good &= not gc.isenabled()
        return good and gc.isenabled() == searched

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    good = true_in_a_child(goes_on)
    leave.wait()
    thread.join()
    assert good
