"""compile.py writes every recipe, the same bytes each time, or says in a line why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines import recipe

ROOT = Path(__file__).parents[1]


def compile_py(directory, *arguments, **environment):
    settings = ("GOOGLE_", "CLOUDSDK_", "VERTEX_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    return subprocess.run(
        [sys.executable, str(ROOT / "compile.py"), *arguments],
        cwd=directory,
        env={**own, "HOME": str(directory), **environment},
        capture_output=True,
        text=True,
    )


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def images(directory, name="digits"):
    executors = yaml.safe_load((directory / f"{name}.yaml").read_text())["deploymentSpec"]
    return {executor["container"]["image"] for executor in executors["executors"].values()}


def test_all_recipes_are_written_and_the_same_bytes_twice(tmp_path):
    first = compile_py(tmp_path, PYTHONHASHSEED="1")
    assert first.returncode == 0, first.stderr
    written = contents(tmp_path / "build")
    assert list(written) == [f"{name}.yaml" for name in recipe.names()]
    assert len(first.stdout.splitlines()) == len(written)
    again = compile_py(tmp_path, "--output-directory", "again", PYTHONHASHSEED="2")
    assert again.returncode == 0, again.stderr
    assert contents(tmp_path / "again") == written


def test_an_image_is_that_of_components_and_replicas_and_stays_until_another_is_named(tmp_path):
    image = "europe-docker.pkg.dev/project/repository/training:1"
    launcher = "gcr.io/ml-pipeline/google-cloud-pipeline-components:2.22.0"
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "digits.yaml").write_bytes(b"\xff\xfe of another program")
    for arguments in (["digits", "--image", image], ["digits"]):
        assert compile_py(tmp_path, *arguments).returncode == 0
        assert images(tmp_path / "build") == {image, launcher}
        text = yaml.safe_load((tmp_path / "build" / "digits.yaml").read_text())
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
def test_a_mistake_is_one_line_and_leaves_no_file(tmp_path, arguments, message):
    (tmp_path / "file").touch()
    result = compile_py(tmp_path, *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
