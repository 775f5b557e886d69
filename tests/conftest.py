"""Settings and fixtures that all tests share.

Options:
    --update-golden   rewrite tests/golden/ with what the code prints now
Environment:
    HYPOTHESIS_PROFILE=fuzz   many random examples instead of a fixed few
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"

# Before anything imports the runtime: no program of a user's cache is used, and none is left in it.
os.environ["PYOPENCL_NO_CACHE"] = "1"
_CACHE = tempfile.mkdtemp(prefix="tilewright-tests-")
os.environ["TILEWRIGHT_CACHE_DIR"] = _CACHE
for _name in ("TILEWRIGHT_TARGET", "TILEWRIGHT_CACHE", "TILEWRIGHT_CACHE_LIMIT"):
    os.environ.pop(_name, None)

_CHECKS_OFF = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=40, print_blob=True, suppress_health_check=_CHECKS_OFF
)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, max_examples=2000, print_blob=True, suppress_health_check=_CHECKS_OFF
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/ with the present output")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """What takes long is done before a worker of pytest-xdist says that it is done.

    It is interrupted (SIGINT) five seconds later, in the middle of pytest's last search for cycles among all that
    thousands of tests have made: `KeyboardInterrupt` in whatever that search calls.
    """
    shutil.rmtree(_CACHE, ignore_errors=True)
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Also where there was no session (`--help`)."""
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("name.txt", text)` compares a text with tests/golden/name.txt, or writes it with --update-golden."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"there is no {path}; run with --update-golden and read it before you commit it")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path}; if it should, use --update-golden"

    return compare


@pytest.fixture(scope="session", autouse=True)
def programs_are_compiled() -> Iterator[None]:
    """No test runs what another one has left of a program on the disk, perhaps with other limits of the compiler."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tilewright.frontend.program_stored.fingerprint", lambda: None)
        patched.setattr("tilewright.passes.tensor.compile.fingerprint", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def contractions_have_kernels_of_their_own() -> Iterator[None]:
    """No test of a form gets the kernel of any shape since other tests have compiled contractions before."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tilewright.frontend.einsum_hurried.AT_ONCE", 10**9)
        yield


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Launches use so many threads during a test (others than one and two: `parametrize(..., indirect=True)`)."""
    import tilewright as tw

    before = tw.get_num_threads()
    tw.set_num_threads(request.param)
    yield request.param
    tw.set_num_threads(before)


@pytest.fixture(scope="session")
def opencl_runtime() -> object:
    """The runtime of the first OpenCL device; skips, saying why, where there is none."""
    from tilewright.runtime.devices import DeviceError, device_for, open_device

    try:
        device = device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    return open_device(device)


@pytest.fixture(scope="session")
def cuda_runtime() -> object:
    """The runtime of the first CUDA device; skips, saying why, where there is none."""
    from tilewright.runtime.devices import DeviceError, device_for, open_device

    try:
        device = device_for("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    return open_device(device)


@pytest.fixture(scope="session")
def traced_peak() -> Callable[[str, str], int]:
    """`traced_peak(before, code)`: the most bytes that Python and NumPy hold for `code`, in a process of its own.

    In a process of many tests it also counts what threads, imports and collections of others take meanwhile.
    """

    def measure(before: str, code: str) -> int:
        lines = [
            textwrap.dedent(before), "import tracemalloc", "tracemalloc.start()", textwrap.dedent(code),
            "print(tracemalloc.get_traced_memory()[1])",
        ]  # fmt: skip
        done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    return measure
