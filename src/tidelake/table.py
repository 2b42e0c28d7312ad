"""The handle of a table: location, schema and doors. Every method is one delegation to a verb."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.expr.node import Scalar
from tidelake.expr.parse import parse_scalar, parse_where
from tidelake.expr.tree import Predicate, lit
from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.commit.abort import AbortResult
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.inspect import system_tables
from tidelake.ops.maintain.check import CheckReport, check_table
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.travel import TravelOptions, resolve
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.rows import to_batches
from tidelake.ops.write.verbs import (
    CompactionPlan,
    Target,
    plan_compaction,
    run_compaction,
    run_delete,
    run_update,
    run_write,
)
from tidelake.options import option_text
from tidelake.query import ChangeRange, Scan, chosen_columns
from tidelake.spec.avro import codec_name
from tidelake.spec.evolution import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    Position,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
)
from tidelake.spec.layout import TableLayout
from tidelake.spec.option_catalog import is_immutable
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.type_codec import parse_type
from tidelake.spec.types import DataType
from tidelake.store.paths import DataPaths, PathOptions
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore, open_stores

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one schema. Immutable: `alter` returns a new handle, and `reload` one with the current schema."""

    name: str
    store: TableStore
    dynamic: Mapping[str, str] = field(default_factory=dict)

    # -------------------------------------------------------------------------------------------- what it is

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self.store.env.io.root

    @property
    def schema(self) -> Schema:
        """Columns, keys and options."""
        return self.store.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key columns; none for an append table."""
        return tuple(self.schema.primary_keys)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self.schema.partition_keys)

    @property
    def options(self) -> Mapping[str, str]:
        """The options in force: those of the table, and over them those of `with_options`."""
        return {**self.schema.options, **self.dynamic}

    @property
    def paths(self) -> DataPaths:
        """Where data files lie."""
        return DataPaths(self.store.layout, self.schema, PathOptions.parse(self.schema.options))

    @property
    def comment(self) -> str | None:
        """The table's comment."""
        return self.schema.comment

    def __repr__(self) -> str:
        latest = self.store.snapshots.latest_id()
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema.fields)
        keys = f", primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        parts = f", partitioned by ({', '.join(self.partition_by)})" if self.partition_by else ""
        return f"Table({self.name}: {columns}{keys}{parts}, {f'snapshot {latest}' if latest else 'empty'})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{field.id}</td><td>{escape(field.name)}</td><td>{escape(str(field.type))}</td></tr>"
            for field in self.schema.fields
        )
        head = "<tr><th>id</th><th>column</th><th>type</th></tr>"
        return f"<div><b>{escape(repr(self))}</b><table>{head}{rows}</table></div>"

    # -------------------------------------------------------------------------------------------- reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """A lazy read: some columns, the rows that `where` keeps (SQL text or an expression), at most `limit`.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        if limit is not None and limit < 0:
            raise InvalidInputError("limit must not be negative", limit=limit)
        return Scan(
            name=self.name,
            store=self.store,
            paths=self.paths,
            columns=chosen_columns(self.schema, columns),
            where=self._predicate(where),
            limit=limit,
            options=self.options,
        )

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Rows as an Arrow table."""
        return self.scan(columns, where, limit).to_arrow()

    def to_batches(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Rows as a stream of Arrow batches."""
        return self.scan(columns, where, limit).to_batches()

    def to_polars(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, limit: int | None = None
    ) -> pl.DataFrame:
        """Rows as a Polars frame."""
        return self.scan(columns, where, limit).to_polars()

    def to_pandas(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, limit: int | None = None
    ) -> pd.DataFrame:
        """Rows as a pandas frame."""
        return self.scan(columns, where, limit).to_pandas()

    def to_duckdb(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, limit: int | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Rows as a DuckDB relation."""
        return self.scan(columns, where, limit).to_duckdb()

    def count(self, where: Predicate | str | None = None) -> int:
        """How many rows there are."""
        return self.scan(where=where).count()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    def changes(
        self,
        since: int,
        until: int | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> Scan:
        """A lazy read of the rows that snapshots after `since` up to `until` added; first column `rowkind`.

        Raises:
            NotFoundError: snapshots of that range are not kept.
        """
        last = until if until is not None else self.store.snapshots.latest_id() or 0
        return replace(self.scan(columns, where), changes=ChangeRange(since, last))

    def at(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: str | datetime | int | None = None,
        watermark: int | None = None,
    ) -> Table:
        """The same table as it was, with the schema it had then.

        `timestamp` is a text (UTC), a datetime or milliseconds since the epoch.

        Raises:
            InvalidInputError: not exactly one point in time is given.
            NotFoundError: there is no such snapshot or tag.
        """
        points: dict[str, str] = {}
        if snapshot is not None:
            points["scan.snapshot-id"] = str(snapshot)
        if tag is not None:
            points["scan.tag-name"] = tag
        if isinstance(timestamp, datetime):
            aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
            points["scan.timestamp-millis"] = str(int(aware.timestamp() * 1000))
        elif isinstance(timestamp, int):
            points["scan.timestamp-millis"] = str(timestamp)
        elif timestamp is not None:
            points["scan.timestamp"] = timestamp
        if watermark is not None:
            points["scan.watermark"] = str(watermark)
        if len(points) != 1:
            raise InvalidInputError("give exactly one point in time", given=", ".join(points) or "none")
        return self.with_options(points)

    def with_options(self, options: Mapping[str, object]) -> Table:
        """The same table with dynamic options: `scan.*`, file formats and so on.

        Raises:
            InvalidInputError: an option is immutable, or its value is wrong.
        """
        texts = {key: option_text(key, value) for key, value in options.items()}
        fixed = next((key for key in texts if is_immutable(key) and self.options.get(key) != texts[key]), None)
        if fixed is not None:
            raise InvalidInputError("option cannot be changed for one use", code="option-immutable", option=fixed)
        dynamic = {**self.dynamic, **texts}
        travel = TravelOptions.parse(dynamic)
        schema = self.store.schema
        if travel.given:
            point = resolve(self.store, travel)
            schema = self.store.schemas.get(point.schema_id) if point else schema
        return replace(self, store=replace(self.store, schema=schema), dynamic=dynamic)

    def _predicate(self, where: Predicate | str | None) -> Predicate | None:
        return parse_where(where, self.schema.fields) if isinstance(where, str) else where

    # -------------------------------------------------------------------------------------------- writing

    def write(
        self,
        data: Any,
        mode: str = "append",
        *,
        partition: Mapping[str, object] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> CommitResult:
        """Write rows: Arrow, Polars or pandas data, a list of dicts, an iterable of batches.

        `mode="overwrite"` replaces the table or the partitions that `partition` names, `mode="overwrite-dynamic"` the
        partitions present in the data. With a commit user and an identifier a repeated call is a no-op.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was written.
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether the commit is there.
        """
        if identifier is not None and commit_user is None:
            raise InvalidInputError("an identifier needs a commit user", hint="pass commit_user= too")
        committer = self._committer(commit_user)
        return run_write(self._target(), committer, data, mode=mode, partition=partition, identifier=identifier)

    def delete(self, where: Predicate | str) -> CommitResult:
        """Delete the rows that a condition keeps.

        Raises:
            CommitConflictError: another job changed one of the files meanwhile.
        """
        predicate = self._predicate(where)
        assert predicate is not None
        return run_delete(self._target(), self._committer(None), predicate)

    def update(self, assignments: Mapping[str, object], where: Predicate | str) -> CommitResult:
        """Change columns of the rows that a condition keeps; values are SQL texts or expressions.

        Raises:
            InvalidInputError: a column does not exist, or a value does not fit it.
            CommitConflictError: another job changed one of the files meanwhile.
        """
        predicate = self._predicate(where)
        assert predicate is not None
        scalars = {name: self._scalar(value) for name, value in assignments.items()}
        return run_update(self._target(), self._committer(None), scalars, predicate)

    def _scalar(self, value: object) -> Scalar:
        return parse_scalar(value, self.schema.fields) if isinstance(value, str) else lit(value).scalar

    def compact(
        self,
        full: bool = False,
        where: Predicate | str | None = None,
        *,
        plan_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionPlan | CommitResult:
        """Join small files; `full` joins all that are small. `plan_only` tells what would be done.

        Raises:
            CommitConflictError: another job changed the same files meanwhile.
        """
        target = self._target()
        plan = plan_compaction(target, full=full, where=self._predicate(where))
        return plan if plan_only else run_compaction(target, self._committer(None), plan, progress)

    def truncate(self) -> CommitResult:
        """Delete every row."""
        return self.new_commit().truncate()

    def new_write(self, commit_user: str | None = None) -> TableWrite:
        """A writer whose messages are committed apart, for engines."""
        self._refuse_travelled()
        return TableWrite(self._target().writer(), self.schema, commit_user)

    def _target(self) -> Target:
        self._refuse_travelled()
        return Target(self.name, self.store, self.paths, self.options)

    def _committer(self, user: str | None) -> Committer:
        probe_create_exclusive(self.store.env.io, ids=self.store.env.ids)
        return Committer(self.store, user or self._fresh_user())

    def _fresh_user(self) -> str:
        prefix = self.options.get("commit.user-prefix")
        fresh = self.store.env.ids.uuid()
        return f"{prefix}_{fresh}" if prefix else fresh

    def _refuse_travelled(self) -> None:
        if TravelOptions.parse(self.dynamic).given:
            raise InvalidInputError(
                "table is read at a point in time and cannot be written there", hint="write to the table itself"
            )

    # -------------------------------------------------------------------------------------------- verbs

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, or None for an empty table."""
        return self.store.snapshots.latest()

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One snapshot.

        Raises:
            NotFoundError: it never existed or has expired.
        """
        return self.store.snapshots.get(snapshot_id)

    def files(
        self, *, where: Predicate | None = None, snapshot: int | None = None, columns: Iterable[str] | None = None
    ) -> pa.Table:
        """The live data files as an entries table; `where` looks at the partition columns.

        Raises:
            InvalidInputError: `where` looks at another column.
            NotFoundError: the snapshot does not exist.
        """
        chosen = self.latest_snapshot() if snapshot is None else self.snapshot(snapshot)
        partitions = (
            EVERY_PARTITION
            if where is None
            else PartitionPredicate(where, self.partition_by, tuple(self.schema.partition_types))
        )
        metas = data_manifests(self.store.manifests, chosen) if chosen else ()
        return live_entries(self.store.manifests, metas, partitions=partitions, columns=columns)

    def new_commit(self, commit_user: str | None = None) -> TableCommit:
        """A committer for one user; without a user a fresh one, for a single batch job.

        Raises:
            StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
            UnsupportedError: the table has an option that commits do not honour.
        """
        self._refuse_travelled()
        return TableCommit(self._committer(commit_user))

    def alter(
        self,
        *changes: Change,
        add: Mapping[str, str | DataType] | None = None,
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        types: Mapping[str, str | DataType] | None = None,
        nullable: Mapping[str, bool] | None = None,
        comments: Mapping[str, str | None] | None = None,
        defaults: Mapping[str, str | None] | None = None,
        move: Mapping[str, Position] | None = None,
        set_options: Mapping[str, object] | None = None,
        unset_options: Iterable[str] = (),
        comment: str | None = None,
    ) -> Table:
        """Change the schema in one atomic step and return the table with the new schema.

        Columns inside a ROW are named with dots: `address.street`. Everything given takes effect together, in the
        order of the arguments.

        Raises:
            InvalidInputError: a change is not allowed; nothing was changed.
        """
        listed = [*changes]
        listed += [AddColumn(path_of(name), typed(dtype)) for name, dtype in (add or {}).items()]
        listed += [DropColumn(path_of(name)) for name in _names(drop)]
        listed += [RenameColumn(path_of(name), new) for name, new in (rename or {}).items()]
        listed += [UpdateType(path_of(name), typed(dtype)) for name, dtype in (types or {}).items()]
        listed += [UpdateNullability(path_of(name), flag) for name, flag in (nullable or {}).items()]
        listed += [UpdateComment(path_of(name), text) for name, text in (comments or {}).items()]
        listed += [UpdateDefault(path_of(name), text) for name, text in (defaults or {}).items()]
        listed += [MoveColumn(path_of(name), where) for name, where in (move or {}).items()]
        listed += [SetOption(key, option_text(key, value)) for key, value in (set_options or {}).items()]
        listed += [RemoveOption(key) for key in _names(unset_options)]
        listed += [UpdateTableComment(comment)] if comment is not None else []
        if not listed:
            raise InvalidInputError("nothing to change", hint="say what: add=, drop=, rename=, types=, set_options= …")
        store = self.store
        schema = run_alter(store.env, store.schemas, store.snapshots, listed)
        return open_table(store.env, self.name, schema, store.schemas)

    def add_column(self, name: str, dtype: str | DataType, *, comment: str | None = None) -> Table:
        """Add a column; older rows read as null."""
        return self.alter(AddColumn(path_of(name), typed(dtype), description=comment))

    def drop_column(self, name: str) -> Table:
        """Drop a column; its id is never used again."""
        return self.alter(drop=[name])

    def rename_column(self, name: str, new: str) -> Table:
        """Rename a column."""
        return self.alter(rename={name: new})

    def change_type(self, name: str, dtype: str | DataType) -> Table:
        """Change the type of a column; older files are cast when they are read."""
        return self.alter(types={name: dtype})

    def set_options(self, options: Mapping[str, object]) -> Table:
        """Set table options."""
        return self.alter(set_options=options)

    def reload(self) -> Table:
        """The same table with its current schema.

        Raises:
            NotFoundError: it was dropped.
        """
        self.store.schemas.forget()
        return load_table(self.store.env, self.name, branch=self.store.layout.branch)

    def check(self, *, deep: bool = False) -> CheckReport:
        """Check every invariant of the table; changes nothing."""
        return check_table(self.store, self.paths, deep=deep)

    @property
    def inspect(self) -> Inspect:
        """System tables as Arrow."""
        return Inspect(self.store)


@dataclass(frozen=True, slots=True)
class Inspect:
    """The system tables of a table, with the columns of `t$name`."""

    store: TableStore

    def snapshots(self) -> pa.Table:
        """Every snapshot that is kept."""
        return system_tables.snapshots_table(self.store)

    def schemas(self) -> pa.Table:
        """Every schema."""
        return system_tables.schemas_table(self.store)

    def options(self) -> pa.Table:
        """The options that are set."""
        return system_tables.options_table(self.store)

    def manifests(self) -> pa.Table:
        """The manifests of the newest snapshot."""
        return system_tables.manifests_table(self.store, self.store.snapshots.latest())

    def files(self) -> pa.Table:
        """The live files of the newest snapshot."""
        return system_tables.files_table(self.store, self.store.snapshots.latest())

    def partitions(self) -> pa.Table:
        """Rows, bytes and files of each partition."""
        return system_tables.partitions_table(self.store, self.store.snapshots.latest())


class TableWrite:
    """Writes rows into files for one job; what it prepares is committed apart."""

    def __init__(self, writer: AppendWriter, schema: Schema, commit_user: str | None) -> None:
        self._writer = writer
        self._schema = schema
        self.user = commit_user

    def write(self, data: Any) -> None:
        """Write rows.

        Raises:
            InvalidInputError: a column or a value does not fit.
        """
        for batch in to_batches(data, self._schema):
            self._writer.write(batch)

    def prepare_commit(self, identifier: int | None = None) -> list[CommitMessage]:
        """Close the files and describe them; `identifier` is told for symmetry with the commit."""
        del identifier
        return self._writer.prepare()

    def close(self) -> None:
        """Remove what was written and not prepared."""
        self._writer.abort()


class TableCommit:
    """Publishes the messages of writers for one commit user."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    @property
    def user(self) -> str:
        """The commit user."""
        return self._committer.user

    def commit(
        self,
        messages: Sequence[CommitMessage],
        *,
        identifier: int | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Publish what writers prepared; repeating a numbered commit is a no-op.

        Raises:
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether a snapshot is there.
        """
        return self._committer.commit(_committable(messages, identifier, watermark, properties))

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        partition: Mapping[str, object] | None = None,
        *,
        dynamic: bool | None = None,
        identifier: int | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace the named partitions, or (dynamic) those that have new files.

        Raises:
            InvalidInputError: a new file lies outside the partitions to replace.
            CommitConflictError: as `commit`.
            CommitUnknownError: as `commit`.
        """
        committable = _committable(messages, identifier, watermark, properties)
        return self._committer.overwrite(committable, partition, dynamic=dynamic)

    def truncate(self, *, identifier: int | None = None) -> CommitResult:
        """Delete every row."""
        return self._committer.truncate(identifier=BATCH_IDENTIFIER if identifier is None else identifier)

    def compact_manifests(self) -> CommitResult:
        """Merge all manifests fully."""
        return self._committer.compact_manifests()

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """Of these identifiers those that are not published yet."""
        return self._committer.filter_committed(identifiers)

    def abort(self, messages: Sequence[CommitMessage], *, identifier: int | None = None) -> AbortResult:
        """Delete files that were never committed; leaves them in any doubt."""
        return self._committer.abort(messages, identifier=identifier)


def open_table(env: Env, name: str, schema: Schema, schemas: SchemaStore) -> Table:
    """A handle on a table whose schema is known."""
    manifest = _manifest_options(schema.options)
    data_directory = schema.options.get("data-file.path-directory")
    layout = replace(schemas.layout, data_directory=data_directory or None)
    store = open_stores(
        env,
        schema,
        schemas,
        layout=layout,
        manifest_codec=manifest.compression,
        manifest_target_bytes=manifest.target_bytes,
    )
    return Table(name, store)


def _manifest_options(options: Mapping[str, str]) -> ManifestOptions:
    """How manifests are written; the defaults where that is unusable: a table opens, and only a commit refuses."""
    try:
        manifest = ManifestOptions.parse(options)
        codec_name(manifest.compression)
    except InvalidInputError:
        return ManifestOptions.parse({})
    return manifest


def load_table(env: Env, name: str, *, branch: str = "main") -> Table:
    """Open the table that lies at the root of the given doors.

    Raises:
        NotFoundError: there is no table.
    """
    schemas = SchemaStore(env.io, TableLayout(branch=branch))
    schema = schemas.latest()
    if schema is None:
        raise NotFoundError(
            "table does not exist",
            code="table-not-found",
            table=name,
            location=env.io.root,
            hint="create it first, or check the name and the folder",
        )
    return open_table(env, name, schema, schemas)


def _committable(
    messages: Sequence[CommitMessage],
    identifier: int | None,
    watermark: int | None,
    properties: Mapping[str, str] | None,
) -> Committable:
    if isinstance(messages, CommitMessage):
        raise InvalidInputError("messages must be a sequence", hint="pass [message]")
    return Committable(
        messages=tuple(messages),
        identifier=BATCH_IDENTIFIER if identifier is None else identifier,
        watermark=watermark,
        properties=dict(properties or {}),
    )


def path_of(name: str) -> str | tuple[str, ...]:
    """A column, or with dots a member of a ROW."""
    return tuple(name.split(".")) if "." in name else name


def typed(dtype: str | DataType) -> DataType:
    """A type, from its text if need be.

    Raises:
        InvalidInputError: the text is no type.
    """
    return parse_type(dtype) if isinstance(dtype, str) else dtype


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
