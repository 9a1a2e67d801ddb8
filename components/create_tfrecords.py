"""Raw data to TFRecords."""

from kfp import dsl

from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.fields import describe_arguments
from trainer.machines.worker_pools import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
@describe_arguments(RecordOptions, EngineOptions)
def create_tfrecords(
    records: dsl.Output[dsl.Dataset],
    source: str,
    data_dir: str,
    source_digest: str,
    columns: list,
    crosses: list,
    label: dict,
    image_size: int,
    channels: int,
    resize_method: str,
    encoding: str,
    jpeg_quality: int,
    augmentation: str,
    augmentation_operations: list,
    augmentation_variants: int,
    split_fractions: list,
    shard_megabytes: float,
    records_store: str,
    max_rejected_fraction: float,
    records_engine: str,
    dataflow_max_workers: int,
    dataflow_machine_type: str,
    dataflow_subnetwork: str,
    image: str,
    service_account: str,
    network: str,
    encryption_spec_key_name: str,
    project: str,
    location: str,
):
    """Writes the examples of a source as TFRecord shards, with a dataset.json.

    Args:
        source_digest: What the source holds. Read by the cache alone, as every argument is: the
            same arguments give the records of an earlier run.
        image: Container image of Dataflow's workers: this step's own.
        service_account: Account that they run as; empty: Compute Engine's default.
        network: Their network: projects/NUMBER/global/networks/NAME; empty: the default.
        encryption_spec_key_name: Cloud KMS key that protects Dataflow's job; empty: Google's.
        project: Google Cloud project of Dataflow's job.
        location: Its region.
    """
    arguments = dict(locals())
    import os

    from components import artifact_metadata
    from trainer.data.record_options import EngineOptions, RecordOptions
    from trainer.data.write.engines import open_engine
    from trainer.data.write.writer import create_tfrecords
    from trainer.errors import exit_on_input_error
    from trainer.fields import build, pick

    with exit_on_input_error():
        options = build(RecordOptions, pick(RecordOptions, arguments))
        engine = open_engine(
            build(EngineOptions, pick(EngineOptions, arguments)),
            project=project,
            region=location,
            image=image,
            service_account=service_account,
            network=network,
            encryption_key=encryption_spec_key_name,
            environment=os.environ,
        )
        dataset = create_tfrecords(options, records.uri, engine=engine, progress=print)
    if artifact_metadata.size(dataset.classes) <= artifact_metadata.CLASSES_BYTES:
        records.metadata["classes"] = dataset.classes
    records.metadata["rejected"] = dataset.rejected["count"]
    for name, split in dataset.splits.items():
        records.metadata[f"{name}_examples"] = split.examples
