"""Export a trained Keras model to a SavedModel with unscaled inputs.

Each signature maps a batch to the answers of the task (trainer/tasks): for classes,
`probabilities` (float32 [n, classes]) and `label` (string [n], the most probable class); for
numbers, `value`, and the ends of its interval, `low` and `high` (float32 [n] each).

    serving_default    image: uint8 [n, height, width, channels]; for a table, an argument for each
                       column, float32, int64 or string [n]; missing values are NaN, -1 or ""
    serving_bytes      image_bytes: string [n], encoded images, upright JPEGs and PNGs of any size
    serving_examples   examples: string [n], serialized tf.Examples as in the records
"""

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data import storage
from trainer.data.read import reader
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import EXTRA_ASSETS, FILE_NAME, Dataset
from trainer.data.storage import join
from trainer.exported import model_files, reproducible_model
from trainer.tasks import task_of

_BATCH = 256


def export(model: keras.Model, dataset: Dataset, uri: str, *beside: str) -> None:
    """Write `model`, which maps the inputs of `model_inputs` to outputs, as a SavedModel to `uri`.

    Equal weights give equal bytes, also if the training was killed and resumed.
    Last come the digests of its files and of the files `beside` the folder; see `model_files`.
    """
    task = task_of(dataset).calibrate(_answer_validation(model, dataset))

    def predict(inputs: Any) -> dict[str, tf.Tensor]:
        return task.answers(model(inputs, training=False))

    archive = keras.export.ExportArchive()
    archive.track(model)
    for name, (function, taken) in open_inputs(dataset).signatures(predict).items():
        graph = archive.add_endpoint(name, function, [taken]).get_concrete_function().graph
        # TensorFlow collects variables in a set, whose order differs from process to process.
        captured = {id(handle): at for at, handle in enumerate(graph.external_captures)}
        graph.variables = sorted(graph.variables, key=lambda used: captured.get(id(used.handle), 0))
    archive.write_out(uri, verbose=False)
    reproducible_model.rewrite(uri)
    # The model's dataset.json is in TensorFlow's folder for files that it does not read.
    folder = join(uri, EXTRA_ASSETS)
    storage.make_folder(folder)
    storage.write_atomically(join(folder, FILE_NAME), dataset.to_json().encode())
    model_files.write_digests(uri, *beside)


def _answer_validation(
    model: keras.Model, dataset: Dataset
) -> Iterator[tuple[np.ndarray, tf.Tensor, np.ndarray]]:
    """Yield labels [n], outputs [n, k] and weights [n] of the validation split's batches."""
    share = reader.InputShare(batch_size=_BATCH)
    count = reader.steps_per_epoch(dataset, "validation", _BATCH)
    predict = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    batches = reader.read_evaluation_batches(dataset, "validation", share) if count else ()
    for inputs, labels, weights in itertools.islice(batches, count):
        counted = weights > 0  # The rest is padding, or counts nothing.
        counts = weights[counted].numpy().astype(np.float64)
        yield labels[counted].numpy(), predict(inputs)[counted], counts
