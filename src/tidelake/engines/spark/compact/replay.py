"""Compact postponed buckets as a Spark job: send staged rows to the tasks of their buckets.

Tasks read each staged file of a snapshot once. The task of a bucket gets its rows in the order in which they were
staged, writes them above the files of the bucket, and compacts it. Buckets that are due but get no rows are compacted
by `runner`. The driver commits everything as one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.output import DONE
from tidelake.engines.spark.bridge.tasks import parallelism
from tidelake.engines.spark.write.postponed_buckets import SendStagedRows
from tidelake.engines.spark.write.receive import ReceiveRows
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.context import TableContext
from tidelake.ops.placement.bucket_counts import KnownBuckets
from tidelake.ops.scan.postponed import in_arrival_order
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.replay import ReplayPlan, fold_compaction
from tidelake.table import Table


@dataclass(frozen=True, slots=True)
class ReplayRows(ReceiveRows):
    """Writes staged rows to their bucket, and compacts it."""

    full: bool = False

    def open_writer(self, table: Table) -> KeyedTableWriter:
        """Open a writer that compacts, even if the table is write-only."""
        return KeyedTableWriter(
            table.context, base_id=self.base_id, counts=self.counts, compacts=True, merges_locally=False
        )

    def prepare_messages(self, table: Table, writer: KeyedTableWriter) -> tuple[CommitMessage, ...]:
        """Close the files, and describe what was written and compacted as compactions."""
        if self.full:
            for partition, bucket in writer.places:
                writer.compact(partition, bucket, full=True)
        context = table.context
        return tuple(fold_compaction(context, message) for message in writer.prepare())


def replay_frame(session: SparkSession, context: TableContext, plan: ReplayPlan, *, full: bool) -> DataFrame:
    """The lazy frame of the reports of all tasks that replay the rows of a plan."""
    ref = TableRef.of(context.name, context.store, context.options)
    splits = [replace(split, files=in_arrival_order(split.files)) for split in plan.staged]
    known = KnownBuckets(plan.counts, max(plan.counts.values(), default=1))
    sending = SendStagedRows.of(ref, splits, known, cores=parallelism(session))
    replaying = ReplayRows(ref, plan.snapshot.id, counts=plan.counts, full=full)
    return sending.shuffle_rows(session).mapInArrow(replaying.run, DONE)
