"""Each parameter, option and column is described by itself, also in the docs."""

import dataclasses
import json
import re

from pipelines import recipe
from pipelines.parameters import PARAMETERS
from tests.child_processes import ROOT
from trainer import fields
from trainer.data.tables.columns import KEYS, Column, Cross
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES

DOCS = ROOT / "docs"
OPTIONS = [*MODELS.values(), *(backbone.options for backbone in BACKBONES.values())]
_POINTS_ELSEWHERE = re.compile(
    r"\b(this|these|those|the same)\b|\b(of|in|on|by|from|with|for|to) that\b|\bThat\b"
)


def row(group, field):
    """Return a field's row in a table of the docs."""
    kind, default = fields.type_of(group, field.name).__name__, fields.default_of(field)
    return f"| {field.name} | {kind} | {json.dumps(default)} | {field.metadata['help']} |"


def test_description_names_all_choices():
    choices = {name: field.metadata["choices"] for name, (_, field) in PARAMETERS.items()}
    choices["model"] = MODELS
    assert all(choices[name] for name in ("optimizer", "champion_rule", "accelerator_type"))
    for name, (_, field) in PARAMETERS.items():
        words = {"", *re.findall(r"[\w-]+", field.metadata["help"])}
        assert set(map(str, choices[name] or ())) <= words, name


def test_description_stands_alone():
    described = [field for _, field in PARAMETERS.values()]
    described += [field for group in OPTIONS for field in dataclasses.fields(group)]
    for field in described:
        assert not _POINTS_ELSEWHERE.search(field.metadata["help"]), field.name


def test_page_on_sources_has_every_column_type(tmp_path):
    page = (DOCS / "sources.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^####? (\w+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    groups = {**dict.fromkeys(KEYS, Column), "crosses": Cross}
    for kind, group in groups.items():
        (example,) = re.findall(r"^`(\{.*\})`$", sections[kind], re.MULTILINE)
        assert json.loads(example).get("type", "crosses") == kind
        rows = sections[kind].replace("`", "").splitlines()
        for field in dataclasses.fields(group):
            assert (row(group, field) in rows) == (field.name in KEYS.get(kind, (field.name,)))
    (tmp_path / "trips.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    records = recipe.load("trips", tmp_path).parameters.records
    assert {column["type"] for column in records.columns} == set(KEYS)


def test_page_on_models_has_every_option_and_backbone():
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    rows = page.replace("`", "").splitlines()
    for name, backbone in BACKBONES.items():
        assert f"| {name} | {backbone.layers} | {backbone.tail} | {backbone.min_size} |" in rows
    assert {row(group, field) for group in OPTIONS for field in dataclasses.fields(group)} <= {
        *rows
    }
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sorted(headings[: len(MODELS)]) == list(MODELS)
