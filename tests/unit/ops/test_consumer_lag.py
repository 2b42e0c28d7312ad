"""How far consumers are behind, in snapshots and in time."""

from __future__ import annotations

from datetime import timedelta

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.testing import FakeClock, MemoryFileIO


def table_with_commits(clock: FakeClock, count: int) -> tl.Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock)))
    table = lake.create_table("db.t", {"id": "BIGINT"}, options={"snapshot.num-retained.min": 1})
    for number in range(count):
        table.write([{"id": number}])
        clock.advance(60)
    return table


def test_lag_counts_unread_snapshots_and_the_age_of_the_oldest_one() -> None:
    table = table_with_commits(FakeClock(1_000_000), 5)
    for name, next_id in (("fast", 6), ("slow", 3)):
        table.reset_consumer(name, next_id)
    lag = table.inspect.consumer_lag().to_pylist()
    assert [(row["consumer_id"], row["next_snapshot_id"], row["snapshots_behind"], row["lost"]) for row in lag] == [
        ("fast", 6, 0, False),
        ("slow", 3, 3, False),
    ]
    assert [row["behind"] for row in lag] == [timedelta(0), timedelta(minutes=3)]


def test_a_consumer_whose_snapshot_expired_is_lost() -> None:
    table = table_with_commits(FakeClock(1_000_000), 5)
    table.expire_snapshots(retain_min=1, retain_max=2)
    table.reset_consumer("late", 1)
    [row] = table.inspect.consumer_lag().to_pylist()
    assert (row["lost"], row["snapshots_behind"]) == (True, 5)
    assert row["behind"] == timedelta(minutes=2)


def test_a_table_without_consumers_has_no_lag() -> None:
    assert table_with_commits(FakeClock(1_000_000), 0).inspect.consumer_lag().num_rows == 0
