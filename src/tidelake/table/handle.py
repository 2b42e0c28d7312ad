"""The handle of a table: its point in time, branch and schema, and checks.

Reading, writing and maintenance are modules of their own. Every method delegates to one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError
from tidelake.expr.tree import Predicate
from tidelake.io.env import Env
from tidelake.io.secrets import redact
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.define.checks import check_given, check_use, warn_unknown
from tidelake.ops.define.schemas import run_alter
from tidelake.ops.maintain.branches import create_branch
from tidelake.ops.maintain.check import CheckReport, check_table
from tidelake.ops.maintain.deep_check import check_rows
from tidelake.ops.maintain.times import moment_ms
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests, live_entries
from tidelake.ops.scan.travel import STREAM_PLACES, TravelOptions, at_point, resolve
from tidelake.options import TableOptions, option_text
from tidelake.options.catalogue import is_immutable
from tidelake.spec.avro.container import codec_name
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.layout import TableLayout
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.schemas.evolution import (
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
from tidelake.spec.schemas.option_rules import moves_partitions
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import DataType
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore, open_stores
from tidelake.table.inspecting import Inspect
from tidelake.table.naming import names_of, path_of, position_of, to_data_type
from tidelake.table.reading import Reading
from tidelake.table.references import References

if TYPE_CHECKING:
    from tidelake.ops.inspect.why import Why

_BRANCH = "$branch_"


@dataclass(frozen=True, slots=True)
class Table(Reading, References):
    """A table at one schema. Immutable: `alter` returns a new handle, and `reload` one with the current schema."""

    name: str
    store: TableStore
    dynamic: Mapping[str, str] = field(default_factory=dict)

    # -------------------------------------------------------------------------------------------- what it is

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema.fields)
        keys = f", primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        parts = f", partitioned by ({', '.join(self.partition_by)})" if self.partition_by else ""
        return plain(f"Table({self.name}: {columns}{keys}{parts}, {self._state()})")

    def _state(self) -> str:
        """The snapshot that is read. Never raises, because a debugger may call it."""
        try:
            point = resolve(self.store, self.context.options.of(TravelOptions))
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
            if (point := resolve(self.store, self.context.options.of(TravelOptions))) is not None:
                time = datetime.fromtimestamp(point.time_ms / 1000, UTC).astimezone().isoformat(" ", "seconds")
                facts.append(("rows", point.total_record_count))
                facts.append(("last commit", f"{point.commit_kind.value} by {point.commit_user} at {time}"))
        rows = ((each.id, each.name, each.type, each.description or "") for each in self.schema.fields)
        return html_card(self.name, facts, html_table(("id", "column", "type", "comment"), rows))

    # -------------------------------------------------------------------------------------------- where it stands

    def at(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: str | datetime | int | None = None,
        watermark: int | None = None,
    ) -> Table:
        """The same table as it was, with the schema it had then.

        `timestamp` is a text, a datetime or milliseconds since the epoch. Without a zone of its own it is in the local
        one; while a Spark session is active, in the zone of the session.

        Raises:
            InvalidInputError: not exactly one point in time is given.
            NotFoundError: the snapshot or the tag does not exist.
        """
        points: dict[str, str] = {}
        if snapshot is not None:
            points["scan.snapshot-id"] = str(snapshot)
        if tag is not None:
            points["scan.tag-name"] = tag
        if timestamp is not None:
            # Converted here, because another process that reads the table may be in another zone.
            points["scan.timestamp-millis"] = str(moment_ms(timestamp))
        if watermark is not None:
            points["scan.watermark"] = str(watermark)
        if len(points) != 1:
            raise InvalidInputError("give exactly one point in time", given=", ".join(points) or "none")
        moved = self.with_options(points)
        resolve(self.store, TravelOptions.parse(moved.dynamic))
        return moved

    def with_options(self, options: Mapping[str, object]) -> Table:
        """The same table with dynamic options: `scan.*`, file formats and so on; None removes one of them.

        Raises:
            InvalidInputError: an option is immutable, its value is wrong, or two of them contradict each other.
            UnsupportedError: an option is not honoured.
            NotFoundError: the tag or the branch does not exist.
        """
        texts = {key: option_text(key, value) for key, value in options.items() if value is not None}
        warn_unknown(texts)
        fixed = next((key for key, text in texts.items() if self._is_fixed(key, text)), None)
        if fixed is not None:
            raise InvalidInputError(
                "option cannot be changed for a single use",
                code="option-immutable",
                option=fixed,
                hint="the table's files can only be read with its own value; create a new table with this option",
            )
        dynamic = {key: text for key, text in {**self.dynamic, **texts}.items() if options.get(key, text) is not None}
        in_force = TableOptions({**self.schema.options, **dynamic})
        check_given({key: text for key, text in texts.items() if self.schema.options.get(key) != text}, in_force)
        if not all(key.startswith("scan.") for key in texts):
            check_use(self.schema, in_force)
        if texts.get("branch", self.store.layout.branch) != self.store.layout.branch:
            return load_table(self.store.env, self.name, branch=texts["branch"]).with_options(dynamic)
        travel = TravelOptions.parse(dynamic)
        schema = self.store.schema
        if travel.given:
            try:
                point = resolve(self.store, travel)
            except NotFoundError:
                if not (travel.given <= STREAM_PLACES):
                    raise
                point = None  # a stream may begin at an expired or future snapshot; a scan raises this error itself
            schema = self.store.schemas.get(point.schema_id) if point else schema
        return replace(self, store=replace(self.store, schema=schema), dynamic=dynamic)

    def _is_fixed(self, key: str, text: str) -> bool:
        """Whether an option decides how or where files are stored, so that a single use cannot change it."""
        if self.partition_by and moves_partitions(self.schema.options, key, text):
            return True
        return is_immutable(key) and self.options.get(key) != text

    def branch(self, name: str) -> Table:
        """The same table on a branch, readable and writable; `main` is the table itself.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: the name is not usable.
        """
        base = self.name.partition(_BRANCH)[0]
        found = load_table(self.store.env, base if name == MAIN_BRANCH else f"{base}{_BRANCH}{name}", branch=name)
        return found.with_options(self.dynamic) if self.dynamic else found

    def create_branch(self, name: str, tag: str | None = None, snapshot: int | None = None) -> Table:
        """Create a branch, empty or with the snapshot of a tag or an id, and return the table on it.

        Raises:
            InvalidInputError: the name is taken or unusable.
            NotFoundError: the tag or the snapshot does not exist.
        """
        create_branch(self.context, name, tag=tag, snapshot_id=snapshot)
        return self.branch(name)

    def _newest(self) -> Table:
        """The table with its current schema: rewritten rows keep the columns that were added since."""
        self._require_latest()
        schema = self.store.schemas.latest()
        if schema is None or schema.id == self.schema.id:
            return self
        return replace(self._with_schema(schema), dynamic=self.dynamic)

    def _with_schema(self, schema: Schema) -> Table:
        """The table at another schema, without dynamic options, with the same snapshot ports."""
        return self._with_ports(open_table(self.store.env, self.name, schema, self.store.schemas))

    def _with_ports(self, opened: Table) -> Table:
        mine = self.store
        return replace(opened, store=replace(opened.store, snapshots=mine.snapshots, publisher=mine.publisher))

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
        self, *, where: Predicate | str | None = None, snapshot: int | None = None, columns: Iterable[str] | None = None
    ) -> pa.Table:
        """The live data files as an entries table; `where` is a condition on partition columns.

        Raises:
            InvalidInputError: `where` uses another column.
            NotFoundError: the snapshot does not exist.
        """
        condition = self._predicate(where)
        partitions = (
            EVERY_PARTITION
            if condition is None
            else PartitionPredicate(condition, self.partition_by, tuple(self.schema.partition_types))
        )
        travel = TravelOptions.parse(self.options if snapshot is None else {"scan.snapshot-id": str(snapshot)})

        def find_live(chosen: Snapshot | None) -> pa.Table:
            metas = data_manifests(self.store.manifests, chosen) if chosen else ()
            return live_entries(self.store.manifests, metas, partitions=partitions, columns=columns)

        return at_point(self.store, travel, find_live)

    def alter(
        self,
        *changes: Change,
        add: Mapping[str, str | DataType] | None = None,
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        types: Mapping[str, str | DataType] | None = None,
        nullable: Mapping[str, bool] | None = None,
        comments: Mapping[str, str | None] | None = None,
        defaults: Mapping[str, object] | None = None,
        move: Mapping[str, str | Position] | None = None,
        set_options: Mapping[str, object] | None = None,
        unset_options: Iterable[str] = (),
    ) -> Table:
        """Change the schema in one atomic step and return the table with the new schema.

        Members of a ROW are named with dots: `address.street`. It can be renamed to `road` or, which means the same, to
        `address.road`. A default is a text, a number, a boolean, a date or a time. `move` takes `"first"`, `"last"`,
        `"after id"` and `"before id"`. All changes take effect together, in the order of the arguments.

        Raises:
            InvalidInputError: a change is not allowed; nothing was changed.
            UnsupportedError: an option is not honoured; nothing was changed.
        """
        listed = [*changes]
        listed += [AddColumn(path_of(name), to_data_type(dtype)) for name, dtype in (add or {}).items()]
        listed += [DropColumn(path_of(name)) for name in names_of(drop)]
        listed += [RenameColumn(path_of(name), new) for name, new in (rename or {}).items()]
        listed += [UpdateType(path_of(name), to_data_type(dtype)) for name, dtype in (types or {}).items()]
        listed += [UpdateNullability(path_of(name), flag) for name, flag in (nullable or {}).items()]
        listed += [UpdateComment(path_of(name), text) for name, text in (comments or {}).items()]
        listed += [UpdateDefault(path_of(name), text) for name, text in (defaults or {}).items()]
        listed += [MoveColumn(path_of(name), position_of(where)) for name, where in (move or {}).items()]
        warn_unknown(set_options or {})
        listed += [SetOption(key, option_text(key, value)) for key, value in (set_options or {}).items()]
        listed += [RemoveOption(key) for key in names_of(unset_options)]
        if not listed:
            raise InvalidInputError("nothing to change", hint="give add=, drop=, rename=, types=, set_options= …")
        store = self.store
        return self._with_schema(run_alter(store.env, store.schemas, store.snapshots, listed))

    def add_column(self, name: str, dtype: str | DataType, *, comment: str | None = None) -> Table:
        """Add a column; older rows read as null."""
        return self.alter(AddColumn(path_of(name), to_data_type(dtype), description=comment))

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

    def set_comment(self, comment: str | None) -> Table:
        """Set the comment of the table; None removes it."""
        return self.alter(UpdateTableComment(comment))

    def reload(self) -> Table:
        """The same table with its current schema.

        Raises:
            NotFoundError: it was dropped.
        """
        self.store.schemas.forget()
        return self._with_ports(load_table(self.store.env, self.name, branch=self.store.layout.branch))

    def check(self, *, deep: bool = False, rows: bool = False) -> CheckReport:
        """Check every invariant of the table, `deep` at every snapshot; `rows` reads the data too. Changes nothing.

        Both also compare the keys of a primary-key table with their partitions and buckets, and with the key indexes.
        """
        context = self.context
        report = check_table(context, deep=deep)
        wrong = check_rows(context, every_snapshot=deep) if rows else ()
        if self.primary_key and (deep or rows):
            from tidelake.ops.maintain.key_check import check_keys  # append tables do not need it

            wrong += check_keys(context, every_snapshot=deep)
        return replace(report, findings=report.findings + wrong)

    def why(self, key: Mapping[str, Any]) -> Why:
        """Every version of one key by file, level and sequence number, and the row they make.

        Raises:
            InvalidInputError: the table has no primary key, or a key column is missing.
        """
        from tidelake.ops.inspect.why import why

        self._refuse_unreadable()
        context = self.context
        return at_point(self.store, context.options.of(TravelOptions), lambda point: why(context, point, key))

    @property
    def inspect(self) -> Inspect:
        """System tables as Arrow."""
        return Inspect(self.context)


def open_table(env: Env, name: str, schema: Schema, schemas: SchemaStore) -> Table:
    """A handle on a table whose schema is known."""
    manifest = _manifest_options(TableOptions(schema.options))
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


def _manifest_options(options: TableOptions) -> ManifestOptions:
    """How manifests are written. Wrong options become defaults: a table can be opened, and only a commit refuses."""
    try:
        manifest = options.of(ManifestOptions)
        codec_name(manifest.compression)
    except InvalidInputError:
        return ManifestOptions.parse({})
    return manifest


def load_table(env: Env, name: str, *, branch: str = "main") -> Table:
    """Open the table at the root of this environment's storage.

    Raises:
        NotFoundError: the table does not exist.
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
