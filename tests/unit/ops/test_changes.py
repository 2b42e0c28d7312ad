"""What changed in a table between two points, whichever way it is asked."""

from __future__ import annotations

import pickle
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.lsm.two_states import rows_differ
from tidelake.query import with_request
from tidelake.spec.types.data_types import DOUBLE, INT, ElementType, Field, Root
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "tags": "ARRAY<INT>"}


def new_table(*, keyed: bool = True, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=5), SeededIds(1))))
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    how = {"bucket": "2", "write-only": "true"} if keyed else {"write-only": "true"}
    return lake.create_table("d.t", COLUMNS, primary_key=["id"] if keyed else None, options={**how, **given})


def put(table: Table, *rows: tuple[str, int, str | None]) -> int:
    data = [{"rowkind": kind, "id": key, "v": value, "tags": [key]} for kind, key, value in rows]
    return table.write(data).snapshot_ids[-1]


def shown(scan: Any) -> list[tuple[str, int, str | None]]:
    return sorted((row["rowkind"], row["id"], row["v"]) for row in scan.to_arrow().to_pylist())


@pytest.fixture
def table() -> Table:
    found = new_table()
    put(found, ("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c"))
    put(found, ("+U", 1, "x"), ("-D", 2, "b"), ("+I", 4, "d"))
    found.compact(full=True)
    put(found, ("+U", 3, "c"))  # as it was
    return found


def test_changes_are_the_rows_that_snapshots_wrote_with_their_kinds(table: Table) -> None:
    assert shown(table.changes(1, 2)) == [("+I", 4, "d"), ("+U", 1, "x"), ("-D", 2, "b")]
    assert shown(table.changes(2, 3)) == []
    assert len(shown(table.changes(0))) == 7
    assert table.changes(0).count() == 7
    assert table.changes(0).arrow_schema.names == ["rowkind", "id", "v", "tags"]


def test_columns_conditions_limits_and_orders_are_those_of_any_scan(table: Table) -> None:
    only = table.changes(0, columns=["v"], where="id = 1")
    assert [tuple(row.values()) for row in only.to_arrow().to_pylist()] == [("+I", "a"), ("+U", "x")]
    assert only.count() == 2
    assert table.changes(0, where="v > 'b'").count() == 4
    ordered = with_request(table.changes(0), order=table.scan(order_by="id desc").order, limit=2)
    assert [row["id"] for row in ordered.to_arrow().to_pylist()] == [4, 3]
    frame = table.changes(0).to_polars(lazy=True)
    assert frame.filter(pl.col("id") == 1).select("rowkind").collect().to_series().to_list() == ["+I", "+U"]


def test_a_condition_on_values_is_asked_of_each_row_by_itself(table: Table) -> None:
    """An older row that matches is shown even where a newer one does not match any more."""
    assert shown(table.changes(0, where="v = 'a'")) == [("+I", 1, "a")]


def test_plain_reads_leave_out_what_went(table: Table) -> None:
    between = table.with_options({"incremental-between": "1,2"})
    assert sorted(row["id"] for row in between.to_arrow().to_pylist()) == [1, 4]
    assert between.count() == 2
    assert shown(between.changes()) == shown(table.changes(1, 2))


def test_a_difference_shows_what_was_and_what_is(table: Table) -> None:
    diff = table.with_options({"incremental-between-scan-mode": "diff"})
    assert shown(diff.changes(1, 2)) == [("+I", 4, "d"), ("+U", 1, "x"), ("-D", 2, "b"), ("-U", 1, "a")]
    assert shown(diff.changes(1, 4)) == shown(diff.changes(1, 2))
    assert shown(diff.changes(2, 4)) == []
    assert shown(diff.changes(0, 1)) == [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]
    assert diff.changes(1, 2, columns=["id"]).count() == 4
    assert diff.with_options({"incremental-between": "1,2"}).count() == 2


def test_a_difference_among_the_rows_of_a_condition_is_that_of_those_rows(table: Table) -> None:
    diff = table.with_options({"incremental-between-scan-mode": "diff"})
    assert shown(diff.changes(1, 2, where="v = 'a'")) == [("-D", 1, "a")]
    assert shown(diff.changes(1, 2, where="v = 'x'")) == [("+I", 1, "x")]
    assert shown(diff.changes(1, 2, where="id > 3")) == [("+I", 4, "d")]


def test_a_difference_merges_files_that_both_states_have_with_those_that_one_has() -> None:
    table = new_table(merge_engine="partial-update")
    table.write([{"id": 1, "v": "a", "tags": None}])
    table.compact(full=True)
    table.write([{"id": 1, "v": None, "tags": [7]}])
    rows = table.with_options({"incremental-between-scan-mode": "diff"}).changes(2, 3).to_arrow().to_pylist()
    assert [(row["rowkind"], row["v"], row["tags"]) for row in rows] == [("-U", "a", None), ("+U", "a", [7])]


def test_tags_are_compared_and_may_stand_for_their_snapshots(table: Table) -> None:
    table.create_tag("one", snapshot=1)
    table.create_tag("two", snapshot=2)
    diff = table.with_options({"incremental-between-scan-mode": "diff"})
    assert shown(table.changes("one", "two")) == shown(diff.changes(1, 2))
    by_snapshot = table.with_options({"incremental-between-tag-to-snapshot": True})
    assert shown(by_snapshot.changes("one", "two")) == shown(table.changes(1, 2))
    assert shown(table.changes("one")) == shown(table.changes(1))
    with pytest.raises(NotFoundError, match="tag"):
        table.changes("nope").count()


def test_states_with_other_numbers_of_buckets_are_not_compared(table: Table) -> None:
    table.rescale(3)
    diff = table.reload().with_options({"incremental-between-scan-mode": "diff"})
    with pytest.raises(InvalidInputError) as caught:
        diff.changes(1).count()
    assert (caught.value.code, caught.value.facts["before"], caught.value.facts["after"]) == ("rescaled", "2", "3")
    assert shown(table.reload().changes(1, 2)) == shown(table.changes(1, 2))


def test_overwrites_are_no_changes_and_a_range_that_is_gone_is_told(table: Table) -> None:
    table.write([{"id": 9, "v": "z", "tags": None}], mode="overwrite")
    assert shown(table.changes(4)) == []
    table.expire_snapshots(retain_max=2, retain_min=2)
    with pytest.raises(NotFoundError, match="not kept"):
        table.changes(1).count()
    with pytest.raises(InvalidInputError):
        table.changes(4, 2).count()
    with pytest.raises(InvalidInputError, match="start of the changes"):
        table.changes().count()


def test_plans_of_changes_can_be_sent_elsewhere(table: Table) -> None:
    for scan in (table.changes(0), table.with_options({"incremental-between-scan-mode": "diff"}).changes(1, 2)):
        assert pickle.loads(pickle.dumps(scan.splits())) == scan.splits()


def test_the_newest_delta_is_merged() -> None:
    table = new_table()
    put(table, ("+I", 1, "a"))
    put(table, ("+I", 1, "b"), ("-D", 2, "x"))
    found = table.with_options({"scan.mode": "latest-delta"}).to_arrow().to_pylist()
    assert [(row["id"], row["v"]) for row in found] == [(1, "b")]


def test_an_append_table_only_knows_insertions() -> None:
    table = new_table(keyed=False)
    table.write([{"id": 1, "v": "a", "tags": None}])
    table.write([{"id": 2, "v": "b", "tags": [1]}])
    assert shown(table.changes(1)) == [("+I", 2, "b")]
    log = table.inspect.audit_log()
    assert shown(log) == [("+I", 1, "a"), ("+I", 2, "b")]
    assert table.inspect.binlog().to_arrow().to_pylist()[1] == {"rowkind": "+I", "id": [2], "v": ["b"], "tags": [[1]]}


# ------------------------------------------------------------------------------------------------ views


@pytest.fixture
def lake() -> Lake:
    made = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    table = made.create_table("d.t", COLUMNS, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    put(table, ("+I", 1, "a"), ("+I", 2, "b"))
    put(table, ("-D", 2, "b"), ("+U", 1, "x"))
    return made


def test_the_audit_log_shows_deletions_until_they_are_compacted_away(lake: Lake) -> None:
    log = lake.table("d.t$audit_log")
    assert shown(log) == [("+U", 1, "x"), ("-D", 2, "b")]
    assert shown(log.at(snapshot=1)) == [("+I", 1, "a"), ("+I", 2, "b")]
    lake.table("d.t").compact(full=True)
    assert shown(log) == [("+U", 1, "x")]
    assert "rowkind" in repr(log)


def test_the_binlog_packs_an_update_into_one_row(lake: Lake) -> None:
    log = lake.table("d.t$binlog").with_options({"incremental-between-scan-mode": "diff"})
    rows = sorted((row["rowkind"], row["id"], row["v"]) for row in log.changes(1, 2).to_arrow().to_pylist())
    assert rows == [("+U", [1, 1], ["a", "x"]), ("-D", [2], ["b"])]
    assert log.changes(1, 2).count() == 2
    with pytest.raises(InvalidInputError, match="order"):
        log.scan(order_by="id").to_arrow()


def test_what_is_compacted_is_read_by_name_and_shows_no_changes(lake: Lake) -> None:
    view = lake.table("d.t$ro")
    assert view.to_arrow().num_rows == 0
    lake.table("d.t").compact(full=True)
    assert view.to_arrow().column("v").to_pylist() == ["x"]
    for read in (view.follow, lambda: view.changes(0)):
        with pytest.raises(InvalidInputError, match="no changes"):
            read()


def test_views_are_only_read_and_unknown_ones_are_told(lake: Lake) -> None:
    view = lake.table("d.t$audit_log")
    for act in (
        lambda: view.write([{"id": 1}]),
        lambda: view.delete("true"),
        lambda: view.new_commit(),
        lambda: view.compact(),
        lambda: view.truncate(),
    ):
        with pytest.raises(InvalidInputError, match="cannot be changed"):
            act()
    with pytest.raises(InvalidInputError, match="system table") as caught:
        lake.table("d.t$file")
    assert "audit_log" in (caught.value.hint or "")
    with pytest.raises(NotFoundError):
        lake.table("d.nope$audit_log")
    lake.table("d.t").create_branch("b", snapshot=1)
    assert shown(lake.table("d.t$branch_b$audit_log")) == [("+I", 1, "a"), ("+I", 2, "b")]
    assert view.reload().name == "d.t$audit_log"


def test_sequence_numbers_are_shown_on_demand(lake: Lake) -> None:
    log = lake.table("d.t$audit_log").with_options({"table-read.sequence-number.enabled": True})
    rows = log.to_arrow().sort_by("id").to_pylist()
    assert [(row["_SEQUENCE_NUMBER"], row["id"]) for row in rows] == [(3, 1), (2, 2)]
    assert [row["_SEQUENCE_NUMBER"] for row in log.changes(1).to_arrow().sort_by("id").to_pylist()] == [3, 2]


def test_sequence_numbers_of_a_difference_are_those_of_its_rows(lake: Lake) -> None:
    log = lake.table("d.t$audit_log").with_options(
        {"table-read.sequence-number.enabled": True, "incremental-between-scan-mode": "diff"}
    )
    found = log.changes(1).to_arrow()
    found.validate(full=True)
    assert not found.schema.field("_SEQUENCE_NUMBER").nullable
    rows = found.sort_by([("id", "ascending"), ("_SEQUENCE_NUMBER", "ascending")]).to_pylist()
    assert [(row["rowkind"], row["_SEQUENCE_NUMBER"], row["id"]) for row in rows] == [
        ("-U", 0, 1),
        ("+U", 3, 1),
        ("-D", 1, 2),
    ]


def test_a_difference_from_a_tag_to_a_snapshot_outlives_the_snapshot_of_the_tag(table: Table) -> None:
    table.create_tag("old", snapshot=1)
    table.create_tag("new", snapshot=2)
    table.expire_snapshots(retain_min=1, retain_max=1)
    assert table.store.snapshots.ids() == [4]
    by_state = table.with_options({"incremental-between-scan-mode": "diff"})
    wanted = [("+I", 4, "d"), ("+U", 1, "x"), ("-D", 2, "b"), ("-U", 1, "a")]
    assert shown(by_state.changes("old")) == wanted
    assert shown(by_state.changes("old", 4)) == wanted
    numbered = by_state.with_options({"incremental-between-tag-to-snapshot": "true"})
    assert shown(numbered.changes("old", "new")) == wanted
    with pytest.raises(NotFoundError, match="not kept"):
        table.changes("old").to_arrow()


@pytest.mark.parametrize("place", [1.5, True, b"x", [1]])
def test_a_place_that_is_neither_a_number_nor_a_name_is_refused(table: Table, place: Any) -> None:
    with pytest.raises(InvalidInputError, match="neither a snapshot id nor a tag"):
        table.changes(place)
    with pytest.raises(InvalidInputError, match="neither a snapshot id nor a tag"):
        table.changes(0, place)
    with pytest.raises(InvalidInputError, match="end of the stream is not a snapshot"):
        table.follow(until=place)
    with pytest.raises(InvalidInputError, match="consumer name is not text"):
        table.follow(consumer=place)


# ------------------------------------------------------------------------------------------------ small parts


def test_rows_differ_by_value_at_any_depth() -> None:
    nan = float("nan")
    left = pa.table({"a": [1.0, nan, None, 1.0], "l": pa.array([[1], None, [], [2]], pa.list_(pa.int32()))})
    right = pa.table({"a": [1.0, nan, None, None], "l": pa.array([[1], None, None, [2]], pa.list_(pa.int32()))})
    number, numbers = Field(0, "a", DOUBLE), Field(1, "l", ElementType(Root.ARRAY, element=INT))
    assert rows_differ(left, right, [number]).tolist() == [False, False, False, True]
    assert rows_differ(left, right, [numbers]).tolist() == [False, False, True, False]
    assert rows_differ(left, right, [number, numbers]).tolist() == [False, False, True, True]
