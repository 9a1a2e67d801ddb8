"""Log a run: one line an epoch, history.csv and TensorBoard, by the chief alone."""

import csv
import io
import time
from typing import Any

import tensorflow as tf

from trainer import files
from trainer.config import TrainingConfig
from trainer.data.schema import join
from trainer.training.cluster import Cluster
from trainer.training.phases import expected_epochs, phases
from trainer.training.progress import Progress

SECONDS_BETWEEN_LINES = 10.0
"""Within an epoch, a line of progress no more often than this."""


def for_replica(base: str, cluster: Cluster, steps: int, config: TrainingConfig) -> "Log":
    """Return the log of this replica: the chief's writes, the others' are silent."""
    return ChiefLog(base, steps, config) if cluster.is_chief else Log()


class Log:
    """A log that says nothing."""

    def line(self, text: str) -> None:
        """Take a line of its own."""

    def step(self, progress: Progress, optimizer_step: int) -> None:
        """Note that a step was taken."""

    def epoch(self, progress: Progress, optimizer_step: int) -> None:
        """Note that an epoch has ended; its row is the last of progress.history."""

    def history(self, progress: Progress) -> None:
        """Rows of progress.history have changed."""


class ChiefLog(Log):
    """Prints, and writes `<base>/history.csv` and `<base>/logs`."""

    def __init__(self, base: str, steps: int, config: TrainingConfig) -> None:
        self._history_uri = join(base, "history.csv")
        self._steps = steps
        self._config = config
        self._writers = {
            split: tf.summary.create_file_writer(join(base, "logs", split))
            for split in ("train", "validation")
        }
        self._last_line = time.monotonic()
        self._first_step: tuple[float, int] | None = None

    def line(self, text: str) -> None:
        print(text, flush=True)
        self._last_line = time.monotonic()

    def step(self, progress: Progress, optimizer_step: int) -> None:
        self._first_step = self._first_step or (time.monotonic(), optimizer_step)
        if time.monotonic() - self._last_line < SECONDS_BETWEEN_LINES or not progress.sums.examples:
            return
        means = progress.sums.means()
        rate = progress.sums.examples / progress.seconds
        self.line(
            f"epoch {progress.epoch + 1}/{expected_epochs(self._config, progress)}, "
            f"step {progress.step}/{self._steps}: loss {means['loss']:.4f}, "
            f"accuracy {means['accuracy']:.4f}, {rate:,.0f} examples/s"
            f"{self._time_left(progress, optimizer_step)}"
        )
        with self._writers["train"].as_default(optimizer_step):
            tf.summary.scalar("loss_within_epoch", means["loss"])

    def epoch(self, progress: Progress, optimizer_step: int) -> None:
        row = progress.history[-1]
        self.history(progress)
        self._summarize(row, optimizer_step)
        monitored = f"validation_{self._config.monitor}"
        validation = "".join(
            f", validation {name} {row[f'validation_{name}']:.4f}"
            + " (best)"
            * (progress.best_epoch == row["epoch"] and f"validation_{name}" == monitored)
            for name in ("loss", "accuracy")
            if f"validation_{name}" in row
        )
        total = expected_epochs(self._config, progress)
        left = self._time_left(progress, optimizer_step) if progress.epoch < total else ""
        self.line(
            f"epoch {row['epoch']}/{total}: loss {row['loss']:.4f}, "
            f"accuracy {row['accuracy']:.4f}{validation}, "
            f"{row['images_per_second']:,.0f} examples/s{left}"
        )
        if progress.stopped:
            whole = len(phases(self._config)) > 1
            which = f"phase {progress.phase + 1} stopped early" if whole else "stopped early"
            self.line(f"{which}: {progress.stopped}; the best epoch is {progress.best_epoch}")

    def history(self, progress: Progress) -> None:
        text = io.StringIO()
        # An epoch that was not validated has fewer columns than others.
        names = list(dict.fromkeys(name for row in progress.history for name in row))
        table = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
        table.writeheader()
        table.writerows(progress.history)
        files.write_text(self._history_uri, text.getvalue())

    def _summarize(self, row: dict[str, Any], optimizer_step: int) -> None:
        with self._writers["train"].as_default(optimizer_step):
            for name in (
                "loss",
                "accuracy",
                "learning_rate",
                "images_per_second",
                "input_wait_fraction",
                *(["phase"] if len(phases(self._config)) > 1 else []),
            ):
                tf.summary.scalar(name, row[name])
        with self._writers["validation"].as_default(optimizer_step):
            for name in ("loss", "accuracy"):
                if f"validation_{name}" in row:
                    tf.summary.scalar(name, row[f"validation_{name}"])
        for writer in self._writers.values():
            writer.flush()

    def _time_left(self, progress: Progress, optimizer_step: int) -> str:
        """Return the time left by the pace so far, after a comma; empty while it is not known.

        The newest epochs' pace where there are any, else that since the first step of this
        process, which holds the tracing of the graph.
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
        done = progress.step / self._steps
        left = max(0.0, pace * (expected_epochs(self._config, progress) - progress.epoch - done))
        minutes, rest = divmod(round(left), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
        return f", {clock} left"
