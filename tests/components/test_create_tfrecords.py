"""The first step writes records at its artifact's URI and says how many."""

import dataclasses
import importlib.util
import json

import pytest
from kfp import dsl
from PIL import Image

from components.create_tfrecords import create_tfrecords
from tests.components.artifacts import artifact
from trainer.data.record_options import EngineOptions, RecordOptions


def run(records, **options):
    values = {
        **dataclasses.asdict(RecordOptions(image_size=8, channels=1, encoding="raw")),
        **dataclasses.asdict(EngineOptions()),
        **dict.fromkeys(
            ("source_digest", "image", "service_account", "network", "encryption_spec_key_name"), ""
        ),
        **dict.fromkeys(("project", "location"), "local"),
    }
    create_tfrecords.python_func(records=records, **{**values, **options})


def test_records_lie_at_the_artifacts_uri_with_their_counts_as_metadata(tmp_path):
    records = artifact(dsl.Dataset, tmp_path / "records")
    run(records)
    content = json.loads((tmp_path / "records" / "dataset.json").read_text())
    counts = {name: split["examples"] for name, split in content["splits"].items()}
    assert sum(counts.values()) == 1797
    assert records.metadata == {
        "classes": [str(digit) for digit in range(10)],
        "rejected": 0,
        **{f"{name}_examples": count for name, count in counts.items()},
    }


@pytest.mark.parametrize(("letters", "kept"), [(10, True), (80, False)])
def test_a_class_list_that_later_steps_could_not_take_is_left_to_dataset_json(
    tmp_path, letters, kept
):
    names = [f"{number:04}".ljust(letters, "x") for number in range(500)]
    for name in names:
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        for shade in range(2):
            Image.new("L", (8, 8), len(list((tmp_path / "in").iterdir())) % 251 + shade).save(
                folder / f"{name[:4]}-{shade}.png"
            )
    records = artifact(dsl.Dataset, tmp_path / "records")
    run(records, source=f"images:{tmp_path / 'in'}", split_fractions=[0.5, 0.25, 0.25])
    content = json.loads((tmp_path / "records" / "dataset.json").read_text())
    assert content["classes"] == names
    assert records.metadata.get("classes") == (names if kept else None)


def test_a_mistake_ends_the_step_with_one_line_and_no_records(tmp_path, refused):
    error = refused(run, artifact(dsl.Dataset, tmp_path / "records"), image_size=0)
    assert error.startswith("image_size=0 is out of range")
    assert not (tmp_path / "records" / "dataset.json").exists()


def test_names_of_files_can_not_write_on_the_terminal(tmp_path, refused):
    for name in ("cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "\x1b[2J\nerror: \u202egpj.é.jpg").touch()
    records = artifact(dsl.Dataset, tmp_path / "records")
    error = refused(run, records, source=f"images:{tmp_path / 'in'}")
    assert r"cat/\x1b[2J error: \u202egpj.é.jpg, dog/" in error
    assert r"dog/\x1b[2J error: \u202egpj.é.jpg: empty file" in error


def test_an_engine_that_is_not_installed_ends_the_step_with_its_remedy(
    tmp_path, refused, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    records = artifact(dsl.Dataset, tmp_path / "records")
    assert "install the extra [dataflow]" in refused(run, records, records_engine="dataflow")
    both = {"records_engine": "dataflow", "records_store": str(tmp_path / "store")}
    assert "is for records_engine='local'; Dataflow" in refused(run, records, **both)
    assert not (tmp_path / "records").exists()
