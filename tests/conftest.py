"""Settings and fixtures that all tests share.

Options:
    --update-golden   rewrite tests/golden/ with what the code prints now
Environment:
    HYPOTHESIS_PROFILE=fuzz   many random examples instead of a fixed few
"""

from __future__ import annotations

import os
import shutil
import tempfile
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


def pytest_unconfigure() -> None:
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
