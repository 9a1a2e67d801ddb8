"""The registry of sources: each file of this folder declares one, under the file's name.

A user's own module is also a source (MODULE:PLACE), and so is the name of an entry point in the
group vertex_training.sources, whose value is a module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys

from trainer import plugins
from trainer.data.images.image_source import ImageSource
from trainer.data.source import Example, Reference, Rejection, SourceKind, digest
from vertex.errors import InputError, first_line
from vertex.formats import suggest

__all__ = ["Example", "ImageSource", "Reference", "Rejection", "SourceKind", "digest"]

ENTRY_POINTS = "vertex_training.sources"
"""Group of the entry points with which installed packages declare sources."""
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@functools.cache
def kinds() -> dict[str, type[SourceKind]]:
    """Return the sources in this folder by name."""
    return plugins.import_subclasses(sys.modules[__name__], SourceKind)


def parse_source(source: str) -> tuple[type[SourceKind], str]:
    """Split a source such as `images:URI` into its kind and its place.

    Raise InputError for a source that is unknown or can't be imported, and for a place in the
    wrong form.
    """
    name, _, place = source.partition(":")
    kind = kinds().get(name) or _import_source(source)
    if not kind:
        forms = ", ".join(_form_of(name, kind) for name, kind in kinds().items())
        hint = suggest(name, kinds(), f"; use one of {forms}")
        if (reader := _kind_of_file(source)) and not source.startswith("http"):
            hint = f"; did you mean '{reader}:{source}'?"
        raise InputError(f"source={source!r} is not a source{hint}")
    if not kind.takes(place):
        raise InputError(f"source={source!r} is malformed; use {_form_of(name, kind)}, {kind.help}")
    return kind, place


def list_forms(contents: str) -> str:
    """Return the forms of the sources with these contents: `csv:URI or parquet:URI`."""
    fitting = [(name, kind) for name, kind in kinds().items() if kind.contents == contents]
    return " or ".join(_form_of(name, kind) for name, kind in fitting)


def describe_sources() -> str:
    return "; ".join(f"{_form_of(name, kind)} ({kind.help})" for name, kind in kinds().items())


def _form_of(name: str, kind: type[SourceKind]) -> str:
    return f"{name}:{kind.place}" if kind.place else name


def _kind_of_file(source: str) -> str:
    """Return the kind of source that reads a file of this name; empty if none does."""
    endings = {name: kind.endings for name, kind in kinds().items() if kind.endings}
    return next((name for name in endings if source.lower().endswith(endings[name])), "")


def _names_module(source: str) -> bool:
    """Return whether `source` begins with a module's name: it may also be a path, or misspelled."""
    name, colon, _ = source.partition(":")
    if not _MODULE.fullmatch(name) or (not colon and _kind_of_file(source)):
        return False
    if "." in name:
        return True
    spec = importlib.util.find_spec(name) if colon else None
    # A package is the folder of photos whose kind is missing, or a library such as json.
    return spec is not None and spec.submodule_search_locations is None


def _import_source(source: str) -> type[SourceKind] | None:
    """Return the source that a user's module declares; None if `source` names no module."""
    name = source.partition(":")[0]
    module = plugins.list_entry_points(ENTRY_POINTS).get(
        name, name if _names_module(source) else ""
    )
    if not module:
        return None
    try:
        kind = plugins.find_subclass(importlib.import_module(module), SourceKind)
    except (Exception, SystemExit) as error:  # The user's code may raise anything.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(
            f"source={name!r}: module {module} can't be imported: {reason}; it must be installed "
            "or in the working folder, and in the image it must be copied to /app"
        ) from None
    if not kind:
        raise InputError(
            f"source={name!r}: module {module} defines no subclass of ImageSource or TableKind"
        )
    return kind
