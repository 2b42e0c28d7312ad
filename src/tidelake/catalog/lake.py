"""A lake: the databases and tables of a catalog, as a user names and defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidelake.catalog.global_tables import (
    SYSTEM_DATABASE,
    GlobalTables,
    refuse_system_database,
)
from tidelake.catalog.names import check_plain_name, parse_name, split_name, table_exists
from tidelake.catalog.protocol import Catalog
from tidelake.engine import engine
from tidelake.errors import InvalidInputError, TidelakeError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.io.env import Env
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.buckets import choose_partitions
from tidelake.ops.define.checks import warn_idle, warn_unknown
from tidelake.ops.define.schemas import run_publish
from tidelake.ops.hooks.committers import open_committer
from tidelake.ops.maintain.copy_files import CopyPlan, check_target, plan_copy, run_copy
from tidelake.ops.maintain.repair import RepairPlan
from tidelake.options import option_text
from tidelake.procedures.registry import call_procedure, list_procedures
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.schemas.schema import Schema, new_schema
from tidelake.table import Table
from tidelake.table.naming import column_types
from tidelake.table.several import CompactedTables, choose_tables, compact_tables, repair_tables
from tidelake.table.system import system_table_of
from tidelake.table.views import VIEWS, view_of

if TYPE_CHECKING:
    from tidelake.table.engine_port import TableEngine

SHOWN = 50
"""The number of databases that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A warehouse of databases and tables."""

    catalog: Catalog
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """The options that the lake was opened with, without credentials."""

    @property
    def env(self) -> Env:
        """The storage of the warehouse, with clock and ids."""
        return self.catalog.env

    @property
    def _globals(self) -> GlobalTables:
        return GlobalTables(self.catalog, self.options)

    @property
    def location(self) -> str:
        """The folder or URL of the warehouse."""
        return self.env.io.root

    def __repr__(self) -> str:
        return f"Lake({plain(self.location)})"

    def _repr_html_(self) -> str:
        try:
            names = self.databases()
        except TidelakeError as error:
            return html_card(repr(self), [("databases", f"cannot be listed: {error.message}")])
        listed = [*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])]
        return html_card(repr(self), (), html_table(("database",), ([name] for name in listed)))

    # -------------------------------------------------------------------------------------------- databases

    def databases(self) -> list[str]:
        """The names of the databases; that of the system tables is not among them, also if it has a folder."""
        return [name for name in self.catalog.databases() if name != SYSTEM_DATABASE]

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database.

        Raises:
            InvalidInputError: it exists, or the name is not usable, or belongs to the system tables.
        """
        refuse_system_database(name, "create a database")
        if not self.catalog.create_database(name) and not if_not_exists:
            raise InvalidInputError("database already exists", code="database-exists", database=name)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Remove a database; with `cascade` its tables too.

        Raises:
            NotFoundError: the database does not exist.
            InvalidInputError: it has tables, and `cascade` is not set.
        """
        refuse_system_database(name, "drop a database")
        tables = self.tables(name)
        if tables and not cascade:
            raise InvalidInputError(
                "database is not empty", database=name, tables=len(tables), hint="drop its tables or set cascade=True"
            )
        self.catalog.drop_database(name)

    # -------------------------------------------------------------------------------------------- tables

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database; of `sys`, those of the system tables of the lake.

        Raises:
            NotFoundError: the database does not exist.
        """
        return self._globals.names() if database == SYSTEM_DATABASE else self.catalog.tables(database)

    def table(self, name: str) -> Table:
        """Open a table by `database.table`, or one of its branches by `database.table$branch_name`.

        With `$audit_log`, `$binlog` or `$ro` at the end it opens a view, with `$files` or another such name a system
        table; those of the lake are in the database `sys`. All of them have the reading methods of a table.

        Raises:
            NotFoundError: the table or the branch does not exist.
            InvalidInputError: the name is not usable, or the table does not have such a system table.
        """
        # Annotated as a table, because only the text of the name decides. Methods that a view lacks raise when called.
        database, _, rest = name.partition(".")
        if database == SYSTEM_DATABASE and rest:
            return cast(Table, self._globals.open(rest))
        typed = parse_name(name)
        found = self.catalog.load_table(typed.shown, branch=typed.branch)
        if typed.view is None:
            return found
        view = typed.view.lower()
        return cast(Table, view_of(found, view) if view in VIEWS else system_table_of(found, view))

    def __contains__(self, name: str) -> bool:
        database, _, rest = name.partition(".")
        if database == SYSTEM_DATABASE:
            return rest.lower() in self._globals.names()
        return self.catalog.has_table(name)

    def spark_table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        spark: Any | None = None,
    ) -> Any:
        """A table as a lazy Spark frame, pinned to one snapshot; `spark` is the session, by default the active one.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: Spark or Java is not installed, or no other process can reach the storage.
        """
        return self.table(name).to_spark(columns, where, spark)

    def stream(self, name: str, spark: Any | None = None, **options: object) -> Any:
        """A table as a streaming Spark frame; `spark` is the session, by default the active one.

        Options are those of `spark.readStream.format("tidelake")`: `**{"scan.mode": "latest", "read.changelog": True}`.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: an option is wrong, Spark is not installed, or no other process can reach the storage.
            UnsupportedError: it is a view of a table.
        """
        table = self.table(name)
        if not isinstance(table, Table):
            raise UnsupportedError(
                "views and system tables are not streamed",
                view=name,
                hint="stream the table; read.changelog=true adds row kinds",
            )
        port: TableEngine[Table] = engine()
        return port.stream(table, spark, options)

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        primary_key: Sequence[str] | None = None,
        partition_by: Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and its database if that is missing.

        Args:
            name: `database.table`.
            schema: column names with types (texts, or types of Python, Arrow, Polars or pandas), a schema of Arrow or
                Polars, `df.dtypes`, a frame or other Arrow data, or a Spark frame or its schema.
            primary_key: key columns.
            partition_by: partition columns.
            options: table options.
            comment: the table's comment.
            if_not_exists: open an existing table instead of failing.

        Raises:
            InvalidInputError: the table exists, or a column, key or option is wrong.
            UnsupportedError: an option is not honoured.
        """
        database, _ = split_name(check_plain_name(name))
        refuse_system_database(database, "create a table")
        first = first_schema(
            schema,
            time_ms=self.env.clock.now_ms(),
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
        )
        made = self.catalog.create_table(name, first)
        if made is not None:
            return made
        if if_not_exists:
            return self.catalog.load_table(name, branch=MAIN_BRANCH)
        raise table_exists(name, "choose another name or set if_not_exists=True")

    def drop_table(self, name: str) -> None:
        """Remove a table with all its data.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: it is a system table of the lake.
        """
        refuse_system_database(name.partition(".")[0], "drop a table")
        self.catalog.drop_table(name)

    def rename_table(self, old: str, new: str) -> Table:
        """Give a table another name, also in another database, and return it under that name.

        The folder is moved in one step: a crash leaves the whole table under the old or the new name. Stop its writers
        first, because a running one keeps writing to the old folder. Object stores cannot move a folder in one
        step, so that the rename is refused there.

        Raises:
            NotFoundError: the table, or the database to move it to, does not exist.
            InvalidInputError: the new name is in use or not usable, or a name is that of a branch or a system table.
            UnsupportedError: the storage cannot move a folder in one step.
            StorageError: the storage failed; the table is whole under one of the two names.
        """
        for name in (old, new):
            refuse_system_database(check_plain_name(name).partition(".")[0], "rename a table")
        return self.catalog.rename_table(old, new)

    def copy_table(
        self,
        source: str,
        target: str,
        where: Predicate | str | None = None,
        *,
        plan_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CopyPlan | CommitResult:
        """Copy the newest snapshot of a table to another table, by its files: no row is read.

        The target is created, with all schemas and options of the source; or it exists, has no rows, and has the same
        keys, columns and buckets. `where` is a condition on partition columns. Deletion vectors and key indexes come
        along; tags, branches and older snapshots do not. All files are committed as one snapshot, and without it the
        target has none. `progress` is called with the number of files that are copied, and their total.

        Raises:
            NotFoundError: the source does not exist, or its snapshot expired while it was copied: tag it first.
            InvalidInputError: the target has rows or does not fit, or the condition uses another column.
            CommitConflictError: another job wrote to the target.
            StorageError: the storage failed; the target has no snapshot.
        """
        opened = self.table(source)
        refuse_system_database(check_plain_name(target).partition(".")[0], "copy a table")
        if not isinstance(opened, Table):
            raise UnsupportedError("views are not copied", view=source, hint="copy the table")
        chosen = choose_partitions(opened.schema, opened.parse_condition(where), None)
        plan = plan_copy(opened.context, target, chosen)
        if plan_only:
            if target in self:
                check_target(opened.context, self.table(target).context)
            return plan
        made = self._table_to_copy_to(opened, target)
        check_target(opened.context, made.context)
        context = made.context_to_write()
        return run_copy(opened.context, context, open_committer(context), plan, progress)

    def _table_to_copy_to(self, source: Table, name: str) -> Table:
        """The target of a copy, with every schema of the source if it is new or an earlier copy did not finish."""
        schemas = source.store.schemas
        history = [schemas.get(number) for number in schemas.ids()]
        made = self.catalog.create_table(name, history[0]) if name not in self else None
        found = made or self.catalog.load_table(name, branch=MAIN_BRANCH)
        there = found.store.schemas
        is_begun = all(each < len(history) and there.get(each) == history[each] for each in there.ids())
        if found.latest_snapshot() is None and is_begun:
            run_publish(found.store.env, there, history)
            found = self.catalog.load_table(name, branch=MAIN_BRANCH)
        return found

    def compact(
        self,
        databases: str | None = None,
        tables: str | None = None,
        excluding: str | None = None,
        *,
        full: bool = False,
        options: Mapping[str, object] | None = None,
        plan_only: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> CompactedTables:
        """Compact the tables that match regular expressions, one after another.

        `databases` is a pattern of database names, `tables` and `excluding` of `database.table`; a pattern has to match
        the whole name, and without one everything matches. `options` hold for this call. A table that fails does not
        stop the others: its error is in the result. `progress` is called with each table, its number and their count.

        Raises:
            InvalidInputError: a pattern is not a regular expression.
        """
        names = choose_tables(self, databases, tables, excluding)
        return compact_tables(self, names, full=full, options=options, plan_only=plan_only, progress=progress)

    def repair(self, name: str | None = None, *, plan_only: bool = False) -> list[RepairPlan]:
        """Write the hints `LATEST` and `EARLIEST` of tables again where they are wrong, and report them.

        `name` lists databases and tables, separated by commas; without it all tables are looked at, on all branches.
        Nothing is deleted. A table in a folder of the lake needs no other repair: the folder is all that there is.

        Raises:
            NotFoundError: a database or a table does not exist.
            StorageError: the storage failed.
        """
        return repair_tables(self, name, plan_only=plan_only)

    # -------------------------------------------------------------------------------------------- procedures

    def procedures(self) -> pa.Table:
        """The procedures for `call`: names, arguments (optional ones in brackets), result columns, descriptions."""
        return list_procedures()

    def call(self, procedure: str, /, *positional: object, **arguments: object) -> pa.Table:
        """Call one of Paimon's procedures, such as `lake.call("create_tag", table="shop.orders", tag="monthly")`.

        Arguments have the names and forms of Paimon's `CALL sys.<name>(...)`, or Python values: lists,
        mappings, datetimes. A procedure that deletes does so at once, without a plan.

        Raises:
            NotFoundError: the procedure, its table, or what it works on does not exist.
            InvalidInputError: an argument is not known, missing, given twice, or does not fit.
            UnsupportedError: an argument asks for something that is not done yet.
        """
        return call_procedure(self, procedure, positional, arguments)


def first_schema(
    schema: Any,
    *,
    time_ms: int,
    primary_key: Sequence[str] | None = None,
    partition_by: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    comment: str | None = None,
) -> Schema:
    """The schema of a new table. Warns of options that are unknown or that such a table never uses.

    Raises:
        InvalidInputError: a column, key or option is wrong.
    """
    texts = {str(key): option_text(key, value) for key, value in (options or {}).items()}
    warn_unknown(texts, stacklevel=4)
    warn_idle(texts, keyed=bool(primary_key) or "primary-key" in texts, stacklevel=4)
    return new_schema(
        column_types(schema),
        primary_keys=_names(primary_key),
        partition_keys=_names(partition_by),
        options=texts,
        comment=comment,
        time_ms=time_ms,
    )


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
