"""tfds:NAME: an image dataset that TensorFlow Datasets has prepared.

Its files are read directly: TFRecord files of tf.train.Example whose image feature holds an
encoded image. An example is read by its offset in a file, in any order and by any process, without
TensorFlow or the network. Nothing is ever downloaded: a dataset that is not prepared is an
immediate error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainer.data import storage
from trainer.data.images.image_source import ImageSource
from trainer.data.source import Example, Reference, Rejection, digest, parse_split_name
from trainer.data.source_options import SourceOptions
from vertex.errors import InputError

FILE_BITS = 40
"""A position is a file's index and, in its low bits, an offset of under 1 TB."""
_NAME = re.compile(r"[\w./:*+-]+")


class PreparedDataset(ImageSource):
    """The images and class labels of a prepared dataset."""

    place = "NAME"
    own_options = ("data_dir",)
    help = "an image dataset that TensorFlow Datasets has prepared, such as tfds:mnist"

    def __init__(self, place: str, options: SourceOptions) -> None:
        super().__init__(place, options)
        info = load_info(place, options.data_dir)
        self.name = info.full_name
        self.location = str(info.data_dir)
        self._image, self._label = _find_features(info, options.source)
        self.classes = list(info.features[self._label].names)
        self.check_classes(options.source)
        self._files = [
            (str(path), parse_split_name(split.name))
            for split in sorted(info.splits.values(), key=lambda split: split.name)
            for path in split.filepaths
        ]

    @classmethod
    def takes(cls, place: str) -> bool:
        return bool(_NAME.fullmatch(place))

    @classmethod
    def check_cloud(cls, place: str, data_dir: str) -> None:
        if not data_dir:
            raise InputError(
                f"source='tfds:{place}' needs a data_dir that Vertex AI can read: prepare it with "
                f"`tfds build {place.partition(':')[0]} --data_dir=FOLDER`, copy FOLDER to a "
                "bucket and set data_dir=gs://BUCKET/FOLDER, or add --local"
            )

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        info = load_info(place, data_dir)
        return info.full_name, str(info.data_dir)

    def examples(self, _: Any = map, /) -> Iterator[Example | Rejection]:
        """Read every file once; keys are TensorFlow Datasets' own ids, `<file>__<index>`.

        Raise InputError for a missing or damaged file.
        """
        from trainer.data import records

        for index, (path, split) in enumerate(self._files):
            stem = path.rpartition("/")[2]
            try:
                with storage.catch_read_errors(path), storage.open_file(path, "rb") as file:
                    for number, (offset, record) in enumerate(records.read_records(file)):
                        key = f"{stem}__{number}"
                        position = index << FILE_BITS | offset
                        yield self._examine_record(key, position, split, records.parse(record))
            except (records.DamagedFileError, FileNotFoundError) as error:
                gone = isinstance(error, FileNotFoundError)
                problem = "missing" if gone else "damaged or cut off"
                raise InputError(f"{path} is {problem}; prepare the dataset again") from None

    def fetch(self, reference: Reference) -> bytes:
        """Return the encoded image."""
        from trainer.data import records

        path, _ = self._files[reference.position >> FILE_BITS]
        with storage.open_file(path, "rb") as file:
            file.seek(reference.position & (1 << FILE_BITS) - 1)
            record = records.read_record(file)
        assert record is not None
        return records.parse(record)[self._image][0]

    def _examine_record(
        self, key: str, position: int, split: str, example: Any
    ) -> Example | Rejection:
        if not split:
            return Rejection(key, "in a split that is neither train, validation nor test", True)
        image, label = example.get(self._image), example.get(self._label)
        if not image:
            return Rejection(key, f"has no {self._image!r}")
        if not label or not 0 <= label[0] < len(self.classes):
            return Rejection(key, "has no label")
        return Example(Reference(key, position), label[0], digest(image[0]), split)


def load_info(name: str, data_dir: str) -> Any:
    """Return the DatasetInfo of a prepared dataset, from its files alone.

    Raise InputError if it is not prepared in `data_dir`, or not in TFRecord files.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    options = {"data_dir": data_dir} if data_dir else {}
    try:
        info = builder_from_files(name, **options).info
    # A malformed name or broken files may raise any of these; the remedy is the same.
    except (registered.DatasetNotFoundError, ValueError, OSError, AssertionError, KeyError):
        folder = data_dir or str(tfds.core.constants.DATA_DIR)
        raise InputError(
            f"source='tfds:{name}': no dataset {name!r} is prepared in data_dir={folder!r}; "
            f"prepare it once on a machine with network access: tfds build {name} "
            f"--data_dir={folder}, and set data_dir to that folder"
        ) from None
    if info.file_format is not None and info.file_format.value != "tfrecord":
        raise InputError(
            f"source='tfds:{name}' is stored as {info.file_format.value}; "
            "prepare it again with --file_format=tfrecord"
        )
    return info


def _find_features(info: Any, source: str) -> tuple[str, str]:
    """Return the names of image and label: supervised_keys, or else the only possible features."""
    from tensorflow_datasets.core import features as kinds

    features_by_name = dict(info.features.items())
    images, labels = (
        [name for name, feature in features_by_name.items() if isinstance(feature, kind)]
        for kind in (kinds.Image, kinds.ClassLabel)
    )
    keys: tuple = info.supervised_keys or (*images, *labels)
    if len(keys) == 2 and keys[0] in images and keys[1] in labels:
        return keys
    description = ", ".join(
        f"{name}: {type(feature).__name__}" for name, feature in sorted(features_by_name.items())
    )
    raise InputError(
        f"source={source!r} is not a dataset of images with one label each; it has {description}"
    )
