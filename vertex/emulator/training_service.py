"""TrainingPipelines: a custom job, and the upload of the model that it leaves.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/create-training-pipeline
"""

import dataclasses
from typing import Any

from google.protobuf import json_format

from vertex.emulator import messages
from vertex.emulator.field_rules import refuse, refuse_state
from vertex.emulator.job_service import JobService
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.model_service import ModelService
from vertex.emulator.resources import Resources
from vertex.facts.jobs import ENDED

_CUSTOM_TASK = "/custom_task_1.0.0.yaml"
_JOB = "backingCustomJob"
_OUTPUT = "baseOutputDirectory"


@dataclasses.dataclass(eq=False, kw_only=True)
class TrainingService(Resources):
    """A store of TrainingPipelines, which run custom jobs."""

    kind = "TrainingPipeline"
    unlisted = "training_task_inputs"
    jobs: JobService
    models: ModelService

    def check(self, pipeline: Any, parent: str) -> None:
        super().check(pipeline, parent)
        definition = pipeline.training_task_definition
        refuse(
            not definition.endswith(_CUSTOM_TASK),
            f"training_task_definition {definition!r} is not emulated; use custom_task_1.0.0.yaml",
        )
        refuse(pipeline.input_data_config, "input_data_config: datasets are not emulated")

    def begin(self, pipeline: Any) -> None:
        inputs = json_format.MessageToDict(pipeline._pb.training_task_inputs)
        # The SDK gives a URI where a CustomJobSpec has a message.
        if isinstance(inputs.get(_OUTPUT), str):
            inputs[_OUTPUT] = {"outputUriPrefix": inputs[_OUTPUT]}
        job = {"displayName": f"{pipeline.display_name}-custom-job", "jobSpec": inputs}
        request = messages.CreateCustomJobRequest(parent=parent_of(pipeline.name))
        json_format.ParseDict(job, request._pb.custom_job)
        created = self.jobs.create(request)
        json_format.ParseDict({_JOB: created.name}, pipeline._pb.training_task_metadata)
        pipeline.state = messages.PipelineState.PIPELINE_STATE_RUNNING
        pipeline.start_time = pipeline.create_time

    def refresh(self, pipeline: Any) -> Any:
        if state_of(pipeline) in ENDED:
            return pipeline
        job = self.jobs.find(dict(pipeline.training_task_metadata)[_JOB])
        state = state_of(job)
        if state not in ENDED:
            return pipeline
        pipeline.state = messages.PipelineState[f"PIPELINE_STATE_{state}"]
        pipeline.end_time = job.end_time
        pipeline.error = job.error
        if state == "SUCCEEDED" and pipeline.model_to_upload.display_name:
            self._upload(pipeline, job)
        self.store(pipeline)
        return pipeline

    def _upload(self, pipeline: Any, job: Any) -> None:
        """Upload the model in the folder model/ of the job's output."""
        parent = parent_of(pipeline.name)
        model = messages.Model(pipeline.model_to_upload)
        output = job.job_spec.base_output_directory.output_uri_prefix.rstrip("/")
        model.artifact_uri = model.artifact_uri or f"{output}/model"
        ids = {"model_id": pipeline.model_id, "parent_model": pipeline.parent_model}
        request = messages.UploadModelRequest(parent=parent, model=model, **ids)
        pipeline.model_to_upload = self.models.find(self.models.add_version(request).model)

    def cancel_training_pipeline(self, request: Any) -> None:
        pipeline = self.find(request.name)
        state = state_of(pipeline)
        refuse_state(state in ENDED, f"{pipeline.name} is {state} already")
        name = dict(pipeline.training_task_metadata)[_JOB]
        self.jobs.cancel_job(messages.CancelCustomJobRequest(name=name))

    def check_deletable(self, pipeline: Any) -> None:
        state = state_of(pipeline)
        refuse_state(state not in ENDED, f"{id_of(pipeline.name)} is {state}; cancel it first")
