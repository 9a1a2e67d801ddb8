"""Find plugin classes in the files of a package, so that they need not be listed."""

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


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
