"""Read-only views of a table: rows with their row kinds, changes as one row each, rows that are compacted.

`db.t$audit_log`, `db.t$binlog` and `db.t$ro` are opened by name and read like the table itself. A view has no verb that
changes the table; a call of one names the table to change instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.notebook import plain
from tidelake.ops.scan.topn import OrderBy
from tidelake.query import Scan, Shape, with_request
from tidelake.store.table_store import TableStore
from tidelake.table.following import Following
from tidelake.table.handle import Table
from tidelake.table.read_only import ReadOnly
from tidelake.table.reading import LATEST_FULL, Reading

RO: Final = "ro"
VIEWS: Final = (Shape.AUDIT_LOG.value, Shape.BINLOG.value, RO)
"""The names of the views, as they stand behind the dollar sign."""


@dataclass(frozen=True, slots=True, repr=False)
class View(ReadOnly):
    """One of the views of a table, with the columns that Paimon gives it: scan, changes and follow read it."""

    name: str
    store: TableStore
    dynamic: Mapping[str, str] = field(default_factory=dict)
    view: str = Shape.AUDIT_LOG.value

    def __repr__(self) -> str:
        return plain(f"View({self.name}: {', '.join(self.scan().arrow_schema.names)})")

    def _repr_html_(self) -> str:
        return Table(self.name, self.store, self.dynamic)._repr_html_()

    @property
    def table(self) -> Table:
        """The table behind the view."""
        return Table(self.name.removesuffix(f"${self.view}"), self.store, self.dynamic)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> Scan:
        """A lazy read of the view; `columns` are those of the table; the view's own columns are always added.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        found = Reading.scan(self, columns, where, limit, order_by)
        return found.read_optimized() if self.view == RO else with_request(found, shape=Shape(self.view))

    def changes(
        self,
        since: int | str | None = None,
        until: int | str | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> Scan:
        """A lazy read of what changed, in the form of the view.

        Raises:
            InvalidInputError: no start of the changes is given, or the view shows no changes.
            NotFoundError: the tag does not exist.
        """
        self._require_changes()
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
        self._require_changes()
        return Reading.follow(self, consumer, start, poll, columns=columns, where=where, timeout=timeout, until=until)

    def _of(self, table: Table) -> View:
        return view_of(table, self.view)

    def _require_changes(self) -> None:
        if self.view == RO and self.primary_key:
            raise InvalidInputError(
                "view of compacted rows has no changes", name=self.name, hint="follow the table itself"
            )


def view_of(table: Table, view: str) -> View:
    """A view of a table by its name, which is one of `VIEWS`."""
    assert view in VIEWS, view
    return View(f"{table.name}${view}", table.store, table.dynamic, view)
