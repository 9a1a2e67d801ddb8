"""Wide and deep: a linear model of categories and crosses beside a network of embeddings.

Cheng et al. (2016), "Wide & Deep Learning for Recommender Systems", arXiv:1606.07792. As
there, the wide part learns by FTRL and the deep part by the optimizer of the run:
trainer/optimization.py tells them by the variables' paths.
"""

import keras
import numpy as np

from trainer.dataset.schema import Dataset
from trainer.dataset.tabular import inputs
from trainer.errors import InputError
from trainer.optimization import WIDE_LAYER


def build(
    dataset: Dataset,
    *,
    hidden_units: tuple[int, ...] = (100, 70, 48, 34),
    first_units: int = 0,
    scale_factor: float = 0.7,
    layers: int = 4,
    dropout: float = 0.0,
    batch_normalization: bool = False,
    wide: bool = True,
) -> keras.Model:
    """Builds the sum of both parts' logits.

    Columns go to the parts by what they are: numeric ones to the deep part, categories and
    buckets to both, crosses to the wide part, and to the deep one too with an embedding.

    Args:
        dataset: a table's; gives columns, their statistics and the classes.
        hidden_units: sizes of the hidden layers.
        first_units: size of the first one, in place of that list; 0: as listed.
        scale_factor: each further layer's size over that of the one before.
        layers: how many hidden layers there are then.
        dropout: share of units dropped after each hidden layer.
        batch_normalization: whether each hidden layer is normalized over the batch.
        wide: whether there is a wide part.

    Returns:
        A model from {"numbers", "ids"}, as `trainer.dataset.tabular.inputs.Encoder` makes
        them of raw columns, to logits, float32 [n, classes].
    """
    found = inputs.categories(dataset)
    numbers = keras.Input([inputs.number_count(dataset)], dtype="float32", name="numbers")
    ids = keras.Input([len(found)], dtype="int32", name="ids")
    deep = _deep_inputs(found, numbers, ids)
    if not deep:
        raise InputError("columns give the deep part nothing: add one, or embed a cross")
    hidden = keras.layers.Concatenate(name="deep")(deep) if len(deep) > 1 else deep[0]
    sizes = hidden_units
    if first_units:
        sizes = tuple(max(2, round(first_units * scale_factor**n)) for n in range(layers))
    for number, size in enumerate(sizes, 1):
        hidden = keras.layers.Dense(size, name=f"hidden_{number}")(hidden)
        if batch_normalization:
            normalize = keras.layers.BatchNormalization(
                synchronized=True, name=f"normalized_{number}"
            )
            hidden = normalize(hidden)
        hidden = keras.layers.Activation("relu")(hidden)
        hidden = keras.layers.Dropout(dropout)(hidden)
    logits = keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits")(hidden)
    if wide and found:
        linear = _embedded(WIDE_LAYER, range(len(found)), found, ids, len(dataset.classes))
        linear = keras.ops.sum(keras.ops.cast(linear, "float32"), axis=1)
        logits = keras.layers.Add(dtype="float32", name="both_parts")([logits, linear])
    return keras.Model({"numbers": numbers, "ids": ids}, logits, name="wide_and_deep")


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
