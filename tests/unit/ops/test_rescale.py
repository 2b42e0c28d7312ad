"""Rescaling: another number of fixed buckets for the rows of whole partitions."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError
from tidelake.io.env import Env
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.write.rescale import RescalePlan
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "BIGINT"}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


def make(*, keyed: bool = True, partitioned: bool = True, **options: str) -> Table:
    given = {"bucket": "2", "write-only": "true", **options}
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock(tick_ms=1)))).create_table(
        "d.t",
        COLUMNS,
        primary_key=["k", "dt"] if keyed else [],
        partition_by=["dt"] if partitioned else [],
        options=given if keyed else {**given, "bucket-key": "k"},
    )


def fill(table: Table, times: int = 3, *, keys: int = 40) -> None:
    for turn in range(times):
        table.write([{"k": key, "dt": dt, "v": turn} for dt in "ab" for key in range(keys)])


def content(table: Table) -> list[str]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


def counts(table: Table) -> dict[str, int]:
    files = table.files()
    rows = zip(files["partition"].to_pylist(), files["total_buckets"].to_pylist(), strict=True)
    return {table.paths.partition(partition): total for partition, total in rows}


def paths_of(table: Table, *, snapshots: range) -> set[str]:
    found = set()
    for snapshot in snapshots:
        files = table.files(snapshot=snapshot)
        columns = (files[name].to_pylist() for name in ("partition", "bucket", "file_name"))
        found |= {f"{table.paths.bucket(*place)}/{name}" for *place, name in zip(*columns, strict=True)}
    return found


def stored(table: Table) -> set[str]:
    io = table.store.env.io
    folders = [f"{dt}/bucket-{bucket}" for dt in ("dt=a", "dt=b") for bucket in range(8)]
    return {f"{folder}/{each.name}" for folder in folders if io.exists(folder) for each in io.list(folder)}


@pytest.mark.parametrize("count", [1, 3, 4, 7])
@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
def test_the_rows_stay_the_same_whatever_the_number_of_buckets(keyed, partitioned, count):
    table = make(keyed=keyed, partitioned=partitioned)
    fill(table)
    before = content(table)
    done = table.rescale(count)
    assert isinstance(done, CommitResult)
    assert content(table) == before
    assert set(counts(table).values()) == {count}
    assert set(table.files()["bucket"].to_pylist()) == set(range(count))
    latest = table.latest_snapshot()
    assert latest is not None
    assert latest.commit_kind is CommitKind.OVERWRITE
    assert not table.check(deep=True, rows=True).findings
    assert content(table.at(snapshot=3)) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_every_merge_engine_keeps_its_rows_and_merges_on_after_it(engine):
    table, other = make(**ENGINES[engine]), make(**ENGINES[engine])
    for each in (table, other):
        fill(each)
    table.rescale(5)
    for each in (table.set_options({"bucket": 5}), other):
        each.write([{"k": 1, "dt": "a", "v": 100}, {"k": 99, "dt": "b", "v": 7}])
        each.reload().compact(full=True)
    assert content(table.reload()) == content(other)


def test_rows_of_a_first_row_table_that_wait_for_a_compaction_are_not_lost():
    table = make(**ENGINES["first-row"])
    fill(table)
    assert table.count() == 0  # level 0 is not read before a compaction
    table.rescale(3)
    assert table.count() == 80
    assert set(table.to_arrow()["v"].to_pylist()) == {0}


@pytest.mark.parametrize("local", ["0 b", "1 mb"])
def test_a_rescale_costs_what_its_rows_cost_and_not_what_its_buckets_would(local):
    table = make(**({} if local == "0 b" else {"local-merge-buffer-size": local}))
    fill(table, keys=3)
    before = content(table)
    table.rescale(2**31 - 1)
    assert content(table) == before
    assert table.files().num_rows <= 6
    assert set(table.files()["level"].to_pylist()) == {5}


def test_rescaled_rows_need_no_merge():
    table = make()
    fill(table)
    table.rescale(3)
    assert set(table.files()["level"].to_pylist()) == {5}
    assert all(split.raw_convertible for split in table.scan().splits())


def test_rows_that_do_not_fit_into_memory_at_once_end_up_in_one_run():
    table = make(**{"write-buffer-size": "64 kb", "write-buffer-spillable": "false"})
    fill(table, 2, keys=9_000)
    before = content(table)
    table.rescale(3)
    assert set(table.files()["level"].to_pylist()) == {5}
    assert content(table) == before
    assert stored(table) == paths_of(table, snapshots=range(1, 4))


def test_partitions_with_different_counts_are_read_and_pruned_right():
    table = make()
    fill(table)
    table.rescale(5, "dt = 'a'")
    assert counts(table) == {"dt=a": 5, "dt=b": 2}
    for key in range(40):
        found = table.to_arrow(where=f"k = {key}").to_pylist()
        assert sorted(row["dt"] for row in found) == ["a", "b"]
    files = [file for split in table.scan(where="k = 7").splits() for file in split.files]
    assert len(files) == 1 + 3  # one bucket of five, and one bucket of two with its three runs


def test_partitions_are_chosen_by_their_values_too():
    table = make()
    fill(table)
    table.rescale(3, partitions=[{"dt": "b"}])
    assert counts(table) == {"dt=a": 2, "dt=b": 3}


def test_partitions_that_have_the_number_already_are_left_alone():
    table = make()
    fill(table)
    table.rescale(3, "dt = 'a'")
    plan = table.rescale(3, plan_only=True)
    assert isinstance(plan, RescalePlan)
    assert [each.path for each in plan.partitions] == ["dt=b"]
    table.rescale(3)
    assert table.rescale(3) == CommitResult()


def test_a_plan_tells_the_partitions_and_what_they_hold():
    table = make()
    fill(table)
    plan = table.rescale(4, plan_only=True)
    assert isinstance(plan, RescalePlan)
    lines = repr(plan).splitlines()
    assert lines[0] == f"RescalePlan(2 partitions to 4 buckets, 12 files, {plan.size:,} bytes)"
    assert lines[1] == f"  dt=a: 2 buckets, 6 files, {plan.partitions[0].size:,} bytes"
    assert "<td>dt=b</td><td>2</td><td>6</td>" in plan._repr_html_()
    assert counts(table) == {"dt=a": 2, "dt=b": 2}


def test_the_option_says_how_many_buckets_when_nobody_else_does():
    table = make()
    fill(table)
    changed = table.set_options({"bucket": 6})
    with pytest.raises(InvalidInputError, match="another number of buckets"):
        changed.write([{"k": 1, "dt": "a", "v": 1}])
    changed.rescale()
    changed.write([{"k": 1, "dt": "a", "v": 1}])
    assert counts(changed) == {"dt=a": 6, "dt=b": 6}


def test_the_option_of_the_table_stays_as_it_is():
    table = make()
    fill(table)
    table.rescale(4)
    assert table.reload().options["bucket"] == "2"
    with pytest.raises(InvalidInputError, match="another number of buckets"):
        table.write([{"k": 1, "dt": "a", "v": 1}])
    table.write([{"k": 1, "dt": "c", "v": 1}])  # a new partition gets what the option says
    assert counts(table)["dt=c"] == 2


def test_a_partition_without_rows_gets_the_new_number_by_losing_its_files():
    table = make()
    fill(table, 1)
    table.delete("dt = 'a'")
    table.rescale(3)
    assert counts(table) == {"dt=b": 3}
    table.set_options({"bucket": 3}).write([{"k": 1, "dt": "a", "v": 1}])


@pytest.mark.parametrize("other", ["write", "compact", "overwrite"])
def test_a_commit_of_others_in_between_makes_it_fail_and_nothing_is_lost(other):
    table = make()
    fill(table, 6)

    def interfere(done: int, of: int) -> None:
        if done < of:
            return
        if other == "compact":
            table.compact(full=True)
        else:
            mode: dict[str, Any] = {"mode": "overwrite", "partition": {"dt": "a"}} if other == "overwrite" else {}
            table.write([{"k": 1, "dt": "a", "v": 77}], **mode)

    with pytest.raises(CommitConflictError) as caught:
        table.rescale(4, progress=interfere)
    assert caught.value.code == "strict-mode"
    assert set(counts(table).values()) == {2}
    assert table.count() == (41 if other == "overwrite" else 80)
    assert stored(table) == paths_of(table, snapshots=range(1, 8))


def test_a_commit_to_another_partition_does_not_matter():
    table = make()
    fill(table)
    table.rescale(4, "dt = 'a'", progress=lambda *_: table.write([{"k": 1, "dt": "b", "v": 77}]))
    assert counts(table) == {"dt=a": 4, "dt=b": 2}
    assert table.to_arrow(where="v = 77").num_rows == 1


def test_a_damaged_file_stops_it_and_nothing_is_left_behind():
    table = make()
    fill(table)
    before = stored(table)
    victim = max(before)
    table.store.env.io.delete(victim)
    with pytest.raises(FormatError, match="missing"):
        table.rescale(4)
    assert stored(table) == before - {victim}


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "4"], ids=repr)
def test_what_is_no_number_of_buckets_is_refused(count):
    with pytest.raises(InvalidInputError, match="must be positive"):
        make().rescale(count)


def test_dynamic_buckets_and_tables_without_buckets_have_no_number_to_change():
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock())))
    dynamic = lake.create_table("d.k", {"k": "INT NOT NULL"}, primary_key=["k"])
    plain = lake.create_table("d.a", {"k": "INT NOT NULL"})
    for table in (dynamic, plain):
        with pytest.raises(InvalidInputError, match="only a number of fixed buckets"):
            table.rescale(4)


def test_postponed_buckets_need_a_number():
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock())))
    table = lake.create_table("d.k", {"k": "INT NOT NULL"}, primary_key=["k"], options={"bucket": "-2"})
    with pytest.raises(InvalidInputError, match="postponed"):
        table.rescale()
    assert table.rescale(4) == CommitResult()


def test_rows_of_a_bucketed_append_table_keep_their_order():
    table = make(keyed=False)
    for turn in range(4):
        table.write([{"k": key, "dt": "a", "v": turn} for key in range(6)])
    table.rescale(3)
    for key in range(6):
        assert table.to_arrow(where=f"k = {key}")["v"].to_pylist() == [0, 1, 2, 3]


def test_a_column_that_was_added_meanwhile_is_kept():
    table = make()
    fill(table, 1)
    table.alter(add={"w": "INT"}).write([{"k": 1, "dt": "a", "v": 5, "w": 9}])
    table.rescale(3)
    assert table.reload().to_arrow(where="k = 1 and dt = 'a'")["w"].to_pylist() == [9]


def test_a_rescale_of_a_write_only_table_expires_nothing():
    table = make(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    fill(table, 2)
    assert table.rescale(4).snapshot_ids
    assert len(table.store.snapshots.ids()) == 3
