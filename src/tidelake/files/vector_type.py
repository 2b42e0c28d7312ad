"""The length check of VECTOR columns: a file can have lists of any length, the type has one."""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import FormatError

__all__ = ["check_vector_lengths"]


def check_vector_lengths(array: pa.Array, length: int) -> None:
    """Refuse lists of another length, except nulls.

    Raises:
        FormatError: a list has another length.
    """
    found = array.value_lengths().drop_null().unique().to_pylist()
    if found not in ([], [length]):
        raise FormatError("vector does not have the length of its type", expected=length, found=found[0])
