"""The emulator answers and refuses REST requests as Vertex AI does."""

import concurrent.futures
import functools
import threading

import pytest
import yaml
from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from kfp import dsl

from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.emulator.idle_services import PARENT, POOL, REQUESTS
from tests.pipelines.local.conftest import wait_for
from tests.pipelines.local.package_runs import compile_to

HERE = f"/v1/{PARENT}"
RUN, SCHEDULE = REQUESTS["pipeline_job"], REQUESTS["schedule"]
MODEL = {"displayName": "d", "artifactUri": "gs://b/m"}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Send a request to an emulator; return the HTTP status and the content of the answer."""
    with emulated(tmp_path_factory.mktemp("emulator")) as rehearsal:
        ask = functools.partial(rehearsal.send)
        ask.folder = rehearsal.folder
        assert ask("POST", f"{HERE}/models:upload", {"model": MODEL, "modelId": "d"})[0] == 200
        assert ask("POST", f"{HERE}/schedules", SCHEDULE)[0] == 200
        yield ask


@pytest.mark.parametrize(
    ("verb", "path", "content", "reason"),
    [
        ("POST", "/models:upload", {"model": {"bogus": 1}}, 'no field named "bogus"'),
        ("POST", "/models:upload", {"model": {"displayName": 3}}, "displayName"),
        ("POST", "/models:upload", '{"model": ', "Invalid JSON payload"),
        ("POST", "/models:upload", '{"model":' * 100_000, "Invalid JSON payload"),
        ("DELETE", "/models/d@1", None, "models/d@1 names a version"),
        ("POST", "/schedules", {**SCHEDULE, "startTime": "9999-12-31T00:00:00Z"}, "never matches"),
        ("POST", "/models:upload", '{"model": {"metadata": 1e999}}', "metadata"),
        ("POST", "/models:upload", [], "Root element must be a message"),
        ("POST", "/models:upload", {}, "model is required"),
        ("POST", "/endpoints/1:undeployModel", {}, "deployed_model_id is required"),
        ("POST", "/endpoints/1:predict", {}, "instances is required"),
        ("POST", "/customJobs", {"jobSpec": {"scheduling": {"strategy": "NEVER"}}}, "value NEVER"),
        ("GET", "/models?bogus=1", None, 'no field named "bogus"'),
        ("GET", "/models?pageToken=garbage", None, "page_token 'garbage'"),
        ("GET", "/models?pageToken=%C2%B2", None, "page_token"),
        ("GET", f"/models?pageToken={'9' * 5000}", None, "page_token"),
        ("GET", "/models?pageSize=-1", None, "page_size is -1"),
        ("GET", "/models?pageSize=many", None, "pageSize"),
        ("GET", "/models?filter=cost%3D3", None, "'cost' is not a field of Model"),
        ("POST", "/metadataStores/default/executions?executionId=A", {}, "execution_id 'A' is not"),
        ("GET", "/models?orderBy=cost", None, "'cost' is not a field of Model"),
        ("GET", "/models?readMask=name,bogus", None, "read_mask 'name,bogus'"),
        ("PATCH", "/models/d?updateMask=bogus", {}, "update_mask 'bogus'"),
        ("PATCH", "/models/d?updateMask=artifactUri", {}, "artifact_uri, which is not updatable"),
        ("PATCH", "/schedules/1?updateMask=state", {"state": "PAUSED"}, "state, which is not"),
        ("PATCH", "/schedules/1?updateMask=createPipelineJobRequest.bogus", {}, "update_mask"),
    ],
)
def test_malformed_request_is_an_invalid_argument(ask, verb, path, content, reason):
    code, answer = ask(verb, HERE + path, content)
    error = answer["error"]
    assert (code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert reason in error["message"]


@pytest.mark.parametrize(
    ("verb", "path", "content"),
    [
        ("POST", "/v2/entries:list", "{"),
        ("POST", "/v2/entries:list", {}),
        ("POST", "/clock:forward", {"days": "x"}),
        ("POST", "/clock:forward", {"days": -1}),
        ("POST", "/clock:forward", {"days": 4_000_000}),
        ("POST", "/v1/projects/my-project:testIamPermissions", "x"),
        ("POST", "/my-project/pipelines", "x"),
        ("POST", "/upload/storage/v1/b/bucket/o", "x"),
        ("GET", "/storage/v1/b/my-project-training/o?pageToken=x", None),
    ],
)
def test_malformed_request_to_another_api_is_invalid(ask, verb, path, content):
    code, answer = ask(verb, path, content)
    assert (code, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", ["models/none", "models/d@7", "models/d@", f"models/{400 * 'x'}"])
def test_unknown_resource_is_not_found(ask, path):
    code, answer = ask("GET", f"{HERE}/{path}")
    assert (code, answer["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["nothing", "models/d:x", "featurestores"])
def test_what_is_not_emulated_is_unimplemented_by_name(ask, path):
    code, answer = ask("GET", f"{HERE}/{path}")
    assert (code, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
    assert f"{path} is not emulated" in answer["error"]["message"]


def test_patch_sets_a_boolean_to_false(ask):
    for value in (True, False):
        content, path = {"allowQueueing": value}, f"{HERE}/schedules/1?updateMask=allowQueueing"
        assert ask("PATCH", path, content)[1].get("allowQueueing", False) is value


def test_mask_names_fields_in_both_cases(ask):
    for mask in ("display_name,max_run_count", "displayName,maxRunCount"):
        content = {"displayName": f"d {mask}", "maxRunCount": "7"}
        assert ask("PATCH", f"{HERE}/schedules/1?updateMask={mask}", content)[0] == 200
        _, answer = ask("GET", f"{HERE}/schedules/1")
        assert answer["displayName"] == f"d {mask}"
    _, answer = ask("GET", f"{HERE}/models?readMask=name,display_name")
    assert answer["models"] == [{"name": f"{HERE[4:]}/models/d", "displayName": "d"}]


def test_output_only_fields_of_requests_are_ignored(ask):
    model = {**MODEL, "deployedModels": [{"endpoint": "e", "deployedModelId": "1"}]}
    parent = f"{HERE[4:]}/models/d"
    assert ask("POST", f"{HERE}/models:upload", {"model": model, "parentModel": parent})[0] == 200
    assert "deployedModels" not in ask("GET", f"{HERE}/models/d@2")[1]


def test_runs_of_two_regions_have_their_own_folders(ask):
    for place in (HERE, HERE.replace("us-central1", "europe-west4")):
        name = f"{place[4:]}/pipelineJobs/twin"
        code, answer = ask("POST", f"{place}/pipelineJobs?pipelineJobId=twin", RUN)
        assert (code, answer["name"]) == (200, name)
        _, answer = ask("GET", f"{place}/pipelineJobs")
        assert [job["name"] for job in answer["pipelineJobs"]] == [name]
    folders = sorted(folder.name for folder in ask.folder.glob("emulated/runs/twin*"))
    assert folders == ["twin.europe-west4.123456", "twin.us-central1.123456"]


def test_requests_at_the_same_moment_are_all_answered(ask):
    count = 60
    together = threading.Barrier(count)

    def create(number):
        together.wait()
        path = f"{HERE}/endpoints?endpointId=endpoint-{number}"
        return ask("POST", path, {"displayName": "digits"})[1]["name"]

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        assert len(set(pool.map(create, range(count)))) == count
    assert len(ask("GET", f"{HERE}/endpoints?pageSize=100")[1]["endpoints"]) == count


def test_object_is_downloaded_by_either_path(ask):
    file = ask.folder / "emulated/buckets/bucket/folder/object.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"one": 1}')
    for path in ("/storage/v1/b/bucket/o/", "/download/storage/v1/b/bucket/o/"):
        assert ask("GET", f"{path}folder%2Fobject.json?alt=media") == (200, {"one": 1})


def run_to_end(ask, package, parameters):
    """Run a compiled pipeline on the emulator; return its PipelineJob when it has ended."""
    config = {**RUN["runtime_config"], "parameterValues": parameters}
    spec = yaml.safe_load(package.read_text())
    job = {**RUN, "pipelineSpec": spec, "runtimeConfig": config}
    del job["pipeline_spec"], job["runtime_config"]
    path = f"/v1/{ask('POST', f'{HERE}/pipelineJobs', job)[1]['name']}"
    ended = ("PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_FAILED")
    return wait_for(lambda: (now := ask("GET", path)[1])["state"] in ended and now)


@dsl.component(base_image="example.com/image:1", install_kfp_package=False)
def fail_once(folder: str, number: int):
    import pathlib

    attempts = pathlib.Path(folder, str(number))
    first = not attempts.exists()
    attempts.touch()
    if first or number == 2:
        raise ValueError("a lost connection")


@dsl.pipeline(name="retried")
def retried(folder: str, numbers: list):
    with dsl.ParallelFor(items=numbers) as number:
        task = fail_once(folder=folder, number=number).set_caching_options(False)
        task.set_retry(1, backoff_duration="0s")


@pytest.mark.parametrize(
    ("numbers", "states"),
    [([0, 1], ["SUCCEEDED", "SUCCEEDED"]), ([0, 2], ["SUCCEEDED", "FAILED"])],
)
def test_tasks_are_retried_and_a_failed_iteration_fails_the_run(ask, tmp_path, numbers, states):
    assert ask("POST", f"{HERE}/customJobs", {})[0] == 400  # Which is no reason of the run's.
    parameters = {"folder": str(tmp_path), "numbers": numbers}
    job = run_to_end(ask, compile_to(tmp_path, retried), parameters)
    tasks = {task["taskId"]: task for task in job["jobDetail"]["taskDetails"]}
    steps = [task for task in tasks.values() if task["taskName"] == "fail-once"]
    assert [task["state"] for task in steps] == states
    parents = [tasks[task["parentTaskId"]]["taskName"] for task in steps]
    assert parents == ["for-loop-1-iteration-0", "for-loop-1-iteration-1"]
    state = "FAILED" if "FAILED" in states else "SUCCEEDED"
    assert job["state"] == f"PIPELINE_STATE_{state}"
    if state == "FAILED":
        assert job["error"]["message"].endswith("ValueError: a lost connection")


@dsl.pipeline(name="retried-job")
def retried_job(pools: list):
    job = CustomTrainingJobOp(
        display_name="train", worker_pool_specs=pools, base_output_directory="gs://bucket/job"
    )
    job.set_caching_options(False).set_retry(1, backoff_duration="0s")


def test_task_whose_second_job_succeeds_succeeds(ask, tmp_path):
    program = "import os; first = not os.path.exists('ran'); open('ran', 'w'); exit(first)"
    command = ["python", "-c", program.replace("'ran'", repr(str(tmp_path / "ran")))]
    pool = {**POOL, "container_spec": {**POOL["container_spec"], "command": command}}
    job = run_to_end(ask, compile_to(tmp_path, retried_job), {"pools": [pool]})
    assert job["state"] == "PIPELINE_STATE_SUCCEEDED", job["error"]
    jobs = ask("GET", f"{HERE}/customJobs")[1]["customJobs"]
    assert sorted(job["state"] for job in jobs) == ["JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED"]


@dsl.component(base_image="example.com/image:1", install_kfp_package=False)
def write_words(words: dsl.Output[dsl.Dataset]):
    import pathlib

    pathlib.Path(words.path).write_text("words")


@dsl.pipeline(name="writes-words")
def words_written():
    write_words()


def test_reused_output_is_an_object_of_the_first_run_alone(ask, tmp_path):
    package = compile_to(tmp_path, words_written)
    first, second = (run_to_end(ask, package, {}) for _ in range(2))
    assert [task["state"] for task in second["jobDetail"]["taskDetails"]][-1] == "SKIPPED"
    listed = ask("GET", "/storage/v1/b/bucket/o")[1]["items"]
    places = [name for one in listed if (name := one["name"]).endswith("/words")]
    assert [
        any(run["name"].split("/")[-1] in name for name in places) for run in (first, second)
    ] == [True, False]
