"""Time as a port: nothing outside `io` reads a clock or sleeps.

Wall-clock time is only recorded, never used to order commits, because the clocks of two machines differ.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidelake.engine import session_zone
from tidelake.errors import InvalidInputError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)


class Clock(Protocol):
    """The time, injected so that tests control it."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970. May jump either way."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment. Never goes backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait; zero or less returns at once."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds > 0:
            time.sleep(seconds)


def next_time_ms(clock: Clock, previous_ms: int | None) -> int:
    """Return the time to record in a new version: now, but always later than the time of the previous version."""
    now = clock.now_ms()
    return now if previous_ms is None else max(now, previous_ms + 1)


def moment_ms(moment: datetime) -> int:
    """Return milliseconds since 1970. A moment without a zone is in the Spark session's zone, or else the local one.

    Raises:
        InvalidInputError: the time zone of the Spark session is not known.
    """
    if moment.tzinfo is None:
        zone = session_zone()
        moment = moment.astimezone() if zone is None else moment.replace(tzinfo=_session_zone(zone))
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _session_zone(name: str) -> tzinfo:
    try:
        return find_zone(name)
    except ValueError as cause:
        raise InvalidInputError(
            "time zone of the Spark session is not known", zone=name, hint="give a moment with a time zone"
        ) from cause


def find_zone(name: str) -> tzinfo:
    """Return the zone of a name such as `Europe/Berlin`, `UTC`, `+02:00` or `GMT+2`.

    Raises:
        ValueError: no zone has that name.
    """
    found = _OFFSET.fullmatch(name)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return UTC if name == "Z" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as cause:  # the name of a folder is an error of the file system
        raise ValueError(f"time zone is not known: {name}") from cause


def local_time_ms(clock: Clock) -> int:
    """Return the local wall-clock time as if it were UTC, which is how the format records creation times of files."""
    return as_local_ms(clock.now_ms())


def as_local_ms(time_ms: int, zone: tzinfo | None = None) -> int:
    """Return a moment as wall-clock time written as if it were UTC; unchanged if the calendar cannot hold it.

    Args:
        time_ms: Milliseconds since 1970.
        zone: Where the clock hangs; None is the zone of the machine.
    """
    try:
        offset = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone(zone).utcoffset()
    except (ValueError, OverflowError, OSError):
        return time_ms
    return time_ms + (int(offset.total_seconds() * 1000) if offset else 0)


def from_local_ms(local_ms: int) -> int:
    """Return the moment of a local wall-clock time written as if it were UTC: the inverse of `as_local_ms`."""
    try:
        written = datetime.fromtimestamp(local_ms / 1000, tz=UTC).replace(tzinfo=None)
        offset = written.astimezone().utcoffset()
    except (ValueError, OverflowError, OSError):
        return local_ms
    return local_ms - (int(offset.total_seconds() * 1000) if offset else 0)
