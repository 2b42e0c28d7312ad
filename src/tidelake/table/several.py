"""What is done to several tables one after another: compact those that match patterns, and repair hints.

Invariant: a table that fails does not keep the others from being worked on; its error is in the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelake.errors import InvalidInputError, TidelakeError, UnsupportedError
from tidelake.notebook import pluralize
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.compact.table import CompactionPlan
from tidelake.ops.maintain.repair import RepairPlan, plan_repair, run_repair
from tidelake.table.handle import Table

__all__ = ["CompactedTable", "CompactedTables", "Lookup", "choose_tables", "compact_tables", "repair_tables"]


class Lookup(Protocol):
    """Finds databases and tables; a lake does."""

    def databases(self) -> list[str]:
        """The names of the databases."""

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database."""

    def table(self, name: str) -> Table:
        """Open a table."""


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """What was done to one table, or is planned for it; or the error that it failed with."""

    table: str
    done: CompactionPlan | CommitResult | None = None
    error: TidelakeError | None = None


@dataclass(frozen=True, slots=True)
class CompactedTables:
    """The compactions of several tables."""

    tables: tuple[CompactedTable, ...] = ()

    @property
    def failures(self) -> tuple[CompactedTable, ...]:
        """The tables that failed."""
        return tuple(each for each in self.tables if each.error is not None)

    def __str__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{pluralize(len(self.tables), 'table')}{failed}"


def choose_tables(lake: Lookup, databases: str | None, tables: str | None, excluding: str | None) -> list[str]:
    """The names of the tables that match: regular expressions over whole names, those of tables as `database.table`.

    Raises:
        InvalidInputError: a pattern is not a regular expression.
    """
    of_database, including = _compile(databases or ".*"), _compile(tables or ".*")
    left_out = None if excluding is None else _compile(excluding)
    return [
        name
        for database in lake.databases()
        if of_database.fullmatch(database)
        for name in (f"{database}.{each}" for each in lake.tables(database))
        if including.fullmatch(name) and not (left_out and left_out.fullmatch(name))
    ]


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as cause:
        raise InvalidInputError(
            "pattern is not a regular expression", pattern=pattern[:80], hint="write orders|users or shop[.].*"
        ) from cause


def compact_tables(
    lake: Lookup,
    names: Sequence[str],
    *,
    full: bool,
    options: Mapping[str, object] | None,
    plan_only: bool,
    progress: Callable[[str, int, int], None] | None,
) -> CompactedTables:
    """Compact these tables one after another. `progress` is called with each table, its number and their count."""
    found: list[CompactedTable] = []
    for number, name in enumerate(names, 1):
        try:
            table = lake.table(name)
            table = table.with_options(options) if options else table
            found.append(CompactedTable(name, table.compact(full, plan_only=plan_only)))
        except TidelakeError as error:
            found.append(CompactedTable(name, error=error))
        if progress is not None:
            progress(name, number, len(names))
    return CompactedTables(tuple(found))


def repair_tables(lake: Lookup, name: str | None, *, plan_only: bool) -> list[RepairPlan]:
    """Repair the hints of tables: `name` lists databases and tables, separated by commas; None stands for all.

    Raises:
        NotFoundError: a database or a table does not exist.
        UnsupportedError: a name is that of a view.
        StorageError: the storage failed.
    """
    plans = []
    for each in _named_tables(lake, name):
        table = lake.table(each)
        if not isinstance(table, Table):
            raise UnsupportedError("views have no hints", view=each, hint="repair the table")
        context = table.context
        plan = plan_repair(context)
        if not plan_only:
            run_repair(context, plan)
        plans.append(plan)
    return plans


def _named_tables(lake: Lookup, name: str | None) -> Iterator[str]:
    """The tables of a text such as `shop,users.accounts`: databases and tables; None stands for all."""
    parts = lake.databases() if name is None or not name.strip() else [each.strip() for each in name.split(",")]
    for part in parts:
        if "." in part:
            yield part
        else:
            yield from (f"{part}.{each}" for each in lake.tables(part))
