"""A store of records that several runs use at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trainer.data.schema import Shard
from trainer.data.write.shards import ShardResult
from trainer.data.write.store import RecordsStore


def test_runs_that_end_at_the_same_moment_leave_the_records_of_one_of_them(tmp_path):
    ready = threading.Barrier(2)

    def save(name):
        store = RecordsStore(str(tmp_path), "conditions")
        shard = Shard(file="train-00000-of-00001.tfrecord", examples=1, bytes=0, sha256="")
        (tmp_path / name).mkdir()
        (tmp_path / name / shard.file).touch()
        saved = [(ShardResult(shard, [1], []), np.zeros(10_000, "S16"))]
        for _ in range(100):
            ready.wait(60)
            store.save(str(tmp_path / name), saved)
        return store

    with ThreadPoolExecutor(2) as pool:
        store, _ = pool.map(save, ("a", "bb"))
    (found,) = store.shards("another")
    assert found.folder in {str(tmp_path / name) for name in ("a", "bb")}
    assert not list(tmp_path.glob("*.partial"))
