"""Spark behind the port: what the core asks of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidelake.catalog.filesystem import Lake
from tidelake.engines.spark.compact import SparkHands
from tidelake.engines.spark.merge import merge_frame
from tidelake.engines.spark.rows import frame_of
from tidelake.engines.spark.session import attach, current, start
from tidelake.engines.spark.types import checked_frame, columns_of
from tidelake.engines.spark.write import write_frame
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.write.merge import MergePlan, MergeResult
from tidelake.query import Scan
from tidelake.table import Table
from tidelake.table.merging import Merge


class SparkEngine:
    """Spreads verbs over Spark tasks."""

    def start(self, lake: Lake, *, master: str, app: str, conf: Mapping[str, object]) -> SparkSession:
        """A session that knows the lake."""
        session = start(master, app, conf)
        attach(session, lake)
        return session

    def attach(self, session: Any, lake: Lake) -> None:
        """Let a session that is there know the lake."""
        attach(current(session), lake)

    def frame(self, scan: Scan, session: Any | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """A lazy frame of the scan's rows, pinned to one snapshot."""
        return frame_of(scan, current(session), columns)

    def column_types(self, data: Any) -> dict[str, Any]:
        """The columns that a table for a frame or its schema would have."""
        return columns_of(data)

    def write(self, table: Table, frame: Any, how: Mapping[str, Any]) -> CommitResult:
        """Write a frame to a table as one commit."""
        return write_frame(table, checked_frame(frame), **how)

    def merge(self, table: Table, merge: Merge, plan_only: bool) -> MergeResult | MergePlan:
        """Merge a frame into a table as one commit, or tell how."""
        return merge_frame(table, replace(merge, source=checked_frame(merge.source)), plan_only)

    def hands(self, session: Any) -> SparkHands:
        """What carries steps of a compaction out as tasks of the session."""
        return SparkHands(current(session))
