"""Parquet data files.

* `read`, `write`, `types`: the reader, the writer and the types of columns
* `footer`, `pages`, `thrift`: the footer with our checksums, and reads of single pages
* `dictionaries`: which columns get a dictionary
"""
