"""BinaryRow: the format's row bytes, for whole Arrow columns at a time.

Partitions, keys and statistics are stored as BinaryRows, and the bucket of a row is a hash of them, so the bytes must
equal those of every other writer of the format. The work is split into

    binary_row_layout   sizes and families: where things lie
    binary_row_encode   columns -> rows
    binary_row_decode   rows -> columns, trusting nothing
    binary_hash         columns or rows -> hash codes
    binary_row_scalar   one row at a time, without Arrow

and this module is their common door.
"""

from __future__ import annotations

from tidelake.spec.binary_hash import hash_bytes, hash_rows
from tidelake.spec.binary_row_decode import decode_rows
from tidelake.spec.binary_row_encode import encode_rows
from tidelake.spec.binary_row_layout import EMPTY_ROW

__all__ = ["EMPTY_ROW", "decode_rows", "encode_rows", "hash_bytes", "hash_rows"]
