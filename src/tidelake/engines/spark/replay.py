"""Compaction of postponed buckets as a Spark job: rows that wait are sent to the tasks of their buckets.

Tasks read the staged files of a snapshot once, wherever they lie; the task of a bucket gets its rows in the order in
which they were staged, writes them above what is there, and compacts. Buckets that are due and get no row are compacted
as steps of their own. The driver commits everything as one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from tidelake.engines.spark.receive import DONE, LOCAL_MERGE, Receiving
from tidelake.engines.spark.remote import TableRef
from tidelake.engines.spark.staged import Sending
from tidelake.engines.spark.tasks import parallelism
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.compact.buckets import Job
from tidelake.ops.scan.postponed import in_arrival_order
from tidelake.ops.write.bucket_counts import KnownBuckets
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.unpostpone import ReplayPlan, folded
from tidelake.table import Table


@dataclass(frozen=True, slots=True)
class Replaying(Receiving):
    """Writes rows that waited for their bucket, and compacts it."""

    full: bool = False

    def writer(self, table: Table) -> KeyedTableWriter:
        """A writer that compacts, whatever the table leaves to others."""
        options = {**table.options, "write-only": "false"}
        options.pop(LOCAL_MERGE, None)
        return KeyedTableWriter(table.store, table.paths, options, base_id=self.base_id, counts=self.counts)

    def prepared(self, table: Table, writer: KeyedTableWriter) -> tuple[CommitMessage, ...]:
        """What was written and compacted, as compactions."""
        if self.full:
            for partition, bucket in writer.places:
                writer.compact(partition, bucket, full=True)
        job = table._job()
        return tuple(folded(job, message) for message in writer.prepare())


def replayed(session: SparkSession, job: Job, plan: ReplayPlan, *, full: bool) -> DataFrame:
    """A frame with what every task did with the rows of a plan."""
    ref = TableRef.of(job.name, job.store, job.options)
    splits = [replace(split, files=in_arrival_order(split.files)) for split in plan.staged]
    known = KnownBuckets(plan.counts, max(plan.counts.values(), default=1))
    sending = Sending.of(ref, splits, known, cores=parallelism(session))
    replaying = Replaying(ref, plan.snapshot.id, counts=plan.counts, full=full)
    return sending.sent(session).mapInArrow(replaying.run, DONE)
