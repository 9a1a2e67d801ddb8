"""A digest of the code that a component runs, on which the outputs of a step in the cache depend.

After an edit of the trainer, records are written again only if the step that writes them uses the
edited code.
"""

import ast
import hashlib
import pathlib
from collections.abc import Sequence

from components.planning.code_digest import PACKAGES, ROOTS
from pipelines.local_programs import component_file

_ROOT = ROOTS[0]


def digest_code_of(command: Sequence[str]) -> str:
    """Return a digest of the modules of this repository that a component imports, even indirectly.

    The digest covers the lock file of packages, since other versions may write other records. On
    Vertex AI the image determines both. A command names the component's function, or contains the
    source of a user's own component.
    """
    sources: dict[pathlib.Path, str] = {}
    pending = [name for word in command for name in _find_imports(word)]
    if file := component_file(command):
        pending.append(f"components.{file.stem}")
    while pending:
        for path in _find_modules(pending.pop()):
            if path not in sources:
                sources[path] = path.read_text(encoding="utf-8")
                imported = _find_imports(sources[path])
                pending += imported
                # A package of plugins imports its modules by name at run time.
                if "trainer.plugins" in imported and path.name == "__init__.py":
                    package = path.parent.relative_to(_ROOT).parts
                    modules = path.parent.glob("*.py")
                    pending += [".".join([*package, module.stem]) for module in modules]
    digest = hashlib.sha256()
    lock = _ROOT / "requirements.lock"
    if lock.is_file():
        digest.update(lock.read_bytes())
    for path in sorted(sources):
        digest.update(f"{path.relative_to(_ROOT)}\0{sources[path]}\0".encode())
    return digest.hexdigest()


def _find_imports(source: str) -> list[str]:
    """Return the dotted names that Python source imports; [] if it can't be parsed."""
    if "import" not in source:
        return []
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return []
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.partition(".")[0] in PACKAGES]


def _find_modules(name: str) -> list[pathlib.Path]:
    """Return the files that importing `name` runs: its own and its packages' __init__.py."""
    parts = name.split(".")
    found = []
    for root in ROOTS:
        folders = [root.joinpath(*parts[: n + 1]) for n in range(len(parts))]
        found += [folder / "__init__.py" for folder in folders] + [folders[-1].with_suffix(".py")]
    return [file for file in found if file.is_file()]
