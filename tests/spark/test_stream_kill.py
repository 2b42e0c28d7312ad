"""Drivers of streams are killed at every point of a micro-batch, and started again: no row is lost or doubled (T14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.kill_points import Order
from kit.stream_lives import Lives
from kit.streams import copy_checkpoint

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

IN_TABLE = {"published", "compaction", "to: committed", "sink: committed", "replay"}
"""The points at which the rows of a batch are in the table, although Spark does not know that it is done."""


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


def die(lives: Lives, query: str, table: str, *orders: Order) -> None:
    """Run queries until they are killed at the point of the last order, and check what the kill left behind.

    `query` is the one whose batch is interrupted; others run beside it.
    """
    point = orders[-1].point
    names = ("a", "b") if query in ("a", "b") else (query,)
    life = lives.run_once(*names, orders=orders)
    assert life.was_killed, (life.errors, life.log)
    assert life.hits == [each.point for each in orders]
    batch = lives.find_planned(query)
    assert not lives.is_done(query, batch), "Spark does not know that the batch is done"
    assert (batch in lives.list_batches(query, table)) is (point in IN_TABLE)


def finish(lives: Lives, *queries: str) -> None:
    """Run queries to the end of what there is to read."""
    life = lives.run_once(*queries)
    assert life.code == 0, life.log
    assert life.errors == dict.fromkeys(queries)


@pytest.mark.slow
def test_sums_are_exact_although_the_driver_is_killed_at_every_point_of_a_batch(lives: Lives) -> None:
    table = lives.create_sums()
    points = ["to: before", "writing", "to: data", "manifests", "published", "compaction", "to: committed"]
    for point in points:
        lives.add_rows("sums", 2)
        die(lives, "sums", "sums", Order(point, "sums", at=2 if point != "compaction" else 1))
        if point == "published":
            copy_checkpoint(lives.find_checkpoint("sums"), lives.folder / "copy")
    # The snapshots that show the batch expire before the driver is started again.
    table.write([{"id": 0, "v": 0, "s": None}])
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="2100-01-01")
    assert len(table.store.snapshots.ids()) == 1
    die(lives, "sums", "sums", Order("replay", "sums"))
    lives.add_rows("sums", 2)
    die(lives, "sums", "sums", Order("to: task", "sums", action="fail"), Order("abort", "sums"))
    copy_checkpoint(lives.folder / "copy", lives.find_checkpoint("sums"))
    finish(lives, "sums")
    assert lives.find_problems_of_sums("sums") == []


@pytest.mark.slow
def test_a_table_that_follows_another_one_has_each_change_once_although_the_driver_is_killed_at_every_point(
    lives: Lives,
) -> None:
    first, _ = lives.create_chain()
    points = ["writing", "sink: data", "published", "sink: committed", "replay"]
    for point in points:
        lives.add_changes()
        # What was killed before its commit comes again, and is killed again at a later point.
        die(lives, "b", "b", Order(point, "b", at=2 if point == "sink: committed" else 1))
        assert lives.find_problems_of_progress() == []
    lives.add_changes()
    die(lives, "b", "b", Order("sink: task", "b", at=2, action="fail"), Order("abort", "b"))
    lives.add_changes(2)
    die(lives, "a", "a", Order("compaction", "a", at=2))
    life = lives.run_once("a", "b", orders=[Order("source: planned", "a", at=2)])
    assert life.was_killed
    assert life.hits == ["source: planned"]
    finish(lives, "a", "b")
    assert lives.find_problems_of_progress() == []
    assert first.consumers()["b"] == first.latest_snapshot().id + 1
    assert lives.find_problems_of_chain() == []
