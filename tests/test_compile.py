"""compile.py writes every recipe, the same bytes each time, or says in a line why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines import recipe

ROOT = Path(__file__).parents[1]


pytestmark = pytest.mark.usefixtures("elsewhere")


def written(directory):
    return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def test_all_recipes_are_written_and_the_same_bytes_twice():
    for seed in "12":
        command = [sys.executable, str(ROOT / "compile.py"), "--output-directory", seed]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert list(written(seed)) == [f"{name}.yaml" for name in recipe.names()]
        assert len(ended.stdout.splitlines()) == len(written(seed))
    assert written("1") == written("2")


def test_an_image_is_that_of_components_and_replicas_and_stays_until_another_is_named(
    tmp_path, compile_py
):
    image = "europe-docker.pkg.dev/project/repository/training:1"
    launcher = "gcr.io/ml-pipeline/google-cloud-pipeline-components:2.22.0"
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "digits.yaml").write_bytes(b"\xff\xfe of another program")
    for arguments in (["digits", "--image", image], ["digits"]):
        assert compile_py(*arguments)[0] == 0
        text = yaml.safe_load((tmp_path / "build" / "digits.yaml").read_text())
        executors = text["deploymentSpec"]["executors"].values()
        assert {executor["container"]["image"] for executor in executors} == {image, launcher}
        replicas = text["root"]["inputDefinitions"]["parameters"]["image_uri"]
        assert replicas["defaultValue"] == image
        workers = text["root"]["dag"]["tasks"]["create-tfrecords"]["inputs"]["parameters"]["image"]
        assert workers["runtimeValue"]["constant"] == image
    assert not (tmp_path / "build" / "flowers.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dgits"], "error: no recipe 'dgits'; did you mean 'digits'?"),
        (
            ["--image", "Not An Image"],
            "error: the command line: image='Not An Image' is not an image's",
        ),
        (
            ["digits", "--output-directory", "file/build"],
            "error: file/build/digits.yaml can't be written",
        ),
        (["--output-directory", ""], "error: --output-directory '' is empty"),
        (["--upload"], "error: no project: give --project, set GOOGLE_CLOUD_PROJECT"),
        (["--upload", "--project", "p"], "error: no template_repository: give"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(tmp_path, compile_py, arguments, message):
    (tmp_path / "file").touch()
    code, _, error = compile_py(*arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
