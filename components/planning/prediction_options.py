"""Options of predictions: machines of an endpoint; instances and machines of batch prediction."""

import dataclasses
from typing import Any

from trainer.fields import option
from trainer.serving import MAX_INSTANCES
from vertex.errors import InputError
from vertex.facts.resource_names import OUTPUT_TABLE, TABLE
from vertex.machines.prediction_machines import check_prediction_machine
from vertex.machines.quotas import MAX_REPLICAS

FORMATS = {
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".txt": "file-list",
    ".tfrecord": "tf-record",
    ".tfrecord.gz": "tf-record-gzip",
}
"""Vertex AI's instancesFormat by file extension."""
BIGQUERY = "bq://"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Machines of a version at an endpoint, billed while it is deployed."""

    machine_type: str = option("n1-standard-4", help="Machine type.")
    min_replicas: int = option(
        1, help="Minimum number of machines.", minimum=1, maximum=MAX_REPLICAS
    )
    max_replicas: int = option(
        1,
        help="Maximum number of machines, added as the load rises.",
        minimum=1,
        maximum=MAX_REPLICAS,
    )

    def __post_init__(self) -> None:
        check_prediction_machine("machine_type", self.machine_type)

    @property
    def resources(self) -> Any:
        """Return these machines as types.DedicatedResources."""
        from google.cloud.aiplatform_v1 import types

        return types.DedicatedResources(
            machine_spec=types.MachineSpec(machine_type=self.machine_type),
            min_replica_count=self.min_replicas,
            max_replica_count=max(self.min_replicas, self.max_replicas),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Instances to predict, the model that predicts them, and the place of the predictions."""

    model_name: str = option(
        "",
        help="Model in the Model Registry whose champion, as of the start of the run, predicts. A "
        "recipe's default is its name.",
    )
    input: str = option(
        "",
        help="Instances: gs:// URI, optionally with wildcards, of .jsonl, .csv or .tfrecord(.gz) "
        "files, or of a .txt file that lists image files; or bq://PROJECT.DATASET.TABLE.",
    )
    output: str = option(
        "",
        help="Parent of the folder of predictions, gs://BUCKET/FOLDER; or bq://PROJECT, "
        "bq://PROJECT.DATASET or bq://PROJECT.DATASET.TABLE; empty: the run's own folder.",
    )

    def __post_init__(self) -> None:
        if self.input:
            format_of(self.input)
        if self.output.startswith(BIGQUERY) and not OUTPUT_TABLE.fullmatch(self.output):
            raise InputError(f"output={self.output!r} is not bq://PROJECT.DATASET.TABLE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionJobOptions:
    """Arguments of ModelBatchPredictOp."""

    machine_type: str = option("n1-standard-4", help="Machine type of the replicas.")
    replica_count: int = option(
        1, help="Replicas that predict; there is no autoscaling.", minimum=1
    )
    batch_size: int = option(
        64, help="Instances in each request to a replica.", minimum=1, maximum=MAX_INSTANCES
    )
    service_account: str = option(
        "",
        help="Service account of the replicas, on which Vertex AI's service agent needs the role "
        "iam.serviceAccountAdmin; empty: Vertex AI's own, which may read the model.",
    )
    labels: dict = option({}, help="Labels of the job, as a JSON object of text.")
    encryption_spec_key_name: str = option(
        "",
        help="Cloud KMS key in the run's region that encrypts the job; not with BigQuery; empty: a "
        "Google-managed key.",
    )


def format_of(input: str) -> str:
    """Return the instancesFormat of `input`; raise InputError if it has none."""
    if input.startswith(BIGQUERY):
        if not TABLE.fullmatch(input):
            raise InputError(f"input={input!r} is not bq://PROJECT.DATASET.TABLE")
        return "bigquery"
    for ending, kind in FORMATS.items():
        if input.lower().endswith(ending):
            return kind
    raise InputError(
        f"input={input!r} has no format of batch prediction; give files that end in "
        f"{', '.join(FORMATS)}, or bq://PROJECT.DATASET.TABLE"
    )
