"""T5 over merges: processes that add to the same counters at once lose no addition, and no counter is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fault.merge_workers import KEYS, NAME, Report, add
from fault.workers import Place, run_at_once

pytestmark = pytest.mark.long

TABLES = {
    "append": ([], {}),
    "deduplicate": (["k"], {"bucket": "1"}),
    "dynamic buckets": (["k"], {}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_3_processes_add_3_times_each_to_the_same_counters(kind: str, tmp_path: Path) -> None:
    key, options = TABLES[kind]
    place = Place(str(tmp_path))
    place.connect().create_table(NAME, {"k": "INT NOT NULL", "n": "BIGINT"}, primary_key=key, options=options)
    reports: list[Report] = run_at_once(3, add, place, 3)
    assert [failure for report in reports for failure in report.failed] == []
    rows = place.connect().table(NAME).to_arrow().to_pylist()
    assert sorted(row["k"] for row in rows) == list(range(KEYS))
    assert sum(row["n"] for row in rows) == sum(report.done for report in reports)
    assert sum(report.inserted for report in reports) == KEYS
    assert sum(report.done for report in reports) >= 3
    assert place.connect().table(NAME).check(rows=True).ok
    print(kind, [(report.done, report.conflicts) for report in reports])
