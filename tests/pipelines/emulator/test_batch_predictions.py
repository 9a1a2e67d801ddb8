"""The emulator refuses invalid batch prediction jobs and answers the others by real servers."""

import contextlib
import csv
import gzip
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import MODEL, PARENT, Services
from tests.pipelines.local.conftest import wait_for
from tests.trainer.serving.serving_processes import predicted
from tests.trainer.serving.test_answers import b64, judged, pixels_of, png, row_of
from trainer.data.tables.columns import list_columns
from vertex.emulator import batch_service, model_server
from vertex.emulator.batch_input import read_instances
from vertex.emulator.environment import Program
from vertex.errors import InputError

KEY = "projects/123456/locations/us-central1/keyRings/ring/cryptoKeys/key"
FORMAT, INPUT = "input_config__instances_format", "input_config"
OUTPUT_FORMAT = "output_config__predictions_format"
PREFIX = "output_config__gcs_destination__output_uri_prefix"
MACHINE, INSTANCE_TYPE = "dedicated_resources__machine_spec", "instance_config__instance_type"
TABLE = {"instances_format": "bigquery", "bigquery_source": {"input_uri": "bq://p.d.t"}}
NO_TABLE = {"instances_format": "bigquery", "bigquery_source": {"input_uri": "bq://p.d"}}
FIELDS = {"included_fields": ["a"], "excluded_fields": ["b"]}


def create(services, **fields):
    return services.create("batch_prediction_job", **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"service_account": "runner"}, "service_account='runner' is not"),
        ({"model": ""}, "exactly one of model"),
        ({"unmanaged_container_model": {"artifact_uri": "gs://b/m"}}, "exactly one of model"),
        (
            {"model": "", "unmanaged_container_model": {"artifact_uri": "gs://b/m"}},
            "unmanaged_container_model is not supported here",
        ),
        ({"model": "projects/123456/locations/us-east1/models/1"}, "is not in projects/123456/"),
        ({"encryption_spec": {"kms_key_name": KEY}, INPUT: TABLE}, "not supported with BigQuery"),
        ({INPUT: TABLE}, "predictions_format must be bigquery"),
        ({FORMAT: "parquet"}, "'parquet' is not one of jsonl, csv, tf-record"),
        ({FORMAT: "bigquery"}, "is read from input_config.bigquery_source"),
        ({INPUT: {**TABLE, "instances_format": "csv"}}, "is read from input_config.gcs_source"),
        ({"input_config__gcs_source__uris": ["rows.jsonl"]}, "'rows.jsonl' is not a Cloud"),
        ({"input_config__gcs_source": {}}, "uris is required"),
        ({INPUT: NO_TABLE}, "'bq://p.d' is not bq://PROJECT.DATASET.TABLE"),
        ({OUTPUT_FORMAT: "tf-record"}, "'tf-record' is not one of jsonl, csv"),
        ({OUTPUT_FORMAT: "csv"}, "csv is not supported here"),
        ({"generate_explanation": True}, "explanations are not supported here"),
        ({"explanation_spec__parameters__top_k": 1}, "explanations are not supported here"),
        ({OUTPUT_FORMAT: "bigquery"}, "written to output_config.bigquery_destination"),
        ({PREFIX: "out"}, "'out' is not a Cloud Storage URI"),
        ({INSTANCE_TYPE: "object", FORMAT: "csv"}, "instance_config is not supported here with"),
        ({INSTANCE_TYPE: "tuple", INPUT: TABLE}, "'tuple' is not one of object, array"),
        ({"instance_config": FIELDS, INPUT: TABLE}, "both included_fields and excluded_fields"),
        ({MACHINE: {}}, "machine_type is required"),
        ({MACHINE: {"machine_type": "n9"}}, "machine_type='n9'"),
    ],
)
def test_invalid_job_is_refused(services, fields, reason):
    services.upload()
    with pytest.raises(exceptions.BadRequest, match=reason):
        create(services, **fields)
    assert len(services.batches.refusals) == 1


def test_more_replicas_than_the_maximum_are_accepted(services):
    services.upload()
    resources = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "starting_replica_count": 11,
        "max_replica_count": 1,
    }
    missing = {"input_config__gcs_source__uris": ["/missing.jsonl"]}
    job = create(services, dedicated_resources=resources, **missing)
    assert job.dedicated_resources.starting_replica_count == 11


def run(services, model, kind, uri, folder):
    """Return a job's resource once it has ended."""
    name = services.upload(model={**MODEL, "artifact_uri": model}).model
    source = {"instances_format": kind, "gcs_source": {"uris": [str(uri)]}}
    job = create(services, model=f"{name}@1", input_config=source, **{PREFIX: str(folder)})

    def ended():
        current = services.job.get_batch_prediction_job(name=job.name)
        return current.state.name not in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING") and current

    return wait_for(ended)


def written(folder, name):
    """Return the lines of a job's files of one kind."""
    files = sorted(folder.glob(f"prediction-digits-20*Z/prediction.{name}-*-of-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def counts(job):
    return job.completion_stats.successful_count, job.completion_stats.failed_count


SLOW_SERVER = """
import http.server, os, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self):
        time.sleep(60)

http.server.HTTPServer(("127.0.0.1", int(os.environ["AIP_HTTP_PORT"])), Handler).serve_forever()
"""


def test_server_that_answers_too_late_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_service, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(model_server, "_PREDICT_SECONDS", 0.5)
    slow = Program([sys.executable, "-c", SLOW_SERVER], dict(os.environ))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"image": 1}\n')
    with contextlib.ExitStack() as stack:
        services = Services(tmp_path, stack, serves=True)
        services.batches.program = services.servers.program = lambda model: slow
        job = run(services, "gs://bucket/model", "jsonl", rows, tmp_path / "out")
        assert (job.state.name, counts(job)) == ("JOB_STATE_FAILED", (0, 1))
        assert job.error.message == "504: no answer within 0.2 s (upstream request timeout)"
        name = services.create("endpoint").result().name
        services.deploy(name, {"0": 100}).result(timeout=20)
        with pytest.raises(exceptions.GatewayTimeout, match=r"has not answered within 0\.5 s"):
            services.prediction.predict(endpoint=name, instances=[{"image": 1}], retry=None)


def test_records_are_sent_unchanged(digit_records, tmp_path):
    shards = sorted(Path(digit_records.uri).glob("train-*.tfrecord"))
    for shard in shards:
        (tmp_path / f"{shard.name}.gz").write_bytes(gzip.compress(shard.read_bytes()))
    examples = [example.numpy() for example in tf.data.TFRecordDataset(list(map(str, shards)))]
    for kind, pattern in (("tf-record", shards[0].parent / "train-*"), ("tf-record-gzip", "*.gz")):
        instances = list(read_instances(kind, [str(tmp_path / pattern)]))
        assert [instance.sent for instance in instances] == [
            instance.shown for instance in instances
        ]
        assert [instance.sent for instance in instances] == list(map(b64, examples))


def test_files_in_a_bucket_are_listed_by_their_uris(tmp_path):
    (tmp_path / "names.txt").write_text("gs://photos/1.png\n")
    (tmp_path / "1.png").write_bytes(b"1")
    instances = read_instances(
        "file-list", ["gs://photos/*.txt"], lambda uri: uri.replace("gs://photos", str(tmp_path))
    )
    assert [(instance.shown, instance.sent) for instance in instances] == [
        ("gs://photos/1.png", b64(b"1"))
    ]


def test_unusable_input_is_named(tmp_path):
    lines = tmp_path / "bad.jsonl"
    with pytest.raises(InputError, match=f"{lines} matches no file"):
        list(read_instances("jsonl", [str(lines)]))
    lines.write_text('{"image": 1}\n{')
    valid, invalid = read_instances("jsonl", [str(lines)])
    assert (valid.sent, valid.error) == ({"image": 1}, "")
    assert invalid.error.startswith("not JSON: Expecting property name")


@pytest.mark.slow
def test_listed_files_get_their_predictions(services, untrained_model, digit_records, tmp_path):
    expected, examples = judged(untrained_model, digit_records)
    shown = [f"{tmp_path}/{number}.png" for number in range(len(examples))]
    for file, example in zip(shown, examples, strict=True):
        Path(file).write_bytes(png(pixels_of(example)))
    names = tmp_path / "images.txt"
    names.write_text("\n".join([*shown, f"{tmp_path}/none.png"]))
    job = run(services, untrained_model, "file-list", names, tmp_path / "out")
    results = written(tmp_path / "out", "results")
    assert [result["instance"] for result in results] == shown
    probabilities = np.array([result["prediction"]["probabilities"] for result in results])
    assert np.abs(probabilities - expected).max() < 1e-5
    assert (job.state.name, counts(job)) == ("JOB_STATE_SUCCEEDED", (len(shown), 1))
    assert job.model_version_id == "1"
    assert job.create_time < job.start_time < job.end_time
    assert job.output_info.gcs_output_directory.startswith(f"{tmp_path}/out/prediction-digits-20")
    error = {"code": 3, "message": "can't be read: No such file or directory"}
    (failed,) = written(tmp_path / "out", "errors_stats")
    assert failed == {"instance": f"{tmp_path}/none.png", "error": error}


ERRORS = ["; quote all text", "a cell has a line break", "6 cells under a header of 5"]


def test_rows_that_a_model_can_not_take_are_named(row_model, row_records, tmp_path):
    expected, examples = judged(row_model, row_records)
    names = [column.name for column in list_columns(row_records)]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(names)
        for example in examples:
            row = row_of(example, row_records)
            writer.writerow([row.get(name, "") for name in names])
        file.write('1,far\r\n1,"a\nb"\r\n')
        writer.writerow([1] * (len(names) + 1))
    instances = list(read_instances("csv", [str(path)]))
    *rows, _, _, _ = (instance.sent for instance in instances)
    assert np.abs(predicted(row_model, rows) - expected).max() < 1e-5
    for instance, error in zip(instances[-3:], ERRORS, strict=True):
        assert instance.error.endswith(error)


@pytest.mark.slow
def test_failed_job_reports_why_and_stops_its_server(services, untrained_model, tmp_path):
    lines = tmp_path / "bad.jsonl"
    job = run(services, untrained_model, "jsonl", lines, tmp_path / "out")
    assert (job.state.name, job.error.code) == ("JOB_STATE_FAILED", 3)
    assert job.error.message == f"{lines} matches no file"
    lines.write_text('{"image": 1}\n{')
    job = run(services, untrained_model, "jsonl", lines, tmp_path / "out")
    assert job.error.message.startswith("not JSON: Expecting property name")
    assert counts(job) == (0, 2)
    job = run(services, str(tmp_path), "jsonl", lines, tmp_path / "out")
    assert job.error.message.startswith("model server never became ready.")
    started = [process for batch in services.batches.jobs for process in batch.processes]
    assert started and all(process.finished.is_set() for process in started)


def test_job_is_deleted_only_after_its_end(services, untrained_model, tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text(f"{json.dumps(np.zeros((8, 8)).tolist())}\n" * 100_000)
    services.upload(model={**MODEL, "artifact_uri": untrained_model})
    source = {"input_config__gcs_source__uris": [str(lines)]}
    job = create(services, **source, **{PREFIX: str(tmp_path / "out")})
    with pytest.raises(exceptions.BadRequest, match="has not ended; cancel it first"):
        services.job.delete_batch_prediction_job(name=job.name)
    services.job.cancel_batch_prediction_job(name=job.name)
    services.batches.join()
    (listed,) = services.job.list_batch_prediction_jobs(parent=PARENT)
    assert (listed.name, listed.state.name) == (job.name, "JOB_STATE_CANCELLED")
    services.job.delete_batch_prediction_job(name=job.name).result()
    with pytest.raises(exceptions.NotFound):
        services.job.get_batch_prediction_job(name=job.name)
