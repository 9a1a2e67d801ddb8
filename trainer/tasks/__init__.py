"""Tasks: what a label is, what a model is trained to answer, and how an answer is scored.

A task is one file of this folder. Everything else asks the task of its dataset:

    task = task_of(dataset)
    task.outputs                    # number of outputs that a model has for each example
    task.scores(labels, outputs)    # the loss and the metrics of each example
"""

from trainer.data.schema import Dataset
from trainer.tasks.classification import Classification
from trainer.tasks.task import Task


def task_of(dataset: Dataset) -> Task:
    """Return the task of the dataset's label."""
    return Classification(dataset)
