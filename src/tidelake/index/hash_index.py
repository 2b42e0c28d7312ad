"""The hash index of a dynamic bucket: the hash codes of all keys in the bucket.

The file contains only big-endian 32-bit integers, in any order. A commit that adds a key with a new hash writes the
whole file again; the new file replaces the old one.

Invariant: `encode_hash_index` writes each hash once. `decode_hash_index` returns sorted, distinct hashes even for files
of other writers that repeat some.
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
        path: Its path, for error messages.
        row_count: How many hash codes the index manifest promises.

    Raises:
        FormatError: the size is not a multiple of four bytes, or not the promised one.
    """
    if len(data) % HASH_BYTES:
        raise FormatError("size of the hash index is not a multiple of four bytes", path=path, size=len(data))
    if row_count is not None and len(data) != row_count * HASH_BYTES:
        raise FormatError(
            "number of entries in the hash index differs from the index manifest",
            path=path,
            entries=len(data) // HASH_BYTES,
            promised=row_count,
        )
    return np.unique(np.frombuffer(data, _BIG_ENDIAN).astype(np.int32))


def encode_hash_index(hashes: Hashes) -> bytes:
    """The bytes of an index file; repeated hash codes are written once."""
    return np.unique(hashes).astype(_BIG_ENDIAN).tobytes()
