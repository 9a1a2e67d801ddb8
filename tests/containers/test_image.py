"""Test the image of components and replicas, built by `make image`."""

import json
import os

import pytest

from tests.containers.conftest import NAME, build, in_container, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
REBUILD_SECONDS = 15


@pytest.fixture(scope="module")
def image(engine, checkout):
    _, failure = build(engine, checkout, "first")
    assert not failure, failure[-3000:]
    yield f"{NAME}:first"
    run([engine, "rmi", "--force", f"{NAME}:first", f"{NAME}:second"])


def test_training_task_runs_without_root(engine, image):
    result = in_container(engine, image, "python3", "-m", "trainer.task", "--help")
    assert result.returncode == 0, result.stderr
    assert "--base_output_directory" in result.stdout
    script = "id -u; touch /app/x 2>/dev/null || echo read-only; touch ~/x && echo home"
    who = in_container(engine, image, "sh", "-c", script)
    assert who.stdout.split() == ["1000", "read-only", "home"]


def test_records_are_written_in_a_container(engine, image):
    script = (
        "from trainer.data.write.record_options import RecordOptions\n"
        "from trainer.data.write.writer import create_tfrecords\n"
        "options = RecordOptions(source='digits', image_size=8, channels=1)\n"
        "dataset = create_tfrecords(options, '/tmp/records', progress=lambda line: None)\n"
        "print(sum(split.examples for split in dataset.splits.values()))\n"
    )
    result = in_container(engine, image, "python3", "-c", script)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 1700


def test_image_is_labeled_with_version_and_commit(engine, image, checkout):
    shown = run([engine, "image", "inspect", "--format", "{{json .Config.Labels}}", image])
    labels = json.loads(shown.stdout)
    commit = run(["git", "rev-parse", "HEAD"], cwd=checkout).stdout.strip()
    assert labels["org.opencontainers.image.revision"].removesuffix("-dirty") == commit
    version = labels["org.opencontainers.image.version"]
    assert f'version = "{version}"' in (checkout / "pyproject.toml").read_text()


def test_changed_file_is_in_the_image_within_seconds(engine, image, checkout):
    with (checkout / "trainer" / "task.py").open("a") as file:
        file.write("# touched\n")
    seconds, failure = build(engine, checkout, "second")
    assert not failure, failure[-3000:]
    shown = in_container(engine, f"{NAME}:second", "tail", "-n", "1", "/app/trainer/task.py")
    assert shown.stdout == "# touched\n"
    # On a busy machine, the build waits for others.
    idle = os.getloadavg()[0] < 1.5 * (os.cpu_count() or 1)
    assert seconds < (REBUILD_SECONDS if idle else 8 * REBUILD_SECONDS)


def test_broken_image_is_not_built(engine, image, checkout):
    task = checkout / "trainer" / "task.py"
    text = task.read_text()
    task.write_text(f"import no_such_module\n{text}")
    try:
        _, failure = build(engine, checkout, "broken")
    finally:
        task.write_text(text)
    assert "no_such_module" in failure
