"""The data source `tidelake`: `source` parses its options, `reader` and `writer` are its two halves.

`stream_writer` writes the micro-batches of a stream.
"""
