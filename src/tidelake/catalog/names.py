"""Parses names of tables as users type them: `database.table`, with a branch or a view after a dollar sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.spec.names import MAIN_BRANCH

_SEPARATOR: Final = "$"
_BRANCH_PART: Final = "branch_"


@dataclass(frozen=True, slots=True)
class TypedName:
    """The parts of a name: the table as its handle shows it, the branch, and the view if there is one."""

    shown: str
    branch: str
    view: str | None


def parse_name(name: str) -> TypedName:
    """Split `database.table$branch_name$view` into its parts; branch and view may be missing."""
    _, *parts = name.split(_SEPARATOR)
    branch = MAIN_BRANCH
    if parts and parts[0].startswith(_BRANCH_PART):
        branch = parts.pop(0).removeprefix(_BRANCH_PART)
    view = _SEPARATOR.join(parts)
    return TypedName(name.removesuffix(f"{_SEPARATOR}{view}"), branch, view if parts else None)


def table_of(name: str) -> str:
    """Return `database.table` without the branch."""
    return name.partition(_SEPARATOR)[0]


def check_plain_name(name: str) -> str:
    """Return the name of a table.

    Raises:
        InvalidInputError: it is the name of a branch or a system table.
    """
    if _SEPARATOR in name:
        raise InvalidInputError(
            "name belongs to a branch or a system table",
            code="system-name",
            name=ascii(name[:80]),
            hint="use a name without a dollar sign",
        )
    return name


def split_name(name: str) -> tuple[str, str]:
    """Split `database.table` into its two parts.

    Raises:
        InvalidInputError: it does not have exactly one dot.
    """
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        raise InvalidInputError("table name must be database.table", name=ascii(name[:80]))
    return database, table


def table_exists(name: str, hint: str = "choose another name") -> InvalidInputError:
    """The error that the table already exists."""
    return InvalidInputError("table already exists", code="table-exists", table=name, hint=hint)
