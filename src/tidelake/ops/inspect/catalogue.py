"""The system tables of a table by name: `t$files`, `t$snapshots` and so on, with their columns and their rows.

The views `audit_log`, `binlog` and `ro` are scans of the table itself and not listed here. Names are read in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ops.context import TableContext
from tidelake.ops.inspect import file_index_table, file_tables, system_tables
from tidelake.ops.inspect.columns import schema_of
from tidelake.ops.inspect.row_tracking import read_tracked_rows, row_tracking_schema
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.schema import Schema

__all__ = ["SYSTEM_TABLES", "SystemSource", "read_system_table", "system_source"]

Show = Callable[[TableContext], pa.Table]
ShowSnapshot = Callable[[TableContext, Snapshot | None], pa.Table]

_OF_A_TABLE: Final[Mapping[str, Show]] = {
    "snapshots": system_tables.snapshots_table,
    "schemas": system_tables.schemas_table,
    "options": system_tables.options_table,
    "tags": system_tables.tags_table,
    "branches": system_tables.branches_table,
    "consumers": system_tables.consumers_table,
    "aggregation_fields": system_tables.aggregation_fields_table,
}
_OF_A_SNAPSHOT: Final[Mapping[str, ShowSnapshot]] = {
    "files": file_tables.files_table,
    "file_key_ranges": file_tables.file_key_ranges_table,
    "file_indexes": file_index_table.file_indexes_table,
    "table_indexes": file_tables.table_indexes_table,
    "manifests": file_tables.manifests_table,
    "partitions": file_tables.partitions_table,
    "buckets": file_tables.buckets_table,
    "statistics": system_tables.statistics_table,
}
ROW_TRACKING: Final = "row_tracking"
SYSTEM_TABLES: Final = (*_OF_A_TABLE, *_OF_A_SNAPSHOT, ROW_TRACKING)
"""The names that can stand behind the dollar sign, beside those of the views."""


@dataclass(frozen=True, slots=True)
class SystemSource:
    """One of the system tables of a table."""

    system: str

    def schema(self, context: TableContext) -> Schema:
        """Its columns.

        Raises:
            InvalidInputError: the table is not one that has this system table.
        """
        return row_tracking_schema(context) if self.system == ROW_TRACKING else schema_of(self.system)

    def batches(self, context: TableContext, columns: AbstractSet[str]) -> Iterator[pa.RecordBatch]:
        """Its rows with at least these columns, as they are now or at the point in time that the options name."""
        if self.system == ROW_TRACKING:
            return read_tracked_rows(context)
        return iter(read_system_table(context, self.system, columns).to_batches())


def system_source(name: str) -> SystemSource:
    """The system table of a name, in any case.

    Raises:
        InvalidInputError: the system table does not exist.
    """
    system = name.lower()
    if system not in SYSTEM_TABLES:
        raise InvalidInputError(
            "system table does not exist",
            name=ascii(name[:80]),
            hint=f"the system tables are {', '.join(sorted(SYSTEM_TABLES))}, and the views audit_log, binlog and ro",
        )
    return SystemSource(system)


def read_system_table(context: TableContext, system: str, columns: AbstractSet[str] | None = None) -> pa.Table:
    """The rows of a system table; those of one snapshot follow the point in time that the options name.

    With `columns` others may be missing, where that saves work.

    Raises:
        NotFoundError: the snapshot or the tag does not exist.
    """
    if system in _OF_A_TABLE:
        return _OF_A_TABLE[system](context)
    if system == "files":
        show = partial(file_tables.files_table, context, columns=columns)
    else:
        show = partial(_OF_A_SNAPSHOT[system], context)
    return at_point(context.store, context.options.of(TravelOptions), show)
