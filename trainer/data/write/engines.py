"""Engines that create data sets: this machine's processes, or one that is named here.

    engine = open_engine(EngineOptions(records_engine="dataflow"), project="my-project", ...)
    create_tfrecords(options, "gs://bucket/records", engine=engine)

An engine decides which machine does what and when, never what is written: the bytes are equal.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.data.schema import Dataset
from trainer.data.sources import Source

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAFLOW"
"""gcloud's own name for another endpoint than Google's."""

_ON_THIS_MACHINE = ("", "local")
"""What a run on this machine has for a project."""


class Engine(Protocol):
    """Creates data sets elsewhere than in this process and its children."""

    def check(self, source: Source, options: RecordOptions, output_uri: str) -> None:
        """Raises InputError where it could not read the one or write to the other."""
        ...

    def create(
        self,
        source: Source,
        options: RecordOptions,
        output_uri: str,
        check: Callable[[], None],
    ) -> Dataset:
        """Writes the data set, as `create_tfrecords` does.

        Args:
            check: raises where another writer has taken the folder; called on any machine.

        Raises:
            InputError: as `create_tfrecords`, or the engine can't be started.
            RuntimeError: it failed on the way; run again.
        """
        ...


def open_engine(
    options: EngineOptions,
    *,
    project: str,
    region: str,
    image: str,
    service_account: str,
    network: str,
    encryption_key: str,
    environment: Mapping[str, str],
    say: Callable[[str], None] = print,
) -> Engine | None:
    """Return the engine that `options` name; None: this machine's own processes.

    Args:
        project: of Google Cloud; "local" for a run on this machine.
        image: container image of Dataflow's workers, with this code and Apache Beam in it.
        service_account: that they run as; empty: Compute Engine's default.
        network: of their machines, as projects/NUMBER/global/networks/NAME; empty: the default.
        encryption_key: Cloud KMS key that protects the job; empty: Google's.
        environment: may name another endpoint of Dataflow's, as gcloud has it.
        say: takes a line about the job, and every few seconds how many shards are written.

    Raises:
        InputError: Apache Beam is not installed.
    """
    if options.records_engine == "local":
        return None
    from trainer.data.write.beam import BeamEngine
    from trainer.data.write.dataflow import DataflowJob

    if project in _ON_THIS_MACHINE:
        return BeamEngine(None, say)
    return BeamEngine(
        DataflowJob(
            project=project,
            region=region,
            image=image,
            service_account=service_account,
            network=network,
            encryption_key=encryption_key,
            max_workers=options.dataflow_max_workers,
            machine_type=options.dataflow_machine_type,
            subnetwork=options.dataflow_subnetwork,
            endpoint=environment.get(ENDPOINT_VARIABLE, "").rstrip("/"),
        ),
        say,
    )
