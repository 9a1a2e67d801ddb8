"""The output folder, from an earlier run's leftovers to dataset.json.

During the work, and after a kill, it holds

    train-00000-of-00008.tfrecord ...     complete shards, nothing else under such names
    .unfinished/<fingerprint>/            notes on these shards, and partial files
    .unfinished/writer.json               the holder of the folder's lock
    rejected.jsonl, dataset.json          at the end, in this order; then .unfinished/ is removed

Files that are not part of a dataset are left alone.

A folder has one writer at a time. The operating system releases the lock when its holder ends, for
whatever reason. Cloud Storage has no locks: there, the last writer to begin owns the folder. An
earlier writer finds at its end that writer.json has changed, and fails instead of writing
dataset.json. A shard that two writers mixed up is detected by its checksum when it is read.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import functools
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any

from trainer.data import storage
from trainer.data.integrity import find_shard_problem
from trainer.data.schema import (
    FILE_NAME,
    REJECTED_FILE_NAME,
    SPLITS,
    Dataset,
    Shard,
    load_dataset,
)
from trainer.data.source import Rejection
from trainer.data.storage import join
from vertex.errors import InputError

UNFINISHED = ".unfinished"
_SHARD_NAME = re.compile(rf"({'|'.join(SPLITS)})-\d{{5}}-of-\d{{5}}\.tfrecord")
_WRITER = "writer.json"
JOB = "job-"
"""Prefix of the folders in `.unfinished/` in which jobs keep their files."""


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """The result of writing a shard."""

    shard: Shard
    class_counts: list[int]  # number of records of each class
    rejections: list[Rejection]
    copies: int = 0  # rows that are equal to another one before them

    @property
    def split(self) -> str:
        return self.shard.file.partition("-")[0]

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ShardResult":
        """Return the result that `dataclasses.asdict` converted to `content`."""
        return cls(
            Shard(**content["shard"]),
            content["class_counts"],
            [Rejection(**rejection) for rejection in content["rejections"]],
            content["copies"],
        )


class OutputFolder:
    """A dataset's folder while it is written; `begin` comes before the other methods.

    A shard's result is noted under `.unfinished/<fingerprint>/`, and a rerun trusts a shard only if
    its file has the checksum in the note. The fingerprint covers options and plan, so notes of
    other options or other content are never used. The methods raise InputError if the folder can't
    be written to.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._notes_uri = ""

    def find_finished(self, fingerprint: str) -> Dataset | None:
        """Return the dataset if an earlier run of the same plan finished it and it is intact."""
        try:
            dataset = load_dataset(self.uri)
        except InputError:
            return None
        rejected = join(self.uri, REJECTED_FILE_NAME)
        if dataset.creation.get("fingerprint") != fingerprint or not storage.exists(rejected):
            return None
        shards = [shard for split in dataset.splits.values() for shard in split.shards]
        is_damaged = any(find_shard_problem(dataset.shard_uri(shard), shard) for shard in shards)
        return None if is_damaged else dataset

    def begin(self, fingerprint: str) -> None:
        """Remove what other plans have left; keep shards that this plan's notes describe.

        Args:
            fingerprint: fingerprint of the plan and of its layout.
        """
        self._notes_uri = join(self.uri, UNFINISHED, fingerprint)
        self._remove_stale()

    def find_result(self, file: str) -> ShardResult | None:
        """Return the result in an earlier run's note, if the shard is intact; otherwise None."""
        try:
            result = ShardResult.from_json(json.loads(storage.read(self._note_uri(file))))
        except Exception:  # There is no note, or it is damaged: the shard is written again.
            return None
        uri = join(self.uri, result.shard.file)
        return None if find_shard_problem(uri, result.shard) else result

    def place(self, file: str, make: Callable[[str], ShardResult]) -> ShardResult:
        """Let `make` write a file, move it into place as a shard, and note the result."""
        # Two machines may write the same shard at the same time, in processes with the same id.
        partial = join(self._notes_uri, f"{file}.{secrets.token_hex(4)}.partial")
        with storage.catch_write_errors(self.uri):
            try:
                result = make(partial)
                storage.replace(partial, join(self.uri, file))
                # Write the note after the shard: a note without its shard is useless.
                note = json.dumps(dataclasses.asdict(result)).encode()
                storage.write_atomically(self._note_uri(file), note)
            except BaseException:
                storage.remove(partial)
                raise
        return result

    def finish(self, dataset: Dataset, rejected: bytes) -> None:
        """Write rejected.jsonl and dataset.json, which makes the dataset complete."""
        with storage.catch_write_errors(self.uri):
            storage.write_atomically(join(self.uri, REJECTED_FILE_NAME), rejected)
            storage.write_atomically(join(self.uri, FILE_NAME), dataset.to_json().encode())

    def clear(self) -> None:
        """Remove everything that was written."""
        with storage.catch_write_errors(self.uri):
            storage.remove_folder(self._notes_uri)
        self._remove_stale()
        self.close()

    def close(self) -> None:
        """Remove the files that only an unfinished dataset needs."""
        with storage.catch_write_errors(self.uri):
            storage.remove_folder(join(self.uri, UNFINISHED))

    def _remove_stale(self) -> None:
        """Remove files of other datasets and partial files; keep shards that have a note."""
        uri, notes = self.uri, self._notes_uri
        with storage.catch_write_errors(uri):
            # Remove dataset.json first: it must never be next to shards that it does not describe.
            storage.remove(join(uri, FILE_NAME))
            storage.remove(join(uri, REJECTED_FILE_NAME))
            for name, is_folder in storage.list_entries(join(uri, UNFINISHED)):
                stale = join(uri, UNFINISHED, name)
                if not is_folder:
                    if name != _WRITER:
                        storage.remove(stale)
                elif stale != notes and not name.startswith(JOB):
                    storage.remove_folder(stale)
            storage.make_folder(notes)
            noted = {name for name, _ in storage.list_entries(notes)}
            for name in (name for name in noted if name.endswith(".partial")):
                storage.remove(join(notes, name))
            for name, _ in storage.list_entries(uri):
                if is_shard(name) and f"{name}.json" not in noted:
                    storage.remove(join(uri, name))

    def _note_uri(self, file: str) -> str:
        return join(self._notes_uri, f"{file}.json")


@contextlib.contextmanager
def locked(uri: str, source: str) -> Iterator[Callable[[], None]]:
    """Create the folder and hold its lock; yield a function that raises if the lock is lost.

    That function may be called on any machine. Raise InputError if another process is writing to
    the folder, or it can't be made.

    Args:
        source: the source that is written, for other writers' messages.
    """
    note = join(uri, UNFINISHED, _WRITER)
    with contextlib.ExitStack() as stack:
        with storage.catch_write_errors(uri):
            storage.make_folder(join(uri, UNFINISHED))
        if not storage.is_remote(uri):
            folder = os.open(uri, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            _lock(folder, uri, note)
        since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        content = json.dumps({**holder, "source": source, "token": secrets.token_hex(8)}).encode()
        with storage.catch_write_errors(uri):
            # The previous holder of the lock may just have removed the folder.
            storage.make_folder(join(uri, UNFINISHED))
            storage.write_atomically(note, content)

        try:
            yield functools.partial(_check_holder, uri, note, content)
        finally:
            with contextlib.suppress(InputError):  # Don't hide an error that is being raised.
                if _read_note(note) == content:
                    storage.remove(note)


def _check_holder(uri: str, note: str, content: bytes) -> None:
    """Raise InputError if writer.json no longer has this content."""
    if _read_note(note) != content:
        raise InputError(
            f"{uri} is now written by {_describe_holder(note)}; only one writer can use a folder: "
            "let that one finish, or write to another folder"
        )


def _read_note(note: str) -> bytes:
    """Return the content of writer.json; empty if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return storage.read(note)
    return b""


def _describe_holder(note: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        holder = json.loads(_read_note(note))
        return (
            f"process {holder['process']} on {holder['host']}, since {holder['since']} "
            f"(source={holder['source']!r})"
        )
    return "another process"


def _lock(folder: int, uri: str, note: str) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{uri} is being written by {_describe_holder(note)}; let that process finish, end "
            "it, or write to another folder"
        ) from None
    except OSError:  # The file system has no locks.
        return


def is_shard(name: str) -> bool:
    """Return whether a file name is the name of a shard."""
    return bool(_SHARD_NAME.fullmatch(name))
