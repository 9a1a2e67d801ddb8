"""Vertex AI Experiments: one experiment for each recipe's runs.

A run's parameters, metrics and artifacts are in Vertex ML Metadata, in the run's context. That
context becomes a child of the experiment's context, as with the SDK's
PipelineJob.submit(experiment=...) (machine-learning/experiments/add-pipelinerun-experiment).
"""

import time
from typing import Any

from pipelines.project.connection import Connection, console_link
from pipelines.project.settings import Settings
from pipelines.recipe import to_id
from pipelines.runs import vertex_jobs
from vertex.client.cloud_errors import CONFLICT, CloudError, status_of, translated
from vertex.errors import InputError
from vertex.facts import regions
from vertex.facts.jobs import ENDED

_SCHEMA, _SCHEMA_VERSION = "system.Experiment", "0.0.1"
_SHORTEST_ID = 4
_POLLING_SECONDS = 1.0
_WAIT_SECONDS = 60.0


def experiment_of(recipe: str) -> str:
    """Return the name of a recipe's experiment, which has 4 to 128 of a-z, 0-9 and -."""
    name = to_id(recipe)
    return name if len(name) >= _SHORTEST_ID else f"{name}-runs"


def link(settings: Settings, experiment: str) -> str:
    """Return the URL of an experiment in the console."""
    page = f"vertex-ai/experiments/locations/{{region}}/experiments/{experiment}/runs"
    return console_link(settings, page)


def add(connection: Connection, recipe: str, run_id: str) -> str:
    """Add a run to its recipe's experiment, created if missing; return the experiment's name.

    Raises InputError in a region without Experiments, and CloudError if the run has no context
    after a minute.
    """
    from google.cloud.aiplatform_v1 import types

    region = connection.settings.region
    if not regions.has_experiments(region):
        raise InputError(f"{region} has no Experiments")
    experiment = experiment_of(recipe)
    run_context = _wait_for_context(connection, run_id)
    # projects/…/metadataStores/default from …/metadataStores/default/contexts/ID.
    store = run_context.rpartition("/contexts/")[0]
    name = f"{store}/contexts/{experiment}"
    context = types.Context(
        display_name=experiment,
        schema_title=_SCHEMA,
        schema_version=_SCHEMA_VERSION,
        metadata={"experiment_deleted": False},
    )
    with translated(f"adding {run_id!r} to the experiment {experiment!r}"):
        try:
            connection.metadata.create_context(
                parent=store, context=context, context_id=experiment, retry=connection.retry
            )
        except Exception as error:
            if status_of(error) != CONFLICT:
                raise
            # Runs are contexts, too, and a run may have the recipe's name.
            kind = connection.metadata.get_context(name=name).schema_title
            if kind != _SCHEMA:
                raise CloudError(f"{experiment!r} is already the name of a {kind}") from None
        connection.metadata.add_context_children(context=name, child_contexts=[run_context])
    return experiment


def _wait_for_context(connection: Connection, run_id: str) -> str:
    """Return the name of a run's context, which appears some seconds after the run."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        job: Any = vertex_jobs.fetch(connection, run_id)
        name = job.job_detail.pipeline_run_context.name
        if name:
            return name
        if vertex_jobs.state_of(job) in ENDED or time.monotonic() > deadline:
            raise CloudError(f"{run_id!r} has no context in Vertex ML Metadata")
        time.sleep(_POLLING_SECONDS)
