"""The optimizers that a recipe can name.

A new one is an entry of OPTIMIZERS. Keras is imported only when an optimizer is created, because
the command line reads this table.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainer.conditions import Condition, when

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimizer: its class in keras.optimizers, and the options of training that it takes."""

    keras_name: str
    options: tuple[str, ...] = ()

    def create(self, config: Any, **arguments: Any) -> keras.optimizers.Optimizer:
        """Return Keras's optimizer with its options of a TrainingConfig, and other arguments."""
        import keras

        own = {name: getattr(config, name) for name in self.options}
        return getattr(keras.optimizers, self.keras_name)(**own, **arguments)


OPTIMIZERS = {
    "sgd": Optimizer("SGD", ("momentum",)),
    "adam": Optimizer("Adam"),
    "adamw": Optimizer("AdamW", ("weight_decay",)),
}
"""Optimizers by the value of the option `optimizer`."""


def taking(option: str) -> Condition:
    """Return the condition that the optimizer takes `option`."""
    return when("optimizer", *(name for name, one in OPTIMIZERS.items() if option in one.options))
