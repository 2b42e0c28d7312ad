"""BinaryRow: the row encoding of the format, for whole Arrow columns at a time.

Partitions, keys and statistics are stored as BinaryRows, and the bucket of a row is a hash of one, so the bytes must
equal those of all other writers of the format. This module exports the functions of

    binary_row_layout   sizes and offsets inside a row
    binary_row_encode   columns -> rows
    binary_row_decode   rows -> columns, without trusting the bytes
    binary_hash         columns or rows -> hash codes

For one row at a time, without Arrow, there is `binary_row_scalar`.
"""

from __future__ import annotations

from tidelake.spec.rows.binary_hash import hash_bytes, hash_rows
from tidelake.spec.rows.binary_row_decode import decode_rows
from tidelake.spec.rows.binary_row_encode import encode_rows
from tidelake.spec.rows.binary_row_layout import EMPTY_ROW

__all__ = ["EMPTY_ROW", "decode_rows", "encode_rows", "hash_bytes", "hash_rows"]
