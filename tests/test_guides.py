"""The guides in docs/: their Python runs as it stands there, block after block, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("programs", "contractions")


def text_of(guide: str) -> str:
    return (ROOT / "docs" / f"{guide}.md").read_text()


@pytest.mark.parametrize("guide", GUIDES)
def test_the_python_of_a_guide_runs(guide: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text_of(guide), re.DOTALL)
    assert len(blocks) >= 5
    path = tmp_path / f"{guide}.py"  # a file, so that what is traced has a source
    path.write_text("\n\n".join(blocks))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": guide})


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_names_what_there_is(guide: str) -> None:
    names = set(re.findall(r"\btw\.([A-Za-z_]\w*)", text_of(guide)))
    assert len(names) >= 8
    assert sorted(one for one in names if not hasattr(tw, one)) == []
    for link in re.findall(r"\]\(([^)#]+)\)", text_of(guide)):
        assert (ROOT / "docs" / link).exists(), link
    for example in re.findall(r"`(examples/[^`]+)`", text_of(guide)):
        assert (ROOT / example).exists(), example


def test_the_glossary_names_what_there_is() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py|\.md)?)`", text_of("glossary")))
    assert len(named) > 30
    missing = [one for one in named if not any((place / one).exists() for place in (ROOT, ROOT / "src" / "tilewright"))]
    assert sorted(missing) == []


def test_every_variable_of_the_environment_is_in_its_table() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r"\bTILEWRIGHT_[A-Z_]+\b", text_of("environment"))) == set(
        re.findall(r"\bTILEWRIGHT_[A-Z_]+\b", sources)
    )
