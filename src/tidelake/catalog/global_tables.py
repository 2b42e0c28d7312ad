"""The system tables of a whole lake: `sys.tables`, `sys.partitions`, `sys.all_table_options`, `sys.catalog_options`.

Columns and rows are those that Paimon shows for a catalog of the same kind: a file-system catalog keeps no owner, no
times and no sums of a table. Credentials among the options of a catalog are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa

from tidelake.catalog.protocol import Catalog
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.clock import from_local_ms
from tidelake.ops.context import TableContext
from tidelake.ops.inspect.columns import make_table, schema_of
from tidelake.ops.inspect.file_tables import partition_names, sum_files, table_address
from tidelake.ops.scan.travel import TravelOptions, at_point
from tidelake.options import TableOptions
from tidelake.spec.layout import TableLayout
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.schemas.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import open_stores
from tidelake.table import Table
from tidelake.table.system import SystemTable

__all__ = ["CATALOG_OPTIONS", "SYSTEM_DATABASE", "GlobalTables", "refuse_system_database"]

SYSTEM_DATABASE: Final = "sys"
CATALOG_OPTIONS: Final = "catalog-options-table.enabled"
"""The option of a lake that shows its options in `sys.catalog_options`."""


@dataclass(frozen=True, slots=True)
class GlobalSource:
    """One of the system tables of a lake."""

    catalog: Catalog
    system: str
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the lake, without credentials."""

    def schema(self, context: TableContext) -> Schema:
        """Its columns."""
        del context
        return schema_of(f"{SYSTEM_DATABASE}.{self.system}")

    def batches(self, context: TableContext, columns: AbstractSet[str]) -> Iterator[pa.RecordBatch]:
        """Its rows, as the tables of the lake are now."""
        del context, columns
        return iter(self._rows().to_batches())

    def _rows(self) -> pa.Table:
        match self.system:
            case "tables":
                return _tables(_all_tables(self.catalog))
            case "partitions":
                return _partitions(self.catalog)
            case "all_table_options":
                return _table_options(_all_tables(self.catalog))
        items = sorted(self.options.items())
        return make_table(
            "sys.catalog_options", {"key": [key for key, _ in items], "value": [value for _, value in items]}
        )


class GlobalTable(SystemTable):
    """A system table of a lake. It has no past and no branches."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not callable(getattr(Table, name, None)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(_refuse, self.name)

    @property
    def table(self) -> Table:
        """There is not one table behind it.

        Raises:
            InvalidInputError: always.
        """
        _refuse(self.name)

    def reload(self) -> GlobalTable:
        """The same system table: each read shows the lake as it is."""
        return self


def _refuse(name: str, *_: object, **__: object) -> NoReturn:
    raise InvalidInputError(
        "system table is about the whole lake, so it is only read, as it is now",
        name=name,
        hint="open a table for its past, its branches and its changes",
    )


@dataclass(frozen=True, slots=True)
class GlobalTables:
    """The system tables of a lake by name."""

    catalog: Catalog
    options: Mapping[str, str]
    """The options of the lake, without credentials."""

    def names(self) -> list[str]:
        """The names of those that there are."""
        enabled = self.options.get(CATALOG_OPTIONS, "false").lower() == "true"
        return ["tables", "partitions", "all_table_options", *(["catalog_options"] if enabled else [])]

    def open(self, name: str) -> GlobalTable:
        """A system table by the name behind the dot, in any case.

        Raises:
            NotFoundError: it does not exist, or is not enabled.
        """
        system = name.lower()
        if system not in self.names():
            others = f"they are {', '.join(self.names())}"
            enable = f"open the lake with storage={{'{CATALOG_OPTIONS}': True}}"
            raise NotFoundError(
                "system table of the lake does not exist",
                code="table-not-found",
                table=f"{SYSTEM_DATABASE}.{ascii(name[:80])[1:-1]}",
                hint=enable if system == "catalog_options" else others,
            )
        layout = TableLayout()
        schema, schemas = schema_of(f"{SYSTEM_DATABASE}.{system}"), SchemaStore(self.catalog.env.io, layout)
        # A handle has stores; these are of the folder of the lake, where no table is, and are not read.
        store = open_stores(self.catalog.env, schema, schemas, layout=layout)
        source = GlobalSource(self.catalog, system, self.options)
        return GlobalTable(f"{SYSTEM_DATABASE}.{system}", store, source=source)


def refuse_system_database(database: str, action: str) -> None:
    """Refuse to change the database of the system tables.

    Raises:
        InvalidInputError: it is that database.
    """
    if database == SYSTEM_DATABASE:
        raise InvalidInputError(
            "database belongs to the system tables of the lake",
            code="system-name",
            database=database,
            action=action,
            hint="use another database",
        )


# ------------------------------------------------------------------------------------------------------------- rows


def _all_tables(catalog: Catalog) -> list[Table]:
    """The tables of all databases; those that are dropped in between are left out."""
    names = [f"{database}.{table}" for database in catalog.databases() for table in sorted(_names(catalog, database))]

    def load(name: str) -> Table | None:
        try:
            return catalog.load_table(name, branch=MAIN_BRANCH)
        except NotFoundError:
            return None

    return [table for table in catalog.env.executor.map(load, names) if table is not None]


def _names(catalog: Catalog, database: str) -> list[str]:
    try:
        return catalog.tables(database)
    except NotFoundError:
        return []


def _split(tables: list[Table]) -> dict[str, list[str]]:
    parts = [table.name.partition(".") for table in tables]
    return {"database_name": [each[0] for each in parts], "table_name": [each[2] for each in parts]}


def _tables(tables: list[Table]) -> pa.Table:
    unknown = [None] * len(tables)
    return make_table(
        "sys.tables",
        {
            **_split(tables),
            "table_type": [table.schema.options.get("type", "table") for table in tables],
            "partitioned": [bool(table.partition_by) for table in tables],
            "primary_key": [bool(table.primary_key) for table in tables],
            "owner": unknown,
            "created_at": unknown,
            "created_by": unknown,
            "updated_at": unknown,
            "updated_by": unknown,
            "record_count": unknown,
            "file_size_in_bytes": unknown,
            "file_count": unknown,
            "last_file_creation_time": unknown,
        },
    )


def _partitions(catalog: Catalog) -> pa.Table:
    partitioned = [table for table in _all_tables(catalog) if table.partition_by]
    found = catalog.env.executor.map(_partitions_of, partitioned)
    return pa.concat_tables(found) if found else schema_of("sys.partitions").to_arrow().empty_table()


def _partitions_of(table: Table) -> pa.Table:
    newest = TableOptions().of(TravelOptions)
    sums = at_point(table.store, newest, lambda snapshot: sum_files(table.store, snapshot, "partition"))
    times = sums.column("creation_time_ms_max").to_pylist()
    context, names = table.context, table.name.partition(".")
    legacy = context.paths.options.legacy_partition_name
    return make_table(
        "sys.partitions",
        {
            "database_name": [names[0]] * sums.num_rows,
            "table_name": [names[2]] * sums.num_rows,
            "partition_name": partition_names(context, sums.column("partition"), legacy=legacy),
            "record_count": sums.column("row_count_sum"),
            "file_size_in_bytes": sums.column("file_size_sum"),
            "file_count": sums.column("file_name_count"),
            "last_file_creation_time": [None if time is None else from_local_ms(time) for time in times],
            "done": [False] * sums.num_rows,
        },
    )


def _table_options(tables: list[Table]) -> pa.Table:
    listed = [
        (table, key, value)
        for table in tables
        for key, value in sorted([*table.schema.options.items(), ("path", table_address(table.context))])
    ]
    return make_table(
        "sys.all_table_options",
        {
            **_split([table for table, _, _ in listed]),
            "key": [key for _, key, _ in listed],
            "value": [value for _, _, value in listed],
        },
    )
