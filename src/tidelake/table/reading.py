"""The reading side of a table's handle: a lazy scan, and its shorthands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.topn import parse_order
from tidelake.query import HIDDEN_COLUMNS, ChangeRange, Scan, chosen_columns
from tidelake.table.base import Handle

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Reading(Handle):
    """Rows of a table as whatever the user works with. Each shorthand is a scan and its conversion."""

    __slots__ = ()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> Scan:
        """A lazy read: some columns, the rows that `where` keeps (SQL text or an expression), at most `limit`.

        `order_by` is a column, `"column desc"` or a list of them: null comes first, or last when descending. With a
        limit, files that cannot hold one of the first rows are not read.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        if limit is not None and limit < 0:
            raise InvalidInputError("limit must not be negative", limit=limit)
        return Scan(
            name=self.name,
            store=self.store,
            paths=self.paths,
            columns=chosen_columns(self.schema, columns),
            where=self._predicate(where),
            limit=limit,
            options=self.options,
            order=parse_order(order_by, self.schema),
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows as an Arrow table."""
        return self.scan(columns, where, limit, order_by).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Rows as a stream of Arrow batches."""
        return self.scan(columns, where, limit, order_by).to_batches()

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: Literal[False] = False,
    ) -> pl.DataFrame: ...

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: Literal[True],
    ) -> pl.LazyFrame: ...

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        *,
        lazy: bool = False,
    ) -> pl.DataFrame | pl.LazyFrame:
        """Rows as a Polars frame; with `lazy` one that reads what its query needs when it is collected."""
        scan = self.scan(columns, where, limit, order_by)
        return scan.to_polars(lazy=True) if lazy else scan.to_polars()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Rows as a pandas frame."""
        return self.scan(columns, where, limit, order_by).to_pandas()

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Rows as a DuckDB relation."""
        return self.scan(columns, where, limit, order_by).to_duckdb()

    def count(self, where: Predicate | str | None = None) -> int:
        """How many rows there are."""
        return self.scan(where=where).count()

    def to_spark(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        spark: Any | None = None,
    ) -> Any:
        """Rows as a lazy Spark frame, pinned to one snapshot; `spark` is the session, by default the active one.

        `columns` may also name the hidden columns that `Scan.to_spark` tells of.
        """
        hidden = set(HIDDEN_COLUMNS).difference(self.schema.names).intersection(columns or ())
        if columns is None or not hidden:
            return self.scan(columns, where).to_spark(spark)
        own = [name for name in columns if name not in hidden]
        return self.scan(own or self.schema.names[:1], where).to_spark(spark, columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    def changes(
        self,
        since: int,
        until: int | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> Scan:
        """A lazy read of the rows that snapshots after `since` up to `until` added; first column `rowkind`.

        Raises:
            NotFoundError: snapshots of that range are not kept.
        """
        last = until if until is not None else self.store.snapshots.latest_id() or 0
        return replace(self.scan(columns, where), changes=ChangeRange(since, last))
