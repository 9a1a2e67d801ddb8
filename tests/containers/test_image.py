"""The image itself, built by `make image` with the container engine of this machine.

IMAGE_BUILD_FLAGS is passed on to the engine, such as the flags that a machine behind a proxy
needs; IMAGE_BASE names another base image, with Python 3.11, than Docker Hub's.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.containers import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
NAME = "localhost/vertex-tensorflow-training-test"
REBUILD_SECONDS = 15


def run(arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def engine() -> str:
    """docker or podman, whichever works and has the base image or can get it."""
    base = os.environ.get("IMAGE_BASE", "docker.io/library/python:3.11-slim")
    reasons = []
    for name in ("docker", "podman"):
        if not shutil.which(name):
            reasons.append(f"{name} is not installed")
        elif run([name, "info"], timeout=60).returncode:
            reasons.append(f"{name} info fails")
        elif (
            run([name, "image", "inspect", base]).returncode
            and run([name, "pull", "--quiet", base], timeout=600).returncode
        ):
            reasons.append(f"{name} has no image {base} and can't pull it")
        else:
            return name
    pytest.skip("; ".join(reasons))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A clone of the commit, with the files of the image as they are here."""
    folder = tmp_path_factory.mktemp("checkout") / "project"
    subprocess.run(["git", "clone", "--quiet", str(files.ROOT), str(folder)], check=True)
    for name in ("containers", *files.copied_folders()):
        shutil.rmtree(folder / name, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(files.ROOT / name, folder / name, ignore=ignore)
    for name in ("Makefile", ".dockerignore", "pyproject.toml"):
        shutil.copy2(files.ROOT / name, folder / name)
    return folder


def build(engine: str, checkout: Path, tag: str, target: str = "cpu") -> tuple[float, str]:
    """Seconds that it took, and what it printed."""
    flags = os.environ.get("IMAGE_BUILD_FLAGS", "")
    if os.environ.get("IMAGE_BASE"):
        flags += f" --build-arg BASE={os.environ['IMAGE_BASE']}"
    start = time.monotonic()
    command = [
        "make",
        "image",
        f"ENGINE={engine}",
        f"IMAGE={NAME}",
        f"TAG={tag}",
        f"TARGET={target}",
    ]
    result = run([*command, f"BUILD_FLAGS={flags}"], cwd=checkout, timeout=1500)
    seconds = time.monotonic() - start
    return seconds, result.stdout + result.stderr if result.returncode else ""


@pytest.fixture(scope="module")
def image(engine, checkout):
    _, failure = build(engine, checkout, "first")
    assert not failure, failure[-3000:]
    yield f"{NAME}:first"
    run([engine, "rmi", "--force", f"{NAME}:first", f"{NAME}:second"])


@pytest.fixture(scope="module")
def serving_image(engine, checkout):
    _, failure = build(engine, checkout, "serving", "serving")
    assert not failure, failure[-3000:]
    yield f"{NAME}:serving"
    run([engine, "rmi", "--force", f"{NAME}:serving"])


def in_container(engine, image, *command):
    return run([engine, "run", "--rm", "--network=none", image, *command], timeout=300)


def test_the_training_task_answers_in_a_container_that_is_not_root(engine, image):
    result = in_container(engine, image, "python3", "-m", "trainer.task", "--help")
    assert result.returncode == 0, result.stderr
    assert "--base_output_directory" in result.stdout
    script = "id -u; touch /app/x 2>/dev/null || echo read-only; touch ~/x && echo home"
    who = in_container(engine, image, "sh", "-c", script)
    assert who.stdout.split() == ["1000", "read-only", "home"]


def test_a_component_writes_records_in_the_container(engine, image):
    script = (
        "from trainer.data.record_options import RecordOptions\n"
        "from trainer.data.write.writer import create_tfrecords\n"
        "options = RecordOptions(source='digits', image_size=8, channels=1)\n"
        "dataset = create_tfrecords(options, '/tmp/records', progress=lambda line: None)\n"
        "print(sum(split.examples for split in dataset.splits.values()))\n"
    )
    result = in_container(engine, image, "python3", "-c", script)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 1700


def test_the_image_says_its_version_and_commit(engine, image, checkout):
    shown = run([engine, "image", "inspect", "--format", "{{json .Config.Labels}}", image])
    labels = json.loads(shown.stdout)
    commit = run(["git", "rev-parse", "HEAD"], cwd=checkout).stdout.strip()
    assert labels["org.opencontainers.image.revision"].removesuffix("-dirty") == commit
    version = labels["org.opencontainers.image.version"]
    assert f'version = "{version}"' in (checkout / "pyproject.toml").read_text()


def test_a_changed_trainer_file_is_in_the_image_within_seconds(engine, image, checkout):
    with (checkout / "trainer" / "task.py").open("a") as file:
        file.write("# touched\n")
    seconds, failure = build(engine, checkout, "second")
    assert not failure, failure[-3000:]
    shown = in_container(engine, f"{NAME}:second", "tail", "-n", "1", "/app/trainer/task.py")
    assert shown.stdout == "# touched\n"
    # Only on a machine that is otherwise idle is its own time the measure.
    idle = os.getloadavg()[0] < 1.5 * (os.cpu_count() or 1)
    assert seconds < (REBUILD_SECONDS if idle else 8 * REBUILD_SECONDS)


def test_an_image_that_could_not_work_is_not_built(engine, image, checkout):
    task = checkout / "trainer" / "task.py"
    text = task.read_text()
    task.write_text(f"import no_such_module\n{text}")
    try:
        _, failure = build(engine, checkout, "broken")
    finally:
        task.write_text(text)
    assert "no_such_module" in failure


@contextlib.contextmanager
def deployed(engine, image, model):
    """A container's name and the port of this machine, run as Vertex AI runs it."""
    environment = {
        "AIP_STORAGE_URI": "/model",
        "AIP_HTTP_PORT": "9000",
        "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
        "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
        "AIP_DEPLOYED_MODEL_ID": "2",
        "AIP_MODE": "PREDICTION",
    }
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(model, folder / "model")
        folder.chmod(0o755)
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        options = ["--publish=127.0.0.1::9000", f"--volume={folder}/model:/model:ro", *variables]
        name = run([engine, "run", "--detach", *options, image]).stdout.strip()
        try:
            yield name, f"http://{run([engine, 'port', name, '9000']).stdout.strip()}"
        finally:
            run([engine, "rm", "--force", name])
    finally:
        shutil.rmtree(folder)


def asked(url, body=None):
    """Status and content of an answer; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, body, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError:
        return 0, None


def test_the_serving_image_answers_and_comes_back_when_killed(engine, serving_image, trained):
    body = json.dumps({"instances": [np.zeros((8, 8)).tolist()]}).encode()
    with deployed(engine, serving_image, trained / "model") as (name, address):
        url = f"{address}/v1/endpoints/1/deployedModels/2"

        def answer():
            end = time.monotonic() + 120
            while asked(url) != (200, {"model_version": "2"}):
                assert time.monotonic() < end, run([engine, "logs", name]).stderr
                time.sleep(0.1)
            return asked(f"{url}:predict", body)

        status, content = answer()
        assert (status, len(content["predictions"])) == (200, 1)
        assert run([engine, "exec", name, "id", "-u"]).stdout == "1000\n"
        assert asked(f"{url}:predict", b'{"instances": [3]}')[0] == 400
        run([engine, "kill", "--signal=KILL", name])
        run([engine, "start", name])
        assert answer() == (200, content)
        run([engine, "stop", "--time=15", name])
        state = run([engine, "inspect", "--format", "{{.State.ExitCode}}", name])
        assert state.stdout == "0\n"
