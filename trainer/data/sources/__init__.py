"""The registry of sources: each file of this folder declares one, under the file's name.

A user's own module is also a source (MODULE:PLACE), and so is the name of an entry point in the
group vertex_training.sources, whose value is a module.

`examples` lists a source: a key, a digest of the content and a label for each example. The writer
then passes references, in its own order and from several processes, to `fetch` and `encode`, which
convert them to features.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from trainer import plugins
from trainer.errors import InputError, first_line
from trainer.fields import suggest

if TYPE_CHECKING:
    from trainer.data.records import Values
    from trainer.data.schema import Feature
    from trainer.data.write.open_table import Table
    from trainer.data.write.record_options import RecordOptions

ENTRY_POINTS = "vertex_training.sources"
"""Group of the entry points with which installed packages declare sources."""
DIGEST_BYTES = 16
_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
_SET = re.compile(r"[ _-]?(set|data)$")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Reference(NamedTuple):
    """The location of an example: its key, and a position that only its source interprets."""

    key: str
    position: int


class Example(NamedTuple):
    """A listed example."""

    reference: Reference
    label: int  # index of its class in the source's classes
    digest: bytes  # digest of its content, `DIGEST_BYTES` long
    split: str  # one of SPLITS if the source has its own splits, else empty


@dataclasses.dataclass(frozen=True)
class Rejection:
    """An item of a source that can't be used."""

    key: str  # where it came from
    reason: str  # why it can't be used, without the key
    # True if it does not count against `max_rejected_fraction`: duplicates and stray files say
    # nothing about the quality of the data.
    tolerated: bool = False


Mapped = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""`map`, or its equivalent in several processes, which pickles the function."""


Source: TypeAlias = "ImageSource | Table"
"""An open source. It must be picklable: each writing process gets a copy."""


class SourceKind:
    """Base class of sources: what is known about a source before it is opened.

    A subclass is in a file of this folder, and the file's name precedes the colon. Libraries are
    imported in functions, not at the top of the file, so that naming a source is cheap.
    """

    place: ClassVar[str] = ""
    """The name, in messages, of what follows the colon; empty if nothing follows. If it is URI, the
    source is read from files: the URI is made absolute, checked before a run on this machine, and
    fingerprinted."""
    help: ClassVar[str] = ""
    is_table: ClassVar[bool] = False
    endings: ClassVar[tuple[str, ...]] = ()
    """Endings of the names of a table's files; a pattern may match other names."""

    @classmethod
    def takes(cls, place: str) -> bool:
        """Return whether `place` has the right form."""
        return bool(place) == bool(cls.place)

    @classmethod
    def open(cls, place: str, options: RecordOptions) -> Source:
        """Open the source; raise InputError if it does not exist or has nothing to train on."""
        raise NotImplementedError

    @classmethod
    def find_classes(cls, place: str, options: RecordOptions) -> list[str]:
        """Return the classes if that is quick; raise InputError if the source can't be used."""
        return []

    @classmethod
    def check_cloud(cls, place: str, data_dir: str) -> None:
        """Raise InputError if machines in the cloud could not read the source."""

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        """Return a text and a folder or file (URI), which together change if the content does."""
        return "", cls.uri(place)

    @classmethod
    def uri(cls, place: str) -> str:
        """Return the URI of the files; empty if `place` is not a URI."""
        return place if cls.place == "URI" else ""


class ImageSource(SourceKind):
    """Base class of sources of images; a subclass sets `name`, `classes` and perhaps `location`."""

    name: str  # name of the data, such as "digits"
    unit = "images"  # plural noun for examples, for messages
    location = ""  # URI that the source reads, if any
    classes: list[str]  # names of the classes, in the order of label indices
    features: list[Feature]  # features of the examples; known after a table has been listed
    details: ClassVar[dict[str, Any]] = {}  # entries for dataset.json in addition to the options

    def __init__(self, place: str, options: RecordOptions) -> None:
        from trainer.data.images.pixels import PixelFormat

        self._format = PixelFormat(options)
        self.features = [self._format.feature]

    @classmethod
    def open(cls, place: str, options: RecordOptions) -> Any:
        source = cls(place, options)
        for missing in sorted({"name", "classes", "features"} - set(dir(source))):
            raise InputError(
                f"source={options.source!r}: {cls.__name__} does not set {missing}; set name and "
                "classes, and call super().__init__(place, options) in its __init__"
            )
        return source

    @classmethod
    def find_classes(cls, place: str, options: RecordOptions) -> list[str]:
        return cls.open(place, options).classes

    def _check_classes(self, source: str) -> None:
        """Raise InputError unless there are two or more classes, all with different names."""
        names = [name for name in self.classes if isinstance(name, str)]
        if len(set(names)) < len(self.classes):
            raise InputError(
                f"source={source!r}: its classes, {self.classes}, are not texts that all differ"
            )
        if len(self.classes) < 2:
            found = f"only one class, {self.classes[0]!r}" if self.classes else "no classes"
            raise InputError(
                f"source={source!r} has {found}; a classifier needs two or more (in a folder of "
                "images, one folder per class)"
            )

    def examples(self, mapped: Mapped = map, /) -> Iterator[Example | Rejection]:
        """List all examples and rejections of the source, always in the same order.

        Raise InputError if it can't be read, or a class has no examples.

        Args:
            mapped: applies a function to items one by one, perhaps in other processes or on other
                machines; yield what it returns unchanged.
        """
        raise NotImplementedError

    def fetch(self, reference: Reference) -> Any:
        """Read an example, usually an image file; may be called from several threads.

        Raise RejectedError if the example can't be used, OSError if it can no longer be read.
        """
        raise NotImplementedError

    def digest(self, fetched: Any) -> bytes:
        """Return the digest of what `fetch` returned, computed as in `examples`."""
        return digest(fetched)

    def encode(self, fetched: Any, key: str, variants: int) -> list[Values]:
        """Return the features, without label, of an example and of `variants` augmented copies.

        Features without a key get the reference's key. Raise RejectedError for an unusable example.
        """
        return self._format.encode_file(fetched, key, variants)


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
        if reader := _kind_of_file(source):
            hint = f"; did you mean '{reader}:{source}'?"
        raise InputError(f"source={source!r} is not a source{hint}")
    if not kind.takes(place):
        raise InputError(f"source={source!r} is malformed; use {_form_of(name, kind)}, {kind.help}")
    return kind, place


def table_forms() -> str:
    """Return the forms of sources that are tables: `csv:URI or parquet:URI`."""
    return " or ".join(_form_of(name, kind) for name, kind in kinds().items() if kind.is_table)


def describe_sources() -> str:
    """Return the help text for all sources."""
    return "; ".join(f"{_form_of(name, kind)} ({kind.help})" for name, kind in kinds().items())


def _form_of(name: str, kind: type[SourceKind]) -> str:
    return f"{name}:{kind.place}" if kind.place else name


def open_source(options: RecordOptions) -> Source:
    """Open `options.source`; raise InputError as `parse_source` and `SourceKind.open` do."""
    kind, place = parse_source(options.source)
    source = kind.open(place, options)
    if isinstance(source, ImageSource):
        source._check_classes(options.source)
    return source


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
    except Exception as error:  # The user's code may raise anything.
        reason = first_line(error) or type(error).__name__
        raise InputError(
            f"source={name!r}: module {module} can't be imported: {reason}; it must be installed "
            "or in the working folder, and in the image it must be copied to /app"
        ) from None
    if not kind:
        raise InputError(
            f"source={name!r}: module {module} defines no subclass of ImageSource or TableKind"
        )
    return kind


def parse_split_name(name: str) -> str:
    """Return the split for a name such as "train" or "Test_Set"; empty if it names no split."""
    return _SPLIT_NAMES.get(_SET.sub("", name.lower()), "")


def digest(content: bytes) -> bytes:
    """Return a digest of an example's content: the first `DIGEST_BYTES` of its sha256."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
