"""The training pipeline: raw data, TFRecords, distributed training, SavedModel, verdict."""

import contextlib
import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from google_cloud_pipeline_components._image import GCPC_IMAGE_TAG
from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from google_cloud_pipeline_components.v1.vertex_notification_email import VertexNotificationEmailOp
from kfp import dsl

from components.choose_values import choose_values
from components.collect_training import collect_training
from components.create_tfrecords import create_tfrecords
from components.deploy_champion import deploy_champion
from components.evaluate_model import evaluate_model
from components.fingerprint_source import fingerprint_source
from components.plan_search import plan_search
from components.plan_training import plan_training
from components.planning.pipeline_options import JobOptions
from components.planning.search_options import SearchOptions
from components.planning.worker_pools import GPU_IMAGE, IMAGE
from components.register_model import register_model
from components.skip_training import skip_training
from components.typed import RUNTIME
from pipelines import user_steps
from pipelines.run_options import EvaluationMachine, RunOptions, StepMachine
from trainer.fields import pick
from vertex.machines import price_table
from vertex.registry.version_aliases import CHAMPION

# Vertex AI replaces these with the project and region of the run.
PROJECT_ID_PLACEHOLDER = "{{$.pipeline_google_cloud_project_id}}"
LOCATION_PLACEHOLDER = "{{$.pipeline_google_cloud_location}}"
_PROJECT_AND_LOCATION: dict[str, Any] = {
    "project": PROJECT_ID_PLACEHOLDER,
    "location": LOCATION_PLACEHOLDER,
}
_RUN = dsl.PIPELINE_JOB_NAME_PLACEHOLDER
RETRIES = 2
"""Number of retries of a failed step."""
_LAUNCHER = "google_cloud_pipeline_components.container.v1.hyperparameter_tuning_job.launcher"


def add_step(
    title: str,
    component: Any,
    available: Mapping[str, Any],
    /,
    *,
    cached: bool = False,
    machine: StepMachine | None = None,
    **inputs: Any,
) -> dsl.PipelineTask:
    """Add an idempotent step, which Vertex AI retries after a failure.

    Don't use it for the training job, whose replicas Vertex AI restarts. The component's inputs are
    filled by name, from `available`.
    """
    declared = component.component_spec.inputs
    arguments = {name: value for name, value in available.items() if name in declared}
    task = component(**(arguments | inputs))
    # Not set_env_variable: it reads the source of every module on its stack, 0.1 s per pipeline.
    task.container_spec.env = {**(task.container_spec.env or {}), **RUNTIME}
    if machine:
        task.set_cpu_limit(str(machine.cpus)).set_memory_limit(f"{machine.memory_gb}G")
    if isinstance(machine, EvaluationMachine) and machine.accelerator_type:
        task.set_accelerator_type(machine.accelerator_type).set_container_image(GPU_IMAGE)
    task.set_display_name(title).set_caching_options(cached)
    return task.set_retry(RETRIES, backoff_duration="30s")


def training(
    parameters: dict[str, Any],
    recipe_sets: list[str],
    run_options: RunOptions,
    searched: SearchOptions | None,
) -> None:
    """Convert raw data to TFRecords, train on Vertex AI, evaluate and register the SavedModel."""
    with notified(run_options):
        # Not cached: the content of a source may change under the same name.
        listed = add_step("List the source", fingerprint_source, parameters)

        # Cached: the same options and the same source produce the same records.
        records = add_step(
            "Create TFRecords",
            create_tfrecords,
            parameters,
            cached=True,
            machine=run_options.step_machines.records,
            source_digest=listed.outputs["digest"],
            # Compilation replaces it with the image of the components.
            image=IMAGE,
            **_PROJECT_AND_LOCATION,
        ).outputs["records"]

        # Not cached, like all later steps: each run has its own directory and model.
        prices = price_table.load_table()
        planned = {
            "records": records,
            "rates": prices.training_rates,
            "rates_of": f"{prices.region}, {prices.date}",
            "run": _RUN,
            "recipe_sets": recipe_sets,
            "searched": {},
            **_PROJECT_AND_LOCATION,
        }
        first = _rename(plan_training, "plan-defaults") if searched else plan_training
        plan = add_step("Plan the training job", first, parameters, **planned)

        # KFP leaves an If without an Else open, so the gate's branches must come last.
        with dsl.If(plan.outputs["trains"] == "no", name="skip"):
            add_step("Record that nothing changed", skip_training, plan.outputs)
        with dsl.Elif(plan.outputs["trains"] == "yes", name="train"):
            if searched:
                options = pick(SearchOptions, vars(searched))
                chosen = _add_search(parameters, plan, options, planned)
                planned |= {"searched": chosen.outputs["values"], "skip_if_unchanged": False}
                planned["resume_from"] = chosen.outputs["directory"]
                title = "Plan the training with the values found"
                plan = add_step(title, plan_training, parameters, **planned)
            job = _add_training_job("Train", CustomTrainingJobOp, parameters, plan)
            _add_evaluation_steps(parameters, records, plan, job, run_options)


def _add_training_job(
    title: str, component: Any, parameters: dict[str, Any], plan: dsl.PipelineTask
) -> dsl.PipelineTask:
    job_options = pick(JobOptions, parameters)
    job_options["timeout"] = plan.outputs["timeout"]
    job_options["labels"] = plan.outputs["labels"]
    job = component(
        display_name=_RUN,
        worker_pool_specs=plan.outputs["worker_pool_specs"],
        base_output_directory=plan.outputs["base_output_directory"],
        strategy=parameters["scheduling_strategy"],
        **job_options,
    )
    return job.set_display_name(title).set_caching_options(False)


def _add_search(
    parameters: dict[str, Any],
    plan: dsl.PipelineTask,
    options: dict[str, Any],
    planned: dict[str, Any],
) -> dsl.PipelineTask:
    """Add a search, beside the training with the recipe's values; return the step that chooses."""
    defaults = _rename(CustomTrainingJobOp, "train-defaults")
    trained = _add_training_job("Train with the recipe's values", defaults, parameters, plan)
    common = {**parameters, **planned, "search": options, "title": _RUN}
    names = ("worker_pool_specs", "base_output_directory", "labels", "training")
    common |= {name: plan.outputs[name] for name in names}
    job = add_step("Plan the search", plan_search, common)
    found = search(job=job.outputs["job"], **_PROJECT_AND_LOCATION)
    found.set_display_name("Search").set_caching_options(False)
    return add_step("Choose the values", choose_values, common).after(trained, found)


@dsl.container_component
def search(
    job: str,
    project: str,
    location: str,
    gcp_resources: dsl.OutputPath(str),  # type: ignore[valid-type]
) -> dsl.ContainerSpec:
    """Run a HyperparameterTuningJob (JSON), and wait for its end."""
    # By Google's launcher: their own component has no timeout, scheduling, labels or early
    # stopping, and its package imports the SDK, which takes two seconds.
    return dsl.ContainerSpec(
        image=GCPC_IMAGE_TAG,
        command=["python3", "-u", "-m", _LAUNCHER],
        args=[
            *("--type", "HyperparameterTuningJob"),
            *("--payload", job),
            *("--project", project),
            *("--location", location),
            *("--gcp_resources", gcp_resources),
        ],
    )


def _rename(component: Any, name: str) -> Any:
    """Return a component whose tasks have another name."""
    renamed = copy.deepcopy(component)
    renamed.name = renamed.component_spec.name = name
    return renamed


def notified(run_options: RunOptions) -> AbstractContextManager[Any]:
    """Return a context that sends an e-mail when its steps end in any state, if `notify` is set."""
    # Not a parameter: KFP has no exit handler that a parameter can turn off.
    if not run_options.notify:
        return contextlib.nullcontext()
    mail = VertexNotificationEmailOp(recipients=list(run_options.notify))
    mail.set_display_name("Send an e-mail")
    return dsl.ExitHandler(mail, name="run")


def _add_evaluation_steps(
    parameters: dict[str, Any],
    records: Any,
    plan: dsl.PipelineTask,
    job: dsl.PipelineTask,
    run_options: RunOptions,
) -> None:
    """Add the steps after training: evaluation, the user's own steps, registration, deployment."""
    collected = add_step("Collect model and metrics", collect_training, plan.outputs)
    artifacts: dict[str, Any] = {
        "records": records,
        "model": collected.after(job).outputs["model"],
        "training": plan.outputs["training"],
    }
    evaluated = add_step(
        "Evaluate and compare with the champion",
        evaluate_model,
        parameters,
        machine=run_options.step_machines.evaluation,
        title=_RUN,
        **artifacts,
        **_PROJECT_AND_LOCATION,
    )
    available = {
        **parameters,
        **evaluated.outputs,
        **artifacts,
        **_PROJECT_AND_LOCATION,
        "run": _RUN,
    }
    for name in run_options.steps:
        user_steps.add(name, available)

    candidate = {**available, "configuration": plan.outputs["configuration"]}
    # A model without a role is not registered.
    with dsl.If(evaluated.outputs["role"] == CHAMPION, name="champion"):
        champion = add_step("Register as champion", register_model, candidate, role=CHAMPION)
        with dsl.If(parameters["deploy_champion"] == True, name="deploy"):  # noqa: E712
            add_step(
                "Deploy the champion",
                deploy_champion,
                {**candidate, **vars(run_options.serving)},
                registered=champion.outputs["registered"],
            )
    with dsl.Elif(evaluated.outputs["role"] != "", name="other"):
        add_step("Register without promotion", register_model, candidate)
