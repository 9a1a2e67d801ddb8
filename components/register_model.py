"""The component that registers a model in the Model Registry."""

import dataclasses
import json
from typing import Any, NamedTuple

from google_cloud_pipeline_components.types.artifact_types import VertexModel
from kfp import dsl

from components.planning.registered_model import RegisteredModel, digest_dataset, training_labels
from components.planning.serving_container import make_container
from components.typed import component
from trainer import quiet
from trainer.data import storage
from trainer.evaluation.gate_options import CANDIDATE, GateOptions
from trainer.exported import model_files
from vertex.client.cloud_errors import as_input_error
from vertex.registry.model_registry import Version
from vertex.registry.model_upload import FILES_LABEL, MADE_BY, Candidate, to_label
from vertex.registry.version_aliases import ALIASES


class Registered(NamedTuple):
    """Outputs of register_model; the first two are empty if the model was not registered."""

    registered: str  # model@version
    registered_as: str  # champion, challenger or candidate
    why: str


@component
def register_model(
    model: dsl.Input[dsl.Model],
    records: dsl.Input[dsl.Dataset],
    evaluation: dsl.Input[dsl.Artifact],
    version: dsl.Output[VertexModel],
    registered_model: RegisteredModel,
    serving_image: str,
    labels: dict,
    role: str,
    champion: str,
    reason: str,
    configuration: str,
    run: str,
    encryption_spec_key_name: str,
) -> Registered:
    """Upload a model as a version with its evaluation, and give it the alias of its role.

    If another run has changed the champion since the gate's comparison, the model is judged again.
    If it is rejected then, and challengers are not registered, the version is deleted.

    A retry after a crash completes the version that it finds instead of uploading another.

    Args:
        model: SavedModel to register.
        records: Records that it was trained and evaluated on.
        evaluation: Metrics of the model, in the registry's schema.
        serving_image: Container image that serves the model; on this machine it may be empty.
        labels: Labels of the version.
        role: champion, challenger or candidate, which has no alias.
        champion: Version that the gate compared with; empty: none.
        reason: Reason of the gate's verdict, for the version's description.
        configuration: Digest of the training configuration.
        run: Name of the pipeline run.
        encryption_spec_key_name: Cloud KMS key of the model; empty: a Google-managed key.
    """
    name, digest = registered_model.model_name, digest_dataset(records.uri)
    provenance = {"run": to_label(run), **training_labels(digest, configuration), **MADE_BY}
    files = model_files.identify(model.uri)
    if files:
        provenance[FILES_LABEL] = files
    candidate = Candidate(
        artifact_uri=model.uri,
        # The version's number is unknown before the upload, so use the run.
        container=make_container(serving_image, f"{name}/{provenance['run']}", files),
        description=f"{run}: {reason}",
        labels={"recipe": to_label(name), **labels, **provenance},
        metrics=json.loads(storage.read(evaluation.uri)),
        schema=evaluation.metadata["schema"],
        pipeline_job=f"{registered_model.parent}/pipelineJobs/{run}",
        encryption_key=encryption_spec_key_name,
    )
    judge_again = _JudgeAgain(
        model.uri, records.uri, registered_model, evaluation.metadata["gate"], reason
    )
    with as_input_error(f"registering a version of {name!r}"):
        registered = registered_model.registry.register(
            name, candidate, role, champion, judge_again
        )
    if registered is None:
        print("The model is not registered")
        return Registered("", "", judge_again.reason)
    _describe_version(
        version, registered, registered_model.location, dataset=digest, artifact=model.uri
    )
    registered_as = next((alias for alias in ALIASES if alias in registered.aliases), CANDIDATE)
    return Registered(registered.name, registered_as, judge_again.reason)


@dataclasses.dataclass
class _JudgeAgain:
    """Compares a model with a champion that another run has promoted; keeps the last reason."""

    model_uri: str
    records_uri: str
    registered_model: RegisteredModel
    options: dict[str, Any]  # of the gate
    reason: str

    def __call__(self, current: Version | None) -> str:
        """Return the role of the model."""
        # Imported here, because TensorFlow takes seconds to import and is seldom needed.
        quiet.import_tensorflow()
        from trainer.evaluation.scoring import evaluate

        evaluated = evaluate(self.model_uri, self.records_uri)
        verdict = self.registered_model.judge(evaluated, GateOptions(**self.options), current)
        print(f"Judged again: the champion is now {current.name if current else 'none'}")
        print(verdict.line)
        self.reason = verdict.reason
        return verdict.role


def _describe_version(
    version: VertexModel, registered: Version, location: str, **provenance: str
) -> None:
    """Let the artifact `version` name the version in the registry."""
    version.uri = f"https://{location}-aiplatform.googleapis.com/v1/{registered.resource}"
    version.metadata.update(
        resourceName=registered.resource, aliases=list(registered.aliases), **provenance
    )
    aliases = ", ".join(sorted(registered.aliases)) or "none"
    print(f"{registered.name} is registered; aliases: {aliases}")
