"""Interleaved timing and the shape of a result."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Result:
    """One line of the table: our median, what it is compared with, the ratio and the bar it should stay under."""

    work: str
    ours_s: float
    against: str
    other_s: float | None
    ratio: float | None
    bar: str
    met: bool | None
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def interleaved(runs: dict[str, Callable[[], object]], repeat: int = 7) -> dict[str, list[float]]:
    """Seconds of each contender, taken in turns so that noise hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            gc.collect()
            started = time.perf_counter()
            answer = run()
            seconds = time.perf_counter() - started
            times[name].append(answer if isinstance(answer, float) else seconds)
    return times


def result(work: str, times: dict[str, list[float]], against: str, bar: float, note: str = "") -> Result:
    """Our median (contender "tidelake") against another's."""
    ours, other = statistics.median(times["tidelake"]), statistics.median(times[against])
    ratio = ours / other
    return Result(work, ours, against, other, ratio, f"<= {bar:g} x", ratio <= bar, note)
