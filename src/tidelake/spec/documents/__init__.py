"""JSON documents and hint files.

Modules:
    consumer     consumers
    hint         hint files `LATEST` and `EARLIEST`
    json_doc     strict parsing and Java-like printing of JSON
    progress     which numbered commits of a user are published
    snapshot     snapshots
    statistics   table statistics of ANALYZE
    success      `_SUCCESS` markers
    tag          tags
    tag_periods  the names of automatic tags
"""
