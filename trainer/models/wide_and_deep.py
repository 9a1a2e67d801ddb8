"""Wide and deep: a linear model of categories and crosses beside a network of embeddings.

Cheng et al. (2016), "Wide & Deep Learning for Recommender Systems", arXiv:1606.07792. As
there, the wide part learns by FTRL and the deep part by the optimizer of the run:
trainer/training/optimization.py tells them by the variables' paths.
"""

import keras
import numpy as np

from trainer.data.schema import Dataset
from trainer.data.tables import inputs
from trainer.models.model_options import WideAndDeep
from trainer.training.optimization import WIDE_LAYER


def build(dataset: Dataset, options: WideAndDeep) -> keras.Model:
    """Builds the sum of both parts' logits.

    Columns go to the parts by what they are: numeric ones to the deep part, categories and
    buckets to both, crosses to the wide part, and to the deep one too with an embedding.

    Returns:
        A model from {"numbers", "ids"}, as `trainer.data.tables.inputs.Encoder` makes
        them of raw columns, to logits, float32 [n, classes].
    """
    found = inputs.categories(dataset)
    numbers = keras.Input([inputs.number_count(dataset)], dtype="float32", name="numbers")
    ids = keras.Input([len(found)], dtype="int32", name="ids")
    deep = _deep_inputs(found, numbers, ids)
    hidden = keras.layers.Concatenate(name="deep")(deep) if len(deep) > 1 else deep[0]
    for number, size in enumerate(_sizes(options), 1):
        hidden = keras.layers.Dense(size, name=f"hidden_{number}")(hidden)
        if options.batch_normalization:
            normalize = keras.layers.BatchNormalization(
                synchronized=True, name=f"normalized_{number}"
            )
            hidden = normalize(hidden)
        hidden = keras.layers.Activation("relu")(hidden)
        hidden = keras.layers.Dropout(options.dropout)(hidden)
    logits = keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits")(hidden)
    if options.wide and found:
        linear = _embedded(WIDE_LAYER, range(len(found)), found, ids, len(dataset.classes))
        linear = keras.ops.sum(keras.ops.cast(linear, "float32"), axis=1)
        logits = keras.layers.Add(dtype="float32", name="both_parts")([logits, linear])
    return keras.Model({"numbers": numbers, "ids": ids}, logits, name="wide_and_deep")


def _sizes(options: WideAndDeep) -> list[int]:
    """Of the hidden layers."""
    if not options.first_units:
        return options.hidden_units
    return [
        max(2, round(options.first_units * options.scale_factor**number))
        for number in range(options.layers)
    ]


def _deep_inputs(
    found: list[inputs.Category], numbers: keras.KerasTensor, ids: keras.KerasTensor
) -> list[keras.KerasTensor]:
    """What the first hidden layer takes: numbers, indicators and embeddings, [n, k] each.

    Categories of one embedding dimension lie in one table: one gather serves them all.
    """
    parts = [numbers] if numbers.shape[1] else []
    by_dimension: dict[int, list[int]] = {}
    for place, category in enumerate(found):
        if category.embedding:
            by_dimension.setdefault(category.embedding, []).append(place)
        elif not category.crossed:
            indicator = keras.layers.CategoryEncoding(
                category.size, output_mode="one_hot", name=f"indicator_{place}"
            )
            parts.append(indicator(ids[:, place : place + 1]))
    for dimension, places in sorted(by_dimension.items()):
        embedded = _embedded(f"embedding_{dimension}", places, found, ids, dimension)
        parts.append(keras.layers.Reshape([len(places) * dimension])(embedded))
    return parts


def _embedded(
    name: str,
    places: "range | list[int]",
    found: list[inputs.Category],
    ids: keras.KerasTensor,
    dimension: int,
) -> keras.KerasTensor:
    """[n, places, dimension]: rows of one table in which the categories lie one behind another."""
    offsets, total = [], 0
    for place in places:
        offsets.append(total)
        total += found[place].size
    start = "zeros" if name == WIDE_LAYER else "uniform"
    table = keras.layers.Embedding(total, dimension, embeddings_initializer=start, name=name)
    # NumPy's, not tensors: those would be the chief's, and out of a remote worker's reach.
    chosen = keras.ops.take(ids, np.array(places, np.int32), axis=1)
    return table(keras.ops.add(chosen, np.array([offsets], np.int32)))
