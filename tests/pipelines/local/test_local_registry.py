"""The Model Registry of this machine, used through Google's clients."""

import concurrent.futures
import fcntl
import json
import re
import urllib.request

import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import types

from components.planning.serving_container import PREBUILT
from tests.registry_service import ModelService
from vertex.client.vertex_client import connect_vertex, local_credentials
from vertex.emulator import resource_store

PARENT = "projects/local/locations/local"
DIGITS = f"{PARENT}/models/digits"


@pytest.fixture
def server(tmp_path):
    with ModelService(tmp_path / ".registry", "") as server:
        yield server


def connect(server):
    return connect_vertex("model", "local", server.environment)


def upload(client, run="one", **fields):
    model = types.Model(display_name="digits", artifact_uri=f"/runs/{run}", labels={"run": run})
    request = types.UploadModelRequest(parent=PARENT, model=model, **fields)
    return client.upload_model(request=request).result()


def merge(client, number, *aliases):
    """Change the aliases of a version; return them."""
    model = client.merge_version_aliases(name=f"{DIGITS}@{number}", version_aliases=aliases)
    return set(model.version_aliases)


@pytest.fixture
def client(server):
    """A client of a registry with the first version of the model digits."""
    client = connect(server)
    upload(client, model_id="digits")
    return client


def test_alias_moves_from_its_old_version(client):
    second = upload(client, "two", parent_model=DIGITS)
    assert (second.model, second.model_version_id) == (DIGITS, "2")
    merge(client, 2, "golden")
    for name, run in ((DIGITS, "one"), (f"{DIGITS}@2", "two"), (f"{DIGITS}@golden", "two")):
        model = client.get_model(name=name)
        assert (model.artifact_uri, model.labels) == (f"/runs/{run}", {"run": run})
        assert model.version_create_time
    assert [model.version_id for model in client.list_model_versions(name=DIGITS)] == ["1", "2"]
    assert [model.name for model in client.list_models(parent=PARENT)] == [DIGITS]
    merge(client, 1, "champion")
    assert merge(client, 2, "champion", "default", "-golden") == {"champion", "default"}
    assert not client.get_model(name=f"{DIGITS}@1").version_aliases
    assert merge(client, 2, "champion", "-champion") == {"champion", "default"}
    assert merge(client, 2, "-champion") == {"default"}


def test_default_alias_of_a_deleted_version_moves_to_the_newest(client):
    for run in ("two", "three"):
        upload(client, run, parent_model=DIGITS)
    client.delete_model_version(name=f"{DIGITS}@1").result()
    versions = client.list_model_versions(name=DIGITS)
    assert {version.version_id: version.version_aliases for version in versions} == {
        "2": [],
        "3": ["default"],
    }


def test_update_changes_the_masked_fields_unless_outdated(client):
    read = client.get_model(name=DIGITS)
    read.display_name, read.description = "Digits", "not in the mask"
    mask = {"paths": ["display_name"]}
    updated = client.update_model(model=read, update_mask=mask)
    assert (updated.display_name, updated.description) == ("Digits", "")
    assert updated.etag != read.etag
    with pytest.raises(exceptions.Conflict, match="has changed since"):
        client.update_model(model=read, update_mask=mask, retry=None)
    read.etag = ""
    assert client.update_model(model=read, update_mask={"paths": ["labels"]}).labels == read.labels
    with pytest.raises(exceptions.BadRequest, match="update_mask is required"):
        client.update_model(model=read, update_mask={})


def test_evaluation_belongs_to_its_version(client):
    upload(client, "two", parent_model=DIGITS)
    evaluation = types.ModelEvaluation(metrics_schema_uri="gs://schema", display_name="Test")
    made = client.import_model_evaluation(parent=f"{DIGITS}@2", model_evaluation=evaluation)
    assert made.name.startswith(f"{DIGITS}/evaluations/")
    assert list(client.list_model_evaluations(parent=f"{DIGITS}@1")) == []
    assert list(client.list_model_evaluations(parent=f"{DIGITS}@2")) == [made]


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        ("NotFound", "@9 does not exist", lambda c: c.get_model(name=f"{DIGITS}@9")),
        ("BadRequest", "can only be given to another version", lambda c: merge(c, 1, "-default")),
        ("BadRequest", "is the only version", lambda c: c.delete_model_version(name=f"{DIGITS}@1")),
        (
            "GoogleAPICallError",
            "slices is not emulated",
            lambda c: c.list_model_evaluation_slices(parent=f"{DIGITS}/evaluations/1"),
        ),
    ],
)
def test_invalid_request_is_refused(client, error, message, call):
    with pytest.raises(getattr(exceptions, error), match=message):
        call(client)


@pytest.mark.parametrize(
    ("headers", "field", "answer"),
    [
        ({}, "model", (401, "UNAUTHENTICATED")),
        ({"Authorization": "Bearer guessed"}, "model", (401, "UNAUTHENTICATED")),
        ({"Origin": "https://a.example"}, "model", (401, "UNAUTHENTICATED")),
        ({"Authorization": "Bearer {secret}"}, "modell", (400, "INVALID_ARGUMENT")),
    ],
)
def test_request_without_secret_or_proto_is_refused(server, tmp_path, headers, field, answer):
    headers = {name: value.format(secret=server.secret) for name, value in headers.items()}
    content = json.dumps({field: {"displayName": "digits"}}).encode()
    url = f"{server.endpoint}/v1/{PARENT}/models:upload"
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(url, content, headers))
    status = json.loads(raised.value.read())["error"]["status"]
    assert (raised.value.code, status) == answer
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        ModelService(tmp_path / "file" / ".registry", "") as server,
        pytest.raises(exceptions.BadRequest, match=r"file/.registry/models can't be"),
    ):
        upload(connect(server), model_id="digits")


def test_lock_that_another_holds_is_named_after_a_while(client, tmp_path, monkeypatch):
    monkeypatch.setattr(resource_store, "_LOCK_SECONDS", 0.1)
    lock = tmp_path / ".registry" / "models" / ".lock"
    # Nobody but the owner can hold it.
    assert lock.stat().st_mode & 0o777 == 0o600
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(exceptions.BadRequest, match=r"another process has held .*\.lock for 0"):
            upload(client, "two", parent_model=DIGITS)
    upload(client, "two", parent_model=DIGITS)


@pytest.mark.parametrize(
    "change",
    [
        ('"artifactUri": "', '"artifactUri": 5, "x": "'),
        ('"versionId": "1"', '"versionId": "2"'),
        ('"last": 1', '"last": null'),
        ('"evaluations": {}', '"evaluations": {"1": [{"sliceDimensions": 1}]}'),
        ('"labels": {', '"labels": [{'),
    ],
    ids=lambda change: change[0].split('"')[1],
)
def test_damaged_file_is_named_and_hides_its_own_model_alone(client, tmp_path, change, caplog):
    resource_store.warn.cache_clear()
    upload(client, model_id="other")
    file = tmp_path / ".registry" / "models" / "digits.json"
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    reason = r"digits.json can't be read \(.*restore it, or delete it"
    for call in (
        lambda: client.get_model(name=DIGITS),
        lambda: upload(client, "two", parent_model=DIGITS),
    ):
        with pytest.raises(exceptions.BadRequest, match=reason):
            call()
    (other,) = client.list_models(parent=PARENT)
    assert other.name.endswith("/other") and re.search(reason, caplog.text)


def test_models_outlive_the_server_until_deleted(tmp_path):
    with ModelService(tmp_path, "") as server:
        client = connect(server)
        upload(client, "one", model_id="digits")
        upload(client, "two", parent_model=DIGITS)
    with ModelService(tmp_path, "") as server:
        client = connect(server)
        client.delete_model_version(name=f"{DIGITS}@2").result()
        uris = [version.artifact_uri for version in client.list_model_versions(name=DIGITS)]
        assert uris == ["/runs/one"]
        # A version's number is never used again.
        assert upload(client, "three", parent_model=DIGITS).model_version_id == "3"
        client.delete_model(name=DIGITS).result()
        assert list(client.list_models(parent=PARENT)) == []


def test_two_servers_of_one_folder_lose_no_version(tmp_path):
    with ModelService(tmp_path, "") as first, ModelService(tmp_path, "") as second:
        clients = [connect(first), connect(second)]
        upload(clients[0], model_id="digits")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: upload(clients[n % 2], parent_model=DIGITS), range(12)))
        numbers = {model.version_id for model in clients[0].list_model_versions(name=DIGITS)}
    assert numbers == {str(n) for n in range(1, 14)}


@pytest.mark.slow
def test_high_level_sdk_uploads_versions(server):
    from google.cloud import aiplatform
    from google.cloud.aiplatform import initializer

    aiplatform.init(
        project="local",
        location="us-central1",
        api_endpoint=server.endpoint,
        api_transport="rest",
        credentials=local_credentials(server.environment),
    )
    try:
        image = {"serving_container_image_uri": PREBUILT, "artifact_uri": "gs://bucket/model"}
        model = aiplatform.Model.upload(display_name="digits", model_id="digits", **image)
        later = aiplatform.Model.upload(
            parent_model="digits", is_default_version=False, version_aliases=["next"], **image
        )
    finally:
        initializer.global_config.__init__()
    assert (model.version_id, model.version_aliases) == ("1", ["default"])
    assert (later.version_id, later.version_aliases) == ("2", ["next"])
