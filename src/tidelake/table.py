"""The handle of a table: location, schema and doors. Every method is one delegation to a verb."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.expr.tree import Predicate
from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.commit.abort import AbortResult
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.commit.options import ManifestOptions, TableShape
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.inspect import system_tables
from tidelake.ops.maintain.check import CheckReport, check_table
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.spec.evolution import Change
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore, open_stores


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one schema. Immutable: `alter` returns a new handle, and `reload` one with the current schema."""

    name: str
    store: TableStore

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
        """The options that are set."""
        return self.schema.options

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
        probe_create_exclusive(self.store.env.io, ids=self.store.env.ids)
        prefix = self.options.get("commit.user-prefix")
        fresh = self.store.env.ids.uuid()
        user = commit_user or (f"{prefix}_{fresh}" if prefix else fresh)
        return TableCommit(Committer(self.store, user))

    def alter(self, *changes: Change) -> Table:
        """Apply schema changes as one atomic change and return the table with the new schema.

        Raises:
            InvalidInputError: a change is not allowed.
        """
        store = self.store
        schema = run_alter(store.env, store.schemas, store.snapshots, changes)
        return open_table(store.env, self.name, schema, store.schemas)

    def reload(self) -> Table:
        """The same table with its current schema.

        Raises:
            NotFoundError: it was dropped.
        """
        self.store.schemas.forget()
        return load_table(self.store.env, self.name, branch=self.store.layout.branch)

    def check(self, *, deep: bool = False) -> CheckReport:
        """Check every invariant of the table; changes nothing."""
        shape = TableShape.parse(self.options)
        return check_table(
            self.store,
            deep=deep,
            legacy_names=shape.legacy_partition_name,
            default_name=shape.default_partition_name,
        )

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

    def truncate(self) -> CommitResult:
        """Delete every row."""
        return self._committer.truncate()

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
    manifest = ManifestOptions.parse(schema.options)
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
