"""Test the listing of a source and its digest, for folders and buckets."""

import pytest

from components.fingerprint_source import fingerprint_source
from tests.pipelines.cloud.cloud_servers import StorageServer


class Bucket(StorageServer):
    """One bucket; names in `.composed` have no MD5, and the default generation is 1."""

    def __init__(self):
        super().__init__()
        self.generations = {}
        self.objects = self.buckets["bucket"]

    def noted(self, name, request):
        return request.query

    def call(self, name, function, request):
        answer = super().call(name, function, request)
        for item in answer.get("items", ()):
            item["generation"] = self.generations.get(item["name"], 1)
            if item["name"].endswith(".composed"):
                item["crc32c"] = item.pop("md5Hash")[:4]
        return answer


@pytest.fixture
def bucket(monkeypatch):
    with Bucket() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


def digest(source="images:gs://bucket/photos"):
    return fingerprint_source.python_func(source=source, data_dir="")[0]


def test_local_folder_is_listed_and_printed(tmp_path, capsys):
    (tmp_path / "rose").mkdir()
    (tmp_path / "rose" / "a.jpg").write_bytes(b"x" * 1_500_000)
    before = digest(f"images:{tmp_path}")
    assert capsys.readouterr().out == f"Digest {before}: 1 file, 1.5 MB of images:{tmp_path}\n"
    (tmp_path / "rose" / "b.jpg").write_bytes(b"x")
    assert digest(f"images:{tmp_path}") != before
    capsys.readouterr()
    before = digest("digits")
    assert capsys.readouterr().out == f"Digest {before}: digits\n"


def test_digest_follows_each_change_of_the_objects(bucket):
    objects, digests = bucket.objects, []
    for change in (
        lambda: objects.update({"photos/rose/a.jpg": b"aaaa", "photos/tulip/b.composed": b"bbbb"}),
        lambda: objects.update({"photos/rose/c.jpg": b"cccc"}),
        lambda: objects.update({"photos/rose/c.jpg": b"dddd"}),
        lambda: objects.update({"photos/rose/d.jpg": objects.pop("photos/rose/c.jpg")}),
        lambda: objects.pop("photos/rose/a.jpg"),
        # Content that differs may have the same checksum of four bytes.
        lambda: bucket.generations.update({"photos/tulip/b.composed": 2}),
    ):
        change()
        digests.append(digest())
    assert len(set(digests)) == 6
    # The same content uploaded again, a folder's marker, an object outside of the folder.
    bucket.generations["photos/rose/d.jpg"] = 3
    objects.update({"photos/rose/": b"", "photos-old/e.jpg": b"eeee"})
    assert digest() == digests[-1]
    assert digest("images:/gcs/bucket/photos/") == digests[-1]


@pytest.mark.parametrize(
    ("source", "changed", "follows"),
    [
        ("csv:gs://bucket/trips.csv", "trips.csv", True),
        ("csv:gs://bucket/trips.csv", "trips.csv.bak", False),
        ("csv:gs://bucket/trips", "trips/deep/2025.csv", True),
        ("csv:gs://bucket/trips", "trips/readme", False),
        ("csv:gs://bucket/trips/*.csv", "trips/2024.csv", True),
        ("csv:gs://bucket/trips/*.csv", "trips/deep/2025.csv", False),
        # Braces are no alternatives, and brackets in the name of a folder no pattern.
        ("csv:gs://bucket/trips{1,2}/*.csv", "trips{1,2}/a.csv", True),
        ("images:gs://bucket/photos[1]", "photos[1]/rose/a.jpg", True),
        ("images:gs://bucket/photos[1]", "photos1/rose/a.jpg", False),
    ],
)
def test_digest_follows_files_folders_and_patterns(bucket, source, changed, follows):
    tables = ("trips.csv", "trips.csv.bak", "trips/2024.csv", "trips/readme", "trips/deep/2025.csv")
    in_braces = ("trips{1,2}/a.csv", "trips{1,2}/b.csv")
    photos = ("photos[1]/rose/a.jpg", "photos1/rose/a.jpg")
    bucket.objects.update({name: name.encode() for name in (*tables, *in_braces, *photos)})
    before = digest(source)
    # Cloud Storage would expand braces.
    globs = [query for query in bucket.sent("ListObjects") if "matchGlob" in query]
    assert "{" not in source or not globs
    bucket.objects[changed] += b"!"
    assert (digest(source) != before) == follows


def test_a_request_lists_a_thousand_objects(bucket):
    bucket.objects.update({f"photos/rose/{n:05}.jpg": b"%05d" % n for n in range(2500)})
    before = digest()
    # Two for folders, one for objects before them, three for their objects.
    assert bucket.names().count("ListObjects") == 2 + 1 + 3
    bucket.objects["photos/rose/02400.jpg"] = b"other"
    assert digest() != before


def test_failed_listing_is_retried_or_one_line(bucket, refused):
    assert "photos': there is no file at gs://bucket/photos\n" in refused(digest)
    error = refused(digest, "images:gs://other/photos")
    assert error.startswith("gs://other/photos can't be listed: 404 ")
    assert "bucket does not exist" in error
    bucket.objects["photos/rose/a.jpg"] = b"aaaa"
    before = digest()
    bucket.fail("ListObjects", 503, "UNAVAILABLE")
    assert digest() == before
    bucket.fail("ListObjects", 403, "PERMISSION_DENIED", "no storage.objects.list access")
    error = refused(digest)
    assert "no storage.objects.list access" in error
    assert error.endswith("the run's account needs roles/storage.objectViewer\n")
