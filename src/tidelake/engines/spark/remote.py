"""What a task knows of a table: enough to open it on another machine, and nothing else.

Splits, plans and messages carry no credential. The storage's options travel here, apart from them, and are not shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from tidelake.api import CACHE_BYTES
from tidelake.io.cache import Cache
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.open import open_fileio, reopening
from tidelake.io.secrets import redact, reveal
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore
from tidelake.table import Table, open_table


class Grant:
    """Access to a storage, for tasks: the one thing that is pickled with its credentials."""

    __slots__ = ("_options", "location")

    def __init__(self, location: str, options: Mapping[str, object]) -> None:
        self.location = location
        self._options = dict(options)

    @classmethod
    def of(cls, io: FileIO) -> Grant:
        """Access to an open storage.

        Raises:
            InvalidInputError: no other process can reach it.
        """
        return cls(*reopening(io))

    def open(self) -> FileIO:
        """The storage."""
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
        """How tasks open a table with these options over its own.

        Raises:
            InvalidInputError: no other process can reach its storage.
        """
        grant = Grant.of(store.env.io)
        return cls(grant, name, store.layout.branch, store.schema, dict(dynamic), store.env.unsafe_commit)

    def open(self) -> Table:
        """The table, with the documents that this process has read already."""
        env = _env(self.grant, self.unsafe_commit)
        table = open_table(env, self.name, self.schema, SchemaStore(env.io, TableLayout(branch=self.branch)))
        return Table(table.name, table.store, self.dynamic)


@cache
def _env(grant: Grant, unsafe_commit: bool) -> Env:
    _use_one_core()
    return Env(grant.open(), unsafe_commit=unsafe_commit, cache=Cache(CACHE_BYTES))


def _use_one_core() -> None:
    """Spark gives each task a core: threads of libraries would take those of other tasks."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    pa.set_cpu_count(1)
