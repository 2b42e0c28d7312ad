"""The system tables of a table as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tidelake.ops.inspect import file_tables, system_tables
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.query import Scan, Shape
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths, PathOptions
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Inspect:
    """The system tables of a table, with the columns of `t$name`; those of one snapshot follow `at`."""

    store: TableStore
    given: Mapping[str, str] = field(default_factory=dict)

    def snapshots(self) -> pa.Table:
        """Every snapshot that is kept."""
        return system_tables.snapshots_table(self.store)

    def schemas(self) -> pa.Table:
        """Every schema."""
        return system_tables.schemas_table(self.store)

    def options(self) -> pa.Table:
        """The options that are set."""
        return system_tables.options_table(self.store)

    def tags(self) -> pa.Table:
        """Every tag."""
        return system_tables.tags_table(self.store)

    def branches(self) -> pa.Table:
        """Every branch but the main one."""
        return system_tables.branches_table(self.store)

    def consumers(self) -> pa.Table:
        """How far each consumer has come."""
        return system_tables.consumers_table(self.store)

    def manifests(self) -> pa.Table:
        """The manifests of the snapshot."""
        return self._at_point(partial(file_tables.manifests_table, self.store))

    def files(self) -> pa.Table:
        """The live files of the snapshot."""
        return self._at_point(partial(file_tables.files_table, self.store, self._paths()))

    def partitions(self) -> pa.Table:
        """Rows, bytes and files of each partition."""
        return self._at_point(partial(file_tables.partitions_table, self.store))

    def buckets(self) -> pa.Table:
        """Rows, bytes and files of each bucket."""
        return self._at_point(partial(file_tables.buckets_table, self.store))

    def table_indexes(self) -> pa.Table:
        """The index files of the snapshot: hash indexes of buckets, deletion vectors of data files."""
        return self._at_point(partial(file_tables.table_indexes_table, self.store))

    def lsm(self) -> pa.Table:
        """The levels of each bucket of a primary-key table: runs, overlap, what compaction owes, amplification.

        Raises:
            InvalidInputError: the table has no primary key.
        """
        from tidelake.ops.inspect.lsm_table import lsm_table

        return self._at_point(partial(lsm_table, self.store, self._paths(), self.given))

    def ro(self) -> pa.Table:
        """The rows as the last full compactions left them: nothing is merged, newer rows are not seen."""
        return self._scan(Shape.ROWS).read_optimized().to_arrow()

    def audit_log(self) -> Scan:
        """The rows with their kinds in front, deletions that are not compacted away included; read lazily."""
        return self._scan(Shape.AUDIT_LOG)

    def binlog(self) -> Scan:
        """The same, every column as a list: an update is one row with what was and what is; read lazily."""
        return self._scan(Shape.BINLOG)

    def _scan(self, shape: Shape) -> Scan:
        names = self.store.schema.names
        return Scan(
            name=shape.value, store=self.store, paths=self._paths(), columns=names, options=self.given, shape=shape
        )

    def _paths(self) -> DataPaths:
        return DataPaths(self.store.layout, self.store.schema, PathOptions.parse(self.store.schema.options))

    def _at_point(self, show: Callable[[Snapshot | None], pa.Table]) -> pa.Table:
        return at_point(self.store, TravelOptions.parse(self.given), show)
