"""Avro data files.

* `read`, `write`, `types`: the reader, the writer and the types of columns
* `encode`: Arrow columns as Avro records
"""
