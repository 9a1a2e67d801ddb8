"""The registry of sources: each file of this folder declares one, named as the file is.

Beside these, a module of the user's own is one (MODULE:PLACE), and so is the name of an entry
point of the group vertex_training.sources, whose value is a module.

`examples` lists a source: a key, a digest of its content and a label for each example. The
writer then hands references back, in an order of its own and from several processes, and `fetch`
and `encode` make features of them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from trainer import plugins
from trainer.errors import InputError, first_line
from trainer.fields import nearest

if TYPE_CHECKING:
    from trainer.data.record_options import RecordOptions
    from trainer.data.schema import Feature
    from trainer.data.write.records import Values

ENTRY_POINTS = "vertex_training.sources"
"""Group by which installed packages name sources."""
DIGEST_BYTES = 16


class Reference(NamedTuple):
    """The place of an example: its key, and a position that only its source understands."""

    key: str
    position: int


class Example(NamedTuple):
    """A listed example.

    Attributes:
        reference: where it lies.
        label: index into the source's classes.
        digest: of its content, `DIGEST_BYTES` long; equal content, equal digest.
        split: one of SPLITS where the source has splits of its own, else empty.
    """

    reference: Reference
    label: int
    digest: bytes
    split: str


@dataclasses.dataclass(frozen=True)
class Rejection:
    """Something given that can't be used.

    Attributes:
        key: where it came from.
        reason: why, without the key.
        tolerated: whether it leaves `max_rejected_fraction` alone: duplicates and stray
            files say nothing about the quality of the data.
    """

    key: str
    reason: str
    tolerated: bool = False


Mapped = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""`map`, or what does the same with several processes: its function is pickled."""


class Source(Protocol):
    """An open source, of images (`ImageSource`) or a table (`trainer.data.tables.table.Table`).

    Picklable, so that writing processes get a copy.

    Attributes:
        name: of the data, such as "digits".
        unit: what one example is called in messages, in the plural.
        location: the URI that it reads; empty where it reads none.
        classes: names, in the order of label indices.
        features: of its examples; of a table known when it has been listed.
        details: what dataset.json notes of it, besides its options.
    """

    name: str
    unit: str
    location: str
    is_table: bool
    classes: list[str]
    features: list[Feature]
    details: dict[str, Any]


class SourceKind:
    """Base of sources: what is known of one before it is opened.

    A subclass lies in a file of this folder, whose name stands before the colon. The file's
    functions import libraries, not the file itself: to name a source costs nothing.
    """

    place: ClassVar[str] = ""
    """What follows the colon, for messages; empty: nothing does. URI is the place of files: it is
    made absolute, looked at before a run on this machine, and fingerprinted."""
    help: ClassVar[str] = ""
    is_table: ClassVar[bool] = False
    endings: ClassVar[tuple[str, ...]] = ()
    """Endings of the files of a table, which may also be named by a pattern."""

    @classmethod
    def takes(cls, place: str) -> bool:
        """Tell if `place` has the right form."""
        return bool(place) == bool(cls.place)

    @classmethod
    def open(cls, place: str, options: RecordOptions) -> Source:
        """Open what is at `place`.

        Raises:
            InputError: it isn't there, or it holds nothing to train on.
        """
        raise NotImplementedError

    @classmethod
    def look(cls, place: str, options: RecordOptions) -> list[str]:
        """Return the classes, if a quick look tells them; raise InputError for what is unfit."""
        return []

    @classmethod
    def check_cloud(cls, place: str, data_dir: str) -> None:
        """Raise InputError where machines of the cloud could not read it."""

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        """Return text that changes with the content, and the folder or file (URI) that does."""
        return "", cls.uri(place)

    @classmethod
    def uri(cls, place: str) -> str:
        """Return the URI of the files; empty: none is named."""
        return place if cls.place == "URI" else ""


class ImageSource(SourceKind):
    """Base of sources of images.

    A subclass sets `name` and `classes`, and `location` where it reads a URI.
    """

    name: str
    unit = "images"
    location = ""
    classes: list[str]
    details: ClassVar[dict[str, Any]] = {}

    def __init__(self, place: str, options: RecordOptions) -> None:
        from trainer.data.write.pixels import PixelFormat

        self._format = PixelFormat.of(options)
        self.features = [self._format.feature]

    @classmethod
    def open(cls, place: str, options: RecordOptions) -> Any:
        return cls(place, options)

    @classmethod
    def look(cls, place: str, options: RecordOptions) -> list[str]:
        return cls.open(place, options).classes

    def _check_classes(self, source: str) -> None:
        """Refuse fewer classes than two."""
        if len(self.classes) < 2:
            found = f"only one class, {self.classes[0]!r}" if self.classes else "no classes"
            raise InputError(
                f"source={source!r} has {found}; a classifier needs two or more, as folders in one "
                "of images"
            )

    def examples(self, mapped: Mapped = map, /) -> Iterator[Example | Rejection]:
        """Lists everything given, in an order that repeats.

        Args:
            mapped: for what can be looked at one by one, in other processes or on other
                machines; what it returns is to be yielded as it is.
        """
        raise NotImplementedError

    def fetch(self, reference: Reference) -> Any:
        """Reads an example, mostly an image file; may be called from several threads.

        Raises RejectedError.
        """
        raise NotImplementedError

    def digest(self, fetched: Any) -> bytes:
        """Digests what `fetch` gives, as `examples` did."""
        return digest(fetched)

    def encode(self, fetched: Any, key: str, variants: int) -> list[Values]:
        """Features, without label, of the example and of `variants` augmented copies.

        Their key is that of the reference, unless they have one. Raises RejectedError.
        """
        return self._format.read(fetched, key, variants)


@functools.cache
def kinds() -> dict[str, type[SourceKind]]:
    """Return by name the sources of this folder."""
    return plugins.declared(sys.modules[__name__], SourceKind)


def kind_of(source: str) -> tuple[type[SourceKind], str]:
    """Part `images:URI` into the kind of source that it names and what is behind the colon.

    Raises:
        InputError: no such source.
    """
    name, _, place = source.partition(":")
    kind = kinds().get(name) or _own(name)
    if not kind:
        raise InputError(f"source={source!r} is not a source{nearest(name, kinds())}")
    if not kind.takes(place):
        raise InputError(f"source={source!r} does not fit; use {_form(name, kind)}, {kind.help}")
    return kind, place


def table_forms() -> str:
    """Return how a table is named as a source: `csv:URI or parquet:URI`."""
    return " or ".join(_form(name, kind) for name, kind in kinds().items() if kind.is_table)


def described() -> str:
    """Return the help on all sources."""
    return "; ".join(f"{_form(name, kind)} ({kind.help})" for name, kind in kinds().items())


def _form(name: str, kind: type[SourceKind]) -> str:
    return f"{name}:{kind.place}" if kind.place else name


def open_source(options: RecordOptions) -> Source:
    """Open `options.source`; raises as `kind_of` and `SourceKind.open`."""
    kind, place = kind_of(options.source)
    return kind.open(place, options)


def _own(name: str) -> type[SourceKind] | None:
    """Return the source that a module of the user's own declares."""
    module = plugins.installed(ENTRY_POINTS).get(name, name if "." in name else "")
    if not module:
        return None
    try:
        found = plugins.defined(importlib.import_module(module), SourceKind)
    except Exception as error:  # Any that the user's code raises.
        reason = first_line(error) or type(error).__name__
        raise InputError(
            f"source={name!r}: module {module} can't be imported: {reason}; it must lie in the "
            "working folder or be installed, and in the image be copied to /app"
        ) from None
    if not found:
        raise InputError(
            f"source={name!r}: module {module} defines no source: derive a class from ImageSource "
            "or TableKind"
        )
    return found


def digest(content: bytes) -> bytes:
    """Return a digest of an example's content: the first `DIGEST_BYTES` of its sha256."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
