"""Parameters are declared and described once, also in the docs; values are checked before a run."""

import dataclasses
import json
import re

import pytest

from pipelines import recipe
from pipelines.parameters import GROUPS, PARAMETERS, check_parameters
from tests.child_processes import ROOT
from tests.refusals import refused
from trainer import fields
from trainer.data.tables.columns import KEYS, Column, Cross
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES
from vertex_facts import resource_names

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
    parameters = check_parameters({"augmentation": "model"}, place="x")
    assert parameters.records.augmentation == parameters.training.augmentation == "model"


def test_defaults_are_valid():
    values = check_parameters({}, place="defaults").values()
    assert list(values) == list(PARAMETERS)
    assert check_parameters(values, place="defaults").values() == values


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
        {"timeout": "604800s", "max_wait_duration": "0s"},
        {"image_size": 4},
        {"image_size": 4, "model": "mnist_cnn"},
        {"image_size": 8, "model": "flowers_cnn"},
        {**PHOTOS, "image_size": 32, "fine_tune_layers": 427},
        {**PHOTOS, "fine_tune_layers": 4},
        {"model": "transfer", "fine_tune_layers": 999},
        {**PHOTOS, "image_size": 8, "model_options": {"input_size": 32.0}},
        {**TABLE, "model_options": {"hidden_units": [], "first_units": 8.0}},
    ],
)
def test_valid_values_are_accepted(values):
    assert check_parameters(values, place="x").values().items() >= values.items()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batchsize": 1}, "unknown parameter 'batchsize'; did you mean 'batch_size'?"),
        ({"qqqq": 1}, "unknown parameter 'qqqq'; `python -m pipelines parameters` lists them"),
        ({"source": "digit"}, "did you mean 'digits'?"),
        ({"source": "images:"}, "source='images:' is malformed; use images:URI, a folder of"),
        ({**DATAFLOW, "records_store": "gs://b/s"}, "works only with records_engine='local', as"),
        ({"records_engine": "dataflo"}, "did you mean 'dataflow'"),
        (
            {"dataflow_max_workers": 0},
            "dataflow_max_workers=0 is out of range: it must be at least 1",
        ),
        ({"dataflow_machine_type": "big"}, "dataflow_machine_type='big' is not"),
        ({"dataflow_machine_type": "big"}, ", such as e2-standard-4"),
        ({"dataflow_subnetwork": "default"}, "such as regions/us-central1/subnetworks/default"),
        ({"source": ""}, "source='' is not a source; use one of bigquery:PROJECT"),
        ({"strategy": "mirrored", "worker_count": 1}, "strategy='mirrored' does not fit"),
        ({"batch_size": 2, "worker_count": 3}, "among 4 replicas; use 4"),
        ({"model_name": "_digits"}, "of a-z, 0-9, - and _, starting with a letter"),
        ({"model_name": "My model"}, "model_name='My model' is not up to 63 of a-z, 0-9, - and _"),
        ({"confidence": 95}, "confidence=95.0 is out of range: it must be below 1"),
        ({"champion_metric": "log_loss", "confidence": 0.99995}, "confidence=0.99995 is more than"),
        ({"champion_metric": "log_loss", "confidence": 0.99995}, "; set 0.9999 or less"),
        ({"champion_rule": "beter"}, "did you mean 'better'?"),
        ({"class_floors": {"cat": 2}}, "class_floors: 'cat' is 2, not a recall from 0 to 1"),
        ({"class_floors": {"cat": -1}}, "class_floors: 'cat' is -1, not a recall from 0 to 1"),
        ({"class_floors": {"cat": "high"}}, "class_floors: 'cat' is 'high', not a recall from 0"),
        ({"class_floors": {"cat": True}}, "class_floors: 'cat' is True, not a recall from 0 to 1"),
        (
            {**TABLE, "class_floors": {"yse": 0.5}},
            "not a class of the records; did you mean 'yes'?",
        ),
        ({"min_accuracy": 90}, "min_accuracy=90.0 is out of range: it must be at most 1"),
        ({"timeout": "1h"}, "timeout='1h' is not a duration in seconds, such as '3600s'"),
        ({"timeout": 3600}, "timeout=3600 is not text"),
        ({"timeout": f"{'9' * 30}s"}, "s' is not a duration in seconds"),
        ({"timeout": "0.0s"}, "timeout='0.0s' leaves no time to train"),
        ({"model": "wide_and_deep"}, "takes rows of a table, but source='digits'"),
        ({**TABLE, "model": "small_cnn"}, "'small_cnn' takes images, but source='csv:trips.csv'"),
        ({"tensorboard": f"{REGION}/tensorboards/2"}, "needs a service_account"),
        ({"tensorboard": "projects/1/x"}, "is not projects/PROJECT/locations/REGION/tensorboards"),
        ({"network": "projects/p/global/networks/n"}, "with the project's number: gcloud projects"),
        ({"encryption_spec_key_name": f"{KEY}/cryptoKeyVersions/1"}, "/RING/cryptoKeys/KEY"),
        ({"service_account": "user:t@p.iam.gserviceaccount.com"}, "is not NAME@PROJECT.iam"),
        ({"serving_image": "https://image"}, "serving_image='https://image' is not an image's"),
        ({"serving_image": "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15"}, "tag latest"),
        ({"image_uri": "My image"}, "image_uri='My image' is not an image's name"),
        ({"scheduling_strategy": "LOW_COST"}, "is not one of 'STANDARD', 'SPOT', 'FLEX_START'"),
        ({"scheduling_strategy": "FLEX_START"}, "with accelerator_type='': it provides"),
        (chief("a3-highgpu-2g", "NVIDIA_H100_80GB", 2), "set scheduling_strategy to SPOT or FLEX"),
        (chief("n1-standard-8", "NVIDIA_TESLA_P100"), "is not one of '', 'NV"),
        ({**FLEXIBLE, **T4}, "with accelerator_type='NVIDIA_TESLA_T4': it provides machines with"),
        ({**FLEXIBLE, "evaluator_count": 1}, "with evaluator_machine_type='n1-standard-4': it pro"),
        ({**FLEXIBLE, "worker_count": 1, "worker_machine_type": "g2-standard-4"}, "the same mach"),
        ({"timeout": "604801s"}, "is more than the 7 days that a pipeline's task may last; se"),
        ({**FLEXIBLE, "timeout": "518401s"}, "task may last; set timeout='518400s' or less"),
        ({**FLEXIBLE, "max_wait_duration": "604800s"}, "task may last; shorten max_wait_duration"),
        ({**FLEXIBLE, "max_wait_duration": "0s"}, "max_wait_duration='0s' waits for machines with"),
        ({"labels": {"Team": "x"}}, "labels: Team='x' is not a label: up to 63"),
        ({"labels": {"goog-team": "x"}}, "labels: 'goog-team' begins like a label that Google"),
        ({"split_fractions": [0.5, 0.5]}, "split_fractions=[0.5, 0.5] must be 3 fractions"),
        ({"split_fractions": [0.5, 0.5, 0]}, "with train and test above 0"),
        ({"split_fractions": [1, 1, 1]}, "that add up to 1"),
        ({"accelerator_count": 1}, "set both, or neither"),
        ({"class_floors": MANY_FLOORS}, "is 75,000; a task accepts 65,536 in total: shorten it"),
        ({"max_drift": 0.2}, "max_drift needs a registered model; give its model_name"),
        ({"model_name": "m", "max_drift": 0.2, "min_drift": 0.3}, "is not below max_drift=0.2"),
        ({"deploy_champion": True}, "deploy_champion needs a registered model; give its"),
        ({"skip_if_unchanged": True}, "skip_if_unchanged needs a registered model; give its"),
        (
            {"deploy_champion": True, "model_name": "m", "register": False},
            "register=false, but deploy_champion deploys a registered model",
        ),
        ({"first_champion": "all"}, "first_champion='all' is not one of 'above_baseline', 'any'"),
        ({"image_size": 3}, "too small for 2 poolings, each of which halves it; set image_size=4"),
        ({"image_size": 8, "model_options": {"filters": [8] * 4}}, "set image_size=16 or more"),
        ({"image_size": 7, "model": "flowers_cnn"}, "image_size=7 is too small for 3 poolings"),
        ({"image_size": 3, "model": "mnist_cnn"}, "is too small for mnist_cnn; set 4 or more"),
        ({"model_options": {"dropuot": 0.5}}, "small_cnn takes no 'dropuot'; did you mean 'drop"),
        ({"model_options": {"dropout": 1}}, "model_options: dropout=1.0 is out of range: it must"),
        ({"model_options": {"units": 1.5}}, "model_options: units=1.5 is not a whole number"),
        ({"model_options": {"filters": [8, 0]}}, "model_options: filters=0 is out of range"),
        ({"model_options": {"filters": 8}}, "model_options: filters=8 is not a JSON list"),
        ({**PHOTOS, "channels": 1}, "needs channels=3, but channels=1"),
        ({**PHOTOS, "image_size": 31}, "for backbone='DenseNet121', which takes 32 pixels or"),
        ({"image_size": 70, **transfer(backbone="Xception")}, "'Xception', which takes 71 pixels"),
        (transfer(input_size=31), "input_size=31 is too small for"),
        (transfer(input_size=-1), "input_size=-1 is out of range"),
        (transfer(backbone="DenseNet112"), "keras.applications; did you mean 'DenseNet121'?"),
        (transfer(backbone_options={"alpha": 1}), "DenseNet121 takes no 'alpha': it has no opt"),
        (mobilenet(alhpa=0.5), "MobileNet takes no 'alhpa'; did you mean 'alpha'?"),
        (mobilenet(alpha="wide"), "alpha='wide' is not a finite number"),
        (mobilenet(depth_multiplier=1.5), "depth_multiplier=1.5 is not a whole number"),
        (transfer(weight="none"), "transfer takes no 'weight'; did you mean 'weights'?"),
        ({**PHOTOS, "fine_tune_layers": 428}, "fine_tune_layers=428: DenseNet121 has only 427"),
        ({**PHOTOS, "fine_tune_layers": 3}, "have no weights to train, except BatchNorm's; use 4"),
        (transfer(weights="imagnet"), "weights='imagnet' is neither imagenet, none nor the URI of"),
        ({**TABLE, "model_options": {"hidden_units": [8, -8]}}, "hidden_units=-8 is out of range"),
        ({**TABLE, "augmentation": "model"}, "augmentation='model' is for images, but model='wid"),
        ({"augmentation": "model", "augmentation_operations": []}, "=[] does nothing"),
        ({"weight_decay": 0.1}, "weight_decay=0.1 applies only to adamw, but optimizer='adam'"),
        ({"warmup_steps": 5, "schedule": "one_cycle"}, "'one_cycle' warms up by itself; set 0"),
        ({**SERVERS, "strategy": "parameter_server", "xla": True}, "set xla=false"),
        ({**SERVERS, "xla": True}, "xla=true can't be used with parameter servers"),
    ],
)
def test_invalid_values_are_refused(values, message):
    error = refused(check_parameters, values, place="here.toml")
    assert error.startswith("here.toml: ") and message in error


@pytest.mark.parametrize("kind", ["image", "project", "region", "pipeline_root", "endpoint"])
def test_example_in_a_message_is_valid(kind):
    error = refused(resource_names.check, kind, "?")
    examples = re.findall(r"'([^']+)'", error.partition(" such as ")[2])
    assert examples
    for example in examples:
        resource_names.check(kind, example)


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
