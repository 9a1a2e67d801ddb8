"""Pipelines of the real one's shape whose tasks take no time."""

from typing import NamedTuple

from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from kfp import dsl

component = dsl.component(base_image="example.com/image:1", install_kfp_package=False)


@component
def create_records(records: dsl.Output[dsl.Dataset], source: str, options: dict):
    import json
    import os
    import pathlib
    import signal
    import sys

    if source == "missing":
        print("error: source='missing' is not a folder", file=sys.stderr)
        sys.exit(2)
    if source.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[source])
    if source in ("broken", "once-again"):
        raise ValueError("shard 3 has no end")
    if source == "wordy":
        records.metadata["words"] = "x" * 140_000
    records.metadata["warnings"] = ["two rows are rejected"]
    print("warning: two rows are rejected")
    folder = pathlib.Path(records.path)
    folder.mkdir(parents=True)
    if source == "large":
        (folder / "large").write_bytes(bytes(10_000_000))
    (folder / "train-00000-of-00001.tfrecord").write_bytes(b"0123456789")
    splits = {"train": {"examples": 8}, "validation": {"examples": 1}, "test": {"examples": 1}}
    content = {"splits": splits, "rejected": {"count": 2}, "options": options}
    (folder / "dataset.json").write_text(json.dumps(content))


@component
def plan(
    records: dsl.Input[dsl.Dataset],
    training: dsl.Output[dsl.Artifact],
    pools: list,
    replica: list,
) -> NamedTuple("Plan", [("worker_pool_specs", list), ("base_output_directory", str)]):
    print("warning: eight examples are few")
    container = {"image_uri": "example.com/image:1", "command": ["python3"], "args": replica}
    specs = [
        {"replica_count": count, "container_spec": container, "machine_spec": machine}
        for count, machine in pools
    ]
    return specs, training.uri


@component
def collect(training: dsl.Input[dsl.Artifact], model: dsl.Output[dsl.Model]):
    model.uri = f"{training.uri}/model"


@component
def evaluate(
    model: dsl.Input[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    accuracy: float,
) -> float:
    import pathlib

    print("evaluated 1 of 1 examples")
    metrics.log_metric("accuracy", accuracy)
    pathlib.Path(report.path).write_text("<p>a report</p>")
    return accuracy


@component
def record(accuracy: float) -> NamedTuple("Recorded", [("verdict", str)]):
    return ("accepted",)


@dsl.pipeline(name="small")
def small(
    replica: list,
    source: str = "digits",
    options: dict = {"sizes": [8, 8]},  # noqa: B006 - a compiled default
    pools: list = [[1, {"machine_type": "n1-standard-4"}]] * 2,
    accuracy: float = 0.9,
    min_accuracy: float = 0.8,
):
    records = create_records(source=source, options=options).set_caching_options(True)
    records.set_retry(2, backoff_duration="300s")
    plan_task = plan(records=records.output, pools=pools, replica=replica)
    plan_task.set_caching_options(False)
    job = CustomTrainingJobOp(
        display_name=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
        worker_pool_specs=plan_task.outputs["worker_pool_specs"],
        base_output_directory=plan_task.outputs["base_output_directory"],
    )
    job.set_caching_options(False).set_display_name("Train")
    model = collect(training=plan_task.outputs["training"]).after(job)
    model.set_caching_options(False)
    judged = evaluate(model=model.outputs["model"], accuracy=accuracy).set_caching_options(False)
    with dsl.If(judged.outputs["Output"] >= min_accuracy):
        record(accuracy=judged.outputs["Output"]).set_caching_options(False)


@dsl.pipeline(name="records-only")
def records_only(source: str = "digits", options: dict = {}):  # noqa: B006
    first = create_records(source=source, options=options).set_caching_options(True)
    again = create_records(source=f"{source}-again", options=options).after(first)
    again.set_caching_options(False)


@dsl.pipeline(name="looped")
def looped(sources: list):
    with dsl.ParallelFor(items=sources, parallelism=1) as source:
        create_records(source=source, options={}).set_caching_options(False)
