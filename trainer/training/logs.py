"""Log a run: one line per epoch, history.csv and TensorBoard. Only the chief logs."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainer.data import storage
from trainer.data.storage import join
from trainer.engine.cluster import Cluster
from trainer.exported.results import HISTORY
from trainer.training import trial
from trainer.training.config import TrainingConfig, phases
from trainer.training.progress import Progress
from vertex import formats

SECONDS_BETWEEN_LINES = 10.0
"""Minimum time between two progress lines within an epoch."""


class Log:
    """Prints progress and writes `<base>/history.csv` and `<base>/logs`, on the chief only."""

    def __init__(
        self,
        base: str,
        cluster: Cluster,
        steps: int,
        config: TrainingConfig,
        measured: Sequence[str],
    ) -> None:
        self._is_chief = cluster.is_chief
        self._history_uri = join(base, HISTORY)
        self._steps = steps
        self._measured = measured  # names of the loss and the metrics
        self._monitored = config.monitor
        self._phases = phases(config)
        self._writers = {
            split: tf.summary.create_file_writer(join(base, "logs", split))
            for split in ("train", "validation")
            if cluster.is_chief
        }
        if cluster.is_chief and trial.is_trial():
            trial.describe(base)
        self._last_line = time.monotonic()
        # Time, steps of the run and phase when the first step of the newest phase ended.
        self._first_step: tuple[float, int, int] | None = None

    def write_line(self, text: str) -> None:
        if self._is_chief:
            print(text, flush=True)
            self._last_line = time.monotonic()

    def step(
        self, progress: Progress, optimizer_step: int, measure: Callable[[], dict[str, float]]
    ) -> None:
        """Log the progress after a step, if a line is due; `measure` returns loss and metrics."""
        if not self._first_step or self._first_step[2] != progress.phase:
            self._first_step = (time.monotonic(), optimizer_step, progress.phase)
        is_due = time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES
        if not (self._is_chief and is_due and progress.examples):
            return
        means = measure()
        rate = progress.examples / progress.seconds
        self.write_line(
            f"epoch {progress.epoch + 1}/{self._estimate_epochs(progress)}, "
            f"step {progress.step}/{self._steps}: {self._format(means)}, {rate:,.0f} examples/s"
            f"{self._format_time_left(progress, optimizer_step)}"
        )
        with self._writers["train"].as_default(optimizer_step):
            tf.summary.scalar("loss_within_epoch", means["loss"])

    def epoch(self, progress: Progress, optimizer_step: int) -> None:
        """Log the end of an epoch, whose row is the last of progress.history."""
        if not self._is_chief:
            return
        row = progress.history[-1]
        self.write_history(progress)
        trial.report(row, optimizer_step)
        self._summarize(row, optimizer_step)
        validation = ""
        for name in self._measured:
            if f"validation_{name}" in row:
                is_best = progress.best_epoch == row["epoch"] and name == self._monitored
                value = row[f"validation_{name}"]
                validation += f", validation {name} {value:.4f}{' (best)' if is_best else ''}"
        total = self._estimate_epochs(progress)
        left = self._format_time_left(progress, optimizer_step) if progress.epoch < total else ""
        self.write_line(
            f"epoch {row['epoch']}/{total}: {self._format(row)}{validation}, "
            f"{row['examples_per_second']:,.0f} examples/s{left}"
        )
        if progress.stopped:
            prefix = f"phase {progress.phase + 1} " if len(self._phases) > 1 else ""
            best = progress.best_epoch
            self.write_line(f"{prefix}stopped early: {progress.stopped}; the best epoch is {best}")

    def write_history(self, progress: Progress) -> None:
        """Rewrite history.csv from progress.history."""
        storage.write_csv(self._history_uri, progress.history)

    def _summarize(self, row: dict[str, Any], optimizer_step: int) -> None:
        names = [
            *self._measured, "learning_rate", "examples_per_second", "input_wait_fraction"
        ]  # fmt: skip
        if len(self._phases) > 1:
            names.append("phase")
        with self._writers["train"].as_default(optimizer_step):
            for name in names:
                if row[name] is not None:
                    tf.summary.scalar(name, row[name])
        with self._writers["validation"].as_default(optimizer_step):
            for name in self._measured:
                if f"validation_{name}" in row:
                    tf.summary.scalar(name, row[f"validation_{name}"])
        for writer in self._writers.values():
            writer.flush()

    def _format(self, values: dict[str, Any]) -> str:
        return ", ".join(f"{name} {values[name]:.4f}" for name in self._measured)

    def _estimate_epochs(self, progress: Progress) -> int:
        """Return the number of epochs of the run, assuming that no later phase stops early."""
        phase, *later = self._phases[progress.phase :]
        end = progress.epoch if progress.stopped else progress.phase_start + phase.epochs
        return end + sum(phase.epochs for phase in later)

    def _format_time_left(self, progress: Progress, optimizer_step: int) -> str:
        """Return the estimated time left, after a comma; empty while it is unknown.

        The estimate is based on the pace since this process's first step of the phase. It includes
        validation and checkpoints, but not the tracing of that step.
        """
        if not self._first_step or optimizer_step <= self._first_step[1]:
            return ""
        started, step, _ = self._first_step
        pace = (time.monotonic() - started) / (optimizer_step - step)
        left = self._estimate_epochs(progress) * self._steps - optimizer_step
        return f", {formats.clock(pace * left)} left"
