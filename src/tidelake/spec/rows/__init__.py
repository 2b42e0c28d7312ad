"""Rows as bytes: encoding, hash and bucket, order of keys, partition directory.

Modules:
    binary_hash         hash codes of rows
    binary_row          encode, decode and hash rows of whole columns
    binary_row_decode   rows to columns
    binary_row_encode   columns to rows
    binary_row_layout   sizes and offsets inside a row
    binary_row_scalar   one row at a time, without Arrow
    bucket_function     the bucket functions
    key_order           the order of encoded keys
    partition_path      the directory of a partition
    partition_time      the time that the values of a partition stand for
    row_kind            the numbers of row kinds
"""
