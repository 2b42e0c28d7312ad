"""What the processes of the contention tests over real rows do: some append, one compacts, one deletes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fault.workers import Place
from tidelake.errors import CommitConflictError, TidelakeError
from tidelake.io.clock import SystemClock

NAME = "db.rows"
JUNK = "junk"
PAUSE_S = 0.2
DAYS = 3
ROWS = 4
"""Rows of one write; the last of them is junk, for the deleter."""


@dataclass(slots=True)
class Report:
    """What one process was told."""

    role: str
    done: int = 0
    conflicts: int = 0
    rows: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def written(number: int, turn: int) -> list[dict[str, object]]:
    """The rows of one write of one process."""
    first = (number * 1000 + turn) * ROWS
    return [
        {"id": first + k, "dt": f"d{(turn + k) % DAYS}", "v": JUNK if k == ROWS - 1 else f"p{number}-{turn}"}
        for k in range(ROWS)
    ]


def work(number: int, place: Place, writers: int, turns: int) -> Report:
    """Append, compact or delete, by the number of the process."""
    if number < writers:
        report = append(number, place, turns)
        _note(place, number).touch()
        return report
    return compact(place, writers) if number == writers else delete(place, writers)


def _note(place: Place, number: int) -> Path:
    """Tells the others that a writer has done its work."""
    return Path(place.location) / f"writer-{number}-is-done"


def _under_way(place: Place, writers: int) -> bool:
    return not all(_note(place, number).exists() for number in range(writers))


def append(number: int, place: Place, turns: int) -> Report:
    """Write rows again and again; none of these may fail."""
    report = Report("writer")
    table = place.connect().table(NAME)
    for turn in range(turns):
        _try(report, lambda turn=turn: table.write(written(number, turn)).rows)  # type: ignore[misc]
    return report


def compact(place: Place, writers: int) -> Report:
    """Compact as long as others write; a race may be lost."""
    report = Report("compactor")
    table = place.connect().table(NAME)

    def once() -> int:
        result = table.compact(full=True)
        return getattr(result, "rows", 0)

    while _under_way(place, writers):
        _try(report, once)
        SystemClock().sleep(PAUSE_S)
    return report


def delete(place: Place, writers: int) -> Report:
    """Delete the junk as long as others write; a race may be lost."""
    report = Report("deleter")
    table = place.connect().table(NAME)
    while _under_way(place, writers):
        _try(report, lambda: table.delete(f"v = '{JUNK}'").rows)
        SystemClock().sleep(PAUSE_S)
    return report


def _try(report: Report, act: Callable[[], int]) -> None:
    started = time.perf_counter()
    try:
        report.rows += act()
    except CommitConflictError as error:
        report.conflicts += 1
        if report.role == "writer":
            report.failed.append(repr(error))
    except TidelakeError as error:
        report.failed.append(f"{error!r} {error}")
    else:
        report.done += 1
    report.seconds.append(time.perf_counter() - started)
