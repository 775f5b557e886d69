"""What first calls import: without searches for cycles, and with LLVM's library loaded beside."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from children import true_in_a_child

from tilewright.runtime import collecting, llvm_library
from tilewright.runtime.collecting import collection_later, imported

NO_SEARCH = """
import gc, sys
import tilewright as tw

def half_imported(phase, facts):
    for name, module in [*sys.modules.items()]:
        if name.startswith("tilewright.frontend.") and module.__spec__._initializing:
            searched.append(name)

searched = []
gc.callbacks.append(half_imported)
gc.set_threshold(50)
tw.plan
assert not searched and "tilewright.frontend.einsum_plan" in sys.modules, searched
"""

FORKED = """
import os
from tilewright.runtime import llvm_library
llvm_library.load_ahead()
assert llvm_library._LOADING
child = os.fork()
from llvmlite import binding
binding.initialize_native_target()
assert binding.get_host_cpu_name()
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with open("/proc/self/maps") as maps:
    assert "libllvmlite" in maps.read()
"""

LOADED = """
import sys, time
from tilewright.runtime import llvm_library
llvm_library.load_ahead()
for one in llvm_library._LOADING:
    one.join()
assert "llvmlite" not in sys.modules
with open("/proc/self/maps") as maps:
    assert "libllvmlite" in maps.read()
"""


def run(script: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_names_are_imported_without_searches() -> None:
    run(NO_SEARCH)


def test_modules_are_imported_without_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_here.py").write_text("import gc\nsearched = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.isenabled()
    gc.enable()
    try:
        assert imported("imported_here").searched is False
        assert gc.isenabled()
        entered = []
        monkeypatch.setattr(collecting._COMPILATIONS, "begin", lambda: entered.append(1))
        assert imported("imported_here").searched is False and not entered
    finally:
        (gc.enable if before else gc.disable)()
        sys.modules.pop("imported_here", None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_while_searches_wait_goes_on_with_them() -> None:
    waiting = ExitStack()

    def goes_on() -> bool:
        waiting.close()
        good = gc.isenabled()
        with collection_later():
            good &= not gc.isenabled()
        return good and gc.isenabled()

    before = gc.isenabled()
    gc.enable()
    try:
        waiting.enter_context(collection_later())
        with waiting:
            assert true_in_a_child(goes_on)
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.skipif(sys.platform != "linux", reason="loaded ahead on Linux only")
def test_the_library_is_loaded_before_llvmlite_is_imported() -> None:
    run(LOADED)


@pytest.mark.skipif(sys.platform != "linux", reason="loaded ahead on Linux only")
def test_a_fork_waits_for_the_library() -> None:
    run(FORKED)


@pytest.mark.skipif(sys.platform != "linux", reason="loaded ahead on Linux only")
def test_nothing_is_loaded_while_a_process_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child in the middle of loading found that the library of `zlib` had no `crc32`."""
    monkeypatch.setattr(llvm_library, "_LOADING", [])
    monkeypatch.setattr(llvm_library, "_load", lambda path: None)
    monkeypatch.delitem(sys.modules, "llvmlite.binding", raising=False)
    thread = threading.Thread(target=llvm_library.load_ahead)
    with llvm_library._loaded():
        thread.start()
        thread.join(0.1)
        assert thread.is_alive() and not llvm_library._LOADING
    thread.join()
    assert llvm_library._LOADING


def test_nothing_is_loaded_ahead_of_what_is_there_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_library, "_LOADING", [])
    monkeypatch.setitem(sys.modules, "llvmlite.binding", sys)
    llvm_library.load_ahead()
    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    monkeypatch.setattr(llvm_library.PathFinder, "find_spec", lambda name: None)
    llvm_library.load_ahead()
    assert llvm_library._LOADING == []
