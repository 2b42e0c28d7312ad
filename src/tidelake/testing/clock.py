"""A clock that the test moves.

`sleep` returns at once and moves both clocks; `jump` moves only the wall clock, forwards or backwards, as an operator
or a time server does.
"""

from __future__ import annotations

from tidelake.io.executor import mutex

_START_MS = 1_700_000_000_000


class FakeClock:
    """A `Clock` under the test's control. `slept` lists every sleep in seconds."""

    def __init__(self, now_ms: int = _START_MS, *, tick_ms: int = 0) -> None:
        """Start at `now_ms`, and move by `tick_ms` each time the clock is read."""
        self._now_ms = float(now_ms)
        self._monotonic = 0.0
        self._tick_ms = tick_ms
        self._lock = mutex()
        self.slept: list[float] = []

    def now_ms(self) -> int:
        with self._lock:
            now = int(self._now_ms)
            self._move(self._tick_ms / 1_000)
            return now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self._move(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._move(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forwards or backwards; the monotonic clock does not change."""
        with self._lock:
            self._now_ms += seconds * 1_000

    def _move(self, seconds: float) -> None:
        self._now_ms += seconds * 1_000
        self._monotonic += seconds
