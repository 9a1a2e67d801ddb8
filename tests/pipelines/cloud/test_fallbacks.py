"""Where there are no such machines, a run is sent again with the recipe's next ones."""

import pytest
from google.protobuf import json_format

from tests.pipelines.cloud.conftest import QUOTA_EXCEEDED
from tests.pipelines.cloud.emulator import Outcome


@pytest.fixture
def fallbacks(tmp_path, monkeypatch):
    """The digits recipe on a T4, with an L4 and then no accelerator to fall back on."""
    from pipelines import recipe

    text, _, _ = (recipe.DIRECTORY / "digits.toml").read_text().partition("[retraining]")
    text += """
accelerator_type = "NVIDIA_TESLA_T4"
accelerator_count = 1
[[fallbacks]]
chief_machine_type = "g2-standard-8"
accelerator_type = "NVIDIA_L4"
[[fallbacks]]
accelerator_type = ""
accelerator_count = 0
"""
    folder = tmp_path / "packaged"
    folder.mkdir()
    (folder / "digits.toml").write_text(text)
    monkeypatch.setattr(recipe, "DIRECTORY", folder)


@pytest.mark.usefixtures("fallbacks")
@pytest.mark.parametrize(
    "quota",
    [
        QUOTA_EXCEEDED,
        "The following quotas are exceeded: CustomModelTrainingT4GPUsPerProjectPerRegion",
    ],
)
def test_a_stock_out_and_a_used_up_quota_send_the_run_again_with_the_next_machines(
    vertex, command, quota
):
    stock_out = "Resources are insufficient in region: us-central1. Please try a different region."
    vertex.fail("CreatePipelineJob", 429, "RESOURCE_EXHAUSTED", quota)
    vertex.outcomes = [Outcome("FAILED", stock_out), Outcome()]
    code, out, _ = command("run", "digits", "--name", "one", "--no-cache")
    assert code == 0, out
    # The first was refused before it was read.
    second, third = vertex.sent("CreatePipelineJob")[1:]
    assert [second.pipeline_job_id, third.pipeline_job_id] == ["one-2", "one-3"]
    shapes = [dict(request.pipeline_job.runtime_config.parameter_values)
              for request in (second, third)]  # fmt: skip
    assert shapes[0]["accelerator_type"] == "NVIDIA_L4"
    assert shapes[1]["accelerator_type"] == ""
    # Nothing was to be cached.
    spec = json_format.MessageToDict(third.pipeline_job._pb)["pipelineSpec"]
    options = spec["root"]["dag"]["tasks"]["create-tfrecords"]["cachingOptions"]
    assert not options.get("enableCache")
    assert "fallbacks" in out


@pytest.mark.usefixtures("fallbacks")
def test_a_training_job_that_is_refused_for_its_quota_is_known_by_its_launchers_log(
    vertex, command
):
    def logged(launcher, text):
        return {"resource": {"type": "ml_job", "labels": {"job_id": launcher}},
                "textPayload": text}  # fmt: skip

    vertex.log_entries = [
        logged("1002", "Traceback (most recent call last):"),
        logged("1002", f"google.api_core.exceptions.ResourceExhausted: 429 {QUOTA_EXCEEDED}"),
        logged("1004", "google.api_core.exceptions.InvalidArgument: 400 Unknown image"),
    ]
    vertex.outcomes = [
        Outcome(
            "FAILED", task_error="The replica workerpool0-0 exited with status 1.", launched=False
        )
        for _ in range(2)
    ]
    code, out, _ = command("run", "digits", "--name", "one")
    assert code == 1
    assert list(vertex.pipeline_jobs) == ["one", "one-2"]
    assert out.count("trying the next of the recipe's fallbacks") == 1
    assert "400 Unknown image" in out


@pytest.mark.usefixtures("fallbacks")
def test_a_failure_of_another_kind_is_not_tried_on_other_machines(vertex, command):
    vertex.outcomes = [Outcome("FAILED", "The replica workerpool0-0 exited with status 1.")]
    assert command("run", "digits", "--name", "one")[0] == 1
    assert len(vertex.sent("CreatePipelineJob")) == 1
