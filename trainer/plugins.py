"""Find plugin classes in the files of a package, without a list of names."""

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def import_subclasses(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Return the subclass of `base` that each file of a package defines, by file name.

    Subpackages are skipped: they hold helpers of these classes.
    """
    names = [one.name for one in pkgutil.iter_modules(package.__path__) if not one.ispkg]
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    found = {name: find_subclass(module, base) for name, module in modules.items()}
    return {name: one for name, one in found.items() if one}


def find_subclass(module: ModuleType, base: type[T]) -> type[T] | None:
    """Return the last subclass of `base` that a module itself defines, or None."""
    found = None
    for one in vars(module).values():
        is_derived = isinstance(one, type) and issubclass(one, base) and one is not base
        if is_derived and one.__module__ == module.__name__:
            found = one
    return found


def list_entry_points(group: str) -> dict[str, str]:
    """Return the values of a group's entry points in installed packages, by name."""
    from importlib.metadata import entry_points  # slow: it imports the e-mail parser

    return {one.name: one.value for one in entry_points(group=group)}
