"""The fixture that compares with tests/golden/: it must fail when it should."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
CONFTEST = Path(__file__).parent / "conftest.py"


def test_golden_files_are_compared_and_renewed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    for text, options, passes, content in [
        ("one", [], False, None),
        ("one", ["--update-golden"], True, "one\n"),
        ("one", [], True, "one\n"),
        ("two", [], False, "one\n"),
        ("two", ["--update-golden"], True, "two\n"),
    ]:
        pytester.makepyfile(test_it=f"def test_it(golden): golden('deep/name.txt', {text!r})")
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
        result.assert_outcomes(passed=int(passes), failed=int(not passes))
        path = pytester.path / "golden" / "deep" / "name.txt"
        assert (path.read_text() if path.exists() else None) == content
