"""What the processes of the contention test over merges do: each adds to the same few keys, or inserts them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fault.workers import Place
from tidelake.errors import CommitConflictError

NAME = "db.counters"
KEYS = 3


@dataclass(slots=True)
class Report:
    """What one process was told: how often it added, how often it gave up."""

    done: int = 0
    conflicts: int = 0
    inserted: int = 0
    failed: list[str] = field(default_factory=list)


def add(number: int, place: Place, turns: int) -> Report:
    """Add one to a counter at a time; the first to come makes it."""
    report = Report()
    table = place.connect().table(NAME)
    for turn in range(turns):
        merge = (
            table.merge([{"k": (number + turn) % KEYS, "n": 1}], on=["k"])
            .when_matched_update({"n": "t.n + s.n"})
            .when_not_matched_insert()
        )
        try:
            result = merge.run()
        except CommitConflictError as error:
            report.conflicts += 1
            if error.code not in ("rows-changed", "file-deleted", "file-conflict", "index-conflict", "key-range"):
                report.failed.append(f"{type(error).__name__} {error}")
        else:
            report.done += 1
            report.inserted += result.inserted or 0
    return report
