"""A store of records, from which later runs reuse shards that are already written.

    store = RecordsStore("gs://bucket/store", conditions)
    store.list_shards(output_uri)           # of the last records under the same conditions
    copy_shards(folder, {"train-00000-of-00009.tfrecord": shard})
    store.save(records_uri, ...)

The store is a folder that outlives runs. It has a file for each set of conditions, which contains
the location of the last records and the examples in each of their shards. A shard is copied if the
source still has all its examples, with the same key and label and in the same split; all other
shards are written. If the last records no longer exist, all shards are written.

The drawback: in a split, older shards come before new ones. Training reads from all over a split
and shuffles, but `max_train_examples` selects the first examples, which are older.
"""

import base64
import dataclasses
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from trainer.data import storage
from trainer.data.storage import join
from trainer.data.write.output import OutputFolder, ShardResult
from vertex import checked_json
from vertex.errors import InputError

IDENTITY = np.dtype("S16")
"""The identity of an example; see `split_plan.compute_identities`."""

_COPIES = 4
"""Number of parallel copies: each checksum uses a core, and remote storage is slow to answer."""


@dataclasses.dataclass(frozen=True)
class StoredShard:
    """A shard of the records in `folder` (URI), and the identities of its examples, S16 [n]."""

    folder: str
    result: ShardResult
    identities: np.ndarray

    @property
    def uri(self) -> str:
        return join(self.folder, self.result.shard.file)

    def exists(self) -> bool:
        """Return whether the file still has the size that was written."""
        try:
            return storage.size(self.uri) == self.result.shard.bytes
        except OSError:
            return False


class RecordsStore:
    """The last records that were written under the same conditions.

    Args:
        uri: folder, local, /gcs/ or gs://; created if missing.
        conditions: everything that determines a record besides the example; JSON-serializable.
    """

    def __init__(self, uri: str, conditions: Any) -> None:
        digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
        self._uri, self._file = uri, f"{digest[:32]}.json"

    @property
    def _entry(self) -> str:
        return join(self._uri, self._file)

    def list_shards(self, output_uri: str) -> list[StoredShard]:
        """Return the stored shards that still exist; none if they are in `output_uri` itself.

        Raise InputError if the store's file can't be read, or `save` did not write it, or `save`
        could not write to the folder.
        """
        with storage.catch_write_errors(self._uri):
            storage.make_folder(self._uri)
            probe = f"{self._entry}.{secrets.token_hex(4)}.probe"
            storage.write_atomically(probe, b"probe")
            storage.remove(probe)
        shards = self._read_shards(output_uri)
        records_uri = shards[0].folder if shards else ""
        existing = storage.read_ahead(StoredShard.exists, shards, uri=records_uri)
        return [shard for shard, exists in zip(shards, existing, strict=True) if exists]

    def _read_shards(self, output_uri: str) -> list[StoredShard]:
        """Return the stored shards; none if they are in `output_uri` itself."""
        try:
            content = checked_json.parse(storage.read(self._entry))
            if content["uri"] == output_uri:
                return []
            return [
                StoredShard(
                    content["uri"],
                    ShardResult.from_json(entry["result"]),
                    np.frombuffer(base64.b64decode(entry["identities"]), IDENTITY),
                )
                for entry in content["shards"]
            ]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{self._entry} is damaged; remove it, and all records are written again"
            ) from None

    def save(self, records_uri: str, shards: Iterable[tuple[ShardResult, np.ndarray]]) -> None:
        """Save a list of shards, with the identities of their examples, for the next run.

        Raise InputError if the folder can't be written to.
        """
        content = {
            "uri": records_uri,
            "shards": [
                {
                    "result": dataclasses.asdict(result),
                    "identities": base64.b64encode(identities.tobytes()).decode(),
                }
                for result, identities in shards
            ],
        }
        with storage.catch_write_errors(self._entry):
            text = json.dumps(checked_json.with_checksum(content))
            storage.write_atomically(self._entry, text.encode(), shared=True)


def find_unchanged(
    shards: Iterable[StoredShard], split: str, examples: np.ndarray, min_bytes: float
) -> tuple[list[StoredShard], np.ndarray]:
    """Return a split's shards to keep, in order, and a mask, bool [n], of their examples.

    Args:
        examples: the identities of all examples that the split has now, S16 [n].
        min_bytes: smaller shards are not kept: their examples are written again with the new
            ones, so that the number of small shards does not grow with each run.
    """
    kept = [
        shard
        for shard in sorted(shards, key=lambda shard: shard.result.shard.file)
        if shard.result.split == split
        and shard.result.shard.bytes >= min_bytes
        and np.isin(shard.identities, examples).all()
    ]
    covered = np.concatenate([np.empty(0, IDENTITY), *(shard.identities for shard in kept)])
    return kept, np.isin(examples, covered)


def copy_shards(folder: OutputFolder, shards: Mapping[str, StoredShard]) -> list[ShardResult]:
    """Copy shards, each to its new file name, unless an earlier run has copied them.

    Raise InputError if the output can't be written, or a shard is damaged.
    """

    def copy_shard(item: tuple[str, StoredShard]) -> ShardResult:
        file, stored = item
        shard = dataclasses.replace(stored.result.shard, file=file)
        result = dataclasses.replace(stored.result, shard=shard)

        def copy(partial: str) -> ShardResult:
            if _copy(stored.uri, partial) != shard.sha256:
                raise InputError(f"{stored.uri} is damaged; remove it to have it written again")
            return result

        return result if folder.find_result(file) == result else folder.place(file, copy)

    return list(storage.read_ahead(copy_shard, shards.items(), threads=_COPIES))


def _copy(source: str, target: str) -> str:
    """Copy a file; return the sha256 (hex) of its content.

    Not a link: damage to one file would change the records of every run that has it.
    """
    digest = hashlib.sha256()
    with storage.open_file(target, "wb") as copy, storage.open_file(source, "rb") as file:
        while chunk := file.read(storage.CHUNK):
            digest.update(chunk)
            copy.write(chunk)
    return digest.hexdigest()
