"""Components take just what trainer/ can be told, described in its words."""

import dataclasses

import pytest

from components.create_tfrecords import create_tfrecords
from components.evaluate_model import evaluate_model
from components.fingerprint_source import fingerprint_source
from components.plan_training import plan_training
from trainer import fields
from trainer.config import TrainingConfig
from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.evaluation.gate import GateOptions
from trainer.machines.worker_pools import MachineOptions

KFP_TYPES = {
    str: "String",
    int: "Integer",
    float: "Float",
    bool: "Boolean",
    list: "List",
    dict: "Dict",
}


@pytest.mark.parametrize(
    ("component", "own", "groups"),
    [
        (
            create_tfrecords,
            {"source_digest", "image", "service_account", "network", "encryption_spec_key_name"}
            | {"project", "location"},
            [RecordOptions, EngineOptions],
        ),
        (
            plan_training,
            {"records", "timeout", "max_cost", "price_per_hour", "rates", "rates_of"}
            | {
                "scheduling_strategy",
                "max_wait_duration",
                "recipe_sets",
                "skip_if_unchanged",
                "resume_from",
                "labels",
                "run",
                "class_floors",
                "model_name",
                "project",
                "location",
            },
            [TrainingConfig, MachineOptions],
        ),
        (
            evaluate_model,
            {"model", "records", "training", "title", "slice_columns"}
            | {"model_name", "project", "location"},
            [GateOptions],
        ),
    ],
)
def test_a_component_has_an_input_for_each_field_of_its_options_and_no_more(component, own, groups):
    inputs = component.component_spec.inputs
    expected = {}
    for group in reversed(groups):
        for field in dataclasses.fields(group):
            kind = KFP_TYPES[fields.type_of(group, field.name)]
            expected[field.name] = (kind, field.metadata["help"])
    assert {
        name: (spec.type, spec.description) for name, spec in inputs.items() if name not in own
    } == expected
    assert inputs.keys() - expected.keys() == own
    assert all(inputs[name].description for name in own)


def test_the_source_is_listed_by_what_tells_where_it_is():
    inputs = fingerprint_source.component_spec.inputs
    help_texts = {field.name: field.metadata["help"] for field in dataclasses.fields(RecordOptions)}
    assert {name: spec.description for name, spec in inputs.items()} == {
        name: help_texts[name] for name in ("source", "data_dir")
    }
