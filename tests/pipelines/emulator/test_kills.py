"""The emulator after kill -9, a damaged file and a stuck model server.

Only through its command, its port and its files.
"""

import concurrent.futures
import contextlib

import psutil
import pytest

from tests.pipelines.conftest import started
from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.emulator.idle_services import MODEL, POOL, REQUESTS, changed
from tests.pipelines.local.conftest import wait_for

SLEEPING = changed(POOL, container_spec__command=["/bin/sh", "-c", "echo begun; exec sleep 600"])
PARENT = "projects/my-project/locations/us-central1"
MACHINE = {"machineSpec": {"machineType": "n1-standard-4"}, "minReplicaCount": 1}
SOON = 10.0
"""Seconds in which the API answers, whatever a model server does."""


def to_rest(content):
    """Convert a request's fields to the names of REST."""
    if isinstance(content, dict):
        return {
            "".join([first, *map(str.title, rest)]): to_rest(value)
            for key, value in content.items()
            for first, *rest in [key.split("_")]
        }
    return [*map(to_rest, content)] if isinstance(content, list) else content


def below(pid):
    return psutil.Process(pid).children(recursive=True)


def is_sleeping(process):
    """Return whether a process is the replica of the job of `create_job`, once it has begun."""
    return process.cmdline() == ["sleep", "600"]


def create_job(rehearsal):
    """Create a CustomJob that runs until it is ended; return its path below the location."""
    job = changed(REQUESTS["custom_job"], job_spec__worker_pool_specs=[SLEEPING])
    name = rehearsal.ask("POST", "customJobs", to_rest(job))["name"]
    return name.removeprefix(f"{PARENT}/")


def state_of(rehearsal, path):
    return rehearsal.ask("GET", path)["state"].removeprefix("JOB_STATE_")


def create_batch_prediction(rehearsal, folder):
    """Create a batch prediction job; return its path below the location."""
    (folder / "a.jsonl").write_text("[0]\n")
    model = to_rest({"model": {**MODEL, "artifact_uri": str(folder)}})
    assert "error" not in rehearsal.ask("POST", "models:upload", model)
    job = changed(
        REQUESTS["batch_prediction_job"],
        model=f"{PARENT}/models/1",
        input_config__gcs_source={"uris": [f"{folder}/a.jsonl"]},
        output_config__gcs_destination={"output_uri_prefix": f"{folder}/out"},
    )
    name = rehearsal.ask("POST", "batchPredictionJobs", to_rest(job))["name"]
    return name.removeprefix(f"{PARENT}/")


def test_jobs_of_a_killed_emulator_have_failed(tmp_path):
    with emulated(tmp_path) as rehearsal:
        job = create_job(rehearsal)
        wait_for(lambda: state_of(rehearsal, job) == "RUNNING")
        # A second emulator would take the runs of the first for killed ones.
        with started("emulator", cwd=tmp_path) as other:
            assert (other.wait(30), other.stdout.read()) == (2, "")
            assert "'emulated' is in use by another emulator" in other.stderr.read()
        batch = create_batch_prediction(rehearsal, tmp_path)
        # The model's server imports TensorFlow, which takes seconds.
        assert state_of(rehearsal, batch) == "PENDING"
        replicas = below(rehearsal.process.pid)
        rehearsal.kill()
    assert not psutil.wait_procs(replicas, 30)[1]
    with emulated(tmp_path) as rehearsal:
        killed = rehearsal.ask("GET", job)
        assert "process was killed" in killed["error"]["message"]
        assert killed["createTime"] <= killed["startTime"] <= killed["endTime"]
        for path in (job, batch):
            kind, _, _ = path.partition("/")
            killed = rehearsal.ask("GET", path)
            assert (killed["state"], killed["error"]["code"]) == ("JOB_STATE_FAILED", 13)
            assert [killed] == rehearsal.ask("GET", kind)[kind]
            # Vertex AI refuses no cancellation of a job that has ended.
            rehearsal.ask("POST", f"{path}:cancel")
            assert state_of(rehearsal, path) == "FAILED"
            rehearsal.ask("DELETE", path)
            assert rehearsal.ask("GET", kind) == {}


@pytest.mark.slow
def test_emulator_does_not_start_beside_processes_that_survived_another(tmp_path):
    with emulated(tmp_path) as rehearsal:
        create_job(rehearsal)
        emulator = psutil.Process(rehearsal.process.pid)
        wait_for(lambda: any(map(is_sleeping, emulator.children())))
        children = below(emulator.pid)
        replicas = [*filter(is_sleeping, children)]
        try:
            # Both are killed before the emulator can replace its guardian.
            emulator.suspend()
            for child in children:
                if child not in replicas:
                    child.kill()
            rehearsal.kill()
            with started("emulator", cwd=tmp_path) as other:
                assert other.wait(60) == 2
                error = other.stderr.read()
            assert "'emulated' is in use by another emulator (process " in error
            assert all(str(replica.pid) in error for replica in replicas)
        finally:
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


@pytest.mark.slow
def test_schedule_fires_once_for_a_time_also_after_a_kill(tmp_path):
    content = to_rest(REQUESTS["schedule"])
    content["createPipelineJobRequest"]["parent"] = PARENT
    with emulated(tmp_path) as rehearsal:
        path = rehearsal.ask("POST", "schedules", content)["name"].removeprefix(f"{PARENT}/")
        files = {file: file.read_bytes() for file in tmp_path.glob("emulated/**/schedules/*.json")}
        due = rehearsal.ask("GET", path)["nextRunTime"]
        rehearsal.forward(7)
        before = rehearsal.runs()
        assert len(before) == 1
        rehearsal.kill()
    # The emulator was killed when it had started the run, before it noted that.
    for file, text in files.items():
        file.write_bytes(text)
    with emulated(tmp_path) as rehearsal:
        wait_for(lambda: rehearsal.ask("GET", path)["nextRunTime"] > due)
        assert list(rehearsal.runs()) == list(before)
        schedule = rehearsal.ask("GET", path)
        response = schedule["lastScheduledRunResponse"]
        assert (schedule["startedRunCount"], response["scheduledRunTime"]) == ("1", due)
        assert response["runResponse"] == f"{PARENT}/pipelineJobs/{next(iter(before))}"


@pytest.mark.slow
def test_templates_experiments_and_clock_outlive_a_kill(tmp_path, on_emulator):
    store = "metadataStores/default"
    names = [f"{PARENT}/{store}/contexts/{name}" for name in ("digits", "mnist")]
    with emulated(tmp_path) as rehearsal:
        assert "\nuploaded  " in on_emulator(rehearsal, "compile digits --upload")
        for name in ("digits", "mnist"):
            rehearsal.ask("POST", f"{store}/contexts?contextId={name}", {"displayName": name})
        children = {"childContexts": names[1:]}
        rehearsal.ask("POST", f"{store}/contexts/digits:addContextChildren", children)
        rehearsal.forward(7)
        _, clock = rehearsal.send("GET", "/clock")
        rehearsal.kill()
    with emulated(tmp_path) as rehearsal:
        assert "\nunchanged  " in on_emulator(rehearsal, "compile digits --upload")
        context = rehearsal.ask("GET", f"{store}/contexts/mnist")
        assert context == {"name": names[1], "displayName": "mnist"}
        # A context is still above its children.
        path = f"/v1/{names[1]}:addContextChildren"
        code, answer = rehearsal.send("POST", path, {"childContexts": names[:1]})
        assert (code, "is above" in answer["error"]["message"]) == (400, True)
        assert rehearsal.send("GET", "/clock")[1]["now"] > clock["now"]


def model_servers(rehearsal):
    return [child for child in below(rehearsal.process.pid) if "trainer.serving" in child.cmdline()]


def deploy(rehearsal, number, uri):
    """Deploy a model; return the name of the operation, which is not done yet."""
    content = to_rest({"model": {**MODEL, "artifact_uri": uri}, "model_id": f"model-{number}"})
    rehearsal.ask("POST", "models:upload", content)
    deployed = {"id": f"{number}", "model": f"{PARENT}/models/model-{number}"}
    deployed["dedicatedResources"] = MACHINE
    request = {"deployedModel": deployed, "trafficSplit": {"0": 100}}
    return rehearsal.ask("POST", "endpoints/e:deployModel", request)["name"]


def is_done(rehearsal, operation):
    return rehearsal.ask("GET", operation.removeprefix(f"{PARENT}/")).get("done")


@pytest.mark.slow
def test_stuck_model_server_blocks_no_other_request(tmp_path, untrained_model):
    pixels = [[[0]] * 8] * 8

    def ask(*request):
        """Return an answer, which must come soon."""
        return pool.submit(rehearsal.ask, *request).result(SOON)

    def predict():
        path = f"/v1/{PARENT}/endpoints/e:predict"
        return rehearsal.send("POST", path, {"instances": [pixels]})

    with concurrent.futures.ThreadPoolExecutor(8) as pool, emulated(tmp_path) as rehearsal:
        rehearsal.ask("POST", "endpoints?endpointId=e", {"displayName": "e"})
        wait_for(lambda: rehearsal.send("GET", f"/v1/{PARENT}/endpoints/e")[0] == 200)
        operation = deploy(rehearsal, 1, untrained_model)
        wait_for(lambda: is_done(rehearsal, operation))
        (server,) = model_servers(rehearsal)
        server.suspend()
        predictions = [pool.submit(predict) for _ in range(5)]
        assert len(ask("GET", "endpoints")["endpoints"]) == 1
        assert not any(prediction.done() for prediction in predictions)
        server.resume()
        for prediction in predictions:
            assert prediction.result(60)[0] == 200
        # A server that is stuck while its model is deployed, or undeployed.
        second = deploy(rehearsal, 2, untrained_model)
        wait_for(lambda: is_done(rehearsal, second) or len(model_servers(rehearsal)) == 2)
        suspended = model_servers(rehearsal)
        for process in suspended:
            process.suspend()
        assert len(ask("GET", "endpoints")["endpoints"]) == 1
        request = {"deployedModelId": "1", "trafficSplit": {}}
        undeployed = ask("POST", "endpoints/e:undeployModel", request)["name"]
        assert not ask("GET", "endpoints/e").get("deployedModels")
        assert not is_done(rehearsal, second)
        for process in suspended:
            process.resume()
        wait_for(lambda: is_done(rehearsal, undeployed))
        assert not server.is_running()
        wait_for(lambda: is_done(rehearsal, second))


@pytest.mark.slow
def test_damaged_file_hides_its_own_resource_alone(tmp_path):
    schedule = to_rest(REQUESTS["schedule"])
    schedule["createPipelineJobRequest"]["parent"] = PARENT
    with emulated(tmp_path) as rehearsal:
        run = to_rest(REQUESTS["pipeline_job"])
        rehearsal.ask("POST", "pipelineJobs?pipelineJobId=first", run)
        kinds = [("schedules", schedule), ("endpoints", {"displayName": "e"})]
        for kind, content in kinds:
            for _ in range(2):
                rehearsal.ask("POST", kind, content)
        jobs = [create_job(rehearsal) for _ in range(2)]
        for path in jobs:
            wait_for(lambda path=path: state_of(rehearsal, path) == "RUNNING")
        rehearsal.kill()
        files = [
            *tmp_path.glob("emulated/**/schedules/1.json"),
            *tmp_path.glob("emulated/**/endpoints/1.json"),
            *tmp_path.glob("emulated/**/pipelineJobs/first.json"),
            *[path for path in tmp_path.rglob("job.json") if jobs[0] in path.read_text()],
        ]
        assert len(files) == 4
        for file in files:
            file.write_text("{")
    with emulated(tmp_path) as rehearsal:
        damaged = ("schedules/1", "endpoints/1", "pipelineJobs/first", jobs[0])
        for kind, name in [path.split("/") for path in damaged]:
            left = [resource["name"] for resource in rehearsal.ask("GET", kind).get(kind, ())]
            assert f"{PARENT}/{kind}/{name}" not in left
            assert len(left) == (kind != "pipelineJobs")
            code, answer = rehearsal.send("GET", f"/v1/{PARENT}/{kind}/{name}")
            assert (code, "json can't be read" in answer["error"]["message"]) == (400, True)
        # The other schedule still starts its runs.
        rehearsal.forward(7)
        assert len(rehearsal.runs()) == 1
    assert (tmp_path / "errors").read_text().count("can't be read") == 4
