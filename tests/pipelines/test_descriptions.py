"""The compiled pipeline describes each parameter by itself: the console shows no other help."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml

from pipelines import compilation, recipe
from pipelines.parameters import PARAMETERS, TOPICS
from trainer import fields
from trainer.data.tables.columns import KEYS, Column, Cross
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES

_POINTS_ELSEWHERE = re.compile(
    r"\b(this|these|those|the same)\b|\b(of|in|on|by|from|with|for|to) that\b|\bThat\b"
)


@pytest.fixture(scope="module")
def inputs():
    text = compilation.compiled(recipe.load("digits"), "image:latest")
    return yaml.safe_load(text)["root"]["inputDefinitions"]["parameters"]


def test_each_description_begins_with_the_topic(inputs):
    topics = {group: topic.capitalize() for topic, group in TOPICS.items()}
    assert inputs.keys() == PARAMETERS.keys()
    for name, (group, _) in PARAMETERS.items():
        assert inputs[name]["description"].startswith(f"[{topics[group]}] ")


def test_a_description_names_all_choices(inputs):
    with_choices = {
        name: [str(choice) for choice in field.metadata["choices"] if choice != ""]
        for name, (_, field) in PARAMETERS.items()
        if field.metadata["choices"]
    }
    assert {"optimizer", "champion_rule", "accelerator_type"} <= set(with_choices)
    for name, choices in with_choices.items():
        assert set(choices) <= set(re.findall(r"[\w-]+", inputs[name]["description"])), name
    assert set(MODELS) <= set(re.findall(r"[\w-]+", inputs["model"]["description"]))


def test_no_description_leans_on_that_of_another(inputs):
    options = [*MODELS.values(), *(backbone.options for backbone in BACKBONES.values())]
    of_models = [field.metadata["help"] for group in options for field in dataclasses.fields(group)]
    for text in [*(definition["description"] for definition in inputs.values()), *of_models]:
        assert not _POINTS_ELSEWHERE.search(text), text


def test_the_page_on_sources_has_every_type_of_column(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^####? (\w+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    groups = {**dict.fromkeys(KEYS, Column), "crosses": Cross}
    for kind, group in groups.items():
        (example,) = re.findall(r"^`(\{.*\})`$", sections[kind], re.MULTILINE)
        assert json.loads(example).get("type", "crosses") == kind
        rows = [row.replace("`", "") for row in sections[kind].splitlines()]
        for field in dataclasses.fields(group):
            default = json.dumps(fields.default_of(field))
            name = fields.type_of(group, field.name).__name__
            row = f"| {field.name} | {name} | {default} | {field.metadata['help']} |"
            assert (row in rows) == (field.name in KEYS.get(kind, (field.name,)))
    (tmp_path / "trips.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    records = recipe.load("trips", tmp_path).parameters.records
    assert {column["type"] for column in records.columns} == set(KEYS)


def test_the_page_on_models_has_every_option_and_backbone():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [row.replace("`", "") for row in page.splitlines() if row.startswith("| ")]
    for name, backbone in BACKBONES.items():
        assert f"| {name} | {backbone.layers} | {backbone.tail} | {backbone.min_size} |" in rows
    groups = [*MODELS.values(), *(backbone.options for backbone in BACKBONES.values())]
    for group in groups:
        for field in dataclasses.fields(group):
            default = json.dumps(fields.default_of(field))
            kind = fields.type_of(group, field.name).__name__
            row = f"| {field.name} | {kind} | {default} | {field.metadata['help']} |"
            assert row in rows
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sorted(headings[: len(MODELS)]) == list(MODELS)
