"""The names of automatic tags: each stands for the beginning of a period, as a wall clock shows it.

Times are local milliseconds: what a wall clock shows, counted since 1970 as if it were in UTC. A name that was made
from a time is understood as the beginning of the same day, hour or minute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.options import Affects, DurationMs, OptionGroup, option

__all__ = ["TagFormat", "TagPeriod", "TagPeriodOptions", "TagPeriods"]

_READS_AND_COMMITS = (Affects.READ, Affects.MAINTENANCE)
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TagPeriod(Enum):
    """How far apart automatic tags are."""

    DAILY = "daily"
    HOURLY = "hourly"
    TWO_HOURS = "two-hours"


class TagFormat(Enum):
    """How automatic tags are named."""

    WITH_DASHES = "with_dashes"
    WITHOUT_DASHES = "without_dashes"
    WITHOUT_DASHES_AND_SPACES = "without_dashes_and_spaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagPeriodOptions(OptionGroup):
    """How far apart automatic tags are, and how they are named."""

    period: TagPeriod = option(
        "tag.creation-period", TagPeriod.DAILY, doc="How far apart automatic tags are.", affects=_READS_AND_COMMITS
    )
    form: TagFormat = option(
        "tag.period-formatter", TagFormat.WITH_DASHES, doc="How automatic tags are named.", affects=_READS_AND_COMMITS
    )
    duration_ms: DurationMs | None = option(
        "tag.creation-period-duration",
        None,
        doc="Time between two automatic tags, instead of `tag.creation-period`.",
        affects=_READS_AND_COMMITS,
    )

    @property
    def periods(self) -> TagPeriods:
        """The periods of the table.

        Raises:
            InvalidInputError: a period has no duration.
        """
        if self.duration_ms is not None:
            if self.duration_ms <= 0:
                raise InvalidInputError(
                    "period of automatic tags must take some time",
                    code="option-value",
                    option="tag.creation-period-duration",
                    value=self.duration_ms,
                    hint="write it as `90 min`, or leave it out",
                )
            return TagPeriods(self.duration_ms, "{0:%Y%m%d%H%M}", _MINUTE)
        form = self.form
        if self.period is TagPeriod.DAILY:
            if form is TagFormat.WITH_DASHES:
                return TagPeriods(_DAY_MS, "{0:%Y-%m-%d}", _DAY_WITH_DASHES)
            return TagPeriods(_DAY_MS, "{0:%Y%m%d}", _DAY)
        if self.period is TagPeriod.TWO_HOURS:  # the format has no say here
            return TagPeriods(2 * _HOUR_MS, "{0:%Y-%m-%d %H}", _HOUR_WITH_DASHES)
        if form is TagFormat.WITH_DASHES:
            return TagPeriods(_HOUR_MS, "{0:%Y-%m-%d %H}", _HOUR_WITH_DASHES)
        if form is TagFormat.WITHOUT_DASHES:
            return TagPeriods(_HOUR_MS, "{0:%Y%m%d %H}", _HOUR)
        return TagPeriods(_HOUR_MS, "{0:%Y%m%d%H}", _HOUR_WITHOUT_SPACES)


# Paimon ignores what follows the blank behind a day.
_DAY_WITH_DASHES: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: .*)?", re.ASCII | re.DOTALL)
_DAY: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?: .*)?", re.ASCII | re.DOTALL)
_HOUR_WITH_DASHES: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d)", re.ASCII)
_HOUR: Final = re.compile(r"(\d{4})(\d\d)(\d\d) (\d\d)", re.ASCII)
_HOUR_WITHOUT_SPACES: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)", re.ASCII)
_MINUTE: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TagPeriods:
    """Periods of one length, and the names of their tags."""

    period_ms: int
    template: str
    pattern: re.Pattern[str]

    def find_time(self, name: str) -> int | None:
        """The local time that an automatic tag stands for, or None if the name is not that of one."""
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        try:
            moment = datetime(*map(int, found.groups()), tzinfo=UTC)  # type: ignore[misc,arg-type]
        except ValueError:
            return None
        return (moment - _EPOCH) // timedelta(milliseconds=1)

    def name_of(self, time_ms: int) -> str | None:
        """The name of the tag that stands for a local time, or None if no four-digit year holds it."""
        try:
            moment = _EPOCH + timedelta(milliseconds=time_ms)
        except OverflowError:
            return None
        return self.template.format(moment) if moment.year >= _FIRST_YEAR else None

    def find_last_ended(self, time_ms: int) -> int:
        """The beginning of the last period that was over at a local time."""
        whole = abs(time_ms) // self.period_ms  # towards 1970, as Paimon counts
        return (whole if time_ms >= 0 else -whole) * self.period_ms - self.period_ms


_FIRST_YEAR: Final = 1_000
"""Earlier years are not printed with four digits everywhere."""
