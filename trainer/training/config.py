"""Training options: a typed config, and the file from which replicas read it."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from trainer.conditions import Condition, above_zero, when
from trainer.data import storage
from trainer.data.source_options import (
    augmentation_option,
    check_operations,
    operations_option,
)
from trainer.fields import build, option
from trainer.models import (
    AUGMENTABLE,
    BACKBONE,
    MODELS,
    NO_PROGRAM,
    WIDE_PART,
    find_model_class,
    open_model,
)
from trainer.tasks.label_kinds import labels_of
from trainer.training.optimizers import OPTIMIZERS, taking
from vertex.errors import InputError

_MODEL_OPTIONS = "; ".join(
    f"{name}: {', '.join(field.name for field in dataclasses.fields(model))}"
    for name, model in MODELS.items()
)

_FINE_TUNING = (BACKBONE, above_zero("fine_tune_epochs"))
_WITHOUT_SERVERS = when("ps_count", 0)
_PATIENCES = (
    "plateau_patience", "early_stopping_patience",
    "fine_tune_plateau_patience", "fine_tune_early_stopping_patience",
)  # fmt: skip
_PLATEAU_WATCHED = Condition(
    ("plateau_patience", "fine_tune_plateau_patience"),
    lambda *patiences: any(patiences),
    "plateau_patience above 0",
)
_MONITORED = Condition(
    ("keep_epoch", *_PATIENCES),
    lambda keep_epoch, *patiences: keep_epoch == "best" or any(patiences),
    "keep_epoch=best or a patience above 0",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Options of training; each is a parameter of the pipeline and a flag of trainer.task."""

    all_apply: ClassVar = NO_PROGRAM
    """Condition of all options except `always_apply`."""
    always_apply: ClassVar = ("model", "model_options", "augmentation", "augmentation_operations")

    model: str = option(
        "small_cnn",
        help=f"Model to train. One of {', '.join(MODELS)}, or MODULE:FUNCTION, which builds your "
        "own model, or is a program that trains it and takes no other option of training.",
    )
    model_options: dict = option(
        {}, help=f"Options of the model, as a JSON object. {_MODEL_OPTIONS}."
    )
    warm_start: str = option(
        "",
        help="Initial weights: champion (of model_name in the Model Registry, if it has one), or "
        "the URI of a model.keras or of a training job's folder. By default they are random, by "
        "seed.",
    )
    strategy: str = option(
        "auto",
        help="tf.distribute strategy. auto chooses parameter_server if there are parameter "
        "servers, multi_worker_mirrored for several replicas, mirrored for several GPUs, and "
        "one_device otherwise.",
        choices=("auto", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server"),
    )
    epochs: int = option(10, help="Passes over the training split.", minimum=1)
    steps_per_epoch: int = option(
        0,
        help="Steps per epoch, which ends with validation and a row of history; 0 makes an epoch "
        "one pass over the training split.",
        minimum=0,
    )
    max_train_examples: int = option(
        0, help="Maximum number of training examples to use; 0 uses all.", minimum=0
    )
    batch_size: int = option(
        64,
        help="Global batch size: examples per step over all replicas; with "
        "strategy=parameter_server, per worker.",
        minimum=1,
    )
    optimizer: str = option("adam", help="Optimizer of the model's weights.", choices=OPTIMIZERS)
    learning_rate: float = option(1e-3, help="Peak learning rate of the optimizer.", above=0)
    momentum: float = option(0.9, help="Momentum.", minimum=0, below=1, applies=taking("momentum"))
    weight_decay: float = option(
        0.0,
        help="Decoupled weight decay: in each step, a weight shrinks by its value x weight_decay x "
        "learning rate.",
        minimum=0,
        applies=taking("weight_decay"),
    )
    schedule: str = option(
        "constant",
        help="Learning rate schedule, after the warm-up.",
        choices=("constant", "cosine", "one_cycle", "exponential"),
    )
    warmup_steps: int = option(
        0,
        help="Steps over which the learning rate rises linearly from 0 to its peak; one_cycle "
        "warms up by itself.",
        minimum=0,
        applies=when("schedule", "constant", "cosine", "exponential"),
    )
    decay_rate: float = option(
        0.96,
        help="Factor by which the learning rate shrinks every decay_steps.",
        above=0,
        maximum=1,
        applies=when("schedule", "exponential"),
    )
    decay_steps: int = option(
        1000,
        help="Steps over which the learning rate shrinks by decay_rate.",
        minimum=1,
        applies=when("schedule", "exponential"),
    )
    wide_learning_rate: float = option(
        0.1, help="Learning rate of FTRL for the wide part.", above=0, applies=WIDE_PART
    )
    wide_l1: float = option(
        0.0, help="L1 regularization of the wide part.", minimum=0, applies=WIDE_PART
    )
    wide_l2: float = option(
        0.0, help="L2 regularization of the wide part.", minimum=0, applies=WIDE_PART
    )
    plateau_patience: int = option(
        0,
        help="Epochs without improvement in monitor before the learning rate is reduced by "
        "plateau_factor; 0 never reduces it.",
        minimum=0,
    )
    plateau_factor: float = option(
        0.1,
        help="Factor of the learning rate after plateau_patience epochs without improvement.",
        above=0,
        below=1,
        applies=_PLATEAU_WATCHED,
    )
    early_stopping_patience: int = option(
        0,
        help="Epochs without improvement in monitor before training stops; 0 never stops it.",
        minimum=0,
    )
    keep_epoch: str = option(
        "best",
        help="Epoch whose weights the model keeps: the best by monitor, or the last; without a "
        "validation split, always the last.",
        choices=("best", "last"),
    )
    monitor: str = option(
        "loss",
        help="Validation metric that keep_epoch, early_stopping_patience and plateau_patience "
        "watch.",
        choices=("loss", "accuracy", "mae", "example_f1"),
        applies=_MONITORED,
    )
    fine_tune_epochs: int = option(
        0,
        help="Epochs of fine-tuning: a second phase, which starts from the best weights of the "
        "first and also trains the backbone's last layers; 0 skips it.",
        minimum=0,
        applies=BACKBONE,
    )
    fine_tune_layers: int = option(
        30,
        help="Number of layers at the end of the backbone that fine-tuning trains; BatchNorm stays "
        "frozen.",
        minimum=1,
        applies=_FINE_TUNING,
    )
    fine_tune_learning_rate: float = option(
        1e-5, help="Peak learning rate of fine-tuning.", above=0, applies=_FINE_TUNING
    )
    fine_tune_plateau_patience: int = option(
        0,
        help="Epochs of fine-tuning without improvement before the learning rate is reduced; 0 "
        "never reduces it.",
        minimum=0,
        applies=_FINE_TUNING,
    )
    fine_tune_early_stopping_patience: int = option(
        0,
        help="Epochs of fine-tuning without improvement before training stops; 0 never stops it.",
        minimum=0,
        applies=_FINE_TUNING,
    )
    gradient_clip_norm: float = option(
        0.0, help="Maximum global norm of a step's gradient; 0 clips none.", minimum=0
    )
    precision: str = option(
        "float32",
        help="Keras dtype policy of the computation.",
        choices=("float32", "mixed_float16", "mixed_bfloat16"),
    )
    xla: bool = option(False, help="Compile the training step with XLA.")
    loss: str = option(
        "squared",
        help="What training minimizes: the squared, absolute or Huber error, in standard "
        "deviations of the labels.",
        choices=("squared", "absolute", "huber"),
        applies=labels_of("numeric"),
    )
    class_weights: str = option(
        "none",
        help="Weights of classes in the loss: none (equal) or balanced (by inverse frequency in "
        "the training split). Balanced weights raise the predicted probabilities of rare classes "
        "above their frequency.",
        choices=("none", "balanced"),
        applies=labels_of("classes"),
    )
    label_smoothing: float = option(
        0.0,
        help="Label smoothing: fraction of a label's probability that is spread over all classes.",
        minimum=0,
        below=1,
        applies=labels_of("classes"),
    )
    augmentation: str = augmentation_option(AUGMENTABLE)
    augmentation_operations: list[str] = operations_option()
    checkpoint_steps: int = option(
        0,
        help="Steps between checkpoints; 0 saves one only at the end of each epoch.",
        minimum=0,
    )
    steps_per_execution: int = option(
        1,
        help="Steps that TensorFlow runs without returning to Python, which is faster if they are "
        "short. Above 1, waiting for input is not measured.",
        minimum=1,
        applies=_WITHOUT_SERVERS,
    )
    profile_steps: list[int] = option(
        [],
        help="First and last step of the run, from 1, to profile; [] profiles none.",
        minimum=1,
        applies=_WITHOUT_SERVERS,
    )
    shuffle_megabytes: float = option(
        256.0, help="Size of each replica's shuffle buffer, in MB (10^6 bytes).", above=0
    )
    seed: int = option(
        0, help="Seed of the initial weights, the order of examples and augmentation.", minimum=0
    )

    def __post_init__(self) -> None:
        model = open_model(self.model, self.model_options)
        if self.fine_tune_epochs:
            model.check_fine_tuned(self.fine_tune_layers)
        check_operations(self.augmentation, self.augmentation_operations)
        profiled = self.profile_steps
        if profiled and not (len(profiled) == 2 and profiled[0] <= profiled[1]):
            raise InputError(
                f"profile_steps={profiled} is not a first and a last step; give two, such as "
                "[20, 30]"
            )


def seed_of(config: TrainingConfig) -> int:
    """Return the seed modulo 2**32, since NumPy and Keras accept 32 bits."""
    return config.seed % 2**32


def phases(config: TrainingConfig) -> list[TrainingConfig]:
    """Return the config of each phase: training, and fine-tuning of the backbone if it is set."""
    if not config.fine_tune_epochs or not find_model_class(config.model).has_backbone:
        return [config]
    fine_tuning = dataclasses.replace(
        config,
        epochs=config.fine_tune_epochs,
        learning_rate=config.fine_tune_learning_rate,
        plateau_patience=config.fine_tune_plateau_patience,
        early_stopping_patience=config.fine_tune_early_stopping_patience,
    )
    return [config, fine_tuning]


def override(config: TrainingConfig, values: Mapping[str, Any]) -> TrainingConfig:
    """Return a config with other values, also as text; `model_options.NAME` sets one option."""
    changed = dict(vars(config))
    for name, value in values.items():
        group, _, inner = name.partition(".")
        if group == "model_options" and inner:
            changed[group] = {**changed[group], inner: _parse_option(value)}
        else:
            changed[name] = value
    return build(TrainingConfig, changed)


def read_values(config: TrainingConfig, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of options by the names that `override` takes; skip unset model options."""
    options = {f"model_options.{name}": value for name, value in config.model_options.items()}
    known = {**vars(config), **options}
    return {name: known[name] for name in names if name in known}


def _parse_option(value: Any) -> Any:
    """Return the value of a model's option: text is parsed as JSON if it is JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def write_config(config: TrainingConfig, directory: str) -> str:
    """Write the config for all replicas of the job in `directory` (URI); return its URI."""
    storage.make_folder(directory)
    uri = config_uri(directory)
    storage.write_atomically(uri, json.dumps(dataclasses.asdict(config), indent=1).encode())
    return uri


def config_uri(directory: str) -> str:
    """Return the URI of the config of the job in `directory`."""
    return storage.join(directory, "config.json")
