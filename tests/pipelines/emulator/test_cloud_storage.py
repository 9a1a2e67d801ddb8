"""Google's client of Cloud Storage works on the emulator as on the service."""

import os

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY

from tests.pipelines.cloud.cloud_servers import StorageServer

LARGE = os.urandom(9 * 1024 * 1024 + 5)
CHUNK = 2 * 1024 * 1024


@pytest.fixture
def server(monkeypatch):
    with StorageServer() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.fixture
def client(server):
    return storage.Client("my-project", AnonymousCredentials())


@pytest.fixture
def bucket(client):
    return client.bucket("bucket")


def names(iterator):
    return [item.name for item in iterator]


def test_buckets_are_created_listed_and_deleted_when_empty(client):
    made = client.create_bucket("made-here", location="us-central1")
    assert names(client.list_buckets()) == ["bucket", "made-here"]
    assert names(client.list_buckets(prefix="made")) == ["made-here"]
    assert made.exists() and not client.bucket("missing").exists()
    assert client.get_bucket("made-here").location == "US-CENTRAL1"
    assert client.lookup_bucket("missing") is None
    assert made.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
    with pytest.raises(exceptions.Conflict):
        client.create_bucket("made-here")
    with pytest.raises(exceptions.BadRequest, match="Invalid bucket name"):
        client.create_bucket("Made_Here")
    made.blob("a").upload_from_string("x")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        made.delete()
    made.delete_blobs([made.blob("a")])
    made.delete()
    with pytest.raises(exceptions.NotFound):
        client.get_bucket("made-here")


def test_objects_keep_content_attributes_and_checksums(client, bucket, tmp_path):
    blob = bucket.blob("folder/a b.txt")
    blob.metadata = {"rows": "3"}
    blob.cache_control = "no-cache"
    blob.upload_from_string("text", content_type="text/plain", checksum="crc32c")
    found = bucket.get_blob("folder/a b.txt")
    assert (found.size, found.content_type, found.metadata) == (4, "text/plain", {"rows": "3"})
    assert found.cache_control == "no-cache" and found.metageneration == 1
    assert found.crc32c and found.md5_hash and found.updated == found.time_created
    assert found.download_as_text() == "text"
    assert found.download_as_bytes(start=1, end=2) == b"ex"
    found.metadata = {"rows": None, "columns": "5"}
    found.patch()
    again = bucket.get_blob("folder/a b.txt")
    assert (again.metadata, again.metageneration) == ({"columns": "5"}, 2)
    assert again.generation == found.generation
    again.content_type = "text/csv"
    again.update()
    assert bucket.get_blob("folder/a b.txt").content_type == "text/csv"
    again.download_to_filename(str(tmp_path / "here"))
    assert (tmp_path / "here").read_text() == "text"
    with again.open("r") as file:
        assert file.read() == "text"
    assert bucket.get_blob("missing") is None
    with pytest.raises(exceptions.NotFound, match="No such object"):
        bucket.blob("missing").delete()
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        again.download_as_bytes(start=10)


def test_large_objects_are_uploaded_in_chunks_and_resumed(server, bucket, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    blob = bucket.blob("large", chunk_size=CHUNK)
    server.fail("ContinueUpload", 503, "UNAVAILABLE")
    server.fail("ContinueUpload", 503, "UNAVAILABLE", after=True)
    blob.upload_from_filename(str(path), retry=DEFAULT_RETRY, checksum="crc32c")
    assert server.names().count("ContinueUpload") > 4
    assert bucket.blob("large").download_as_bytes(checksum="crc32c") == LARGE
    with bucket.blob("written").open("wb", chunk_size=CHUNK) as file:
        file.write(LARGE)
    assert bucket.blob("written").download_as_bytes() == LARGE
    url = bucket.blob("later").create_resumable_upload_session(size=3)
    assert url.startswith(server.url)
    assert not bucket.blob("later").exists()


def test_preconditions_hold_or_change_nothing(bucket):
    blob = bucket.blob("one")
    blob.upload_from_string("1", if_generation_match=0)
    first = blob.generation
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("one").upload_from_string("2", if_generation_match=0)
    blob.upload_from_string("2", if_generation_match=first)
    assert blob.generation > first
    for change in (
        lambda: bucket.blob("one").upload_from_string("3", if_generation_match=first),
        lambda: bucket.blob("one").delete(if_generation_match=first),
        lambda: bucket.blob("one").delete(if_metageneration_match=7),
        lambda: bucket.blob("one").download_as_bytes(if_generation_match=first),
        lambda: bucket.blob("new").rewrite(bucket.blob("one"), if_source_generation_match=first),
        lambda: bucket.copy_blob(bucket.blob("one"), bucket, "one", if_generation_match=first),
        lambda: bucket.blob("new").compose([bucket.blob("one")], if_generation_match=[first]),
    ):
        with pytest.raises(exceptions.PreconditionFailed):
            change()
    with pytest.raises(exceptions.NotFound):
        bucket.blob("one", generation=first).download_as_bytes()
    assert names(bucket.list_blobs()) == ["one"]
    assert bucket.blob("one", generation=blob.generation).download_as_bytes() == b"2"
    with pytest.raises(exceptions.BadRequest, match="md5Hash"):
        wrong = bucket.blob("one")
        wrong.md5_hash = "AAAAAAAAAAAAAAAAAAAAAA=="
        wrong.upload_from_string("3")
    assert bucket.blob("one").download_as_bytes() == b"2"


def test_objects_are_copied_moved_and_composed(client, bucket):
    parts = []
    for number in range(3):
        parts.append(bucket.blob(f"part-{number}"))
        parts[-1].upload_from_string(str(number), content_type="text/plain")
    whole = bucket.blob("whole")
    whole.content_type = "text/plain"
    whole.compose(parts)
    assert whole.download_as_bytes() == b"012"
    other = client.create_bucket("other-bucket")
    copied = bucket.copy_blob(whole, other, "copy")
    assert (copied.content_type, copied.crc32c) == ("text/plain", whole.crc32c)
    token, done, total = other.blob("rewritten").rewrite(whole)
    assert (token, done, total) == (None, 3, 3)
    bucket.rename_blob(whole, "renamed")
    assert names(bucket.list_blobs(prefix="re")) == ["renamed"]
    assert not bucket.blob("whole").exists()
    with pytest.raises(exceptions.BadRequest, match="between 1 and 32"):
        bucket.blob("many").compose([parts[0]] * 33)


def test_lists_have_items_and_prefixes_in_pages(bucket):
    for name in ("a/1", "a/b/2", "a/b/3", "c", "d/"):
        bucket.blob(name).upload_from_string(name)
    assert names(bucket.list_blobs()) == ["a/1", "a/b/2", "a/b/3", "c", "d/"]
    listed = bucket.list_blobs(prefix="a/", delimiter="/")
    assert names(listed) == ["a/1"] and listed.prefixes == {"a/b/"}
    listed = bucket.list_blobs(delimiter="/")
    assert names(listed) == ["c"] and listed.prefixes == {"a/", "d/"}
    listed = bucket.list_blobs(delimiter="/", include_trailing_delimiter=True)
    assert names(listed) == ["c", "d/"]
    assert names(bucket.list_blobs(match_glob="a/*")) == ["a/1"]
    assert names(bucket.list_blobs(start_offset="a/b/3", end_offset="d")) == ["a/b/3", "c"]
    pages = [names(page) for page in bucket.list_blobs(page_size=2).pages]
    assert pages == [["a/1", "a/b/2"], ["a/b/3", "c"], ["d/"]]
    assert len(names(bucket.list_blobs(max_results=3))) == 3


def test_file_that_a_task_writes_is_an_object_at_once(server, bucket, tmp_path):
    root = server.buckets["bucket"].folder
    (root / "model").mkdir()
    (root / "model" / "weights").write_bytes(b"w")
    first = bucket.get_blob("model/weights")
    assert (first.size, first.content_type) == (1, "application/octet-stream")
    (root / "model" / "weights").write_bytes(b"ww")
    second = bucket.get_blob("model/weights")
    assert second.generation > first.generation and second.size == 2
