"""A run: what a PipelineJob and its CustomJobs tell, wherever it runs.

run = read_run(job, custom_jobs, backend="Vertex AI", link="https://…")
run.state, run.metrics["accuracy"], [task.state for task in run.tasks]
"""

import dataclasses
import datetime
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vertex.emulator.job_state import ReplicaState
from vertex.errors import InputError
from vertex.facts.jobs import ENDED, ROLES
from vertex.facts.json_numbers import to_whole_numbers
from vertex.registry.version_aliases import CHAMPION

THIS_MACHINE = "this machine"
RUNNING, KILLED, EXPIRED = "RUNNING", "KILLED", "EXPIRED"
JOB_ENDED = (*ENDED, EXPIRED, "PARTIALLY_SUCCEEDED")
JOB_KINDS = CUSTOM_JOBS, BATCH_JOBS, SEARCHES = (
    "customJobs", "batchPredictionJobs", "hyperparameterTuningJobs"
)  # fmt: skip
SEARCH_STEP = "Search"
"""Display name of the step that searches for hyperparameters."""
PLAN, TRAINING = "plan-training", "training"
"""The task that creates the training job's directory, and the output that names it."""
_RECORDS, _COLLECTION, _EVALUATION = "create-tfrecords", "collect-training", "evaluate-model"
_ITERATION = re.compile(r"-iteration-\d+$")
_LATE = 1e12
"""A time after that of every task that has started."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskDetail:
    """A task of a run."""

    name: str  # its name in the pipeline; in a loop, <loop>-iteration-<n>/<name>
    display_name: str
    # PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, CACHED: its outputs are those of an earlier
    # run; SKIPPED: its branch was not taken; NOT_TRIGGERED: an earlier task failed.
    state: str
    seconds: float = 0.0  # from its start to its end or to now; 0 before the start
    error: str = ""  # in one line; empty if there is none
    logged_as: str = ""  # job_id of its lines in Cloud Logging; empty if it has none
    artifacts: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)  # its outputs
    custom_jobs: tuple[str, ...] = ()  # resource names of the CustomJobs that it launched


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A trial of a HyperparameterTuningJob."""

    name: str
    state: str  # as of a Trial in the API
    values: Mapping[str, float | str]
    metrics: Mapping[str, float]  # its final measurement, or its newest
    curve: tuple[float, ...] = ()  # measured values of its first metric
    seconds: float = 0.0  # from its start to its end or to now; 0 before the start
    rank: int = 0  # among the measured trials, 1 for the best; 0 if it is not measured
    directory: str = ""  # URI of its base_output_directory
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A CustomJob that a run has launched."""

    name: str  # resource name
    display_name: str = ""
    state: str
    error: str = ""  # in one line
    seconds: float = 0.0  # from its start to its end or to now; 0 before the start
    pools: list[dict[str, Any]]  # worker_pool_specs, without empty ones
    spot: bool = False
    replica_names: tuple[str, ...] = ()  # such as chief-0
    replicas: Sequence[ReplicaState] = ()  # on this machine; Vertex AI does not tell of them

    def check_replica(self, name: str, run: str) -> None:
        """Raise InputError if the job has no replica of this name; `run` is its run's."""
        if name not in self.replica_names:
            known = ", ".join(self.replica_names)
            raise InputError(f"--replica {name!r} is not a replica of {run}; known: {known}")

    @property
    def has_ended(self) -> bool:
        """Return whether its state is final."""
        return self.state in JOB_ENDED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run that has ended or is running."""

    name: str  # name of the run; on this machine, also of its folder
    backend: str  # "this machine" or "Vertex AI"
    recipe: str  # name of the recipe
    # PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED and the like; KILLED if it was executed by a
    # process of this machine that was killed, EXPIRED if its training job waited for too long.
    state: str
    started: datetime.datetime  # an aware datetime
    seconds: float | None = None  # time from start to end; None before the end
    # All parameters, including defaults.
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Metrics of the test split, by name.
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    # The task's metric and the loss of the validation split, and the epoch, whose weights the model
    # has.
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # what a person should know of its records, in sentences
    verdict: str = ""  # accepted, rejected or skipped; empty without a verdict
    reason: str = ""  # reason of the verdict
    gate: dict[str, Any] = dataclasses.field(default_factory=dict)  # what the gate decided
    registered: str = ""  # the version of the model, such as digits@3; empty if there is none
    registered_as: str = ""  # its role
    error: str = ""  # error of a failed run, in one line
    training: str = ""  # URI of the training job's base_output_directory, which may not exist yet
    predictions: str = ""  # URI of the predictions of the test split; empty if none were kept
    report: str = ""  # path or URI of the report; empty if there is none
    search: str = ""  # what a search for hyperparameters has found; empty without a search
    search_report: str = ""  # path or URI of the page about it
    link: str = ""  # path of its folder, or URL of its page in the console
    artifacts: str = ""  # on this machine, path or URI of the folder of its artifacts
    tasks: tuple[TaskDetail, ...] = ()
    jobs: tuple[TrainingJob, ...] = ()  # oldest first
    trials: tuple[SearchTrial, ...] = ()  # of its search for hyperparameters

    @property
    def on_vertex(self) -> bool:
        """Return True unless it is a run on this machine."""
        return self.backend != THIS_MACHINE


def read_run(
    job: Mapping[str, Any],
    custom_jobs: Sequence[Mapping[str, Any]] = (),
    *,
    backend: str,
    link: str,
    **changes: Any,
) -> Run:
    """Return the run of a PipelineJob.

    Args:
        job: the PipelineJob, in the REST API's JSON.
        custom_jobs: the CustomJobs that its tasks launched, oldest first.
        changes: fields of the Run that the backend knows better, such as its state.
    """
    tasks = tuple(_read_tasks(job))
    state = state_of(job)
    started = _time(job.get("startTime") or job.get("createTime", ""))
    ended = _time(job.get("endTime", ""))
    gate = _find_decision(tasks)
    evaluation = _outputs_of(tasks, _EVALUATION, "report")
    records = _outputs_of(tasks, _RECORDS, "records").get("records", {})
    run = Run(
        name=job["name"].rpartition("/")[2],
        backend=backend,
        recipe=_recipe_of(job),
        state=state,
        started=started or datetime.datetime.fromtimestamp(0, datetime.UTC),
        seconds=(ended - started).total_seconds() if started and ended else None,
        parameters=_parameters_of(job),
        metrics=_numbers(evaluation.get("metrics", {})),
        validation=_select_validation(
            _numbers(_outputs_of(tasks, _COLLECTION, "model").get("metrics", {}))
        ),
        warnings=tuple(records.get("metadata", {}).get("warnings", ())),
        verdict=gate.get("verdict") or _find_parameter(tasks, "verdict"),
        reason=str(gate.get("reason", "")),
        gate=gate,
        registered=_find_parameter(tasks, "registered"),
        registered_as=_find_parameter(tasks, "registered_as"),
        error=_failure_of(job, custom_jobs, tasks) if state == "FAILED" else "",
        training=_uri_of(tasks, PLAN, TRAINING),
        predictions=evaluation.get("predictions", {}).get("uri", ""),
        report=evaluation.get("report", {}).get("uri", ""),
        search=_find_parameter(tasks, "found"),
        search_report=_uri_of(tasks, "choose-values", "search_page"),
        link=link,
        tasks=tasks,
        jobs=tuple(map(read_job, custom_jobs)),
    )
    return dataclasses.replace(run, **changes)


def read_job(job: Mapping[str, Any], replicas: Sequence[ReplicaState] = ()) -> TrainingJob:
    """Return a CustomJob, given in the REST API's JSON."""
    spec = job.get("jobSpec", {})
    return TrainingJob(
        name=job["name"],
        display_name=job.get("displayName", ""),
        state=state_of(job),
        error=_error_of(job),
        seconds=_duration_of(job),
        pools=list(_read_pools(spec)),
        spot=spec.get("scheduling", {}).get("strategy") == "SPOT",
        replica_names=tuple(
            f"{ROLES[number]}-{index}"
            for number, pool in enumerate(spec.get("workerPoolSpecs", []))
            for index in range(int(pool.get("replicaCount", 0)))
        ),
        replicas=replicas,
    )


def _read_pools(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the worker pools of a job's spec with Vertex AI's defaults, without empty ones."""
    for pool in map(_to_snake_case, spec.get("workerPoolSpecs", [])):
        if count := int(pool.get("replica_count", 0)):
            disk = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100}
            disk |= pool.get("disk_spec", {})
            yield {**pool, "replica_count": count, "disk_spec": disk}


def _to_snake_case(value: Any) -> Any:
    """Return JSON with the names of fields as protos have them."""
    if isinstance(value, Mapping):
        return {
            re.sub(r"(?=[A-Z])", "_", key).lower(): _to_snake_case(item)
            for key, item in value.items()
        }
    return [_to_snake_case(item) for item in value] if isinstance(value, list) else value


def _read_tasks(job: Mapping[str, Any]) -> Iterator[TaskDetail]:
    """Yield the tasks of a run in the order in which they started, without groups of tasks.

    The pipeline itself is a group, also before its first task has started.
    """
    details = job.get("jobDetail", {}).get("taskDetails", [])
    by_id = {detail["taskId"]: detail for detail in details}
    groups = {detail.get("parentTaskId") for detail in details}
    names = _display_names(job.get("pipelineSpec", {}))
    is_complete = state_of(job) == "SUCCEEDED"
    for detail in sorted(details, key=lambda detail: _seconds(detail, "startTime") or _LATE):
        if detail["taskId"] in groups or detail["taskName"] == _last_part(job.get("name", "")):
            continue
        executor = detail.get("executorDetail", {})
        outputs = detail.get("outputs", {})
        name = detail["taskName"]
        yield TaskDetail(
            name=f"{_list_iterations(detail, by_id)}{name}",
            display_name=names.get(name, name),
            state=_translate_state(detail.get("state", "PENDING"), is_complete=is_complete),
            seconds=_duration_of(detail),
            error=_error_of(detail),
            logged_as=_last_part(executor.get("containerDetail", {}).get("mainJob", ""))
            or _last_part(executor.get("customJobDetail", {}).get("job", "")),
            artifacts={
                output: listed["artifacts"][0]
                for output, listed in outputs.items()
                if listed.get("artifacts")
            },
            parameters={
                key.partition(":")[2]: str(value)
                for key, value in detail.get("execution", {}).get("metadata", {}).items()
                if key.startswith("output:")
            },
            custom_jobs=tuple(_list_launched(detail, CUSTOM_JOBS)),
        )


def _list_iterations(detail: Mapping[str, Any], by_id: Mapping[str, Any]) -> str:
    """Return the names of the iterations of loops that a task is in, each with a slash."""
    group = by_id.get(detail.get("parentTaskId", ""))
    if group is None:
        return ""
    name = group["taskName"]
    return _list_iterations(group, by_id) + (f"{name}/" if _ITERATION.search(name) else "")


def _translate_state(state: str, *, is_complete: bool) -> str:
    """Return this project's word for the state of a PipelineTaskDetail.

    SKIPPED means a cache hit. NOT_TRIGGERED means an untaken branch if the run has succeeded.
    """
    if state == "SKIPPED":
        return "CACHED"
    return "SKIPPED" if state == "NOT_TRIGGERED" and is_complete else state


def state_of(resource: Mapping[str, Any]) -> str:
    """Return a state without its prefix: SUCCEEDED for PIPELINE_STATE_SUCCEEDED."""
    return re.sub(r"^(PIPELINE|JOB)_STATE_", "", str(resource.get("state", "UNSPECIFIED")))


def _recipe_of(job: Mapping[str, Any]) -> str:
    """Return the recipe of a PipelineJob by its label, since its display name may be edited."""
    shown = str(job.get("displayName", ""))
    label = str(job.get("labels", {}).get("recipe", shown))
    return shown if shown.lower() == label.lower() else label


def _parameters_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a run by name, sorted, including the defaults of its template."""
    inputs = job.get("pipelineSpec", {}).get("root", {}).get("inputDefinitions", {})
    defaults = {
        name: definition["defaultValue"]
        for name, definition in inputs.get("parameters", {}).items()
        if "defaultValue" in definition
    }
    values = {**defaults, **job.get("runtimeConfig", {}).get("parameterValues", {})}
    return to_whole_numbers(dict(sorted(values.items())))


def read_trials(job: Mapping[str, Any]) -> tuple[SearchTrial, ...]:
    """Return the trials of a HyperparameterTuningJob, in the REST API's JSON."""
    base = job.get("trialJobSpec", {}).get("baseOutputDirectory", {}).get("outputUriPrefix", "")
    trials = [_read_trial(trial, base) for trial in job.get("trials", [])]
    ranked = sorted(
        (trial for trial in trials if trial.metrics), key=lambda trial: [*trial.metrics.values()]
    )
    if any(
        metric.get("goal") == "MAXIMIZE" for metric in job.get("studySpec", {}).get("metrics", [])
    ):
        ranked.reverse()
    ranks = {trial.name: rank for rank, trial in enumerate(ranked, 1)}
    return tuple(dataclasses.replace(trial, rank=ranks.get(trial.name, 0)) for trial in trials)


def _read_trial(trial: Mapping[str, Any], base: str) -> SearchTrial:
    measurements = trial.get("measurements", [])
    measured = trial.get("finalMeasurement") or (measurements or [{}])[-1]
    curve = [found["metrics"][0].get("value", 0) for found in measurements if found.get("metrics")]
    return SearchTrial(
        name=trial.get("id", ""),
        state=trial.get("state", ""),
        values={item["parameterId"]: item["value"] for item in trial.get("parameters", [])},
        metrics={item["metricId"]: item.get("value", 0) for item in measured.get("metrics", [])},
        curve=tuple(curve),
        seconds=_duration_of(trial),
        directory=f"{base}/{trial.get('id', '')}",
        error=trial.get("infeasibleReason", ""),
    )


def find_trial(run: Run, number: str) -> Run:
    """Return a trial of a run's search as a run; raise InputError if it has none of this number."""
    for trial in run.trials:
        if trial.name == number:
            return dataclasses.replace(
                run,
                name=f"{run.name}/{number}",
                state=trial.state,
                parameters={**run.parameters, **trial.values},
                metrics={},
                validation={
                    name.removeprefix("validation_"): value for name, value in trial.metrics.items()
                },
                training=trial.directory,
                predictions="",
            )
    raise InputError(f"{run.name} has no trial {number!r}; `status {run.name}` lists them")


def job_names(job: Mapping[str, Any], kind: str = CUSTOM_JOBS) -> list[str]:
    """Return the resource names of the jobs of a kind that a run's tasks launched.

    Vertex AI launches the job of a CustomTrainingJobOp without the component's container
    (machine-learning/pipelines/components-introduction). Names are read from the tasks' details,
    and from Vertex ML Metadata, where containers write them. Runs of a list have neither. A
    task that is a cache hit launched none, but names the job of an earlier run.
    """
    names: list[str] = []
    for detail in job.get("jobDetail", {}).get("taskDetails", []):
        if detail.get("state") != "SKIPPED":
            names += _list_launched(detail, kind)
    return list(dict.fromkeys(names))


def _list_launched(detail: Mapping[str, Any], kind: str) -> list[str]:
    """Return the resource names of the jobs of a kind that a task names."""
    names: list[str] = []
    if kind == CUSTOM_JOBS:
        launched = detail.get("executorDetail", {}).get("customJobDetail", {})
        names += [*launched.get("failedJobs", []), launched.get("job", "")]
    metadata = str(detail.get("execution", {}).get("metadata", {}))
    names += re.findall(rf"projects/[^/]+/locations/[^/]+/{kind}/[0-9]+", metadata)
    return list(dict.fromkeys(filter(None, names)))


def _failure_of(
    job: Mapping[str, Any], custom_jobs: Sequence[Mapping[str, Any]], tasks: Sequence[TaskDetail]
) -> str:
    """Return a failed run's error in one line; prefer the training job's to the task's."""
    for custom_job in reversed(custom_jobs):
        if error := _error_of(custom_job):
            return error
    for task in tasks:
        if task.state == "FAILED" and task.error:
            return f"{task.display_name}: {task.error}"
    return _error_of(job) or "no reason was given"


def _uri_of(tasks: Sequence[TaskDetail], name: str, output: str) -> str:
    """Return the URI of a task's output; empty if the task has not written it."""
    written = (task.artifacts.get(output, {}) for task in tasks if task.name == name)
    return next((str(artifact["uri"]) for artifact in written if artifact), "")


def to_role(name: str) -> str:
    """Return a replica's role and index, chief-0 for workerpool0-0."""
    match = re.fullmatch(r"workerpool([0-3])-([0-9]+)", name)
    return f"{ROLES[int(match[1])]}-{match[2]}" if match else name


def _display_names(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the display name of each task of a PipelineSpec, by its name."""
    dags = [spec.get("root", {}), *spec.get("components", {}).values()]
    return {
        key: task.get("taskInfo", {}).get("name", key)
        for dag in dags
        for key, task in dag.get("dag", {}).get("tasks", {}).items()
    }


def _select_validation(training: Mapping[str, float]) -> dict[str, float]:
    """Return the validation metrics of a training's metrics: the task's, the loss, the epoch."""
    split, values = "validation_", {}
    for name, value in training.items():
        if name.startswith(split):
            values[name.removeprefix(split)] = value
    loss = values.pop("loss", None)
    return {} if loss is None else {**values, "loss": loss, "epoch": training["kept_epoch"]}


def _find_decision(tasks: Sequence[TaskDetail]) -> dict[str, Any]:
    """Return what the gate decided, as the registration has corrected it; {} without a gate."""
    decided: dict[str, Any] = {}
    for task in tasks:
        # Tasks that decide write their verdict to the metadata of an output of this name.
        content = task.artifacts.get("decision", {}).get("metadata", {})
        decided = dict(content) if content.get("verdict") else decided
    why, role = (_find_parameter(tasks, name) for name in ("why", "registered_as"))
    if why and why != decided.get("reason"):
        verdict = "accepted" if role == CHAMPION else "rejected"
        decided |= {"verdict": verdict, "role": role or "none", "reason": why}
    return decided


def _find_parameter(tasks: Sequence[TaskDetail], name: str) -> str:
    """Return the output parameter `name` of the last task that has one; empty if none has."""
    return next((task.parameters[name] for task in reversed(tasks) if name in task.parameters), "")


def _outputs_of(
    tasks: Sequence[TaskDetail], name: str, output: str
) -> Mapping[str, Mapping[str, Any]]:
    """Return the artifacts of the last task that has this name, or such an output."""
    found = [task.artifacts for task in tasks if task.name == name or output in task.artifacts]
    return found[-1] if found else {}


def _numbers(artifact: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in an artifact's metadata."""
    values = artifact.get("metadata", {})
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _error_of(resource: Mapping[str, Any]) -> str:
    """Return the message of an error in one line; empty if there is none."""
    return " ".join(resource.get("error", {}).get("message", "").split())


def _duration_of(resource: Mapping[str, Any]) -> float:
    """Return the seconds from a start to the end or to now; 0 before the start."""
    start, end = _seconds(resource, "startTime"), _seconds(resource, "endTime")
    # The server's clock may be ahead of this machine's.
    return max(0.0, (end or time.time()) - start) if start else 0.0


def _time(text: str) -> datetime.datetime | None:
    """Return the time of a timestamp in JSON; None if it is empty."""
    from google.protobuf.timestamp_pb2 import Timestamp

    if not text:
        return None
    timestamp = Timestamp()
    timestamp.FromJsonString(text)
    return timestamp.ToDatetime(datetime.UTC)


def _seconds(content: Mapping[str, Any], name: str) -> float:
    """Return a timestamp in seconds since 1970; 0 if it is not set."""
    moment = _time(content.get(name, ""))
    return moment.timestamp() if moment else 0.0


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]
