"""Streams on Spark.

The source:
    source      the reader of `spark.readStream`
    offsets     what Spark stores of a stream in a checkpoint
    limits      how much one batch takes

The sink:
    sink        starts a query that writes each micro-batch to a table
    batches     writes the micro-batches of one query, each at most once
    requests    checks what the caller asks for: output mode, trigger, checkpoint
    checkpoint  reads the id of a query, and what a batch reads, from a checkpoint
"""
