"""The first step lists a source, objects of a bucket a thousand at a time."""

import pytest

from components.fingerprint_source import fingerprint_source
from tests.pipelines.cloud.stores import StorageServer


class Bucket(StorageServer):
    """One bucket. `generations` are those that are not 1; what is composed has no MD5."""

    def __init__(self):
        super().__init__()
        self.generations = {}
        self.objects = {}

    @property
    def objects(self):
        return self.buckets["bucket"]

    @objects.setter
    def objects(self, objects):
        self.buckets["bucket"] = objects

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


def test_a_local_folder_is_listed_and_told(tmp_path, capsys):
    (tmp_path / "rose").mkdir()
    (tmp_path / "rose" / "a.jpg").write_bytes(b"x" * 1_500_000)
    found = digest(f"images:{tmp_path}")
    assert capsys.readouterr().out == f"Digest {found}: 1 files, 1.5 MB of images:{tmp_path}\n"
    (tmp_path / "rose" / "b.jpg").write_bytes(b"x")
    assert digest(f"images:{tmp_path}") != found
    capsys.readouterr()
    found = digest("digits")
    assert capsys.readouterr().out == f"Digest {found}: digits\n"


def test_the_digest_follows_each_change_of_the_objects_and_no_copy(bucket):
    bucket.objects = {"photos/rose/a.jpg": b"aaaa", "photos/tulip/b.composed": b"bbbb"}
    digests = [digest()]

    bucket.objects["photos/rose/c.jpg"] = b"cccc"
    digests.append(digest())
    bucket.objects["photos/rose/c.jpg"] = b"dddd"
    digests.append(digest())
    bucket.objects["photos/rose/d.jpg"] = bucket.objects.pop("photos/rose/c.jpg")
    digests.append(digest())
    del bucket.objects["photos/rose/a.jpg"]
    digests.append(digest())
    # The same checksum of four bytes may hide another content.
    bucket.generations["photos/tulip/b.composed"] = 2
    digests.append(digest())
    assert len(set(digests)) == len(digests)
    # Uploaded again, marked as a folder, or beside it: nothing that a source would read.
    bucket.generations["photos/rose/d.jpg"] = 3
    bucket.objects["photos/rose/"] = b""
    bucket.objects["photos-old/e.jpg"] = b"eeee"
    assert digest() == digests[-1]
    assert digest("images:/gcs/bucket/photos/") == digests[-1]


def test_braces_in_a_pattern_stand_for_themselves(bucket):
    bucket.objects = {"trips{1,2}/a.csv": b"1", "trips{1,2}/b.csv": b"2"}
    before = digest("csv:gs://bucket/trips{1,2}/*.csv")
    assert "matchGlob" not in bucket.requests[-1][1]
    bucket.objects["trips{1,2}/a.csv"] = b"3"
    assert digest("csv:gs://bucket/trips{1,2}/*.csv") != before


def test_brackets_in_the_name_of_a_folder_of_images_are_no_pattern(bucket):
    bucket.objects = {"photos[1]/rose/a.jpg": b"1", "photos1/rose/a.jpg": b"2"}
    before = digest("images:gs://bucket/photos[1]")
    bucket.objects["photos1/rose/a.jpg"] = b"3"
    assert digest("images:gs://bucket/photos[1]") == before
    bucket.objects["photos[1]/rose/a.jpg"] = b"4"
    assert digest("images:gs://bucket/photos[1]") != before


def test_thousands_of_objects_take_a_request_a_thousand(bucket):
    bucket.objects = {f"photos/rose/{n:05}.jpg": b"%05d" % n for n in range(2500)}
    before = digest()
    # Folders, what is before them, and their objects.
    assert bucket.names().count("ListObjects") == 2 + 1 + 3
    bucket.objects["photos/rose/02400.jpg"] = b"other"
    assert digest() != before


def test_a_table_is_one_object_a_folder_or_a_pattern(bucket):
    bucket.objects = {
        "trips.csv": b"1",
        "trips.csv.bak": b"2",
        "trips/2024.csv": b"3",
        "trips/readme": b"4",
        "trips/deep/2025.csv": b"5",
    }

    def follows(source, name):
        before = digest(source)
        bucket.objects[name] += b"!"
        return digest(source) != before

    single, folder, pattern = (f"csv:gs://bucket/trips{end}" for end in (".csv", "", "/*.csv"))
    assert follows(single, "trips.csv")
    assert not follows(single, "trips.csv.bak")
    assert follows(folder, "trips/deep/2025.csv")
    assert not follows(folder, "trips/readme")
    assert follows(pattern, "trips/2024.csv")
    assert not follows(pattern, "trips/deep/2025.csv")


def test_a_failing_listing_is_one_line_that_says_what_is_missing(bucket, refused):
    assert refused(digest) == (
        "source='images:gs://bucket/photos': there is no file at gs://bucket/photos\n"
    )
    error = refused(digest, "images:gs://other/photos")
    assert error.startswith("gs://other/photos can't be listed: 404 ")
    assert "bucket does not exist" in error
    bucket.fail("ListObjects", 403, "PERMISSION_DENIED", "no storage.objects.list access")
    error = refused(digest)
    assert "no storage.objects.list access" in error
    assert error.endswith("the account of the run needs roles/storage.objectViewer\n")


def test_a_server_that_is_busy_for_a_moment_is_asked_again(bucket):
    bucket.objects = {"photos/rose/a.jpg": b"aaaa"}
    before = digest()
    bucket.fail("ListObjects", 503, "UNAVAILABLE")
    assert digest() == before
