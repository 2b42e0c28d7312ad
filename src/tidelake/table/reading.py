"""The reading side of a table's handle: a lazy scan, and its shorthands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.expr.tree import Predicate
from tidelake.ops.scan.follow import Follower, FollowOptions, begin_options
from tidelake.ops.scan.modes import names_a_place
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.topn import OrderBy, parse_order
from tidelake.options import TableOptions
from tidelake.query import HIDDEN_COLUMNS, ChangeRange, Scan, Shape, chosen_columns, with_request
from tidelake.table.base import Handle
from tidelake.table.following import Following, open_progress
from tidelake.table.placed import PlacedScan, columns_without_places

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

LATEST_FULL = "latest-full"


class Reading(Handle):
    """Reads the rows of a table. Each shorthand is a scan and its conversion."""

    __slots__ = ()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> Scan:
        """A lazy read: some columns, the rows that match `where` (SQL text or an expression), at most `limit`.

        `order_by` is a column, `"column desc"`, or a list of them and of pairs `("column", "desc")`: null comes first,
        or last when descending. With a limit, files that cannot hold one of the first rows are not read.

        `columns` may also name hidden ones: `__paimon_partition`, `__paimon_bucket`, and where nothing has to be merged
        `__paimon_file_path` and `__paimon_row_index`.

        Raises:
            InvalidInputError: a column does not exist, or the condition cannot be understood.
        """
        own = columns_without_places(self.schema, columns)
        request = ReadRequest(
            schema=self.schema,
            columns=chosen_columns(self.schema, columns if own is None else own or self.schema.names[:1]),
            where=self._predicate(where),
            limit=None if limit is None else _row_count(limit),
            order=parse_order(order_by, self.schema),
        )
        if own is None or columns is None:
            return Scan(self.context, request)
        return PlacedScan(self.context, request, shown=tuple(columns))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> pa.Table:
        """Rows as an Arrow table."""
        return self.scan(columns, where, limit, order_by).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> pa.RecordBatchReader:
        """Rows as a stream of Arrow batches."""
        return self.scan(columns, where, limit, order_by).to_batches()

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
        *,
        lazy: Literal[False] = False,
    ) -> pl.DataFrame: ...

    @overload
    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
        *,
        lazy: Literal[True],
    ) -> pl.LazyFrame: ...

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
        *,
        lazy: bool = False,
    ) -> pl.DataFrame | pl.LazyFrame:
        """Rows as a Polars frame; with `lazy`, one that reads only what its query needs, when it is collected."""
        scan = self.scan(columns, where, limit, order_by)
        return scan.to_polars(lazy=True) if lazy else scan.to_polars()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
    ) -> pd.DataFrame:
        """Rows as a pandas frame."""
        return self.scan(columns, where, limit, order_by).to_pandas()

    def to_duckdb(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
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

        `columns` may also name the hidden columns that `Scan.to_spark` describes.
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
        since: int | str | None = None,
        until: int | str | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> Scan:
        """A lazy read of what changed after `since` up to `until` (the newest snapshot); first column `rowkind`.

        Both are snapshot ids or names of tags; without them the options of the table's handle say which
        (`incremental-between` and the like). `incremental-between-scan-mode` says where changes come from; by default
        from the changelog if the table has one, else from the files that snapshots added, and between two tags from the
        difference of their rows.

        Raises:
            InvalidInputError: no start of the changes is given.
            NotFoundError: the tag does not exist.
        """
        for name, place in (("since", since), ("until", until)):
            if place is not None and not isinstance(place, str) and not _is_id(place):
                raise InvalidInputError(
                    f"{name} is neither a snapshot id nor a tag", got=repr(place)[:80], hint="give a number or a name"
                )
        if since is not None and until is None:
            until = self.store.snapshots.latest_id() or 0
        return replace(_with_kinds(self.scan(columns, where)), changes=ChangeRange(since, until))

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
        """The changes of the table as they are committed, one snapshot at a time, for as long as they are asked for.

        A `consumer` is a name under which progress is saved in the table: a stream with the same name resumes where the
        last one stopped, and snapshots that it has not read do not expire. Progress is saved by `Change.ack()`, or when
        the next change is asked for. Otherwise the stream begins at `start`: `"latest-full"` (the newest state, then
        changes), `"latest"` (what comes from now on), `"earliest"` (all changes that are kept), `"compacted-full"`, the
        id of a snapshot (with its changes), a moment (a datetime), or where the `scan.*` options say.

        It looks for a new snapshot every `poll` seconds, by default as often as `continuous.discovery-interval` says,
        or every second. It ends after `timeout` seconds without a change, after the changes of snapshot `until`
        (`"latest"`: the newest one now), after `scan.bounded.watermark`, or when it is closed; without any of them,
        never.

        Raises:
            InvalidInputError: options contradict each other, or a stream cannot begin there.
            UnsupportedError: the table is not one whose rows are read here.
        """
        self._refuse_unreadable()
        given = {} if start == LATEST_FULL and names_a_place(self.context.options) else begin_options(start)
        if given and names_a_place(self.context.options):
            raise InvalidInputError(
                "start of the stream is given twice", start=start, hint="leave out start=, or the scan options"
            )
        for name, seconds in (("poll", poll), ("timeout", timeout)):
            if seconds is not None and not _is_span(seconds):
                raise InvalidInputError(f"{name} is not a number of seconds", got=repr(seconds)[:80], hint="write 1.0")
        if isinstance(until, str) and until != "latest":
            raise InvalidInputError("end of the stream is not a snapshot", until=until, hint='give its id, or "latest"')
        if until is not None and not isinstance(until, str) and not _is_id(until):
            raise InvalidInputError(
                "end of the stream is not a snapshot", until=repr(until)[:80], hint='give its id, or "latest"'
            )
        options = TableOptions({**self.options, **given})
        scan = _with_kinds(self.scan(columns, where))
        scan = replace(scan, context=replace(scan.context, options=options))
        how = options.of(FollowOptions)
        poll_s = poll if poll is not None else 1.0 if how.poll_ms is None else how.poll_ms / 1_000
        progress = open_progress(scan.context, how.consumer if consumer is None else consumer, rarely_s=poll_s)
        resumed = progress if progress and not how.ignore_progress else None
        return Following(
            scan,
            Follower(
                scan.context,
                scan.request(),
                resumed.resume_id if resumed else None,
                read_ms=resumed.read_ms if resumed else None,
            ),
            progress,
            poll_s=poll_s,
            timeout_s=timeout,
            until=(self.store.snapshots.latest_id() or 0) if isinstance(until, str) else until,
        )


def _is_id(snapshot: object) -> bool:
    return isinstance(snapshot, int) and not isinstance(snapshot, bool)


def _row_count(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, Integral) or int(limit) < 0:
        raise InvalidInputError("limit is not a number of rows", limit=repr(limit)[:80], hint="write limit=10")
    return int(limit)


def _is_span(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds < float("inf")


def _with_kinds(scan: Scan) -> Scan:
    if isinstance(scan, PlacedScan):
        scan.refuse_changes()
    return with_request(scan, shape=Shape.CHANGES) if scan.shape is Shape.ROWS else scan
