"""compile.py writes recipes, the same bytes each time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.child_processes import ROOT
from tests.pipelines.conftest import RECIPES

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_all_recipes_compile_to_the_same_bytes_twice(succeed):
    command = [sys.executable, str(ROOT / "compile.py"), "--output-directory", "one"]
    # This process has another seed.
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    written = {path.name: path.read_bytes() for path in Path("one").iterdir()}
    assert written.keys() >= {f"{name}.yaml" for name in RECIPES}
    assert len(ended.stdout.splitlines()) == len(written)
    succeed("compile digits chicago_taxi --output-directory two")
    again = {path.name: path.read_bytes() for path in Path("two").iterdir()}
    assert again.items() <= written.items() and len(again) == 2


def test_image_is_compiled_in_and_kept_until_changed(tmp_path, succeed):
    image = "europe-docker.pkg.dev/project/repository/training:1"
    launcher = "gcr.io/ml-pipeline/google-cloud-pipeline-components:2.22.0"
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "digits.yaml").write_bytes(b"\xff\xfe of another program")
    for flags in (f"--image {image}", ""):
        succeed(f"compile digits {flags}")
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
        ("dgits", "no recipe 'dgits'; did you mean 'digits'?"),
        ("--image 'Not An Image'", "the command line: image='Not An Image' is not an image's"),
        ("digits --output-directory file/build", "file/build/digits.yaml can't be written"),
        ("--upload", "no project: give --project, set GOOGLE_CLOUD_PROJECT"),
        ("--upload --project p", "no template_repository: give"),
    ],
)
def test_mistake_leaves_no_file(tmp_path, refused, arguments, message):
    (tmp_path / "file").touch()
    assert refused(f"compile {arguments}").startswith(f"error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
