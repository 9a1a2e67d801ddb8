"""What a run says of itself: one line an epoch, history.csv and TensorBoard, by the chief alone."""

import csv
import io
import time
from typing import Any

import tensorflow as tf

from trainer import files
from trainer.cluster import Cluster
from trainer.config import TrainingConfig
from trainer.dataset.schema import join
from trainer.progress import Progress

SECONDS_BETWEEN_LINES = 10.0
"""Within an epoch, a line of progress no more often than this."""


def for_replica(base: str, cluster: Cluster, steps: int, config: TrainingConfig) -> "Log":
    """The log of this replica: the chief's writes, the others' are silent."""
    return ChiefLog(base, steps, config) if cluster.is_chief else Log()


class Log:
    """A log that says nothing."""

    def line(self, text: str) -> None:
        """A line of its own."""

    def step(self, progress: Progress, optimizer_step: int) -> None:
        """A step was taken."""

    def epoch(self, progress: Progress, optimizer_step: int) -> None:
        """An epoch has ended; its row is the last of progress.history."""


class ChiefLog(Log):
    """Prints, and writes `<base>/history.csv` and `<base>/logs`."""

    def __init__(self, base: str, steps: int, config: TrainingConfig) -> None:
        self._history = join(base, "history.csv")
        self._steps = steps
        self._config = config
        self._writers = {
            split: tf.summary.create_file_writer(join(base, "logs", split))
            for split in ("train", "validation")
        }
        self._last_line = time.monotonic()

    def line(self, text: str) -> None:
        print(text, flush=True)
        self._last_line = time.monotonic()

    def step(self, progress: Progress, optimizer_step: int) -> None:
        if time.monotonic() - self._last_line < SECONDS_BETWEEN_LINES or not progress.sums.examples:
            return
        means = progress.sums.means()
        rate = progress.sums.examples / progress.seconds
        self.line(
            f"epoch {progress.epoch + 1}/{self._config.epochs}, step {progress.step}/{self._steps}"
            f": loss {means['loss']:.4f}, accuracy {means['accuracy']:.4f}, {rate:,.0f} images/s, "
            f"{self._time_left(progress)} left"
        )
        with self._writers["train"].as_default(optimizer_step):
            tf.summary.scalar("loss_within_epoch", means["loss"])

    def epoch(self, progress: Progress, optimizer_step: int) -> None:
        row = progress.history[-1]
        self._write_history(progress.history)
        self._summarize(row, optimizer_step)
        validation = "".join(
            f", validation {name} {row[f'validation_{name}']:.4f}"
            for name in ("loss", "accuracy")
            if f"validation_{name}" in row
        )
        best = " (best)" if progress.best_epoch == row["epoch"] else ""
        left = f", {self._time_left(progress)} left" if progress.epoch < self._config.epochs else ""
        self.line(
            f"epoch {row['epoch']}/{self._config.epochs}: loss {row['loss']:.4f}, "
            f"accuracy {row['accuracy']:.4f}{validation}{best}, "
            f"{row['images_per_second']:,.0f} images/s{left}"
        )
        if progress.stopped:
            self.line(f"stopped early: {progress.stopped}; the best epoch is {progress.best_epoch}")

    def _write_history(self, history: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(history)
        files.write_text(self._history, text.getvalue())

    def _summarize(self, row: dict[str, Any], optimizer_step: int) -> None:
        with self._writers["train"].as_default(optimizer_step):
            for name in (
                "loss",
                "accuracy",
                "learning_rate",
                "images_per_second",
                "input_wait_fraction",
            ):
                tf.summary.scalar(name, row[name])
        with self._writers["validation"].as_default(optimizer_step):
            for name in ("loss", "accuracy"):
                if f"validation_{name}" in row:
                    tf.summary.scalar(name, row[f"validation_{name}"])
        for writer in self._writers.values():
            writer.flush()

    def _time_left(self, progress: Progress) -> str:
        """Minutes and seconds by the pace so far, the newest epochs' where there are any."""
        done = progress.step / self._steps
        seconds = [row["seconds"] for row in progress.history[-3:]]
        pace = min(seconds) if seconds else progress.seconds / max(done, 1e-9)
        left = max(0.0, pace * (self._config.epochs - progress.epoch - done))
        minutes, rest = divmod(round(left), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
