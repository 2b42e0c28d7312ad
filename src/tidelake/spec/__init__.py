"""The bytes of the format: frozen values and their codecs. Nothing here opens a file or reads a clock.

Modules:
    types            data types: values, texts and JSON, Arrow
    casts            type changes of columns, and the conversion of old values
    schemas          schemas, their evolution, the options that they are checked by, the bucket mode
    documents        snapshots, tags, consumers and other JSON documents
    manifests        manifests, manifest lists, index manifests
    avro             Avro containers, and records from and to columns
    stats            column statistics of data files
    rows             rows as bytes, their hash and bucket, the partition directory
    data_file        the metadata of one data file
    layout           the paths of a table's files
    names            which names may become part of a path
    limits           upper bounds for parsers
"""
