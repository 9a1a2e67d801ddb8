"""PipelineService: PipelineJobs, executed by a PipelineEngine."""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from vertex.emulator import messages
from vertex.emulator.api_error import code_of
from vertex.emulator.engine import spec_rules
from vertex.emulator.engine.pipeline_engine import PipelineEngine
from vertex.emulator.engine.placeholders import is_in
from vertex.emulator.field_rules import check_common, refuse, refuse_state
from vertex.emulator.http_rules import to_json
from vertex.emulator.list_filters import Fields
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.resources import Resources
from vertex.facts.jobs import ENDED


@dataclasses.dataclass(eq=False, kw_only=True)
class PipelineService(Resources):
    """A store of PipelineJobs."""

    kind = "PipelineJob"
    unlisted = "job_detail"
    filtered: ClassVar[Fields] = {
        "pipeline_name": lambda job: (job.pipeline_spec or {}).get("pipelineInfo", {}).get("name")
    }
    engine: PipelineEngine  # executes the jobs
    # Returns the parents of a job's context, such as its experiment.
    parents: Callable[[str], list[str]] = lambda _: []
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count, init=False)

    def next_id(self, resource: Any) -> str:
        return make_id(resource, self.clock.now(), str(next(self._numbers)))

    def check(self, job: Any, parent: str) -> None:
        check_job(job, parent)

    def begin(self, job: Any) -> None:
        job.state = messages.PipelineState.PIPELINE_STATE_PENDING
        job.start_time = job.create_time
        contexts = f"{parent_of(job.name)}/metadataStores/default/contexts"
        job.job_detail.pipeline_run_context.name = f"{contexts}/{id_of(job.name)}"
        if pipeline := job.pipeline_spec.get("pipelineInfo", {}).get("name"):
            job.job_detail.pipeline_context.name = f"{contexts}/{pipeline}"
        self.engine.start(job)

    def check_deletable(self, job: Any) -> None:
        state = state_of(job)
        refuse_state(state not in ENDED, f"{job.name} is {state}; cancel it first")

    def cancel_pipeline_job(self, request: Any) -> None:
        with self.changing(request.name) as job:
            refuse_state(state_of(job) in ENDED, f"{job.name} is {state_of(job)} already")
            job.state = messages.PipelineState.PIPELINE_STATE_CANCELLING
            self.engine.cancel(job)

    def refresh(self, job: Any) -> Any:
        """Update and return a job; store it if its state has changed."""
        before = state = state_of(job)
        if before not in ENDED:
            self.engine.update(job)
            state = state_of(job)
        if state == "CANCELLED":
            job.error.code = code_of("CANCELLED")
        if state != before:
            self.store(job)
        context = job.job_detail.pipeline_run_context
        context.parent_contexts = self.parents(context.name) if context.name else []
        return job


def make_id(job: Any, time: datetime.datetime, number: str) -> str:
    """Return an ID of the pipeline's name, a time and, to be unique, a number."""
    name = job.pipeline_spec.get("pipelineInfo", {}).get("name", "pipeline")
    return f"{name[:80]}-{time:%Y%m%d%H%M%S}-{number}"


def check_job(job: Any, parent: str) -> None:
    """Refuse a PipelineJob that breaks a rule; `parent` is projects/P/locations/L."""
    check_common(job, "pipeline_job", parent)
    outside = not job.runtime_config.gcs_output_directory.startswith("gs://")
    refuse(outside, "runtime_config.gcs_output_directory is required, and begins with gs://")
    check_content(to_json(job))


def check_content(job: Mapping[str, Any]) -> None:
    """Refuse a job's JSON with unknown or missing parameters, or a step with 0 accelerators."""
    spec = job.get("pipelineSpec", {})
    refuse(not spec.get("root"), "pipeline_spec is required here: no template is downloaded")
    spec_rules.check_spec(spec)
    given = job.get("runtimeConfig", {})
    refuse(given.get("inputArtifacts"), "runtime_config.input_artifacts is not supported here")
    values, declared = given.get("parameterValues", {}), spec["root"].get("inputDefinitions", {})
    for name, artifact in declared.get("artifacts", {}).items():
        refuse(not spec_rules.is_optional(artifact), f"input artifact {name} is required")
    parameters = declared.get("parameters", {})
    for name in values:
        unknown = name not in parameters
        refuse(unknown, f"unknown parameter {name}: the pipeline has no such parameter")
    for name, parameter in parameters.items():
        missing = name not in values and not spec_rules.is_optional(parameter)
        refuse(missing, f"parameter {name} is required")
        value = values.get(name, parameter.get("defaultValue"))
        problem = not is_in(value) and spec_rules.find_value_problem(name, parameter, value)
        refuse(problem, f"runtime_config.parameter_values: {problem}")
    for name, executor in spec.get("deploymentSpec", {}).get("executors", {}).items():
        problem = spec_rules.find_accelerator_problem(executor.get("container", {}))
        refuse(problem, f"{name}: {problem}")
