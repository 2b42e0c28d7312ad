"""The system tables of a table as Arrow tables, and more about its state that the format has no table for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from tidelake.ops.context import TableContext
from tidelake.ops.inspect.catalogue import read_system_table
from tidelake.ops.inspect.consumer_lag import consumer_lag_table
from tidelake.ops.inspect.row_tracking import read_tracked_rows, row_tracking_schema
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.query import Scan, Shape
from tidelake.spec.types.arrow_types import row_to_arrow


@dataclass(frozen=True, slots=True)
class Inspect:
    """The system tables of a table, with the columns of `t$name`; those of one snapshot follow `at`."""

    context: TableContext

    def snapshots(self) -> pa.Table:
        """Every snapshot that is kept."""
        return read_system_table(self.context, "snapshots")

    def schemas(self) -> pa.Table:
        """Every schema."""
        return read_system_table(self.context, "schemas")

    def options(self) -> pa.Table:
        """The options that are set."""
        return read_system_table(self.context, "options")

    def tags(self) -> pa.Table:
        """Every tag."""
        return read_system_table(self.context, "tags")

    def branches(self) -> pa.Table:
        """Every branch but the main one."""
        return read_system_table(self.context, "branches")

    def consumers(self) -> pa.Table:
        """The next snapshot of each consumer."""
        return read_system_table(self.context, "consumers")

    def aggregation_fields(self) -> pa.Table:
        """The columns with their aggregate functions, and other options of the columns."""
        return read_system_table(self.context, "aggregation_fields")

    def statistics(self) -> pa.Table:
        """The statistics that the snapshot refers to; no row if the table was never analyzed."""
        return read_system_table(self.context, "statistics")

    def consumer_lag(self) -> pa.Table:
        """How many snapshots each consumer has still to read, and how long the oldest of them has been waiting."""
        return consumer_lag_table(self.context)

    def manifests(self) -> pa.Table:
        """The manifests of the snapshot."""
        return read_system_table(self.context, "manifests")

    def files(self) -> pa.Table:
        """The live files of the snapshot."""
        return read_system_table(self.context, "files")

    def partitions(self) -> pa.Table:
        """Rows, bytes and files of each partition."""
        return read_system_table(self.context, "partitions")

    def buckets(self) -> pa.Table:
        """Rows, bytes and files of each bucket."""
        return read_system_table(self.context, "buckets")

    def file_key_ranges(self) -> pa.Table:
        """The live files of the snapshot, with the keys between which their rows are."""
        return read_system_table(self.context, "file_key_ranges")

    def file_indexes(self) -> pa.Table:
        """The file indexes of the live files of the snapshot: which columns, of which kinds, how large."""
        return read_system_table(self.context, "file_indexes")

    def table_indexes(self) -> pa.Table:
        """The index files of the snapshot: hash indexes of buckets, deletion vectors of data files."""
        return read_system_table(self.context, "table_indexes")

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

        show = partial(lsm_table, self.context)
        return at_point(self.context.store, self.context.options.of(TravelOptions), show)

    def row_tracking(self) -> pa.Table:
        """The rows of a table that tracks rows, with their ids and sequence numbers.

        Raises:
            InvalidInputError: the table does not track rows.
            UnsupportedError: the ids of some rows are not in the metadata.
        """
        schema = row_to_arrow(row_tracking_schema(self.context).fields)
        return pa.Table.from_batches(read_tracked_rows(self.context), schema=schema)

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
