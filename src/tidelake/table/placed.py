"""Scans whose rows say where they are stored: partition, bucket, file and position in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.ops.read.order import sorted_batches
from tidelake.ops.read.placed import hidden_among, hidden_fields, read_placed_rows, require_raw
from tidelake.ops.scan.request import Shape
from tidelake.query import Scan
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field

__all__ = ["PlacedScan", "columns_without_places"]


@dataclass(frozen=True, slots=True, repr=False)
class PlacedScan(Scan):
    """A lazy read with hidden columns. Its own `columns` are those of the table."""

    shown: tuple[str, ...] = field(kw_only=True)
    """All columns that come out, in this order."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns that come out."""
        return hidden_among(self.shown, self.schema)

    @property
    def fields(self) -> tuple[Field, ...]:
        """What comes out of each row, in this order."""
        return self._fields_of(self.shown)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._schema_of(self.shown)

    def with_columns(self, columns: Sequence[str]) -> PlacedScan:
        """The same read of only some of its columns."""
        shown = tuple(name for name in columns if name in self.shown) or self.shown[:1]
        own = tuple(name for name in shown if name not in self.hidden)
        return replace(self, wanted=replace(self.wanted, columns=own or self.columns[:1]), shown=shown)

    def to_spark(self, spark: Any | None = None, columns: Sequence[str] | None = None) -> Any:
        """The rows as a lazy Spark frame, as `Scan.to_spark` says; by default with the same columns."""
        return Scan.to_spark(self, spark, self.shown if columns is None else columns)

    def refuse_changes(self) -> NoReturn:
        """Refuse rows that are changes: what is stored of them is not where the row is.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "hidden columns are not available for changes", column=self.hidden[0], hint="leave it out"
        )

    def _find_extreme(self, column: str, *, greatest: bool) -> pa.Array:
        # Hidden columns do not matter to the values of others, so the rows are those of an ordinary scan.
        plain = Scan(self.context, self.wanted, self.changes, self.planned, self._pinned)
        return plain._find_extreme(column, greatest=greatest)

    def _begin(self) -> Iterator[pa.RecordBatch]:
        if self.shape is not Shape.ROWS:
            self.refuse_changes()
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        splits = self.splits()
        require_raw(splits, self.hidden)
        own = tuple(dict.fromkeys((*self.columns, *(key.column for key in self.order))))
        request = replace(self.request(), columns=own, limit=None if self.order else self.limit)
        whole, target = self._schema_of((*own, *self.hidden)), self.arrow_schema
        rows = (_with_schema(each, whole) for each in read_placed_rows(self.context, splits, request, self.hidden))
        for batch in sorted_batches(rows, self.order, self.limit, whole) if self.order else rows:
            yield _with_schema(batch, target)

    def _read_all(self) -> pa.Table:
        return pa.Table.from_batches(list(self._begin()), schema=self.arrow_schema)

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        return row_to_arrow(self._fields_of(names))

    def _fields_of(self, names: Sequence[str]) -> tuple[Field, ...]:
        hidden = {each.name: each for each in hidden_fields(self.hidden, self.schema)}
        return tuple(hidden.get(name) or self.schema.field(name) for name in names)


def columns_without_places(schema: Schema, columns: Sequence[str] | None) -> list[str] | None:
    """The columns of the table among those that are asked for; None if no hidden one is among them.

    Raises:
        InvalidInputError: a column is asked for twice.
    """
    if columns is None or isinstance(columns, str) or not (hidden := hidden_among(columns, schema)):
        return None
    if len(set(columns)) < len(columns):
        raise InvalidInputError("a column is asked for twice", columns=", ".join(columns))
    return [name for name in columns if name not in hidden]


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
