"""Retry delays: exponential back-off with full jitter, as a pure sequence.

Full jitter spreads the losers of a race evenly, so that they do not collide again. The sequence ends only when the time
is up *and* enough tries were made: a slow storage gets its minimum number of tries, a fast one the full time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidelake.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """The bounds of the back-off. `tries_max` is an optional hard limit; tries include the first."""

    delay_min_ms: int = 50
    delay_max_ms: int = 2_000
    tries_min: int = 30
    elapsed_max_ms: int = 120_000
    tries_max: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.delay_min_ms <= self.delay_max_ms:
            raise InvalidInputError(
                "retry delays are out of order", delay_min_ms=self.delay_min_ms, delay_max_ms=self.delay_max_ms
            )
        if self.tries_min < 1 or (self.tries_max is not None and self.tries_max < 1):
            raise InvalidInputError("retry needs at least one try", tries_min=self.tries_min, tries_max=self.tries_max)


def delays(
    options: RetryOptions, rand: Callable[[], float], elapsed_ms: Callable[[], float] | None = None
) -> Iterator[float]:
    """Yield the seconds to wait before the second, third, … try; end when it is time to give up.

    Args:
        options: the bounds.
        rand: returns numbers from 0 to 1, one per delay.
        elapsed_ms: returns milliseconds since the first try; without it the delays are added up.
    """
    slept_ms = 0.0
    ceiling_ms = float(options.delay_min_ms)
    tries = 1
    while options.tries_max is None or tries < options.tries_max:
        spent_ms = slept_ms if elapsed_ms is None else elapsed_ms()
        if spent_ms >= options.elapsed_max_ms and tries >= options.tries_min:
            return
        delay_ms = rand() * ceiling_ms
        slept_ms += delay_ms
        yield delay_ms / 1_000
        ceiling_ms = min(float(options.delay_max_ms), ceiling_ms * 2)
        tries += 1
