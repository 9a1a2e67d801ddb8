"""Train in this process, without replicas of its own, and evaluate."""

from pathlib import Path
from typing import Any

import keras

from trainer import fields
from trainer.data.schema import Dataset
from trainer.engine.cluster import Cluster
from trainer.evaluation.scoring import evaluate
from trainer.exported.export import export
from trainer.models import open_model_for
from trainer.training import loop
from trainer.training.config import TrainingConfig
from trainer.training.job import Job
from trainer.training.loop import TrainingLoop


def train(dataset: Dataset, folder: Path, **options: Any) -> TrainingLoop:
    config = fields.build(TrainingConfig, options)
    job = Job(dataset=dataset.uri, base_output_directory=str(folder), config=config)
    return loop.train(job, Cluster())


def train_and_evaluate(dataset: Dataset, folder: Path, **options: Any) -> Any:
    """Train, export and evaluate a model, which `.model` of the result names."""
    return export_and_evaluate(dataset, folder, train(dataset, folder, **options).model)


def evaluate_untrained(
    dataset: Dataset, folder: Path, *, model: str, model_options: dict[str, Any], **_: Any
) -> Any:
    """Export and evaluate a model as it is before training."""
    keras.utils.set_random_seed(0)
    return export_and_evaluate(
        dataset, folder, open_model_for(model, dataset, model_options).build(dataset)
    )


def export_and_evaluate(dataset: Dataset, folder: Path, network: keras.Model) -> Any:
    export(network, dataset, str(folder / "model"))
    return evaluate(str(folder / "model"), dataset.uri)
