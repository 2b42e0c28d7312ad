"""The hash index of a dynamic bucket: the hash codes of every key the bucket holds.

The file is nothing but big-endian 32-bit integers in any order. It is written whole whenever a commit brings a key with
a hash that the bucket did not hold, and replaces the file before it.

Invariant: what `encode_hash_index` writes has each hash once; what `decode_hash_index` returns is sorted and has each
hash once, whatever the file holds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidelake.errors import FormatError

__all__ = ["HASH_BYTES", "Hashes", "decode_hash_index", "encode_hash_index"]

Hashes = npt.NDArray[np.int32]

HASH_BYTES: Final = 4
"""Bytes of one hash code in the file."""

_BIG_ENDIAN: Final[np.dtype[Any]] = np.dtype(">i4")


def decode_hash_index(data: bytes, *, path: str, row_count: int | None = None) -> Hashes:
    """The hash codes of an index file, sorted, each once.

    Args:
        data: The whole file.
        path: Where it lies, for the words of an error.
        row_count: How many hash codes the index manifest promises.

    Raises:
        FormatError: the size is no whole number of hash codes, or not the promised one.
    """
    if len(data) % HASH_BYTES:
        raise FormatError("hash index has a broken last entry", path=path, size=len(data))
    if row_count is not None and len(data) != row_count * HASH_BYTES:
        raise FormatError(
            "hash index has another number of entries than its manifest says",
            path=path,
            entries=len(data) // HASH_BYTES,
            promised=row_count,
        )
    return np.unique(np.frombuffer(data, _BIG_ENDIAN).astype(np.int32))


def encode_hash_index(hashes: Hashes) -> bytes:
    """The bytes of an index file; repeated hash codes are written once."""
    return np.unique(hashes).astype(_BIG_ENDIAN).tobytes()
