"""When automatic tags are due, and what they are called: the options of a table, and what follows from them.

Everything here is pure. A snapshot has a local time: when it was committed, or its watermark, on the clock of the zone
that the options name. A tag stands for a period that was over at that time, and one snapshot carries at most one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum

from tidelake.errors import InvalidInputError
from tidelake.io.clock import as_local_ms, find_zone
from tidelake.notebook import pluralize
from tidelake.options import Affects, DurationMs, OptionGroup, TableOptions, at_least, option
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.documents.tag import Tag
from tidelake.spec.documents.tag_periods import TagPeriodOptions, TagPeriods

__all__ = [
    "AutomaticTags",
    "HeldTag",
    "NewTag",
    "TagCreation",
    "TagSchedule",
    "TagScheduleOptions",
    "make_schedule",
    "needs_snapshot",
    "plan_automatic_tags",
    "plan_batch_tag",
]

_MAINTENANCE = (Affects.MAINTENANCE,)
_NO_WATERMARK = -(2**63)
_BATCH_PERIODS = TagPeriodOptions().periods


class TagCreation(Enum):
    """What makes automatic tags due."""

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagScheduleOptions(OptionGroup):
    """When tags are created automatically, and how many of them are kept."""

    creation: TagCreation = option(
        "tag.automatic-creation",
        TagCreation.NONE,
        doc="Create tags after commits: by the time of the commit, by the watermark, or for each batch job.",
        affects=_MAINTENANCE,
    )
    delay_ms: DurationMs = option(
        "tag.creation-delay",
        DurationMs(0),
        doc="How long after the end of a period its tag is created.",
        affects=_MAINTENANCE,
    )
    retained_max: int | None = option(
        "tag.num-retained-max",
        None,
        doc="How many automatic tags are kept; with `batch`, how many tags.",
        check=at_least(1),
        affects=_MAINTENANCE,
    )
    completes: bool = option(
        "tag.automatic-completion",
        False,
        doc="Create tags of missed periods too, one with each snapshot.",
        affects=_MAINTENANCE,
    )
    batch_name: str | None = option(
        "tag.batch.customized-name",
        None,
        doc="What the tag of batch jobs is called; by default `batch-write-` and the day.",
        affects=_MAINTENANCE,
    )
    watermark_zone: str = option(
        "sink.watermark-time-zone", "UTC", doc="The time zone of watermarks.", affects=_MAINTENANCE
    )
    process_zone: str | None = option(
        "sink.process-time-zone",
        None,
        doc="The time zone of commits; by default that of the machine.",
        affects=_MAINTENANCE,
    )

    def find_process_zone(self) -> tzinfo | None:
        """The zone in which commits have their local time; None is that of the machine.

        Raises:
            InvalidInputError: no zone has that name.
        """
        return None if self.process_zone is None else _read_zone("sink.process-time-zone", self.process_zone)


@dataclass(frozen=True, slots=True)
class TagSchedule:
    """When tags are due that follow a clock or the watermark."""

    creation: TagCreation
    periods: TagPeriods
    delay_ms: int = 0
    completes: bool = False
    retained_max: int | None = None
    zone: tzinfo | None = None

    def find_time(self, snapshot: Snapshot) -> int | None:
        """The local time of a snapshot; None if it has no watermark."""
        if self.creation is TagCreation.PROCESS_TIME:
            return as_local_ms(snapshot.time_ms, self.zone)
        if snapshot.watermark is None or snapshot.watermark == _NO_WATERMARK:
            return None
        return as_local_ms(snapshot.watermark, self.zone)

    def select_automatic(self, names: Iterable[str]) -> list[str]:
        """The names that are those of automatic tags."""
        return [name for name in names if self.periods.find_time(name) is not None]


def make_schedule(options: TableOptions) -> TagSchedule | None:
    """Read the schedule of a table; None if its automatic tags, if any, follow neither a clock nor the watermark.

    Raises:
        InvalidInputError: an option has a wrong value, or the delay is not shorter than a period.
    """
    given = options.of(TagScheduleOptions)
    if given.creation not in (TagCreation.PROCESS_TIME, TagCreation.WATERMARK):
        return None
    periods = options.of(TagPeriodOptions).periods
    if given.delay_ms >= periods.period_ms:
        raise InvalidInputError(
            "delay of automatic tags is not shorter than their period",
            code="option-conflict",
            option="tag.creation-delay",
            delay_ms=given.delay_ms,
            period_ms=periods.period_ms,
            hint="set a shorter `tag.creation-delay`, or a longer `tag.creation-period`",
        )
    if given.creation is TagCreation.PROCESS_TIME:
        zone = given.find_process_zone()
    else:
        zone = _read_zone("sink.watermark-time-zone", given.watermark_zone)
    return TagSchedule(given.creation, periods, given.delay_ms, given.completes, given.retained_max, zone)


def _read_zone(key: str, name: str) -> tzinfo:
    try:
        return find_zone(name)
    except ValueError as cause:
        raise InvalidInputError(
            "time zone is not known",
            code="option-value",
            option=key,
            value=name,
            hint="name a zone such as Europe/Berlin or UTC, or an offset such as +02:00",
        ) from cause


# ------------------------------------------------------------------------------------------------ plans


@dataclass(frozen=True, slots=True)
class NewTag:
    """A tag to create."""

    name: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class AutomaticTags:
    """Automatic tags to create, and tags to delete because there are too many or their time is over."""

    created: tuple[NewTag, ...] = ()
    """Oldest snapshot first."""
    deleted: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Names of new tags that other snapshots have now; they are deleted first."""
    expired: tuple[str, ...] = ()
    """Other tags that are past their time."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.created or self.deleted or self.replaced or self.expired)

    @property
    def deletes(self) -> tuple[str, ...]:
        """All tags that are deleted for good."""
        return tuple(dict.fromkeys((*self.deleted, *self.expired)))

    def __str__(self) -> str:
        if self.is_empty:
            return "no automatic tag is due"
        names = ", ".join(f"{each.name} of snapshot {each.snapshot.id}" for each in self.created[:5])
        text = f"{pluralize(len(self.created), 'tag')} to create ({names})" if self.created else "no tag to create"
        if self.deletes:
            text += f", {pluralize(len(self.deletes), 'tag')} to delete ({', '.join(self.deletes[:5])})"
        return text


def plan_automatic_tags(schedule: TagSchedule, tags: Mapping[str, int], snapshots: Iterable[Snapshot]) -> AutomaticTags:
    """Find the tags that are due.

    Args:
        schedule: when tags are due.
        tags: the snapshot of each tag, by name.
        snapshots: the snapshots of the table, oldest first; those up to the newest automatic tag are skipped.
    """
    periods = schedule.periods
    kept = {name: tags[name] for name in schedule.select_automatic(tags)}
    automatic = set(kept)
    newest, next_ms = _find_next(schedule, kept)
    made: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        time_ms = None if snapshot.id <= newest else schedule.find_time(snapshot)
        if time_ms is None or not _is_over(schedule, next_ms, time_ms):
            continue
        tag_ms = next_ms if schedule.completes and next_ms is not None else periods.find_last_ended(time_ms)
        name = periods.name_of(tag_ms)
        if name is None:  # a watermark at the end of time, as finished streams have it
            continue
        if name not in kept:
            kept[name], made[name] = snapshot.id, snapshot
        next_ms = tag_ms + periods.period_ms
        for name in _beyond(kept, schedule.retained_max):
            del kept[name]
    return AutomaticTags(
        created=tuple(NewTag(name, snapshot) for name, snapshot in made.items() if kept.get(name) == snapshot.id),
        deleted=tuple(sorted(automatic - kept.keys(), key=lambda name: (tags[name], name))),
        replaced=tuple(sorted(name for name in automatic & kept.keys() if kept[name] != tags[name])),
    )


def needs_snapshot(schedule: TagSchedule, tags: Mapping[str, int], now_ms: int) -> bool:
    """Whether a snapshot that is committed at a local time gets a tag, so that even an empty commit should make one.

    Only if tags follow the clock: an empty commit does not move the watermark.
    """
    if schedule.creation is not TagCreation.PROCESS_TIME:
        return False
    _, next_ms = _find_next(schedule, {name: tags[name] for name in schedule.select_automatic(tags)})
    return _is_over(schedule, next_ms, now_ms)


def _find_next(schedule: TagSchedule, automatic: Mapping[str, int]) -> tuple[int, int | None]:
    """The snapshot of the newest automatic tag, and the time that the next tag stands for; None before the first."""
    newest = max(automatic.values(), default=0)
    times = [schedule.periods.find_time(name) for name, number in automatic.items() if number == newest]
    last_ms = max((time_ms for time_ms in times if time_ms is not None), default=None)
    return newest, None if last_ms is None else last_ms + schedule.periods.period_ms


def _is_over(schedule: TagSchedule, next_ms: int | None, time_ms: int) -> bool:
    """Whether the period that the next tag stands for is over at a time, and the delay as well."""
    return next_ms is None or time_ms - schedule.delay_ms >= next_ms + schedule.periods.period_ms


def _beyond(kept: Mapping[str, int], limit: int | None) -> list[str]:
    """The tags of the oldest snapshots, if more snapshots than the limit have one."""
    ids = sorted(set(kept.values()))
    gone = set() if limit is None else set(ids[: max(0, len(ids) - limit)])
    return [name for name, snapshot_id in kept.items() if snapshot_id in gone]


@dataclass(frozen=True, slots=True)
class HeldTag:
    """A tag that exists, and when its file was written."""

    tag: Tag
    modified_ms: int


def plan_batch_tag(options: TagScheduleOptions, snapshot: Snapshot, tags: Mapping[str, HeldTag]) -> AutomaticTags:
    """Plan the tag of a batch job: the newest snapshot gets it, and the oldest tags beyond the limit go.

    Raises:
        InvalidInputError: the time zone is not known.
    """
    day = _BATCH_PERIODS.name_of(as_local_ms(snapshot.time_ms, options.find_process_zone()))
    name = options.batch_name if options.batch_name is not None else f"batch-write-{day}"
    there = tags.get(name)
    # A tag with a lifetime is created again: its time begins with the job.
    same = there is not None and snapshot.is_same_commit(there.tag.snapshot) and there.tag.time_retained_ns is None
    others = sorted(
        (each for each in tags if each != name),
        key=lambda each: (tags[each].tag.snapshot.id, tags[each].modified_ms, each),
    )
    limit = len(others) if options.retained_max is None else options.retained_max - 1
    return AutomaticTags(
        created=() if same else (NewTag(name, snapshot),),
        deleted=tuple(others[: max(0, len(others) - limit)]),
        replaced=() if same or there is None else (name,),
    )
