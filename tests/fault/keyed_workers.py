"""What the processes of the contention test on primary-key tables do: upserts of one row, all to the same few keys."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from fault.workers import Place
from tidelake.errors import TidelakeError

NAME = "db.keyed"
KEYS = 5


@dataclass(slots=True)
class Report:
    """What one process was told."""

    acked: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    attempts: int = 0


def row(number: int, turn: int) -> dict[str, Any]:
    """The row of one upsert: every process writes to the same keys."""
    return {"k": (number + turn) % KEYS, "n": 1, "v": f"{number}-{turn:03}"}


def upsert(number: int, place: Place, turns: int) -> Report:
    """Upsert one row at a time under the process's own name."""
    report = Report()
    table = place.connect().table(NAME)
    for turn in range(turns):
        started = time.perf_counter()
        try:
            result = table.write([row(number, turn)], commit_user=f"{number}", identifier=turn)
        except TidelakeError as error:
            report.failed.append(f"{number}-{turn}: {type(error).__name__} {error}")
        else:
            report.acked.append(turn)
            report.attempts += result.attempts
        report.seconds.append(time.perf_counter() - started)
    return report
