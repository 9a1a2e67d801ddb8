import concurrent.futures
import json
import subprocess
import sys
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.child_processes import ROOT
from tests.trainer import fit_scenarios
from tests.trainer.fit_scripts import REFUSED, SCENARIOS, SCRIPTS
from trainer.engine import draws, internals
from trainer.engine.internals import losses
from trainer.engine.strategies import LOGICAL_CPUS
from trainer.fit import fit
from trainer.fit.checkpoint_callback import find_done
from trainer.training.program import Trained
from vertex.errors import InputError

MODULE = fit_scenarios.__name__
QUICK = ["weighted_dataset", "random_layers", "rate_by_the_batch", "metrics_seen_by_callbacks"]


def keras_fit(names, folder):
    strategy = tf.distribute.get_strategy()
    return {name: fit_scenarios.run(name, strategy, str(folder)) for name in names}


def done_at(folder):
    done = find_done(str(folder), 40)
    return done.epoch, done.step


def assert_same(results, expected):
    assert set(results) == set(expected)
    for name, result in results.items():
        tolerance = 1e-3 if name.startswith("mixed_precision") else 1e-5
        assert result["epochs"] == expected[name]["epochs"]
        assert set(result["history"]) == set(expected[name]["history"])
        for key, values in result["history"].items():
            np.testing.assert_allclose(
                values, expected[name]["history"][key], atol=tolerance, err_msg=f"{name} {key}"
            )
        assert set(result) == set(expected[name])
        for key in {"weights", "evaluated", "predicted"} & set(result):
            np.testing.assert_allclose(
                result[key], expected[name][key], atol=tolerance, err_msg=f"{name} {key}"
            )


@pytest.mark.parametrize("names", [QUICK, pytest.param([], marks=pytest.mark.slow)])
def test_two_workers_learn_as_one_process(names, tmp_path):
    names = names or [*fit_scenarios.SCENARIOS]
    arguments = [str(tmp_path / "results.json"), str(tmp_path), *names]
    replicas.run(MODULE, arguments, replicas.CHIEF_AND_WORKER, tmp_path / "logs", seconds=600)
    results = json.loads((tmp_path / "results.json").read_text())
    assert_same(results, keras_fit(names, tmp_path))
    if "callbacks" in names:
        assert len((tmp_path / "log.csv").read_text().splitlines()) == 1 + 24
        assert all((tmp_path / disk / "best.keras").exists() for disk in ("disk-0", "disk-1"))


SOME = ["optimizer_in_a_list", "average_by_the_guide", "masked_words", "contrast", "dice"]
SOME += ["rows_compared_with_each_other", "masked_words_of_a_batch", "layer_of_a_batch"]
SOME += [
    "several_steps_a_call",
    "results_read_by_the_step",
    "metric_that_a_step_resets",
    "metric_of_updated_weights",
]


@pytest.mark.parametrize("names", [SOME, pytest.param([], marks=pytest.mark.slow)])
def test_a_step_is_computed_as_on_one_process_or_refused(names, tmp_path, monkeypatch):
    monkeypatch.setenv(LOGICAL_CPUS, "3")
    names = names or [*SCRIPTS, *REFUSED]
    arguments = [str(tmp_path / "results.json"), str(tmp_path), *names]
    replicas.run(MODULE, arguments, replicas.ALONE, tmp_path / "logs", seconds=600)
    results = json.loads((tmp_path / "results.json").read_text())
    for name in REFUSED.keys() & set(names):
        assert REFUSED[name][1] in results.pop(name)
    assert_same(results, keras_fit(results, tmp_path))


@pytest.mark.slow
def test_resumes_within_an_epoch_on_another_number_of_replicas(tmp_path, monkeypatch):
    arguments = [str(tmp_path / "results.json"), str(tmp_path), "callbacks"]
    monkeypatch.setenv("LEAVES", "1")
    replicas.run(MODULE, arguments, replicas.CHIEF_AND_WORKER, tmp_path / "first")
    monkeypatch.delenv("LEAVES")
    assert done_at(tmp_path / "checkpoints") == (5, 2)
    monkeypatch.setenv(LOGICAL_CPUS, "3")
    replicas.run(MODULE, arguments, replicas.ALONE, tmp_path / "second")
    results = json.loads((tmp_path / "results.json").read_text())
    assert_same(results, keras_fit(["callbacks"], tmp_path / "alone"))


@pytest.mark.slow
def test_what_differs_between_workers_is_told(tmp_path):
    replicas.run("tests.trainer.fit_different", [], replicas.CHIEF_AND_WORKER, tmp_path)
    log = (tmp_path / "chief-0.log").read_text()
    assert "The workers read different batches" in log
    assert "the workers' weights differ after an epoch" in log
    assert "the data have deterministic=False, so that the 2 workers would read them in" in log


@pytest.fixture(scope="module")
def shown_on_two_devices() -> list[str]:
    """Return what trainer.fit imports besides TensorFlow, and the lines of fit_refusals."""
    program = (
        "import sys, tensorflow; before = {*sys.modules}; import trainer.fit;"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before};"
        "print(names - {'trainer', 'vertex'});"
        "from tests.trainer import fit_refusals; fit_refusals.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "", LOGICAL_CPUS: "2", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_needs_only_tensorflow_and_keras(shown_on_two_devices):
    assert shown_on_two_devices[0] == "set()"


def test_what_several_replicas_cannot_train_is_refused(shown_on_two_devices):
    _, *messages, counted = shown_on_two_devices
    words = [
        "run_eagerly=True",
        "reduction='sum'",
        "BackupAndRestore",
        "RaggedTensorSpec",
        "'largest'",
        "another thread of this process trains on several replicas by fit",
    ]
    assert len(messages) == len(words)
    for message, word in zip(messages, words, strict=True):
        assert word in message
    assert counted == "[8.0]"


@pytest.mark.parametrize(
    "name",
    [
        *("two_parts", "shuffled"),
        *("counted_steps", "annealed_loss", "averaged_weights", "averaged_model"),
        "rate_by_recent_losses",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("single_rows", "shared_data", "generator")
        ),
    ],
)
def test_alone_it_is_keras_with_checkpoints(name, tmp_path):
    def train(train_model, epochs, **options):
        keras.utils.set_random_seed(1)
        model, arguments = fit_scenarios.SCENARIOS[name]()
        history = train_model(model, **arguments, epochs=epochs, verbose=0, **options)
        return next(iter(history.history.values())), model

    first = []
    if name != "generator":  # Its data begin anew.
        first, _ = train(fit, 2, directory=str(tmp_path))
    losses, model = train(fit, 5, directory=str(tmp_path))
    assert losses[: len(first)] == first
    expected, known = train(keras.Model.fit, 5)
    assert losses == expected
    for weight, value in zip(known.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, value)


class Noise(keras.layers.Layer):
    """Adds draws of a generator of TensorFlow."""

    def __init__(self):
        super().__init__()
        self.generator = tf.random.Generator.from_seed(3)

    def call(self, inputs):
        return inputs + self.generator.normal(tf.shape(inputs))


@pytest.mark.parametrize("in_data", [False, True])
def test_draws_of_a_layer_go_on_and_those_of_data_are_warned_of(in_data, tmp_path):
    def train(train_model, epochs, **options):
        keras.utils.set_random_seed(1)
        layer, data = Noise(), tf.data.Dataset.from_tensors((tf.ones((5, 2)), tf.ones((5, 1))))
        if in_data:
            data = data.map(lambda x, y: (layer(x), y))
        layers = [keras.Input((2,)), *[layer] * (not in_data), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        return train_model(model, data, epochs=epochs, verbose=0, **options).history["loss"]

    warned = pytest.warns(match="the data use the variable") if in_data else nullcontext()
    with warned:
        train(fit, 2, directory=str(tmp_path))
    with warned:
        losses = train(fit, 4, directory=str(tmp_path))
    assert (losses == train(keras.Model.fit, 4)) is not in_data


class Ends(keras.callbacks.Callback):
    """Weights that are not those of the last epoch when training ends."""

    def on_train_end(self, logs=None):
        for weight in self.model.trainable_weights:
            weight.assign(weight * 0.5)


@pytest.mark.parametrize("patience", [1, 9])
def test_finished_training_returns_what_it_returned(patience, tmp_path):
    def train(epochs):
        keras.utils.set_random_seed(1)
        model = fit_scenarios.dense()
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([8], [0.1, 9.0])
        model.compile(
            keras.optimizers.SGD(rate, use_ema=True),
            "categorical_crossentropy",
            metrics=[keras.metrics.F1Score()],
        )
        x, classes = fit_scenarios.draw()
        stop = keras.callbacks.EarlyStopping("loss", patience=patience, restore_best_weights=True)
        options = {"epochs": epochs, "batch_size": 16, "verbose": 0, "callbacks": [stop, Ends()]}
        y = keras.ops.one_hot(classes, 3)
        history = fit(model, x, y, directory=str(tmp_path), shuffle=False, **options)
        rows = Trained(model=model, dataset=None).make_history()
        return history.history["loss"], rows, model.get_weights()

    losses, rows, weights = train(6)
    assert len(losses) == len(rows) == (3 if patience == 1 else 6)
    assert {"loss", "f1_score_0", "f1_score_2"} < rows[0].keys()
    again, same_rows, same_weights = train(6)
    assert (again, same_rows) == (losses, rows)
    for weight, same in zip(weights, same_weights, strict=True):
        np.testing.assert_array_equal(weight, same)
    more, _, _ = train(7 + len(losses))
    assert more[: len(losses)] == losses
    assert len(more) > len(losses)


def test_stop_that_is_not_yet_finished_stays_and_settings_may_change(tmp_path):
    class Lost(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            raise SystemExit

    def train(patience, *callbacks):
        model = fit_scenarios.dense()
        model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
        stop = keras.callbacks.EarlyStopping("loss", patience=patience)
        options = {"epochs": 9, "verbose": 0, "shuffle": False, "directory": str(tmp_path)}
        history = fit(model, *fit_scenarios.draw(), callbacks=[stop, *callbacks], **options)
        return len(history.epoch), stop.patience

    with pytest.raises(SystemExit):
        train(2, Lost())
    assert train(4) == (3, 4)


def test_validation_goes_on_in_the_same_order(tmp_path):
    def train(train_model, epochs, **options):
        keras.utils.set_random_seed(1)
        model = fit_scenarios.dense()
        model.compile("sgd", "sparse_categorical_crossentropy")
        x, y = fit_scenarios.draw()
        some = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(77, seed=3).batch(8).take(2)
        options |= {"validation_data": some, "shuffle": False, "verbose": 0, "epochs": epochs}
        return train_model(model, x, y, **options).history["val_loss"]

    train(fit, 2, directory=str(tmp_path))
    assert train(fit, 4, directory=str(tmp_path)) == train(keras.Model.fit, 4)


def test_data_whose_order_can_not_be_repeated_are_refused(tmp_path):
    model = fit_scenarios.dense()
    model.compile("sgd", "sparse_categorical_crossentropy")
    data = tf.data.Dataset.from_tensor_slices(fit_scenarios.draw()).shuffle(77, seed=3)
    with pytest.raises(InputError, match="are parts of one dataset that is shuffled anew"):
        parts = {"x": data.skip(20).batch(8), "validation_data": data.take(20).batch(8)}
        fit(model, **parts, directory=str(tmp_path))
    read = data.interleave(
        lambda *row: tf.data.Dataset.from_tensors(row), num_parallel_calls=2, deterministic=False
    )
    with pytest.raises(InputError, match="deterministic=False, so that a training that goes on"):
        fit(model, read.batch(8), directory=str(tmp_path), checkpoint_steps=2)


class Beside(keras.layers.Layer):
    """Another thread works while a step that calls this layer is traced, but not in build."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def call(self, inputs, training=False):
        if training:
            self.found, self.work = self.work and in_thread(self.work), None
        return inputs


def in_thread(work):
    with concurrent.futures.ThreadPoolExecutor() as threads:
        return threads.submit(work).result()


def test_other_threads_train_and_evaluate_as_keras_while_a_step_is_traced(tmp_path):
    x, y = fit_scenarios.draw()

    def make(*layers):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def train(name, *layers):
        model = make(*layers)
        options = {"directory": str(tmp_path / name), "checkpoint_steps": 2}
        return fit(model, x, y, verbose=0, shuffle=False, **options).history["loss"]

    def work():
        return make().evaluate(x, y, verbose=0), train("beside")

    expected = make().evaluate(x, y, verbose=0), train("alone")
    beside = Beside(work)
    assert train("around", beside) == expected[1]
    assert beside.found == expected
    assert keras.metrics.Mean.update_state.__qualname__ == "Mean.update_state"
    assert not internals._installed


def test_keras_without_a_private_part_is_an_error(monkeypatch):
    monkeypatch.delattr(losses, "apply_mask")
    monkeypatch.setattr(losses, "scale_loss_for_distribution", lambda value, replicas: value)
    with pytest.raises(RuntimeError) as caught:
        internals._check()
    assert f"Keras {keras.__version__} with TensorFlow {tf.__version__}" in str(caught.value)
    assert "keras.src.losses.loss has no apply_mask" in str(caught.value)
    assert "scale_loss_for_distribution takes (value replicas), not (value)" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random_layers", "weighted_dataset"])
def test_interrupted_epoch_goes_on_to_the_bit(name, tmp_path):
    def train(train_model, callbacks=(), **options):
        keras.utils.set_random_seed(1)
        model, arguments = fit_scenarios.SCENARIOS[name]()
        options |= {"epochs": 7, "verbose": 0, "callbacks": [*callbacks]}
        history = train_model(model, **arguments, **options)
        return history.history["loss"], model.get_weights()

    options = {"directory": str(tmp_path), "checkpoint_steps": 2}
    with pytest.raises(SystemExit):
        train(fit, callbacks=[fit_scenarios.Leave()], **options)
    assert done_at(tmp_path) == (5, 2)
    losses, weights = train(fit, **options)
    expected, known = train(keras.Model.fit)
    assert losses == pytest.approx(expected, abs=1e-6)
    for weight, value in zip(known, weights, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (fit_scenarios.Batches(), {}, "give shuffle=False with a PyDataset"),
        ((batch for batch in ()), {}, "this is a generator; give a tf.data.Dataset"),
        (fit_scenarios.Batches(), {"directory": ""}, "checkpoint_steps=2 needs a directory"),
    ],
)
def test_epoch_that_could_not_go_on_is_refused(data, options, message, tmp_path):
    model = fit_scenarios.dense()
    model.compile(loss="mse")
    options = {"directory": str(tmp_path), "checkpoint_steps": 2, **options}
    with pytest.raises(InputError, match=message):
        fit(model, data, **options)


def test_other_random_operations_of_keras_are_an_error(monkeypatch):
    monkeypatch.setattr(draws, "_OPERATIONS", draws._OPERATIONS[:2])
    draws._check_functions.cache_clear()
    with pytest.raises(RuntimeError, match="draws by other operations than"), draws.by_row():
        pass


def test_a_step_is_traced_once_until_the_model_is_compiled_again(tmp_path):
    traced = []

    class Counting(keras.Sequential):
        def train_step(self, *arguments):
            traced.append(arguments)
            return super().train_step(*arguments)

    def train(number):
        data, options = np.ones((6, 1)), {"batch_size": 2, "verbose": 0, "shuffle": False}
        fit(model, data, data, directory=str(tmp_path / number), checkpoint_steps=2, **options)
        alone = keras_model.fit(data, data, **options)
        np.testing.assert_allclose(model.history.history["loss"], alone.history["loss"], 1e-6)
        return len(traced)

    with tf.distribute.OneDeviceStrategy("cpu:0").scope():
        model = Counting([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        keras_model = keras.models.clone_model(keras.Sequential(model.layers))
        for one in (model, keras_model):
            one.compile("adam", "mse")
        assert train("first") == train("second") == 1
        for one in (model, keras_model):
            one.compile("sgd", "mae")
        assert train("third") == 2


def test_metric_that_is_never_reset_goes_on_after_a_restart(tmp_path):
    def train(epochs, how, **options):
        keras.utils.set_random_seed(1)
        model, arguments = SCENARIOS["results_read_by_the_step"]()
        arguments |= {"epochs": epochs, "verbose": 0, **options}
        return how(model, **arguments).history["number"]

    saved = {"directory": str(tmp_path), "checkpoint_steps": 3}
    train(2, fit, **saved)
    assert train(4, fit, **saved) == train(4, keras.Model.fit) == [44, 88, 132, 176]


def test_variable_that_a_step_creates_is_refused(tmp_path):
    class Late(keras.Sequential):
        def train_step(self, data):
            if not hasattr(self, "count"):
                self.count = tf.Variable(0.0)
            self.count.assign_add(1.0)
            return super().train_step(data)

    model = Late([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match="has created the variable Variable:0 in a step, which"):
        fit(model, *fit_scenarios.draw(), verbose=0, directory=str(tmp_path))


def test_checkpoint_of_another_model_is_refused(tmp_path):
    x, y = fit_scenarios.draw()
    for units in (4, 5):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
        model.add(keras.layers.Dense(1))
        model.compile("adam", "mse")
        if units == 4:
            fit(model, x, y, verbose=0, directory=str(tmp_path))
    with pytest.raises(InputError, match=r"kernel has the shape \[4, 5\], there \[4, 4\]; give an"):
        fit(model, x, y, verbose=0, directory=str(tmp_path))


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"worker": ["a:1", "b:1"]}, "TF_CONFIG lists 2 workers, but the model"),
        ({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "parameter servers"),
    ],
)
def test_a_model_for_other_replicas_is_refused(cluster, message, monkeypatch):
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    model = fit_scenarios.dense()
    model.compile(loss="mse")
    with pytest.raises(InputError, match=message):
        fit(model, *fit_scenarios.draw())


def test_a_model_without_a_loss_is_refused():
    with pytest.raises(InputError, match="not compiled; call its compile first"):
        fit(fit_scenarios.dense(), *fit_scenarios.draw())
