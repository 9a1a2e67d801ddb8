"""Test the records that create_tfrecords writes, their metadata and its errors."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from kfp import dsl
from PIL import Image

from components.create_tfrecords import create_tfrecords
from tests.components.artifacts import artifact
from trainer.data.write.record_options import EngineOptions, RecordOptions


def run(records, **options):
    unset = ("source_digest", "image", "service_account", "network", "encryption_spec_key_name")
    values = {
        **dataclasses.asdict(RecordOptions(image_size=8, channels=1, encoding="raw")),
        **dataclasses.asdict(EngineOptions()),
        **dict.fromkeys(unset, ""),
        **dict.fromkeys(("project", "location"), "local"),
    }
    create_tfrecords.python_func(records=records, **{**values, **options})


@pytest.fixture
def records(tmp_path):
    return artifact(dsl.Dataset, tmp_path / "records")


def content_of(records):
    return json.loads(Path(records.uri, "dataset.json").read_text())


def test_records_have_their_counts_as_metadata(records):
    run(records)
    counts = {name: split["examples"] for name, split in content_of(records)["splits"].items()}
    assert sum(counts.values()) == 1797
    assert records.metadata == {
        "classes": [str(digit) for digit in range(10)],
        "rejected": 0,
        **{f"{name}_examples": count for name, count in counts.items()},
    }


@pytest.mark.parametrize(("letters", "is_kept"), [(10, True), (80, False)])
def test_long_class_list_is_only_in_dataset_json(tmp_path, records, letters, is_kept):
    names = [f"{number:04}".ljust(letters, "x") for number in range(500)]
    for number, name in enumerate(names):
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        for shade in range(2):
            Image.new("L", (8, 8), number % 250 + shade).save(folder / f"{name[:4]}-{shade}.png")
    run(records, source=f"images:{tmp_path / 'in'}", split_fractions=[0.5, 0.25, 0.25])
    assert content_of(records)["classes"] == names
    assert records.metadata.get("classes") == (names if is_kept else None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size=0 is out of range"),
        ({"records_engine": "dataflow"}, "install the extra [dataflow]"),
    ],
)
def test_user_error_leaves_no_records(records, refused, monkeypatch, options, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert message in refused(run, records, **options)
    assert not Path(records.uri).exists()


def test_control_characters_in_file_names_are_escaped(tmp_path, records, refused):
    for name in ("cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "\x1b[2J\nerror: \u202egpj.é.jpg").touch()
    error = refused(run, records, source=f"images:{tmp_path / 'in'}")
    assert r"cat/\x1b[2J error: \u202egpj.é.jpg, dog/" in error
    assert r"dog/\x1b[2J error: \u202egpj.é.jpg: empty file" in error
