"""Values get the types of their fields, or are refused in one clear line; config.json too."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from trainer import fields
from trainer.fields import option
from trainer.training.config import TrainingConfig, config_uri, write_config
from trainer.training.job import parse
from vertex.formats import suggest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    epochs: int = option(10, help="Passes over the data.", minimum=1)
    rate: float = option(0.1, help="Learning rate.", above=0, below=1)
    model: str = option("cnn", help="Model.", choices=("cnn", "linear"))
    xla: bool = option(False, help="Compile.")
    shares: list[float] = option([0.5, 0.5], help="Shares.", minimum=0, maximum=1)
    names: list[str] = option(["a"], help="Names.", choices=("a", "b"))
    extra: dict = option({}, help="More.")


VALUES = {
    "epochs": st.integers(1, 2**53),
    "rate": st.floats(0, 1, exclude_min=True, exclude_max=True),
    "model": st.sampled_from(["cnn", "linear"]),
    "xla": st.booleans(),
    "shares": st.lists(st.floats(0, 1)),
    "names": st.lists(st.sampled_from(["a", "b"])),
    "extra": st.dictionaries(st.text(), st.integers() | st.text()),
}


@given(st.fixed_dictionaries(VALUES))
def test_value_is_the_same_in_every_form(values):
    """As it is, as text of a command line, and as KFP passes it: numbers as doubles."""
    as_text = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    from_kfp = {**values, "epochs": float(values["epochs"]), "shares": tuple(values["shares"])}
    for form in (values, as_text, from_kfp):
        built = dataclasses.asdict(fields.build(Options, form))
        assert built == values
        assert {name: type(one) for name, one in built.items()} == {
            name: type(one) for name, one in values.items()
        }


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [("epochs", "1e1", 10), ("epochs", "3.0", 3), ("xla", "yes", True), ("xla", "0", False)],
)
def test_text_may_be_written_otherwise(name, raw, expected):
    assert getattr(fields.build(Options, {name: raw}), name) == expected


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("hour", ["who", "alone"], "; known: alone, who"),
        ("region", ["precision"], "; known: precision"),
        ("workers", ["worker_count", "model"], "; did you mean 'worker_count'?"),
        ("accuracy", ["min_accuracy", "accumulate"], "; did you mean 'min_accuracy'?"),
        ("dgits", ["digits"], "; did you mean 'digits'?"),
        ("x", [f"column{n}" for n in range(999)], "; known: column0, column1, "),
    ],
)
def test_only_a_similar_name_is_suggested(name, known, hint):
    suggested = suggest(name, known)
    assert suggested.startswith(hint)
    assert len(suggested) < 400


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("epochs", "ten", "epochs='ten' is not a whole number"),
        ("epochs", 2.5, "epochs=2.5 is not a whole number"),
        ("epochs", True, "epochs=True is not a whole number"),
        ("epochs", 0, "epochs=0 is out of range: it must be at least 1"),
        ("epochs", 10**400, "is out of range: it must be at most 9007199254740992"),
        ("rate", "nan", "rate='nan' is not a finite number"),
        ("rate", 0, "rate=0.0 is out of range: it must be above 0"),
        ("rate", 1, "rate=1.0 is out of range: it must be below 1"),
        ("xla", "perhaps", "xla='perhaps' is not true or false"),
        ("model", 3, "model=3 is not text"),
        ("model", "cmn", "did you mean 'cnn'?"),
        ("shares", "0.5", "shares='0.5' is not a JSON list"),
        ("shares", '["x", 1]', "shares='x' is not a finite number"),
        ("shares", "[NaN, 1]", "is not a finite number"),
        ("shares", "[2, -1]", "shares=2.0 is out of range: it must be at most 1"),
        ("names", '["c"]', "names='c' is not one of 'a', 'b'"),
        ("names", "[1]", "names=1 is not text"),
        ("extra", "[]", "extra='[]' is not a JSON object"),
        ("epoch", 1, "unknown parameter 'epoch'; did you mean 'epochs'?"),
    ],
)
def test_unfit_value_is_refused_by_name_and_value(name, raw, message):
    assert message in refused(fields.build, Options, {name: raw})


def test_mutable_default_is_not_shared():
    fields.build(Options, {}).shares.append(1)
    assert fields.build(Options, {}).shares == [0.5, 0.5]


def test_schema_has_types_bounds_and_choices():
    properties = fields.json_schema(Options)["properties"]
    assert properties["model"]["enum"] == ["cnn", "linear"]
    assert properties["epochs"]["minimum"] == 1
    assert properties["names"]["items"]["enum"] == ["a", "b"]
    assert properties["extra"]["type"] == "object"
    assert properties["rate"]["description"] == "Learning rate. Above 0, below 1."


def test_flags_override_the_config_file(tmp_path):
    config = TrainingConfig(
        model="transfer",
        model_options={"dropout": 0.5, "weights": "a 'quoted' = word.h5"},
        learning_rate=3e-5,
        xla=True,
        augmentation_operations=["vertical_flip"],
        seed=7,
    )
    write_config(config, str(tmp_path))
    flags = ["--dataset=gs://b/records", "--base_output_directory=gs://b/run"]
    flags.append(f"--config={config_uri(str(tmp_path))}")
    assert parse(flags, {}).config == config
    job = parse([*flags, "--learning_rate=0.5", "--seed=8"], {})
    assert job.config == dataclasses.replace(config, learning_rate=0.5, seed=8)
    assert (job.dataset, job.base_output_directory) == ("gs://b/records", "gs://b/run")
