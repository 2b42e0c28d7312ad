"""The system tables of a table as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tidelake.ops.context import TableContext
from tidelake.ops.inspect import file_tables, system_tables
from tidelake.ops.inspect.consumer_lag import consumer_lag_table
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.query import Scan, Shape
from tidelake.spec.documents.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Inspect:
    """The system tables of a table, with the columns of `t$name`; those of one snapshot follow `at`."""

    context: TableContext

    def snapshots(self) -> pa.Table:
        """Every snapshot that is kept."""
        return system_tables.snapshots_table(self.context)

    def schemas(self) -> pa.Table:
        """Every schema."""
        return system_tables.schemas_table(self.context)

    def options(self) -> pa.Table:
        """The options that are set."""
        return system_tables.options_table(self.context)

    def tags(self) -> pa.Table:
        """Every tag."""
        return system_tables.tags_table(self.context)

    def branches(self) -> pa.Table:
        """Every branch but the main one."""
        return system_tables.branches_table(self.context)

    def consumers(self) -> pa.Table:
        """The next snapshot of each consumer."""
        return system_tables.consumers_table(self.context)

    def consumer_lag(self) -> pa.Table:
        """How many snapshots each consumer has still to read, and how long the oldest of them has been waiting."""
        return consumer_lag_table(self.context)

    def manifests(self) -> pa.Table:
        """The manifests of the snapshot."""
        return self._at_point(partial(file_tables.manifests_table, self.context))

    def files(self) -> pa.Table:
        """The live files of the snapshot."""
        return self._at_point(partial(file_tables.files_table, self.context))

    def partitions(self) -> pa.Table:
        """Rows, bytes and files of each partition."""
        return self._at_point(partial(file_tables.partitions_table, self.context))

    def buckets(self) -> pa.Table:
        """Rows, bytes and files of each bucket."""
        return self._at_point(partial(file_tables.buckets_table, self.context))

    def table_indexes(self) -> pa.Table:
        """The index files of the snapshot: hash indexes of buckets, deletion vectors of data files."""
        return self._at_point(partial(file_tables.table_indexes_table, self.context))

    def metrics(self) -> pa.Table:
        """What each snapshot that is kept added and deleted, and how its commit went: rows, bytes, files, attempts."""
        from tidelake.ops.inspect.metrics_table import metrics_table  # other tables need no commits

        return metrics_table(self.context)

    def lsm(self) -> pa.Table:
        """The levels of each bucket of a primary-key table: runs, overlap, compaction debt, amplification.

        Raises:
            InvalidInputError: the table has no primary key.
        """
        from tidelake.ops.inspect.lsm_table import lsm_table

        return self._at_point(partial(lsm_table, self.context))

    def ro(self) -> pa.Table:
        """The rows that the last full compactions wrote: nothing is merged, newer rows are not seen."""
        return self._scan(Shape.ROWS).read_optimized().to_arrow()

    def audit_log(self) -> Scan:
        """A lazy scan of the rows with their row kinds, including deletions that are not compacted away yet."""
        return self._scan(Shape.AUDIT_LOG)

    def binlog(self) -> Scan:
        """A lazy scan like `audit_log` with every column as a list: an update is one row with old and new values."""
        return self._scan(Shape.BINLOG)

    def _scan(self, shape: Shape) -> Scan:
        schema = self.context.schema
        return Scan(
            replace(self.context, name=shape.value), ReadRequest(schema=schema, columns=schema.names, shape=shape)
        )

    def _at_point(self, show: Callable[[Snapshot | None], pa.Table]) -> pa.Table:
        return at_point(self.context.store, self.context.options.of(TravelOptions), show)
