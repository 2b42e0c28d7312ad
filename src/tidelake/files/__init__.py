"""Data files: Parquet, ORC and Avro to and from Arrow batches.

`write` makes files, `read` reads them with the eyes of a newer schema; `options` says how. Nothing here knows of
snapshots or manifests: a file is made, its size and statistics are handed back, and whoever commits decides.
"""
