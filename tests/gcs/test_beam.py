"""Records by a job of Dataflow where nothing but a bucket is shared."""

import pytest

from tests import tables
from tests.trainer.data.beam_run import interpreter, run
from tests.trainer.data.folders import two_classes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_workers_that_share_a_bucket_alone_write_the_bytes_of_one_machine(server, proxy, tmp_path):
    for path in two_classes(tmp_path / "photos", 40).rglob("*.png"):
        server.put(f"beam/{path.relative_to(tmp_path)}", path.read_bytes())
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
        sizes = server.sizes(f"beam/{name}-local")
        assert sum(file.endswith(".tfrecord") for file in sizes) >= 3
        for engine in ("beam", "dataflow"):
            # Nothing else stays, neither tasks nor what was staged.
            assert server.sizes(f"beam/{name}-{engine}") == sizes
            for file in sizes:
                written = server.get(f"beam/{name}-{engine}/{file}")
                assert written == server.get(f"beam/{name}-local/{file}")
