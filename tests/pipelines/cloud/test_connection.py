"""The way to the cloud: settings, transports, sign-in, servers that are not there."""

import json
import os
import socket
from pathlib import Path

import pytest

from pipelines.project.connection import Connection, check_server
from pipelines.project.settings import Settings, load
from tests.pipelines.cloud.cloud_servers import COMMANDS, expired_sign_in, tcp_server
from tests.refusals import refused
from vertex.client import vertex_client
from vertex.client.cloud_errors import CloudError
from vertex.client.vertex_client import is_loopback
from vertex.errors import InputError
from vertex.facts.emulation import TOKEN_VARIABLE


def test_grpc_works_at_a_local_endpoint(vertex, succeed, refused, monkeypatch):
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "grpc")
    assert "SUCCEEDED" in succeed("run digits --name first")
    # A long-running operation, and another service.
    succeed("schedule apply digits")
    succeed("schedule delete digits --yes")
    assert vertex.schedules == {}
    monkeypatch.setenv(TOKEN_VARIABLE, "guessed")
    err = refused("status", code=1)
    assert "401" in err and TOKEN_VARIABLE in err


def test_loopback_endpoints_are_recognized():
    assert is_loopback("127.0.0.1:80")
    assert is_loopback("http://localhost:1")
    assert is_loopback("https://[::1]:2/")
    assert not is_loopback("https://us-central1-aiplatform.googleapis.com")
    assert not is_loopback("localhost.example.com")


@pytest.fixture
def closed_port():
    """An address of this machine at which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("line", [*COMMANDS, "doctor", "run digits"])
def test_refused_connection_is_reported_at_once(settings, closed_port, refused, monkeypatch, line):
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 1000)
    err = refused(f"{line} --endpoint http://{closed_port}", code=1)
    assert err.startswith(f"error: no answer from {closed_port} (Connection refused); ")
    assert f"the setting endpoint is http://{closed_port}: check it, and that its server is" in err


def test_unreachable_storage_or_repository_is_named(vertex, closed_port, monkeypatch):
    connection = Connection(Settings(project="my-project", endpoint=vertex.url))
    url, refused = f"http://{closed_port}", f"no answer from {closed_port} "
    with pytest.raises(CloudError, match=f"{refused}.*template_repository"):
        connection.check_answers(f"{url}/p/r", "check the setting template_repository")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    with pytest.raises(CloudError, match=f"{refused}.*STORAGE_EMULATOR_HOST is"):
        _ = connection.storage


def test_unreachable_sign_in_is_reported_at_once(
    settings, closed_port, refused, monkeypatch, tmp_path
):
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 1000)
    with expired_sign_in(tmp_path) as key:
        path = Path(key)
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "token_uri": f"http://{closed_port}/token"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
        error = refused("status", code=1)
    assert error.startswith(f"error: no answer from {closed_port} (Connection refused); check the")


def test_server_behind_a_proxy_is_not_checked(closed_port, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
    check_server("http://server.invalid", advice="")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(CloudError, match="no answer from"):
        check_server(f"http://{closed_port}", advice="")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none.json", "File {} was not found; correct GOOGLE_APPLICATION_CREDENTIALS"),
        ("key.json", "File {} is not a valid json file; correct GOOGLE_APPLICATION_CREDENTIALS"),
        ("", "Is a directory: '{}'"),
    ],
)
def test_wrong_file_of_credentials_is_named(settings, refused, monkeypatch, tmp_path, name, why):
    (tmp_path / "key.json").write_text("{")
    path = str(tmp_path / name)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
    assert why.format(path) in refused("status", code=1)


@pytest.mark.parametrize("line", ["schedule list", "cancel one", "promote digits"])
def test_expired_sign_in_is_refused_at_once(settings, refused, monkeypatch, tmp_path, line):
    # gRPC would take the refusal of a token for an outage, and retry.
    with expired_sign_in(tmp_path) as key:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
        error = refused(line, code=1)
    assert "Token has been expired or revoked." in error
    assert "sign in: gcloud auth application-default login" in error


@pytest.mark.parametrize(
    ("answer", "scheme", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "http", "no connection (ConnectionError: "),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "https", "no connection (SSLError: "),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "http", "the answer is not from Google's API ("),
    ],
)
def test_foreign_server_is_reported(settings, refused, monkeypatch, answer, scheme, message):
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 1000)
    with tcp_server(lambda client: client.recv(9999) and client.sendall(answer)) as address:
        err = refused(f"status --endpoint {scheme}://{address}", code=1)
    assert err.startswith(f"error: listing the runs: {message}")
    assert "check the" in err and "setting endpoint" in err


def test_server_that_wants_a_token_says_how_to_give_it(vertex, refused, monkeypatch):
    for token, wanted in ((None, "a token in"), ("wrong", "another")):
        if token:
            monkeypatch.setenv(TOKEN_VARIABLE, token)
        else:
            monkeypatch.delenv(TOKEN_VARIABLE)
        error = refused("schedule list", code=1)
        remedy = "set it to what the server prints"
        assert error.endswith(f": 401 the server requires {wanted} {TOKEN_VARIABLE}; {remedy}\n")


@pytest.fixture
def gcloud(tmp_path):
    """gcloud's own files, with the configuration `work` active."""
    folder = tmp_path / "gcloud" / "configurations"
    folder.mkdir(parents=True)
    (folder.parent / "active_config").write_text("work\n")
    (folder / "config_work").write_text(
        "[core]\nproject = from-gcloud\n[compute]\nregion = europe-west1\n"
        "[api_endpoint_overrides]\naiplatform = http://127.0.0.1:1/\n"
    )
    (folder / "config_home").write_text("[core]\nproject = home\n")
    return {"CLOUDSDK_CONFIG": str(folder.parent)}


def test_flags_precede_environment_file_and_gcloud(tmp_path, gcloud):
    settings = load({}, gcloud, tmp_path)
    assert (settings.project, settings.region) == ("from-gcloud", "europe-west1")
    assert settings.endpoint == "http://127.0.0.1:1/"
    (tmp_path / "vertex.toml").write_text(
        'project = "from-file"\npipeline_root = "gs://b/r"\nlabels = {team = "vision"}\n'
    )
    settings = load({}, gcloud, tmp_path)
    assert (settings.project, settings.region) == ("from-file", "europe-west1")
    assert (settings.labels, settings.bucket) == ({"team": "vision"}, "b")
    environment = {**gcloud, "GOOGLE_CLOUD_PROJECT": "from-environment", "VERTEX_LABELS": "a=b,c=d"}
    settings = load({"region": "us-east1", "image": ""}, environment, tmp_path)
    assert (settings.project, settings.region) == ("from-environment", "us-east1")
    assert settings.labels == {"a": "b", "c": "d"}
    assert load({"project": "from-flag"}, environment, tmp_path).project == "from-flag"


def test_gclouds_configurations_are_read(tmp_path, gcloud):
    home = {**gcloud, "CLOUDSDK_ACTIVE_CONFIG_NAME": "home"}
    assert load({}, home, tmp_path).project == "home"
    config = tmp_path / ".config" / "gcloud" / "configurations"
    config.mkdir(parents=True)
    (config / "config_default").write_text("[core]\nproject = by-default\n")
    assert load({}, {"HOME": str(tmp_path)}, tmp_path).project == "by-default"


def test_environment_can_name_the_settings_file(tmp_path):
    (tmp_path / "prod.toml").write_text('project = "prod"\n')
    environment = {"VERTEX_SETTINGS": str(tmp_path / "prod.toml")}
    assert load({}, environment, tmp_path).project == "prod"
    with pytest.raises(InputError, match=r"VERTEX_SETTINGS=.*can't be read \(No such file.*fix it"):
        load({}, {"VERTEX_SETTINGS": str(tmp_path / "none.toml")}, tmp_path)


def test_settings_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "vertex.toml").write_text('project = "mine"\n', encoding="utf-8-sig")
    assert load({}, {}, tmp_path).project == "mine"


@pytest.mark.timeout(60)
def test_named_pipe_in_place_of_a_settings_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "vertex.toml")
    for environment in ({}, {"VERTEX_SETTINGS": str(tmp_path / "vertex.toml")}):
        message = refused(load, {}, environment, tmp_path)
        assert "can't be read (not a regular file)" in message


def test_link_to_a_settings_file_that_is_gone_is_refused(tmp_path):
    (tmp_path / "vertex.toml").symlink_to("moved.toml")
    assert "vertex.toml can't be read (No such file or" in refused(load, {}, {}, tmp_path)


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({"region": "moon"}, {}, "", "the command line: region='moon' is not a region"),
        ({}, {"GOOGLE_CLOUD_PROJECT": "My Project"}, "", "the environment: project='My Project'"),
        ({}, {"VERTEX_LABELS": "a=b,a=c"}, "", "labels: a has two values in 'a=b,a=c'"),
        ({}, {"VERTEX_LABELS": "team"}, "", "labels: 'team' is not KEY=VALUE"),
        ({"labels": {"Team": "x"}}, {}, "", "Team='x' is not a label"),
        ({}, {"VERTEX_AI_TRANSPORT": "soap"}, "", "transport='soap' is not one of"),
        ({}, {}, "projct = 'x'", "vertex.toml: unknown parameter 'projct'; did you mean 'project'"),
        ({}, {}, "pipeline_root = 'bucket'", "is not a folder in Cloud Storage"),
        ({}, {}, "template_repository = 'https://us-kfp.pkg.dev/p'", "/PROJECT/REPOSITORY nor gs"),
        ({}, {}, "template_repository = 'repo'", "neither https://REGION-kfp.pkg.dev"),
        ({}, {}, "project = ", "can't be read"),
    ],
)
def test_wrong_setting_is_refused_with_its_source(tmp_path, flags, environment, text, message):
    (tmp_path / "vertex.toml").write_text(text)
    assert message in refused(load, flags, environment, tmp_path)


def test_missing_setting_names_each_way_to_set_it(tmp_path):
    ways = "give --project, set GOOGLE_CLOUD_PROJECT, or write project = ... into vertex.toml"
    with pytest.raises(InputError, match=f"^no project: {ways}$"):
        load({}, {}, tmp_path).require("project", "pipeline_root")
