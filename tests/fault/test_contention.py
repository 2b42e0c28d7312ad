"""T5: processes that commit to one table at the same time lose nothing, double nothing, and do not fail."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault.workers import Place, Report, add_columns, append, create, run_at_once
from kit.s3_server import BUCKET, moto_s3
from tidelake.testing.scenario import COLUMNS, NAME, live_names, read_snapshots, twice

pytestmark = pytest.mark.long


def test_8_processes_with_10_commits_each_on_one_local_table(tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), processes=8, commits=10)


def test_processes_that_share_a_user_name_lose_nothing_to_each_other(tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), processes=3, commits=5, user="etl")


def test_two_numbered_jobs_that_repeat_every_commit_publish_each_once(tmp_path: Path) -> None:
    contend(Place(str(tmp_path)), processes=2, commits=10, user="stream", numbered=True)


@pytest.mark.s3
def test_3_processes_with_4_commits_each_on_one_table_in_s3(s3_options: dict[str, str]) -> None:
    contend(Place(f"s3://{BUCKET}/contention", s3_options), processes=3, commits=4)


def test_of_processes_that_create_one_table_exactly_one_wins(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    names = [f"db.t{number}" for number in range(6)]
    won = run_at_once(4, create, place, names)
    assert sorted(name for each in won for name in each) == sorted(names)
    lake = place.connect()
    for number, mine in enumerate(won):
        for name in mine:
            # The winner's own schema is there, not that of a loser.
            assert lake.table(name).schema.fields[-1].name == f"by_{number}"
            assert lake.table(name).store.schemas.ids() == [0]


def test_concurrent_changes_of_a_schema_all_take_effect(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    place.connect().create_table(NAME, dict(COLUMNS), partition_by=["dt"])
    added = [name for names in run_at_once(4, add_columns, place, 4) for name in names]
    table = place.connect().table(NAME)
    assert sorted(column.name for column in table.schema.fields) == sorted([*COLUMNS, *added])
    assert len({column.id for column in table.schema.fields}) == len(table.schema.fields)
    assert table.store.schemas.ids() == list(range(len(added) + 1))
    assert table.check().ok


def contend(place: Place, *, processes: int, commits: int, user: str | None = None, numbered: bool = False) -> None:
    """Let processes commit at once and look at what is there afterwards."""
    place.connect().create_table(NAME, dict(COLUMNS), partition_by=["dt"])
    started = time.perf_counter()
    reports: list[Report] = run_at_once(processes, append, place, commits, user, numbered)
    elapsed = time.perf_counter() - started
    acked = [name for report in reports for name in report.acked]
    assert [failure for report in reports for failure in report.failed] == []
    assert len(acked) == processes * commits
    table = place.connect().table(NAME)
    snapshots = read_snapshots(table)
    assert [snapshot.id for snapshot in snapshots] == list(range(1, len(acked) + 1))
    assert twice(snapshots) == []
    assert live_names(table) == set(acked)
    assert table.files(columns=("kind", "partition", "file_name")).num_rows == len(acked)
    times = [snapshot.time_ms for snapshot in snapshots]
    assert all(a < b for a, b in itertools.pairwise(times))
    report = table.check()
    assert report.ok, str(report)
    seconds = sorted(second for report in reports for second in report.seconds)
    print(
        f"{processes} x {commits} on {'s3' if place.storage else 'disk'}: {elapsed:.1f} s in all, "
        f"commit median {seconds[len(seconds) // 2]:.3f} s, p95 {seconds[len(seconds) * 95 // 100]:.3f} s, "
        f"orphans {len(report.orphans)}"
    )


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options
