"""Views of a table that are only read: its rows with their kinds, its changes as one row each, what is compacted.

`db.t$audit_log`, `db.t$binlog` and `db.t$ro` are opened by name and read like the table itself. What writes is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.notebook import plain
from tidelake.ops.scan.topn import OrderBy
from tidelake.query import Scan, Shape
from tidelake.table.following import Following
from tidelake.table.handle import Table
from tidelake.table.reading import LATEST_FULL, Reading

RO: Final = "ro"
VIEWS: Final = (Shape.AUDIT_LOG.value, Shape.BINLOG.value, RO)
"""The names of the views, as they stand behind the dollar sign."""


@dataclass(frozen=True, slots=True, repr=False)
class View(Table):
    """One of the views of a table, with the columns of the format's own: scan, changes and follow read it."""

    view: str = Shape.AUDIT_LOG.value

    def __repr__(self) -> str:
        return plain(f"View({self.name}: {', '.join(self.scan().arrow_schema.names)})")

    @property
    def table(self) -> Table:
        """The table that is viewed."""
        return Table(self.name.removesuffix(f"${self.view}"), self.store, self.dynamic)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> Scan:
        """A lazy read of the view; `columns` are those of the table, and what the view puts in front always comes.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        found = Reading.scan(self, columns, where, limit, order_by)
        return found.read_optimized() if self.view == RO else replace(found, shape=Shape(self.view))

    def changes(
        self,
        since: int | str | None = None,
        until: int | str | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> Scan:
        """A lazy read of what changed, in the form of the view.

        Raises:
            InvalidInputError: nothing says since when, or the view shows no changes.
            NotFoundError: there is no such tag.
        """
        self._refuse_compacted()
        return Reading.changes(self, since, until, columns, where)

    def follow(
        self,
        consumer: str | None = None,
        start: str | int | datetime = LATEST_FULL,
        poll: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        timeout: float | None = None,
        until: int | str | None = None,
    ) -> Following:
        """The changes of the table as they are committed, in the form of the view.

        Raises:
            InvalidInputError: the view shows no changes, options contradict each other, or a stream cannot begin there.
        """
        self._refuse_compacted()
        return Reading.follow(self, consumer, start, poll, columns=columns, where=where, timeout=timeout, until=until)

    def reload(self) -> Table:
        """The same view with the table's current schema.

        Raises:
            NotFoundError: the table was dropped.
        """
        return view_of(self.table.reload(), self.view)

    def with_options(self, options: Mapping[str, object]) -> Table:
        """The same view with dynamic options, as `Table.with_options` takes them.

        Raises:
            InvalidInputError: an option is immutable, its value is wrong, or two of them contradict each other.
            NotFoundError: there is no such tag or branch.
        """
        return view_of(self.table.with_options(options), self.view)

    def branch(self, name: str) -> Table:
        """The same view of the table on a branch.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: the name is not usable.
        """
        return view_of(self.table.branch(name), self.view)

    def _refuse_compacted(self) -> None:
        if self.view == RO and self.primary_key:
            raise InvalidInputError(
                "what is compacted is a state and shows no changes", name=self.name, hint="follow the table itself"
            )

    def _refuse_travelled(self) -> None:
        self._refuse_view()

    def _refuse_view(self) -> None:
        raise InvalidInputError("a view is only read", name=self.name, hint=f"write to {self.table.name}")


def view_of(table: Table, view: str) -> View:
    """A view of a table by its name.

    Raises:
        InvalidInputError: there is no such view.
    """
    if view not in VIEWS:
        raise InvalidInputError(
            "system table is not opened by name",
            name=ascii(view[:80]),
            hint=f"use table(…).inspect; views are {', '.join(VIEWS)}",
        )
    return View(f"{table.name}${view}", table.store, table.dynamic, view)
