"""What the current champion makes of the records that judge a candidate.

It was trained elsewhere and earlier, perhaps on other classes. Its answers are names, so
that its accuracy is defined wherever it can read the records: of a class that it does not
know, it has every example wrong.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from trainer import comparison
from trainer.comparison import Scores
from trainer.dataset.schema import Dataset
from trainer.errors import InputError
from trainer.gate import Rival
from trainer.prediction import TIE_TOLERANCE, ServedModel


def meet(
    name: str,
    uri: str,
    dataset: Dataset,
    labels: np.ndarray,
    *,
    progress: Callable[[str], None] = print,
) -> Rival:
    """The champion `name`, whose SavedModel is at `uri`, scored; or why it can't be."""
    try:
        return Rival(name=name, scores=score(uri, dataset, labels, progress=progress))
    except InputError as error:
        return Rival(name=name, problem=str(error))


def score(
    uri: str,
    dataset: Dataset,
    labels: np.ndarray,
    *,
    split: str = "test",
    batch_size: int = 256,
    progress: Callable[[str], None] = print,
) -> Scores:
    """Scores the SavedModel at `uri` on a split.

    Args:
        labels: int64 [n], the true classes in the split's order, as the candidate's
            evaluation read them.

    Returns:
        Its scores, without losses where its classes are not those of `dataset`, in order.

    Raises:
        InputError: no such model, or one that can't answer these records.
    """
    model = ServedModel(uri)
    names = np.array([name.encode() for name in dataset.classes], dtype=object)
    files = [dataset.shard_uri(shard) for shard in dataset.splits[split].shards if shard.examples]
    said: list[bytes] = []
    answers: list[np.ndarray] = []
    try:
        for batch in tf.data.TFRecordDataset(files).batch(batch_size).prefetch(2):
            probabilities, label = model.outputs(batch)
            answers.append(probabilities)
            said += label.tolist()
    except tf.errors.OpError as error:
        raise InputError(
            f"the model at {uri} can't read the {split} records of {dataset.uri} "
            f"({str(error.message).partition(chr(10))[0]}): they have another shape or other "
            "features than those that it was trained on"
        ) from None
    progress(f"Scored the champion on {len(said):,} {split} examples")
    answered, probabilities = np.array(said, dtype=object), np.concatenate(answers)
    right = answered == names[labels]
    if probabilities.shape[1] != len(names) or not set(said) <= set(names):
        return Scores(right, None)
    # Where two classes are as probable, either may be named.
    places = {name: index for index, name in enumerate(names)}
    named = probabilities[np.arange(len(said)), [places[name] for name in said]]
    if (named < probabilities.max(axis=1) - TIE_TOLERANCE).any():
        return Scores(right, None)
    return Scores(right, comparison.scores(labels, probabilities).losses)
