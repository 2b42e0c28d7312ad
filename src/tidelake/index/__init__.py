"""Index files as bytes and values. Nothing here opens a file.

Modules:
    vector_codec       the deleted positions of data files
    file_index         what the file index of a data file lists
    hash_index         the hash codes of the keys in a dynamic bucket
"""
