"""Wide and deep: a linear model of categories and crosses, and a network of embeddings.

Cheng et al. (2016), "Wide & Deep Learning for Recommender Systems", arXiv:1606.07792. As in the
paper, FTRL trains the wide part; the run's optimizer trains the deep part.
trainer/training/optimization.py distinguishes them by the variables' paths.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from trainer.data.schema import ROWS, Dataset
from trainer.fields import option
from trainer.models.model import WIDE_LAYER, Model
from trainer.tasks import task_of
from vertex.errors import InputError

if TYPE_CHECKING:
    import keras

    from trainer.data.tables import inputs

WORD_SCALE = 10.0
"""Scale of words in the wide part. With `wide_learning_rate` at its default, FTRL needs twice the
epochs with 5; with 20 it overfits after the third, with a higher loss (5,000 comments)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WideAndDeep(Model):
    """A network of embeddings, and a linear model of categories and crosses."""

    takes: ClassVar[str] = ROWS
    augmentable: ClassVar[bool] = False
    has_wide_part: ClassVar[bool] = True

    hidden_units: list[int] = option(
        [100, 70, 48, 34], help="Number of units of each hidden layer, as a list.", minimum=1
    )
    first_units: int = option(
        0,
        help="Number of units of the first hidden layer, instead of hidden_units; 0: use "
        "hidden_units.",
        minimum=0,
    )
    scale_factor: float = option(
        0.7,
        help="Number of units of a hidden layer as a multiple of the previous layer's, with "
        "first_units.",
        above=0,
    )
    layers: int = option(4, help="Number of hidden layers, with first_units.", minimum=1)
    dropout: float = option(
        0.0, help="Fraction of units dropped after each hidden layer.", minimum=0, below=1
    )
    batch_normalization: bool = option(False, help="Normalize each hidden layer over the batch.")
    wide: bool = option(True, help="Add the wide part: a linear model of categories and crosses.")

    def check_texts(self, embeddings: Mapping[str, int]) -> None:
        unread = [name for name, dimension in embeddings.items() if not dimension]
        if unread and not self.wide:
            raise InputError(
                f"model_options: wide=false, but only the wide part reads {unread[0]!r}, which has "
                "no embedding; set its embedding, or leave out wide=false"
            )

    def build(self, dataset: Dataset) -> keras.Model:
        """Build a model that adds the logits of both parts.

        Numeric columns go to the deep part, categories and buckets to both parts, and crosses and
        texts to the wide part and, if they have an embedding, also to the deep part.

        Returns:
            A model that maps the inputs that `trainer.data.tables.inputs.Encoder` computes from raw
            columns to logits, float32 [n, outputs].
        """
        import keras

        from trainer.data.tables import inputs

        categories, texts = inputs.list_categories(dataset), inputs.list_texts(dataset)
        numbers = keras.Input([inputs.number_count(dataset)], dtype="float32", name="numbers")
        ids = keras.Input([len(categories)], dtype="int32", name="ids")
        given, bags = {"numbers": numbers, "ids": ids}, []
        if texts:
            width = sum(text.width for text in texts)
            given["words"] = keras.Input([width], dtype="int32", name="words")
            bags = _cut_bags(texts, given["words"])
        deep = [*_build_deep_inputs(categories, numbers, ids), *_embed_bags(texts, bags)]
        hidden = keras.layers.Concatenate(name="deep")(deep) if len(deep) > 1 else deep[0]
        for number, size in enumerate(self._hidden_sizes(), 1):
            hidden = keras.layers.Dense(size, name=f"hidden_{number}")(hidden)
            if self.batch_normalization:
                normalize = keras.layers.BatchNormalization(
                    synchronized=True, name=f"normalized_{number}"
                )
                hidden = normalize(hidden)
            hidden = keras.layers.Activation("relu")(hidden)
            hidden = keras.layers.Dropout(self.dropout)(hidden)
        outputs = task_of(dataset).outputs
        logits = keras.layers.Dense(outputs, dtype="float32", name="logits")(hidden)
        if self.wide and (categories or texts):
            linear = _build_wide_part(categories, texts, ids, bags, outputs)
            logits = keras.layers.Add(dtype="float32", name="both_parts")([logits, linear])
        return keras.Model(given, logits, name="wide_and_deep")

    def _hidden_sizes(self) -> list[int]:
        if not self.first_units:
            return self.hidden_units
        return [
            max(2, round(self.first_units * self.scale_factor**number))
            for number in range(self.layers)
        ]


def _build_deep_inputs(
    categories: list[inputs.Category], numbers: keras.KerasTensor, ids: keras.KerasTensor
) -> list[keras.KerasTensor]:
    """Return the inputs of the first hidden layer, each [n, k]: numbers, indicators, embeddings.

    Categories with the same embedding dimension share a table, so that one gather is enough.
    """
    import keras
    import numpy as np

    parts = [numbers] if numbers.shape[1] else []
    by_dimension: dict[int, list[int]] = {}
    for index, category in enumerate(categories):
        if category.embedding:
            by_dimension.setdefault(category.embedding, []).append(index)
        elif category.indicators:
            indicator = keras.layers.CategoryEncoding(
                category.size, output_mode="one_hot", name=f"indicator_{index}"
            )
            parts.append(indicator(ids[:, index : index + 1]))
    for dimension, indices in sorted(by_dimension.items()):
        *offsets, total = itertools.accumulate((categories[at].size for at in indices), initial=0)
        table = keras.layers.Embedding(total, dimension, name=f"embedding_{dimension}")
        # NumPy arrays, because a remote worker can't read tensors of the chief.
        chosen = keras.ops.take(ids, np.array(indices, np.int32), axis=1)
        embedded = table(keras.ops.add(chosen, np.array([offsets], np.int32)))
        parts.append(keras.layers.Reshape([len(indices) * dimension])(embedded))
    return parts


def _cut_bags(
    texts: list[inputs.Text], words: keras.KerasTensor
) -> list[tuple[keras.KerasTensor, keras.KerasTensor]]:
    """Return the ids of each text, [n, width], and their scales: 1 / sqrt(k), for k ids; or 0."""
    import keras

    bags, start = [], 0
    for text in texts:
        ids = words[:, start : start + text.width]
        some = keras.ops.cast(keras.ops.not_equal(ids, 0), "float32")
        count = keras.ops.sum(some, axis=1, keepdims=True)
        bags.append((ids, some / keras.ops.sqrt(keras.ops.maximum(count, 1.0))))
        start += text.width
    return bags


def _embed_bags(
    texts: list[inputs.Text], bags: list[tuple[keras.KerasTensor, keras.KerasTensor]]
) -> list[keras.KerasTensor]:
    """Return the scaled sums of the embeddings of texts that have them, each [n, dimension]."""
    import keras

    sums = []
    for index, (text, (ids, scales)) in enumerate(zip(texts, bags, strict=True)):
        if text.embedding:
            table = keras.layers.Embedding(text.size, text.embedding, name=f"words_{index}")
            sums.append(keras.layers.Dot(axes=1)([scales, table(ids)]))
    return sums


def _build_wide_part(
    categories: list[inputs.Category],
    texts: list[inputs.Text],
    ids: keras.KerasTensor,
    bags: list[tuple[keras.KerasTensor, keras.KerasTensor]],
    outputs: int,
) -> keras.KerasTensor:
    """Return the sums of the weights of all ids, float32 [n, outputs]; texts' ids are scaled."""
    import keras
    import numpy as np

    widths = [1] * len(categories) + [text.width for text in texts]
    sizes = [*(category.size for category in categories), *(text.size for text in texts)]
    *offsets, total = itertools.accumulate(sizes, initial=0)
    table = keras.layers.Embedding(total, outputs, embeddings_initializer="zeros", name=WIDE_LAYER)
    all_ids = keras.ops.concatenate([ids, *(bag for bag, _ in bags)], axis=1)
    # NumPy arrays, because a remote worker can't read tensors of the chief.
    shifted = keras.ops.add(all_ids, np.repeat(np.array([offsets], np.int32), widths, axis=1))
    weights = keras.ops.cast(table(shifted), "float32")
    if not bags:
        return keras.ops.sum(weights, axis=1)
    ones = keras.ops.ones_like(ids, dtype="float32")
    scales = [WORD_SCALE * scales for _, scales in bags]
    return keras.ops.einsum("nk,nko->no", keras.ops.concatenate([ones, *scales], axis=1), weights)
