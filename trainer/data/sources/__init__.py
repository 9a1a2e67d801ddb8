"""The registry of sources, and what the writer asks of one.

A source is read twice. `examples` lists it: a key, a digest of its content and a label for
each example. The writer then hands references back, in an order of its own and from
several processes, and `fetch` and `encode` make features of them. Modules are imported
when a source is opened, so that naming one costs nothing.
"""

import dataclasses
import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from trainer.data.record_options import SPLITS, RecordOptions
from trainer.data.schema import Feature
from trainer.data.write.records import Values
from trainer.errors import InputError
from trainer.fields import nearest

SOURCES = {
    "bigquery": "trainer.data.sources.bigquery",
    "csv": "trainer.data.sources.csv",
    "digits": "trainer.data.sources.digits",
    "images": "trainer.data.sources.images",
    "parquet": "trainer.data.sources.parquet",
    "tfds": "trainer.data.sources.tfds",
}
DIGEST_BYTES = 16

Item = TypeVar("Item")
Result = TypeVar("Result")

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


class Mapped(Protocol):
    """`map`, or what does the same with several processes: its function is pickled."""

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], /
    ) -> Iterator[Result]: ...


class Source(Protocol):
    """A readable source; picklable, so that writing processes get a copy.

    Attributes:
        name: of the data, such as "digits".
        unit: what one example is called in messages, in the plural.
        location: the URI that it reads; empty where it reads none.
        is_spilled: whether it is a TableSource, which keeps its rows on this machine.
        classes: names, in the order of label indices.
        features: of its examples; of a table known when it has been listed.
        details: what dataset.json notes of it, besides its options.
    """

    name: str
    unit: str
    location: str
    is_spilled: bool
    classes: list[str]
    features: list[Feature]
    details: dict[str, Any]

    def examples(self, mapped: Mapped = map, /) -> Iterator[Example | Rejection]:
        """Lists everything given, in an order that repeats.

        Args:
            mapped: for what can be looked at one by one, on this machine.
        """
        ...

    def fetch(self, reference: Reference) -> Any:
        """Reads an example; may be called from several threads.

        Raises RejectedError.
        """
        ...

    def digest(self, fetched: Any) -> bytes:
        """Digests what `fetch` gives, as `examples` did."""
        ...

    def encode(self, fetched: Any, key: str, variants: int) -> list[Values]:
        """Features, without label, of the example and of `variants` augmented copies.

        Their key is that of the reference, unless they have one.

        Raises RejectedError.
        """
        ...


def open_source(options: RecordOptions) -> Source:
    """Opens `options.source`.

    Raises:
        InputError: no such source, or it isn't there, or it holds nothing to train on.
    """
    scheme, rest = scheme_and_place(options.source)
    return importlib.import_module(SOURCES[scheme]).open_source(rest, options)


def scheme_and_place(source: str) -> tuple[str, str]:
    """Parts `images:URI` into what is before and behind the colon.

    Raises:
        InputError: no such source.
    """
    scheme, _, place = source.partition(":")
    if scheme not in SOURCES:
        raise InputError(
            f"source={source!r} is not a source{nearest(scheme, SOURCES)} "
            "(digits, images:URI of a folder, tfds:NAME, csv:URI, parquet:URI, or "
            "bigquery:PROJECT.DATASET.TABLE)"
        )
    return scheme, place


def digest(content: bytes) -> bytes:
    """Return a digest of an example's content: the first `DIGEST_BYTES` of its sha256."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]


def split_named(name: str) -> str:
    """Return the split that a name such as "train" or "Test_Set" stands for; empty if none."""
    split = _SPLIT_NAMES.get(_SET.sub("", name.lower()), "")
    assert not split or split in SPLITS
    return split
