"""The component that converts raw data to TFRecords."""

import os

from kfp import dsl

from components import artifact_metadata
from components.typed import component
from trainer.data.write.record_options import EngineOptions, RecordOptions


@component
def create_tfrecords(
    records: dsl.Output[dsl.Dataset],
    options: RecordOptions,
    engine: EngineOptions,
    source_digest: str,
    image: str,
    service_account: str,
    network: str,
    encryption_spec_key_name: str,
    project: str,
    location: str,
) -> None:
    """Write the examples of a source as TFRecord shards, with a dataset.json.

    Args:
        source_digest: Digest of the source's content, used only by the cache: equal arguments
            reuse the records of an earlier run.
        image: Container image of Dataflow's workers: the image of this step.
        service_account: Service account of the workers; empty: Compute Engine's default.
        network: Network of the workers, projects/NUMBER/global/networks/NAME; empty: the default.
        encryption_spec_key_name: Cloud KMS key of the Dataflow job; empty: a Google-managed key.
        project: Google Cloud project of the Dataflow job.
        location: Region of the Dataflow job.
    """
    # Imported here, so that compiling needs no library that reads images.
    from trainer.data.dataset_warnings import describe_rejections, list_warnings
    from trainer.data.schema import ROWS
    from trainer.data.write import writer
    from trainer.data.write.beam_engine import open_engine

    opened = open_engine(
        engine,
        project=project,
        region=location,
        image=image,
        service_account=service_account,
        network=network,
        encryption_key=encryption_spec_key_name,
        environment=os.environ,
    )
    dataset = writer.create_tfrecords(options, records.uri, engine=opened, progress=print)
    if artifact_metadata.size(dataset.classes) <= artifact_metadata.CLASSES_BYTES:
        records.metadata["classes"] = dataset.classes
    warnings = list_warnings(dataset)
    # Of images, most rejected files are duplicates or stray files.
    rejections = describe_rejections(dataset.rejected, dataset.creation["given"], "rows")
    if dataset.contents == ROWS and rejections:
        warnings.append(rejections)
    if warnings:
        records.metadata["warnings"] = warnings
    records.metadata["rejected"] = dataset.rejected["count"]
    for name, split in dataset.splits.items():
        records.metadata[f"{name}_examples"] = split.examples
