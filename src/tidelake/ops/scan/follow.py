"""Following a table: where a stream begins, and what it reads at each snapshot from there on.

`find_begin` settles where: a state to read first, if any, and the first snapshot whose changes follow it. A `Follower`
then goes from one id to the next. It asks for the next snapshot by its name and lists nothing, so that a step costs by
what the snapshot changed. Its whole state is the id of the next snapshot: one that is made anew with that id goes on
where the other stopped.

Invariant: no snapshot is passed over unseen. One that is gone without having been read, or that is not the successor of
what was read before it, ends the stream with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import ClassVar, Final

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.clock import moment_ms
from tidelake.ops.scan.batch import BatchRead, plan_batch
from tidelake.ops.scan.changes import earliest_change, find_change, plan_overwrite, plan_steps
from tidelake.ops.scan.modes import ModeContext, ModeOptions, ScanMode, State, newest_compacted, plan_start
from tidelake.ops.scan.options import ReadOptions
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.travel import TravelOptions, parse_time, tag_names
from tidelake.options import Affects, DurationMs, OptionGroup, option
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.snapshots import plan_again
from tidelake.store.table_store import TableStore

_READ = (Affects.READ,)
_CHECK_EVERY: Final = 16
"""Looks in vain between two looks at the range of ids."""


class ConsumerMode(Enum):
    """How often the progress of a consumer is saved."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions(OptionGroup):
    """How a table is followed."""

    consumer: str | None = option(
        "consumer-id", None, doc="Name under which the progress of a stream is kept in the table.", affects=_READ
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
        doc="Begin where the scan mode says, whatever the consumer has read before.",
        affects=_READ,
    )
    overwrites: bool = option(
        "streaming-read-overwrite",
        False,
        doc="Streams of a primary-key table see overwrites: what was replaced is taken back.",
        affects=_READ,
    )
    append_overwrites: bool = option(
        "streaming-read-append-overwrite",
        False,
        doc="Streams of an append table see the rows that overwrites add.",
        affects=_READ,
    )
    poll_ms: DurationMs | None = option(
        "continuous.discovery-interval", None, doc="Time between two looks for a new snapshot.", affects=_READ
    )
    delay_ms: DurationMs | None = option(
        "streaming.read.snapshot.delay", None, doc="Streams read a snapshot only when it is this old.", affects=_READ
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowContext(OptionGroup):
    """What following asks of other parts of the table; those declare these options for everybody else."""

    listed: ClassVar[bool] = False

    consumer_expiry_ms: DurationMs | None = option(
        "consumer.expiration-time", None, doc="How long an idle consumer is remembered.", affects=_READ
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
    """The options that say what a person says in one word, number or moment.

    Raises:
        InvalidInputError: it is none of those.
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


def find_begin(store: TableStore, options: Mapping[str, str]) -> Begin | None:
    """Where the options let a stream begin; None as long as the table has nothing to begin with.

    Raises:
        InvalidInputError: the scan mode is one for batch reads only, or options contradict each other.
    """
    start = plan_start(options)
    modes = ModeOptions.parse(options)
    if start.place in _NOT_STREAMED or start.mode in (ScanMode.LATEST_DELTA, ScanMode.INCREMENTAL):
        raise InvalidInputError(
            "a stream cannot begin there",
            code="option-conflict",
            option=start.place or "scan.mode",
            value=options.get(start.place or "scan.mode", start.mode.value),
            hint=_NOT_STREAMED.get(start.place or "", "use changes() for the changes between two points"),
        )
    latest = store.snapshots.latest()
    travel = TravelOptions.parse(options)
    if start.mode is ScanMode.LATEST:
        return Begin(1 if latest is None else latest.id + 1)
    if latest is None:
        store.refuse_dropped()
        from_first = start.mode is ScanMode.FROM_SNAPSHOT and travel.snapshot_id is not None and travel.snapshot_id <= 1
        return Begin(1) if from_first else None
    match start.mode:
        case ScanMode.COMPACTED_FULL:
            return _full(newest_compacted(store, ModeContext.parse(options)) or latest)
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
        if snapshot is None or snapshot.time_ms < time_ms:  # gone meanwhile: it was among the oldest
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
    """The snapshot that follows, once this one is read."""
    full: bool = False


class Pause(Enum):
    """Why there is no step."""

    WAIT = "wait"
    """Nothing new yet."""
    END = "end"
    """The stream is over."""


class Follower:
    """The position of a stream in a table. Not shared between threads."""

    def __init__(
        self, store: TableStore, read: BatchRead, next_id: int | None = None, *, read_ms: int | None = None
    ) -> None:
        """Follow a table from where its options say, or from the changes of a snapshot on.

        `read_ms` is when the snapshot before that one was committed, if it is known to be the last one that was read.

        Raises:
            InvalidInputError: options contradict each other.
        """
        self._store = store
        self._read = read
        self._how = FollowOptions.parse(read.options)
        self._changelog = bool(read.schema.primary_keys) and not ModeContext.parse(read.options).without_changelog
        self._bound = ReadOptions.parse(read.options).bounded_watermark
        self._refuse_overwrites()
        self.seen: Snapshot | None = None
        """The last snapshot that was looked at."""
        self._read_ms = read_ms
        self._misses = 0
        self._ended = False
        self.next_id = next_id
        """The next snapshot, once it is known where the stream begins."""

    def _refuse_overwrites(self) -> None:
        producer = ModeContext.parse(self._read.options).producer.strip().lower()
        if self._how.overwrites and producer in ("lookup", "full-compaction"):
            raise InvalidInputError(
                "overwrites cannot be read where compactions write the changelog",
                code="option-conflict",
                option="streaming-read-overwrite",
                producer=producer,
                hint="unset streaming-read-overwrite",
            )

    def step(self) -> Step | Pause:
        """Go to the next snapshot that changes something.

        Raises:
            NotFoundError: the next snapshot expired before it was read, or is not one of this table's any more.
            FormatError: a document is damaged.
        """
        if self._ended:
            return Pause.END
        if self.next_id is None:
            begun = plan_again(self._begin)
            if begun is not None:
                return begun
        self._refuse_replaced()
        while (snapshot := self._next()) is not None:
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
        """Where the stream begins; None where that is with changes."""
        begin = find_begin(self._store, self._read.options)
        if begin is None:
            return Pause.WAIT
        step = None
        if begin.first is not None and begin.first.snapshot is not None:
            step = self._first(begin.first, begin.first.snapshot, begin.next_id)
        self.next_id = begin.next_id
        return step

    def _first(self, state: State, snapshot: Snapshot, next_id: int) -> Step:
        plan = plan_batch(self._store, replace(self._read, reading=state, first_of_stream=True))
        self.seen = snapshot
        self._ended = self._is_beyond(snapshot)
        return Step(snapshot, plan, next_id, full=True)

    def _is_beyond(self, snapshot: Snapshot) -> bool:
        return self._bound is not None and snapshot.watermark is not None and snapshot.watermark > self._bound

    def _is_due(self, snapshot: Snapshot) -> bool:
        delay = self._how.delay_ms
        return delay is None or snapshot.time_ms <= self._store.env.clock.now_ms() - delay

    def _plan(self, snapshot: Snapshot) -> Plan | None:
        """What is read of a snapshot's changes; None where streams do not look."""
        keyed = bool(self._read.schema.primary_keys)
        wanted = self._read.wanted
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            seen = self._how.overwrites if keyed else self._how.append_overwrites
            return plan_overwrite(self._store, wanted, snapshot) if seen else None
        if self._changelog:
            has_one = snapshot.changelog_manifest_list is not None
            return plan_steps(self._store, wanted, [snapshot], changelog=True) if has_one else None
        added = snapshot.commit_kind is CommitKind.APPEND
        # The compaction that gives rows a bucket is passed over: they are told of when they come, or never.
        return plan_steps(self._store, wanted, [snapshot], changelog=False, staged=True) if added else None

    # -------------------------------------------------------------------------------------------- the next id

    def _next(self) -> Snapshot | None:
        """The next snapshot; None while there is none."""
        assert self.next_id is not None
        found = find_change(self._store, self.next_id)
        if found is None:
            if self._misses % _CHECK_EVERY == 0:
                found = self._look_around()
            self._misses += 1
        if found is not None and self._misses:
            self._refuse_rewound()
        return found

    def _look_around(self) -> Snapshot | None:
        """Tell a snapshot that is still to come from one that was missed."""
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
                "the next snapshot lies beyond the newest one: the table was rolled back or created anew",
                code="stream-out-of-range",
                hint="begin anew; reset_consumer() sets a consumer back",
                **facts,
            )
        found = find_change(store, wanted)  # committed since we looked for it
        if found is None:
            raise NotFoundError(
                "the next snapshot expired before it was read",
                code="snapshot-expired",
                hint="follow with a consumer, which expiry waits for; begin anew, or set it on with reset_consumer()",
                **facts,
            )
        return found

    def _refuse_rewound(self) -> None:
        """After a pause: is what was read before the next snapshot still what lies before it?"""
        if self.seen is None:
            return
        there = find_change(self._store, self.seen.id)
        if there is not None and there != self.seen:
            raise self._rewound(self.seen.id)

    def _refuse_replaced(self) -> None:
        """On the first look: is the snapshot that was read last the one that lies there?"""
        if self._read_ms is None or self.next_id is None:
            return
        there = find_change(self._store, self.next_id - 1)
        if there is not None and there.time_ms != self._read_ms:
            raise self._rewound(there.id)
        self._read_ms = None

    def _rewound(self, snapshot_id: int) -> NotFoundError:
        return NotFoundError(
            "snapshots that were read are not the table's any more: it was rolled back or created anew",
            code="stream-out-of-range",
            table=self._store.env.io.root,
            snapshot_id=snapshot_id,
            hint="begin anew; reset_consumer() sets a consumer back",
        )
