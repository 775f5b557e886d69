"""What torch's compiler is told of this package: an einsum is an operator, and nothing else is looked into.

It is told when it is imported, since whoever imports this package may never use it: importing it takes a second.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_COMPILER = "torch._dynamo"


@functools.cache
def tell_torch_compiler() -> None:
    """Tell torch's compiler of this package, now or when it is imported; further calls change nothing."""
    if _COMPILER in sys.modules:
        _tell()
    else:
        sys.meta_path.insert(0, _AtImport())


class _AtImport:
    """Finds no module by itself, but sees the compiler's import, once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _COMPILER:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec  # which nothing else of a first call imports

        spec = find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                _tell()

            loader.exec_module = execute_and_tell
        return spec


def _tell() -> None:
    try:
        from tilewright.frontend.torch_operator import register_in_graphs

        register_in_graphs()
    except (AttributeError, ImportError, TypeError) as error:  # of a torch that is too old or too new
        warnings.warn(f"tilewright: torch.compile will look into this package: {error}", RuntimeWarning, stacklevel=2)
