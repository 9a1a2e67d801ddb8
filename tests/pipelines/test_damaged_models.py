"""A damaged file of a champion or of the registry is named in one line, and never believed."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from components.registry.model_upload import MADE_BY
from tests.refusals import refused
from tests.registry_service import ModelService, candidate, exported, registry_at
from trainer.exported import model_files
from trainer.serving.predictor import Predictor
from vertex_emulator.model_service import FOLDER_NAME

pytestmark = pytest.mark.usefixtures("elsewhere")
FLIPS = 12


@pytest.fixture
def model(tmp_path, untrained_model):
    """The champion of digits, registered with the digests of its files."""
    folder = shutil.copytree(untrained_model, tmp_path / "model")
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        registry.register("digits", exported(str(folder)), "champion", "")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("scan.png")
    return folder


def flip_a_bit(file: Path, whole: bytes, generator: random.Random) -> None:
    damaged = bytearray(whole)
    damaged[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
    file.write_bytes(damaged)


def error_of(result) -> str:
    """Return the only line on stderr of a command that was refused."""
    code, _, errors = result
    assert code in (1, 2)
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    "name",
    ["saved_model.pb", "variables/variables.data-00000-of-00001", "assets.extra/dataset.json",
     model_files.LIST],
)  # fmt: skip
def test_flipped_bit_of_a_champion_is_named(command, model, name):
    file, generator = model / name, random.Random(name)
    whole = file.read_bytes()
    for _ in range(FLIPS):
        flip_a_bit(file, whole, generator)
        line = error_of(command("predict digits scan.png"))
        assert "digits@1" in line
        assert str(file) in line


def test_missing_file_and_another_model_are_named(command, model, trained):
    (model / "fingerprint.pb").rename(model / "moved.pb")
    assert "fingerprint.pb is missing" in error_of(command("predict digits scan.png"))
    shutil.rmtree(model)
    shutil.copytree(trained / "model", model)
    assert "the folder holds another model" in error_of(command("serve digits"))


def test_champion_without_digests_warns(command, tmp_path, untrained_model):
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        registry.register("digits", candidate(untrained_model, labels=MADE_BY), "champion", "")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("scan.png")
    code, _, errors = command("predict digits scan.png")
    assert code == 0
    assert "warning: digits@1 was registered without digests" in errors


def test_flipped_bit_of_the_registry_is_named_or_harmless(command, model):
    file, generator = Path("runs", FOLDER_NAME, "models", "digits.json"), random.Random(0)
    whole = file.read_bytes()
    before = command("promote digits --local")[1]
    assert "champion" in before
    for _ in range(4 * FLIPS):
        flip_a_bit(file, whole, generator)
        result = command("promote digits --local")
        assert result[1] == before or str(file) in error_of(result)


def test_registry_of_the_version_before_is_read(command, model):
    file = Path("runs", FOLDER_NAME, "models", "digits.json")
    content = json.loads(file.read_bytes())
    assert content.pop("sha256")
    file.write_text(json.dumps(content))
    assert "champion" in command("promote digits --local")[1]


def test_server_refuses_another_model_than_the_registered(model, monkeypatch):
    monkeypatch.setenv("MODEL_DIGEST", model_files.identify(str(model)))
    Predictor().load(str(model))
    monkeypatch.setenv("MODEL_DIGEST", "0" * 32)
    assert "another model than the registered one" in refused(Predictor().load, str(model))
