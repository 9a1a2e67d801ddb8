"""tfds:NAME: an image data set that TensorFlow Datasets has prepared.

Its files are read as they lie: TFRecord files of tf.train.Example whose image feature
holds an encoded image. So an example can be read by its place in a file, in any order and
by any process, and neither TensorFlow nor the network is needed. Nothing is ever
downloaded: a data set that isn't prepared is said to be missing, at once.
"""

import difflib
from collections.abc import Iterator
from typing import Any, ClassVar

from trainer.data import storage
from trainer.data.record_options import RecordOptions
from trainer.data.sources import Example, Mapped, Reference, Rejection, digest, split_named
from trainer.data.write import records
from trainer.data.write.pixels import PixelFormat
from trainer.data.write.records import Values
from trainer.errors import InputError

FILE_BITS = 40
"""A position is a file's index and, in its low bits, an offset of under 1 TB."""


class PreparedDataset:
    """A prepared data set's images, and labels that are classes.

    Raises:
        InputError: it is not prepared under data_dir, or is not made of images and labels.
    """

    unit = "images"
    is_spilled = False
    details: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, options: RecordOptions) -> None:
        info = load_info(name, options)
        self.name = info.full_name
        self.location = str(info.data_dir)
        self._image, self._label = _feature_names(info, options.source)
        self.classes = list(info.features[self._label].names)
        if len(self.classes) < 2:
            raise InputError(
                f"source={options.source!r} has only one class, {self.classes[0]!r}; "
                "a classifier needs two or more"
            )
        self._files = [
            (str(path), split_named(split.name))
            for split in sorted(info.splits.values(), key=lambda split: split.name)
            for path in split.filepaths
        ]
        self._format = PixelFormat.of(options)
        self.features = [self._format.feature]

    def examples(self, _: Mapped = map, /) -> Iterator[Example | Rejection]:
        """Reads every file once; keys are TensorFlow Datasets' own ids, `<file>__<index>`."""
        for index, (path, split) in enumerate(self._files):
            stem = path.rpartition("/")[2]
            try:
                with storage.open_file(path, "rb") as file:
                    for number, (offset, record) in enumerate(records.read_records(file)):
                        key = f"{stem}__{number}"
                        yield self._listed(key, index << FILE_BITS | offset, split, record)
            except records.DamagedFileError:
                raise InputError(
                    f"{path} is damaged or cut off; prepare the data set again"
                ) from None
            except FileNotFoundError:
                raise InputError(f"{path} is missing; prepare the data set again") from None

    def fetch(self, reference: Reference) -> bytes:
        """Return the encoded image."""
        path, _ = self._files[reference.position >> FILE_BITS]
        with storage.open_file(path, "rb") as file:
            file.seek(reference.position & (1 << FILE_BITS) - 1)
            record = records.read_record(file)
        assert record is not None
        return records.parse(record)[self._image][0]

    def digest(self, fetched: bytes) -> bytes:
        return digest(fetched)

    def encode(self, fetched: bytes, key: str, variants: int) -> list[Values]:
        return self._format.read(fetched, key, variants)

    def _listed(self, key: str, position: int, split: str, record: bytes) -> Example | Rejection:
        if not split:
            return Rejection(key, "in a split that is neither train, validation nor test", True)
        example = records.parse(record)
        image, label = example.get(self._image), example.get(self._label)
        if not image:
            return Rejection(key, f"has no {self._image!r}")
        if not label or not 0 <= label[0] < len(self.classes):
            return Rejection(key, "has no label")
        return Example(Reference(key, position), label[0], digest(image[0]), split)


def open_source(rest: str, options: RecordOptions) -> PreparedDataset:
    if not rest:
        raise InputError("source='tfds:' names no data set; use tfds:NAME, such as tfds:mnist")
    return PreparedDataset(rest, options)


def load_info(name: str, options: RecordOptions) -> Any:
    """Return the DatasetInfo of a prepared data set, from its files alone.

    Raises:
        InputError: it is not prepared under data_dir, or not as TFRecord files.
    """
    from tensorflow_datasets.core import registered
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    places = {"data_dir": options.data_dir} if options.data_dir else {}
    try:
        info = builder_from_files(name, **places).info
    # A malformed name or broken files raise whatever they like; the remedy is the same.
    except (registered.DatasetNotFoundError, ValueError, OSError, AssertionError, KeyError):
        raise InputError(_not_prepared(name, options)) from None
    if info.file_format is not None and info.file_format.value != "tfrecord":
        raise InputError(
            f"source={options.source!r} is stored as {info.file_format.value}; "
            "prepare it again with --file_format=tfrecord"
        )
    return info


def _not_prepared(name: str, options: RecordOptions) -> str:
    import tensorflow_datasets as tfds

    place = options.data_dir or str(tfds.core.constants.DATA_DIR)
    bare = name.partition("/")[0].partition(":")[0]
    known = tfds.list_builders(with_community_datasets=False)
    message = f"source={options.source!r}: no data set {name!r} is prepared in data_dir={place!r}"
    if bare not in known:
        close = difflib.get_close_matches(bare, known, n=1, cutoff=0.5)
        hint = f"; did you mean 'tfds:{close[0]}'?" if close else ""
        return f"{message}, and TensorFlow Datasets knows none of that name{hint}"
    return (
        f"{message}; prepare it once where there is a network: "
        f"tfds build {name} --data_dir={place}, and give that folder as data_dir"
    )


def _feature_names(info: Any, source: str) -> tuple[str, str]:
    """Names of the image and of the label among an example's features.

    Those of supervised_keys; without any, the only image and the only label.
    """
    from tensorflow_datasets.core import features as kinds

    found = dict(info.features.items())
    keys: tuple = info.supervised_keys or tuple(
        name for kind in (kinds.Image, kinds.ClassLabel) for name in _of_kind(found, kind)
    )
    if len(keys) == 2 and all(isinstance(key, str) and key in found for key in keys):
        image, label = keys
        if image in _of_kind(found, kinds.Image) and label in _of_kind(found, kinds.ClassLabel):
            return image, label
    listed = ", ".join(
        f"{name}: {type(feature).__name__}" for name, feature in sorted(found.items())
    )
    raise InputError(
        f"source={source!r} is not a data set of images with one label each: it has {listed}"
    )


def _of_kind(features: dict[str, Any], kind: type) -> list[str]:
    return [name for name, feature in features.items() if isinstance(feature, kind)]
