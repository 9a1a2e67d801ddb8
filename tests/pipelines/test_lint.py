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


def two_documents(pipeline):
    return yaml.safe_dump(pipeline) + "---\nplatforms: {}\n"


def unknown_field(pipeline):
    pipeline["root"]["dag"]["taskz"] = {}


def unknown_executor_field(pipeline):
    pipeline["deploymentSpec"]["executors"]["exec-plan-training"]["containr"] = {}


def pasted_channel(pipeline):
    task = pipeline["root"]["dag"]["tasks"]["plan-training"]
    task["taskInfo"]["name"] = "{{channel:task=train;name=gcp_resources;type=String;}}"


def artifact_in_a_dict(pipeline):
    """As KFP compiles {"records": records}, where records is an artifact."""
    source = {"producerTask": "create-tfrecords", "outputParameterKey": "records"}
    task = pipeline["root"]["dag"]["tasks"]["plan-training"]
    task["inputs"]["parameters"]["records"] = {"taskOutputParameter": source}


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (two_documents, "2 YAML documents"),
        (unknown_field, "not a PipelineSpec: .*taskz"),
        (unknown_executor_field, "not a PipelineSpec: .*containr"),
        (pasted_channel, "line [0-9]+: a text contains a reference to an output"),
        (artifact_in_a_dict, "plan-training: a dict or list contains the artifact 'records'"),
    ],
)
def test_a_broken_pipeline_is_refused_with_the_rule(compiled, break_it, message):
    pipeline = copy.deepcopy(compiled)
    text = break_it(pipeline) or yaml.safe_dump(pipeline)
    with pytest.raises(lint.InvalidPipelineError, match=message):
        lint.check_pipeline(text)


def test_a_whole_pipeline_passes(compiled):
    lint.check_pipeline(yaml.safe_dump(compiled))


@pytest.mark.parametrize("name", recipe.names())
def test_the_pools_of_every_recipe_are_ones_that_vertex_ai_takes(name):
    check_pools(worker_pool_specs(recipe.load(name).parameters.machines, ["--config=c"]))
