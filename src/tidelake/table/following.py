"""An endless iterator over the changes of a table, and the progress of the named consumer that reads them.

A change is in flight until it is acknowledged, by `ack()` or by asking for the next one. Only then is the consumer's
progress saved. Whatever stops the work before that (an error, a kill, Ctrl-C, the end of a loop), a change that was not
acknowledged is delivered again: every change is delivered at least once. A consumer that skips a `snapshot_id` which it
handled before thereby handles each change exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelake.io.clock import Clock
from tidelake.notebook import plain
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.consumers import ConsumerOptions, consumer_store
from tidelake.ops.scan.follow import ConsumerMode, Follower, FollowOptions, Pause, Step
from tidelake.query import Scan
from tidelake.spec.documents.consumer import Consumer
from tidelake.store.consumers import ConsumerStore

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_NAP_S: Final = 0.5
"""How often a waiting stream checks whether another thread closed it."""


class ConsumerProgress:
    """The progress of a consumer. A saved position never goes back."""

    def __init__(
        self, consumers: ConsumerStore, consumer: str, clock: Clock, *, rarely_s: float, alive_s: float
    ) -> None:
        """Keep the progress of a consumer.

        Args:
            consumers: the store of the table's consumers.
            consumer: its id.
            clock: measures how long ago it was saved.
            rarely_s: the least number of seconds between two saves, unless `now` is given; 0 saves every time.
            alive_s: seconds after which an unchanged position is saved again, so that the consumer does not expire.
        """
        self._consumers, self._consumer, self._clock = consumers, consumer, clock
        self._rarely_s, self._alive_s = rarely_s, alive_s
        self._known = consumers.find(consumer)
        self._saved = 0
        self._saved_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Another machine's monotonic clock differs: its consumer could seem just saved, never be saved, and expire.
        return {**self.__dict__, "_saved_at": None}

    @property
    def resume_id(self) -> int | None:
        """The next snapshot to read, as saved when the stream was opened."""
        return None if self._known is None else max(self._known.next_snapshot, 1)

    @property
    def read_ms(self) -> int | None:
        """When the snapshot before it was committed, if that is known."""
        return None if self._known is None else self._known.read_ms

    def save(self, next_id: int, read_ms: int | None, *, now: bool) -> None:
        """Record that every snapshot before this one has been read; `read_ms` is when the last of them was committed.

        Raises:
            StorageError: the storage failed; the change is delivered again.
        """
        if next_id < self._saved or (next_id == self._saved and not self._is_old(self._alive_s)):
            return
        if not now and self._rarely_s and not self._is_old(self._rarely_s):
            return
        unknown = {} if self._known is None else self._known.unknown
        self._consumers.write(self._consumer, Consumer(next_snapshot=next_id, read_ms=read_ms, unknown=unknown))
        self._saved, self._saved_at = next_id, self._clock.monotonic()

    def _is_old(self, seconds: float) -> bool:
        return self._saved_at is None or self._clock.monotonic() - self._saved_at >= seconds


def open_progress(context: TableContext, consumer: str | None, *, rarely_s: float) -> ConsumerProgress | None:
    """The progress of a consumer of a table; None without a consumer.

    Args:
        context: The table, with the options of this stream.
        consumer: The id of the consumer.
        rarely_s: The least number of seconds between two saves, if the consumer's mode is at-least-once.

    Raises:
        InvalidInputError: the id cannot be the id of a consumer.
        FormatError: its document is damaged.
    """
    if consumer is None:
        return None
    mode = context.options.of(FollowOptions).consumer_mode
    expiry_ms = context.options.of(ConsumerOptions).expire_after_ms
    clock = context.store.env.clock
    return ConsumerProgress(
        consumer_store(context.store),
        consumer,
        clock,
        rarely_s=rarely_s if mode is ConsumerMode.AT_LEAST_ONCE else 0,
        alive_s=float("inf") if expiry_ms is None else expiry_ms / 3_000,
    )


@dataclass(frozen=True, slots=True)
class Change:
    """What one snapshot changed, or (`full`) the whole state that a stream begins with. First column `rowkind`.

    Rows are read when they are asked for, and can be read again as long as the snapshot is kept.
    """

    snapshot_id: int
    full: bool
    commit_kind: str
    time_ms: int
    watermark: int | None
    rows: Scan = field(repr=False)
    """The rows as a lazy scan, which converts them to any form."""
    _following: Following = field(repr=False, compare=False)
    _next_id: int = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.rows.arrow_schema

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches."""
        return self.rows.to_batches()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self.rows.to_arrow()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        return self.rows.to_polars()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame.

        Raises:
            InvalidInputError: pandas is not installed.
        """
        return self.rows.to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.rows.__arrow_c_stream__(requested_schema)

    def ack(self) -> None:
        """Acknowledge the change: the consumer, if there is one, does not get it again.

        Raises:
            StorageError: the storage failed; the change is delivered again.
        """
        self._following.acknowledge(self._next_id, now=True)


class Following(Iterator[Change], AbstractContextManager["Following"]):
    """The changes of a table, one snapshot at a time, as they are committed."""

    def __init__(
        self,
        scan: Scan,
        follower: Follower,
        progress: ConsumerProgress | None,
        *,
        poll_s: float,
        timeout_s: float | None,
        until: int | None,
    ) -> None:
        """Follow the table; nothing is read before the first change is asked for."""
        self._scan, self._follower, self._progress = scan, follower, progress
        self._poll_s, self._timeout_s, self._until = poll_s, timeout_s, until
        self._pending: int | None = None
        """The position after the change that was returned last, until it is acknowledged."""
        self._handled = 0
        """The position after everything that is acknowledged."""
        self._times: dict[int, int] = {}
        """By position that is not saved yet: when the snapshot before it was committed."""
        self._closed = False

    def __repr__(self) -> str:
        place = "not begun" if self._follower.next_id is None else f"next snapshot {self._follower.next_id}"
        return plain(f"Following({self._scan.name}: {place}{', closed' if self._closed else ''})")

    @property
    def next_snapshot(self) -> int | None:
        """The snapshot that is read next; None before it is known where the stream begins."""
        return self._follower.next_id

    def __next__(self) -> Change:
        """Wait for the next change. Asking for it acknowledges the one before.

        Raises:
            NotFoundError: the next snapshot expired before it was read, or the table was rolled back or created again.
        """
        if self._pending is not None:
            self.acknowledge(self._pending, now=False)
        clock = self._scan.store.env.clock
        waited_since = clock.monotonic()
        while not self._closed:
            begun = self._follower.next_id is not None
            step = Pause.END if self._is_past_the_end() else self._follower.step()
            if isinstance(step, Step) and not self._is_past_the_end(step.snapshot.id):
                if not begun and not step.full:
                    self._save(step.snapshot.id)
                return self._hand_out(step)
            if step is not Pause.WAIT:
                break
            # No change is in work, so snapshots without changes count as read.
            if self._follower.next_id is not None:
                if self._follower.seen is not None:
                    self._times[self._follower.next_id] = self._follower.seen.time_ms
                self._save(self._follower.next_id, now=False)
            if self._is_past_the_end():
                break
            if self._timeout_s is not None and clock.monotonic() - waited_since >= self._timeout_s:
                break
            self._wait(clock, waited_since)
        self.close()
        raise StopIteration

    def _is_past_the_end(self, snapshot_id: int | None = None) -> bool:
        if self._until is None:
            return False
        at = self._follower.next_id if snapshot_id is None else snapshot_id
        # The newest snapshot of an empty table is 0, and nothing comes before it.
        return self._until < 1 if at is None else at > self._until

    def _hand_out(self, step: Step) -> Change:
        self._pending = step.next_id
        snapshot = step.snapshot
        self._times[step.next_id] = snapshot.time_ms
        return Change(
            snapshot.id,
            step.full,
            snapshot.commit_kind.value,
            snapshot.time_ms,
            snapshot.watermark,
            replace(self._scan, planned=step.plan),
            self,
            step.next_id,
        )

    def _wait(self, clock: Clock, since: float) -> None:
        until = clock.monotonic() + self._poll_s
        if self._timeout_s is not None:
            until = min(until, since + self._timeout_s)
        while (left := until - clock.monotonic()) > 0 and not self._closed:
            clock.sleep(min(left, _NAP_S))

    def acknowledge(self, next_id: int, *, now: bool) -> None:
        """Save that all changes before a snapshot are handled.

        Raises:
            StorageError: the storage failed.
        """
        self._handled = max(self._handled, next_id)
        self._save(next_id, now=now)
        if self._pending is not None and next_id >= self._pending:
            self._pending = None

    def _save(self, next_id: int, *, now: bool = True) -> None:
        if self._progress is not None:
            self._progress.save(next_id, self._times.get(next_id), now=now)
        self._times = {at: time_ms for at, time_ms in self._times.items() if at >= next_id}

    def close(self) -> None:
        """End the stream, also from another thread. A change that was not acknowledged is delivered again.

        Raises:
            StorageError: progress could not be saved; the changes since the last save are delivered again.
        """
        self._closed = True
        if self._handled:
            self._save(self._handled)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
