"""The data source `tidelake` of Spark: tables by path, for who only has `spark.read` and `df.write`.

Spark builds the source, its reader and its writer again in several processes: nothing happens in a constructor, and
nothing but a commit changes a table. Spark gives a Python source neither a shuffle nor column pruning, so the engine
itself (`table.write`, `to_spark`) is the better way wherever it can be called.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from tidelake.api import open_table
from tidelake.catalog.filesystem import split_name
from tidelake.engines.spark.source_read import PushingReader, TableReader, check_struct, loose
from tidelake.engines.spark.source_write import TableWriter, planned_table
from tidelake.engines.spark.types import struct_of
from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.ops.scan.travel import is_local_time
from tidelake.query import chosen_columns
from tidelake.spec.layout import table_dir
from tidelake.table import Table

NAME: Final = "tidelake"
STORAGE: Final = "storage."
"""Begins the options of the storage."""
_BRANCH: Final = "$branch_"
_OVERWRITE: Final = "partitionoverwritemode"
_TASKS: Final = "numpartitions"
_PUSH: Final = "pushfilters"
_OWN: Final = frozenset(
    {"path", "paths", "columns", "where", "catalog", "warehouse", "database", "table", _TASKS, _OVERWRITE, _PUSH}
)
_SPARKS: Final = frozenset({"provider", "location", "owner", "external", "is_managed_location", "comment", "collation"})
"""What Spark's own catalog adds to the options of its tables."""
_UNNAMED: Final = "load its path, or set the options warehouse, database and table"
_NOT_TOLD: Final = (
    f"{_UNNAMED}; Spark does not tell a Python source the options of a table in its own catalog: make a temporary view"
    f" USING {NAME} OPTIONS (path …) instead, or add WITH (path = …) behind the name"
)
_MOMENTS: Final = ("scan.timestamp", "incremental-between-timestamp")
_PUSHER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write, sorted by who they are for."""

    location: str
    name: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    columns: tuple[str, ...] | None = None
    where: str | None = None
    push: bool = False
    """Whether filters of Spark are taken over."""
    tasks: int | None = None
    dynamic_overwrite: bool | None = None
    table: Mapping[str, str] = field(default_factory=dict)
    """Options of the table: dynamic ones, or those that it is made with."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options as Spark hands them over, keys in lower case.

        Raises:
            InvalidInputError: they name no table, or a value is wrong.
        """
        location, name, branch = _place(given)
        rest = {
            key: value
            for key, value in given.items()
            if key not in _OWN and key not in _SPARKS and not key.startswith((STORAGE, "option."))
        }
        if branch is not None:
            rest["branch"] = branch
        return cls(
            location,
            name,
            {key.removeprefix(STORAGE): value for key, value in given.items() if key.startswith(STORAGE)},
            _columns(given.get("columns")),
            given.get("where"),
            given.get(_PUSH, "false").strip().lower() == "true",
            _count(given.get(_TASKS)),
            _is_dynamic(given.get(_OVERWRITE)),
            rest,
        )

    def open(self) -> Table:
        """The table, with the options of this use.

        Raises:
            NotFoundError: there is none.
            InvalidInputError: an option is wrong.
        """
        _refuse_local_times(self.table)
        table = open_table(self.location, storage=self.storage)
        return table.with_options(self.table) if self.table else table


class TidelakeSource(DataSource):
    """Reads and writes tables by path, or by `warehouse`, `database` and `table`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the table, or those that the option `columns` names.

        Raises:
            NotFoundError: there is no such table.
            InvalidInputError: an option is wrong.
            UnsupportedError: Spark has no counterpart to the type of a column.
        """
        options = SourceOptions.parse(self.options)
        table = options.open()
        found = struct_of([table.schema.field(name) for name in chosen_columns(table.schema, options.columns)])
        return StructType(
            [StructField(each.name, loose(each.dataType), each.nullable, each.metadata) for each in found]
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns.

        Raises:
            InvalidInputError: the table has no such columns, or they are of other types.
        """
        options = SourceOptions.parse(self.options)
        table = options.open()
        check_struct(schema, table.schema)
        # Spark reads a frame with the filters of its last query where the next one has none: taking them over is right
        # only for a frame that is used once, which its user alone knows.
        kind = PushingReader if options.push and _is_asked_to_push() else TableReader
        return kind.of(table, schema, options.tasks, options.where)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A reader that says that streams are not read yet."""
        del schema
        return NoStream()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 - PySpark's name
        """Refused.

        Raises:
            UnsupportedError: always.
        """
        del schema, overwrite
        raise UnsupportedError(
            "data source does not write streams yet",
            hint="write each batch: df.writeStream.foreachBatch(lambda batch, number: table.write(batch,"
            " commit_user='job', identifier=number))",
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of rows with these columns; a table that is not there yet is made when they are committed.

        Raises:
            InvalidInputError: the columns do not fit the table, or an option is wrong.
            UnsupportedError: only `table.write` can write to such a table.
        """
        options = SourceOptions.parse(self.options)
        if options.columns is not None or options.where is not None:
            raise InvalidInputError(
                "columns and rows are only chosen to be read", hint="use select and filter of the frame"
            )
        if options.table.get("write.merge-schema", "false").strip().lower() == "true":
            raise UnsupportedError(
                "data source does not change the columns of a table",
                option="write.merge-schema",
                hint="use table.write(df), or alter() the table before",
            )
        try:
            table, fresh = options.open(), False
        except NotFoundError as error:
            if error.code != "table-not-found":
                raise
            table, fresh = planned_table(options.location, options.name, options.storage, schema, options.table), True
        return TableWriter.of(table, schema, fresh=fresh, overwrite=overwrite, dynamic=options.dynamic_overwrite)


def _refuse_local_times(options: Mapping[str, str]) -> None:
    """Refuse a moment without a zone: it would be in that of the session, which Spark does not tell a Python source."""
    for key in _MOMENTS:
        for text in options.get(key, "").split(","):
            if text and is_local_time(text):
                raise InvalidInputError(
                    "moment has no time zone, and the data source is not told that of the session",
                    option=key,
                    value=text,
                    hint=f"write {text.strip()}Z or an offset such as +02:00, or use milliseconds",
                )


class NoStream(DataSourceStreamReader):
    """Says that streams are not read yet.

    It is made without an error, since Spark replaces one that is raised before there is a reader by one of its own.
    """

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Refused.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "data source does not read streams yet",
            hint="use table.follow() of the table, or read what changed with table.changes(since=…).to_spark()",
        )

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Refused.

        Raises:
            UnsupportedError: always.
        """
        return self.initialOffset()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing, since no part of a stream is ever planned."""
        del partition
        return iter(())


def _is_asked_to_push() -> bool:
    """Whether this is the process in which Spark hands filters over.

    A reader that takes filters is an error in any other while `spark.sql.python.filterPushdown.enabled` is off, as it
    is by default, and no process can see that setting.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHER in sys.modules or (started is not None and started.name == _PUSHER)


def _place(given: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Where the table lies, its name, and the branch that the name tells."""
    if "paths" in given:
        raise InvalidInputError("several paths are given", hint="load each table by itself, and use union()")
    if "catalog" in given:
        raise InvalidInputError(
            "catalogs of Spark are not known to the data source",
            option="catalog",
            hint="set warehouse, database and table, or load the path of the table",
        )
    warehouse, path = given.get("warehouse"), given.get("path")
    if warehouse is None:
        if path is None or "database" in given or "table" in given:
            raise InvalidInputError("table is not named", hint=_UNNAMED if given else _NOT_TOLD)
        return path, path.rstrip("/").rpartition("/")[2], None
    if path is not None:
        raise InvalidInputError("both a path and a warehouse are given", hint="give one of them")
    full = f"{given['database']}.{given.get('table', '')}" if "database" in given else given.get("table", "")
    base, dollar, branch = full.partition(_BRANCH)
    return f"{warehouse.rstrip('/')}/{table_dir(*split_name(base))}", base, branch if dollar else None


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except ValueError as cause:
            raise InvalidInputError("list of columns is no JSON", columns=text, hint='write ["a", "b"]') from cause
        return tuple(str(each) for each in listed)
    return tuple(each.strip() for each in text.split(","))


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidInputError("number of tasks is none", option="numPartitions", value=text, hint="write 8")
    return int(text)


def _is_dynamic(text: str | None) -> bool | None:
    if text is None:
        return None
    word = text.strip().lower()
    if word not in ("static", "dynamic"):
        raise InvalidInputError(
            "overwrite mode is not known", option="partitionOverwriteMode", value=text, hint="use static or dynamic"
        )
    return word == "dynamic"
