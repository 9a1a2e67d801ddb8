"""Start a Dataflow job, wait for it, and report its failure."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from trainer.data import storage
from trainer.data.storage import join
from trainer.data.write.record_options import EngineOptions
from vertex.errors import InputError

_REFUSED = (
    "check that Dataflow's API is enabled, that the run's account has roles/dataflow.developer, "
    "and the workers' account roles/dataflow.worker (docs/vertex-special.md)"
)
_ACTIVE = "an earlier run still writes these records: wait for it, or cancel it, and run again"


ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAFLOW"
"""gcloud's environment variable for an endpoint other than Google's; on localhost, its workers
share this machine's folders, as in tests."""
LABELS_VARIABLE = "VERTEX_AI_PIPELINES_RUN_LABELS"
"""Vertex AI's variable of the run's labels, which it gives to the jobs of its own components."""


def build_job_options(
    options: EngineOptions,
    environment: Mapping[str, str],
    *,
    project: str,
    region: str,
    image: str,
    service_account: str,
    network: str,
    encryption_key: str,
) -> dict[str, Any]:
    """Return Beam's options for a Dataflow job, without options that have no value.

    Args:
        image: image of the workers, with this code, its packages and Beam's boot program.
        network: projects/NUMBER/global/networks/NAME; ignored with a subnetwork, which implies it.
    """
    subnetwork = options.dataflow_subnetwork
    labels = json.loads(environment.get(LABELS_VARIABLE, "{}"))
    endpoint = environment.get(ENDPOINT_VARIABLE, "").rstrip("/")
    all_options = {
        "project": project,
        "region": region,
        "sdk_container_image": image,
        "sdk_location": "container",
        "max_num_workers": options.dataflow_max_workers,
        "machine_type": options.dataflow_machine_type,
        # One process per core, each with one task at a time, as on this machine.
        "number_of_worker_harness_threads": 1,
        # Logging the environment would call pip, which the image does not have.
        "experiments": ["disable_logging_submission_environment"],
        "service_account_email": service_account,
        # Workers in a subnetwork have no public addresses.
        "subnetwork": subnetwork,
        "use_public_ips": False if subnetwork else None,
        # Dataflow expects only the name of a network of its project.
        "network": "" if subnetwork else network.rpartition("/")[2],
        "dataflow_kms_key": encryption_key,
        "labels": [f"{key}={value}" for key, value in labels.items()] or None,
        "dataflow_endpoint": endpoint,
        "no_auth": urlsplit(endpoint).hostname == "localhost" or None,
    }
    return {name: value for name, value in all_options.items() if value not in ("", None)}


class RunOnDataflow:
    """A Beam pipeline as a Dataflow job; raises InputError if it can't be started.

    Args:
        job: from `build_job_options`.
        pipeline: runs the pipeline, with a runner and its options.
        output_uri: folder to write; only one job can write it at a time.
        folder: URI of the folder in which the job keeps its own files.
    """

    def __init__(
        self, job: dict[str, Any], pipeline: Callable[..., Any], output_uri: str, folder: str
    ) -> None:
        name = f"create-tfrecords-{hashlib.sha256(output_uri.encode()).hexdigest()[:16]}"
        staging = join(folder, "staging")
        # A bucket needs no folders, but a service on this machine does.
        storage.make_folder(staging)
        with _start_in_one_line():
            from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

            self._runner = DataflowRunner()
            self._result = pipeline(
                self._runner,
                job_name=name,
                temp_location=join(folder, "temp"),
                staging_location=staging,
                **job,
            )
        job_id = self._result.job_id()
        self.name = f"Dataflow job {job_id}"
        self.link = (
            f"https://console.cloud.google.com/dataflow/jobs/{job['region']}/{job_id}"
            f"?project={job['project']}"
        )

    def wait(self, seconds: float) -> bool:
        from apache_beam.runners.runner import PipelineState

        time.sleep(seconds)
        self._state = self._result.state
        return PipelineState.is_terminal(self._state)

    def raise_failure(self) -> None:
        if self._state == "DONE":
            return
        # This reads the job's messages and stores the most severe one.
        self._runner.poll_for_job_completion(self._runner, self._result, None)
        reason = getattr(self._runner, "last_error_msg", None) or "no reason given"
        raise RuntimeError(
            f"{self.name} ended as {self._state}: {_format_error(reason)}; {self.link}; run again: "
            "complete shards are kept"
        )

    def end(self) -> None:
        with contextlib.suppress(Exception):  # Already over, or unreachable.
            if not self._result.is_in_terminal_state():
                self._result.cancel()


@contextlib.contextmanager
def _start_in_one_line() -> Iterator[None]:
    """Convert exceptions of Google's and Beam's clients to InputError."""
    try:
        yield
    except Exception as error:
        ours = not type(error).__module__.startswith(("google.", "apache_beam."))
        if ours and not isinstance(error, (OSError, ImportError)):
            raise
        line = _format_error(error)
        remedy = _ACTIVE if "already" in line and "active job" in line else _REFUSED
        raise InputError(
            f"records_engine='dataflow': the job can't be started: {line}; {remedy}"
        ) from None


def _format_error(error: object) -> str:
    """Return an error in one line; for a stack trace, only the exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    return " ".join(lines)
