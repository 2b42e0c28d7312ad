"""The system tables of a table, opened by name: `db.t$files` and so on are read like a table and never changed.

Conditions, columns, an order and a limit are those of every scan. Rows are made when they are read, so that each read
shows the metadata of that moment, or of the point in time that the handle names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.expr.evaluate import matches
from tidelake.expr.render import to_sql
from tidelake.expr.tree import Predicate
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.context import TableContext
from tidelake.ops.inspect.catalogue import SystemSource, system_source
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.topn import OrderBy
from tidelake.ops.scan.travel import TravelOptions, resolve
from tidelake.query import Scan, chosen_columns
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.schema import Schema
from tidelake.store.table_store import TableStore
from tidelake.table.handle import Table
from tidelake.table.read_only import ReadOnly
from tidelake.table.reading import Reading

__all__ = ["RowSource", "SystemScan", "SystemTable", "system_table_of"]


class RowSource(Protocol):
    """What a system table shows."""

    def schema(self, context: TableContext) -> Schema:
        """Its columns."""

    def batches(self, context: TableContext, columns: AbstractSet[str]) -> Iterator[pa.RecordBatch]:
        """All of its rows, with at least these columns."""


@dataclass(frozen=True, slots=True, repr=False)
class SystemScan(Scan):
    """A lazy read of a system table."""

    source: RowSource = field(kw_only=True)

    def snapshot(self) -> Snapshot | None:
        """The snapshot that the handle names, or the newest."""
        return resolve(self.store, self.options.of(TravelOptions))

    def plan(self) -> NoReturn:
        """A system table has no plan: its rows are not in data files.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "rows of a system table are not planned", table=self.name, hint="read them, for example with to_arrow()"
        )

    def splits(self) -> NoReturn:
        """A system table has no splits.

        Raises:
            UnsupportedError: always.
        """
        self.plan()

    @property
    def _answers_by_file(self) -> bool:
        return False

    def explain(self) -> str:
        """What the read would do, for a person."""
        lines = [f"read {self.name} from metadata", f"  columns    {', '.join(self.columns)}"]
        if self.order:
            lines.append(f"  order by   {', '.join(map(str, self.order))}")
        if self.limit is not None:
            lines.append(f"  limit      {self.limit}")
        if self.where is not None:
            lines.append(f"  where      {to_sql(self.where)}")
        return "\n".join(lines)

    def _rows(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        return _choose_rows(self.source.batches(self.context, frozenset(request.looks_at)), request)

    def _read_all(self) -> pa.Table:
        return pa.Table.from_batches(list(self._begin()), schema=self.arrow_schema)

    def _count(self) -> int:
        looked_at = sorted(self.where.columns()) if self.where is not None else ()
        request = replace(self.request(), columns=tuple(looked_at) or self.columns[:1])
        return sum(batch.num_rows for batch in self._rows(request))


def _choose_rows(batches: Iterator[pa.RecordBatch], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    left = request.limit
    target = request.arrow_schema
    for batch in batches:
        if left == 0:
            return
        if request.where is not None:
            columns = {name: batch.column(name) for name in request.where.columns()}
            batch = batch.filter(matches(request.where, columns, batch.num_rows))
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in target.names], schema=target)


@dataclass(frozen=True, slots=True, repr=False)
class SystemTable(ReadOnly):
    """A system table: scans and their shorthands read it."""

    name: str
    store: TableStore
    dynamic: Mapping[str, str] = field(default_factory=dict)
    source: RowSource = field(kw_only=True)

    def __repr__(self) -> str:
        return plain(f"SystemTable({self.name}: {', '.join(self.schema.names)})")

    def _repr_html_(self) -> str:
        rows = ((each.name, each.type) for each in self.schema.fields)
        return html_card(self.name, (), html_table(("column", "type"), rows))

    @property
    def schema(self) -> Schema:
        """The columns and the key of the system table."""
        return self.source.schema(self.context)

    @property
    def table(self) -> Table:
        """The table that the system table is about.

        Raises:
            InvalidInputError: it is about the whole lake.
        """
        assert isinstance(self.source, SystemSource)
        return Table(self.name.removesuffix(f"${self.source.system}"), self.store, self.dynamic)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> SystemScan:
        """A lazy read, as `Table.scan` says.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        base = Reading.scan(self, chosen_columns(self.schema, columns), where, limit, order_by)
        for name in base.where.columns() if base.where is not None else ():
            base.schema.field(name)  # also where no row is there to be compared
        return SystemScan(base.context, base.wanted, source=self.source)

    def changes(self, *_: object, **__: object) -> NoReturn:
        """A system table has no changes.

        Raises:
            InvalidInputError: always.
        """
        raise InvalidInputError("system table has no changes", name=self.name, hint="read it again")

    def follow(self, *_: object, **__: object) -> NoReturn:
        """A system table is not followed.

        Raises:
            InvalidInputError: always.
        """
        self.changes()

    def _of(self, table: Table) -> SystemTable:
        assert isinstance(self.source, SystemSource)
        return _open(table, self.source)


def system_table_of(table: Table, name: str) -> SystemTable:
    """A system table of a table by its name, in any case.

    Raises:
        InvalidInputError: the system table does not exist, or the table is not one that has it.
        UnsupportedError: the table is not one whose rows are read here.
    """
    return _open(table, system_source(name))


def _open(table: Table, source: SystemSource) -> SystemTable:
    found = SystemTable(f"{table.name}${source.system}", table.store, table.dynamic, source=source)
    source.schema(found.context)  # raises now, and not at the first read
    return found
