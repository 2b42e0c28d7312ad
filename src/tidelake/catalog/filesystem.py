"""The file-system catalog: a database is a folder `name.db`, a table a folder in it with a schema.

Nothing is registered anywhere else, so every writer of the format sees the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelake.errors import InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.expr.tree import Predicate
from tidelake.io.env import Env
from tidelake.io.fileio import parent
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.define.checks import warn_idle, warn_unknown
from tidelake.ops.define.schemas import run_create
from tidelake.options import option_text
from tidelake.spec.layout import SCHEMA_PREFIX, TableLayout, database_dir, parse_database_dir, parse_numbered, table_dir
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.schema import Schema, new_schema
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table, load_table, open_table
from tidelake.table.naming import column_types
from tidelake.table.views import view_of

SHOWN = 50
"""Databases that a notebook shows."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A warehouse of databases and tables."""

    env: Env

    @property
    def location(self) -> str:
        """Where the warehouse lies."""
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
        """The names of the databases."""
        found = (parse_database_dir(each.name) for each in self.env.io.list("") if each.is_dir)
        return sorted(name for name in found if name)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Make a database.

        Raises:
            InvalidInputError: it exists, or the name is not usable.
        """
        folder = database_dir(name)
        require_exclusive_create(self.env, {})
        if self.env.io.exists(folder):
            if if_not_exists:
                return
            raise InvalidInputError("database exists already", code="database-exists", database=name)
        self.env.io.make_dir(folder)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Remove a database; with `cascade` its tables too.

        Raises:
            NotFoundError: there is none.
            InvalidInputError: it has tables, and `cascade` is not set.
        """
        self._require_database(name)
        tables = self.tables(name)
        if tables and not cascade:
            raise InvalidInputError(
                "database is not empty", database=name, tables=len(tables), hint="drop its tables or set cascade=True"
            )
        self.env.io.delete_dir(database_dir(name))

    # -------------------------------------------------------------------------------------------- tables

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database.

        Raises:
            NotFoundError: there is no such database.
        """
        self._require_database(database)
        folder = database_dir(database)
        return [
            each.name for each in self.env.io.list(folder) if each.is_dir and self._is_table(f"{folder}/{each.name}")
        ]

    def table(self, name: str) -> Table:
        """Open a table by `database.table`, or one of its branches by `database.table$branch_name`.

        Behind either, `$audit_log`, `$binlog` and `$ro` open a view that is only read.

        Raises:
            NotFoundError: there is no such table or branch.
            InvalidInputError: the name is not usable.
        """
        base, *parts = name.split(_SYSTEM_SEPARATOR)
        branch = MAIN_BRANCH
        if parts and parts[0].startswith(_BRANCH_PART):
            branch = parts.pop(0).removeprefix(_BRANCH_PART)
        view = _SYSTEM_SEPARATOR.join(parts)
        found = load_table(self._env_of(base), name.removesuffix(f"{_SYSTEM_SEPARATOR}{view}"), branch=branch)
        return view_of(found, view) if parts else found

    def __contains__(self, name: str) -> bool:
        database, table = split_name(name)
        return self._is_table(table_dir(database, table))

    def spark_table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        spark: Any | None = None,
    ) -> Any:
        """A table as a lazy Spark frame, pinned to one snapshot; `spark` is the session, by default the active one.

        Raises:
            NotFoundError: there is no such table.
            InvalidInputError: Spark or Java is not installed, or no other process can reach the storage.
        """
        return self.table(name).to_spark(columns, where, spark)

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
        """Make a table, and its database where that is missing.

        Args:
            name: `database.table`.
            schema: column names with types (texts, or types of Python, Arrow, Polars or pandas), a schema of Arrow or
                Polars, `df.dtypes`, a frame or other Arrow data, or a Spark frame or its schema.
            primary_key: key columns.
            partition_by: partition columns.
            options: table options.
            comment: the table's comment.
            if_not_exists: open the table that is there instead of failing.

        Raises:
            InvalidInputError: the table exists, or a column, key or option is wrong.
            UnsupportedError: an option is not honoured.
        """
        check_plain_name(name)
        require_exclusive_create(self.env, {key: option_text(key, value) for key, value in (options or {}).items()})
        return create_at(
            self._env_of(name),
            name,
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
        )

    def drop_table(self, name: str) -> None:
        """Remove a table with all its data.

        Raises:
            NotFoundError: there is no such table.
        """
        database, table = split_name(name)
        if name not in self:
            raise NotFoundError("table does not exist", code="table-not-found", table=name)
        self.env.io.delete_dir(table_dir(database, table))

    def rename_table(self, old: str, new: str) -> Table:
        """Give a table another name, also in another database, and return it under that name.

        The folder is moved in one step: a crash leaves the whole table under the old or the new name. Stop its writers
        first, because one that is still at work writes where the table was. Object stores cannot move a folder in one
        step, so that the rename is refused there.

        Raises:
            NotFoundError: there is no such table, or no such database to move it to.
            InvalidInputError: the new name is taken or not usable, or one of the two names a branch or a system table.
            UnsupportedError: the storage cannot move a folder in one step.
            StorageError: the storage failed; the table is whole under one of the two names.
        """
        source, target = (table_dir(*split_name(check_plain_name(name))) for name in (old, new))
        if old == new:
            raise InvalidInputError("new name is the old one", table=old, hint="choose another name")
        before = load_table(self._env_of(old), old)
        self._require_database(split_name(new)[0])
        if self.env.io.exists(target):
            raise _taken(new, is_table=self._is_table(target))
        try:
            self.env.io.rename_dir(source, target)
        except StorageError as error:
            if error.code == "file-exists":
                raise _taken(new, is_table=self._is_table(target)) from error
            if not self._moved(source, target, before.schema):
                raise
            # The answer was lost, not the deed; what is left is to make it survive a power loss.
            self.env.io.sync([target, parent(source), parent(target)])
        return load_table(self._env_of(new), new)

    def _moved(self, source: str, target: str, schema: Schema) -> bool:
        """Whether the table is at its new place and no longer at its old one."""
        if self._is_table(source) or not self._is_table(target):
            return False
        return SchemaStore(self.env.io.sub(target), TableLayout()).latest() == schema

    # -------------------------------------------------------------------------------------------- pieces

    def _env_of(self, name: str) -> Env:
        database, table = split_name(name)
        return replace(self.env, io=self.env.io.sub(table_dir(database, table)))

    def _is_table(self, folder: str) -> bool:
        names = (each.name for each in self.env.io.list(f"{folder}/schema"))
        return any(parse_numbered(name, SCHEMA_PREFIX) is not None for name in names)

    def _require_database(self, name: str) -> None:
        if not self.env.io.exists(database_dir(name)):
            raise NotFoundError("database does not exist", code="database-not-found", database=name, lake=self.location)


def create_at(
    env: Env,
    name: str,
    schema: Any,
    *,
    primary_key: Sequence[str] | None = None,
    partition_by: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    comment: str | None = None,
    if_not_exists: bool = False,
) -> Table:
    """Make a table at the root of the given doors.

    Raises:
        InvalidInputError: there is a table, or a column, key or option is wrong.
    """
    texts = {str(key): option_text(key, value) for key, value in (options or {}).items()}
    warn_unknown(texts, stacklevel=4)
    warn_idle(texts, keyed=bool(primary_key) or "primary-key" in texts, stacklevel=4)
    first = new_schema(
        column_types(schema),
        primary_keys=_names(primary_key),
        partition_keys=_names(partition_by),
        options=texts,
        comment=comment,
        time_ms=env.clock.now_ms(),
    )
    schemas = SchemaStore(env.io, TableLayout())
    if run_create(env, schemas, first):
        return open_table(env, name, first, schemas)
    if if_not_exists:
        return load_table(env, name)
    raise InvalidInputError(
        "table exists already", code="table-exists", table=name, hint="choose another name or set if_not_exists=True"
    )


_SYSTEM_SEPARATOR = "$"
_BRANCH_PART = "branch_"


def check_plain_name(name: str) -> str:
    """The name, if it is that of a table and not of a branch or a system table.

    Raises:
        InvalidInputError: it is not.
    """
    if _SYSTEM_SEPARATOR in name:
        raise InvalidInputError(
            "name is that of a branch or a system table",
            code="system-name",
            name=ascii(name[:80]),
            hint="use a name without a dollar sign",
        )
    return name


def _taken(name: str, *, is_table: bool) -> InvalidInputError:
    if is_table:
        return InvalidInputError("table exists already", code="table-exists", table=name, hint="choose another name")
    return InvalidInputError(
        "a folder that is no table has the name",
        code="table-exists",
        table=name,
        hint="remove the folder, or choose another name",
    )


def split_name(name: str) -> tuple[str, str]:
    """`database.table` in its two parts.

    Raises:
        InvalidInputError: it has not exactly one dot.
    """
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        raise InvalidInputError("table name must be database.table", name=ascii(name[:80]))
    return database, table


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
