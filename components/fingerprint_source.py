"""The component that computes a digest of a source."""

from typing import NamedTuple

from components.typed import component
from trainer.data.write.fingerprint import fingerprint
from vertex.formats import count


class SourceFingerprint(NamedTuple):
    """The output of fingerprint_source."""

    digest: str


@component
def fingerprint_source(source: str, data_dir: str) -> SourceFingerprint:
    """Digest names, sizes and checksums or times of the source's files, without opening one.

    Records of a source with the same digest are taken from the cache.

    Args:
        source: Source of the examples.
        data_dir: Folder (URI) of prepared datasets, for a source tfds:NAME.
    """
    listing = fingerprint(source, data_dir)
    size = (
        f"{count(listing.files, 'file')}, {listing.bytes / 1e6:,.1f} MB of "
        if listing.files
        else ""
    )
    print(f"Digest {listing.digest}: {size}{source}")
    return SourceFingerprint(listing.digest)
