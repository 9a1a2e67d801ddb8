"""The base class of sources of images.

`examples` lists a source: a key, a digest of the content and a label for each example. The writer
then passes references, in its own order and from several processes, to `fetch` and `encode`, which
convert them to features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.data.schema import IMAGES, Feature
from trainer.data.source import Example, Mapped, Reference, Rejection, SourceKind, digest
from trainer.data.source_options import SourceOptions
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.records import Values
    from trainer.data.tables.columns import Label


class ImageSource(SourceKind):
    """Base class of sources of images; a subclass sets `name`, `classes` and perhaps `location`."""

    contents = IMAGES
    name: str  # name of the data, such as "digits"
    unit = "images"  # plural noun for examples, for messages
    location = ""  # URI that the source reads, if any
    classes: list[str]  # names of the classes, in the order of label indices
    label: Label | None = None  # the column of a table that labels are from; None: classes
    features: list[Feature]  # features of the examples
    details: ClassVar[dict[str, Any]] = {}  # entries for dataset.json in addition to the options

    def __init__(self, place: str, options: SourceOptions) -> None:
        from trainer.data.images.pixels import PixelFormat

        self._format = PixelFormat(options)
        self.features = [self._format.feature]

    @classmethod
    def check_options(cls, options: SourceOptions) -> list[str]:
        if options.label or options.split_by or options.dialect:
            raise InputError(
                "dialect, label and split_by describe a table or a labels.csv, but "
                f"source={options.source!r} has neither; use another, such as csv:URI, or leave "
                "them out"
            )
        return []

    @classmethod
    def open(cls, place: str, options: SourceOptions) -> Any:
        source = cls(place, options)
        for missing in sorted({"name", "classes", "features"} - set(dir(source))):
            raise InputError(
                f"source={options.source!r}: {cls.__name__} does not set {missing}; set name and "
                "classes, and call super().__init__(place, options) in its __init__"
            )
        return source

    @classmethod
    def find_classes(cls, place: str, options: SourceOptions) -> list[str]:
        return cls.open(place, options).classes

    def check_classes(self, source: str) -> None:
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
