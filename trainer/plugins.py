"""Find plugins: classes in the files of a package, and what users name as MODULE:NAME."""

import importlib
import importlib.util
import pkgutil
import re
from types import ModuleType
from typing import TypeVar

from vertex.errors import InputError

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_RESERVED = ("components", "pipelines", "trainer")


def import_subclasses(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Return the subclass of `base` that each file of a package defines, by file name.

    Subpackages are skipped: they contain helpers of these classes.
    """
    infos = pkgutil.iter_modules(package.__path__)
    names = [info.name for info in infos if not info.ispkg]
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    classes = {name: find_subclass(module, base) for name, module in modules.items()}
    return {name: cls for name, cls in classes.items() if cls}


def find_subclass(module: ModuleType, base: type[T]) -> type[T] | None:
    """Return the last subclass of `base` that a module itself defines, or None."""
    last = None
    for member in vars(module).values():
        is_derived = isinstance(member, type) and issubclass(member, base) and member is not base
        if is_derived and member.__module__ == module.__name__:
            last = member
    return last


def list_entry_points(group: str) -> dict[str, str]:
    """Return the values of a group's entry points in installed packages, by name."""
    from importlib.metadata import entry_points  # slow: it imports the e-mail parser

    return {entry.name: entry.value for entry in entry_points(group=group)}


def find_module_file(what: str, name: str) -> str:
    """Return the file of the module in `name`, MODULE:NAME; `what` is the option's name.

    Raise InputError for another form, or if there is no such module.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{what}={name!r} is not MODULE:NAME, such as 'my.module:build'")
    module = name.partition(":")[0]
    if module.partition(".")[0] in _RESERVED:
        raise InputError(
            f"{what}={name!r}: {', '.join(_RESERVED)} are packages of this project, which hide "
            "yours; rename your module"
        )
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        spec = None
    if not spec or not spec.origin or not spec.origin.endswith(".py"):
        raise InputError(
            f"{what}={name!r}: there is no module {module}; put it into the working folder or "
            "install it, and copy it to /app in the image"
        )
    return spec.origin
