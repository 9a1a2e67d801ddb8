"""Errors that are retried, and lines that say so; lack of machines."""

import time
from unittest import mock

import pytest
from google.api_core import exceptions

from vertex.client import vertex_client
from vertex.client.cloud_errors import is_capacity
from vertex.client.vertex_client import make_retry

PER_MINUTE = (
    "Quota exceeded for quota metric 'Resource management (CRUD) requests' and limit 'Resource "
    "management (CRUD) requests per minute per region' of service 'aiplatform.googleapis.com'"
)


@pytest.mark.parametrize(
    "message",
    [
        "Resources are insufficient in region: us-central1. Please try a different region",
        "The zone does not have enough resources available to fulfill the request",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "Stockout in us-central1-a",
        # As public issues have them.
        'Training failed with: code: 8 message: "The following quota metrics exceed quota limits: '
        'aiplatform.googleapis.com/custom_model_training_nvidia_k80_gpus"',
        "UNAVAILABLE, errorSource: COMPUTE_ENGINE, Error Message: The zone 'projects/p/zones/z' "
        "does not have enough resources available to fulfill the request.  'NULL:0/NULL:0/NULL:0 "
        "(state:STOCKOUT, sub-state:STOCKOUT, resource type:compute)'.",
        "503 Machine type temporarily unavailable, please deploy with a different machine type or "
        "retry.",
        "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.",
        "Quota limit 'SSD_TOTAL_GB' has been exceeded. Limit: 500 in region us-central1.",
        "Insufficient 'DISKS_TOTAL_GB' quota. Requested 3000.0, available 2048.0.",
        "Quota exceeded for quota metric 'Custom model training Nvidia L4 GPUs' and limit 'Custom "
        "model training Nvidia L4 GPUs per region' of service 'aiplatform.googleapis.com'",
        "Quota exceeded for aiplatform.googleapis.com/custom_model_training_pd_ssd",
        "code: 8, RESOURCE_EXHAUSTED",
    ],
)
def test_lack_of_machines_is_recognized(message):
    assert is_capacity(message)


def test_other_failures_are_no_lack_of_machines():
    assert not is_capacity("The replica workerpool0-0 exited with a non-zero status of 1.")
    assert not is_capacity("ResourceExhaustedError: OOM when allocating tensor")
    assert not is_capacity("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes")
    assert not is_capacity(f"code: 8, RESOURCE_EXHAUSTED, {PER_MINUTE}")
    assert not is_capacity(PER_MINUTE)
    assert not is_capacity("OSError: [Errno 122] Disk quota exceeded")


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ResourceExhausted(PER_MINUTE),
        exceptions.ResourceExhausted("Resource has been exhausted (e.g. check quota)."),
        exceptions.ServiceUnavailable("The service is currently unavailable"),
        exceptions.InternalServerError("Internal error encountered."),
        exceptions.GatewayTimeout("Deadline exceeded"),
        exceptions.Aborted("The operation was aborted, try again"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_transient_error_is_retried(error):
    said, call = [], mock.Mock(side_effect=[error, "answer"])
    assert make_retry(said.append)(call)() == "answer"
    (line,) = said
    assert line.startswith("no answer: ") and line.endswith("; trying again for up to 2 s")


def test_line_is_not_repeated_while_calls_are_retried():
    error, said = exceptions.ServiceUnavailable("down"), []
    retry = make_retry(said.append)
    for _ in range(2):
        assert retry(mock.Mock(side_effect=[error, error, "answer"]))() == "answer"
    assert said == ["no answer: 503 down; trying again for up to 2 s"]


def test_late_answer_is_announced_once_by_the_call_that_waits(monkeypatch):
    monkeypatch.setattr(vertex_client, "_SILENT_SECONDS", 0.05)
    said = []
    retry = make_retry(said.append)

    @retry
    def wait():
        time.sleep(0.2)

    @retry
    def call_twice():
        retry(int)()
        time.sleep(0.2)  # Of its own, not for an answer.
        return said.copy()

    assert call_twice() == []
    wait()
    wait()
    assert said == ["no answer for 0.05 s; still waiting"]


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ResourceExhausted("The following quota metrics exceed quota limits: x"),
        exceptions.AlreadyExists("it exists"),
        exceptions.FailedPrecondition("it must be in the same regional location"),
        exceptions.Forbidden("Permission 'aiplatform.pipelineJobs.create' denied"),
        exceptions.NotFound("no such job"),
    ],
)
def test_permanent_error_is_not_retried(error):
    said, call = [], mock.Mock(side_effect=error)
    with pytest.raises(type(error)):
        make_retry(said.append)(call)()
    assert (call.call_count, said) == (1, [])
