"""T5 on primary-key tables: processes that upsert the same keys of one bucket at once.

No commit fails (R9). The later commit wins, at its snapshot and at every one after it, before and after a compaction:
no value ever flips back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fault.keyed_workers import NAME, Report, row, upsert
from fault.workers import Place, run_at_once
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.table import Table
from tidelake.testing.scenario import read_snapshots

pytestmark = pytest.mark.long

COLUMNS = {"k": "INT NOT NULL", "n": "BIGINT", "v": "STRING"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.v.aggregate-function": "last_value",
}
"""Counts every version, and keeps the text of the last one."""


@pytest.mark.parametrize("write_only", [True, False], ids=["write-only", "compacting"])
def test_6_processes_upsert_4_times_each_to_one_bucket(write_only: bool, tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), {**SUMS, "write-only": str(write_only).lower()}, processes=6, turns=4)


def contend(place: Place, options: Mapping[str, str], *, processes: int, turns: int) -> None:
    """Let processes upsert at once and compare every snapshot with the commits up to it."""
    place.connect().create_table(
        NAME,
        COLUMNS,
        primary_key=["k"],
        options={"bucket": "1", "snapshot.num-retained.max": "10000", "snapshot.num-retained.min": "10000", **options},
    )
    started = time.perf_counter()
    reports: list[Report] = run_at_once(processes, upsert, place, turns)
    elapsed = time.perf_counter() - started
    assert [failure for report in reports for failure in report.failed] == []
    assert [report.acked for report in reports] == [list(range(turns))] * processes
    table = place.connect().table(NAME)
    ids = [snapshot.id for snapshot in read_snapshots(table)]
    assert ids == list(range(1, len(ids) + 1))
    expected = by_snapshot(table)
    assert sum(n for n, _ in expected[ids[-1]].values()) == processes * turns
    wrong = [number for number in ids if shown(table.at(snapshot=number)) != expected[number]]
    assert wrong == [], f"snapshots that do not show the commits up to them: {wrong}"
    before = shown(table)
    table.with_options({"write-only": "false"}).compact(full=True)
    assert shown(table) == before == expected[ids[-1]]
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert [each for each in report.findings if each.invariant == "I5"] == []
    seconds = sorted(second for each in reports for second in each.seconds)
    kinds = Counter(snapshot.commit_kind.value for snapshot in read_snapshots(table))
    print(
        f"{processes} x {turns}: {elapsed:.1f} s in all, {sum(each.attempts for each in reports)} attempts, "
        f"median {seconds[len(seconds) // 2]:.3f} s, p95 {seconds[len(seconds) * 95 // 100]:.3f} s, "
        f"slowest {seconds[-1]:.3f} s, {dict(kinds)}, {len(report.orphans)} orphans"
    )


Shown = dict[int, tuple[int, str]]


def by_snapshot(table: Table) -> dict[int, Shown]:
    """What each snapshot must show: the sum over all versions of a key, and the text of the last."""
    state: Shown = {}
    states: dict[int, Shown] = {}
    for snapshot in read_snapshots(table):
        if snapshot.commit_kind.value == "APPEND" and snapshot.commit_identifier != BATCH_IDENTIFIER:
            new: dict[str, Any] = row(int(snapshot.commit_user), snapshot.commit_identifier)
            state = {**state, new["k"]: (state.get(new["k"], (0, ""))[0] + new["n"], new["v"])}
        states[snapshot.id] = state
    return states


def shown(table: Table) -> Shown:
    """The rows by key; a key has one."""
    rows = table.to_arrow().to_pylist()
    found = {each["k"]: (each["n"], each["v"]) for each in rows}
    assert len(found) == len(rows)
    return found
