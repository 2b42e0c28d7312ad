"""T16: readers of a primary-key table beside upserts, compaction, expiry and cleaning.

A read sees the rows of one commit, whole, or is told that its snapshot is gone. No other error leaves a reader, however
fast the files it is reading are replaced and removed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fault.workers import Place, run_at_once
from tidelake.errors import CommitConflictError, NotFoundError, TidelakeError
from tidelake.io.clock import SystemClock
from tidelake.table import Table

pytestmark = pytest.mark.long

NAME = "db.busy"
KEYS = 300
READERS = 4


@dataclass(slots=True)
class Report:
    """What one process did."""

    role: str
    done: int = 0
    gone: int = 0
    wrong: list[str] = field(default_factory=list)


def test_readers_see_whole_commits_or_are_told_that_their_snapshot_is_gone(tmp_path: Path) -> None:
    disturb(Place(str(tmp_path)), seconds=4.0)


def disturb(place: Place, *, seconds: float) -> None:
    """Let readers read while one process writes and two care for the table."""
    table = place.connect().create_table(
        NAME,
        {"k": "INT NOT NULL", "round": "INT", "v": "STRING"},
        primary_key=["k"],
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "3", "file.format": "parquet"},
    )
    write_round(table, 0)
    reports: list[Report] = run_at_once(READERS + 3, work, place, seconds)
    assert [wrong for report in reports for wrong in report.wrong] == []
    readers = [report for report in reports if report.role == "reader"]
    assert all(report.done > 0 for report in reports), reports
    print("; ".join(f"{each.role} {each.done} done, {each.gone} gone" for each in reports))
    assert sum(report.done for report in readers) > 10 * READERS
    check = table.check(deep=True, rows=True)
    assert check.ok, str(check)


def write_round(table: Table, number: int) -> None:
    """Give every key the number of the round."""
    table.write([{"k": key, "round": number, "v": f"{key} in round {number}"} for key in range(KEYS)])


def work(number: int, place: Place, seconds: float) -> Report:
    """Read, write, or care for the table, by the number of the process."""
    report = Report(ROLES[number])
    table = place.connect().table(NAME)
    end = time.perf_counter() + seconds
    turn = 0
    while time.perf_counter() < end:
        turn += 1
        try:
            act(report, table, turn)
            report.done += 1
        except (NotFoundError, CommitConflictError) as error:
            if isinstance(error, CommitConflictError) and report.role in ("reader", "writer"):
                report.wrong.append(repr(error))
            report.gone += 1
        except (TidelakeError, OSError) as error:
            report.wrong.append(f"{report.role}: {type(error).__name__} {error}")
    return report


ROLES: Sequence[str] = (*("reader",) * READERS, "writer", "compactor", "keeper")


def act(report: Report, table: Table, turn: int) -> None:
    """One turn of a process."""
    match report.role:
        case "reader":
            latest = table.latest_snapshot()
            assert latest is not None
            view = table.at(snapshot=max(1, latest.id - turn % 3)) if turn % 2 else table
            batches = view.to_batches()
            rows = [row for batch in batches for row in batch.to_pylist()]
            seen = {row["round"] for row in rows}
            if len(rows) != KEYS or len(seen) != 1:
                report.wrong.append(f"saw {len(rows)} rows of the rounds {seen}")
        case "writer":
            write_round(table.with_options({"write-only": str(turn % 2 == 0).lower()}), turn)
        case "compactor":
            table.compact(full=turn % 3 == 0)
            SystemClock().sleep(0.05)
        case _:
            table.expire_snapshots(retain_max=2, retain_min=1)
            table.remove_orphans(plan_only=False)
            SystemClock().sleep(0.05)
