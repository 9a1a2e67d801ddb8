"""Google's clients serve a model and keep pipelines in a registry, on the emulator."""

import json
import os
import subprocess
import sys

import pytest

from tests.pipelines.emulator.test_official_clients import sums
from tests.pipelines.local.package_runs import compile_to
from vertex.emulator.local_project import LocalProject

SERVER = """
import http.server, json, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        instances = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
        body = json.dumps({"predictions": [2 * number for number in instances]}).encode()
        if instances == ["text"]:
            body = b"no JSON"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", int(os.environ["AIP_HTTP_PORT"])), Handler).serve_forever()
"""
MODELS = """
import json, sys
from google.api_core import exceptions
from google.cloud import aiplatform as ai, storage

ai.init(project="my-project", location="us-central1")
model = ai.Model.upload(
    display_name="net",
    serving_container_image_uri="us-central1-docker.pkg.dev/my-project/images/net:1",
    serving_container_command=["python3", sys.argv[1]],
    serving_container_predict_route="/predict",
    serving_container_health_route="/health",
)
endpoint = model.deploy(machine_type="n1-standard-4")
found = {"predict": endpoint.predict([1, 2]).predictions}
kind = {"Content-Type": "application/json"}
found["raw"] = endpoint.raw_predict(json.dumps({"instances": [3]}).encode(), kind).json()
try:
    endpoint.predict(["text"])
except exceptions.InvalidArgument as error:
    found["refused"] = str(error)
endpoint.undeploy_all()
storage.Client().bucket("my-project-training").blob("in.jsonl").upload_from_string("4\\n")
job = model.batch_predict(
    job_display_name="batch",
    gcs_source="gs://my-project-training/in.jsonl",
    gcs_destination_prefix="gs://my-project-training/out",
    machine_type="n1-standard-4",
)
lines = [blob.download_as_text() for blob in job.iter_outputs() if "results" in blob.name]
found["batch"] = json.loads("".join(lines))
print(json.dumps(found))
"""
TRAINING = """
import json
from google.cloud import aiplatform as ai, storage

ai.init(project="my-project", location="us-central1", staging_bucket="gs://my-project-training")
program = "import os; print('trained', os.environ['AIP_MODEL_DIR'])"
job = ai.CustomContainerTrainingJob(
    display_name="train",
    container_uri="python",
    command=["python3", "-c", program],
    model_serving_container_image_uri="us-central1-docker.pkg.dev/my-project/images/net:1",
)
model = job.run(
    model_display_name="net", machine_type="n1-standard-4", base_output_dir="gs://my-project-training/out"
)
found = {"state": job.state.name, "model": model.display_name, "uri": model.uri}
found["listed"] = [one.display_name for one in ai.CustomContainerTrainingJob.list()]
with open("script.py", "w") as script:
    script.write("import sys; print('script got', sys.argv[1:])")
local = ai.CustomJob.from_local_script(
    display_name="script",
    script_path="script.py",
    container_uri="us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    args=["--epochs=3"],
)
local.run()
found["script"] = local.state.name
failing = ai.CustomContainerTrainingJob(
    display_name="fail", container_uri="python", command=["python3", "-c", "raise SystemExit(3)"]
)
try:
    failing.run(machine_type="n1-standard-4")
except RuntimeError as error:
    found["failed"] = str(error)
print(json.dumps(found))
"""
REGISTRY = """
import json, sys
import requests
from google.cloud import aiplatform as ai
from kfp.registry import RegistryClient

client = RegistryClient(host="https://us-central1-kfp.pkg.dev/my-project/pipelines")
name, version = client.upload_pipeline(sys.argv[1], tags=["first", "latest"])
last = lambda items: sorted(item["name"].rpartition("/")[2] for item in items)
found = {"packages": last(client.list_packages()), "tags": last(client.list_tags(name))}
found["versions"] = last(client.list_versions(name)) == [version]
client.create_tag(name, version, "second")
client.delete_tag(name, "first")
found["then"] = last(client.list_tags(name))
found["target"] = client.get_tag(name, "second")["version"].endswith(version)
with open(client.download_pipeline(name, version=version, file_name="down.yaml")) as file:
    found["same"] = file.read() == open(sys.argv[1]).read()
ai.init(project="my-project", location="us-central1")
template = "https://us-central1-kfp.pkg.dev/my-project/pipelines/sums/latest"
job = ai.PipelineJob(display_name="sums", template_path=template, enable_caching=False)
job.run()
found["state"] = job.state.name
try:
    client.delete_version(name, version)
except requests.HTTPError as error:
    found["tagged"] = error.response.status_code
for tag in ("second", "latest"):
    client.delete_tag(name, tag)
client.delete_version(name, version)
client.delete_package(name)
found["left"] = client.list_packages()
print(json.dumps(found))
"""


def run(rehearsal, folder, program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **rehearsal.environment},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    with LocalProject(tmp_path_factory.mktemp("emulator")) as project:
        yield project


def test_model_is_deployed_and_predicts(project, tmp_path):
    (tmp_path / "serve.py").write_text(SERVER)
    found = run(project, tmp_path, MODELS, tmp_path / "serve.py")
    assert (found["predict"], found["raw"]) == ([2, 4], {"predictions": [6]})
    assert "The model server's response is not JSON: b'no JSON'" in found["refused"]
    assert found["batch"] == {"instance": 4, "prediction": 8}


def test_training_pipeline_trains_and_uploads_a_model(project, tmp_path):
    found = run(project, tmp_path, TRAINING)
    assert (found["state"], found["model"]) == ("PIPELINE_STATE_SUCCEEDED", "net")
    assert found["uri"] == "gs://my-project-training/out/model"
    assert found["listed"] == ["train"]
    assert found["script"] == "JOB_STATE_SUCCEEDED"
    (log,) = project.folder.glob("jobs/script*/chief-0.log")
    assert "script got ['--epochs=3']" in log.read_text()
    assert "exited with a non-zero status of 3" in found["failed"]


def test_pipelines_are_kept_in_a_registry(project, tmp_path):
    found = run(project, tmp_path, REGISTRY, compile_to(tmp_path, sums))
    assert found["packages"] == ["sums"] and found["tags"] == ["first", "latest"]
    assert found["versions"] and found["target"] and found["same"]
    assert found["then"] == ["latest", "second"]
    assert (found["state"], found["tagged"]) == ("PIPELINE_STATE_SUCCEEDED", 400)
    assert found["left"] == []
