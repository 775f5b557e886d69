"""Records are read as `json` reads them, whether it has been imported or not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.runtime import json_reader
from tilewright.runtime.json_reader import read_json

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def read_alone(text: bytes) -> Any:
    """What the scanner reads where `json` has not been imported."""
    with pytest.MonkeyPatch.context() as patched:
        modules = {name: one for name, one in sys.modules.items() if name != "json"}
        patched.setattr(json_reader.sys, "modules", modules)
        return read_json(text)


@given(VALUES, st.sampled_from([None, (",", ":")]), st.booleans())
def test_values_are_those_of_json(value: Any, separators: tuple[str, str] | None, ascii_only: bool) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    encoded = text.encode("utf-8", "surrogatepass")
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return
    assert repr(read_alone(encoded)) == repr(json.loads(text)) == repr(read_json(encoded))


NO_JSON = ("", "[1", "[1] ", "nothing", '{"a"}', "[1, 2]]", '{"a": 1,}', '"\x01"', "[01]", "\ufeff[1]", "'a'", "{1: 2}")


@pytest.mark.parametrize("text", NO_JSON)
@pytest.mark.parametrize("read", [read_json, read_alone])
def test_what_is_no_json_is_refused(text: str, read: Any) -> None:
    if text == "[1] " and read is read_json:
        assert read(text.encode()) == [1]
        return
    with pytest.raises(ValueError, match=r"\S"):
        read(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="decode"):
        read_json(b'["\xff"]')


def test_numbers_that_are_none() -> None:
    least, most, none = read_alone(b"[-Infinity, Infinity, NaN]")
    assert least == -math.inf and most == math.inf and math.isnan(none)


def test_json_is_not_imported_for_it() -> None:
    code = (
        "import sys\nbefore = 'json' in sys.modules\n"
        "from tilewright.runtime.json_reader import read_json\n"
        "assert read_json(b'{\"a\": [1, 2.5, null]}') == {'a': [1, 2.5, None]}\n"
        "assert ('json' in sys.modules) == before or sys.implementation.name != 'cpython'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_interpreters_without_the_scanner_read_by_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(json_reader, "import_module", missing)
    assert read_alone(b'{"a": [1]}') == {"a": [1]}
