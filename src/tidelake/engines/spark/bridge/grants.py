"""What a task gets to open a table on another machine.

A `Grant` is the only value with credentials: splits, plans and messages have none, and no log or Spark plan prints it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa

from tidelake.api import CACHE_BYTES
from tidelake.errors import CommitConflictError, NotFoundError
from tidelake.io.cache import Cache
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.open import open_fileio, reopening
from tidelake.io.secrets import redact, reveal
from tidelake.spec.layout import TableLayout
from tidelake.spec.schemas.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore
from tidelake.table import Table, open_table


class Grant:
    """Access to a storage, for tasks: the only value that is pickled with its credentials."""

    __slots__ = ("_options", "location")

    def __init__(self, location: str, options: Mapping[str, object]) -> None:
        self.location = location
        self._options = dict(options)

    @classmethod
    def of(cls, io: FileIO) -> Grant:
        """Grant access to an open storage.

        Raises:
            InvalidInputError: no other process can reach it.
        """
        return cls(*reopening(io))

    def open(self) -> FileIO:
        """Open the storage."""
        return open_fileio(self.location, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Grant, (self.location, reveal(self._options))

    def __repr__(self) -> str:
        return f"Grant({self.location!r}, {redact(self._options)!r})"

    def _key(self) -> tuple[Any, ...]:
        return self.location, tuple(sorted((key, str(value)) for key, value in reveal(self._options).items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grant) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table at one schema, for tasks."""

    grant: Grant
    name: str
    branch: str
    schema: Schema
    dynamic: Mapping[str, str] = field(default_factory=dict)
    unsafe_commit: bool = False

    @classmethod
    def of(cls, name: str, store: TableStore, dynamic: Mapping[str, str]) -> TableRef:
        """Describe a table for tasks, with these options over its own.

        Raises:
            InvalidInputError: no other process can reach its storage.
        """
        grant = Grant.of(store.env.io)
        return cls(grant, name, store.layout.branch, store.schema, dict(dynamic), store.env.unsafe_commit)

    def open(self) -> Table:
        """Open the table, with the cache of documents that all tasks of this process share."""
        env = _env(self.grant, self.unsafe_commit)
        table = open_table(env, self.name, self.schema, SchemaStore(env.io, TableLayout(branch=self.branch)))
        return Table(table.name, table.store, self.dynamic)

    def open_newest(self) -> Table:
        """Open the table with its newest schema, for a job that outlives changes of the schema.

        Raises:
            NotFoundError: the table was dropped.
            CommitConflictError: the table was dropped and created again.
        """
        table = self.open()
        return table if is_newest_schema(table) else replace(table.reload(), dynamic=self.dynamic)


def is_newest_schema(table: Table) -> bool:
    """Whether the schema of a handle is the newest one of its table.

    Raises:
        CommitConflictError: the table was dropped and created again since the handle was opened.
    """
    schemas = table.store.schemas
    newest = schemas.latest_id()
    try:
        stored = None if newest is None else schemas.read(table.schema.id)  # again: the cache has that of the handle
    except NotFoundError:
        stored = None
    if stored is not None and stored != table.schema:
        raise CommitConflictError(
            "table was dropped and created again",
            code="table-replaced",
            table=table.name,
            hint="start the query with a new checkpoint to write to the new table",
        )
    return stored is not None and newest == table.schema.id


@cache
def _env(grant: Grant, unsafe_commit: bool) -> Env:
    _use_one_core()
    return Env(grant.open(), unsafe_commit=unsafe_commit, cache=Cache(CACHE_BYTES))


def _use_one_core() -> None:
    """Limit the threads of libraries: Spark runs one task per core, and more threads would slow other tasks."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    pa.set_cpu_count(1)
