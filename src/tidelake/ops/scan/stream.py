"""A stream in batches that can be planned again: positions in a table, and the splits between two of them.

A batch of a stream is everything between two positions. An engine stores positions and nothing else, so the splits
between two of them must be the same whenever, and in whichever process, they are planned. They are: what a snapshot
changed never changes, its splits have one order, and a position counts them in that order. A position inside a snapshot
also holds a checksum of the splits before it. If another option packs the splits in another way, planning fails instead
of skipping rows or returning them twice.

`ops/scan/follow` says where a stream begins and what each snapshot adds to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.ops.context import TableContext
from tidelake.ops.scan.changes import find_change
from tidelake.ops.scan.follow import Follower, Pause, Step, find_begin
from tidelake.ops.scan.modes import State, plan_start
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split, SplitMode
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.store.paths import DataPaths
from tidelake.store.snapshots import plan_again

IDLE_MAX: Final = 8
"""How many snapshots without changes a position may be behind before it moves on without rows."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream: behind the split `index` of a snapshot, -1 for before its first split.

    With `full` these are the splits of the snapshot's whole state, with which the stream begins; otherwise those of its
    changes. The end of a snapshot is always the beginning of the next one.
    """

    snapshot_id: int
    index: int = -1
    full: bool = False
    created_from_ms: int | None = None
    """With `full`: only files made at or after that time are part of the state."""
    read_ms: int | None = None
    """When the newest snapshot that was read before this position was committed; with `full` that of the state."""
    checksum: int | None = None
    """Of the splits of the snapshot up to `index`, if there are any."""

    @property
    def key(self) -> tuple[int, int]:
        """The order of the positions of one stream."""
        return self.snapshot_id, self.index


def sort_splits(splits: Iterable[Split], paths: DataPaths) -> tuple[Split, ...]:
    """Splits by partition directory and bucket; those of one bucket keep the order that they were planned in."""
    return tuple(sorted(splits, key=lambda split: (paths.partition(split.partition), split.bucket)))


def put_retractions_first(splits: Iterable[Split]) -> tuple[Split, ...]:
    """The splits of one snapshot with the buckets that have retract rows in front, otherwise in the same order.

    Where keys move between partitions, the retract row of a key and the row that replaces it are in two buckets, whose
    sequence numbers cannot be compared. A bucket is never divided, so that the versions of a key in it keep their
    order. So keys that moved in one direction are retracted first. If keys moved both ways in one snapshot, some are
    not.
    """
    given = tuple(splits)
    retracting = {
        (split.partition, split.bucket)
        for split in given
        if split.mode is SplitMode.CHANGES and any(file.delete_row_count != 0 for file in split.files)
    }

    def is_later(split: Split) -> bool:
        if split.mode is SplitMode.CHANGES:
            return (split.partition, split.bucket) not in retracting
        return split.mode is not SplitMode.TAKEN_BACK  # of overwrites: retract rows, or merged rows without any

    return tuple(sorted(given, key=is_later))


def checksum_splits(splits: Iterable[Split]) -> int:
    """A checksum of the files of splits, and of where one split ends and the next begins."""
    text = "\n".join(
        "/".join((split.mode.value, *(file.file_name for file in (*split.before, *split.files)))) for split in splits
    )
    return zlib.crc32(text.encode())


class StreamPlanner:
    """Finds positions and plans what is between them. Not shared between threads.

    It keeps what it planned since the last `forget_before`, so that a batch is planned once although it is asked for
    twice: for its end, and for its splits.
    """

    def __init__(self, context: TableContext, request: ReadRequest, *, all_columns: bool) -> None:
        """Plan the stream of a table.

        Args:
            context: The table.
            request: What is read of each row.
            all_columns: Whether the columns are all those of the table, so that a new one is a change of the stream.
        """
        self._context, self._store, self._request = context, context.store, request
        self._all_columns = all_columns
        self._steps: dict[tuple[int, bool], Step] = {}
        self._tail: Follower | None = None
        self._idle_from = 0
        """From this snapshot on, up to the next one of the tail, no snapshot has changes."""
        self._unchecked: Snapshot | None = None
        """The newest snapshot whose kept step was used since it was last compared with that of the table."""

    def begin(self) -> Position | None:
        """Where the stream begins according to the options; None while the table has no such snapshot.

        Raises:
            InvalidInputError: the scan mode is one for batch reads only, or options contradict each other.
        """
        found = plan_again(lambda: find_begin(self._context))
        if found is None:
            return None
        if found.first is not None and (snapshot := found.first.snapshot) is not None:
            return Position(snapshot.id, -1, True, found.first.created_from_ms, snapshot.time_ms)
        before = find_change(self._store, found.next_id - 1) if found.next_id > 1 else None
        return Position(found.next_id, read_ms=None if before is None else before.time_ms)

    def advance(
        self,
        start: Position,
        admit: Callable[[Split], bool],
        *,
        until: int | None = None,
        skip_idle: bool = False,
    ) -> Position:
        """The end of the batch that begins at a position.

        A batch never holds both the state that a stream begins with and changes, which can be read in other tasks.

        Args:
            start: Where the batch begins.
            admit: Whether the batch takes one more split; asked for one split after the other until it refuses.
            until: The last snapshot whose changes may be taken.
            skip_idle: Whether snapshots without changes are passed even if the batch has no rows.

        Raises:
            InvalidInputError: columns were altered, and the batch would begin with rows of the new ones.
            NotFoundError: a snapshot expired before it was read, or the table was rolled back or created again.
        """
        end = self._advance(start, admit, until, skip_idle)
        self._refuse_replaced()
        return end

    def _advance(self, start: Position, admit: Callable[[Split], bool], until: int | None, skip_idle: bool) -> Position:
        at = start
        while (step := self._step(at)) is not None and (until is None or step.full or step.snapshot.id <= until):
            if (error := self._altered_error(step.snapshot)) is not None:
                if at != start:
                    return at
                raise error
            splits = step.plan.splits
            for index in range(at.index + 1, len(splits)):
                if not admit(splits[index]):
                    return at if index == at.index + 1 else self._inside(step, at, index - 1)
            at = Position(step.next_id, read_ms=step.snapshot.time_ms)
            if step.full:
                return at
        return self._pass_idle(at, until, moved=at != start, even_alone=skip_idle or at != start)

    def _inside(self, step: Step, at: Position, index: int) -> Position:
        return Position(
            step.snapshot.id,
            index,
            step.full,
            at.created_from_ms,
            step.snapshot.time_ms,
            checksum_splits(step.plan.splits[: index + 1]),
        )

    def _pass_idle(self, at: Position, until: int | None, *, moved: bool, even_alone: bool) -> Position:
        """The position behind the snapshots without changes that follow."""
        tail = self._tail
        if tail is None or tail.next_id is None or tail.seen is None or at.full or at.index >= 0:
            return at
        # If the last step went beyond `until`, its snapshot is not idle.
        end = min(self._idle_end(at), tail.next_id if until is None else until + 1)
        if end <= at.snapshot_id:
            return at
        last: Snapshot | None = tail.seen
        if tail.seen.id != end - 1:
            self._unchecked = tail.seen  # if it is still there, what is read now precedes it
            last = find_change(self._store, end - 1)
        # Where a column of the condition is gone, a snapshot seems to have no changes: all its rows are ruled out.
        if last is not None and (error := self._altered_error(last, rows=False)) is not None:
            if moved:
                return at
            raise error
        if not (even_alone or end - at.snapshot_id >= IDLE_MAX):
            return at
        return Position(end, read_ms=None if last is None else last.time_ms)

    def _idle_end(self, at: Position) -> int:
        step = self._steps.get((at.snapshot_id, False))
        if step is not None:
            return step.snapshot.id
        end = None if self._tail is None else self._tail.next_id
        return end if end is not None and self._idle_from <= at.snapshot_id else at.snapshot_id

    def between(self, start: Position, end: Position) -> list[Split]:
        """The splits after one position up to another, in their order.

        What was planned once is planned again whatever the options for a delay or a last watermark are now.

        Raises:
            NotFoundError: a snapshot expired, or the table was rolled back or created again.
            InvalidInputError: the positions are not of one stream, or an option has changed the splits.
        """
        if start.key > end.key or (end.full and start != end and not _same_state(start, end)):
            raise InvalidInputError(
                "the stored offsets are not of one stream",
                code="stream-out-of-range",
                table=self._store.env.io.root,
                start=f"{start.snapshot_id}:{start.index}",
                end=f"{end.snapshot_id}:{end.index}",
                hint="start the query with a new checkpoint",
            )
        found: list[Split] = []
        at, newest = start, None
        last_id = end.snapshot_id if end.index >= 0 else end.snapshot_id - 1
        while at.key < end.key:
            step = self._step(at, known=last_id)
            if step is None:
                reached = None if self._tail is None else self._tail.next_id
                if reached is not None and (reached, -1) < end.key:
                    raise self._gone_error(reached)
                break
            if step.snapshot.id > last_id:
                if end.index >= 0:
                    raise self._gone_error(end.snapshot_id)
                break  # only snapshots without changes are left before the end
            newest = step.snapshot
            splits = step.plan.splits
            if step.snapshot.id == end.snapshot_id:
                _check_place(step, end, self._store.env.io.root)
                splits = splits[: end.index + 1]
            found += splits[at.index + 1 :]
            at = end if step.snapshot.id == end.snapshot_id else Position(step.next_id, read_ms=step.snapshot.time_ms)
        if start.key < end.key:
            self._refuse_replaced()
            self._require_end(end, last_id, newest)
        return found

    def _require_end(self, end: Position, last_id: int, newest: Snapshot | None) -> None:
        """Check that the last snapshot of a batch is the one that was read when the batch was first planned."""
        if end.read_ms is None:
            return
        if newest is None or newest.id != last_id:
            seen = None if self._tail is None else self._tail.seen
            newest = seen if seen is not None and seen.id == last_id else find_change(self._store, last_id)
        if newest is not None and newest.time_ms != end.read_ms:
            raise self._gone_error(last_id)

    def _refuse_replaced(self) -> None:
        """Check that the newest snapshot that was used without a look at the table still belongs to it.

        A rollback removes all snapshots behind one, so the older ones that were used are then still there too.
        """
        used, self._unchecked = self._unchecked, None
        if used is None:
            return
        there = find_change(self._store, used.id)
        if there is None:  # expired, or gone with all that followed it
            is_gone = (self._store.snapshots.latest_id() or 0) < used.id
        else:
            is_gone = not there.is_same_commit(used)
        if is_gone:
            raise self._gone_error(used.id)

    def _gone_error(self, snapshot_id: int) -> NotFoundError:
        return NotFoundError(
            "snapshots of a batch that was planned before are gone: the table was rolled back or created again",
            code="stream-out-of-range",
            table=self._store.env.io.root,
            snapshot_id=snapshot_id,
            hint="start the query with a new checkpoint",
        )

    def forget_before(self, position: Position) -> None:
        """Drop what was planned of snapshots before a position."""
        self._steps = {key: step for key, step in self._steps.items() if step.next_id > position.snapshot_id}

    # -------------------------------------------------------------------------------------------- steps

    def _step(self, at: Position, *, known: int = 0) -> Step | None:
        """The first snapshot at or behind a position that has rows; None if there is none yet.

        Up to the snapshot `known`, and in one that was read in part, neither a delay nor a last watermark counts.
        """
        known = max(known, at.snapshot_id if at.index >= 0 else 0)
        step = self._steps.get((at.snapshot_id, at.full))
        if step is not None:
            self._unchecked = step.snapshot
        else:
            found = self._read_state(at) if at.full else self._follow(at, known)
            if found is None:
                return None
            self._unchecked = None  # the follower has compared the snapshot before it
            splits = sort_splits(found.plan.splits, self._context.paths)
            if not found.full and self._context.bucket_mode is BucketMode.CROSS_PARTITION:
                splits = put_retractions_first(splits)
            step = replace(found, plan=replace(found.plan, splits=splits))
            for snapshot_id in {at.snapshot_id, step.snapshot.id}:
                self._steps[snapshot_id, step.full] = step
        if at.index >= 0:
            _check_place(step, at, self._store.env.io.root)
        return step

    def _read_state(self, at: Position) -> Step:
        """Plan the state that the stream begins with.

        Raises:
            NotFoundError: its snapshot expired.
        """
        snapshot = self._store.snapshots.find(at.snapshot_id)
        if snapshot is None:
            raise NotFoundError(
                "the snapshot whose state the stream begins with expired before it was read",
                code="snapshot-expired",
                table=self._store.env.io.root,
                snapshot_id=at.snapshot_id,
                earliest=self._store.snapshots.earliest_id(),
                hint="start the query with a new checkpoint; snapshot.time-retained says how long snapshots are kept",
            )
        follower = Follower(self._context, self._request, at.snapshot_id + 1)
        return follower.read_state(State(snapshot, at.created_from_ms))

    def _follow(self, at: Position, known: int) -> Step | None:
        tail = self._tail
        if tail is None or tail.next_id is None or not self._idle_from <= at.snapshot_id <= tail.next_id:
            read_ms = at.read_ms if at.index < 0 else None
            tail = Follower(self._context, self._request, at.snapshot_id, read_ms=read_ms)
            self._idle_from = at.snapshot_id
        self._tail = None  # after an error a follower is behind what it did not read
        found = tail.step(known=known)
        self._tail = tail
        if isinstance(found, Pause):
            return None
        self._idle_from = found.next_id
        return found

    def _altered_error(self, snapshot: Snapshot, *, rows: bool = True) -> InvalidInputError | None:
        """The error for a snapshot of a newer schema, if columns that are read are not the same there.

        Without `rows`, of which nothing is read, only the columns of the condition count.
        """
        where = self._request.where
        names = self._request.looks_at if rows else () if where is None else sorted(where.columns())
        ours = self._request.schema
        if snapshot.schema_id <= ours.id or not names:
            return None
        theirs = self._store.schemas.get(snapshot.schema_id)
        fields = {field.id: field for field in theirs.fields}
        changed = []
        for name in names:
            field = ours.field(name)
            other = fields.get(field.id)
            if other is None or other.name != name or other.type != field.type:
                changed.append(name)
        if self._all_columns and rows:
            known = {field.id for field in ours.fields}
            changed += [field.name for field in theirs.fields if field.id not in known]
        if not changed:
            return None
        return InvalidInputError(
            "columns of the table were altered while it was streamed",
            code="stream-schema-changed",
            table=self._store.env.io.root,
            columns=", ".join(changed),
            snapshot_id=snapshot.id,
            hint=self._hint_altered(),
        )

    def _hint_altered(self) -> str:
        place = plan_start(self._context.options).place
        if place is None:
            return "load the stream again and start the query on the same checkpoint: it goes on with the new columns"
        return (
            f"load the stream again without {place}, which keeps the columns of its snapshot, and start the query on"
            " the same checkpoint: it goes on with the new columns"
        )


def _same_state(start: Position, end: Position) -> bool:
    return start.full and (start.snapshot_id, start.created_from_ms) == (end.snapshot_id, end.created_from_ms)


def _check_place(step: Step, at: Position, table: str) -> None:
    """Check that a position inside a snapshot is one inside this snapshot.

    Raises:
        NotFoundError: the table was rolled back or created again.
        InvalidInputError: an option, or another version of the planner, has changed the splits.
    """
    same = step.snapshot.id == at.snapshot_id and (at.read_ms is None or at.read_ms == step.snapshot.time_ms)
    if not same:
        raise NotFoundError(
            "a snapshot that was read in part no longer belongs to the table: it was rolled back or created again",
            code="stream-out-of-range",
            table=table,
            snapshot_id=at.snapshot_id,
            hint="start the query with a new checkpoint",
        )
    splits: Sequence[Split] = step.plan.splits[: at.index + 1]
    if len(splits) <= at.index or (at.checksum is not None and checksum_splits(splits) != at.checksum):
        raise InvalidInputError(
            "the snapshot that the stream stopped in has other splits than when it was read",
            code="stream-splits-changed",
            table=table,
            snapshot_id=at.snapshot_id,
            hint="restart with the options (where, source.split.*) and the version that the query had before;"
            " change them after a batch that ends with a snapshot",
        )
