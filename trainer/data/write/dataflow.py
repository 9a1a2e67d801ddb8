"""A Dataflow job: its options, state and end."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from trainer.data import storage
from trainer.data.record_options import EngineOptions
from trainer.data.schema import join
from trainer.errors import InputError

_REFUSED = (
    "is its API enabled, has the run's account roles/dataflow.developer, and the workers' account "
    "roles/dataflow.worker? (docs/vertex.md, Records beyond one machine)"
)
_ACTIVE = "an earlier run still writes these records: wait for it, or cancel it, and run again"


@dataclasses.dataclass(frozen=True)
class DataflowJob:
    """The location, machines and account of a Dataflow job.

    Attributes:
        options: the number, type and subnetwork of its machines.
        region: of the job and its workers.
        image: of the workers: this code, its packages, and Beam's own boot program.
        service_account: the workers'; empty: Compute Engine's default.
        network: the workers', as projects/NUMBER/global/networks/NAME; ignored with a subnetwork,
            which implies it. Empty: the default one.
        encryption_key: Cloud KMS key that protects the job's own data; empty: Google's.
        endpoint: of a service other than Google's, such as http://localhost:8080.
    """

    options: EngineOptions
    project: str
    region: str
    image: str
    service_account: str
    network: str
    encryption_key: str
    endpoint: str

    @property
    def sees_this_machine(self) -> bool:
        """Return whether the workers share this machine's folders, as in tests."""
        return urlsplit(self.endpoint).hostname == "localhost"


class RunOnDataflow:
    """A Beam pipeline as a Dataflow job.

    Args:
        pipeline: runs the pipeline by a runner with its options.
        output_uri: the folder to write. Only one job at a time can write it.
        folder: URI below which the job keeps its own files.

    Raises:
        InputError: the job can't be started.
    """

    def __init__(
        self, job: DataflowJob, pipeline: Callable[..., Any], output_uri: str, folder: str
    ) -> None:
        subnetwork = job.options.dataflow_subnetwork
        options: dict[str, Any] = {
            "project": job.project,
            "region": job.region,
            "job_name": f"create-tfrecords-{hashlib.sha256(output_uri.encode()).hexdigest()[:16]}",
            "temp_location": join(folder, "temp"),
            "staging_location": join(folder, "staging"),
            "sdk_container_image": job.image,
            "sdk_location": "container",
            "max_num_workers": job.options.dataflow_max_workers,
            "machine_type": job.options.dataflow_machine_type,
            # One process per core, each with one task at a time, as on this machine.
            "number_of_worker_harness_threads": 1,
            # It would call pip, which the image does not have.
            "experiments": ["disable_logging_submission_environment"],
            "service_account_email": job.service_account,
            # With it, workers have no public addresses.
            "subnetwork": subnetwork,
            "use_public_ips": False if subnetwork else None,
            # Dataflow takes a network of its project by its name.
            "network": "" if subnetwork else job.network.rpartition("/")[2],
            "dataflow_kms_key": job.encryption_key,
            "dataflow_endpoint": job.endpoint,
            "no_auth": job.sees_this_machine or None,
        }
        options = {name: value for name, value in options.items() if value not in ("", None)}
        # A bucket needs no folder, but a service on this machine does.
        storage.make_folder(options["staging_location"])
        with _start_in_one_line():
            from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

            self._runner = DataflowRunner()
            self._result = pipeline(self._runner, **options)
        identity = self._result.job_id()
        self.name = f"Dataflow job {identity}"
        self.link = (
            f"https://console.cloud.google.com/dataflow/jobs/{job.region}/{identity}"
            f"?project={job.project}"
        )

    def wait(self, seconds: float) -> bool:
        from apache_beam.runners.runner import PipelineState

        time.sleep(seconds)
        self._state = self._result.state
        return PipelineState.is_terminal(self._state)

    def raise_failure(self) -> None:
        if self._state == "DONE":
            return
        # This reads the job's messages and keeps the worst one.
        self._runner.poll_for_job_completion(self._runner, self._result, None)
        reason = getattr(self._runner, "last_error_msg", None) or "no reason given"
        raise RuntimeError(
            f"{self.name} ended as {self._state}: {_line(reason)}; {self.link}; run again: "
            "complete shards are kept"
        )

    def end(self) -> None:
        with contextlib.suppress(Exception):  # Already over, or unreachable.
            if not self._result.is_in_terminal_state():
                self._result.cancel()


@contextlib.contextmanager
def _start_in_one_line() -> Iterator[None]:
    """Turn what Google's and Beam's clients raise into an InputError."""
    try:
        yield
    except Exception as error:
        ours = not type(error).__module__.startswith(("google.", "apache_beam."))
        if ours and not isinstance(error, (OSError, ImportError)):
            raise
        line = _line(error)
        remedy = _ACTIVE if "already" in line and "active job" in line else _REFUSED
        raise InputError(
            f"records_engine='dataflow': the job can't be started: {line}; {remedy}"
        ) from None


def _line(error: object) -> str:
    """Return an error on one line; of a stack trace, only the exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    return " ".join(lines)
