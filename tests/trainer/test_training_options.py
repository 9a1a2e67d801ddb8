"""Options of training: precision, stopping, schedules, clipping, strategies, augmentation."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import tables
from tests.small_records import digits
from tests.trainer.training_runs import train
from trainer.data.images.augmentation import RandomQuarterTurn, RandomShift, add_augmentation
from trainer.data.read.reader import InputShare, read_evaluation_batches
from trainer.data.source_options import OPERATIONS
from trainer.engine import agreement, embeddings, strategies
from trainer.engine.checkpoints import Checkpoints
from trainer.engine.cluster import Cluster
from trainer.training import loop
from trainer.training.config import TrainingConfig
from trainer.training.optimization import LearningRate, create_optimizer
from trainer.training.optimizers import OPTIMIZERS
from trainer.training.progress import Progress
from vertex.errors import InputError


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return digits(tmp_path_factory.mktemp("few"), (130,), 40)


SMALL_MODEL = {"batch_size": 32, "model_options": {"filters": [8], "units": 16, "dropout": 0.0}}
SMALL = {"epochs": 2, **SMALL_MODEL}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.01}
AUGMENTED = {"schedule": "one_cycle", "augmentation": "model"}


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "mixed_float16", "gradient_clip_norm": 1.0},
        pytest.param({"precision": "mixed_bfloat16", **ADAMW, **AUGMENTED}, marks=pytest.mark.slow),
        pytest.param({"xla": True, "class_weights": "balanced"}, marks=pytest.mark.slow),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_every_precision_learns(few, tmp_path, options):
    run = train(few, tmp_path, learning_rate=0.005, epochs=4, **SMALL_MODEL, **options)
    losses = [row["loss"] for row in run.progress.history]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    # With half precision, weights and logits stay float32.
    assert {weight.dtype for weight in run.model.trainable_variables} == {"float32"}
    precision = options.get("precision", "float32").removeprefix("mixed_")
    assert run.model.compute_dtype == precision
    assert run.model(np.zeros([1, 8, 8, 1], np.uint8)).dtype == tf.float32


def test_loss_that_is_not_finite_is_an_error(few, tmp_path):
    with pytest.raises(InputError, match=r"loss of epoch 1 is not finite; lower learning_rate"):
        train(few, tmp_path, **SMALL, optimizer="sgd", learning_rate=1e38)


def test_large_seed_is_usable(few, tmp_path):
    run = train(few, tmp_path, **{**SMALL, "epochs": 1}, seed=2**53, augmentation="model")
    assert np.isfinite(run.progress.history[0]["loss"])


def test_some_steps_are_profiled(few, tmp_path):
    run = train(few, tmp_path, **SMALL, profile_steps=[2, 3], steps_per_execution=5)
    profile = run.profiler.result
    parts = sum(profile[f"{part}_seconds"] for part in ("input", "all_reduce", "compute"))
    assert (profile["first_step"], profile["last_step"]) == (2, 3)
    assert profile["step_seconds"] == pytest.approx(parts)
    assert len([*tmp_path.glob("logs/plugins/profile/*/*.xplane.pb")]) == 1


def test_steps_in_one_execution_learn_the_same(few, tmp_path):
    options = {**SMALL, "checkpoint_steps": 3, "precision": "mixed_float16"}
    single = train(few, tmp_path / "single", **options)
    several = train(few, tmp_path / "several", **options, steps_per_execution=4)
    np.testing.assert_array_equal(several.model.get_weights()[0], single.model.get_weights()[0])
    rows = [
        [{key: row[key] for key in ("loss", "validation_loss")} for row in run.progress.history]
        for run in (single, several)
    ]
    assert rows[0] == rows[1]


def test_stop_in_the_only_execution_of_an_epoch_is_noticed(few, tmp_path, monkeypatch):
    options = {**SMALL, "steps_per_execution": 1000}
    run_steps = loop.TrainingLoop.run_steps

    def run_and_stop(self, *arguments):
        self.stop_requested = True
        return run_steps(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.TrainingLoop, "run_steps", run_and_stop)
        with pytest.raises(loop.TerminatedError, match="at epoch 1, step 5"):
            train(few, tmp_path, **options)
    resumed = train(few, tmp_path, **options)
    whole = train(few, tmp_path / "whole", **options)
    for weight, expected in zip(
        resumed.model.get_weights(), whole.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(weight, expected)


def test_gradients_of_large_tables_stay_sparse(tmp_path, monkeypatch):
    dataset = tables.records(tmp_path / "records", 300, **tables.TEXTS)
    options = {"model": "wide_and_deep", "epochs": 1, "batch_size": 4, "gradient_clip_norm": 1.0}
    dense = train(dataset, tmp_path / "dense", **options)
    sparse, found = [], embeddings.add_rows

    def spy(gradient):
        sparse.append(isinstance(gradient, tf.IndexedSlices))
        return found(gradient)

    monkeypatch.setattr(embeddings, "LARGE", 1)
    monkeypatch.setattr(embeddings, "add_rows", spy)
    run = train(dataset, tmp_path / "sparse", **options)
    assert any(sparse)
    for one, expected in zip(run.model.get_weights(), dense.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-6)


STEEP = {"epochs": 6, "learning_rate": 0.1, "monitor": "accuracy", **SMALL_MODEL}
"""Options of a training whose best epoch is not the last."""


@pytest.fixture(scope="module")
def steep(few, tmp_path_factory):
    """Train with STEEP, into a folder named by the epoch to keep; return the runs by that name."""
    folder = tmp_path_factory.mktemp("steep")
    return {keep: train(few, folder / keep, **STEEP, keep_epoch=keep) for keep in ("best", "last")}


@pytest.mark.parametrize(("keep", "epoch"), [("best", 5), ("last", 6)])
def test_model_has_the_weights_of_the_epoch_to_keep(few, steep, keep, epoch):
    run = steep[keep]
    assert (run.progress.best_epoch, run.kept_epoch) == (5, epoch)
    ((images, labels, _),) = read_evaluation_batches(few, "validation", InputShare(batch_size=40))
    accuracy = np.mean(np.argmax(run.model(images, training=False), -1) == labels)
    kept = run.progress.history[epoch - 1]
    assert accuracy == pytest.approx(kept["validation_accuracy"])


def dying(name, number):
    """Return a `save` that raises InterruptedError after its call of this number, from 1.

    Calls for the folder `name` count.
    """
    calls, save = itertools.count(1), Checkpoints.save

    def save_and_die(self, step):
        save(self, step)
        if self._directory.endswith(name) and next(calls) == number:
            raise InterruptedError

    return save_and_die


@pytest.mark.slow
def test_best_weights_outlive_a_run_that_dies(few, steep, tmp_path, monkeypatch):
    # Between the best weights, the second that are saved, and their checkpoint; and after it.
    for name, number in (("best", 2), ("checkpoints", 5)):
        with monkeypatch.context() as patch, pytest.raises(InterruptedError):
            patch.setattr(Checkpoints, "save", dying(name, number))
            train(few, tmp_path / name, **STEEP)
        resumed = train(few, tmp_path / name, **STEEP)
        assert resumed.kept_epoch == 5
        whole = steep["best"].model.variables
        for ours, theirs in zip(resumed.model.variables, whole, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_run_without_validation_monitors_its_training_and_keeps_the_last_epoch(tmp_path):
    dataset = digits(tmp_path / "records", (64,), 0)
    run = train(dataset, tmp_path / "run", **STEEP)
    progress = run.progress
    assert "validation_loss" not in progress.history[0]
    assert progress.best_value == max(row["accuracy"] for row in progress.history)
    assert run.kept_epoch == 6 > progress.best_epoch


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0: 1.0, 50: 1.0, 99: 1.0}),
        ({"warmup_steps": 10}, {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.0, 99: 1.0}),
        ({"schedule": "cosine"}, {0: 1.0, 50: 0.5, 100: 0.0}),
        ({"schedule": "cosine", "warmup_steps": 20}, {9: 0.5, 20: 1.0, 60: 0.5, 100: 0.0}),
        ({"schedule": "one_cycle"}, {0: 0.04, 15: 0.52, 30: 1.0, 65: 0.5, 100: 0.0}),
        (
            {"schedule": "exponential", "decay_rate": 0.5, "decay_steps": 10, "warmup_steps": 2},
            {0: 0.5, 2: 1.0, 12: 0.5, 17: 0.5**1.5, 22: 0.25},
        ),
    ],
    ids=["constant", "warmup", "cosine", "warmup-cosine", "one_cycle", "exponential"],
)
def test_learning_rate_follows_its_schedule(options, expected):
    schedule = LearningRate(TrainingConfig(learning_rate=1.0, **options), total_steps=100)
    for factor in (1.0, 0.1):
        schedule.factor.assign(factor)
        rates = {step: float(schedule(step)) for step in expected}
        scaled = {step: factor * rate for step, rate in expected.items()}
        assert rates == pytest.approx(scaled, abs=1e-6)


def test_gradients_are_clipped_by_their_common_norm():
    config = TrainingConfig(
        optimizer="sgd", momentum=0.0, learning_rate=1.0, gradient_clip_norm=1.0
    )
    variables = [tf.Variable([0.0, 0.0]), tf.Variable([0.0])]
    optimizer = create_optimizer(config, LearningRate(config, 10))
    optimizer.build(variables)
    optimizer.apply([tf.constant([2.0, 1.0]), tf.constant([2.0])], variables)
    np.testing.assert_allclose(variables[0], [-2 / 3, -1 / 3], rtol=1e-6)
    np.testing.assert_allclose(variables[1], [-2 / 3], rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_is_created_with_the_options_of_its_entry(name):
    options = dict.fromkeys(OPTIMIZERS[name].options, 0.25)
    config = TrainingConfig(optimizer=name, **options)
    created = create_optimizer(config, LearningRate(config, 10))
    assert {option: getattr(created, option) for option in options} == options


def test_plateau_reduces_the_learning_rate_again():
    config = TrainingConfig(plateau_patience=2, plateau_factor=0.5, epochs=10)
    progress = Progress()
    factors = []
    for loss in (1.0, 1.1, 1.2, 1.3, 1.4, 0.9, 1.0):
        row = {"loss": loss, "accuracy": 0.5, "validation_loss": loss}
        progress.end_epoch(row, config)
        factors.append(progress.factor)
    assert factors == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert progress.best_epoch == 6


def cluster_of(**roles: int) -> Cluster:
    addresses = {role: [f"{role}:{n}" for n in range(count)] for role, count in roles.items()}
    return Cluster(addresses=addresses)


@pytest.mark.parametrize(
    ("roles", "strategy"),
    [
        ({}, "one_device"),
        ({"chief": 1, "worker": 1}, "multi_worker_mirrored"),
        ({"worker": 2}, "multi_worker_mirrored"),
        ({"chief": 1, "worker": 2, "ps": 1}, "parameter_server"),
    ],
)
def test_auto_suits_the_replicas(roles, strategy):
    assert strategies.resolve("auto", cluster_of(**roles)) == strategy


@pytest.mark.parametrize(
    ("strategy", "roles"), [("parameter_server", {}), ("mirrored", {"worker": 2})]
)
def test_strategy_that_does_not_fit_the_replicas_is_refused(strategy, roles):
    with pytest.raises(InputError, match=f"strategy='{strategy}' does not fit the replicas "):
        strategies.create_strategy(strategy, cluster_of(**roles))


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_single_replica_waits_for_no_other(name):
    assert strategies.resolve(name, Cluster()) == name
    agreement.barrier(strategies.create_strategy(name, Cluster()))


def test_logical_devices_stand_in_for_gpus():
    strategies.check_accelerators(2, {"LOGICAL_CPUS": "2"})


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """64 images, uint8 [10, 10, 3], without a black pixel."""
    return np.random.default_rng(0).integers(1, 256, (64, 10, 10, 3)).astype(np.uint8)


def turn(image):
    return [np.rot90(image, quarters) for quarters in range(4)]


def shift(image):
    padded = np.pad(image, [(1, 1), (1, 1), (0, 0)])  # Black comes in.
    return [padded[y : y + 10, x : x + 10] for y in range(3) for x in range(3)]


@pytest.mark.parametrize(("layer", "variants"), [(RandomQuarterTurn, turn), (RandomShift, shift)])
def test_layer_draws_every_variant_of_an_image(images, layer, variants):
    seen = set()
    for augmented, image in zip(layer(seed=1)(images, training=True).numpy(), images, strict=True):
        (place,) = [
            n for n, variant in enumerate(variants(image)) if np.array_equal(augmented, variant)
        ]
        seen.add(place)
    assert seen == set(range(len(variants(images[0]))))


@pytest.mark.parametrize("layer", [RandomQuarterTurn, RandomShift])
def test_layer_draws_anew_by_its_seed_and_only_in_training(layer, images):
    augmentation = layer(seed=3)
    same = keras.layers.deserialize(keras.layers.serialize(augmentation))
    np.testing.assert_array_equal(augmentation(images), images)
    first, second = (augmentation(images, training=True).numpy() for _ in range(2))
    assert (first != second).any()
    for expected in (first, second):
        np.testing.assert_array_equal(same(images, training=True), expected)


def test_augmented_model_shares_weights_and_input(images):
    layers = [keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([10, 10, 3], dtype="uint8"), *layers])
    network = add_augmentation(model, list(OPERATIONS), seed=0)
    assert network.input_shape == model.input_shape
    assert network.inputs[0].dtype == "uint8"
    ours = [variable for variable in network.variables if "seed_generator" not in variable.path]
    assert all(variable is same for variable, same in zip(ours, model.variables, strict=True))
    np.testing.assert_array_equal(network(images, training=False), model(images))
    assert (network(images, training=True).numpy() != model(images).numpy()).any()
