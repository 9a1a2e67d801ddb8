"""Run plan_training on records of which only the description exists."""

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from kfp import dsl

from components.plan_training import plan_training
from tests.components.artifacts import artifact
from trainer.data.schema import FILE_NAME, Dataset, Feature, Shard, Split
from vertex.emulator import job_rules

DEFAULTS = {"model_name": "digits", "project": "p", "location": "us-central1", "run": "digits-1"}
DEFAULTS |= {"register": True, "serving_image": "p/serving:1", "class_floors": {}, "searched": {}}
DEFAULTS |= {"recipe_sets": [], "rates": {}, "rates_of": "us-central1, 2030-01-02"}


def describe(folder, train=100, validation=10, shape=(8, 8, 1)):
    """Write the dataset.json of made-up images, without the records."""
    counts = {"train": train, "validation": validation, "test": 10}
    dataset = Dataset(
        uri=str(folder),
        name="test",
        features=[
            Feature(name="image", kind="image", dtype="uint8", shape=list(shape), encoding="raw"),
            Feature(name="label", kind="label", dtype="int64"),
        ],
        classes=["a", "b"],
        splits={
            name: Split(
                shards=[Shard(file=name, examples=count, bytes=count, sha256="")],
                class_counts=[count, 0],
            )
            for name, count in counts.items()
        },
        rejected={},
        creation={},
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_text(dataset.to_json())
    return folder


def planned(tmp_path, records="", **changes):
    """Return the step's outputs by name, and the artifact of the job's directory."""
    records = dsl.Dataset(uri=str(records or describe(tmp_path / "described")))
    training = artifact(dsl.Artifact, tmp_path / "training")
    values = {"records": records, "training": training, **DEFAULTS, **changes}
    outputs = plan_training.python_func(**values)
    names = [name for name in plan_training.component_spec.outputs if name != "training"]
    return dict(zip(names, outputs, strict=True)), training


def check_pools(pools):
    """Raise if the launcher's protos or Vertex AI's rules refuse `pools`."""
    job = types.CustomJob(display_name="job")
    json_format.ParseDict({"worker_pool_specs": pools}, job.job_spec._pb)
    job_rules.check(job, "projects/p/locations/us-central1")


def plan(tmp_path, **changes):
    outputs, training = planned(tmp_path, **changes)
    return outputs["worker_pool_specs"], outputs["base_output_directory"], training
