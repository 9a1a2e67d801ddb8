"""The compiled pipeline: its tasks, its parameters, its cache, and the job it submits."""

import itertools
import json
import re

import pytest
import yaml
from google.cloud.aiplatform_v1.types import CustomJob
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

from pipelines import compilation, recipe
from pipelines.parameters import PARAMETERS
from pipelines.training import LOCATION_PLACEHOLDER, PROJECT_ID_PLACEHOLDER
from trainer import fields
from trainer.machines.worker_pools import IMAGE, worker_pool_specs

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
KFP_TYPES = {
    str: "STRING",
    int: "NUMBER_INTEGER",
    float: "NUMBER_DOUBLE",
    bool: "BOOLEAN",
    list: "LIST",
    dict: "STRUCT",
}


@pytest.fixture(scope="module")
def pipeline():
    return yaml.safe_load(compilation.compiled(recipe.load("digits"), IMAGE))


def all_tasks(pipeline):
    dags = [pipeline["root"], *pipeline["components"].values()]
    return {
        name: task for dag in dags for name, task in dag.get("dag", {}).get("tasks", {}).items()
    }


def executed_tasks(pipeline):
    return {
        name: task
        for name, task in all_tasks(pipeline).items()
        if "executorLabel" in pipeline["components"][task["componentRef"]["name"]]
    }


def test_every_parameter_is_in_the_console_with_its_description_type_and_default(pipeline):
    inputs = pipeline["root"]["inputDefinitions"]["parameters"]
    defaults = recipe.load("digits").parameters.values()
    assert {
        name: (
            definition["parameterType"],
            definition["description"].partition("] ")[2],
            definition["defaultValue"],
        )
        for name, definition in inputs.items()
    } == {
        name: (KFP_TYPES[fields.type_of(group, name)], field.metadata["help"], defaults[name])
        for name, (group, field) in PARAMETERS.items()
    }
    assert all(definition["isOptional"] for definition in inputs.values())


def test_every_task_has_a_display_name_and_only_records_are_cached(pipeline):
    tasks = executed_tasks(pipeline)
    assert {name: task["taskInfo"]["name"] for name, task in tasks.items()} == {
        "fingerprint-source": "List the source",
        "create-tfrecords": "Create TFRecords",
        "plan-training": "Plan the training job",
        "skip-training": "Record that nothing changed",
        "custom-training-job": "Train",
        "collect-training": "Collect model and metrics",
        "evaluate-model": "Evaluate and compare with the champion",
        "register-model": "Register as champion",
        "deploy-champion": "Deploy the champion",
        "register-model-2": "Register as challenger",
    }
    cached = {name for name, task in tasks.items() if task["cachingOptions"].get("enableCache")}
    assert cached == {"create-tfrecords"}


def test_steps_are_retried_and_the_training_job_is_not(pipeline):
    tasks = executed_tasks(pipeline)
    policies = {name: task.get("retryPolicy") for name, task in tasks.items()}
    assert policies.pop("custom-training-job") is None
    retried = {"maxRetryCount": 2, "backoffDuration": "30s", "backoffFactor": 2.0}
    retried["backoffMaxDuration"] = "3600s"
    assert policies == dict.fromkeys(policies, retried)


def conditions(pipeline, task):
    """The conditions of the branches that depend on the outputs of a task."""
    return [
        other["triggerPolicy"]["condition"]
        for other in all_tasks(pipeline).values()
        if f"pipelinechannel--{task}-" in other.get("triggerPolicy", {}).get("condition", "")
    ]


def test_records_hang_on_what_the_source_holds(pipeline):
    inputs = all_tasks(pipeline)["create-tfrecords"]["inputs"]["parameters"]
    assert inputs["source_digest"]["taskOutputParameter"] == {
        "producerTask": "fingerprint-source",
        "outputParameterKey": "digest",
    }


def test_steps_get_what_they_need_to_know(pipeline):
    tasks, executors = all_tasks(pipeline), pipeline["deploymentSpec"]["executors"]
    inputs = {name: task["inputs"].get("parameters", {}) for name, task in tasks.items()}
    sets = inputs["plan-training"]["recipe_sets"]["runtimeValue"]["constant"]
    assert sets == sorted(recipe.load("digits").given)
    registering = ("register-model", "register-model-2")
    for name in ("create-tfrecords", "plan-training", "evaluate-model", *registering):
        place = [inputs[name][one]["runtimeValue"]["constant"] for one in ("project", "location")]
        assert place == [PROJECT_ID_PLACEHOLDER, LOCATION_PLACEHOLDER]
    for name in ("create-tfrecords", *registering):
        for one in ["encryption_spec_key_name", "network"][
            : 2 if name == "create-tfrecords" else 1
        ]:
            assert inputs[name][one]["componentInputParameter"].endswith(one)
    assert "custom-training-job" in tasks["collect-training"]["dependentTasks"]
    for name in executors.keys() - {"exec-custom-training-job"}:
        assert {"name": "_KFP_RUNTIME", "value": "true"} in executors[name]["container"]["env"]


def test_there_is_a_training_job_only_where_the_plan_says_so(pipeline):
    skips, trains = conditions(pipeline, "plan-training")
    plan = "inputs.parameter_values['pipelinechannel--plan-training-trains']"
    assert skips == f"{plan} == 'no'"
    assert trains == f"!({skips}) && {plan} == 'yes'"
    dags = {
        name: one["dag"]["tasks"] for name, one in pipeline["components"].items() if "dag" in one
    }
    (beside_the_job,) = (tasks for tasks in dags.values() if "custom-training-job" in tasks)
    assert {"collect-training", "evaluate-model"} <= beside_the_job.keys()
    assert {"skip-training"} in [tasks.keys() for tasks in dags.values()]


def test_a_model_is_registered_in_the_role_that_the_gate_gave_it(pipeline):
    champion, challenger = conditions(pipeline, "evaluate-model")
    role = "inputs.parameter_values['pipelinechannel--evaluate-model-role']"
    assert champion == f"{role} == 'champion'"
    assert challenger == f"!({champion}) && {role} == 'challenger'"
    tasks = all_tasks(pipeline)
    for name, role in (("register-model", "champion"), ("register-model-2", "challenger")):
        inputs = tasks[name]["inputs"]["parameters"]
        assert inputs["role"]["runtimeValue"]["constant"] == role
        assert inputs["model_name"]["componentInputParameter"].endswith("model_name")


def test_a_recipes_model_is_called_like_it():
    for name in recipe.names():
        assert recipe.load(name).parameters.registry.model_name == name


def submitted_job(pipeline, **values):
    """The CustomJob that the launcher makes of its payload, placeholders filled in."""
    task = all_tasks(pipeline)["custom-training-job"]["inputs"]["parameters"]
    defaults = pipeline["components"]["comp-custom-training-job"]["inputDefinitions"]["parameters"]
    parameters = recipe.load("digits").with_values(values, place="test").values()
    filled = {name: d["defaultValue"] for name, d in defaults.items() if "defaultValue" in d}
    for name, source in task.items():
        outer = source.get("componentInputParameter", "").removeprefix("pipelinechannel--")
        if outer in parameters:
            filled[name] = parameters[outer]
    filled |= {
        "display_name": "digits-1",
        "worker_pool_specs": worker_pool_specs(recipe.load("digits").parameters.machines),
        "base_output_directory": "gs://bucket/run",
        # Planned, for max_cost shortens it; without one it is the parameter.
        "timeout": parameters["timeout"],
        "labels": {**parameters["labels"], "run": "digits-1"},
        # Vertex AI resolves this one to nothing where the run has no persistent resource.
        "persistent_resource_id": "",
    }
    executor = pipeline["deploymentSpec"]["executors"]["exec-custom-training-job"]["container"]
    payload = dict(itertools.pairwise(executor["args"]))["--payload"]

    def fill(match):
        value = filled[match[1]]
        return value if isinstance(value, str) else json.dumps(value)

    payload = re.sub(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}", fill, payload)
    return json_util.recursive_remove_empty(json.loads(payload))


def test_options_that_are_empty_are_not_sent(pipeline):
    job = submitted_job(pipeline)
    assert set(job) == {"display_name", "job_spec", "labels"}
    assert set(job["job_spec"]) == {"worker_pool_specs", "scheduling", "base_output_directory"}
    assert job["job_spec"]["scheduling"] == {
        "timeout": "3600s",
        "restart_job_on_worker_restart": True,
        "strategy": "STANDARD",
        "max_wait_duration": "86400s",
    }
    CustomJob(job)


def test_options_that_are_given_are_sent_under_their_names(pipeline):
    given = {
        "service_account": "trainer@project.iam.gserviceaccount.com",
        "network": "projects/1/global/networks/n",
        "tensorboard": "projects/1/locations/us-central1/tensorboards/2",
        "enable_web_access": True,
    }
    job = submitted_job(
        pipeline,
        scheduling_strategy="SPOT",
        timeout="600s",
        labels={"team": "vision"},
        encryption_spec_key_name=KEY,
        **given,
    )
    parsed = CustomJob(job)
    assert {name: getattr(parsed.job_spec, name) for name in given} == given
    assert parsed.job_spec.scheduling.strategy.name == "SPOT"
    assert parsed.job_spec.scheduling.timeout.total_seconds() == 600
    assert parsed.labels == {"team": "vision", "run": "digits-1"}
    assert parsed.encryption_spec.kms_key_name == KEY
