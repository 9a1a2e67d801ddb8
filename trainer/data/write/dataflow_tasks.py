"""Shards that other machines write: tasks go out and results come back as files.

    .unfinished/<fingerprint>/launch-<token>/<shard>.task     its examples, none of the others
                                             <shard>.result   what became of it
                                             stop             no more is wanted

A file a shard, because a plan of millions of examples is more than a job's description may
hold, and a worker needs a few thousand of them. Each launch has a folder of its own, so that
one that was killed, and whose workers may go on for a while, never answers for the next.
"""

import contextlib
import json
import pickle
import secrets
from collections.abc import Iterable, Iterator
from typing import cast

from trainer.data import storage
from trainer.data.schema import join
from trainer.data.write.shards import ShardResult, ShardTask, ShardWriter
from trainer.data.write.table_plan import RowTask, TableSource
from trainer.errors import InputError

LAUNCH = "launch-"
_TASK, _RESULT, _STOP = ".task", ".result", "stop"
_SENDERS = 4
"""Tasks on their way to remote storage at once; those of a table hold its rows."""


class Parcels:
    """A launch: what it sends out, and what has come back.

    Attributes:
        folder: its URI.
        examples: of each task that was sent, by its shard's file.
    """

    def __init__(self, writer: ShardWriter) -> None:
        self.folder = join(writer.notes_uri, f"{LAUNCH}{secrets.token_hex(4)}")
        self.examples: dict[str, int] = {}
        self._writer = writer
        self._received: set[str] = set()

    def send(self, tasks: Iterable[ShardTask | RowTask]) -> None:
        """Writes every task to a file; removes those of earlier launches."""
        uri = self._writer.output_uri
        with storage.writing(uri):
            for name, is_folder in storage.scan(self._writer.notes_uri):
                if is_folder and name.startswith(LAUNCH):
                    storage.remove_folder(join(self._writer.notes_uri, name))
            storage.make_folder(self.folder)
            threads = _SENDERS if storage.is_remote(uri) else 1
            # Packed in this thread: rows on disk are read by one at a time.
            for _ in storage.read_ahead(self._send, map(self._packed, tasks), threads=threads):
                pass

    def receive(self) -> Iterator[ShardResult]:
        """Results that have come since the last call.

        Raises:
            InputError: as ShardWriter.write did, on whatever machine.
        """
        for name, _ in storage.scan(self.folder):
            if not name.endswith(_RESULT) or name in self._received:
                continue
            self._received.add(name)
            content = json.loads(storage.read(join(self.folder, name)))
            if "error" in content:
                raise InputError(content["error"])
            yield ShardResult.from_json(content)

    @property
    def missing(self) -> int:
        """How many results have not come yet."""
        return len(self.examples) - len(self._received)

    def stop(self) -> None:
        """Tells workers to begin no other shard."""
        with contextlib.suppress(Exception):  # On the way out; they end all the same.
            storage.write_whole(join(self.folder, _STOP), b"")

    def _packed(self, task: ShardTask | RowTask) -> tuple[str, bytes]:
        if isinstance(task, RowTask):
            task = cast(TableSource, self._writer.source).carried(task)
        self.examples[task.file] = task.examples
        return task.file, pickle.dumps(task, pickle.HIGHEST_PROTOCOL)

    def _send(self, packed: tuple[str, bytes]) -> None:
        file, content = packed
        storage.write_whole(join(self.folder, f"{file}{_TASK}"), content)


def write_parcel(file: str, writer: ShardWriter, folder: str) -> None:
    """Writes the shard `file` as its task in `folder` says, and leaves the result beside it.

    A user's mistake is such a result: to try again would not mend it.
    """
    if storage.exists(join(folder, _STOP)):
        return
    # Left there by this run's own launcher, as is the pickled call that this function is in.
    task = pickle.loads(storage.read(join(folder, f"{file}{_TASK}")))  # noqa: S301
    try:
        outcome = writer.write(task, lambda _: None).to_json()
    except InputError as error:
        outcome = {"error": str(error)}
    storage.write_whole(join(folder, f"{file}{_RESULT}"), json.dumps(outcome).encode())
