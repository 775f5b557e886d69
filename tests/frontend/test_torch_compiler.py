"""What is said to torch's compiler when it is imported, with a stand-in for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import tilewright as tw
names = len(sys.meta_path)
tw.einsum
assert "torch" not in sys.modules and len(sys.meta_path) == names + 1
tw.reduce
assert len(sys.meta_path) == names + 1
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch._dynamo
assert torch._dynamo.here and len(sys.meta_path) == names
print(caught[0].message)
"""


def test_a_compiler_that_cannot_be_told_is_imported_with_a_warning(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    (package / "_dynamo").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_dynamo" / "__init__.py").write_text("here = True\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SCRIPT}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("tilewright: torch.compile will look into this package"), ran.stderr
