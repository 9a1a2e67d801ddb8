"""Tasks: what a label is, what a model is trained to answer, and how its answers are judged.

A task is one file of this folder, with its part of the report beside it and its kind in
label_kinds.py, or a subclass in a user's module, which the option `task` names. Everything else
asks the task of its dataset:

    task = task_of(dataset)
    task.outputs                    # number of outputs that a model has for each example
    task.scores(labels, outputs)    # the loss and the metrics of each example
    task.evaluate(answers, ...)     # an Evaluation of a split
"""

import importlib

from trainer.data.schema import Dataset
from trainer.metrics.metric import Metric
from trainer.plugins import find_module_file
from trainer.tasks.base import Task
from trainer.tasks.label_kinds import kind_of_records
from vertex.errors import InputError, one_line


def task_of(dataset: Dataset) -> Task:
    """Return the task of the dataset; raise InputError if a user's own can't be used."""
    # Imported here, because a model can be chosen without TensorFlow.
    module, _, name = kind_of_records(dataset).task.partition(":")
    cls: type[Task] = vars(importlib.import_module(f"{__name__}.{module}"))[name]
    own = name_task(dataset)
    return (_import_task(own, cls) if own else cls)(dataset)


def name_task(dataset: Dataset) -> str:
    """Return the option `task` that the records were written with."""
    return str(dataset.creation.get("options", {}).get("task", ""))


def _import_task(name: str, base: type[Task]) -> type[Task]:
    """Return the task MODULE:CLASS; raise InputError unless it is derived from `base`."""
    file = find_module_file("task", name)
    module, _, attribute = name.partition(":")
    try:
        own = vars(importlib.import_module(module)).get(attribute)
    except (Exception, SystemExit) as error:  # The user's code may raise anything.
        raise InputError(f"task={name!r}: {file} can't be imported: {one_line(error)}") from None
    if not (isinstance(own, type) and issubclass(own, base)):
        raise InputError(
            f"task={name!r}: {file} has no {attribute} that is derived from {base.__module__}."
            f"{base.__name__}, the task of these labels"
        )
    if strange := [metric for metric in own.metrics if not isinstance(metric, Metric)]:
        raise InputError(
            f"task={name!r}: {file} has the metric {strange[0]!r}; declare it as a "
            f"{Metric.__module__}.{Metric.__name__}"
        )
    return own
