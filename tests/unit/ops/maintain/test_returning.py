"""A rollback that is a commit: the state of an older snapshot is the newest again, and nothing is removed."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.errors import CommitConflictError, InvalidInputError, NotFoundError, StorageError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.since import commits_since
from tidelake.ops.maintain.returning import ReturnPlan
from tidelake.ops.maintain.tags import plan_tag_deletion, run_tag_deletion
from tidelake.ops.scan.plan import data_manifests, live_entries, read_changes
from tidelake.spec.manifests.manifest import DELETE, identities
from tidelake.testing import FakeClock, Fault, FaultyFileIO, MemoryFileIO

KINDS: dict[str, dict[str, str]] = {
    "append": {},
    "keyed": {"bucket": "2"},
    "dynamic": {"bucket": "-1"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "first row": {"bucket": "1", "merge-engine": "first-row"},
    "changelog": {"bucket": "1", "changelog-producer": "lookup"},
}
AGES_AWAY = 2**53


def new_lake(io: Any = None) -> tl.Lake:
    clock = FakeClock(1_000)
    return tl.Lake(FileSystemCatalog(Env(io or MemoryFileIO(clock=clock), clock, SeededIds(1))))


def new_table(kind: str = "append", lake: tl.Lake | None = None, **options: str) -> tl.Table:
    """A table with five snapshots or more, whose states all differ."""
    key = None if kind == "append" else ["id", "dt"]
    columns = {"id": "INT", "dt": "STRING", "v": "INT"}
    given = {**KINDS[kind], **{name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}}
    table = (lake or new_lake()).create_table("db.t", columns, primary_key=key, partition_by=["dt"], options=given)
    table.write([{"id": n, "dt": "a", "v": n} for n in range(4)])
    table.write([{"id": n, "dt": "b", "v": n} for n in range(2, 5)])
    if kind not in ("first row", "changelog"):
        table.delete("id = 3")
    table.write([{"id": n, "dt": "a", "v": 10 + n} for n in range(2, 6)])
    table.compact(full=True)
    table.write([{"id": 9, "dt": "c", "v": 9}], mode="overwrite")
    return table


def rows(table: tl.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def states(table: tl.Table) -> dict[int, list[tuple[Any, ...]]]:
    return {each: rows(table.at(snapshot=each)) for each in table.store.snapshots.ids()}


def back(table: tl.Table, **to: Any) -> ReturnPlan:
    done = table.rollback_to(**to, as_latest=True)
    assert isinstance(done, ReturnPlan)
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_every_older_state_can_be_the_newest_again_and_no_snapshot_is_lost(kind: str) -> None:
    table = new_table(kind)
    before = states(table)
    assert len({str(each) for each in before.values()}) >= 3
    for snapshot_id in before:
        newest = table.latest_snapshot()
        assert newest is not None
        plan = table.rollback_to(snapshot=snapshot_id, as_latest=True, plan_only=True)
        assert table.latest_snapshot() == newest
        done = back(table, snapshot=snapshot_id)
        assert done.snapshot_id == newest.id + 1
        assert (done.files_added, done.files_deleted) == (plan.files_added, plan.files_deleted)
        assert rows(table) == before[snapshot_id]
    assert before.items() <= states(table).items()
    report = table.check(deep=True, rows=True)
    assert (report.ok, report.findings) == (True, ()), str(report)


def test_no_entry_of_the_state_before_deletes_a_file_that_comes_back() -> None:
    """Readers of Paimon collect all deletions of a snapshot first, whatever their order."""
    table = new_table("keyed")
    back(table, snapshot=2)
    new, store = table.latest_snapshot(), table.store.manifests
    assert new is not None
    base = store.read_list(new.base_manifest_list)
    assert [meta.num_deleted for meta in base] == [0] * len(base)
    entries = read_changes(store, data_manifests(store, new))
    deleted = identities(entries.filter(pc.equal(entries.column("kind"), DELETE))).to_pylist()
    live = identities(live_entries(store, data_manifests(store, new))).to_pylist()
    assert len(live) == 4
    assert not set(live) & set(deleted)


def test_the_new_snapshot_describes_the_old_state() -> None:
    table = new_table("vectors")
    table = table.add_column("w", "INT")
    table.write([{"id": 7, "dt": "z", "v": 1, "w": 1}])
    target = table.snapshot(3)
    done = back(table, snapshot=3)
    new = table.latest_snapshot()
    assert new is not None
    assert (new.commit_kind.value, new.id) == ("OVERWRITE", done.snapshot_id)
    for name in ("schema_id", "index_manifest", "total_record_count", "watermark", "statistics"):
        assert getattr(new, name) == getattr(target, name), name
    assert target.schema_id < table.schema.id
    assert rows(table) == [(*row, None) for row in rows(table.at(snapshot=3))]


def test_a_watermark_comes_back_and_rises_again() -> None:
    table = new_table()
    job = table.new_commit("job")
    for number, watermark in enumerate((5, 9), 1):
        write = table.new_write("job")
        write.write(table.to_arrow())
        job.commit(write.prepare_commit(number), identifier=number, watermark=watermark)
        write.close()
    five = next(each for each in table.store.snapshots.ids() if table.snapshot(each).watermark == 5)
    assert back(table, watermark=8).target.id == five
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.watermark == 5
    # The commits of the job stay published: their snapshots are still there.
    assert job.filter_committed([1, 2, 3]) == [3]
    assert newest.properties == {**table.snapshot(five).properties, **table.snapshot(newest.id - 1).properties}
    assert table.check(deep=True).findings == ()
    with pytest.raises(NotFoundError, match="watermark that low"):
        table.rollback_to(watermark=4)


def test_every_way_to_name_a_snapshot_leads_there() -> None:
    table = new_table()
    table.create_tag("first", snapshot=1)
    assert str(back(table, tag="first").tag).startswith("rollback-to-as-latest-1-")
    assert back(table, timestamp=table.snapshot(2).time_ms).target.id == 2
    with pytest.raises(InvalidInputError, match="exactly one"):
        table.rollback_to(snapshot=1, watermark=1, as_latest=True)
    with pytest.raises(NotFoundError):
        table.rollback_to(snapshot=77, as_latest=True)


def test_a_tag_keeps_the_older_snapshot_from_the_expiry_of_others() -> None:
    table = new_table(tag__default_time_retained="1 min")
    done = back(table, snapshot=2)
    assert done.tag is not None
    assert done.tag.startswith("rollback-to-as-latest-2-")
    assert {row["tag_name"]: row["time_retained"] for row in table.inspect.tags().to_pylist()} == {done.tag: None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_came_back_outlive_the_snapshots_in_between_and_the_tag(kind: str) -> None:
    table = new_table(kind)
    wanted = rows(table.at(snapshot=2))
    done = back(table, snapshot=2)
    assert done.tag is not None
    for keep in (3, 2, 1):
        table.expire_snapshots(retain_max=keep, retain_min=keep, older_than=AGES_AWAY)
        assert rows(table) == wanted
    table.delete_tag(done.tag)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert rows(table) == wanted
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert report.orphans == ()


def test_the_tag_may_go_first_too() -> None:
    table = new_table("vectors")
    wanted = rows(table.at(snapshot=2))
    done = back(table, snapshot=2)
    assert done.tag is not None
    table.delete_tag(done.tag)
    for keep in (4, 3, 2, 1):
        table.expire_snapshots(retain_max=keep, retain_min=keep, older_than=AGES_AWAY)
        assert rows(table) == wanted
    assert table.check(deep=True, rows=True).ok


def test_an_expired_snapshot_comes_back_from_its_tag() -> None:
    table = new_table()
    wanted = rows(table.at(snapshot=1))
    table.create_tag("first", snapshot=1)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert back(table, tag="first").snapshot_id == max(table.store.snapshots.ids())
    assert rows(table) == wanted
    assert table.check(deep=True, rows=True).ok


def test_nothing_expires_after_it() -> None:
    options = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    table = new_table(write_only="true").set_options({"write-only": "false"})
    before = table.store.snapshots.ids()
    table = table.set_options({key.replace("__", ".").replace("_", "-"): text for key, text in options.items()})
    back(table, snapshot=2)
    assert table.store.snapshots.ids() == [*before, before[-1] + 1]


def test_going_back_to_the_newest_snapshot_does_nothing() -> None:
    table = new_table()
    newest = table.latest_snapshot()
    assert newest is not None
    done = back(table, snapshot=newest.id)
    assert (done.is_empty, done.snapshot_id, table.tags()) == (True, None, {})
    assert table.latest_snapshot() == newest
    assert "newest already" in str(done)


@pytest.mark.parametrize("kind", ["append", "keyed"])
def test_streams_see_an_overwrite(kind: str) -> None:
    table = new_table(kind)
    newest, before = max(table.store.snapshots.ids()), rows(table)
    done = back(table, snapshot=2)
    assert table.changes(since=newest, until=done.snapshot_id).to_arrow().num_rows == 0
    seen = "streaming-read-overwrite" if kind == "keyed" else "streaming-read-append-overwrite"
    follower = table.with_options({seen: True}).follow(start=newest + 1, poll=0)
    change = next(iter(follower)).to_arrow().to_pylist()
    added = sorted(tuple(row.values())[1:] for row in change if row["rowkind"] == "+I")
    assert set(rows(table)) - set(before) <= set(added)


def test_a_writer_that_deletes_files_which_are_gone_again_plans_again() -> None:
    table = new_table("vectors")
    done = table.at(snapshot=2)
    wanted = rows(done)
    job = table.new_write("job")
    job.write(table.to_arrow())
    messages = job.prepare_commit(1)
    back(table, snapshot=2)
    table.new_commit("job").commit(messages, identifier=1)
    job.close()
    assert len(rows(table)) >= len(wanted)
    assert table.check(deep=True, rows=True).ok


def test_a_publish_that_fails_leaves_no_tag() -> None:
    io = MemoryFileIO()
    table = new_table(lake=new_lake(io))
    watched = FaultyFileIO(io)
    back(new_lake(watched).table("db.t"), snapshot=2)
    at = next(op.number for op in watched.ops if op.name == "create_exclusive" and "snapshot/snapshot-" in str(op))
    io = MemoryFileIO()
    table = new_table(lake=new_lake(io))
    failing = new_lake(FaultyFileIO(io, {at: Fault.BEFORE})).table("db.t")
    with pytest.raises(StorageError):
        failing.rollback_to(snapshot=2, as_latest=True)
    assert table.tags() == {}


# ------------------------------------------------------------------------------------------------ other jobs


def new_marked_table(keyed: bool) -> tl.Table:
    """Three rows, of which one is deleted by a vector in the newest snapshot; snapshot 1 or 2 has all."""
    options = {"deletion-vectors.enabled": "true", **({"bucket": "1"} if keyed else {})}
    table = new_lake().create_table(
        "db.v", {"a": "INT", "b": "INT"}, primary_key=["a"] if keyed else None, options=options
    )
    table.write([{"a": n, "b": n} for n in (1, 2, 3)])
    return table


def test_the_tag_that_is_gone_back_to_is_held_against_a_deletion_planned_before() -> None:
    table = new_table(write_only="true")
    table.create_tag("keep", snapshot=1)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    plan = plan_tag_deletion(table.context, "keep")
    back(table, tag="keep")
    with pytest.raises(CommitConflictError):
        run_tag_deletion(table.context, plan)
    assert len(rows(table)) == 4
    table.delete_tag("keep")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=AGES_AWAY)
    assert len(rows(table)) == 4
    assert table.check(deep=True).ok


def test_rows_that_came_back_without_an_entry_are_noticed_by_who_looked_them_up() -> None:
    table = new_marked_table(keyed=True)
    whole = table.store.snapshots.latest_id()
    table.delete("a = 1")
    writer = table.new_write("job")
    writer.write([{"a": 1, "b": 100}])
    messages = writer.prepare_commit(1)
    back(table, snapshot=whole)
    table.new_commit("job").commit(messages, identifier=1)
    assert [key for key, _ in rows(table)] == [1, 2, 3]  # a compaction of the bucket may still have to show the new row
    table.compact(full=True)
    assert rows(table) == [(1, 100), (2, 2), (3, 3)]


def test_a_dedicated_compaction_notices_rows_that_came_back() -> None:
    table = new_marked_table(keyed=True).with_options({"write-only": "true"})
    whole = table.store.snapshots.latest_id()
    states = iter([lambda: table.delete("a = 1"), lambda: back(table, snapshot=whole), None])
    seen: list[Any] = []

    def between(_: Any) -> None:
        seen.append(rows(table))
        step = next(states)
        if step is not None:
            step()
        else:
            return
        if len(seen) == 2:
            table.write([{"a": 1, "b": 100}])

    table.keep_compacted(max_rounds=3, interval="1 s", progress=between)
    assert rows(table) == [(1, 100), (2, 2), (3, 3)]


def test_a_merge_does_not_insert_what_came_back_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_marked_table(keyed=False)
    table.delete("a = 1")
    real = Committer.commit

    def commit_late(self: Committer, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(Committer, "commit", real)
        back(table, snapshot=1)
        return real(self, *given, **named)

    monkeypatch.setattr(Committer, "commit", commit_late)
    table.merge([{"a": 1, "b": 7}], on=["a"]).when_not_matched_insert_all().run()
    assert rows(table) == [(1, 1), (2, 2), (3, 3)]


def test_a_commit_says_in_which_files_deleted_rows_are_back() -> None:
    table = new_marked_table(keyed=False)
    table.delete("a = 1")
    table.delete("a = 2")
    back(table, snapshot=1)
    table.delete("a = 3")
    table.write([{"a": 9, "b": 9}], mode="overwrite")
    (name,) = table.files(snapshot=1, columns=["file_name"]).column("file_name").to_pylist()
    found = {
        each.id: each.find_restored_files() for each in commits_since(table.store, 0, table.store.snapshots.latest_id())
    }
    restored = {number for number, files in found.items() if files}
    assert {file[2] for number in restored for file in found[number]} == {name}
    assert restored == {4}
    table.expire_snapshots(retain_max=3, retain_min=3, older_than=AGES_AWAY)
    (oldest, *_) = commits_since(table.store, 3, 4)
    assert oldest.find_restored_files() is None
