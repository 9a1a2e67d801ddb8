"""Import Google's message types without the clients of Vertex AI's forty services.

The package google.cloud.aiplatform_v1 imports all of them, for over a second, and a process uses
one or two. After `install`, the package imports a submodule when it is used, and the rest only
when a name is used that is in no submodule.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PACKAGE = "google.cloud.aiplatform_v1"


def install() -> None:
    """Change later imports of the package in this process."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _PACKAGE else None
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Load the package without running its `__init__`, until that is needed."""

    def __init__(self, whole: Loader) -> None:
        self._whole = whole

    def exec_module(self, module: ModuleType) -> None:
        def find(name: str) -> Any:
            try:
                return importlib.import_module(f"{_PACKAGE}.{name}")
            except ModuleNotFoundError:
                self._whole.exec_module(module)
                vars(module).pop("__getattr__", None)
                return getattr(module, name)

        vars(module)["__getattr__"] = find
