"""Build the network of a run from its config and its records."""

import keras
import tensorflow as tf

from trainer.config import TrainingConfig
from trainer.data.schema import Dataset
from trainer.models.model import Model
from trainer.training import weights
from trainer.training.augmentation import augmented


def build_network(
    config: TrainingConfig, dataset: Dataset, prepared: Model, strategy: tf.distribute.Strategy
) -> tuple[keras.Model, keras.Model]:
    """Build the model of `config`, and the network that is trained.

    The network is the model, preceded by augmentation if config.augmentation is "model". This
    function sets the process's random seed and dtype policy, so that each process with these
    arguments gets the same weights: those of config.warm_start, if set.
    """
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    with strategy.scope():
        model = prepared.build(dataset)
        if config.warm_start:
            weights.load(model, config.warm_start)
        if config.augmentation != "model":
            return model, model
        return model, augmented(model, config.augmentation_operations, config.seed)
