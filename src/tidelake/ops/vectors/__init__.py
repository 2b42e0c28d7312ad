"""Deletion vectors as compactions and row-level changes write them.

Their bytes are in `tidelake.index.vector_codec`, and `tidelake.store.deletion_vectors` writes the files.

Modules:
    vector_writer     the index files of a bucket: which to write, which to replace
    superseded_rows   the positions of rows that a compaction supersedes
"""
