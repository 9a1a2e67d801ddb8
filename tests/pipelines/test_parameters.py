"""Parameters are declared and described once, also in the docs; values are checked before a run."""

import dataclasses
import functools
import json
import re

import pytest

from pipelines import recipe
from pipelines.parameters import GROUPS, PARAMETERS, change_machines, check_parameters
from tests.child_processes import ROOT
from tests.refusals import refused
from trainer import fields
from trainer.data.tables.columns import KEYS, Column, Cross, SplitBy
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES
from trainer.tasks.label_kinds import KINDS
from trainer.training.optimizers import OPTIMIZERS
from vertex.facts import resource_names
from vertex.formats import choices

PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15"
REGION = "projects/p/locations/us-central1"
KEY = f"{REGION}/keyRings/r/cryptoKeys/k"
TABLE = {"source": "csv:trips.csv", "model": "wide_and_deep"}
TABLE |= {"columns": [{"name": "hour", "type": "numeric"}], "label": {"column": "a", "above": 1}}
PHOTOS = {"model": "transfer", "fine_tune_epochs": 1}
SERVERS = {"ps_count": 1, "worker_count": 1}
DATAFLOW = {"records_engine": "dataflow"}
MANY_FLOORS = {f"class-{n:060}": 0.5 for n in range(1000)}


def chief(machine_type, accelerator, count=1, **others):
    accelerators = {"accelerator_type": accelerator, "accelerator_count": count}
    return {"chief_machine_type": machine_type, **accelerators, **others}


def transfer(**model_options):
    return {**PHOTOS, "model_options": model_options}


def mobilenet(**options):
    return transfer(backbone="MobileNet", backbone_options=options)


L4 = chief("g2-standard-8", "NVIDIA_L4")
T4 = chief("n1-standard-8", "NVIDIA_TESLA_T4")
FLEXIBLE = {**L4, "scheduling_strategy": "FLEX_START"}


def test_shared_parameter_is_declared_alike_in_both_groups():
    for group in GROUPS:
        for field in dataclasses.fields(group):
            first, same = PARAMETERS[field.name]
            assert fields.type_of(group, field.name) is fields.type_of(first, field.name)
            assert fields.default_of(field) == fields.default_of(same)
            assert field.metadata["choices"] == same.metadata["choices"]
    parameters = check_parameters({"augmentation": "model"}, origin="x")
    assert parameters.records.augmentation == parameters.training.augmentation == "model"


def test_defaults_are_valid():
    values = check_parameters({}, origin="defaults").values()
    assert list(values) == list(PARAMETERS)
    assert check_parameters(values, origin="defaults").values() == values


@pytest.mark.parametrize(
    "values",
    [
        {"network": "projects/12345/global/networks/my-vpc"},
        {"champion_metric": "log_loss", "confidence": 0.9999},
        {"confidence": 0.99995},
        {"encryption_spec_key_name": KEY},
        {"encryption_spec_key_name": KEY.replace("/p/", "/example.com:p/")},
        {"service_account": "trainer@my-project.iam.gserviceaccount.com"},
        {"service_account": "trainer@my-project.example.com.iam.gserviceaccount.com"},
        {"service_account": "12345-compute@developer.gserviceaccount.com"},
        {"service_account": "my-project@appspot.gserviceaccount.com"},
        FLEXIBLE,
        {**FLEXIBLE, "worker_count": 3, "timeout": "518400s"},
        {**T4, "scheduling_strategy": "SPOT", "evaluator_count": 1, "timeout": "604800s"},
        {"timeout": "604800s"},
        {"image_size": 4},
        {"image_size": 4, "model": "mnist_cnn"},
        {"image_size": 8, "model": "flowers_cnn"},
        {**PHOTOS, "image_size": 32, "fine_tune_layers": 427},
        {**PHOTOS, "fine_tune_layers": 4},
        {**PHOTOS, "image_size": 8, "model_options": {"input_size": 32.0}},
        {**TABLE, "model_options": {"hidden_units": [], "first_units": 8.0}},
    ],
)
def test_valid_values_are_accepted(values):
    assert check_parameters(values, origin="x").values().items() >= values.items()


@pytest.mark.parametrize(
    ("values", "given", "remedy"),
    [
        ({"batchsize": 1}, "'batchsize'", "'batch_size'"),
        ({"qqqq": 1}, "'qqqq'", "`python -m pipelines parameters`"),
        ({"source": "digit"}, "source='digit'", "'digits'"),
        ({"source": "images:"}, "source='images:'", "images:URI"),
        ({"records_engine": "dataflo"}, "records_engine='dataflo'", "'dataflow'"),
        ({"dataflow_max_workers": 0}, "dataflow_max_workers=0", "at least 1"),
        ({"dataflow_machine_type": "big"}, "dataflow_machine_type='big'", "e2-standard-4"),
        ({"dataflow_subnetwork": "default"}, "='default'", "regions/REGION/subnetworks"),
        ({"source": ""}, "source=''", "csv:URI"),
        ({"strategy": "mirrored", "worker_count": 1}, "strategy='mirrored'", "strategy='auto'"),
        ({"batch_size": 2, "worker_count": 3}, "batch_size=2", "use 4"),
        ({"model_name": "_digits"}, "model_name='_digits'", "the first a letter"),
        ({"model_name": "My model"}, "model_name='My model'", "a-z, 0-9, -, _"),
        ({"confidence": 95}, "confidence=95.0", "below 1"),
        ({"champion_metric": "log_loss", "confidence": 0.99995}, "confidence=0.99995", "0.9999"),
        ({"champion_rule": "beter"}, "champion_rule='beter'", "'better'"),
        ({"class_floors": {"cat": 2}}, "'cat' is 2", "from 0 to 1"),
        ({"class_floors": {"cat": -1}}, "'cat' is -1", "from 0 to 1"),
        ({"class_floors": {"cat": "high"}}, "'cat' is 'high'", "from 0 to 1"),
        ({"class_floors": {"cat": True}}, "'cat' is True", "from 0 to 1"),
        ({**TABLE, "class_floors": {"yse": 0.5}}, "'yse'", "'yes'"),
        ({"min_accuracy": 90}, "min_accuracy=90.0", "at most 1"),
        ({"timeout": "1h"}, "timeout='1h'", "'3600s'"),
        ({"timeout": 3600}, "timeout=3600", "text"),
        ({"timeout": f"{'9' * 30}s"}, "9s'", "'3600s'"),
        ({"timeout": "0.0s"}, "timeout='0.0s'", "longer"),
        ({"model": "wide_and_deep"}, "model='wide_and_deep'", "small_cnn"),
        ({**TABLE, "model": "small_cnn"}, "model='small_cnn'", "wide_and_deep"),
        ({"tensorboard": f"{REGION}/tensorboards/2"}, "tensorboards/2'", "service_account"),
        ({"tensorboard": "projects/1/x"}, "'projects/1/x'", "projects/PROJECT/"),
        ({"network": "projects/p/global/networks/n"}, "networks/n'", "gcloud projects"),
        ({"encryption_spec_key_name": f"{KEY}/versions/1"}, "/versions/1'", "cryptoKeys/KEY"),
        ({"service_account": "user:t@p.iam.gserviceaccount.com"}, "'user:t@", "NAME@PROJECT.iam"),
        ({"serving_image": "https://image"}, "'https://image'", "/training:1"),
        ({"serving_image": PREBUILT}, "cpu.2-15'", ":latest"),
        ({"image_uri": "My image"}, "image_uri='My image'", "/training:1"),
        ({"scheduling_strategy": "LOW_COST"}, "scheduling_strategy='LOW_COST'", "'FLEX_START'"),
        ({"scheduling_strategy": "FLEX_START"}, "accelerator_type=''", "STANDARD"),
        (chief("a3-highgpu-2g", "NVIDIA_H100_80GB", 2), "a3-highgpu-2g", "SPOT"),
        (chief("n1-standard-8", "NVIDIA_TESLA_P100"), "P100", "'NVIDIA_L4'"),
        ({**FLEXIBLE, **T4}, "accelerator_type='NVIDIA_TESLA_T4'", "NVIDIA_L4"),
        ({**FLEXIBLE, "evaluator_count": 1}, "evaluator_machine_type='n1-standard-4'", "leave out"),
        (
            {**FLEXIBLE, "worker_count": 1, "worker_machine_type": "g2-standard-4"},
            "='g2-standard-4'",
            "same machine",
        ),
        ({"timeout": "604801s"}, "timeout='604801s'", "'604800s'"),
        ({**FLEXIBLE, "timeout": "518401s"}, "timeout='518401s'", "'518400s'"),
        ({**FLEXIBLE, "max_wait_duration": "604800s"}, "'604800s'", "shorten"),
        ({**FLEXIBLE, "max_wait_duration": "0s"}, "max_wait_duration='0s'", "'86400s'"),
        ({"labels": {"Team": "x"}}, "Team='x'", "team=vision"),
        ({"labels": {"goog-team": "x"}}, "'goog-team'", "another key"),
        ({"split_fractions": [0.5, 0.5]}, "split_fractions=[0.5, 0.5]", "3 fractions"),
        ({"split_fractions": [0.5, 0.5, 0]}, "[0.5, 0.5, 0.0]", "above 0"),
        ({"split_fractions": [1, 1, 1]}, "[1.0, 1.0, 1.0]", "add up to 1"),
        ({**TABLE, "split_by": {"groop": "b"}}, "split_by", "group"),
        ({**TABLE, "split_by": {"group": "b", "column": "c"}}, "split_by={'group'", "must name a"),
        ({**TABLE, "split_by": {"group": "a"}}, "split_by={'group': 'a'}", "another column"),
        ({**TABLE, "split_by": {"column": "hour"}}, "split_by: 'hour'", "take it out of columns"),
        ({"split_by": {"group": "b"}}, "split_by", "leave them out"),
        ({"accelerator_count": 1}, "accelerator_type=''", "both, or neither"),
        ({"class_floors": MANY_FLOORS}, "class_floors alone is 75,000", "shorten it"),
        ({"model_name": "m", "max_drift": 0.2, "min_drift": 0.3}, "min_drift=0.3", "lower"),
        ({"first_champion": "all"}, "first_champion='all'", "'any'"),
        ({"image_size": 3}, "image_size=3", "image_size=4"),
        ({"image_size": 8, "model_options": {"filters": [8] * 4}}, "image_size=8", "image_size=16"),
        ({"image_size": 7, "model": "flowers_cnn"}, "image_size=7", "image_size=8"),
        ({"image_size": 3, "model": "mnist_cnn"}, "image_size=3", "4 or more"),
        ({"model_options": {"dropuot": 0.5}}, "'dropuot'", "'dropout'"),
        ({"model_options": {"dropout": 1}}, "dropout=1.0", "below 1"),
        ({"model_options": {"units": 1.5}}, "units=1.5", "a whole number"),
        ({"model_options": {"filters": [8, 0]}}, "filters=0", "at least 1"),
        ({"model_options": {"filters": 8}}, "filters=8", "a JSON list"),
        ({**PHOTOS, "channels": 1}, "model='transfer'", "channels=3"),
        ({**PHOTOS, "image_size": 31}, "image_size=31", "input_size=32"),
        ({"image_size": 70, **transfer(backbone="Xception")}, "image_size=70", "input_size=71"),
        (transfer(input_size=31), "input_size=31", "input_size=32"),
        (transfer(input_size=-1), "input_size=-1", "at least 0"),
        (transfer(backbone="DenseNet112"), "backbone='DenseNet112'", "'DenseNet121'"),
        (transfer(backbone_options={"alpha": 1}), "'alpha'", "no options"),
        (mobilenet(alhpa=0.5), "'alhpa'", "'alpha'"),
        (mobilenet(alpha="wide"), "alpha='wide'", "a finite number"),
        (mobilenet(depth_multiplier=1.5), "depth_multiplier=1.5", "a whole number"),
        (transfer(weight="none"), "'weight'", "'weights'"),
        ({**PHOTOS, "fine_tune_layers": 428}, "fine_tune_layers=428", "427"),
        ({**PHOTOS, "fine_tune_layers": 3}, "fine_tune_layers=3", "use 4"),
        (transfer(weights="imagnet"), "weights='imagnet'", "imagenet"),
        ({**TABLE, "model_options": {"hidden_units": [8, -8]}}, "hidden_units=-8", "at least 1"),
        ({"augmentation": "model", "augmentation_operations": []}, "=[]", "=none"),
        ({**SERVERS, "strategy": "parameter_server", "xla": True}, "xla=true", "xla=false"),
        ({**SERVERS, "xla": True}, "xla=true", "xla=false"),
    ],
)
def test_invalid_values_are_refused(values, given, remedy):
    error = refused(check_parameters, values, origin="here.toml")
    assert error.startswith("here.toml: ") and given in error and remedy in error


WITH_DECAY = choices(name for name, one in OPTIMIZERS.items() if "weight_decay" in one.options)
WITHOUT_EFFECT = [
    ({"momentum": 0.5}, "optimizer=sgd"),
    ({"weight_decay": 0.1, "optimizer": "sgd"}, f"optimizer={WITH_DECAY}"),
    ({"decay_rate": 0.5}, "schedule=exponential"),
    ({"decay_steps": 5, "schedule": "cosine"}, "schedule=exponential"),
    ({"warmup_steps": 5, "schedule": "one_cycle"}, "schedule=constant, cosine or exponential"),
    ({"wide_l1": 0.5}, "model=wide_and_deep"),
    ({"wide_l2": 0.5}, "model=wide_and_deep"),
    ({"wide_learning_rate": 0.5}, "model=wide_and_deep"),
    ({"fine_tune_epochs": 3}, "model=transfer"),
    ({"model": "transfer", "fine_tune_learning_rate": 0.5}, "fine_tune_epochs above 0"),
    ({"model": "transfer", "fine_tune_layers": 999}, "fine_tune_epochs above 0"),
    ({"plateau_factor": 0.5}, "plateau_patience above 0"),
    ({"monitor": "accuracy", "keep_epoch": "last"}, "keep_epoch=best or a patience above 0"),
    ({**TABLE, "steps_per_execution": 2, **SERVERS}, "ps_count=0"),
    ({"loss": "huber"}, "labels that are numbers"),
    ({"jpeg_quality": 50, "encoding": "raw"}, "encoding=jpeg"),
    ({**TABLE, "jpeg_quality": 50}, "a source of images"),
    ({**TABLE, "augmentation": "model"}, "a source of images"),
    ({**TABLE, "records_store": "gs://b/s"}, "a source of images"),
    ({"augmentation_operations": ["shift"]}, "augmentation=model or records"),
    ({"augmentation_variants": 3, "augmentation": "model"}, "augmentation=records"),
    ({"columns": TABLE["columns"]}, "a source of rows"),
    ({"data_dir": "folder"}, "a source tfds:NAME"),
    ({**TABLE, "query_gigabytes": 5}, "a source bigquery:SELECT"),
    ({**DATAFLOW, "records_store": "gs://b/s"}, "records_engine=local"),
    ({"dataflow_max_workers": 3}, "records_engine=dataflow"),
    ({"worker_machine_type": "n1-standard-8"}, "worker_count above 0"),
    ({"ps_count": 1}, "worker_count above 0"),
    ({"ps_machine_type": "n1-standard-8"}, "ps_count above 0"),
    ({"evaluator_machine_type": "n1-standard-8"}, "evaluator_count above 0"),
    ({"max_wait_duration": "60s"}, "scheduling_strategy=FLEX_START"),
    ({"margin": 0.1}, "champion_rule=not_worse"),
    ({"skip_if_unchanged": True}, "a model_name"),
    ({"max_drift": 0.2}, "a model_name"),
    ({"model_name": "m", "deploy_champion": True, "register": False}, "register=true"),
]


@pytest.mark.parametrize(("values", "needed"), WITHOUT_EFFECT)
def test_value_without_effect_is_refused_with_what_it_needs(values, needed):
    error = refused(check_parameters, values, origin="--set")
    assert f" an effect only with {needed}, but " in error and error.endswith(f"use {needed}")
    name = re.match(r"--set: (\w+)=", error)[1]
    default = fields.default_of(PARAMETERS[name][1])
    assert f"leave it out (default: {name}={default!r})" in error
    check_parameters({**values, name: default}, origin="--set")


def test_values_that_need_the_same_are_named_at_once():
    error = refused(check_parameters, {**TABLE, "image_size": 64, "channels": 1}, origin="--set")
    assert "image_size=64, channels=1 have an effect only with a source of images" in error


def test_value_of_a_recipe_that_another_makes_pointless_gets_its_default(tmp_path):
    text = 'source = "digits"\noptimizer = "sgd"\nmomentum = 0.5\n'
    (tmp_path / "mine.toml").write_text(text)
    mine = recipe.load("mine", tmp_path)
    assert mine.with_values({"optimizer": "adam"}, origin="x").training.momentum == 0.9
    error = refused(mine.with_values, {"optimizer": "adam", "momentum": 0.5}, origin="--set")
    assert "momentum=0.5 has an effect only with optimizer=sgd" in error
    (tmp_path / "mine.toml").write_text(text.replace("sgd", "adam"))
    assert refused(recipe.load, "mine", tmp_path).startswith("mine.toml: momentum=0.5 has an eff")


def test_machine_option_without_effect_is_refused_for_a_resumed_run():
    known = check_parameters({}, origin="x").values()
    changes = {"ps_machine_type": "n1-standard-8"}
    error = refused(functools.partial(change_machines, known, changes))
    assert "ps_machine_type='n1-standard-8' has an effect only with ps_count above 0" in error


def test_help_of_an_option_says_what_its_effect_needs():
    helps = {name: field.metadata["help"] for name, (_, field) in PARAMETERS.items()}
    assert helps["momentum"].endswith(" Only with optimizer=sgd.")
    assert helps["jpeg_quality"].endswith(" Only with a source of images and encoding=jpeg.")


@pytest.mark.parametrize("kind", ["image", "project", "region", "pipeline_root", "endpoint"])
def test_example_in_a_message_is_valid(kind):
    error = refused(resource_names.check, kind, "?")
    examples = re.findall(r"'([^']+)'", error.partition(" such as ")[2])
    assert examples
    for example in examples:
        resource_names.check(kind, example)


DOCS = ROOT / "docs"
OPTIONS = [*MODELS.values(), *(backbone.options for backbone in BACKBONES.values())]


def row(group, field):
    """Return a field's row in a table of the docs."""
    kind, default = fields.type_of(group, field.name).__name__, fields.default_of(field)
    return f"| {field.name} | {kind} | {json.dumps(default)} | {field.metadata['help']} |"


def test_metrics_of_each_task_are_listed():
    (line,) = re.findall(r"^\| metrics \| (.*) \|$", (DOCS / "tasks.md").read_text(), re.MULTILINE)
    listed = [re.findall(r"`(\w+)`", names) for names in line.split(" | ")]
    assert listed == [[metric.name for metric in kind.metrics] for kind in KINDS.values()]


def test_description_names_all_choices():
    choices = {name: field.metadata["choices"] for name, (_, field) in PARAMETERS.items()}
    choices["model"] = MODELS
    assert all(choices[name] for name in ("optimizer", "champion_rule", "accelerator_type"))
    for name, (_, field) in PARAMETERS.items():
        words = {"", *re.findall(r"[\w-]+", field.metadata["help"])}
        assert set(map(str, choices[name] or ())) <= words, name


def test_page_on_sources_has_every_column_type(tmp_path):
    page = (DOCS / "sources.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^####? (\w+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    groups = {**dict.fromkeys(KEYS, Column), "crosses": Cross, "split_by": SplitBy}
    for kind, group in groups.items():
        (example,) = re.findall(r"^`(\{.*\})`$", sections[kind], re.MULTILINE)
        assert json.loads(example).get("type", kind) == kind
        rows = sections[kind].replace("`", "").splitlines()
        for field in dataclasses.fields(group):
            assert (row(group, field) in rows) == (field.name in KEYS.get(kind, (field.name,)))
    whole = re.search(r"in a recipe\n+```toml\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "trips.toml").write_text(whole)
    records = recipe.load("trips", tmp_path).parameters.records
    # Taxi trips have neither dates nor texts.
    assert {column["type"] for column in records.columns} == set(KEYS) - {"date", "text"}


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


def test_texts_that_no_part_of_the_model_reads_are_refused():
    text = {"name": "note", "type": "text"}
    options = {"source": "csv:t.csv", "label": {"column": "kind"}, "model": "wide_and_deep"}
    options |= {"model_options": {"wide": False}, "columns": [text]}
    message = (
        "model_options: wide=false, but only the wide part reads 'note', which has no embedding"
    )
    assert message in refused(check_parameters, options, origin="it")
    check_parameters({**options, "columns": [{**text, "embedding": 8}]}, origin="it")
