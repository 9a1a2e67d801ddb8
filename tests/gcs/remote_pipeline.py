"""A pipeline of two steps that write to artifact.uri, or, with to_path, to artifact.path."""

from typing import NamedTuple

from kfp import dsl

component = dsl.component(base_image="example.com/image:1", install_kfp_package=False)


@component
def make_records(records: dsl.Output[dsl.Dataset], to_path: bool):
    import pathlib

    from google.cloud import storage

    if to_path:
        pathlib.Path(records.path).write_text("lost")
        return
    bucket, _, name = records.uri.removeprefix("gs://").partition("/")
    folder = storage.Client(project=None).bucket(bucket)
    folder.blob(f"{name}/dataset.json").upload_from_string(
        '{"splits": {"train": {"examples": 3}}, "rejected": {"count": 1}}'
    )


@component
def evaluate(
    records: dsl.Input[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    needs: str,
) -> NamedTuple("Evaluated", [("accuracy", float)]):
    from google.cloud import storage

    client = storage.Client(project=None)
    bucket, _, name = records.uri.removeprefix("gs://").partition("/")
    assert client.bucket(bucket).blob(f"{name}/dataset.json").download_as_bytes()
    assert not needs or client.bucket(bucket).blob(needs).exists()
    report.uri += ".html"
    bucket, _, name = report.uri.removeprefix("gs://").partition("/")
    client.bucket(bucket).blob(name).upload_from_string("<p>a report</p>")
    metrics.log_metric("accuracy", 0.5)
    return (0.5,)


@dsl.pipeline(name="remote")
def remote(to_path: bool = False, needs: str = ""):
    records = make_records(to_path=to_path).set_caching_options(True).output
    evaluate(records=records, needs=needs).set_caching_options(False)
