"""Records written by a Dataflow job whose workers share only a bucket."""

import pytest

from tests import tables
from tests.trainer.data.beam_run import interpreter, run
from tests.trainer.data.picture_folders import content, two_classes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_that_share_a_bucket_write_the_same_bytes(server, proxy, tmp_path):
    server.upload(two_classes(tmp_path / "photos", 40), "beam/photos")
    table = tables.write_csv(tmp_path / "trips.csv", tables.lines(600))
    described = {"columns": tables.COLUMNS, "crosses": tables.CROSSES, "label": tables.LABEL}
    sources = {
        "photos": {"source": "images:gs://bucket/beam/photos", "image_size": 12},
        "table": {"source": f"csv:{table}", **described},
    }
    cases = [
        {
            "output": f"gs://bucket/beam/{name}-{engine}",
            "engine": engine,
            "options": {"shard_megabytes": 0.02, **options},
        }
        for name, options in sources.items()
        for engine in ("local", "beam", "dataflow")
    ]
    answers = run(interpreter(), tmp_path, cases, seconds=400)
    assert [answer.get("error") for answer in answers] == [None] * len(cases)
    for name in sources:
        local, beam, dataflow = (
            content(server.download(f"beam/{name}-{engine}", tmp_path / f"{name}-{engine}"))
            for engine in ("local", "beam", "dataflow")
        )
        assert sum(file.endswith(".tfrecord") for file in local) >= 3
        # Neither tasks nor staged files are left.
        assert beam == local
        assert dataflow == local
