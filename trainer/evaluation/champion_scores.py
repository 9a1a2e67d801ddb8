"""Score the current champion on the records that a candidate is evaluated on.

The champion was trained earlier, perhaps on other classes. It predicts class names, so its
accuracy is defined wherever it can read the records; every example of a class that it does not
know counts as wrong. A champion that predicts none of the classes has another task.
"""

import numpy as np
import tensorflow as tf

from trainer.data import schema
from trainer.data.schema import Dataset
from trainer.errors import InputError
from trainer.evaluation import comparison
from trainer.evaluation.comparison import Scores
from trainer.evaluation.gate import ChampionScores
from trainer.evaluation.prediction import TIE_TOLERANCE, ServedModel, stored_batches
from trainer.evaluation.scoring import Evaluation

_BATCH_SIZE = 256


def score(name: str, uri: str, evaluation: Evaluation) -> ChampionScores:
    """Score the champion `name` (model@version), whose SavedModel is at `uri`.

    Returns:
        The champion's scores on the examples of a candidate's evaluation, or the problem that
        prevents scoring. The scores have no losses if its classes or their order differ.
    """
    try:
        dataset = schema.load(evaluation.dataset)
        scores = _scores(uri, dataset, evaluation.answers.labels)
    except InputError as error:
        # The verdict is one line: leave out the details in parentheses.
        return ChampionScores(name=name, problem=str(error).partition(" (")[0])
    print(f"Scored the champion {name} on {len(scores.correct):,} test examples")
    return ChampionScores(name=name, scores=scores)


def _scores(uri: str, dataset: Dataset, labels: np.ndarray) -> Scores:
    """Score the SavedModel at `uri`; `labels` int64 [n] are the true classes in stored order."""
    model = ServedModel(uri)
    taken, stored = model.image_shape, [] if dataset.is_table else dataset.feature("image").shape
    if taken and stored and taken != stored:
        raise InputError(
            f"it takes {'x'.join(map(str, taken))} images, the records have "
            f"{'x'.join(map(str, stored))}"
        )
    names = np.array([name.encode() for name in dataset.classes], dtype=object)
    predicted: list[bytes] = []
    answers: list[np.ndarray] = []
    try:
        for batch in stored_batches(dataset, "test", _BATCH_SIZE):
            probabilities, label = model.outputs(batch)
            answers.append(probabilities)
            predicted += label.tolist()
    except tf.errors.OpError:
        raise InputError("it can't read these records") from None
    if set(predicted).isdisjoint(names.tolist()):
        raise InputError("it predicts none of the classes of these records")
    right = np.array(predicted, dtype=object) == names[labels]
    probabilities = np.concatenate(answers)
    if probabilities.shape[1] != len(names) or not set(predicted) <= set(names):
        return Scores(right, None)
    # A tie may be resolved either way.
    places = {name: index for index, name in enumerate(names)}
    named = probabilities[np.arange(len(predicted)), [places[name] for name in predicted]]
    if (named < probabilities.max(axis=1) - TIE_TOLERANCE).any():
        return Scores(right, None)
    return Scores(right, comparison.scores(labels, probabilities).losses)
