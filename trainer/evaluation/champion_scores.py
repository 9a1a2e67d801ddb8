"""Score the current champion on the records that a candidate is evaluated on.

The champion was trained earlier, perhaps on other classes. It predicts class names, so its
accuracy is defined if it can read the records; each example of a class that it does not know
counts as wrong. A champion that predicts none of the classes was trained for another task.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.data import schema
from trainer.evaluation.gate import ChampionScores
from trainer.evaluation.prediction import ServedModel
from trainer.metrics.comparison import Pairs
from trainer.metrics.disk_columns import Answers
from trainer.tasks.base import Evaluation
from vertex.errors import InputError


def score(
    name: str, uri: str, evaluation: Evaluation, recorded: Mapping[str, Any] | None = None
) -> ChampionScores:
    """Score the champion `name` (model@version), whose SavedModel is at `uri`.

    Return its scores paired with those of a candidate's evaluation, or the problem that prevents
    scoring. The pairs have no gains if the champion's losses are undefined.

    Args:
        recorded: its metrics in the registry, of the same records; None: unknown.
    """
    try:
        model = ServedModel(uri, schema.load_dataset(evaluation.dataset))
        pairs = _score_pairs(model, evaluation.answers)
        contradiction = model.task.find_contradiction(pairs, recorded or {})
        if contradiction:
            raise InputError(
                f"{contradiction}, so its files are damaged or are those of another model"
            )
    except InputError as error:
        # The verdict is one line: leave out the details in parentheses.
        return ChampionScores(name=name, problem=str(error).partition(" (")[0])
    print(f"Scored the champion {name} on {pairs.examples:,} test examples")
    return ChampionScores(name=name, pairs=pairs)


def _score_pairs(model: ServedModel, candidate: Answers) -> Pairs:
    expected = model.image_shape
    for stored in model.dataset.image_shapes:
        if expected and expected != stored:
            raise InputError(
                f"it expects {'x'.join(map(str, expected))} images, the records have "
                f"{'x'.join(map(str, stored))}"
            )
    pairs, start, knows_a_label = Pairs(candidate.rows), 0, False
    try:
        for batch in model.read_stored_batches():
            end = start + len(batch)
            labels = candidate.read_labels(start, end)
            scores, knows = model.task.score_champion(labels, model.answer_unchecked(batch))
            pairs.add(candidate.scores(start, end), scores)
            start, knows_a_label = end, knows_a_label or knows
    except tf.errors.OpError:
        raise InputError("it can't read these records") from None
    if not knows_a_label:
        raise InputError("it predicts none of the classes of these records")
    return pairs
