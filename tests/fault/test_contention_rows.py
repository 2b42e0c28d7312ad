"""T5 over real writes: processes that write, compact and delete in one table at once lose and double no row.

No append fails. A compaction or a deletion that loses its race is told so and changes nothing; the next one does it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from fault.row_workers import JUNK, NAME, ROWS, Report, work, written
from fault.workers import Place, run_at_once
from tidelake.testing.scenario import read_snapshots

pytestmark = pytest.mark.long

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}


def test_4_writers_a_compactor_and_a_deleter_on_one_table(tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), {}, writers=4, turns=5)


def test_3_writers_a_compactor_and_a_deleter_on_one_table_with_buckets(tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), {"bucket": "3", "bucket-key": "id"}, writers=3, turns=8)


def contend(place: Place, options: Mapping[str, str], *, writers: int, turns: int) -> None:
    """Let processes work at once and compare the rows with what was acknowledged."""
    place.connect().create_table(NAME, COLUMNS, partition_by=["dt"], options=options)
    started = time.perf_counter()
    reports: list[Report] = run_at_once(writers + 2, work, place, writers, turns)
    elapsed = time.perf_counter() - started
    assert [failure for report in reports for failure in report.failed] == []
    compactor, deleter = reports[writers:]
    assert [report.done for report in reports[:writers]] == [turns] * writers
    table = place.connect().table(NAME)
    everything = [row for number in range(writers) for turn in range(turns) for row in written(number, turn)]
    found = table.to_arrow().to_pylist()
    assert Counter(row["id"] for row in found).most_common(1)[0][1] == 1
    assert as_set(found) >= as_set([row for row in everything if row["v"] != JUNK])
    assert as_set(found) <= as_set(everything)
    # What the deleter was told it deleted is gone, no row more and no row less.
    assert len(found) == writers * turns * ROWS - deleter.rows
    assert deleter.rows + table.delete(f"v = '{JUNK}'").rows == writers * turns
    assert compactor.done > 0
    assert deleter.done + deleter.conflicts > 0  # on a busy machine it may lose every race
    assert table.count() == writers * turns * (ROWS - 1)
    ids = [snapshot.id for snapshot in read_snapshots(table)]
    assert ids == list(range(1, len(ids) + 1))
    report = table.check(rows=True)
    assert report.ok, str(report)
    seconds = sorted(second for each in reports[:writers] for second in each.seconds)
    tried = {each.role: f"{each.conflicts} of {each.done + each.conflicts}" for each in (compactor, deleter)}
    print(
        f"{writers} x {turns}: {elapsed:.1f} s in all, write median {seconds[len(seconds) // 2]:.3f} s, "
        f"p95 {seconds[len(seconds) * 95 // 100]:.3f} s; races lost: {tried}; "
        f"{deleter.rows} rows deleted on the way, {len(report.orphans)} orphans"
    )


def as_set(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
    return {(row["id"], row["dt"], row["v"]) for row in rows}
