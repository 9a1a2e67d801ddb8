"""Measure listing and planning 10 million photos in a bucket: memory and seconds of one process.

Cloud Storage's answers are made in the process, which its time includes; all else is the code
that a run executes, with Google's client. Real requests, ten thousand of them, come on top:
eight at a time, of 0.1 to 0.2 s each, take 2 to 4 minutes.
"""

import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from tests.benchmarks.measuring import Row, run

PHOTOS = 10**7
CLASSES = 1000
PAGE = 1000
CODE = "import sys; from tests.benchmarks.bucket_listing import measure; measure(int(sys.argv[1]))"


def rows() -> list[Row]:
    """Measure gigabytes, and how time grows with ten times the photos."""
    few, many = (json.loads(run(CODE, photos)) for photos in (PHOTOS // 10, PHOTOS))
    return [
        (
            f"planning {PHOTOS:,} photos in a bucket, peak memory in GB",
            many["gigabytes"],
            2.0,
            f"{few['gigabytes']:.2f} GB for a tenth of them; an idle process has "
            f"{many['idle']:.2f} GB",
        ),
        (
            "planning photos in a bucket: ten times the CPU seconds of a tenth / those of all",
            10 * few["seconds"] / many["seconds"],
            0.8,
            f"{few['seconds']:.0f} and {many['seconds']:.0f} s of CPU",
        ),
    ]


def _answer(document: dict[str, Any]) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer.headers["Content-Type"] = 200, "application/json"
    answer._content = json.dumps(document).encode()
    return answer


class _Bucket:
    """Google's transport, which answers as a bucket with `photos` photos in CLASSES folders."""

    is_mtls = False

    def __init__(self, photos: int) -> None:
        self._each = photos // CLASSES

    def request(self, *, url: str, **_: Any) -> requests.Response:
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if "delimiter" in query:
            return _answer({"prefixes": [f"photos/{name:04}/" for name in range(CLASSES)]})
        folder, start = query.get("startOffset", ""), int(query.get("pageToken", 0))
        if not folder:
            return _answer({})
        end = min(start + PAGE, self._each)
        items = [_described(f"{folder}image_{number:08}.jpg") for number in range(start, end)]
        more = {"nextPageToken": str(end)} if end < self._each else {}
        return _answer({"items": items, **more})


def _described(name: str) -> dict[str, str]:
    digests = {"md5Hash": base64.b64encode(hashlib.md5(name.encode()).digest()).decode()}
    digests["crc32c"] = "AAAAAA=="
    return {"name": name, "size": "123456", "generation": "1234567890123456", **digests}


def measure(photos: int) -> None:
    """List and plan; print the cost."""
    import resource
    import time

    import tensorflow as tf  # noqa: F401 - as a process that reads from a bucket has it.
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage as cloud_storage

    from trainer.data import file_listing, storage
    from trainer.data.write.record_options import RecordOptions
    from trainer.data.write.writer import open_source
    from trainer.process_pool import Processes
    from trainer.progress_lines import ProgressLines

    client = cloud_storage.Client(
        project=None, credentials=AnonymousCredentials(), _http=_Bucket(photos)
    )
    file_listing.open_client = lambda: client
    storage.is_folder = lambda _: True
    storage.list_entries = lambda _: [(f"{name:04}", True) for name in range(CLASSES)]

    def gigabytes() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

    idle, started = gigabytes(), time.process_time()
    source = open_source(RecordOptions(source="images:gs://bucket/photos"))
    lines = ProgressLines("listed", source.unit, emit=lambda _: None)
    with Processes() as processes:
        totals, _ = source.plan(lines, processes)
    assert sum(totals.counts.values()) == photos, totals.rejections[:3]
    seconds = time.process_time() - started
    print(json.dumps({"seconds": seconds, "gigabytes": gigabytes(), "idle": idle}))
