"""Tasks: what a label is, what a model is trained to answer, and how its answers are judged.

A task is one file of this folder. Everything else asks the task of its dataset:

    task = task_of(dataset)
    task.outputs                    # number of outputs that a model has for each example
    task.scores(labels, outputs)    # the loss and the metrics of each example
    task.evaluate(answers, ...)     # an Evaluation of a split
"""

from trainer.data.schema import Dataset
from trainer.tasks.base import Task
from trainer.tasks.kinds import MULTILABEL, REGRESSION, kind_of_records


def task_of(dataset: Dataset) -> Task:
    """Return the task of the dataset's label."""
    # Imported here, because a model can be chosen without TensorFlow.
    kind = kind_of_records(dataset)
    if kind is MULTILABEL:
        from trainer.tasks.multilabel import Multilabel

        return Multilabel(dataset)
    if kind is REGRESSION:
        from trainer.tasks.regression import Regression

        return Regression(dataset)
    from trainer.tasks.classification import Classification

    return Classification(dataset)
