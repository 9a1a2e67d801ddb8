"""A source to a digest that changes with it."""

from typing import NamedTuple

from kfp import dsl

from trainer.data.record_options import RecordOptions
from trainer.fields import describe_arguments
from trainer.machines.worker_pools import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
@describe_arguments(RecordOptions)
def fingerprint_source(
    source: str,
    data_dir: str,
) -> NamedTuple("Listed", [("digest", str)]):  # type: ignore[valid-type]
    """Lists the source: names, sizes and checksums or times. Opens no file.

    Of a source with the same digest, records are taken from the cache.

    Args:
    """
    from components.bucket_listing import list_files
    from trainer.data.write.fingerprint import fingerprint
    from trainer.errors import exit_on_input_error

    with exit_on_input_error():
        found = fingerprint(source, data_dir, list_files)
    print(f"Digest {found.digest}: {found.files:,} files, {found.bytes / 1e6:,.1f} MB of {source}")
    return (found.digest,)
