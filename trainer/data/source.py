"""The base class of sources, their examples, and the rejections of unusable ones.

`SourceKind` is what is known of a source before it is opened. Sources of images derive from
`images.image_source.ImageSource`, tables from `tables.table_source.TableKind`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from trainer.data.source_options import SourceOptions
from vertex.errors import InputError

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


class Reference(NamedTuple):
    """The location of an example: its key, and a position that only its source interprets."""

    key: str
    position: int


AnyLabel = int | str | float | list[str]
"""The index of a class in the source's classes or, if a table has the labels, a class, a number or
several names."""


class Example(NamedTuple):
    """A listed example."""

    reference: Reference
    label: AnyLabel
    digest: bytes  # digest of its content, `DIGEST_BYTES` long
    split: str  # one of SPLITS if the source has its own splits, else empty


class BilledBytes(NamedTuple):
    """The bytes that a run is billed for reading its source."""

    size: int
    rate: str  # the name of their price per TiB in the price table


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


class SourceKind:
    """Base class of sources: what is known about a source before it is opened.

    A subclass is in a file of trainer/data/sources, and the file's name precedes the colon.
    Libraries are imported in functions, not at the top of the file, so that naming a source is
    cheap.
    """

    contents: ClassVar[str]
    """Content of its examples: one of `schema.CONTENTS`."""

    place: ClassVar[str] = ""
    """The name, in messages, of what follows the colon; empty if nothing follows. If it is URI, the
    source is read from files: the URI is made absolute, checked before a run on this machine, and
    fingerprinted."""
    help: ClassVar[str] = ""
    own_options: ClassVar[tuple[str, ...]] = ()
    """Options that it reads and most sources do not: data_dir, query_gigabytes."""
    billed: ClassVar[str] = ""
    """Says what is billed beside the machine that reads the source; empty if nothing is."""
    endings: ClassVar[tuple[str, ...]] = ()
    """Endings of the names of a table's files; a pattern may match other names."""

    @classmethod
    def takes(cls, place: str) -> bool:
        """Return whether `place` has the right form."""
        return bool(place) == bool(cls.place)

    @classmethod
    def check_options(cls, options: SourceOptions) -> list[str]:
        """Return the classes that options name, if any; raise InputError for unfitting options."""
        return []

    @classmethod
    def open(cls, place: str, options: SourceOptions) -> Any:
        """Open the source; raise InputError if it does not exist or has nothing to train on."""
        raise NotImplementedError

    @classmethod
    def find_classes(cls, place: str, options: SourceOptions) -> list[str]:
        """Return the classes if that is quick; raise InputError if the source can't be used."""
        return []

    @classmethod
    def check_cloud(cls, place: str, data_dir: str) -> None:
        """Raise InputError if machines in the cloud could not read the source."""

    @classmethod
    def list_needs(cls, place: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return the APIs that a project needs to read the source on Google Cloud, and the roles.

        A role that the account of runs needs comes with a permission in it.
        """
        return (), ()

    @classmethod
    def measure(
        cls, place: str, options: SourceOptions, project: str, call: Callable[..., Any]
    ) -> BilledBytes:
        """Return what a run in a project is billed for reading a source that is `billed`.

        `call` sends a request to a Google API: service, HTTP method, path and body. Raises
        InputError if that is unknown, or the run could not read the source.
        """
        raise InputError(f"{cls.__name__} defines no measure(), which returns the billed bytes")

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        """Return a text and a folder or file (URI), which together change if the content does."""
        return "", cls.uri(place)

    @classmethod
    def uri(cls, place: str) -> str:
        """Return the URI of the files; empty if `place` is not a URI."""
        return place if cls.place == "URI" else ""


def parse_split_name(name: str) -> str:
    """Return the split for a name such as "train" or "Test_Set"; empty if it names no split."""
    return _SPLIT_NAMES.get(_SET.sub("", name.lower()), "")


def digest(content: bytes) -> bytes:
    """Return a digest of an example's content: the first `DIGEST_BYTES` of its sha256."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]
