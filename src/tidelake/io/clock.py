"""The door for time: nothing outside `io` looks at a clock or sleeps by itself.

Wall-clock time is only ever written down, never used to order commits: two machines disagree about it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as a thing that is handed in."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970. May jump either way."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment. Never goes back."""

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
    """The time to write into a new version: now, but always later than that of the version before it."""
    now = clock.now_ms()
    return now if previous_ms is None else max(now, previous_ms + 1)


def local_time_ms(clock: Clock) -> int:
    """The local wall-clock time, as if it were UTC: how the format notes when a file was made."""
    return as_local_ms(clock.now_ms())


def as_local_ms(time_ms: int) -> int:
    """A moment as local wall-clock time that is written as if it were UTC; one beyond the calendar as it is."""
    try:
        offset = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone().utcoffset()
    except (ValueError, OverflowError, OSError):
        return time_ms
    return time_ms + (int(offset.total_seconds() * 1000) if offset else 0)
