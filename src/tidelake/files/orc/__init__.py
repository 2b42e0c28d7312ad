"""ORC data files.

* `read`, `write`, `types`: the reader, the writer and the types of columns
* `tail`, `seal`, `protobuf`: the footer with its statistics, and our checksums
"""
