"""The data source `tidelake` of Spark: tables by path, for code that only has `spark.read` and `df.write`.

Spark builds the source, its reader and its writer several times, in several processes: constructors do nothing, and
only a commit changes a table. Spark gives a Python data source neither a shuffle nor column pruning, so `table.write`
and `to_spark` are faster wherever they can be called.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelake.api import open_table
from tidelake.catalog.names import split_name
from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.datasource.reader import PushingReader, TableReader
from tidelake.engines.spark.datasource.stream_writer import CHECKPOINT, StreamTableWriter
from tidelake.engines.spark.datasource.writer import TableWriter, plan_table
from tidelake.engines.spark.read.source_rows import check_struct, source_struct
from tidelake.engines.spark.stream.limits import LIMIT_KEYS
from tidelake.engines.spark.stream.source import StreamSettings, TableStream
from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.ops.read.placed import hidden_among, hidden_fields
from tidelake.ops.scan.travel import is_local_time
from tidelake.options.values import option_text
from tidelake.query import ROWKIND, Shape, with_request
from tidelake.spec.layout import table_dir
from tidelake.table import Table
from tidelake.table.placed import PlacedScan

NAME: Final = "tidelake"
STORAGE: Final = "storage."
"""The prefix of the options of the storage."""
_BRANCH: Final = "$branch_"
_OVERWRITE: Final = "partitionoverwritemode"
_TASKS: Final = "numpartitions"
_PUSH: Final = "pushfilters"
_CHANGELOG: Final = "read.changelog"
_PLACE: Final = frozenset({"path", "paths", "catalog", "warehouse", "database", "table"})
_QUERY_NAME: Final = "queryname"
"""What Spark's `DataStreamWriter.queryName` leaves in the options of the sink."""
_OWN: Final = _PLACE | {"columns", "where", _TASKS, _OVERWRITE, _PUSH, _CHANGELOG, CHECKPOINT, _QUERY_NAME}
_SPARKS: Final = frozenset({"provider", "location", "owner", "external", "is_managed_location", "comment", "collation"})
"""Keys that Spark's own catalog adds to the options of its tables."""
_UNNAMED: Final = "load its path, or set the options warehouse, database and table"
_NO_OPTIONS: Final = (
    f"{_UNNAMED}; Spark does not pass the options of a table in its own catalog to a Python source: make a temporary"
    f" view USING {NAME} OPTIONS (path …) instead, or add WITH (path = …) behind the name"
)
_MOMENTS: Final = ("scan.timestamp", "incremental-between-timestamp")
_PUSHER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write, sorted by the part that uses them."""

    location: str
    name: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    columns: tuple[str, ...] | None = None
    where: str | None = None
    push: bool = False
    """Whether the reader accepts filters that Spark pushes down."""
    tasks: int | None = None
    dynamic_overwrite: bool | None = None
    table: Mapping[str, str] = field(default_factory=dict)
    """Options of the table: for this use, or those of a table that is created."""

    limits: Mapping[str, str] = field(default_factory=dict)
    """The options that limit the batches of a stream."""
    kinds: bool = False
    """Whether the kinds of rows come in front."""
    ref: TableRef | None = field(default=None, repr=False)
    """The table, if it is known without its location."""

    @classmethod
    def parse(cls, given: Mapping[str, str], ref: TableRef | None = None) -> SourceOptions:
        """Parse the options from Spark, whose keys are in lower case; with `ref` they do not name the table.

        Raises:
            InvalidInputError: they do not name a table, or a value is wrong.
        """
        location, name, branch = _locate(given) if ref is None else (ref.grant.location, ref.name, None)
        rest = {
            key: value
            for key, value in given.items()
            if key not in _OWN
            and key not in _SPARKS
            and key not in LIMIT_KEYS
            and not key.startswith((STORAGE, "option."))
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
            {key: value for key, value in given.items() if key in LIMIT_KEYS},
            given.get(_CHANGELOG, "false").strip().lower() == "true",
            ref,
        )

    def open(self) -> Table:
        """Open the table, with the options of this use.

        Raises:
            NotFoundError: it does not exist.
            InvalidInputError: an option is wrong.
        """
        _refuse_local_times(self.table)
        if self.ref is not None:
            table = self.ref.open().reload().with_options(self.ref.dynamic)
        else:
            table = open_table(self.location, storage=self.storage)
        return table.with_options(self.table) if self.table else table

    def open_stream(self) -> Table:
        """Open the table with its newest columns, also where the options name a snapshot to begin with.

        Raises:
            NotFoundError: it does not exist.
            InvalidInputError: an option is wrong.
        """
        table = self.open()
        newest = table.store.schemas.latest() or table.schema
        return replace(table, store=replace(table.store, schema=newest))


class TidelakeSource(DataSource):
    """Reads and writes tables by path, or by `warehouse`, `database` and `table`."""

    bound: ClassVar[TableRef | None] = None
    """The table of a class that was made for one table; see `stream_frame`."""

    def _parse(self) -> SourceOptions:
        return SourceOptions.parse(self.options, self.bound)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the table, or those that the option `columns` names.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: an option is wrong.
            UnsupportedError: Spark does not have the type of a column.
        """
        options = self._parse()
        scan = options.open().scan(options.columns)
        if isinstance(scan, PlacedScan):
            if options.kinds:
                scan.refuse_changes()
            return source_struct(scan.fields)
        return source_struct((with_request(scan, shape=Shape.AUDIT_LOG) if options.kinds else scan).request().fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns.

        Raises:
            InvalidInputError: the table does not have a column, or a column has another type.
        """
        options = self._parse()
        table = options.open()
        hidden = hidden_fields(hidden_among(schema.names, table.schema), table.schema)
        check_struct(
            StructType([each for each in schema if not (options.kinds and each.name == ROWKIND)]),
            replace(table.schema, fields=(*table.schema.fields, *hidden)),
        )
        # If the next query on a frame does not have filters, Spark reuses the reader with those of the last query. So
        # accepting filters is right only for a frame that is used once, and only the user knows that.
        kind = PushingReader if options.push and _is_asked_to_push() else TableReader
        return kind.of(table, schema, options.tasks, options.where, kinds=options.kinds)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A reader of these columns as a stream. Errors are raised when it is first used."""
        return TableStream(partial(_stream_settings, dict(self.options), self.bound), schema)

    def streamWriter(  # noqa: N802 - PySpark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A writer of the micro-batches of a stream with these columns.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: the columns do not fit the table, or an option is wrong.
            UnsupportedError: only `tl.stream_to` can write to such a table.
        """
        options = self._parse()
        _refuse_other_writes(options, "use tl.stream_to(df, table, checkpoint=…), or alter() the table before")
        checkpoint = self.options.get(CHECKPOINT)
        return StreamTableWriter.of(options.open(), schema, overwrite=overwrite, checkpoint=checkpoint)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of rows with these columns. A table that does not exist is created when they are committed.

        Raises:
            InvalidInputError: the columns do not fit the table, or an option is wrong.
            UnsupportedError: only `table.write` can write to such a table.
        """
        options = self._parse()
        _refuse_other_writes(options, "use table.write(df), or alter() the table before")
        try:
            table, fresh = options.open(), False
        except NotFoundError as error:
            if error.code != "table-not-found":
                raise
            table, fresh = plan_table(options.location, options.name, options.storage, schema, options.table), True
        return TableWriter.of(table, schema, fresh=fresh, overwrite=overwrite, dynamic=options.dynamic_overwrite)


def stream_frame(table: Table, session: SparkSession, options: Mapping[str, object]) -> DataFrame:
    """A table as a streaming frame, with the columns that it has now.

    The source is registered under a name of its own, with the access to the storage inside: options of a source are
    shown in plans, and credentials must not be.

    Raises:
        InvalidInputError: an option is wrong, or no other process can reach the storage.
        UnsupportedError: Spark does not have the type of a column.
    """
    texts = {key.lower(): option_text(key, value) for key, value in options.items()}
    named = sorted(key for key in texts if key in _PLACE or key.startswith(STORAGE))
    if named:
        raise InvalidInputError("the lake says where the table is", options=", ".join(named), hint="leave them out")
    ref = TableRef.of(table.name, table.store, table.dynamic)
    place = json.dumps([ref.grant.location, ref.branch, dict(ref.dynamic)], sort_keys=True)
    name = f"{NAME}_{zlib.crc32(place.encode()):08x}"
    session.dataSource.register(_bind(name, ref))
    parsed = SourceOptions.parse(texts, ref)
    scan = parsed.open_stream().scan(parsed.columns)
    if isinstance(scan, PlacedScan):
        scan.refuse_changes()
    struct = source_struct((with_request(scan, shape=Shape.CHANGES) if parsed.kinds else scan).request().fields)
    return session.readStream.format(name).schema(struct).options(**texts).load()


def _bind(name: str, ref: TableRef) -> type[TidelakeSource]:
    """The source of one table. Defined in here, it is pickled as a value, with the table."""

    class BoundSource(TidelakeSource):
        """Reads one table, whatever its options."""

        bound = ref

        @classmethod
        def name(cls) -> str:
            """The name of the format."""
            return name

    return BoundSource


def _stream_settings(given: Mapping[str, str], ref: TableRef | None) -> StreamSettings:
    options = SourceOptions.parse(given, ref)
    return StreamSettings(
        options.open_stream, options.limits, options.where, options.kinds, options.columns is not None, options.tasks
    )


def _refuse_other_writes(options: SourceOptions, instead: str) -> None:
    """Refuse options that the data source does not have for writes; `instead` says what changes columns."""
    if options.columns is not None or options.where is not None:
        raise InvalidInputError(
            "the options columns and where are for reads only", hint="use select and filter of the frame"
        )
    if options.table.get("write.merge-schema", "false").strip().lower() == "true":
        raise UnsupportedError(
            "data source does not change the columns of a table", option="write.merge-schema", hint=instead
        )


def _refuse_local_times(options: Mapping[str, str]) -> None:
    """Refuse a timestamp without a zone: it means that of the session, which Spark does not pass to a Python source."""
    for key in _MOMENTS:
        for text in options.get(key, "").split(","):
            if text and is_local_time(text):
                raise InvalidInputError(
                    "timestamp does not have a time zone, and the data source does not know that of the session",
                    option=key,
                    value=text,
                    hint=f"write {text.strip()}Z or an offset such as +02:00, or use milliseconds",
                )


def _is_asked_to_push() -> bool:
    """Whether this is the process in which Spark pushes filters down.

    While `spark.sql.python.filterPushdown.enabled` is off, as by default, Spark fails if a reader accepts filters, and
    no Python process can see the setting. The process for the push-down runs only if it is on.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHER in sys.modules or (started is not None and started.name == _PUSHER)


def _locate(given: Mapping[str, str]) -> tuple[str, str, str | None]:
    """The location of the table, its name, and the branch in the name."""
    if "paths" in given:
        raise InvalidInputError("several paths are given", hint="load each table separately, and use union()")
    if "catalog" in given:
        raise InvalidInputError(
            "data source does not support catalogs of Spark",
            option="catalog",
            hint="set warehouse, database and table, or load the path of the table",
        )
    warehouse, path = given.get("warehouse"), given.get("path")
    if warehouse is None:
        if path is None or "database" in given or "table" in given:
            raise InvalidInputError("table is not named", hint=_UNNAMED if given else _NO_OPTIONS)
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
            raise InvalidInputError("list of columns is not JSON", columns=text, hint='write ["a", "b"]') from cause
        return tuple(str(each) for each in listed)
    return tuple(each.strip() for each in text.split(","))


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidInputError(
            "numPartitions must be a positive integer", option="numPartitions", value=text, hint="write 8"
        )
    return int(text)


def _is_dynamic(text: str | None) -> bool | None:
    if text is None:
        return None
    word = text.strip().lower()
    if word not in ("static", "dynamic"):
        raise InvalidInputError(
            "partitionOverwriteMode must be static or dynamic",
            option="partitionOverwriteMode",
            value=text,
            hint="use dynamic to replace only partitions with new rows",
        )
    return word == "dynamic"
