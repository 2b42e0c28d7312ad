"""Following a table: where a stream begins, and what it reads at each snapshot from there on.

`find_begin` decides where: a state to read first, if any, and the first snapshot whose changes follow it. A `Follower`
then goes from one id to the next. It opens the next snapshot by its name and lists no folder, so the cost of a step
depends only on what the snapshot changed. Its whole state is the id of the next snapshot: a new follower with that id
continues where the other stopped.

Invariant: no snapshot is skipped unread. A snapshot that is gone before it was read, or that does not follow the one
read before it, ends the stream with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.clock import moment_ms
from tidelake.ops.context import TableContext
from tidelake.ops.scan.batch import plan_batch
from tidelake.ops.scan.changes import earliest_change, find_change, keep_updates_whole, plan_overwrite, plan_steps
from tidelake.ops.scan.modes import ModeContext, ModeOptions, ScanMode, State, newest_compacted, plan_start
from tidelake.ops.scan.options import ReadOptions
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.travel import TravelOptions, parse_time, tag_names
from tidelake.options import Affects, DurationMs, OptionGroup, option, same_option
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.store.snapshots import plan_again
from tidelake.store.table_store import TableStore

_READ = (Affects.READ,)
_CHECK_EVERY: Final = 16
"""How often the next snapshot is not found before the range of ids is checked again."""
_RESET: Final = "table.reset_consumer(id, snapshot) sets a consumer to another snapshot"

STATE_UNREAD: Final = 0
"""In place of the commit time of what a consumer read last: its stream has still to read the state of `next_snapshot`.

No snapshot has this time. So a reader that goes on behind that state, without having read it, gets an error.
"""


class ConsumerMode(Enum):
    """How often the progress of a consumer is saved."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions(OptionGroup):
    """How a table is followed."""

    consumer: str | None = option(
        "consumer-id", None, doc="Name under which the table stores the progress of a stream.", affects=_READ
    )
    consumer_mode: ConsumerMode = option(
        "consumer.mode",
        ConsumerMode.EXACTLY_ONCE,
        doc="Whether progress is saved after every change, or now and then.",
        affects=_READ,
    )
    ignore_progress: bool = option(
        "consumer.ignore-progress",
        False,
        doc="Start where the scan mode says, and ignore the saved progress of the consumer.",
        affects=_READ,
    )
    overwrites: bool = same_option(SchemaOptions, "streaming_read_overwrite")
    append_overwrites: bool = option(
        "streaming-read-append-overwrite",
        False,
        doc="Streams of an append table see the rows that overwrites add.",
        affects=_READ,
    )
    poll_ms: DurationMs | None = option(
        "continuous.discovery-interval", None, doc="Time between two checks for a new snapshot.", affects=_READ
    )
    delay_ms: DurationMs | None = option(
        "streaming.read.snapshot.delay", None, doc="Streams read a snapshot only when it is this old.", affects=_READ
    )


# ------------------------------------------------------------------------------------------------ where it begins


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a stream begins: with the changes of snapshot `next_id`, and before them with a state, if any."""

    next_id: int
    first: State | None = None


_NOT_STREAMED: Final = {
    "scan.tag-name": "a tag is one state; begin with the snapshot it names",
    "scan.watermark": "begin with the snapshot that has it",
}


def begin_options(start: str | int | datetime) -> Mapping[str, str]:
    """The options for a start given as a word, a snapshot id or a time.

    Raises:
        InvalidInputError: it is none of these.
    """
    if isinstance(start, datetime):
        return {"scan.timestamp-millis": str(moment_ms(start))}
    if isinstance(start, int) and not isinstance(start, bool):
        return {"scan.snapshot-id": str(start)}
    if start == "earliest":
        return {"scan.snapshot-id": "1"}
    modes = {mode.value for mode in (ScanMode.LATEST_FULL, ScanMode.FULL, ScanMode.LATEST, ScanMode.COMPACTED_FULL)}
    if start not in modes:
        raise InvalidInputError(
            "a stream cannot begin there",
            start=repr(start)[:80],
            hint=f"give a snapshot id, a datetime, or one of earliest, {', '.join(sorted(modes))}",
        )
    return {"scan.mode": str(start)}


def find_begin(context: TableContext) -> Begin | None:
    """Where a stream begins according to the options; None while the table has no such snapshot.

    Raises:
        InvalidInputError: the scan mode is one for batch reads only, or options contradict each other.
    """
    store, options = context.store, context.options
    start = plan_start(options)
    modes = options.of(ModeOptions)
    if start.place in _NOT_STREAMED or start.mode in (ScanMode.LATEST_DELTA, ScanMode.INCREMENTAL):
        raise InvalidInputError(
            "a stream cannot begin there",
            code="option-conflict",
            option=start.place or "scan.mode",
            value=options.get(start.place or "scan.mode", start.mode.value),
            hint=_NOT_STREAMED.get(start.place or "", "use changes() for the changes between two points"),
        )
    latest = store.snapshots.latest()
    travel = options.of(TravelOptions)
    if start.mode is ScanMode.LATEST:
        return Begin(1 if latest is None else latest.id + 1)
    if latest is None:
        store.refuse_dropped()
        from_first = start.mode is ScanMode.FROM_SNAPSHOT and travel.snapshot_id is not None and travel.snapshot_id <= 1
        return Begin(1) if from_first else None
    match start.mode:
        case ScanMode.COMPACTED_FULL:
            return _full(newest_compacted(store, options.of(ModeContext)) or latest)
        case ScanMode.FROM_TIMESTAMP:
            time_ms = travel.timestamp_ms
            return Begin(_first_since(store, parse_time(travel.timestamp or "") if time_ms is None else time_ms))
        case ScanMode.FROM_SNAPSHOT:
            wanted = travel.snapshot_id if travel.snapshot_id is not None else _version(store, travel.version or "")
            return Begin(max(wanted, earliest_change(store) or 1))
        case ScanMode.FROM_SNAPSHOT_FULL:
            assert travel.snapshot_id is not None
            return _full(store.snapshots.get(max(travel.snapshot_id, store.snapshots.earliest_id() or 1)))
        case ScanMode.FROM_FILE_CREATION_TIME:
            return Begin(latest.id + 1, State(latest, modes.file_creation_ms))
        case ScanMode.FROM_CREATION_TIMESTAMP:
            assert modes.creation_ms is not None
            since = _first_since(store, modes.creation_ms)
            inside = (earliest_change(store) or 1) < since <= latest.id
            return Begin(since) if inside else Begin(latest.id + 1, State(latest, modes.creation_ms))
    return _full(latest)


def _full(snapshot: Snapshot) -> Begin:
    return Begin(snapshot.id + 1, State(snapshot))


def _version(store: TableStore, version: str) -> int:
    if version in tag_names(store) or not version.isdigit():
        raise InvalidInputError(
            "a stream cannot begin there",
            code="option-conflict",
            option="scan.version",
            value=version,
            hint="begin with a snapshot: scan.snapshot-id",
        )
    return int(version)


def _first_since(store: TableStore, time_ms: int) -> int:
    """The first snapshot that was committed at or after a time; the one to come, if none was."""
    ids = sorted({*store.changelogs.ids(), *store.snapshots.ids()})
    low, high = 0, len(ids)
    while low < high:  # commit times do not decrease
        middle = (low + high) // 2
        snapshot = find_change(store, ids[middle])
        if snapshot is None or snapshot.time_ms < time_ms:  # it expired after the listing, so it was among the oldest
            low = middle + 1
        else:
            high = middle
    return ids[low] if low < len(ids) else ids[-1] + 1


# ------------------------------------------------------------------------------------------------ step by step


@dataclass(frozen=True, slots=True)
class Step:
    """What is read at one snapshot: a state in full, or its changes."""

    snapshot: Snapshot
    plan: Plan
    next_id: int
    """The id of the snapshot after this one."""
    full: bool = False


class Pause(Enum):
    """Why no step is returned."""

    WAIT = "wait"
    """Nothing new yet."""
    END = "end"
    """The stream is over."""


class Follower:
    """The position of a stream in a table. Not shared between threads."""

    def __init__(
        self, context: TableContext, request: ReadRequest, next_id: int | None = None, *, read_ms: int | None = None
    ) -> None:
        """Follow a table from where its options say, or from the changes of a snapshot on.

        `read_ms` is when the snapshot before that one was committed, if it is known to be the last one that was read;
        `STATE_UNREAD` if a state of that snapshot is still to be read.

        Raises:
            InvalidInputError: options contradict each other.
        """
        self._context, self._store = context, context.store
        self._request, self._of_changes = request, keep_updates_whole(request)
        self._how = context.options.of(FollowOptions)
        self._changelog = context.is_keyed and not context.options.of(ModeContext).without_changelog
        self._bound = context.options.of(ReadOptions).bounded_watermark
        self._refuse_overwrites()
        self.seen: Snapshot | None = None
        """The last snapshot that was looked at."""
        self._read_ms = read_ms
        self._checked = False
        """Whether the last snapshot that was read was looked for again."""
        self._misses = 0
        self._ended = False
        self.next_id = next_id
        """The next snapshot, once it is known where the stream begins."""

    def _refuse_overwrites(self) -> None:
        producer = self._context.options.of(ModeContext).producer.value
        if self._how.overwrites and producer in ("lookup", "full-compaction"):
            raise InvalidInputError(
                "overwrites cannot be read where compactions write the changelog",
                code="option-conflict",
                option="streaming-read-overwrite",
                producer=producer,
                hint="unset streaming-read-overwrite",
            )

    def step(self, *, known: int = 0) -> Step | Pause:
        """Go to the next snapshot that changes something.

        Args:
            known: Up to this snapshot the changes were read before. They are read again even if the options for a
                delay or a last watermark, which may have been set since, say that they are not to be read (yet).

        Raises:
            NotFoundError: the next snapshot expired before it was read, or the table was rolled back or replaced.
            FormatError: a document is damaged.
        """
        if self._ended and (self.next_id is None or self.next_id > known):
            return Pause.END
        self._refuse_unread_state()
        if self.next_id is None:
            begun = plan_again(self._begin)
            if begun is not None:
                return begun
        while (snapshot := self._next()) is not None:
            if snapshot.id > known:
                if self._is_beyond(snapshot):
                    self._ended = True
                    return Pause.END
                if not self._is_due(snapshot):
                    return Pause.WAIT
            self.seen, self._misses = snapshot, 0
            self.next_id = snapshot.id + 1
            plan = self._plan(snapshot)
            if plan is not None and plan.splits:
                return Step(snapshot, plan, self.next_id)
        return Pause.WAIT

    def _begin(self) -> Step | Pause | None:
        """Find where the stream begins; None if it begins with changes."""
        begin = find_begin(self._context)
        if begin is None:
            return Pause.WAIT
        step = None
        if begin.first is not None and begin.first.snapshot is not None:
            step = self.read_state(begin.first)
        self.next_id = begin.next_id
        return step

    def read_state(self, state: State) -> Step:
        """Plan the state of a snapshot with which a stream begins.

        Raises:
            NotFoundError: the snapshot expired.
        """
        snapshot = state.snapshot
        assert snapshot is not None
        plan = plan_batch(self._context, replace(self._request, reading=state, first_of_stream=True))
        self.seen = snapshot
        self._ended = self._is_beyond(snapshot)
        return Step(snapshot, plan, snapshot.id + 1, full=True)

    def _is_beyond(self, snapshot: Snapshot) -> bool:
        return self._bound is not None and snapshot.watermark is not None and snapshot.watermark > self._bound

    def _is_due(self, snapshot: Snapshot) -> bool:
        delay = self._how.delay_ms
        return delay is None or snapshot.time_ms <= self._store.env.clock.now_ms() - delay

    def _plan(self, snapshot: Snapshot) -> Plan | None:
        """Plan the changes of a snapshot; None if streams skip it."""
        context, request = self._context, self._of_changes
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            seen = self._how.overwrites if context.is_keyed else self._how.append_overwrites
            return plan_overwrite(context, request, snapshot) if seen else None
        if self._changelog:
            has_one = snapshot.changelog_manifest_list is not None
            return plan_steps(context, request, [snapshot], changelog=True) if has_one else None
        added = snapshot.commit_kind is CommitKind.APPEND
        # Staged rows are read when they are written; the compaction that moves them to buckets is skipped.
        return plan_steps(context, request, [snapshot], changelog=False, staged=True) if added else None

    # -------------------------------------------------------------------------------------------- the next id

    def _next(self) -> Snapshot | None:
        """The next snapshot; None while it does not exist."""
        assert self.next_id is not None
        found = find_change(self._store, self.next_id)
        if found is None:
            if not self._checked:
                self._refuse_rewound()
            if self._misses % _CHECK_EVERY == 0:
                found = self._look_around()
            self._misses += 1
        if found is not None:
            self._refuse_rewound()  # behind the read of `found`: a rollback in between would not be noticed otherwise
        return found

    def _look_around(self) -> Snapshot | None:
        """Distinguish a snapshot that does not exist yet from one that was missed."""
        store, wanted = self._store, self.next_id
        assert wanted is not None
        latest = store.snapshots.latest_id()
        if latest is None:
            store.refuse_dropped()
        if wanted == (latest or 0) + 1:
            return None
        earliest = earliest_change(store) or 1
        facts = {"table": store.env.io.root, "snapshot_id": wanted, "earliest": earliest, "latest": latest or 0}
        if wanted > (latest or 0):
            raise NotFoundError(
                "the next snapshot is after the newest one: the table was rolled back or created again",
                code="stream-out-of-range",
                hint=f"start the stream again; {_RESET}",
                **facts,
            )
        found = find_change(store, wanted)  # committed since we looked for it
        if found is None:
            raise NotFoundError(
                "the next snapshot expired before it was read",
                code="snapshot-expired",
                hint=f"start again; {_RESET}; expiry keeps snapshots that a consumer has still to read",
                **facts,
            )
        return found

    def _refuse_rewound(self) -> None:
        """Check that the last snapshot that was read still precedes the next one. One that expired cannot be compared.

        Each step does this, also while the stream catches up: a table may be rolled back and written up to the next id
        between two steps.
        """
        if self.seen is not None:
            there = find_change(self._store, self.seen.id)
            is_same = there is None or there.is_same_commit(self.seen)
        elif self._read_ms is not None and self.next_id is not None:
            there = find_change(self._store, self.next_id - 1)
            is_same = there is None or there.time_ms == self._read_ms
        else:
            return
        if there is not None and not is_same:
            raise self._rewound_error(there.id)
        self._checked = True

    def _refuse_unread_state(self) -> None:
        if self._read_ms != STATE_UNREAD or self.next_id is None:
            return
        raise NotFoundError(
            "the stream of the consumer has still to read the state of its next snapshot",
            code="stream-out-of-range",
            table=self._store.env.io.root,
            snapshot_id=self.next_id,
            hint=f"let that stream go on; or begin from scratch with consumer.ignore-progress; or {_RESET}",
        )

    def _rewound_error(self, snapshot_id: int) -> NotFoundError:
        return NotFoundError(
            "snapshots that were read no longer belong to the table: it was rolled back or created again",
            code="stream-out-of-range",
            table=self._store.env.io.root,
            snapshot_id=snapshot_id,
            hint=f"start the stream again; {_RESET}",
        )
