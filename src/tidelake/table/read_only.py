"""The base of handles that are only read: views and system tables.

A verb that changes a table is not among their attributes. A call of one says which table to change instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, Self

from tidelake.errors import InvalidInputError
from tidelake.table.handle import Table
from tidelake.table.inspecting import Inspect
from tidelake.table.reading import Reading

__all__ = ["ReadOnly"]

_FACTS: Final = frozenset(
    {"branches", "check", "consumers", "diagnose", "files", "latest_snapshot", "snapshot", "statistics", "tags", "why"},
)
"""Methods of a table that only read, and that a view passes on to its table."""


class ReadOnly(Reading):
    """Reads rows, passes on what a table says of itself, and refuses everything else."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Called only for missing attributes. While a view is being unpickled, its fields are missing as well.
        if name.startswith("_") or not callable(getattr(Table, name, None)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in _FACTS:
            fact: Callable[..., Any] = getattr(self.table, name)
            return fact
        return partial(_refuse_change, self.name, self.table.name)

    @property
    def table(self) -> Table:
        """The table behind it."""
        raise NotImplementedError

    @property
    def inspect(self) -> Inspect:
        """The system tables of the table, as Arrow."""
        return self.table.inspect

    def _of(self, table: Table) -> Self:
        """The same view of another state of the table."""
        raise NotImplementedError

    def reload(self) -> Self:
        """The same view with the table's current schema.

        Raises:
            NotFoundError: the table was dropped.
        """
        return self._of(self.table.reload())

    def at(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: str | datetime | int | None = None,
        watermark: int | None = None,
    ) -> Self:
        """The same view of the table as it was, as `Table.at` says.

        Of the system tables those follow that are about files: the others show what the table is now.

        Raises:
            InvalidInputError: not exactly one point in time is given.
            NotFoundError: the snapshot or the tag does not exist.
        """
        return self._of(self.table.at(snapshot=snapshot, tag=tag, timestamp=timestamp, watermark=watermark))

    def with_options(self, options: Mapping[str, object]) -> Self:
        """The same view with dynamic options, as `Table.with_options` takes them.

        Raises:
            InvalidInputError: an option is immutable, its value is wrong, or two of them contradict each other.
            NotFoundError: the tag or the branch does not exist.
        """
        return self._of(self.table.with_options(options))

    def branch(self, name: str) -> Self:
        """The same view of the table on a branch.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: the name is not usable.
        """
        return self._of(self.table.branch(name))


def _refuse_change(view: str, table: str, *_: object, **__: object) -> NoReturn:
    raise InvalidInputError("a view cannot be changed", name=view, hint=f"write to {table}")
