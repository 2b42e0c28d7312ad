"""Data files: Parquet, ORC and Avro files to and from Arrow batches.

Nothing here knows about snapshots or manifests: a writer returns the name, size and statistics of each file, and a
commit adds it to the table.

* `read`: reads a file of any format with the fields of another schema
* `write`: writers of one file, of one bucket, and of one level of a primary-key bucket
* `parquet`, `orc`, `avro`: the formats, each with its reader, its writer and its types
* `options`: the options of data files
* `schema_mapping`: the fields to read, their columns in a file, and the casts in between
* `groups`: groups of consecutive rows
* `column_stats`: statistics of columns while they are written
* `arrow_input`, `ranges`, `sink`: files for Arrow's readers and writers
* `hidden`: clears values below nulls, which writers refuse
* `vector_type`: the length check of VECTOR columns
* `stored_values`: casts of stored values to the type of the schema
* `int96`: timestamps as INT96
"""
