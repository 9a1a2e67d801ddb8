"""The services of hyperparameter searches, whose trials run stand_in_trial.py.

    python -m tests.pipelines.emulator.search_services FOLDER

starts a search, prints "created" and serves it until it is killed.
"""

import contextlib
import sys
from pathlib import Path

from google.cloud.aiplatform_v1.types import CreateHyperparameterTuningJobRequest

from tests.pipelines.emulator.idle_services import PARENT, POOL, REQUESTS, changed
from vertex.emulator.job_service import JobService
from vertex.emulator.operations import Operations
from vertex.emulator.processes import Guardian
from vertex.emulator.tuning_service import TuningService
from vertex.facts.jobs import RUN_LABEL, TASK_LABEL

PROGRAM = Path(__file__).with_name("stand_in_trial.py")


def pool_of(folder, *actions):
    """Return a worker pool that runs the stand-in."""
    words = ["python3", str(PROGRAM)]
    container = {"image_uri": "image", "command": words, "args": [str(folder), *actions]}
    return changed(POOL, container_spec=container)


def request_of(folder, *actions, **fields):
    """Return a HyperparameterTuningJob whose trials run the stand-in."""
    spec = {
        "worker_pool_specs": [pool_of(folder, *actions)],
        "base_output_directory": {"output_uri_prefix": f"{folder}/out/"},
    }
    request = changed(REQUESTS["hyperparameter_tuning_job"], trial_job_spec=spec)
    return changed(request, **fields)


@contextlib.contextmanager
def started_services(folder):
    """Run the services of jobs that keep their state in a folder."""
    with contextlib.ExitStack() as stack:
        operations, guardian = Operations(), stack.enter_context(Guardian())
        options = {"directory": folder / "jobs", "guardian": guardian}
        jobs = stack.enter_context(JobService(operations, **options))
        yield stack.enter_context(TuningService(operations, trials=jobs, **options))


def create(tuning, folder):
    """Create the job of a run's task, whose first trial ends at once."""
    tuning.run_logs["1"] = folder / "logs"
    labels = {RUN_LABEL: "1", TASK_LABEL: "search"}
    request = request_of(folder, "wait:2,3", parallel_trial_count=2, labels=labels)
    return tuning.create(
        CreateHyperparameterTuningJobRequest(parent=PARENT, hyperparameter_tuning_job=request)
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with started_services(folder) as tuning:
        create(tuning, folder)
        print("created", flush=True)
        sys.stdin.read()
