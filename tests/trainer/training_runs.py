"""Train in this process, without replicas of its own."""

from trainer import fields
from trainer.training import loop
from trainer.training.cluster import Cluster
from trainer.training.config import TrainingConfig
from trainer.training.job import Job
from trainer.training.loop import Run


def train(dataset, folder, **options) -> Run:
    config = fields.build(TrainingConfig, options)
    job = Job(dataset=dataset.uri, base_output_directory=str(folder), config=config)
    return loop.train(job, Cluster())
