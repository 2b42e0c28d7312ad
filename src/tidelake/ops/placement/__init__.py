"""Where a row goes: its partition and its bucket, for every bucket mode.

The bucket functions themselves are in `tidelake.spec.rows.bucket_function`.

Modules:
    routing           the partition and bucket of each row of a batch, as one number
    bucket_counts     how many buckets each partition has
    dynamic_buckets   hash-dynamic buckets: the bucket of a key
    key_index         key-dynamic buckets: which partition and bucket hold each key
    moves             key-dynamic buckets: what becomes of rows whose keys live in another partition
    cross_partition   key-dynamic buckets: keys of the table read, rows sent where their keys live
"""
