"""A source to a digest that changes with it."""

from typing import NamedTuple

from components.typed import component
from trainer.data.write.fingerprint import fingerprint


@component
def fingerprint_source(
    source: str,
    data_dir: str,
) -> NamedTuple("Listed", [("digest", str)]):  # type: ignore[valid-type]
    """List the source: names, sizes and checksums or times. Opens no file.

    Of a source with the same digest, records are taken from the cache.

    Args:
        source: Where examples come from.
        data_dir: Folder (URI) of prepared data sets, for a source tfds:NAME.
    """
    found = fingerprint(source, data_dir)
    print(f"Digest {found.digest}: {found.files:,} files, {found.bytes / 1e6:,.1f} MB of {source}")
    return (found.digest,)
