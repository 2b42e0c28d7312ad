"""The reader of `spark.readStream`: the driver finds offsets and plans batches, tasks read splits as in batch reads.

Spark makes a reader in a Python process of the driver, which then lives as long as the query, and others whose only
purpose is to be sent to tasks. So constructors do nothing, and whatever a restarted query needs is in its offsets
(`offsets`). Errors are raised at the first use: Spark would replace one that the constructor raises by its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelake.engines.spark.bridge.grants import TableRef
from tidelake.engines.spark.bridge.tasks import balance
from tidelake.engines.spark.read.frames import OPEN_BYTES, TASK_BYTES, split_by_file
from tidelake.engines.spark.read.source_rows import check_struct, read_source_rows
from tidelake.engines.spark.stream.limits import Admission, ReadLimits
from tidelake.engines.spark.stream.offsets import NOT_BEGUN, StreamOffset, offset_from_json, offset_to_json
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.notebook import pluralize
from tidelake.ops.scan.follow import STATE_UNREAD, FollowOptions
from tidelake.ops.scan.request import ROWKIND, ReadRequest, Shape
from tidelake.ops.scan.split import Split
from tidelake.ops.scan.stream import Position, StreamPlanner
from tidelake.options.capabilities import refuse_reading
from tidelake.query import with_request
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.store.snapshots import plan_again
from tidelake.table import Table
from tidelake.table.following import ConsumerProgress, open_progress

_LOG: Final = logging.getLogger("tidelake.stream")
_NEW_CHECKPOINT: Final = (
    "start the query with a new checkpoint and the scan options that say where it begins; snapshots that a query has"
    " still to read are kept if it has a consumer-id"
)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream reads."""

    open: Callable[[], Table]
    """Opens the table at its newest schema, with the options of this use."""
    limits: Mapping[str, str]
    where: str | None = None
    kinds: bool = False
    """Whether the kinds of rows come in front."""
    chosen: bool = False
    """Whether the user chose columns, so that a new column does not concern the stream."""
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class StreamTask:
    """What one task reads: splits, by this request."""

    ref: TableRef
    request: ReadRequest
    splits: tuple[Split, ...]


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream."""

    def __init__(self, prepare: Callable[[], StreamSettings], struct: StructType) -> None:
        """Read these columns of the table that the settings name, which are asked for at the first use."""
        self._prepare, self._struct = prepare, struct
        self._batches: StreamBatches | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}  # tasks only read

    def _open(self) -> StreamBatches:
        if self._batches is None:
            self._batches = StreamBatches(self._prepare(), self._struct)
        return self._batches

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The offset before the first batch, which says only that nothing was read.

        Raises:
            TidelakeError: the table cannot be streamed with these options.
        """
        self._open()
        return offset_to_json(NOT_BEGUN)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """A limit that makes Spark say when limits do not count; the real ones are in `limits`.

        Raises:
            InvalidInputError: a limit is wrong.
        """
        limits = ReadLimits.parse(self._prepare().limits)
        return ReadMaxRows(limits.max_rows or (1 << 62)) if limits.are_given else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Read up to the snapshot that is the newest now, and no further.

        Raises:
            TidelakeError: the table cannot be streamed with these options.
        """
        self._open().end_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The end of the batch that begins at an offset; the same offset if there is nothing to read yet.

        Raises:
            NotFoundError: the next snapshot expired before it was read, or the table was rolled back or created again.
            InvalidInputError: columns were altered, or options contradict each other.
        """
        offset = offset_from_json(start)
        found = self._open().find_end(offset, limited=not isinstance(limit, ReadAllAvailable))
        return start if found == offset else offset_to_json(found)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch between two offsets, which read the same rows whenever they are planned.

        Raises:
            NotFoundError: a snapshot of the batch expired, or the table was rolled back or created again.
            InvalidInputError: the offsets are not of one stream, or an option has changed the splits.
        """
        return [InputPartition(each) for each in self._open().tasks(offset_from_json(start), offset_from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        task = partition.value
        if isinstance(task, StreamTask):
            yield from read_source_rows(task.ref.open().context, task.splits, task.request, self._struct)

    def commit(self, end: dict[str, Any]) -> None:
        """Save the progress of the consumer: Spark will not ask for anything before this offset again.

        Raises:
            StorageError: the storage failed.
        """
        self._open().save_progress(offset_from_json(end))

    def stop(self) -> None:
        """Nothing is open between two calls."""


class StreamBatches:
    """The driver's side of a stream: where its batches begin and end, and their tasks."""

    def __init__(self, settings: StreamSettings, struct: StructType) -> None:
        """Open the table.

        Raises:
            NotFoundError: the table does not exist.
            InvalidInputError: an option is wrong, or the table does not have a requested column.
            UnsupportedError: the table is not one whose rows are read here.
        """
        table = settings.open()
        refuse_reading(table.store.schemas.newest_known(table.schema).options)
        columns = StructType([each for each in struct if not (settings.kinds and each.name == ROWKIND)])
        check_struct(columns, table.schema)
        self._table, self._tasks = table, settings.tasks
        self._limits = ReadLimits.parse(settings.limits)
        self._clock = table.store.env.clock
        context = table.context
        scan = table.scan(columns.names, settings.where)
        if settings.kinds or context.is_keyed:
            scan = with_request(scan, shape=Shape.CHANGES)
        self._request = scan.request()
        whole = not settings.chosen and set(columns.names) == set(table.schema.names)
        self._planner = StreamPlanner(context, self._request, all_columns=whole)
        self._ref = TableRef.of(table.name, table.store, table.dynamic)
        how = context.options.of(FollowOptions)
        self._consumer = how.consumer
        self._progress: ConsumerProgress | None = open_progress(
            context, how.consumer, rarely_s=1.0 if how.poll_ms is None else how.poll_ms / 1_000
        )
        self._resumes = not how.ignore_progress
        self._until: int | None = None
        self._last_rows = self._clock.monotonic()
        if context.is_keyed and not settings.kinds:
            _LOG.warning(
                "%s: the stream of a primary-key table returns every changed row without its kind, deletions too;"
                " set read.changelog=true for a column rowkind",
                table.name,
            )

    def end_at_newest(self) -> None:
        """End the stream with the snapshot that is the newest now."""
        self._until = self._table.store.snapshots.latest_id() or 0

    # -------------------------------------------------------------------------------------------- offsets

    def find_end(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """The end of the batch that begins at an offset.

        Raises:
            NotFoundError: the next snapshot expired before it was read, or the table was rolled back or created again.
            InvalidInputError: columns were altered, or options contradict each other.
        """
        limits = self._limits if limited else ReadLimits()
        try:
            if start.position is None:
                return plan_again(lambda: self._begin(limits))
            # Spark asks what follows an offset once the batch that ends there is done; `commit` comes a batch later.
            self.save_progress(start)
            self._planner.forget_before(start.position)
            end = self._advance(start.position, limits)
        except NotFoundError as error:
            raise self._with_hint(error) from error
        return start if end == start.position else StreamOffset(end)

    def _begin(self, limits: ReadLimits) -> StreamOffset:
        begin = self._resume() or self._planner.begin()
        if begin is None:
            return NOT_BEGUN
        if self._until is not None and begin.full:
            self._until = max(self._until, begin.snapshot_id)
        if self._progress is not None:  # from here on expiry keeps snapshots, also that of the state
            self._progress.save(begin.snapshot_id, STATE_UNREAD if begin.full else begin.read_ms, now=True)
        return StreamOffset(self._advance(begin, limits), begin)

    def _resume(self) -> Position | None:
        """Where the consumer stopped; None if another query stopped before it had read its whole first state.

        What that query has read is known to its checkpoint alone, so this one begins where its options say.
        """
        progress = self._progress
        if progress is None or not self._resumes or progress.resume_id is None or progress.read_ms == STATE_UNREAD:
            return None
        return Position(progress.resume_id, read_ms=progress.read_ms)

    def _advance(self, start: Position, limits: ReadLimits) -> Position:
        taken = Admission(limits)
        ends = self._until is not None
        end = self._planner.advance(start, taken.admit, until=self._until, skip_idle=ends)
        now = self._clock.monotonic()
        # A state does not grow, so waiting would not bring more rows, but its snapshot might expire.
        if not ends and not start.full and limits.waits(taken, (now - self._last_rows) * 1_000):
            return start
        if taken.splits:
            self._last_rows = now
        return end

    def save_progress(self, end: StreamOffset) -> None:
        """Save that the consumer has everything before an offset; inside the first state, that it has still to read it.

        Raises:
            StorageError: the storage failed.
        """
        position = end.position
        if self._progress is None or position is None:
            return
        if position.full:
            read_ms: int | None = STATE_UNREAD
        else:
            read_ms = position.read_ms if position.index < 0 else None
        self._progress.save(position.snapshot_id, read_ms, now=False)

    def _with_hint(self, error: NotFoundError) -> NotFoundError:
        """The same error with what to do about a query."""
        if error.code not in ("snapshot-expired", "stream-out-of-range"):
            return error
        hint = _NEW_CHECKPOINT
        if self._consumer is not None and self._resumes:  # a query with a new checkpoint would go on at the same place
            hint = (
                f'set the consumer to a snapshot of today with table.reset_consumer("{self._consumer}", snapshot), or'
                f' delete it with table.reset_consumer("{self._consumer}"); then start the query with a new checkpoint'
            )
        return NotFoundError(error.message, code=error.code, hint=hint, **error.facts)

    # -------------------------------------------------------------------------------------------- tasks

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[StreamTask]:
        """The tasks of a batch.

        Raises:
            NotFoundError: a snapshot of the batch expired, or the table was rolled back or created again.
            InvalidInputError: the offsets are not of one stream, or an option has changed the splits.
        """
        if end.position is None:
            return []
        first = end.begin if start.position is None else start.position
        if first is None:
            raise InvalidInputError(
                "offset of the first batch does not say where the stream begins",
                code="stream-out-of-range",
                table=self._table.name,
                hint=_NEW_CHECKPOINT,
            )
        try:
            splits = self._planner.between(first, end.position)
        except NotFoundError as error:
            raise self._with_hint(error) from error
        self._log_batch(splits, end.position)
        found = self._group(splits, spread=first.full)
        bins = balance(found, _weigh, self._tasks or os.cpu_count() or 1, least=TASK_BYTES) if found else ()
        return [StreamTask(self._ref, self._request, tuple(s for group in each for s in group)) for each in bins]

    def _log_batch(self, splits: Sequence[Split], end: Position) -> None:
        """Log one line about a batch, with how far its end is behind the table."""
        if not _LOG.isEnabledFor(logging.INFO):
            return
        newest = self._table.store.snapshots.latest()
        behind = 0 if newest is None else max(0, newest.id + 1 - end.snapshot_id)
        late_ms = 0 if newest is None or end.read_ms is None or not behind else newest.time_ms - end.read_ms
        _LOG.info(
            "%s: batch up to snapshot %d%s, %s, %s; %s and %.1f s behind",
            self._table.name,
            end.snapshot_id - (end.index < 0),
            ", a part of it" if end.index >= 0 else "",
            pluralize(len(splits), "split"),
            pluralize(sum(each.row_count for each in splits), "row"),
            pluralize(behind, "snapshot"),
            max(0, late_ms) / 1_000,
        )

    def _group(self, splits: Sequence[Split], *, spread: bool) -> list[tuple[Split, ...]]:
        """Splits that one task reads in their order: all changes of a key, so that its versions stay in order.

        Args:
            splits: In the order of the stream.
            spread: Whether no two of them have rows of one key.
        """
        if not spread and self._table.context.bucket_mode is BucketMode.CROSS_PARTITION:
            return [tuple(splits)] if splits else []  # keys move between buckets, so only one task keeps their order
        if spread or self._table.context.bucket_mode is BucketMode.UNAWARE:
            return [(one,) for split in splits for one in split_by_file(split)]
        groups: dict[tuple[bytes, int], list[Split]] = {}
        for split in splits:
            groups.setdefault((split.partition, split.bucket), []).append(split)
        return [tuple(group) for group in groups.values()]


def _weigh(group: Sequence[Split]) -> int:
    return sum(split.size + OPEN_BYTES * len(split.files) for split in group)
