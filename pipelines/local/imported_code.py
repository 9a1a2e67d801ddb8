"""A digest of the code that a component runs, on which the outputs of a step in the cache depend.

After an edit of the trainer, records are written again only if the step that writes them uses the
edited code.
"""

import contextlib
import hashlib
import pathlib
from collections.abc import Sequence
from modulefinder import ModuleFinder
from typing import Any

from components.planning.code_digest import PACKAGES, ROOT
from pipelines.local_programs import component_file


class _ProjectFinder(ModuleFinder):
    """Find the modules that code imports, even indirectly, of this project alone."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Find a module; raise ImportError for one of another project."""
        if path is None and name not in PACKAGES:
            raise ImportError(name)
        return super().find_module(name, path, parent)


def digest_code_of(command: Sequence[str]) -> str:
    """Return a digest of the modules of this repository that a component imports, even indirectly.

    The digest covers the lock file of packages, since other versions may write other records. On
    Vertex AI the image determines both. A command names the component's function, or contains the
    source of a user's own component.
    """
    finder = _ProjectFinder(path=[str(ROOT)])
    for word in command:
        if "import" in word:
            with contextlib.suppress(SyntaxError):
                code = compile(word, "<component>", "exec")
                finder.scan_code(code, finder.add_module("__main__"))
    if file := component_file(command):
        finder.import_hook(f"components.{file.stem}")
    modules: dict[str, Any] = finder.modules
    seen: set[str] = set()
    while packages := {name for name, module in modules.items() if module.__path__} - seen:
        seen |= packages
        for name in packages:
            # A package of plugins imports its modules by name at run time.
            if "plugins" in pathlib.Path(modules[name].__file__).read_text("utf-8"):
                finder.import_hook(name, fromlist=["*"])
    files = {pathlib.Path(module.__file__) for module in modules.values() if module.__file__}
    lock = ROOT / "requirements.lock"
    digest = hashlib.sha256(lock.read_bytes() if lock.is_file() else b"")
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
