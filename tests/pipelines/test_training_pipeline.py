"""The compiled pipeline has the right parameters, tasks, branches and training job."""

import itertools
import json
import re

import pytest
import yaml
from google.cloud.aiplatform_v1.types import CustomJob
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

from components.planning.worker_pools import IMAGE, build_worker_pool_specs
from pipelines import compilation, recipe
from pipelines.parameters import PARAMETERS, TOPICS
from pipelines.training_pipeline import LOCATION_PLACEHOLDER, PROJECT_ID_PLACEHOLDER
from trainer import fields

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
KFP_TYPES = {str: "STRING", bool: "BOOLEAN", list: "LIST", dict: "STRUCT"}
KFP_TYPES |= {int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}


@pytest.fixture(scope="module")
def pipeline():
    return yaml.safe_load(compilation.compile_yaml(recipe.load("digits"), IMAGE))


def all_tasks(pipeline):
    dags = [pipeline["root"], *pipeline["components"].values()]
    return {
        name: task for dag in dags for name, task in dag.get("dag", {}).get("tasks", {}).items()
    }


@pytest.fixture(scope="module")
def executed_tasks(pipeline):
    return {
        name: task
        for name, task in all_tasks(pipeline).items()
        if "executorLabel" in pipeline["components"][task["componentRef"]["name"]]
    }


def test_every_parameter_has_its_type_description_and_default(pipeline):
    inputs = pipeline["root"]["inputDefinitions"]["parameters"]
    defaults = recipe.load("digits").parameters.values()
    topics = {group: topic.capitalize() for topic, group in TOPICS.items()}
    assert inputs == {
        name: {
            "parameterType": KFP_TYPES[fields.type_of(group, name)],
            "description": f"[{topics[group]}] {field.metadata['help']}",
            "defaultValue": defaults[name],
            "isOptional": True,
        }
        for name, (group, field) in PARAMETERS.items()
    }


def test_tasks_have_display_names_and_only_records_are_cached(executed_tasks):
    assert {name: task["taskInfo"]["name"] for name, task in executed_tasks.items()} == {
        "fingerprint-source": "List the source",
        "create-tfrecords": "Create TFRecords",
        "plan-training": "Plan the training job",
        "skip-training": "Record that nothing changed",
        "custom-training-job": "Train",
        "collect-training": "Collect model and metrics",
        "evaluate-model": "Evaluate and compare with the champion",
        "register-model": "Register as champion",
        "deploy-champion": "Deploy the champion",
        "register-model-2": "Register without promotion",
    }
    options = {name: task["cachingOptions"] for name, task in executed_tasks.items()}
    assert [name for name, task in options.items() if task.get("enableCache")] == [
        "create-tfrecords"
    ]


def test_every_task_but_the_training_job_is_retried(executed_tasks):
    policies = {name: task.get("retryPolicy") for name, task in executed_tasks.items()}
    assert policies.pop("custom-training-job") is None
    pauses = {"backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "3600s"}
    assert all(policy == {"maxRetryCount": 2, **pauses} for policy in policies.values())


def test_tasks_get_their_inputs(pipeline):
    tasks, executors = all_tasks(pipeline), pipeline["deploymentSpec"]["executors"]
    inputs = {name: task["inputs"].get("parameters", {}) for name, task in tasks.items()}
    assert inputs["create-tfrecords"]["source_digest"]["taskOutputParameter"] == {
        "producerTask": "fingerprint-source",
        "outputParameterKey": "digest",
    }
    sets = inputs["plan-training"]["recipe_sets"]["runtimeValue"]["constant"]
    assert sets == sorted(recipe.load("digits").given)
    registering = ("register-model", "register-model-2")
    for name in ("create-tfrecords", "plan-training", "evaluate-model", *registering):
        place = [inputs[name][key]["runtimeValue"]["constant"] for key in ("project", "location")]
        assert place == [PROJECT_ID_PLACEHOLDER, LOCATION_PLACEHOLDER]
    parameters_by_task = [
        (name, "encryption_spec_key_name") for name in ("create-tfrecords", *registering)
    ]
    for name, key in [*parameters_by_task, ("create-tfrecords", "network")]:
        assert inputs[name][key]["componentInputParameter"].endswith(key)
    assert "custom-training-job" in tasks["collect-training"]["dependentTasks"]
    for name in executors.keys() - {"exec-custom-training-job"}:
        assert {"name": "_KFP_RUNTIME", "value": "true"} in executors[name]["container"]["env"]


def conditions(pipeline, task):
    """Return the conditions of the branches that depend on the outputs of a task."""
    texts = [
        branch.get("triggerPolicy", {}).get("condition", "")
        for branch in all_tasks(pipeline).values()
    ]
    return [text for text in texts if f"pipelinechannel--{task}-" in text]


def test_plan_decides_whether_a_job_trains(pipeline):
    skips, trains = conditions(pipeline, "plan-training")
    plan = "inputs.parameter_values['pipelinechannel--plan-training-trains']"
    assert skips == f"{plan} == 'no'"
    assert trains == f"!({skips}) && {plan} == 'yes'"
    dags = [
        set(component["dag"]["tasks"])
        for component in pipeline["components"].values()
        if "dag" in component
    ]
    (branch,) = (tasks for tasks in dags if "custom-training-job" in tasks)
    assert {"collect-training", "evaluate-model"} <= branch
    assert {"skip-training"} in dags


def test_gate_decides_the_role_of_the_model(pipeline):
    champion, other = conditions(pipeline, "evaluate-model")
    role = "inputs.parameter_values['pipelinechannel--evaluate-model-role']"
    assert champion == f"{role} == 'champion'"
    assert other == f"!({champion}) && {role} != ''"
    tasks = all_tasks(pipeline)
    inputs = tasks["register-model"]["inputs"]["parameters"]
    assert inputs["role"]["runtimeValue"]["constant"] == "champion"
    inputs = tasks["register-model-2"]["inputs"]["parameters"]
    assert inputs["role"]["componentInputParameter"].endswith("evaluate-model-role")
    assert inputs["model_name"]["componentInputParameter"].endswith("model_name")


def submitted_job(pipeline, **values):
    """Return the CustomJob that the launcher makes of its payload, placeholders filled in."""
    task = all_tasks(pipeline)["custom-training-job"]["inputs"]["parameters"]
    defaults = pipeline["components"]["comp-custom-training-job"]["inputDefinitions"]["parameters"]
    parameters = recipe.load("digits").with_values(values, origin="test").values()
    filled = {name: d["defaultValue"] for name, d in defaults.items() if "defaultValue" in d}
    for name, source in task.items():
        outer = source.get("componentInputParameter", "").removeprefix("pipelinechannel--")
        if outer in parameters:
            filled[name] = parameters[outer]
    filled |= {
        "display_name": "digits-1",
        "worker_pool_specs": build_worker_pool_specs(recipe.load("digits").parameters.machines),
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


def test_empty_options_of_the_job_are_left_out(pipeline):
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


def test_given_options_of_the_job_are_sent(pipeline):
    values = {
        "service_account": "trainer@project.iam.gserviceaccount.com",
        "network": "projects/1/global/networks/n",
        "tensorboard": "projects/1/locations/us-central1/tensorboards/2",
        "enable_web_access": True,
    }
    others = {"scheduling_strategy": "SPOT", "timeout": "600s", "labels": {"team": "vision"}}
    job = CustomJob(submitted_job(pipeline, encryption_spec_key_name=KEY, **others, **values))
    assert {name: getattr(job.job_spec, name) for name in values} == values
    assert job.job_spec.scheduling.strategy.name == "SPOT"
    assert job.job_spec.scheduling.timeout.total_seconds() == 600
    assert job.labels == {"team": "vision", "run": "digits-1"}
    assert job.encryption_spec.kms_key_name == KEY
