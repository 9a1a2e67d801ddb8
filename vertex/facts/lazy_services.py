"""Import Google's message types without the clients of Vertex AI's forty services.

The package google.cloud.aiplatform_v1 imports all of them, for half a second of CPU time and 45 MB
in each process, and a process uses one or two. After `install`, the package imports a submodule
when it is used, and the rest only when a name is used that is in no submodule. From Python 3.15 on,
the package does this itself.
"""

import importlib.util
import sys
from typing import Any


def install(name: str = "google.cloud.aiplatform_v1") -> None:
    """Put the package into sys.modules without running its `__init__`."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def find(attribute: str) -> Any:
        try:
            return importlib.import_module(f"{name}.{attribute}")
        except ModuleNotFoundError:
            loader.exec_module(package)
            vars(package).pop("__getattr__", None)
            return getattr(package, attribute)

    vars(package)["__getattr__"] = find
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, package)
