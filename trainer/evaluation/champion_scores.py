"""Score the current champion on the records that a candidate is evaluated on.

The champion was trained earlier, perhaps on other classes. It predicts class names, so its
accuracy is defined if it can read the records; each example of a class that it does not know
counts as wrong. A champion that predicts none of the classes was trained for another task.
"""

import numpy as np
import tensorflow as tf

from trainer.data import schema
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import Dataset
from trainer.errors import InputError
from trainer.evaluation.gate import ChampionScores
from trainer.evaluation.prediction import (
    TIE_TOLERANCE,
    ServedModel,
    read_stored_batches,
)
from trainer.evaluation.scoring import Evaluation
from trainer.metrics.comparison import Pairs, Scores, log_losses
from trainer.metrics.disk_columns import Answers

_CONTRADICTION = 0.005
"""Difference of two accuracies of a model on the same records that no machine explains."""


def score(
    name: str, uri: str, evaluation: Evaluation, recorded_accuracy: float | None = None
) -> ChampionScores:
    """Score the champion `name` (model@version), whose SavedModel is at `uri`.

    Return its scores paired with those of a candidate's evaluation, or the problem that prevents
    scoring. The pairs have no gains if its classes or their order differ.

    Args:
        recorded_accuracy: its accuracy on the same records when it was registered; None: unknown.
    """
    try:
        dataset = schema.load_dataset(evaluation.dataset)
        pairs = _score_pairs(uri, dataset, evaluation.answers)
        _check_recorded(pairs, recorded_accuracy)
    except InputError as error:
        # The verdict is one line: leave out the details in parentheses.
        return ChampionScores(name=name, problem=str(error).partition(" (")[0])
    print(f"Scored the champion {name} on {pairs.examples:,} test examples")
    return ChampionScores(name=name, pairs=pairs)


def _check_recorded(pairs: Pairs, recorded: float | None) -> None:
    """Raise InputError if the champion's accuracy contradicts the recorded one."""
    accuracy = float(pairs.right[:, 1].sum()) / pairs.examples
    # Another kind of machine may answer a few examples differently.
    if recorded is not None and abs(accuracy - recorded) > 1 / pairs.examples + _CONTRADICTION:
        raise InputError(
            f"its accuracy on these records was {recorded:.4f} when it was registered, and now is "
            f"{accuracy:.4f}, so its files are damaged or are those of another model"
        )


def _score_pairs(uri: str, dataset: Dataset, candidate: Answers) -> Pairs:
    model = ServedModel(uri)
    expected = model.image_shape
    for stored in dataset.image_shapes:
        if expected and expected != stored:
            raise InputError(
                f"it expects {'x'.join(map(str, expected))} images, the records have "
                f"{'x'.join(map(str, stored))}"
            )
    class_indices = {name.encode(): index for index, name in enumerate(dataset.classes)}
    pairs, end, knows_a_class = Pairs(candidate.rows), 0, False
    try:
        for batch in read_stored_batches(dataset, "test", open_inputs(dataset).scored_at_once):
            probabilities, names = model.predict_unchecked(batch)
            start, end = end, end + len(names)
            predicted = np.array([class_indices.get(name, -1) for name in names.tolist()])
            knows_a_class |= bool((predicted >= 0).any())
            scores = _compute_scores(
                candidate.read("label", start, end), probabilities, predicted, class_indices
            )
            pairs.add(candidate.scores(start, end), scores)
    except tf.errors.OpError:
        raise InputError("it can't read these records") from None
    if not knows_a_class:
        raise InputError("it predicts none of the classes of these records")
    return pairs


def _compute_scores(
    labels: np.ndarray,
    probabilities: np.ndarray,
    predicted: np.ndarray,
    class_indices: dict[bytes, int],
) -> Scores:
    """Return a champion's scores; `predicted` are class indices, int [n], -1 if unknown."""
    correct, rows = predicted == labels, np.arange(len(labels))
    if probabilities.shape[1] != len(class_indices) or (predicted < 0).any():
        return Scores(correct, None)
    # A tie may be resolved either way.
    if (probabilities[rows, predicted] < probabilities.max(axis=1) - TIE_TOLERANCE).any():
        return Scores(correct, None)
    return Scores(correct, log_losses(probabilities[rows, labels]))
