"""Deletion vectors as compactions and row-level changes write them.

Their bytes are in `tidelake.index.deletion_vectors`, and `tidelake.store.deletion_vectors` writes the files.

Modules:
    index_files      the index files of a bucket: which to write, which to replace
    bucket_vectors   the deletion vectors of one bucket while it is compacted
"""
