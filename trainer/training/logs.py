"""Log a run: one line per epoch, history.csv and TensorBoard. Only the chief logs."""

import time
from typing import Any

import tensorflow as tf

from trainer import files, formats
from trainer.config import TrainingConfig, phases
from trainer.data.schema import join
from trainer.training.cluster import Cluster
from trainer.training.progress import Progress

SECONDS_BETWEEN_LINES = 10.0
"""Minimum time between two progress lines within an epoch."""


class Log:
    """Prints progress and writes `<base>/history.csv` and `<base>/logs`, on the chief only."""

    def __init__(self, base: str, cluster: Cluster, steps: int, config: TrainingConfig) -> None:
        self._is_chief = cluster.is_chief
        self._history_uri = join(base, "history.csv")
        self._steps = steps
        self._monitored = config.monitor
        self._phases = phases(config)
        self._writers = {
            split: tf.summary.create_file_writer(join(base, "logs", split))
            for split in ("train", "validation")
            if cluster.is_chief
        }
        self._last_line = time.monotonic()
        self._first_step: tuple[float, int] | None = None

    def write_line(self, text: str) -> None:
        if self._is_chief:
            print(text, flush=True)
            self._last_line = time.monotonic()

    def step(self, progress: Progress, optimizer_step: int) -> None:
        """Log the progress after a step, if a line is due."""
        self._first_step = self._first_step or (time.monotonic(), optimizer_step)
        is_due = time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES
        if not (self._is_chief and is_due and progress.sums.examples):
            return
        means = progress.sums.means()
        rate = progress.sums.examples / progress.seconds
        self.write_line(
            f"epoch {progress.epoch + 1}/{self._estimate_epochs(progress)}, "
            f"step {progress.step}/{self._steps}: loss {means['loss']:.4f}, "
            f"accuracy {means['accuracy']:.4f}, {rate:,.0f} examples/s"
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
        self._summarize(row, optimizer_step)
        validation = ""
        for name in ("loss", "accuracy"):
            if f"validation_{name}" in row:
                is_best = progress.best_epoch == row["epoch"] and name == self._monitored
                value = row[f"validation_{name}"]
                validation += f", validation {name} {value:.4f}{' (best)' if is_best else ''}"
        total = self._estimate_epochs(progress)
        left = self._format_time_left(progress, optimizer_step) if progress.epoch < total else ""
        self.write_line(
            f"epoch {row['epoch']}/{total}: loss {row['loss']:.4f}, "
            f"accuracy {row['accuracy']:.4f}{validation}, "
            f"{row['images_per_second']:,.0f} examples/s{left}"
        )
        if progress.stopped:
            prefix = f"phase {progress.phase + 1} " if len(self._phases) > 1 else ""
            best = progress.best_epoch
            self.write_line(f"{prefix}stopped early: {progress.stopped}; the best epoch is {best}")

    def write_history(self, progress: Progress) -> None:
        """Rewrite history.csv from progress.history."""
        files.write_csv(self._history_uri, progress.history)

    def _summarize(self, row: dict[str, Any], optimizer_step: int) -> None:
        names = ["loss", "accuracy", "learning_rate", "images_per_second", "input_wait_fraction"]
        if len(self._phases) > 1:
            names.append("phase")
        with self._writers["train"].as_default(optimizer_step):
            for name in names:
                tf.summary.scalar(name, row[name])
        with self._writers["validation"].as_default(optimizer_step):
            for name in ("loss", "accuracy"):
                if f"validation_{name}" in row:
                    tf.summary.scalar(name, row[f"validation_{name}"])
        for writer in self._writers.values():
            writer.flush()

    def _estimate_epochs(self, progress: Progress) -> int:
        """Return the number of epochs of the whole run, assuming that no phase stops early."""
        remaining = self._phases[progress.phase :]
        return progress.phase_start + sum(phase.epochs for phase in remaining)

    def _format_time_left(self, progress: Progress, optimizer_step: int) -> str:
        """Return the estimated time left, after a comma; empty while it is unknown.

        The estimate is based on the pace of the newest epochs. Before the first epoch ends, it is
        based on the pace since the first step of this process, which includes tracing the graph.
        """
        seconds = [row["seconds"] for row in progress.history[-3:]]
        if seconds:
            pace = min(seconds)
        else:
            assert self._first_step
            started, step = self._first_step
            if optimizer_step <= step:
                return ""
            pace = (time.monotonic() - started) / (optimizer_step - step) * self._steps
        done = progress.epoch + progress.step / self._steps
        return f", {formats.clock(max(0.0, pace * (self._estimate_epochs(progress) - done)))} left"
