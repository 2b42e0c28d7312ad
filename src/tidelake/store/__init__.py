"""A table's documents in storage: the codecs of `spec` over the doors of `io`. Nothing here decides anything."""
