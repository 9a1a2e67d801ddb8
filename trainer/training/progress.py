"""Keep the progress of a run, which a checkpoint contains besides the weights; stop early."""

import dataclasses
import json
import math
from typing import Any

import tensorflow as tf

from trainer.tasks.label_kinds import is_rising
from trainer.training.config import TrainingConfig


@dataclasses.dataclass(kw_only=True)
class Progress(tf.train.experimental.PythonState):
    """State of a run, saved completely in each checkpoint.

    Keras's EarlyStopping and ReduceLROnPlateau lose their counts when a run is killed.
    """

    epoch: int = 0  # epoch of the next step, from 0
    step: int = 0  # the next step within the epoch, from 0
    phase: int = 0  # from 0
    phase_start: int = 0  # epochs finished before this phase
    # Of the unfinished epoch: sums of metrics' states, the number of examples, and seconds.
    totals: list[float] = dataclasses.field(default_factory=list)
    examples: int = 0
    seconds: float = 0.0
    waited: float = 0.0  # part of these seconds spent waiting for input
    # A row for each finished epoch.
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None  # from 1; None before the first
    best_value: float = 0.0  # monitored metric of the best epoch
    stale_epochs: int = 0  # epochs of this phase finished since the best epoch
    plateau_epochs: int = 0  # epochs since the best epoch or the last learning rate reduction
    factor: float = 1.0  # factor of the learning rate, reduced at plateaus
    stopped: str = ""  # why the phase ended before its last epoch; empty if it did not
    stops: list[str] = dataclasses.field(default_factory=list)  # `stopped` of each finished phase

    def serialize(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    def deserialize(self, string_value: bytes | str) -> None:
        for name, value in json.loads(string_value).items():
            setattr(self, name, value)

    @property
    def begins_later_phase(self) -> bool:
        """Return whether the next step is the first of a phase after the first."""
        return self.phase > 0 and self.epoch == self.phase_start and self.step == 0

    def begin_phase(self) -> None:
        """Start the next phase: reset the patience and the learning rate, keep the best epoch."""
        self.phase += 1
        self.stops.append(self.stopped)
        self.phase_start = self.epoch
        self.stale_epochs = self.plateau_epochs = 0
        self.factor = 1.0
        self.stopped = ""

    def end_epoch(self, row: dict[str, Any], config: TrainingConfig) -> bool:
        """Add an epoch's row to the history; update the best epoch, early stopping and plateaus.

        Return True if this epoch is the best so far, by validation or, if there is none, by
        training metrics.
        """
        self.history.append(row)
        self.epoch += 1
        self.step = 0
        self.totals, self.examples = [], 0
        self.seconds = self.waited = 0.0
        value = row.get(f"validation_{config.monitor}", row[config.monitor])
        is_better = (
            value > self.best_value if is_rising(config.monitor) else value < self.best_value
        )
        is_best = math.isfinite(value) and (self.best_epoch is None or is_better)
        if is_best:
            self.best_epoch, self.best_value = self.epoch, value
            self.stale_epochs = self.plateau_epochs = 0
        else:
            self.stale_epochs += 1
            self.plateau_epochs += 1
        if config.plateau_patience and self.plateau_epochs >= config.plateau_patience:
            self.factor *= config.plateau_factor
            self.plateau_epochs = 0
        patience = config.early_stopping_patience
        remaining = config.epochs - (self.epoch - self.phase_start)
        if patience and self.stale_epochs >= patience and remaining > 0:
            self.stopped = f"no better {config.monitor} in {patience} epochs"
        return is_best
