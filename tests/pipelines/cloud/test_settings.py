"""Settings: their sources, the order of these, and refused values."""

import pytest

from pipelines.cloud.settings import load
from tests.refusals import refused
from trainer.errors import InputError


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
