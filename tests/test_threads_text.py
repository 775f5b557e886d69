"""docs/threads.md: its Python runs, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.machine.processors import CPU_VARIABLE, NAMED_PROCESSORS
from tilewright.runtime.thread_count import OPENMP_VARIABLE, THREADS_VARIABLE

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "threads.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_its_python_runs(number: int) -> None:
    if "threadpoolctl" in BLOCKS[number]:
        pytest.importorskip("threadpoolctl")
    exec(compile(BLOCKS[number], "docs/threads.md", "exec"), {})


def test_it_names_what_there_is() -> None:
    assert len(BLOCKS) == 2
    for name in set(re.findall(r"tw\.(\w+)", TEXT)):
        assert hasattr(tw, name), name
    for variable in (CPU_VARIABLE, THREADS_VARIABLE, OPENMP_VARIABLE):
        assert f"`{variable}`" in TEXT
    for name, processor in NAMED_PROCESSORS.items():
        assert processor.is_arm or f"`{name}`" in TEXT, name
