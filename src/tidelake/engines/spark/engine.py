"""The implementation of the port `tidelake.engine` for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelake.catalog.lake import Lake
from tidelake.engines.port import Engine
from tidelake.engines.spark.bridge.types import columns_of, require_frame
from tidelake.engines.spark.compact.runner import SparkStepRunner
from tidelake.engines.spark.datasource.source import stream_frame
from tidelake.engines.spark.merge.job import merge_frame
from tidelake.engines.spark.read.frames import frame_of
from tidelake.engines.spark.session.start import attach, current, start
from tidelake.engines.spark.stream.sink import start_stream
from tidelake.engines.spark.write.job import write_frame
from tidelake.ops.change.merge import MergePlan, MergeResult
from tidelake.ops.commit.messages import CommitResult
from tidelake.query import Scan
from tidelake.spec.types.data_types import DataType
from tidelake.table import Table
from tidelake.table.engine_port import StreamArguments, WriteArguments
from tidelake.table.merge_builder import Merge


class SparkEngine(Engine):
    """Runs reads, writes, merges and compactions in Spark tasks."""

    def start(self, lake: Lake, *, master: str, app: str, conf: Mapping[str, object]) -> SparkSession:
        """Start a session, or use the running one, and make it find the tables of the lake."""
        session = start(master, app, conf)
        attach(session, lake)
        return session

    def attach(self, session: Any, lake: Lake) -> None:
        """Make a running session find the tables of the lake."""
        attach(current(session), lake)

    def frame(self, scan: Scan, session: Any | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """A lazy frame of the scan's rows, pinned to one snapshot."""
        return frame_of(scan, current(session), columns)

    def stream(self, table: Table, session: Any | None, options: Mapping[str, object]) -> DataFrame:
        """A streaming frame of a table."""
        return stream_frame(table, current(session), options)

    def column_types(self, data: object) -> dict[str, DataType]:
        """The columns that a table made for a frame, or for its schema, would have."""
        return columns_of(data)

    def write(self, table: Table, frame: object, how: WriteArguments) -> CommitResult:
        """Write a frame to a table as one commit."""
        return write_frame(table, require_frame(frame), **how)

    def stream_to(self, table: Table, frame: object, how: StreamArguments) -> StreamingQuery:
        """Start the query that writes a streaming frame to a table."""
        return start_stream(table, require_frame(frame), how)

    def merge(self, table: Table, merge: Merge, plan_only: bool) -> MergeResult | MergePlan:
        """Merge a frame into a table as one commit, or only plan it."""
        return merge_frame(table, replace(merge, source=require_frame(merge.source)), plan_only)

    def step_runner(self, session: Any) -> SparkStepRunner:
        """The runner that runs the steps of a compaction in tasks of the session."""
        return SparkStepRunner(current(session))
