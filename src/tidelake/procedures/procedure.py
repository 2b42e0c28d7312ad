"""What a procedure is: Paimon's name, typed arguments, a function on tables, and the columns of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.maintain.copy_files import CopyPlan
from tidelake.procedures.arguments import OPTIONS, PARTITIONS, TEXT, Argument, Values
from tidelake.table import Table

Rows = Sequence[Mapping[str, object]]
"""The rows of a result, by column."""


class Tables(Protocol):
    """Opens tables for procedures; a lake does."""

    def table(self, name: str) -> Table:
        """Open a table."""

    def databases(self) -> list[str]:
        """The names of the databases."""

    def tables(self, database: str) -> list[str]:
        """The names of the tables of a database."""

    def copy_table(
        self, source: str, target: str, where: str | None = None, *, plan_only: bool = False
    ) -> CopyPlan | CommitResult:
        """Copy the files of a table to another one."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would delete or rewrite, for a person; `is_empty` if it would change nothing."""

    text: str
    warning: str = ""
    is_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """One procedure. If it deletes or rewrites, `preview` says what; the command line shows that before it asks."""

    name: str
    doc: str
    arguments: tuple[Argument, ...]
    columns: pa.Schema
    run: Callable[[Tables, Values], Rows]
    preview: Callable[[Tables, Values], Preview | None] | None = None
    refusal: str = ""
    """Why every call of it is refused; empty for a procedure that can be called."""


RESULT: Final = pa.schema([pa.field("result", pa.bool_())])
"""The result columns of a procedure that only reports success."""
DONE: Final[Rows] = ({"result": True},)

TABLE: Final = Argument("table", TEXT, "The table, as database.table or database.table$branch_name.", required=True)
WHERE: Final = Argument("where", TEXT, "A condition on partition columns, in SQL.")
CHOSEN_PARTITIONS: Final = Argument(
    "partitions",
    PARTITIONS,
    "Partitions as k1=v1,k2=v2, with all or some of the partition columns; `;` between several.",
)
USE_OPTIONS: Final = Argument(
    "options", OPTIONS, "Table options for this call only, as k1=v1,k2=v2; other arguments override them."
)


def open_table(tables: Tables, values: Values) -> Table:
    """The table that the arguments name, with their options.

    Raises:
        NotFoundError: the table does not exist.
        InvalidInputError: an option is immutable, or its value is wrong.
    """
    table = tables.table(values["table"])
    return table.with_options(values["options"]) if values.get("options") else table


def partitions_of(table: Table, values: Values) -> list[dict[str, object]] | None:
    """The chosen partitions. The value that stands for null in folder names means null here too.

    Raises:
        InvalidInputError: a condition is given too.
    """
    chosen: Sequence[Mapping[str, Any]] | None = values["partitions"]
    if chosen is None:
        return None
    if values["where"] is not None:
        raise InvalidInputError("partitions are chosen twice", hint="give either where or partitions")
    return with_nulls(table, chosen)


def with_nulls(table: Table, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """The partitions with null where the value that stands for it in folder names was given."""
    null = table.paths.options.default_partition_name
    return [{name: None if value == null else value for name, value in each.items()} for each in partitions]


def refuse(procedure: str, values: Values, *names: str, hint: str) -> None:
    """Refuse arguments that ask for something that is not done yet.

    Raises:
        UnsupportedError: one of them is given.
    """
    given = next((name for name in names if values[name] not in (None, False)), None)
    if given is not None:
        raise UnsupportedError(
            "argument is not supported", procedure=procedure, argument=given, value=values[given], hint=hint
        )
