"""The pipeline: raw data, TFRecords, distributed training, SavedModel, verdict."""

import contextlib
from collections.abc import Mapping
from typing import Any

from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from google_cloud_pipeline_components.v1.vertex_notification_email import VertexNotificationEmailOp
from kfp import dsl

from components.collect_training import collect_training
from components.create_tfrecords import create_tfrecords
from components.evaluate_model import evaluate_model
from components.fingerprint_source import fingerprint_source
from components.plan_training import plan_training
from components.register_model import register_model
from components.skip_training import skip_training
from pipelines import own_steps as steps
from pipelines.job_options import JobOptions
from pipelines.machines import cost
from pipelines.operation import Operation, StepMachine
from pipelines.parameters import with_parameters
from trainer.config import TrainingConfig
from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.evaluation.gate import CHALLENGER, CHAMPION, GateOptions
from trainer.fields import pick
from trainer.machines.worker_pools import IMAGE, MachineOptions

# Vertex AI fills these in for the project and region that the run is in.
PROJECT_ID_PLACEHOLDER = "{{$.pipeline_google_cloud_project_id}}"
LOCATION_PLACEHOLDER = "{{$.pipeline_google_cloud_location}}"
RETRIES = 2
"""Further tries of a step that has failed."""


def _step(
    task: dsl.PipelineTask,
    title: str,
    *,
    cached: bool = False,
    machine: StepMachine | None = None,
) -> dsl.PipelineTask:
    """Name a step that ends in the same outputs however often it runs, and let it be retried.

    The training job is none of these: Vertex AI restarts its replicas itself.
    """
    if machine:
        task.set_cpu_limit(str(machine.cpus)).set_memory_limit(f"{machine.memory_gb}G")
    task.set_display_name(title).set_caching_options(cached)
    return task.set_retry(RETRIES, backoff_duration="30s")


def pipeline(own_steps: Mapping[str, Any], recipe_sets: list[str], operation: Operation) -> Any:
    """Return a recipe's pipeline.

    Args:
        own_steps: components of the user's own, by name, behind the evaluation.
        recipe_sets: names of the parameters that the recipe sets.
        operation: who is told how a run has ended, and the machines of steps.
    """
    function = with_parameters(training, own_steps, recipe_sets, operation)
    return dsl.pipeline(name="training")(function)


def training(
    parameters: dict[str, Any],
    own_steps: Mapping[str, Any],
    recipe_sets: list[str],
    operation: Operation,
) -> None:
    """Raw data to TFRecords, distributed training on Vertex AI, a SavedModel and its verdict."""
    with contextlib.ExitStack() as stack:
        # KFP has no exit handler that a parameter could switch off.
        if operation.notify:
            mail = VertexNotificationEmailOp(recipients=list(operation.notify))
            mail.set_display_name("Send an e-mail")
            stack.enter_context(dsl.ExitHandler(mail, name="run"))
        _add_steps(parameters, own_steps, recipe_sets, operation.step_machines)


def _add_steps(
    parameters: dict[str, Any],
    own_steps: Mapping[str, Any],
    recipe_sets: list[str],
    machines: Mapping[str, StepMachine],
) -> None:
    # Not cached: what the source holds may change under the same name.
    listed = _step(
        fingerprint_source(source=parameters["source"], data_dir=parameters["data_dir"]),
        "List the source",
    )

    # Cached: the same options and the same source give the same records.
    records = _step(
        create_tfrecords(
            source_digest=listed.outputs["digest"],
            # Compiling names the image that it gives this step.
            image=IMAGE,
            service_account=parameters["service_account"],
            network=parameters["network"],
            encryption_spec_key_name=parameters["encryption_spec_key_name"],
            project=PROJECT_ID_PLACEHOLDER,
            location=LOCATION_PLACEHOLDER,
            **pick(RecordOptions, parameters),
            **pick(EngineOptions, parameters),
        ),
        "Create TFRecords",
        cached=True,
        machine=machines.get("records"),
    ).outputs["records"]

    # Not cached, as nothing after it: each run has a directory and a model of its own.
    registry = {
        "model_name": parameters["model_name"],
        "project": PROJECT_ID_PLACEHOLDER,
        "location": LOCATION_PLACEHOLDER,
    }
    plan = _step(
        plan_training(
            records=records,
            **pick(TrainingConfig, parameters),
            **pick(MachineOptions, parameters),
            scheduling_strategy=parameters["scheduling_strategy"],
            timeout=parameters["timeout"],
            max_wait_duration=parameters["max_wait_duration"],
            max_cost=parameters["max_cost"],
            price_per_hour=parameters["price_per_hour"],
            rates=cost.table().rates,
            rates_of=f"{cost.table().region}, {cost.table().date}",
            skip_if_unchanged=parameters["skip_if_unchanged"],
            resume_from=parameters["resume_from"],
            labels=parameters["labels"],
            run=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
            recipe_sets=recipe_sets,
            class_floors=parameters["class_floors"],
            **registry,
        ),
        "Plan the training job",
    )

    # KFP leaves the branches of an If without an Else open: those of the gate must come last.
    with dsl.If(plan.outputs["trains"] == "no", name="skip"):
        _step(
            skip_training(reason=plan.outputs["reason"], version=plan.outputs["version"]),
            "Record that nothing changed",
        )
    with dsl.Elif(plan.outputs["trains"] == "yes", name="train"):
        directory = plan.outputs["training"]

        job = (
            CustomTrainingJobOp(
                display_name=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
                worker_pool_specs=plan.outputs["worker_pool_specs"],
                base_output_directory=plan.outputs["base_output_directory"],
                strategy=parameters["scheduling_strategy"],
                **{
                    **pick(JobOptions, parameters),
                    "timeout": plan.outputs["timeout"],
                    "labels": plan.outputs["labels"],
                },
            )
            .set_display_name("Train")
            .set_caching_options(False)
        )

        model = _step(
            collect_training(training=directory).after(job), "Collect model and metrics"
        ).outputs["model"]

        judged = _step(
            evaluate_model(
                model=model,
                records=records,
                training=directory,
                title=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
                slice_columns=parameters["slice_columns"],
                **registry,
                **pick(GateOptions, parameters),
            ),
            "Evaluate and compare with the champion",
            machine=machines.get("evaluation"),
        )

        candidate = {
            "model": model,
            "records": records,
            "evaluation": judged.outputs["evaluation"],
            "champion": judged.outputs["champion"],
            "reason": judged.outputs["reason"],
            "configuration": plan.outputs["configuration"],
            "serving_image": parameters["serving_image"],
            "labels": parameters["labels"],
            "run": dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
            "encryption_spec_key_name": parameters["encryption_spec_key_name"],
            **registry,
        }
        available = {
            **parameters,
            **judged.outputs,
            **registry,
            "records": records,
            "model": model,
            "training": directory,
            "run": dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
        }
        for name, component in own_steps.items():
            steps.add(name, component, available)

        # A model that gets no role stays what it is: files of this run.
        with dsl.If(judged.outputs["role"] == CHAMPION, name="champion"):
            _step(register_model(role=CHAMPION, **candidate), "Register as champion")
        with dsl.Elif(judged.outputs["role"] == CHALLENGER, name="challenger"):
            _step(register_model(role=CHALLENGER, **candidate), "Register as challenger")
