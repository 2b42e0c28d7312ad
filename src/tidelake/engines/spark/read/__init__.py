"""Scans as frames: `frames` plans and reads.

`native` hands files to Spark's own Parquet reader, and `deletion_vectors` drops the deleted rows from what it returns.
`source_rows` reads the splits of the data source, in batches and streams.
"""
