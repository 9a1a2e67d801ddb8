"""The Model Registry of this machine answers Google's clients, and keeps what it is given."""

import concurrent.futures
import json
import urllib.request

import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import types

from components.vertex_client import local_credentials, vertex_client
from tests.model_service import ModelService

PARENT = "projects/local/locations/local"
DIGITS = f"{PARENT}/models/digits"


@pytest.fixture
def server(tmp_path):
    with ModelService(tmp_path / ".registry", "") as server:
        yield server


@pytest.fixture
def served(server):
    """A client of the server."""
    return vertex_client("model", "local", server.environment)


def upload(client, run="one", **fields):
    model = types.Model(display_name="digits", artifact_uri=f"/runs/{run}", labels={"run": run})
    request = types.UploadModelRequest(parent=PARENT, model=model, **fields)
    return client.upload_model(request=request).result()


def test_versions_are_found_by_number_by_alias_and_by_neither(served):
    first = upload(served, "one", model_id="digits")
    second = upload(served, "two", parent_model=DIGITS)
    assert (first.model, first.model_version_id) == (DIGITS, "1")
    assert (second.model, second.model_version_id) == (DIGITS, "2")
    served.merge_version_aliases(name=f"{DIGITS}@2", version_aliases=["golden"])
    for name, run in ((DIGITS, "one"), (f"{DIGITS}@2", "two"), (f"{DIGITS}@golden", "two")):
        model = served.get_model(name=name)
        assert model.artifact_uri == f"/runs/{run}"
        assert model.labels == {"run": run}
    assert [model.version_id for model in served.list_model_versions(name=DIGITS)] == ["1", "2"]
    assert [model.name for model in served.list_models(parent=PARENT)] == [DIGITS]
    assert served.get_model(name=DIGITS).version_create_time


def test_an_alias_given_to_a_version_leaves_the_one_that_had_it(served):
    upload(served, "one", model_id="digits")
    upload(served, "two", parent_model=DIGITS)
    served.merge_version_aliases(name=f"{DIGITS}@1", version_aliases=["champion"])
    moved = served.merge_version_aliases(
        name=f"{DIGITS}@2", version_aliases=["champion", "default"]
    )
    assert set(moved.version_aliases) == {"champion", "default"}
    assert not served.get_model(name=f"{DIGITS}@1").version_aliases
    taken = served.merge_version_aliases(name=f"{DIGITS}@2", version_aliases=["-champion"])
    assert list(taken.version_aliases) == ["default"]


def test_the_default_alias_of_a_deleted_version_moves_to_the_newest(served):
    upload(served, "one", model_id="digits")
    for run in ("two", "three"):
        upload(served, run, parent_model=DIGITS)
    served.delete_model_version(name=f"{DIGITS}@1").result()
    aliases = {
        one.version_id: one.version_aliases for one in served.list_model_versions(name=DIGITS)
    }
    assert aliases == {"2": [], "3": ["default"]}


def test_an_update_changes_what_its_mask_names_unless_it_is_late(served):
    upload(served, "one", model_id="digits")
    read = served.get_model(name=DIGITS)
    read.display_name, read.description = "Digits", "not in the mask"
    mask = {"paths": ["display_name"]}
    updated = served.update_model(model=read, update_mask=mask)
    assert (updated.display_name, updated.description) == ("Digits", "")
    assert updated.etag != read.etag
    with pytest.raises(exceptions.Conflict, match="has changed since"):
        served.update_model(model=read, update_mask=mask, retry=None)
    read.etag = ""
    assert served.update_model(model=read, update_mask={"paths": ["labels"]}).labels == read.labels
    for paths, reason in (
        ([], "update_mask is required"),
        (["name"], "name, which is not updatable"),
    ):
        with pytest.raises(exceptions.BadRequest, match=reason):
            served.update_model(model=read, update_mask={"paths": paths})


def test_evaluations_belong_to_their_version(served):
    upload(served, "one", model_id="digits")
    upload(served, "two", parent_model=DIGITS)
    evaluation = types.ModelEvaluation(metrics_schema_uri="gs://schema", display_name="Test")
    made = served.import_model_evaluation(parent=f"{DIGITS}@2", model_evaluation=evaluation)
    assert made.name.startswith(f"{DIGITS}/evaluations/")
    assert list(served.list_model_evaluations(parent=f"{DIGITS}@1")) == []
    (listed,) = served.list_model_evaluations(parent=f"{DIGITS}@2")
    assert listed == made


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.get_model(name=f"{PARENT}/models/x"), exceptions.NotFound, "does not exist"),
        (lambda c: c.get_model(name=f"{DIGITS}@9"), exceptions.NotFound, "@9 does not exist"),
        (lambda c: upload(c, model_id="digits"), exceptions.Conflict, "exists already"),
        (lambda c: upload(c, model_id="Digits"), exceptions.BadRequest, "model_id 'Digits'"),
        (lambda c: upload(c, "R"), exceptions.BadRequest, "'R' is not a label"),
        (
            lambda c: c.merge_version_aliases(name=f"{DIGITS}@1", version_aliases=["1"]),
            exceptions.BadRequest,
            "'1' is not an alias",
        ),
        (
            lambda c: c.merge_version_aliases(name=f"{DIGITS}@1", version_aliases=["-default"]),
            exceptions.BadRequest,
            "can only be given to another version",
        ),
        (
            lambda c: c.delete_model_version(name=f"{DIGITS}@1"),
            exceptions.BadRequest,
            "is the only version",
        ),
        (
            lambda c: c.list_model_evaluation_slices(parent=f"{DIGITS}/evaluations/1"),
            exceptions.GoogleAPICallError,
            "is not served on this machine",
        ),
    ],
)
def test_what_the_service_refuses_is_refused_in_its_way(served, call, error, message):
    upload(served, "one", model_id="digits")
    with pytest.raises(error, match=message):
        call(served)


def refusal(server, content, headers):
    """Return status and name of the error that an upload is answered with."""
    url = f"{server.endpoint}/v1/{PARENT}/models:upload"
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(url, content, headers))
    return raised.value.code, json.loads(raised.value.read())["error"]["status"]


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer guessed"}, {"Origin": "https://a.example"}]
)
def test_a_stranger_without_the_secret_is_refused(server, tmp_path, headers):
    content = b'{"model": {"displayName": "digits"}}'
    assert refusal(server, content, headers) == (401, "UNAUTHENTICATED")
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_is_no_proto_is_an_invalid_argument(server):
    headers = {"Authorization": f"Bearer {server.secret}"}
    assert refusal(server, b'{"modell": {}}', headers) == (400, "INVALID_ARGUMENT")


def test_a_folder_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with ModelService(tmp_path / "file" / ".registry", "") as server:
        client = vertex_client("model", "local", server.environment)
        with pytest.raises(exceptions.BadRequest, match=r"file/.registry/models can't be"):
            upload(client, "one", model_id="digits")


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
def test_a_damaged_file_is_named_and_breaks_no_connection(served, tmp_path, change):
    upload(served, "one", model_id="digits")
    file = tmp_path / ".registry" / "models" / "digits.json"
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    for call in (
        lambda: list(served.list_models(parent=PARENT)),
        lambda: served.get_model(name=DIGITS),
        lambda: upload(served, "two", parent_model=DIGITS),
    ):
        with pytest.raises(exceptions.BadRequest, match=r"digits.json can't be read"):
            call()


def test_models_outlive_the_server_and_can_be_deleted(tmp_path):
    with ModelService(tmp_path, "") as server:
        client = vertex_client("model", "local", server.environment)
        upload(client, "one", model_id="digits")
        upload(client, "two", parent_model=DIGITS)
    with ModelService(tmp_path, "") as server:
        client = vertex_client("model", "local", server.environment)
        client.delete_model_version(name=f"{DIGITS}@2").result()
        assert [one.artifact_uri for one in client.list_model_versions(name=DIGITS)] == [
            "/runs/one"
        ]
        # A number is never given twice.
        assert upload(client, "three", parent_model=DIGITS).model_version_id == "3"
        client.delete_model(name=DIGITS).result()
        assert list(client.list_models(parent=PARENT)) == []


def test_two_servers_of_one_folder_lose_nothing(tmp_path):
    with ModelService(tmp_path, "") as one, ModelService(tmp_path, "") as other:
        clients = [vertex_client("model", "local", server.environment) for server in (one, other)]
        upload(clients[0], "first", model_id="digits")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: upload(clients[n % 2], parent_model=DIGITS), range(12)))
        numbers = {model.version_id for model in clients[0].list_model_versions(name=DIGITS)}
    assert numbers == {str(n) for n in range(1, 14)}


def test_the_high_level_sdk_speaks_to_it_too(server):
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
        image = {"serving_container_image_uri": "image", "artifact_uri": "gs://bucket/model"}
        model = aiplatform.Model.upload(display_name="digits", model_id="digits", **image)
        later = aiplatform.Model.upload(
            parent_model="digits", is_default_version=False, version_aliases=["next"], **image
        )
    finally:
        initializer.global_config.__init__()
    assert (model.version_id, model.version_aliases) == ("1", ["default"])
    assert (later.version_id, later.version_aliases) == ("2", ["next"])
