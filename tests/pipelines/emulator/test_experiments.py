"""Vertex AI's SDK logs experiments, pipeline runs and lineage to the emulator, and reads them."""

import json
import os
import subprocess
import sys

import pytest
from kfp import dsl

from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.local.package_runs import compile_to

PROGRAM = """
import json, sys, types
# The SDK gives rows to pandas, which nothing else here needs.
class Frame(list):
    columns = ()
    reindex = lambda self, *_, **__: self
sys.modules["pandas"] = types.SimpleNamespace(DataFrame=Frame)
from google.cloud import aiplatform as ai

FIT = "system.ContainerExecution"

ai.init(project="my-project", location="us-central1", experiment="price-search",
        experiment_description="rates", experiment_tensorboard=False)
for rate in (0.1, 0.2):
    with ai.start_run(f"rate-{int(10 * rate)}") as run:
        ai.log_params({"rate": rate, "kind": "sgd"})
        ai.log_metrics({"loss": 1 - rate})
        with ai.start_execution(schema_title=FIT, display_name="fit") as fit:
            data = ai.Artifact.create(schema_title="system.Dataset", display_name="rows",
                                      uri="gs://b/rows", metadata={"rows": 3})
            model = ai.Artifact.create(schema_title="system.Model", display_name="net")
            fit.assign_input_artifacts([data])
            fit.assign_output_artifacts([model])
frame = sorted(ai.get_experiment_df("price-search"), key=lambda row: row["run_name"])
names = ("run_name", "param.rate", "metric.loss", "state")
found = {"rows": [[row[name] for name in names] for row in frame]}
run = ai.ExperimentRun("rate-1", experiment="price-search")
run.update_state(ai.gapic.Execution.State.FAILED)
found["params"], found["metrics"] = run.get_params(), run.get_metrics()
found["state"] = run.state.name
found["experiments"] = [one.name for one in ai.Experiment.list()]
found["runs"] = sorted(one.name for one in ai.ExperimentRun.list(experiment="price-search"))
found["artifacts"] = [one.display_name for one in ai.Artifact.list('display_name="n*"')]
found["inputs"] = [one.display_name for one in fit.get_input_artifacts()]
found["outputs"] = [one.display_name for one in fit.get_output_artifacts()]
found["uri"] = ai.Artifact.get_with_uri("gs://b/rows").metadata
job = ai.PipelineJob(display_name="sums", template_path=sys.argv[1], parameter_values={"a": 5},
                     enable_caching=False)
job.submit(experiment="price-search")
job.wait()
found["of_job"] = job.get_associated_experiment().name
frame = ai.get_experiment_df("price-search")
(row,) = [row for row in frame if row["run_type"] == "system.PipelineRun"]
found["job"] = [row["param.a"], row["metric.score"], row["state"]]
pipeline = ai.get_pipeline_df("sums")[0]
found["pipeline"] = [pipeline["pipeline_name"], pipeline["param.input:a"], pipeline["metric.score"]]
ai.ExperimentRun("rate-1", experiment="price-search").delete()
found["left"] = sorted(one.name for one in ai.ExperimentRun.list(experiment="price-search"))
ai.Experiment("price-search").delete()
found["gone"] = [one.name for one in ai.Experiment.list()]
print(json.dumps(found))
"""


@dsl.component(base_image="example.com/image:1", install_kfp_package=False)
def score(a: int, metrics: dsl.Output[dsl.Metrics]):
    metrics.log_metric("score", a + 0.5)


@dsl.pipeline(name="sums")
def sums(a: int = 2):
    score(a=a)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    with emulated(tmp_path_factory.mktemp("emulator")) as rehearsal:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(compile_to(folder, sums))],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **rehearsal.variables},
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_runs_keep_parameters_and_metrics(found):
    assert found["rows"] == [
        ["rate-1", 0.1, 0.9, "COMPLETE"],
        ["rate-2", 0.2, 0.8, "COMPLETE"],
    ]
    assert found["params"] == {"rate": 0.1, "kind": "sgd"} and found["metrics"] == {"loss": 0.9}
    assert found["state"] == "FAILED"
    assert (found["experiments"], found["runs"]) == (["price-search"], ["rate-1", "rate-2"])


def test_lineage_is_read_back(found):
    assert (found["inputs"], found["outputs"]) == (["rows"], ["net"])
    assert found["artifacts"] == ["net", "net"] and found["uri"] == {"rows": 3}


def test_pipeline_job_is_a_run_of_its_experiment(found):
    assert found["of_job"] == "price-search"
    assert found["job"] == [5, 5.5, "COMPLETE"]
    assert found["pipeline"] == ["sums", 5, 5.5]


def test_deleted_runs_and_experiments_are_gone(found):
    assert "rate-1" not in found["left"] and "rate-2" in found["left"]
    assert found["gone"] == []
