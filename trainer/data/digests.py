"""Choose an example's split and shard by its digest: its second half, and its first."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from trainer.data.source import DIGEST_BYTES


def digest_halves(digests: pa.ChunkedArray) -> np.ndarray:
    """Return digests as uint64 [n, 2], which sort in the same order."""
    joined = digests.combine_chunks()
    halves = np.frombuffer(
        joined.buffers()[1], ">u8", 2 * len(joined), joined.offset * DIGEST_BYTES
    )
    return halves.astype(np.uint64).reshape(-1, 2)


def draw_splits(hashes: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Return the index of the share into which each hash (uint64 [n], uniform) falls, uint8 [n]."""
    bounds = np.cumsum(np.array(shares) / np.sum(shares))[:-1]
    indices = np.searchsorted(bounds, hashes.astype(np.float64) / 2.0**64, side="right")
    return indices.astype(np.uint8)


def shard_numbers(hashes: np.ndarray, count: int) -> np.ndarray:
    """Return which of `count` equal ranges each hash (uint64 [n]) falls into, int64 [n].

    That is hash * count >> 64, computed by halves, because NumPy has no 128-bit integers.
    """
    half, ranges = np.uint64(32), np.uint64(count)
    upper, lower = hashes >> half, hashes & np.uint64(0xFFFFFFFF)
    return ((upper * ranges + (lower * ranges >> half)) >> half).astype(np.int64)
