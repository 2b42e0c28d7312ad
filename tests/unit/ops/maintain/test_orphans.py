"""Orphans are found and removed; whatever makes it doubtful what an orphan is stops the work."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

import tidelake as tl
from kit.tables_with_files import DAY_S, add, clock_of, commit, data_names, every_file, new_file, new_table, replaced
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, NotFoundError, UnsupportedError
from tidelake.ops.maintain.orphans import plan_orphans, run_orphans
from tidelake.table import Table
from tidelake.testing import FakeClock


def lived(**options: str) -> Table:
    """A table with a snapshot, a tag, a branch and orphans of each kind, all three days old."""
    table = new_table(**options)
    old = new_file(table, "a", extra=("a.index",))
    commit(table, new_files=(old,))
    table.create_tag("t")
    add(table.create_branch("side", tag="t"), "on-side")
    replaced(table, old, "b")
    io = table.store.env.io
    for path in ("bucket-0/lost.avro", "manifest/manifest-lost-0", "index/index-lost", "statistics/stat-lost"):
        io.write(path, b"lost")
    for path in ("snapshot/.snapshot-9.uuid.tmp", "branch/branch-side/snapshot/snapshot-9uuid.tmp"):
        io.write(path, b"lost")
    io.write("bucket-0/.data.uuid.tmp", b"lost")
    clock_of(table).advance(3 * DAY_S)
    return table


LOST = {
    "bucket-0/.data.uuid.tmp",
    "bucket-0/lost.avro",
    "index/index-lost",
    "manifest/manifest-lost-0",
    "snapshot/.snapshot-9.uuid.tmp",
    "statistics/stat-lost",
}


def test_a_dry_run_tells_and_deletes_nothing():
    table = lived()
    before = every_file(table)
    plan = table.remove_orphans()
    assert set(plan.paths) == LOST
    assert plan.size == 4 * len(LOST)
    assert every_file(table) == before


def test_orphans_are_removed_and_nothing_else():
    table = lived()
    before = every_file(table)
    plan = table.remove_orphans(plan_only=False)
    assert before - every_file(table) == set(plan.paths) == LOST
    assert table.check(deep=True).ok
    assert table.remove_orphans().paths == ()


def test_young_files_stay():
    table = lived()
    table.store.env.io.write("bucket-0/young.avro", b"x")
    clock_of(table).advance(DAY_S - 10)
    assert "bucket-0/young.avro" not in table.remove_orphans(plan_only=False).paths
    assert "young.avro" in data_names(table)


@pytest.mark.parametrize("age", ["23 h", timedelta(hours=1), 2**60, "0 ms"])
def test_less_than_a_day_is_refused(age):
    with pytest.raises(InvalidInputError, match="a day"):
        lived().remove_orphans(age)


def test_a_moment_or_an_age_chooses():
    table = lived()
    now = clock_of(table).now_ms()
    assert table.remove_orphans("7 d").paths == ()
    assert table.remove_orphans(now - 7 * DAY_S * 1_000).paths == ()
    assert set(table.remove_orphans("2 d").paths) == LOST


def test_a_table_that_refers_to_nothing_is_not_emptied():
    table = new_table()
    table.store.env.io.write("bucket-0/f", b"x")
    clock_of(table).advance(3 * DAY_S)
    with pytest.raises(CommitConflictError, match="no file at all"):
        table.remove_orphans(plan_only=False)
    assert data_names(table) == {"f"}


@pytest.mark.parametrize("place", ["manifest", "list", "tag", "snapshot", "branch"])
def test_a_document_that_cannot_be_read_stops_the_work(place):
    table = lived()
    snapshot = table.latest_snapshot()
    io = table.store.env.io
    if place == "manifest":
        io.delete(f"manifest/{table.inspect.manifests().column('file_name')[0].as_py()}")
    elif place == "list":
        io.delete(f"manifest/{snapshot.delta_manifest_list}")
    else:
        path = {
            "tag": "tag/tag-t",
            "snapshot": "snapshot/snapshot-1",
            "branch": "branch/branch-side/snapshot/snapshot-1",
        }[place]
        io.overwrite(path, b"{}")
    before = every_file(table)
    with pytest.raises((NotFoundError, FormatError)):
        table.remove_orphans(plan_only=False)
    assert every_file(table) == before


@pytest.mark.parametrize("change", ["commit", "tag", "expire"])
def test_a_table_that_moved_since_the_plan_is_left_alone(change):
    table = lived()
    plan = plan_orphans(table.context, older_than_ms=clock_of(table).now_ms() - 2 * DAY_S * 1_000)
    if change == "commit":
        # A job that ran for days commits a file that looked like an orphan.
        file = new_file(table, "slow.avro")
        commit(table, new_files=(file,))
    elif change == "tag":
        table.create_tag("new")
    else:
        table.expire_snapshots(retain_max=1, retain_min=1)
    before = every_file(table)
    with pytest.raises(CommitConflictError, match="changed"):
        run_orphans(table.context, plan)
    assert every_file(table) == before


def test_a_clock_that_runs_ahead_of_the_storage_deletes_nothing(tmp_path: Path):
    table = tl.connect(str(tmp_path)).create_table("d.t", {"id": "INT"})
    table.write([{"id": 1}])
    folder = tmp_path / "d.db/t/bucket-0"
    (folder / "running.parquet").write_bytes(b"a job is at work on this")
    fast = Table(table.name, _with_clock(table, FakeClock(table.store.env.clock.now_ms() + 5 * DAY_S * 1_000)))
    assert len(fast.remove_orphans().paths) == 1
    with pytest.raises(InvalidInputError, match="clock of the storage"):
        fast.remove_orphans(plan_only=False)
    assert (folder / "running.parquet").exists()


def _with_clock(table: Table, clock: FakeClock):
    from dataclasses import replace

    return replace(table.store, env=replace(table.store.env, clock=clock))


def test_symbolic_links_are_not_followed(tmp_path: Path):
    table = tl.connect(str(tmp_path / "lake")).create_table("d.t", {"id": "INT"})
    table.write([{"id": 1}])
    outside = tmp_path / "outside/bucket-9"
    outside.mkdir(parents=True)
    (outside / "precious").write_bytes(b"mine")
    root = tmp_path / "lake/d.db/t"
    (root / "bucket-7").symlink_to(outside)
    (root / "manifest/link").symlink_to(outside / "precious")
    (root / "bucket-0/lost").write_bytes(b"x")
    past = 1_000_000_000
    for path in (outside / "precious", root / "bucket-0/lost"):
        os.utime(path, (past, past))
    os.utime(root / "manifest/link", (past, past), follow_symlinks=False)
    plan = table.remove_orphans(plan_only=False)
    assert "bucket-0/lost" in plan.paths
    assert not (root / "bucket-0/lost").exists()
    assert (outside / "precious").read_bytes() == b"mine"
    assert table.to_arrow().num_rows == 1


def test_tables_with_files_elsewhere_are_refused():
    table = lived(data_file__external_paths="file:/elsewhere")
    with pytest.raises(UnsupportedError, match="external"):
        table.remove_orphans()
