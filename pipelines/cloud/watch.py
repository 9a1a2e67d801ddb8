"""Wait for a run on Vertex AI, and show it meanwhile."""

import itertools
import time
from typing import Any

from rich.console import Console

from components.cloud_errors import CloudError
from pipelines.cloud import runs
from pipelines.cloud.connection import Connection
from pipelines.run_view import Row, view_of
from trainer.errors import InputError, printable

POLLING_SECONDS = 10.0
_POLLS_BETWEEN_JOBS = 6
_PATIENT_SECONDS = 900.0


def wait(connection: Connection, run_id: str) -> Any:
    """Show a run until it ends, or its training job has expired; return the PipelineJob then.

    A broken connection and a server's faults are waited out for minutes.

    Raises:
        CloudError: there was no answer for longer than that, and the run goes on; or the run
            was deleted.
    """
    rows: list[Row] = []
    with view_of(lambda: rows, Console(), run_id) as view:
        patient = connection.retrying(view.note, _PATIENT_SECONDS)
        for poll in itertools.count(1):
            try:
                job = runs.get(connection, run_id, patient)
            except InputError:
                raise CloudError(
                    f"the run {run_id!r} was started, but is no longer there: somebody has "
                    "deleted it"
                ) from None
            state = runs.state_of(job)
            rows[:] = [
                (printable(one.name), one.state, one.seconds, printable(one.error))
                for one in runs.tasks_of(job)
            ]
            rows.append(("run", state, 0.0, ""))
            view.update()
            looked_after = poll % _POLLS_BETWEEN_JOBS == 0
            if state in runs.ENDED or (looked_after and runs.expiry(connection, job)):
                return job
            time.sleep(POLLING_SECONDS)
