"""A model's answers to the examples of a split, in stored order, on disk."""

import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.evaluation.comparison import Scores, log_losses
from trainer.evaluation.disk_columns import BLOCK, DiskColumns, spans
from trainer.evaluation.metrics import Ranking, pack_scores, rank

_KEYS = pa.schema([("key", pa.binary())])


class Answers(DiskColumns):
    """True classes and probabilities of a split's examples, with their keys.

    Columns: `label` and `predicted` (int32), `own` (float32, the probability of the label), and
    the probability of each class (float32) under the class' index.
    """

    def __init__(self, rows: int, classes: int) -> None:
        kept = {"label": np.int32, "predicted": np.int32, "own": np.float32}
        super().__init__(rows, kept | dict.fromkeys(range(classes), np.float32))
        self.classes = classes
        self._keys = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._key_writer = pa.ipc.new_stream(self._keys, _KEYS)

    def add(self, labels: np.ndarray, probabilities: np.ndarray, keys: list[bytes]) -> None:
        """Add a batch: int64 [n], float32 [n, classes] and n keys."""
        self.append(
            {
                "label": labels,
                "predicted": probabilities.argmax(axis=1),
                "own": probabilities[np.arange(len(labels)), labels],
                **dict(enumerate(probabilities.T)),
            }
        )
        with storage.writing(tempfile.gettempdir()):
            self._key_writer.write_batch(pa.record_batch([keys], schema=_KEYS))

    def key_batches(self) -> Iterator[list[bytes]]:
        """Yield the keys, batch by batch as they were added."""
        self._key_writer.close()
        self._keys.seek(0)
        for batch in pa.ipc.open_stream(self._keys):
            yield batch["key"].to_pylist()

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels, int32 [m], and probabilities, float32 [m, classes], of m examples."""
        for start, stop in spans(self.rows, max(1, 4 * BLOCK // self.classes)):
            columns = [self.read(number, start, stop) for number in range(self.classes)]
            yield self.read("label", start, stop), np.stack(columns, axis=1)

    def scores(self, start: int, stop: int) -> Scores:
        """Return the scores of the examples from `start` to `stop`."""
        label, predicted, own = (
            self.read(name, start, stop) for name in ("label", "predicted", "own")
        )
        return Scores(label == predicted, log_losses(own))

    def rank(self, number: int) -> Ranking | None:
        """Rank the examples by the probability of a class; see `metrics.rank`."""
        order = np.empty(self.rows, np.uint32)
        for start, stop in spans(self.rows):
            positive = self.read("label", start, stop) == number
            order[start:stop] = pack_scores(positive, self.read(number, start, stop))
        return rank(order)
