"""A judged model to a version in the Model Registry."""

import json
from typing import NamedTuple

from google_cloud_pipeline_components.types.artifact_types import VertexModel
from kfp import dsl

from components.cloud_errors import in_one_line
from components.registry.model_registry import Version, registry_of
from components.registry.model_upload import MADE_BY, Candidate, label
from components.registry.trained_versions import dataset_digest, training_labels
from components.typed import component
from trainer import quiet
from trainer.data import storage
from trainer.evaluation.gate_options import ROLES, GateOptions


@component
def register_model(
    model: dsl.Input[dsl.Model],
    records: dsl.Input[dsl.Dataset],
    evaluation: dsl.Input[dsl.Artifact],
    version: dsl.Output[VertexModel],
    model_name: str,
    serving_image: str,
    labels: dict,
    role: str,
    champion: str,
    reason: str,
    configuration: str,
    run: str,
    encryption_spec_key_name: str,
    project: str,
    location: str,
) -> NamedTuple(  # type: ignore[valid-type]
    "Registered", [("registered", str), ("registered_as", str), ("why", str)]
):
    """Upload a model as a version, with its evaluation, and make it champion or challenger.

    Where another run has put a new champion in place since the gate compared, it is judged again.
    It leaves the registry where that rejects it and challengers are not asked for.

    Run again after a crash it completes the version that it finds, and uploads none.

    Args:
        model: SavedModel to register.
        records: What it was trained and judged on.
        evaluation: Its metrics, in the registry's schema.
        model_name: Model whose version it becomes.
        serving_image: Container that would serve it; empty: Google's prebuilt one.
        labels: Labels of the version.
        role: champion or challenger.
        champion: Version that the gate compared it with; empty for none.
        reason: Why the gate let it pass, for the version's description.
        configuration: Digest of the configuration that it was trained with.
        run: Name of the pipeline's run.
        encryption_spec_key_name: Cloud KMS key that protects the model; empty: Google's.
        project: Google Cloud project.
        location: Its region.
    """
    parent = f"projects/{project}/locations/{location}"
    digest = dataset_digest(records.uri)
    own = {"run": label(run), **training_labels(digest, configuration), **MADE_BY}
    candidate = Candidate(
        artifact_uri=model.uri,
        serving_image=serving_image,
        description=f"{run}: {reason}",
        labels={"recipe": label(model_name), **labels, **own},
        metrics=json.loads(storage.read(evaluation.uri)),
        pipeline_job=f"{parent}/pipelineJobs/{run}",
        encryption_key=encryption_spec_key_name,
    )
    why = reason

    def judge_again(current: Version | None) -> str:
        nonlocal why
        # Seldom needed, and TensorFlow takes seconds to import.
        quiet.import_tensorflow()
        from trainer.evaluation import champion_scores, gate
        from trainer.evaluation.scoring import evaluate

        judged = evaluate(model.uri, records.uri, split="test", progress=print)
        rival = (
            champion_scores.score(current.name, current.artifact_uri, judged) if current else None
        )
        options = GateOptions(**evaluation.metadata["gate"])
        verdict = gate.judge(judged, options, registry=True, rival=rival)
        print(f"Judged again, since {current.name if current else 'nobody'} is champion now")
        print(verdict.line)
        why = verdict.reason
        return verdict.role

    with in_one_line(f"registering a version of {model_name!r}"):
        registry = registry_of(project, location)
        made = registry.register(model_name, candidate, role, champion, judge_again)
    if made is None:
        print("It is not registered")
        return "", "", why
    version.uri = f"https://{location}-aiplatform.googleapis.com/v1/{made.resource}"
    version.metadata.update(
        resourceName=made.resource, aliases=list(made.aliases), dataset=digest, artifact=model.uri
    )
    print(f"{made.name} is registered; aliases: {', '.join(sorted(made.aliases))}")
    registered_as = next((one for one in ROLES if one in made.aliases), "")
    return made.name, registered_as, why
