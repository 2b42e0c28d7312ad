"""The file-system catalog: a database is a folder `name.db`, a table a folder in it with a schema.

Nothing is registered anywhere else, so every writer of the format sees the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.define.schemas import run_create
from tidelake.options import option_text
from tidelake.spec.arrow_types import from_arrow
from tidelake.spec.layout import SCHEMA_PREFIX, TableLayout, database_dir, parse_database_dir, parse_numbered, table_dir
from tidelake.spec.option_catalog import unknown_keys
from tidelake.spec.schema import new_schema
from tidelake.spec.types import DataType
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table, load_table, open_table


@dataclass(frozen=True, slots=True)
class Lake:
    """A warehouse of databases and tables."""

    env: Env

    @property
    def location(self) -> str:
        """Where the warehouse lies."""
        return self.env.io.root

    def __repr__(self) -> str:
        return f"Lake({self.location})"

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
        probe_create_exclusive(self.env.io, ids=self.env.ids)
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
        """Open a table by `database.table`.

        Raises:
            NotFoundError: there is no such table.
            InvalidInputError: the name is not usable.
        """
        return load_table(self._env_of(name), name)

    def __contains__(self, name: str) -> bool:
        database, table = split_name(name)
        return self._is_table(table_dir(database, table))

    def create_table(
        self,
        name: str,
        schema: Mapping[str, str | DataType] | pa.Schema | Any,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Make a table, and its database where that is missing.

        Args:
            name: `database.table`.
            schema: column names with type texts, an Arrow schema, or Arrow data.
            primary_key: key columns.
            partition_by: partition columns.
            options: table options.
            comment: the table's comment.
            if_not_exists: open the table that is there instead of failing.

        Raises:
            InvalidInputError: the table exists, or a column, key or option is wrong.
        """
        probe_create_exclusive(self.env.io, ids=self.env.ids)
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
    schema: Mapping[str, str | DataType] | pa.Schema | Any,
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    comment: str | None = None,
    if_not_exists: bool = False,
) -> Table:
    """Make a table at the root of the given doors.

    Raises:
        InvalidInputError: there is a table, or a column, key or option is wrong.
    """
    texts = {str(key): option_text(key, value) for key, value in (options or {}).items()}
    _warn_unknown(texts)
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


def split_name(name: str) -> tuple[str, str]:
    """`database.table` in its two parts.

    Raises:
        InvalidInputError: it has not exactly one dot.
    """
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        raise InvalidInputError("table name must be database.table", name=ascii(name[:80]))
    return database, table


def column_types(schema: Mapping[str, str | DataType] | pa.Schema | Any) -> dict[str, DataType | str]:
    """Column names with types, from whatever describes them.

    Raises:
        InvalidInputError: two columns share a name, or a type has no counterpart.
    """
    if isinstance(schema, Mapping):
        for name, dtype in schema.items():
            if not isinstance(name, str) or not isinstance(dtype, str | DataType):
                raise InvalidInputError(
                    "columns are given as name and type", column=ascii(name)[:80], got=type(dtype).__name__
                )
        return dict(schema)
    if hasattr(schema, "__arrow_c_schema__") and not isinstance(schema, pa.Schema):
        schema = pa.schema(schema)
    elif hasattr(schema, "__arrow_c_stream__"):
        schema = pa.RecordBatchReader.from_stream(schema).schema
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError("schema must be a mapping, an Arrow schema or Arrow data", got=type(schema).__name__)
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInputError("two columns share a name", columns=", ".join(schema.names))
    return {column.name: from_arrow(column.type, column.nullable) for column in schema}


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _warn_unknown(options: Mapping[str, str]) -> None:
    import warnings

    for unknown in unknown_keys(options):
        warnings.warn(f"option `{unknown.key}` is not known{_meant(unknown.nearest)}", stacklevel=4)


def _meant(nearest: str | None) -> str:
    return f"; did you mean `{nearest}`?" if nearest else ""
