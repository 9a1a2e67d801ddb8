"""Transfer learning: a backbone's weights, two phases, and what changes in which."""

import itertools
import json

import keras
import numpy as np
import pytest

from tests import replicas
from tests.records import write_records
from trainer import checkpoint, fields
from trainer.cluster import Cluster
from trainer.config import TrainingConfig
from trainer.errors import InputError
from trainer.job import Job
from trainer.models import backbones, build_model, prepare_model
from trainer.models.options import Transfer
from trainer.synchronous import train

MOBILENET = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.25}}
LAYERS = 10


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    """40 training, 8 validation and 8 test pictures, 32x32x3, of three colors."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 56)
    images = generator.integers(0, 160, (56, 32, 32, 3))
    images[np.arange(56), :, :, labels] += 90
    images = images.astype(np.uint8)
    parts = [(images[a:b], labels[a:b]) for a, b in itertools.pairwise((0, 24, 40, 48, 56))]
    splits = {"train": parts[:2], "validation": parts[2:3], "test": parts[3:]}
    return write_records(tmp_path_factory.mktemp("colors"), splits, ["red", "green", "blue"])


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> str:
    """A file of MobileNet's weights, BatchNorm statistics among them that are no constants."""
    keras.utils.set_random_seed(1)
    backbone = backbones.create(Transfer(**MOBILENET, weights="none"), (32, 32, 3))
    generator = np.random.default_rng(1)
    for layer in backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(generator.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(generator.uniform(0.1, 0.3, layer.moving_mean.shape))
    path = tmp_path_factory.mktemp("weights") / "mobilenet.weights.h5"
    backbone.save_weights(path)
    return str(path)


def trained(dataset, folder, weights, **options):
    values = {
        "model": "transfer",
        "model_options": {**MOBILENET, "weights": weights},
        "batch_size": 16,
        "epochs": 1,
        "fine_tune_layers": LAYERS,
        "fine_tune_learning_rate": 0.01,
        **options,
    }
    config = fields.build(TrainingConfig, values)
    job = Job(dataset=dataset.uri, base_output_directory=str(folder), config=config)
    return train(job, Cluster())


def values(model: keras.Model) -> dict[str, np.ndarray]:
    return {
        variable.path: variable.numpy()
        for variable in model.variables
        if "seed_generator" not in variable.path
    }


def test_phase_two_changes_the_last_layers_of_the_backbone_and_nothing_else_of_it(
    colors, weights, tmp_path
):
    first = trained(colors, tmp_path / "one", weights)
    both = trained(colors, tmp_path / "two", weights, fine_tune_epochs=2)

    given = backbones.create(Transfer(**MOBILENET, weights=weights), (32, 32, 3))
    after_first, after_both = values(first.model), values(both.model)
    for path, value in values(given).items():
        np.testing.assert_array_equal(after_first[path], value, err_msg=path)

    learn = {
        variable.path
        for layer in given.layers[-LAYERS:]
        if not isinstance(layer, keras.layers.BatchNormalization)
        for variable in layer.variables
    }
    head = {path for path in after_both if path.startswith("logits")}
    assert len(learn) >= 3
    assert len(head) == 2
    changed = {
        path for path in after_first if not np.array_equal(after_first[path], after_both[path])
    }
    assert changed == learn | head
    assert [row["phase"] for row in both.progress.history] == [1, 2, 2]
    assert [row["epoch"] for row in both.progress.history] == [1, 2, 3]
    assert both.progress.history[0]["loss"] == first.progress.history[0]["loss"]
    rates = [row["learning_rate"] for row in both.progress.history]
    assert rates == pytest.approx([0.001, 0.01, 0.01])
    header = (tmp_path / "two" / "history.csv").read_text().partition("\n")[0]
    assert header.startswith("epoch,phase,")


class Killed(BaseException):
    """Ends a run as kill -9 would."""


def test_a_run_killed_before_any_of_its_checkpoints_ends_as_one_never_killed(
    colors, weights, tmp_path, monkeypatch
):
    options = {
        "epochs": 2,
        "fine_tune_epochs": 2,
        "augmentation": "model",
        "schedule": "cosine",
        "monitor": "accuracy",
        "early_stopping_patience": 2,
        "fine_tune_plateau_patience": 1,
        "checkpoint_steps": 2,
    }
    whole = trained(colors, tmp_path / "whole", weights, **options)

    save = checkpoint.Checkpoints.save
    # By phase, epochs and steps done: at the end of phase 1, at the change, and in phase 2
    # when its first epoch may already have replaced what was best of phase 1.
    places = {(0, 2, 0), (1, 2, 0), (1, 3, 0)}

    def save_or_die(self):
        progress = self._progress
        place = (progress.phase, progress.epoch, progress.step)
        if place in places:
            places.remove(place)
            raise Killed
        save(self)

    monkeypatch.setattr(checkpoint.Checkpoints, "save", save_or_die)
    for _ in range(len(places)):
        with pytest.raises(Killed):
            trained(colors, tmp_path / "killed", weights, **options)
    killed = trained(colors, tmp_path / "killed", weights, **options)

    assert not places
    ours, theirs = values(killed.model), values(whole.model)
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)
    timed = ("images_per_second", "input_wait_fraction", "seconds")
    histories = [
        [{k: v for k, v in row.items() if k not in timed} for row in run.progress.history]
        for run in (killed, whole)
    ]
    assert histories[0] == histories[1]
    assert [row["phase"] for row in histories[0]] == [1, 1, 2, 2]


def test_each_phase_has_patience_of_its_own_and_the_best_weights_of_both_remain(
    colors, weights, tmp_path
):
    run = trained(
        colors,
        tmp_path,
        weights,
        epochs=8,
        learning_rate=1e-9,
        monitor="accuracy",
        early_stopping_patience=1,
        fine_tune_epochs=8,
        fine_tune_learning_rate=1e-9,
        fine_tune_early_stopping_patience=2,
    )
    # Nothing is learnt at such a rate: phase 1 ends one epoch after its first, 2 after two.
    assert [row["phase"] for row in run.progress.history] == [1, 1, 2, 2]
    assert run.progress.best_epoch == run.kept_epoch == 1
    assert run.progress.stopped == "no better accuracy in 2 epochs"


def test_two_workers_read_one_copy_of_the_weights_and_fine_tune_alike(colors, weights, tmp_path):
    options = json.dumps({**MOBILENET, "weights": weights, "dropout": 0})
    learned = {}
    for name, roles in (("one", replicas.ALONE), ("two", replicas.CHIEF_AND_WORKER)):
        folder = tmp_path / name
        folder.mkdir()
        flags = [
            f"--dataset={colors.uri}",
            f"--base_output_directory={folder}/run",
            "--model=transfer",
            f"--model_options={options}",
            "--epochs=1",
            "--batch_size=16",
            "--optimizer=sgd",
            "--learning_rate=0.01",
            "--fine_tune_epochs=1",
            f"--fine_tune_layers={LAYERS}",
            "--fine_tune_learning_rate=0.01",
        ]
        replicas.run("tests.trainer.dump_weights", [str(folder), "1", *flags], roles, folder)
        for path in folder.glob("*.npz"):
            with np.load(path) as content:
                learned[name, path.stem] = dict(content)
    assert (tmp_path / "two" / "run" / "weights" / "backbone.weights.h5").is_file()
    chief, worker = learned["two", "chief-0"], learned["two", "worker-0"]
    for path, value in learned["one", "chief-0"].items():
        np.testing.assert_array_equal(worker[path], chief[path], err_msg=path)
        np.testing.assert_allclose(chief[path], value, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("backbone", ["VGG16", "DenseNet121", "MobileNet"])
def test_a_backbones_own_preprocessing_is_part_of_the_model(backbone):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype(np.uint8)
    modules = {"VGG16": "vgg16", "DenseNet121": "densenet", "MobileNet": "mobilenet"}
    module = getattr(keras.applications, modules[backbone])
    expected = module.preprocess_input(pixels.astype("float32"))
    layer = backbones.preprocessing(backbone)
    np.testing.assert_allclose(layer(pixels), expected, atol=1e-6)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    np.testing.assert_allclose(again(pixels), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "DenseNet112"}, "backbone='DenseNet112' is not .* did you mean 'DenseNet1"),
        ({"backbone_options": {"alhpa": 0.5}}, "MobileNet takes no 'alhpa'; did you mean 'alpha'"),
        ({"backbone_options": {"alpha": "wide"}}, "alpha='wide' is not a finite number"),
        ({"backbone_options": {"depth_multiplier": 1.5}}, "=1.5 is not a whole number"),
        ({"weight": "none"}, "transfer takes no 'weight'; did you mean 'weights'"),
        ({"weights": "imagenett"}, "weights='imagenett' is neither imagenet, none nor the URI of"),
        ({"weights": "nowhere.weights.h5"}, "weights='nowhere.weights.h5' is no file; give imag"),
    ],
)
def test_options_that_can_not_be_used_are_named(colors, options, message):
    with pytest.raises(InputError, match=message) as raised:
        build_model("transfer", colors, {"backbone": "MobileNet", "weights": "none", **options})
    assert "\n" not in str(raised.value)


def test_weights_of_another_backbone_are_refused(colors, weights):
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.5}, "weights": weights}
    with pytest.raises(InputError, match=r"does not fit MobileNet \(.*\); give the weights of"):
        build_model("transfer", colors, options)


def test_a_hub_that_can_not_be_reached_is_one_line_with_the_remedy(colors, tmp_path, monkeypatch):
    (address,) = replicas.free_addresses(1)
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{address}")
    monkeypatch.setattr("urllib.request._opener", None)
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.75}}
    with pytest.raises(InputError, match=r"can't be downloaded .* give its URI") as raised:
        prepare_model("transfer", colors, options, str(tmp_path))
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("layers", "message"),
    [(999, "has 86 layers; use at most 86"), (2, "have no weights to train, BatchNorm apart")],
)
def test_a_phase_two_that_could_not_train_the_backbone_is_refused(colors, layers, message):
    from trainer.models import unfreeze

    model = build_model("transfer", colors, {**MOBILENET, "weights": "none"})
    with pytest.raises(InputError, match=f"fine_tune_layers={layers}: .*{message}"):
        unfreeze("transfer", model, layers)


def test_grey_pictures_are_refused(digit_records):
    with pytest.raises(InputError, match="takes images of 3 channels, but channels=1"):
        build_model("transfer", digit_records, {"weights": "none"})


@pytest.mark.slow
def test_densenet_trains_in_both_phases_on_two_devices_in_mixed_precision(
    colors, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOGICAL_CPUS", "2")
    flags = [
        f"--dataset={colors.uri}",
        f"--base_output_directory={tmp_path}",
        "--model=transfer",
        '--model_options={"weights": "none"}',
        "--strategy=mirrored",
        "--precision=mixed_float16",
        "--epochs=1",
        "--batch_size=20",
        "--fine_tune_epochs=1",
    ]
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path / "logs", seconds=600)
    log = (tmp_path / "logs" / "chief-0.log").read_text()
    assert "mirrored over 2 replicas" in log
    rows = (tmp_path / "history.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [["1", "1"], ["2", "2"]]
    assert (tmp_path / "model" / "saved_model.pb").is_file()
