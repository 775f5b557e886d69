"""The guides for those who come from another package: their Python runs as it stands, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("chemistry", "tensor_networks", "learning", "rewriting")


def text_of(guide: str) -> str:
    return (ROOT / "docs" / f"{guide}.md").read_text()


@pytest.mark.parametrize("guide", GUIDES)
def test_the_python_of_a_guide_for_a_trade_runs(guide: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text_of(guide), re.DOTALL)
    assert len(blocks) >= 4
    if any(re.search(r"^import torch$", one, re.MULTILINE) for one in blocks):
        pytest.importorskip("torch")
    path = tmp_path / f"{guide}.py"  # a file, so that what is traced has a source
    path.write_text("\n\n".join(blocks))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": guide})


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_for_a_trade_names_what_there_is(guide: str) -> None:
    names = set(re.findall(r"\btw\.([A-Za-z_]\w*)", text_of(guide)))
    assert names
    assert sorted(one for one in names if not hasattr(tw, one)) == []
    links = re.findall(r"\]\(([^)#]+)\)", text_of(guide))
    assert links
    assert sorted(one for one in links if not (ROOT / "docs" / one).exists()) == []
    assert f"(docs/{guide}.md)" in (ROOT / "README.md").read_text()
