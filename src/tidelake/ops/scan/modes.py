"""What a batch read reads: a state of the table, files that snapshots added, or the difference of two states.

`plan_start` is pure: from the options it derives the scan mode and the one option that says where to start, and refuses
options that contradict each other. `find_reading` resolves that with the snapshots and tags of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.lsm.options import CompactionOptions
from tidelake.ops.context import TableContext
from tidelake.ops.scan.travel import TravelOptions, at_time, find_time, parse_time, read_tag, resolve, tag_names
from tidelake.options import Affects, Int64, OptionGroup, TableOptions, option, same_option
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.tag_periods import TagPeriodOptions, TagPeriods
from tidelake.spec.schemas.schema_options import ChangelogProducer, SchemaOptions
from tidelake.store.table_store import TableStore

_READ = (Affects.READ,)
_BATCH_IDENTIFIER: Final = 2**63 - 1


class ScanMode(Enum):
    """Where a read starts."""

    DEFAULT = "default"
    LATEST_FULL = "latest-full"
    FULL = "full"
    LATEST = "latest"
    LATEST_DELTA = "latest-delta"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_FILE_CREATION_TIME = "from-file-creation-time"
    FROM_CREATION_TIMESTAMP = "from-creation-timestamp"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    INCREMENTAL = "incremental"


class IncrementalMode(Enum):
    """What the changes between two snapshots are taken from."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeOptions(OptionGroup):
    """The mode, and the options that say where other than those of `TravelOptions`."""

    mode: ScanMode = option(
        "scan.mode",
        ScanMode.DEFAULT,
        doc="Where a read starts; unset: where the other options say.",
        affects=_READ,
        fallback=("log.scan",),
    )
    file_creation_ms: Int64 | None = option(
        "scan.file-creation-time-millis", None, doc="Read files made at or after this time.", affects=_READ
    )
    creation_ms: Int64 | None = option(
        "scan.creation-time-millis",
        None,
        doc="Read the first snapshot at or after this time; without one in the history, files made since.",
        affects=_READ,
    )
    between: str | None = option(
        "incremental-between", None, doc="Read the changes after one snapshot or tag up to another.", affects=_READ
    )
    between_times: str | None = option(
        "incremental-between-timestamp", None, doc="Read the changes after one time up to another.", affects=_READ
    )
    between_mode: IncrementalMode = option(
        "incremental-between-scan-mode",
        IncrementalMode.AUTO,
        doc="What changes are taken from: auto, delta, changelog or diff.",
        affects=_READ,
    )
    tag_to_snapshot: bool = option(
        "incremental-between-tag-to-snapshot", False, doc="Read two tags as a range of snapshots.", affects=_READ
    )
    to_auto_tag: str | None = option(
        "incremental-to-auto-tag", None, doc="Read the changes up to this automatic tag.", affects=_READ
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeContext(OptionGroup):
    """Options of other parts of the table that the modes depend on."""

    producer: ChangelogProducer = same_option(SchemaOptions, "changelog_producer")
    delta_commits: int | None = same_option(CompactionOptions, "full_every_commits")

    @property
    def without_changelog(self) -> bool:
        """Whether the table has no changelog producer."""
        return self.producer is ChangelogProducer.NONE


# ------------------------------------------------------------------------------------------------ from options

_TIMES: Final = ("scan.timestamp-millis", "scan.timestamp")
_INCREMENTAL: Final = ("incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag")
_PLACES: Final[Mapping[ScanMode, tuple[str, ...]]] = {
    ScanMode.FROM_TIMESTAMP: _TIMES,
    ScanMode.FROM_SNAPSHOT: ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version"),
    ScanMode.FROM_SNAPSHOT_FULL: ("scan.snapshot-id",),
    ScanMode.FROM_FILE_CREATION_TIME: ("scan.file-creation-time-millis",),
    ScanMode.FROM_CREATION_TIMESTAMP: ("scan.creation-time-millis",),
    ScanMode.INCREMENTAL: _INCREMENTAL,
}
"""The options of which a mode needs exactly one; a mode that is not here takes none."""
_MODE_OF: Final = {
    key: mode for mode, keys in _PLACES.items() if mode is not ScanMode.FROM_SNAPSHOT_FULL for key in keys
}


@dataclass(frozen=True, slots=True)
class Start:
    """The mode, settled, and the option that says where, if the mode needs one."""

    mode: ScanMode
    place: str | None = None

    @property
    def is_newest(self) -> bool:
        """Whether the newest state is read, whatever it is."""
        return self.mode in (ScanMode.LATEST_FULL, ScanMode.LATEST)


def plan_start(options: TableOptions) -> Start:
    """The mode that options ask for.

    Raises:
        InvalidInputError: they contradict each other, or a value has the wrong form.
    """
    modes, travel = options.of(ModeOptions), options.of(TravelOptions)
    places = sorted((modes.given | travel.given) & _MODE_OF.keys())
    if len(places) > 1:
        raise InvalidInputError(
            "read names more than one point in time",
            code="option-conflict",
            options=", ".join(places),
            hint="set one of them only",
        )
    place = places[0] if places else None
    mode = _settle_mode(modes.mode, place)
    allowed = _PLACES.get(mode, ())
    if place is None and allowed:
        raise InvalidInputError(
            "scan mode needs an option that says where",
            code="option-conflict",
            option="scan.mode",
            value=mode.value,
            hint=f"set one of {', '.join(allowed)}",
        )
    if place is not None and place not in allowed:
        raise InvalidInputError(
            "option does not go with the scan mode",
            code="option-conflict",
            option=place,
            mode=mode.value,
            hint=f"remove scan.mode, or set it to {_MODE_OF[place].value}",
        )
    return Start(mode, place)


def _settle_mode(mode: ScanMode, place: str | None) -> ScanMode:
    if mode is ScanMode.DEFAULT:
        return _MODE_OF[place] if place else ScanMode.LATEST_FULL
    return ScanMode.LATEST_FULL if mode is ScanMode.FULL else mode


def names_a_place(options: TableOptions) -> bool:
    """Whether options make a read of anything but the table's newest state."""
    return bool((options.of(ModeOptions).given | options.of(TravelOptions).given) & {"scan.mode", *_MODE_OF})


# ------------------------------------------------------------------------------------------------ from the table


@dataclass(frozen=True, slots=True)
class State:
    """All files of a snapshot; with `created_from_ms` those made at or after that time."""

    snapshot: Snapshot | None
    created_from_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """What snapshots after `since` up to `until` added, or wrote as changelog."""

    since: int
    until: int
    changelog: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """The files of one state that an earlier one (None: the empty table) does not have."""

    before: Snapshot | None
    after: Snapshot


@dataclass(frozen=True, slots=True)
class Delta:
    """The files that one snapshot added."""

    snapshot: Snapshot


Reading: TypeAlias = State | Added | Difference | Delta

NOTHING: Final = Added(0, 0)
"""A read that finds no row."""


def find_reading(context: TableContext) -> Reading:
    """What is read of the table.

    Raises:
        InvalidInputError: options contradict each other, or a value cannot be understood.
        NotFoundError: a snapshot or tag does not exist.
    """
    store, options = context.store, context.options
    start = plan_start(options)
    modes = options.of(ModeOptions)
    match start.mode:
        case ScanMode.LATEST_DELTA:
            latest = store.snapshots.latest()
            return Delta(latest) if latest is not None else NOTHING
        case ScanMode.COMPACTED_FULL:
            return State(newest_compacted(store, options.of(ModeContext)))
        case ScanMode.FROM_FILE_CREATION_TIME:
            return State(store.snapshots.latest(), modes.file_creation_ms)
        case ScanMode.FROM_CREATION_TIMESTAMP:
            assert modes.creation_ms is not None
            return _since_creation(store, modes.creation_ms)
        case ScanMode.INCREMENTAL:
            return _incremental(store, modes, options)
    return State(resolve(store, options.of(TravelOptions)))


def newest_compacted(store: TableStore, context: ModeContext) -> Snapshot | None:
    """The newest snapshot of a compaction, a full one if the options identify those; otherwise the newest snapshot."""
    every = context.delta_commits or 1
    wanted = context.delta_commits is not None or context.producer is ChangelogProducer.FULL_COMPACTION
    for snapshot in store.snapshots.newest_first():
        identifier = snapshot.commit_identifier
        full = not wanted or identifier % every == 0 or identifier == _BATCH_IDENTIFIER
        if snapshot.commit_kind is CommitKind.COMPACT and full:
            return snapshot
    return store.snapshots.latest()


def _since_creation(store: TableStore, time_ms: int) -> State:
    before = find_time(store, time_ms - 1)
    first = store.snapshots.find(before.id + 1) if before else None
    return State(first) if first else State(store.snapshots.latest(), time_ms)


# ------------------------------------------------------------------------------------------------ incremental


def find_changes(context: TableContext, *, since: int | str | None = None, until: int | str | None = None) -> Reading:
    """What is read for the changes after one snapshot or tag up to another (None: the newest snapshot).

    Without `since` the options say what; one of those for incremental reads has to be set then.

    Raises:
        InvalidInputError: the start is not given, or options contradict each other.
        NotFoundError: a snapshot or tag does not exist.
    """
    store, options = context.store, context.options
    modes, asked = options.of(ModeOptions), options.of(ModeContext)
    if since is None:
        if plan_start(options).mode is not ScanMode.INCREMENTAL or until is not None:
            raise InvalidInputError(
                "the start of the changes is not given", hint="give since=, or set incremental-between"
            )
        return _incremental(store, modes, options)
    if until is None:
        until = store.snapshots.latest_id() or 0
    if isinstance(since, str) and isinstance(until, str):
        return _between(store, since, until, _mode_of(modes, asked), by_snapshot=modes.tag_to_snapshot)
    tags = {each: read_tag(store, each) for each in (since, until) if isinstance(each, str)}
    first, last = (tags[each].id if isinstance(each, str) else each for each in (since, until))
    return _range(store, first, last, _mode_of(modes, asked), tags.values())


def _incremental(store: TableStore, modes: ModeOptions, options: TableOptions) -> Reading:
    context = options.of(ModeContext)
    mode = _mode_of(modes, context)
    if modes.between is not None:
        form = "two snapshot ids or two tags, such as 5,10"
        start, end = _pair("incremental-between", modes.between, form)
        return _between(store, start, end, mode, by_snapshot=modes.tag_to_snapshot)
    if modes.between_times is not None:
        return _between_times(store, modes.between_times, mode)
    assert modes.to_auto_tag is not None
    return _to_auto_tag(store, modes.to_auto_tag, options.of(TagPeriodOptions).periods)


def _mode_of(modes: ModeOptions, context: ModeContext) -> IncrementalMode:
    if modes.between_mode is not IncrementalMode.AUTO:
        return modes.between_mode
    return IncrementalMode.DELTA if context.without_changelog else IncrementalMode.CHANGELOG


def _between(store: TableStore, start: str, end: str, mode: IncrementalMode, *, by_snapshot: bool) -> Reading:
    text = f"{start},{end}"
    tags = tag_names(store)
    kept: tuple[Snapshot, ...]
    if start in tags and end in tags:
        before, after = read_tag(store, start), read_tag(store, end)
        if after.id < before.id:
            raise _upside_down("incremental-between", text)
        if not by_snapshot:
            return Difference(before, after)
        since, until, kept = before.id, after.id, (before, after)
    elif _is_number(start) and _is_number(end):
        since, until, kept = int(start), int(end), ()
    else:
        raise InvalidInputError(
            "range is neither between two tags nor between two snapshot ids",
            code="option-value",
            option="incremental-between",
            value=text,
            known=", ".join(tags) or "no tags",
            hint="name two tags, or two snapshot ids",
        )
    if until < since:
        raise _upside_down("incremental-between", text)
    return _range(store, since, until, mode, kept)


def _range(store: TableStore, since: int, until: int, mode: IncrementalMode, kept: Iterable[Snapshot] = ()) -> Reading:
    """Changes of a range of ids; `kept` are states that tags keep, whose snapshots may have expired."""
    if mode is not IncrementalMode.DIFF or since >= until:
        return Added(since, until, changelog=mode is IncrementalMode.CHANGELOG)
    # Before the first snapshot the table was empty; the state of a later snapshot that has expired is unknown.
    empty = since == 0 and store.snapshots.earliest_id() == 1
    states = {each.id: each for each in kept}
    before = None if empty else states.get(since) or store.snapshots.get(since)
    return Difference(before, states.get(until) or store.snapshots.get(until))


def _between_times(store: TableStore, text: str, mode: IncrementalMode) -> Reading:
    first, last = (
        _moment(part)
        for part in _pair("incremental-between-timestamp", text, "two times, in milliseconds or as 2026-11-15 12:00:00")
    )
    if last < first:
        raise _upside_down("incremental-between-timestamp", text)
    newest, oldest = store.snapshots.latest(), store.snapshots.earliest_id()
    if newest is None or oldest is None or first == last or first > newest.time_ms:
        return NOTHING
    if last < store.snapshots.get(oldest).time_ms:
        return NOTHING
    before, after = find_time(store, first), at_time(store, last)
    if mode is IncrementalMode.DIFF:
        # With the first snapshot still there, what is not older than it is the empty table.
        return Difference(before if before or oldest == 1 else store.snapshots.get(oldest), after)
    return Added(before.id if before else oldest - 1, after.id, changelog=mode is IncrementalMode.CHANGELOG)


def _to_auto_tag(store: TableStore, name: str, periods: TagPeriods) -> Reading:
    time_ms = periods.find_time(name)
    if time_ms is None:
        raise InvalidInputError(
            "tag is not named like an automatic one",
            code="option-value",
            option="incremental-to-auto-tag",
            value=name,
            hint="name the two tags by incremental-between",
        )
    times = {other: found for other in tag_names(store) if (found := periods.find_time(other)) is not None}
    earlier = [other for other, found in times.items() if found < time_ms]
    if name not in times or not earlier:
        return NOTHING
    return Difference(read_tag(store, max(earlier, key=lambda other: times[other])), read_tag(store, name))


def _pair(key: str, text: str, form: str) -> tuple[str, str]:
    first, comma, last = text.partition(",")
    if not comma or "," in last or not first or not last:
        raise InvalidInputError(
            "option has a value of the wrong form", code="option-value", key=key, value=text, hint=f"give {key} {form}"
        )
    return first, last


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def _moment(text: str) -> int:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else parse_time(text)


def _upside_down(key: str, text: str) -> InvalidInputError:
    return InvalidInputError(
        "changes end before they begin", code="option-value", option=key, value=text, hint="swap the two"
    )


def missing_range(since: int, until: int, earliest: int, latest: int) -> NotFoundError:
    """Make the error for changes of snapshots that do not exist."""
    return NotFoundError(
        "changes of that range are not kept",
        code="snapshot-not-found",
        since=since,
        until=until,
        hint=f"snapshots {earliest} to {latest} are kept",
    )
