"""The handle of a table: location, schema and doors. Every method is one delegation to a verb."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError, UnsupportedError
from tidelake.expr.node import Scalar
from tidelake.expr.parse import parse_scalar, parse_where
from tidelake.expr.tree import Predicate, lit
from tidelake.io.env import Env
from tidelake.io.secrets import redact
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.abort import AbortResult
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage, CommitResult, Committable
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.define.checks import check_given, warn_unknown
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.inspect import file_tables, system_tables
from tidelake.ops.inspect.lsm_table import lsm_table
from tidelake.ops.inspect.why import Why, why
from tidelake.ops.maintain.afterwards import run_afterwards
from tidelake.ops.maintain.branches import (
    ForwardPlan,
    branch_store,
    create_branch,
    delete_branch,
    plan_fast_forward,
    run_fast_forward,
)
from tidelake.ops.maintain.check import CheckReport, check_table
from tidelake.ops.maintain.consumers import consumer_store, reset_consumer
from tidelake.ops.maintain.deep_check import check_rows
from tidelake.ops.maintain.expire import ExpireOptions, ExpirePlan, ExpireResult, plan_expire, run_expire
from tidelake.ops.maintain.orphans import OrphanPlan, plan_orphans, run_orphans
from tidelake.ops.maintain.rollback import RollbackPlan, plan_rollback, run_rollback
from tidelake.ops.maintain.tags import (
    TagDeletion,
    TagOptions,
    create_tag,
    plan_tag_deletion,
    rename_tag,
    run_tag_deletion,
    run_tag_expiry,
    tag_store,
)
from tidelake.ops.maintain.times import Moment, Span, before_ms, moment_ms, span_ms
from tidelake.ops.scan.modes import names_a_place
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.topn import parse_order
from tidelake.ops.scan.travel import TravelOptions, resolve
from tidelake.ops.write.append import AppendWriter
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.kinds import batches_with_kinds
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
from tidelake.spec.names import MAIN_BRANCH
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

_BRANCH = "$branch_"


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
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema.fields)
        keys = f", primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        parts = f", partitioned by ({', '.join(self.partition_by)})" if self.partition_by else ""
        return plain(f"Table({self.name}: {columns}{keys}{parts}, {self._state()})")

    def _state(self) -> str:
        """The point that is read; never fails, since a debugger may ask."""
        try:
            point = resolve(self.store, TravelOptions.parse(self.options))
        except TidelakeError as error:
            return f"snapshot cannot be read: {error.message}"
        return f"snapshot {point.id}" if point else "empty"

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = [
            ("", self.comment),
            ("primary key", ", ".join(self.primary_key)),
            ("partitioned by", ", ".join(self.partition_by)),
            ("options", ", ".join(f"{key}={value}" for key, value in sorted(redact(self.options).items()))),
            ("state", self._state()),
        ]
        with suppress(TidelakeError):
            if (point := resolve(self.store, TravelOptions.parse(self.options))) is not None:
                time = datetime.fromtimestamp(point.time_ms / 1000, UTC).isoformat(" ", "seconds")
                facts.append(("rows", point.total_record_count))
                facts.append(("last commit", f"{point.commit_kind.value} by {point.commit_user} at {time}"))
        rows = ((each.id, each.name, each.type, each.description or "") for each in self.schema.fields)
        return html_card(self.name, facts, html_table(("id", "column", "type", "comment"), rows))

    # -------------------------------------------------------------------------------------------- reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> Scan:
        """A lazy read: some columns, the rows that `where` keeps (SQL text or an expression), at most `limit`.

        `order_by` is a column, `"column desc"` or a list of them: null comes first, or last when descending. With a
        limit, files that cannot hold one of the first rows are not read.

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
            order=parse_order(order_by, self.schema),
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows as an Arrow table."""
        return self.scan(columns, where, limit, order_by).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Rows as a stream of Arrow batches."""
        return self.scan(columns, where, limit, order_by).to_batches()

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: Literal[False] = False,
    ) -> pl.DataFrame: ...

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: Literal[True],
    ) -> pl.LazyFrame: ...

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: bool = False,
    ) -> pl.DataFrame | pl.LazyFrame:
        """Rows as a Polars frame; with `lazy` one that reads what its query needs when it is collected."""
        scan = self.scan(columns, where, limit, order_by)
        return scan.to_polars(lazy=True) if lazy else scan.to_polars()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Rows as a pandas frame."""
        return self.scan(columns, where, limit, order_by).to_pandas()

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Rows as a DuckDB relation."""
        return self.scan(columns, where, limit, order_by).to_duckdb()

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
        """The same table with dynamic options: `scan.*`, file formats and so on; None takes one of them back.

        Raises:
            InvalidInputError: an option is immutable, its value is wrong, or two of them contradict each other.
            NotFoundError: there is no such snapshot, tag or branch.
        """
        texts = {key: option_text(key, value) for key, value in options.items() if value is not None}
        warn_unknown(texts)
        fixed = next((key for key in texts if is_immutable(key) and self.options.get(key) != texts[key]), None)
        if fixed is not None:
            raise InvalidInputError("option cannot be changed for one use", code="option-immutable", option=fixed)
        dynamic = {key: text for key, text in {**self.dynamic, **texts}.items() if options.get(key, text) is not None}
        check_given(texts, {**self.schema.options, **dynamic})
        if texts.get("branch", self.store.layout.branch) != self.store.layout.branch:
            return load_table(self.store.env, self.name, branch=texts["branch"]).with_options(dynamic)
        travel = TravelOptions.parse(dynamic)
        schema = self.store.schema
        if travel.given:
            point = resolve(self.store, travel)
            schema = self.store.schemas.get(point.schema_id) if point else schema
        return replace(self, store=replace(self.store, schema=schema), dynamic=dynamic)

    def branch(self, name: str) -> Table:
        """The same table on a branch, readable and writable; `main` is the table itself.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: the name is not usable.
        """
        base = self.name.partition(_BRANCH)[0]
        found = load_table(self.store.env, base if name == MAIN_BRANCH else f"{base}{_BRANCH}{name}", branch=name)
        return found.with_options(self.dynamic) if self.dynamic else found

    def _predicate(self, where: Predicate | str | None) -> Predicate | None:
        if where is not None and not isinstance(where, Predicate | str):
            raise _no_condition(where)
        return parse_where(where, self.schema.fields) if isinstance(where, str) else where

    def _condition(self, where: Predicate | str) -> Predicate:
        predicate = self._predicate(where)
        if predicate is None:
            raise _no_condition(where)
        return predicate

    # -------------------------------------------------------------------------------------------- writing

    def write(
        self,
        data: Any,
        mode: str = "append",
        *,
        partition: Mapping[str, object] | None = None,
        row_kind: str | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> CommitResult:
        """Write rows: Arrow, Polars or pandas data, a list of dicts, an iterable of batches.

        A primary-key table keeps one row per key. Kinds of rows (`+I -U +U -D`) come in a column `rowkind` that the
        table does not have, or in the one that `row_kind` names.

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
        done = run_write(
            self._target(), committer, data, mode=mode, partition=partition, identifier=identifier, row_kind=row_kind
        )
        return self._afterwards(done)

    def delete(self, where: Predicate | str) -> CommitResult:
        """Delete the rows that a condition keeps.

        Raises:
            CommitConflictError: another job changed one of the files meanwhile.
        """
        table = self._newest()
        predicate = table._condition(where)
        return table._afterwards(run_delete(table._target(), table._committer(None), predicate))

    def update(self, assignments: Mapping[str, object], where: Predicate | str) -> CommitResult:
        """Change columns of the rows that a condition keeps; values are SQL texts or expressions.

        Raises:
            InvalidInputError: a column does not exist, or a value does not fit it.
            CommitConflictError: another job changed one of the files meanwhile.
        """
        table = self._newest()
        predicate = table._condition(where)
        if not isinstance(assignments, Mapping):
            raise InvalidInputError("new values are no mapping", got=type(assignments).__name__, hint=_ASSIGN_HINT)
        if not assignments:
            raise InvalidInputError("nothing to update", hint=_ASSIGN_HINT)
        scalars = {name: table._scalar(value) for name, value in assignments.items()}
        return table._afterwards(run_update(table._target(), table._committer(None), scalars, predicate))

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
        table = self._newest()
        target = table._target()
        plan = plan_compaction(target, full=full, where=table._predicate(where))
        if plan_only:
            return plan
        return table._afterwards(run_compaction(target, table._committer(None), plan, progress))

    def truncate(self) -> CommitResult:
        """Delete every row."""
        return self.new_commit().truncate()

    def new_write(self, commit_user: str | None = None) -> TableWrite:
        """A writer whose messages are committed apart, for engines."""
        self._refuse_travelled()
        return TableWrite(self._target().writer(), self.schema, commit_user)

    def _newest(self) -> Table:
        """The table with its current schema: rows that are written anew keep every column they have by now."""
        self._refuse_travelled()
        schema = self.store.schemas.latest()
        if schema is None or schema.id == self.schema.id:
            return self
        return replace(open_table(self.store.env, self.name, schema, self.store.schemas), dynamic=self.dynamic)

    def _target(self) -> Target:
        self._refuse_travelled()
        return Target(self.name, self.store, self.paths, self.options)

    def _committer(self, user: str | None) -> Committer:
        require_exclusive_create(self.store.env, self.options)
        rebaser = self._target().rebaser()
        return Committer(self.store, user or self._fresh_user(), options=self.options, rebaser=rebaser)

    def _afterwards(self, result: CommitResult) -> CommitResult:
        return run_afterwards(self.store, self.paths, self.options, result)

    def _fresh_user(self) -> str:
        prefix = self.options.get("commit.user-prefix")
        fresh = self.store.env.ids.uuid()
        return f"{prefix}_{fresh}" if prefix else fresh

    def _refuse_travelled(self) -> None:
        if names_a_place(self.dynamic):
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
        chosen = resolve(self.store, TravelOptions.parse(self.options)) if snapshot is None else self.snapshot(snapshot)
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
        return TableCommit(self._committer(commit_user), self._afterwards)

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
        warn_unknown(set_options or {})
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

    def check(self, *, deep: bool = False, rows: bool = False) -> CheckReport:
        """Check every invariant of the table, `deep` at every snapshot; `rows` reads the data too. Changes nothing."""
        report = check_table(self.store, self.paths, deep=deep)
        wrong = check_rows(self.store, self.paths, every_snapshot=deep) if rows else ()
        return replace(report, findings=report.findings + wrong)

    def why(self, key: Mapping[str, Any]) -> Why:
        """Every version of one key by file, level and sequence number, and the row they make.

        Raises:
            InvalidInputError: the table has no primary key, or the key is not whole.
        """
        point = resolve(self.store, TravelOptions.parse(self.options))
        return why(self.store, self.paths, self.options, point, key)

    # -------------------------------------------------------------------------------------------- maintenance

    def expire_snapshots(
        self,
        older_than: Moment | None = None,
        retain_max: int | None = None,
        retain_min: int | None = None,
        max_deletes: int | None = None,
        *,
        plan_only: bool = False,
    ) -> ExpirePlan | ExpireResult:
        """Expire old snapshots with the files that only they hold; what is not given is as the table's options say.

        Tags, branches and consumers hold back what they need. `plan_only` tells what would go.

        Raises:
            InvalidInputError: the numbers contradict each other.
            CommitConflictError: what holds files moved meanwhile, and nothing was deleted: try again.
            UnsupportedError: changelogs of the table outlive their snapshots.
        """
        options = ExpireOptions.parse(self.options)
        plan = plan_expire(
            self.store,
            self.paths,
            options,
            older_than_ms=None if older_than is None else moment_ms(older_than),
            retain_max=retain_max,
            retain_min=retain_min,
            max_deletes=max_deletes,
        )
        return plan if plan_only else run_expire(self.store, plan, options)

    def remove_orphans(
        self, older_than: Moment | timedelta = timedelta(days=1), *, plan_only: bool = True
    ) -> OrphanPlan:
        """Find files that nothing refers to, and with `plan_only=False` delete them.

        `older_than` is a moment, or how long ago it was (`"7 d"`, a timedelta), at least a day: running jobs have not
        committed their files yet.

        Raises:
            InvalidInputError: the moment is less than a day ago.
            CommitConflictError: the table moved meanwhile, or refers to no file at all; nothing was deleted.
            NotFoundError: a file that a snapshot needs is missing; nothing was deleted.
        """
        older_than_ms = before_ms(older_than, self.store.env.clock.now_ms())
        plan = plan_orphans(self.store, self.paths, older_than_ms=older_than_ms)
        return plan if plan_only else replace(plan, left=run_orphans(self.store, plan))

    def rollback_to(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: Moment | None = None,
        plan_only: bool = False,
    ) -> RollbackPlan:
        """Go back to a snapshot: newer snapshots and tags are removed, their files stay as orphans. Stop writers first.

        Raises:
            InvalidInputError: not exactly one target is given.
            NotFoundError: there is no such snapshot or tag, or none that old.
        """
        time_ms = None if timestamp is None else moment_ms(timestamp)
        plan = plan_rollback(self.store, snapshot_id=snapshot, tag=tag, time_ms=time_ms)
        return plan if plan_only else run_rollback(self.store, plan)

    def create_tag(
        self,
        name: str | None = None,
        snapshot: int | None = None,
        time_retained: Span | None = None,
        *,
        ignore_if_exists: bool = False,
    ) -> str:
        """Name a snapshot (the newest one), so that it outlives its expiry, and return the name.

        Raises:
            InvalidInputError: the name is taken or unusable.
            NotFoundError: there is no such snapshot.
        """
        return create_tag(
            self.store,
            TagOptions.parse(self.options),
            name,
            snapshot_id=snapshot,
            time_retained_ms=None if time_retained is None else span_ms(time_retained),
            ignore_if_exists=ignore_if_exists,
        )

    def delete_tag(self, name: str, *, plan_only: bool = False) -> TagDeletion:
        """Delete a tag and the files that only it holds.

        Raises:
            NotFoundError: there is no such tag.
            CommitConflictError: what holds files moved meanwhile, and nothing was deleted: try again.
        """
        plan = plan_tag_deletion(self.store, self.paths, name)
        if not plan_only:
            run_tag_deletion(self.store, plan, clean_folders=ExpireOptions.parse(self.options).clean_folders)
        return plan

    def rename_tag(self, name: str, new: str) -> None:
        """Give a tag another name.

        Raises:
            NotFoundError: there is no such tag.
            InvalidInputError: the new name is taken or unusable.
        """
        rename_tag(self.store, name, new)

    def expire_tags(self, older_than: Moment | None = None) -> tuple[str, ...]:
        """Delete the tags past their time, and those made before a moment; returns their names.

        Raises:
            CommitConflictError: what holds files moved meanwhile: try again.
        """
        before = None if older_than is None else moment_ms(older_than)
        return run_tag_expiry(self.store, self.paths, older_than_ms=before)

    def tags(self) -> dict[str, int]:
        """The snapshot of each tag, by name."""
        return {name: tag.snapshot.id for name, tag in tag_store(self.store).all().items()}

    def create_branch(self, name: str, tag: str | None = None, snapshot: int | None = None) -> Table:
        """Make a branch, empty or at what a tag or a snapshot holds, and return the table on it.

        Raises:
            InvalidInputError: the name is taken or unusable.
            NotFoundError: there is no such tag or snapshot.
        """
        create_branch(self.store, name, tag=tag, snapshot_id=snapshot)
        return self.branch(name)

    def delete_branch(self, name: str) -> None:
        """Remove a branch; files that only it held become orphans.

        Raises:
            NotFoundError: there is no such branch.
        """
        delete_branch(self.store, name)

    def branches(self) -> list[str]:
        """The names of all branches but the main one."""
        return branch_store(self.store).names()

    def fast_forward(self, branch: str, *, plan_only: bool = False) -> ForwardPlan:
        """Make the main branch equal to a branch from the branch's first snapshot on. Stop writers first.

        What the main branch committed since is lost. The schema may change: `reload` the handle afterwards.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: the branch has no snapshot.
        """
        plan = plan_fast_forward(self.store, branch)
        if not plan_only:
            run_fast_forward(self.store, plan)
        return plan

    def consumers(self) -> dict[str, int]:
        """The first snapshot that each consumer has still to read, by its id."""
        return {name: each.next_snapshot for name, each in consumer_store(self.store).all().items()}

    def reset_consumer(self, consumer: str, next_snapshot: int | None = None) -> None:
        """Say which snapshot a consumer reads next, or forget the consumer.

        Raises:
            NotFoundError: there is no such consumer to forget.
        """
        reset_consumer(self.store, consumer, next_snapshot)

    @property
    def inspect(self) -> Inspect:
        """System tables as Arrow."""
        return Inspect(self.store, self.options)


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
        return file_tables.manifests_table(self.store, self._point())

    def files(self) -> pa.Table:
        """The live files of the snapshot."""
        return file_tables.files_table(self.store, self._paths(), self._point())

    def partitions(self) -> pa.Table:
        """Rows, bytes and files of each partition."""
        return file_tables.partitions_table(self.store, self._point())

    def buckets(self) -> pa.Table:
        """Rows, bytes and files of each bucket."""
        return file_tables.buckets_table(self.store, self._point())

    def lsm(self) -> pa.Table:
        """The levels of each bucket of a primary-key table: runs, overlap, what compaction owes, amplification.

        Raises:
            InvalidInputError: the table has no primary key.
        """
        return lsm_table(self.store, self._paths(), self.given, self._point())

    def _paths(self) -> DataPaths:
        return DataPaths(self.store.layout, self.store.schema, PathOptions.parse(self.store.schema.options))

    def _point(self) -> Snapshot | None:
        return resolve(self.store, TravelOptions.parse(self.given))


class TableWrite:
    """Writes rows into files for one job; what it prepares is committed apart."""

    def __init__(self, writer: AppendWriter | KeyedTableWriter, schema: Schema, commit_user: str | None) -> None:
        self._writer = writer
        self._schema = schema
        self.user = commit_user

    def write(self, data: Any, *, row_kind: str | None = None) -> None:
        """Write rows; kinds come in a column `rowkind` that the table does not have, or in the one that is named.

        Raises:
            InvalidInputError: a column or a value does not fit.
        """
        for batch, kinds in batches_with_kinds(data, self._schema, column=row_kind):
            self._writer.write(batch, kinds)

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Compact one bucket of a primary-key table; what it did is part of the next `prepare_commit`.

        Raises:
            UnsupportedError: the table has no primary key, whose compaction is planned over all its files.
        """
        if isinstance(self._writer, AppendWriter):
            raise UnsupportedError("files of append tables are compacted together", hint="use compact() of the table")
        self._writer.compact(partition, bucket, full=full)

    def prepare_commit(self, identifier: int | None = None) -> list[CommitMessage]:
        """Close the files and describe them; `identifier` is told for symmetry with the commit."""
        del identifier
        return self._writer.prepare()

    def close(self) -> None:
        """Remove what was written and not prepared."""
        self._writer.abort()


class TableCommit:
    """Publishes the messages of writers for one commit user."""

    def __init__(self, committer: Committer, afterwards: Callable[[CommitResult], CommitResult]) -> None:
        self._committer = committer
        self._afterwards = afterwards

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
        return self._afterwards(self._committer.commit(_committable(messages, identifier, watermark, properties)))

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
        return self._afterwards(self._committer.overwrite(committable, partition, dynamic=dynamic))

    def truncate(self, *, identifier: int | None = None) -> CommitResult:
        """Delete every row."""
        number = BATCH_IDENTIFIER if identifier is None else identifier
        return self._afterwards(self._committer.truncate(identifier=number))

    def compact_manifests(self) -> CommitResult:
        """Merge all manifests fully."""
        return self._afterwards(self._committer.compact_manifests())

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
    if schema is None and branch != MAIN_BRANCH and SchemaStore(env.io, TableLayout()).latest_id() is not None:
        raise NotFoundError(
            "branch does not exist",
            code="branch-not-found",
            branch=branch,
            table=env.io.root,
            hint="create it first, or check the name",
        )
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


_ASSIGN_HINT = 'say what: {"column": "expression"}'


def _no_condition(where: object) -> InvalidInputError:
    return InvalidInputError(
        "condition is neither text nor an expression",
        got=type(where).__name__,
        hint='write "id > 7" or col("id") > 7; "true" stands for all rows',
    )


def path_of(name: str) -> str | tuple[str, ...]:
    """A column, or with dots a member of a ROW.

    Raises:
        InvalidInputError: it is no text.
    """
    if not isinstance(name, str):
        raise InvalidInputError("name of a column is no text", got=repr(name)[:100])
    return tuple(name.split(".")) if "." in name else name


def typed(dtype: str | DataType) -> DataType:
    """A type, from its text if need be.

    Raises:
        InvalidInputError: the text is no type.
    """
    if not isinstance(dtype, str | DataType):
        raise InvalidInputError("type is neither text nor a type", got=repr(dtype)[:100], hint='write "BIGINT"')
    return parse_type(dtype) if isinstance(dtype, str) else dtype


def _names(given: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(given, Iterable):
        raise InvalidInputError("names are given as a list of texts", got=repr(given)[:100])
    return (given,) if isinstance(given, str) else tuple(given)
