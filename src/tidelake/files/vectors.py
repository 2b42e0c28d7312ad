"""The one rule of vectors that a file can break: every one of a column has the length that its type says."""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import FormatError

__all__ = ["check_vector_lengths"]


def check_vector_lengths(array: pa.Array, length: int) -> None:
    """Refuse lists that are not null and have another length.

    Raises:
        FormatError: there is one.
    """
    found = array.value_lengths().drop_null().unique().to_pylist()
    if found not in ([], [length]):
        raise FormatError("vector has another length than its type says", expected=length, found=found[0])
