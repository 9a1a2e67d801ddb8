"""Each rule of the lint finds the document that breaks it, and the compiled ones break none."""

import copy

import pytest
import yaml

from pipelines import compilation, lint, recipe
from tests.components.plans import check_pools
from trainer.machines.worker_pools import IMAGE, worker_pool_specs


@pytest.fixture(scope="module")
def compiled():
    return yaml.safe_load(compilation.compiled(recipe.load("digits"), IMAGE))


def tasks(pipeline):
    return pipeline["root"]["dag"]["tasks"]


def branch(pipeline):
    """The tasks of the branch that trains."""
    dags = [one["dag"]["tasks"] for one in pipeline["components"].values() if "dag" in one]
    return next(found for found in dags if "custom-training-job" in found)


def two_documents(pipeline):
    return yaml.safe_dump(pipeline) + "---\nplatforms: {}\n"


def unknown_field(pipeline):
    pipeline["root"]["dag"]["taskz"] = {}


def unknown_executor_field(pipeline):
    pipeline["deploymentSpec"]["executors"]["exec-plan-training"]["containr"] = {}


def artifact_as_parameter(pipeline):
    branch(pipeline)["evaluate-model"]["inputs"]["parameters"]["slice_columns"] = {
        "taskOutputParameter": {"producerTask": "collect-training", "outputParameterKey": "model"}
    }


def missing_output(pipeline):
    source = branch(pipeline)["evaluate-model"]["inputs"]["artifacts"]["model"]
    source["taskOutputArtifact"]["outputArtifactKey"] = "modle"


def mistyped_parameter(pipeline):
    branch(pipeline)["custom-training-job"]["inputs"]["parameters"]["worker_pool_specs"] = {
        "componentInputParameter": "pipelinechannel--plan-training-base_output_directory"
    }


def mistyped_artifact(pipeline):
    branch(pipeline)["evaluate-model"]["inputs"]["artifacts"]["model"] = {
        "componentInputArtifact": "pipelinechannel--create-tfrecords-records"
    }


def unknown_producer(pipeline):
    source = branch(pipeline)["evaluate-model"]["inputs"]["artifacts"]["model"]
    source["taskOutputArtifact"]["producerTask"] = "gather"


def unknown_dependency(pipeline):
    branch(pipeline)["collect-training"]["dependentTasks"].append("job")


def pasted_channel(pipeline):
    branch(pipeline)["evaluate-model"]["inputs"]["parameters"]["title"] = {
        "runtimeValue": {"constant": "{{channel:task=train;name=gcp_resources;type=String;}}"}
    }


def input_without_a_value(pipeline):
    del tasks(pipeline)["plan-training"]["inputs"]["parameters"]["epochs"]


def value_without_an_input(pipeline):
    tasks(pipeline)["plan-training"]["inputs"]["parameters"]["epoch"] = {
        "componentInputParameter": "epochs"
    }


def unknown_parameter(pipeline):
    del pipeline["root"]["inputDefinitions"]["parameters"]["epochs"]


def unknown_component(pipeline):
    tasks(pipeline)["plan-training"]["componentRef"]["name"] = "comp-plan"


def unknown_executor(pipeline):
    del pipeline["deploymentSpec"]["executors"]["exec-plan-training"]


def no_image(pipeline):
    pipeline["deploymentSpec"]["executors"]["exec-plan-training"]["container"]["image"] = ""


def unknown_placeholder(pipeline):
    container = pipeline["deploymentSpec"]["executors"]["exec-custom-training-job"]["container"]
    container["args"].append("{{$.inputs.parameters['zone']}}")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (two_documents, "2 YAML documents"),
        (unknown_field, "not a PipelineSpec: .*taskz"),
        (unknown_executor_field, "not a PipelineSpec: .*containr"),
        (artifact_as_parameter, "has no 'model' among its parameters; it is one of its artifact"),
        (missing_output, "'collect-training' has no 'modle' among its artifacts"),
        (mistyped_parameter, "'worker_pool_specs' is a LIST, but is given a STRING"),
        (mistyped_artifact, "'model' is a system.Model, but is given a system.Dataset"),
        (unknown_producer, "comes from 'gather', which is not a task of this DAG"),
        (unknown_dependency, "depends on 'job', which is not a task of this DAG"),
        (pasted_channel, "evaluate-model.*a text contains a reference to an output"),
        (input_without_a_value, "root/plan-training: 'epochs' of its parameters has no value"),
        (value_without_an_input, "gives 'epoch', which is not among the component's parameters"),
        (unknown_parameter, "takes 'epochs', which is not among the enclosing parameters"),
        (unknown_component, "no component 'comp-plan'"),
        (unknown_executor, "no executor 'exec-plan-training'"),
        (no_image, "exec-plan-training: no image"),
        (unknown_placeholder, "refers to inputs 'zone', which comp-custom-training-job lacks"),
    ],
)
def test_a_broken_pipeline_is_refused_with_place_and_rule(compiled, break_it, message):
    pipeline = copy.deepcopy(compiled)
    text = break_it(pipeline) or yaml.safe_dump(pipeline)
    with pytest.raises(lint.InvalidPipelineError, match=message):
        lint.check_pipeline(text)


def test_a_whole_pipeline_passes(compiled):
    lint.check_pipeline(yaml.safe_dump(compiled))


@pytest.mark.parametrize("name", recipe.names())
def test_the_pools_of_every_recipe_are_ones_that_vertex_ai_takes(name):
    check_pools(worker_pool_specs(recipe.load(name).parameters.machines, ["--config=c"]))
