"""Start a streaming query that writes each of its micro-batches to a table, exactly once.

A data source cannot send the rows of a bucket to one task, so the query runs `foreachBatch`, in which a batch is an
ordinary frame.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.stream.batches import BatchSink
from tidelake.engines.spark.stream.requests import (
    CHECKPOINT_CONF,
    SinkRequest,
    check_output_mode,
    choose_checkpoint,
    parse_trigger,
)
from tidelake.engines.spark.write.evolve import check_columns
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.define.merge_schema import MergeSchemaOptions
from tidelake.ops.write.opening import open_writer
from tidelake.table import Table
from tidelake.table.engine_port import StreamArguments

__all__ = ["start_stream"]


def start_stream(table: Table, frame: DataFrame, how: StreamArguments) -> StreamingQuery:
    """Start the query that writes a streaming frame to a table.

    Raises:
        InvalidInputError: an argument is wrong, the columns do not fit the table, or no other process can reach its
            storage.
        UnsupportedError: tables of this kind cannot be written, or the frame belongs to Spark Connect.
    """
    request = plan_stream(table, frame, how)
    sink = BatchSink(frame.sparkSession, table, request)
    writer = frame.writeStream.foreachBatch(sink.write_batch).outputMode(request.output_mode)
    writer = writer.option("checkpointLocation", request.checkpoint)
    if request.query_name is not None:
        writer = writer.queryName(request.query_name)
    if request.trigger:
        writer = writer.trigger(**request.trigger)
    return writer.start()


def plan_stream(table: Table, frame: DataFrame, how: StreamArguments) -> SinkRequest:
    """Check everything that can be checked before the first batch.

    Raises:
        InvalidInputError: an argument is wrong, or the columns do not fit the table.
        UnsupportedError: tables of this kind cannot be written, or the frame belongs to Spark Connect.
    """
    if not frame.isStreaming:
        raise InvalidInputError("frame is not a stream", hint="write it with table.write(frame)")
    output_mode = check_output_mode(how["output_mode"], table)
    trigger = parse_trigger(how["trigger"])
    session = frame.sparkSession
    default = session.conf.get(CHECKPOINT_CONF, None)
    checkpoint = choose_checkpoint(how["checkpoint"], default, how["query_name"])
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError(
            "Spark Connect runs the batches of a stream on the server, where this process cannot commit them",
            hint='use df.writeStream.format("tidelake") for tables that need no shuffle, or another session',
        )
    TableRef.of(table.name, table.store, table.dynamic)  # refuses a storage that tasks cannot reach
    open_writer(table.context_to_write(), overwrite=output_mode == "complete", numbered=True)
    if not table.context.options.of(MergeSchemaOptions).merge:
        check_columns(frame, table.schema, how["row_kind"])
    return SinkRequest(checkpoint, trigger, output_mode, how["row_kind"], how["query_name"])
