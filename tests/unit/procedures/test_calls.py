"""Each procedure does what the verb of the table does, and answers with its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.procedures.registry import PROCEDURES, preview_call
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.testing import FakeClock, MemoryFileIO

DAY_MS = 86_400_000
START_MS = 100 * DAY_MS
DONE = [{"result": True}]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS)


@pytest.fixture
def lake(clock: FakeClock) -> tl.Lake:
    return tl.Lake(FileSystemCatalog(Env(MemoryFileIO(clock=clock), clock, SeededIds(1))))


@pytest.fixture
def table(lake: tl.Lake, clock: FakeClock) -> tl.Table:
    """A primary-key table with three snapshots, a day apart: `db.t`."""
    made = lake.create_table(
        "db.t",
        {"id": "INT", "dt": "STRING", "v": "INT"},
        primary_key=["id", "dt"],
        partition_by=["dt"],
        options={"bucket": 2},
    )
    for v in range(3):
        made.write([{"id": n, "dt": dt, "v": v} for n in range(4) for dt in ("mon", "tue")])
        clock.advance(24 * 3600)
    return made


def rows(lake: tl.Lake, name: str, *positional: object, **arguments: object) -> list[dict[str, Any]]:
    result = lake.call(name, *positional, **arguments)
    assert result.schema == PROCEDURES[name].columns
    found: list[dict[str, Any]] = result.to_pylist()
    return found


def files_by_partition(table: tl.Table) -> dict[str, int]:
    found = table.inspect.partitions()
    return dict(zip(found.column("partition").to_pylist(), found.column("file_count").to_pylist(), strict=True))


def test_compact_takes_every_file_by_default(lake: tl.Lake, table: tl.Table) -> None:
    before = table.to_arrow(order_by=["dt", "id"])
    assert rows(lake, "compact", table="db.t") == DONE
    assert files_by_partition(table) == {"dt=mon": 2, "dt=tue": 2}
    assert table.to_arrow(order_by=["dt", "id"]).equals(before)


def test_compact_keeps_to_partitions_buckets_and_conditions(lake: tl.Lake, table: tl.Table) -> None:
    many = files_by_partition(table)["dt=mon"]
    assert rows(lake, "compact", "db.t", "dt=mon") == DONE
    assert files_by_partition(table) == {"dt=mon": 2, "dt=tue": many}
    assert rows(lake, "compact", table="db.t", where="dt = 'tue'", buckets="0") == DONE
    assert 2 < files_by_partition(table)["dt=tue"] < many
    assert rows(lake, "compact", table="db.t", partitions=[{"dt": "tue"}], partition_idle_time="30 d") == DONE
    assert files_by_partition(table)["dt=tue"] > 2
    assert rows(lake, "compact", table="db.t", partitions="dt=tue;dt=__DEFAULT_PARTITION__") == DONE
    assert files_by_partition(table)["dt=tue"] == 2


def test_a_minor_compaction_takes_what_is_due(lake: tl.Lake, table: tl.Table) -> None:
    before = files_by_partition(table)
    assert rows(lake, "compact", table="db.t", compact_strategy="minor") == DONE
    assert files_by_partition(table) == before
    options = "num-sorted-run.compaction-trigger=2"
    assert rows(lake, "compact", table="db.t", compact_strategy="minor", options=options) == DONE
    assert files_by_partition(table) != before


@pytest.mark.parametrize("given", [{"order_strategy": "zorder"}, {"order_by": "v"}])
def test_compact_refuses_to_order_rows(lake: tl.Lake, table: tl.Table, given: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="not supported") as caught:
        lake.call("compact", table="db.t", **given)
    assert caught.value.facts["argument"] in given
    assert rows(lake, "compact", table="db.t", order_strategy="none") == DONE


def test_partitions_are_chosen_once(lake: tl.Lake, table: tl.Table) -> None:
    for name in ("compact", "rescale"):
        with pytest.raises(InvalidInputError, match="chosen twice"):
            lake.call(name, table="db.t", partitions="dt=mon", where="dt = 'mon'")
        with pytest.raises(InvalidInputError) as caught:
            lake.call(name, table="db.t", partitions="v=1")
        assert (caught.value.facts["column"], caught.value.facts["procedure"]) == ("v", name)


def test_compact_manifest_merges_all_manifests(lake: tl.Lake, table: tl.Table) -> None:
    before = table.inspect.manifests().num_rows
    assert rows(lake, "compact_manifest", table="db.t") == DONE
    assert table.inspect.manifests().num_rows < before


def test_compact_manifest_sorts_as_the_arguments_say_and_can_be_tried_first(lake: tl.Lake, table: tl.Table) -> None:
    # Explicit arguments count more than options, also than one that names a column that does not exist.
    given = {"options": "manifest-sort.partition-field=missing", "manifest_sort_max_rewrite_size": "1 gb"}
    given |= {"manifest_sort_enabled": "true", "manifest_sort_partition_field": "dt"}
    assert rows(lake, "compact_manifest", table="db.t", dry_run=True, **given) == DONE
    assert table.latest_snapshot().id == 3
    assert rows(lake, "compact_manifest", table="db.t", **given) == DONE
    assert table.latest_snapshot().id == 4
    assert rows(lake, "compact_manifest", table="db.t", **given) == DONE
    assert table.latest_snapshot().id == 4
    for wrong in ({"manifest_sort_partition_field": "v"}, {"manifest_sort_max_rewrite_size": "many"}):
        with pytest.raises(InvalidInputError):
            lake.call("compact_manifest", table="db.t", **{**given, **wrong})


def test_deletion_vectors_are_materialized_in_chosen_partitions(lake: tl.Lake) -> None:
    columns, options = {"id": "INT", "dt": "STRING"}, {"deletion-vectors.enabled": True}
    made = lake.create_table("db.marked", columns, partition_by=["dt"], options=options)
    made.write([{"id": n, "dt": dt} for n in range(4) for dt in ("mon", "tue")])
    made.delete("id = 1")
    assert rows(lake, "materialize_deletion_vectors", "db.marked", "dt=mon") == DONE
    assert made.inspect.files().num_rows == 2
    assert made.materialize_deletion_vectors(plan_only=True).files == 1
    assert rows(lake, "materialize_deletion_vectors", table="db.marked", where="dt = 'tue'") == DONE
    assert made.materialize_deletion_vectors(plan_only=True).files == 0
    assert sorted(made.to_arrow().column("id").to_pylist()) == [0, 0, 2, 2, 3, 3]


def test_a_purged_table_is_empty(lake: tl.Lake, table: tl.Table) -> None:
    lake.call("create_tag", table="db.t", tag="a")
    assert rows(lake, "purge_files", "db.t") == DONE
    assert (table.count(), table.tags(), table.store.snapshots.ids()) == (0, {}, [4])


def test_missing_files_are_listed_and_dropped(lake: tl.Lake, table: tl.Table) -> None:
    lost = table.scan().splits()[0]
    path = f"{lost.bucket_path}/{lost.files[0].file_name}"
    table.store.env.io.delete(path)
    found = [{"fileName": f"{table.location}/{path}"}]
    assert rows(lake, "remove_unexisting_files", table="db.t", dry_run=True, parallelism=4) == found
    assert rows(lake, "remove_unexisting_files", "db.t") == found
    assert rows(lake, "remove_unexisting_files", "db.t") == []


def test_a_table_is_copied_by_partition(lake: tl.Lake, table: tl.Table) -> None:
    assert rows(lake, "copy", "db.t", "db.copy", "dt = 'mon'") == DONE
    assert lake.table("db.copy").count() == 4
    assert rows(lake, "copy", source_table="db.t", target_table="new.copy") == DONE
    assert lake.table("new.copy").to_arrow(order_by=["dt", "id"]) == table.to_arrow(order_by=["dt", "id"])


def test_hints_are_repaired_where_they_are_wrong(lake: tl.Lake, table: tl.Table) -> None:
    for given in ((), ("db",), ("db.t",)):
        table.store.env.io.overwrite("snapshot/LATEST", b"1")
        assert rows(lake, "repair", *given) == DONE
        assert table.store.env.io.read("snapshot/LATEST") == b"3"


def test_compact_database_takes_the_tables_that_match(lake: tl.Lake, table: tl.Table) -> None:
    lake.create_table("db.u", {"id": "INT"}).write([{"id": 1}])
    lake.table("db.u").write([{"id": 2}])
    assert rows(lake, "compact_database", "d.", "db[.].", "db[.]t", "sink.parallelism=2") == DONE
    assert (lake.table("db.u").files().num_rows, lake.table("db.t").latest_snapshot().id) == (1, 3)
    assert rows(lake, "compact_database", including_tables=".*") == DONE
    assert files_by_partition(table) == {"dt=mon": 2, "dt=tue": 2}
    lost = table.scan().splits()[0]
    table.write([{"id": 1, "dt": "mon", "v": 9}])
    table.store.env.io.delete(f"{lost.bucket_path}/{lost.files[0].file_name}")
    with pytest.raises(tl.TidelakeError) as caught:
        lake.call("compact_database")
    assert caught.value.facts["table"] == "db.t"


def test_rescale_changes_the_buckets_of_partitions(lake: tl.Lake, table: tl.Table) -> None:
    assert rows(lake, "rescale", "db.t", 3, "dt=mon") == DONE
    assert buckets(table) == {"dt=mon": 3, "dt=tue": 2}
    assert rows(lake, "rescale", table="db.t", bucket_num="3", where="dt = 'tue'") == DONE
    assert buckets(table) == {"dt=mon": 3, "dt=tue": 3}


def buckets(table: tl.Table) -> dict[str, int]:
    found = table.inspect.partitions()
    return dict(zip(found.column("partition").to_pylist(), found.column("total_buckets").to_pylist(), strict=True))


def test_expire_snapshots_counts_what_went(lake: tl.Lake, table: tl.Table) -> None:
    assert rows(lake, "expire_snapshots", table="db.t") == [{"deleted_snapshots_count": 0}]
    given = {"retain_min": 1, "older_than": "1 h", "max_deletes": "1"}
    assert rows(lake, "expire_snapshots", table="db.t", **given) == [{"deleted_snapshots_count": 1}]
    assert table.store.snapshots.ids() == [2, 3]
    options = "snapshot.num-retained.min=1,snapshot.num-retained.max=1,snapshot.time-retained=1 h"
    assert rows(lake, "expire_snapshots", table="db.t", options=options) == [{"deleted_snapshots_count": 1}]
    assert table.store.snapshots.ids() == [3]


def test_tags_are_made_renamed_expired_and_deleted(lake: tl.Lake, table: tl.Table, clock: FakeClock) -> None:
    assert rows(lake, "create_tag", table="db.t", tag="a", snapshot=1) == DONE
    assert rows(lake, "create_tag", "db.t", "b") == DONE
    assert rows(lake, "create_tag", "db.t", "short", 2, "1 h") == DONE
    assert rows(lake, "rename_tag", table="db.t", tag="b", target_tag="c") == DONE
    assert table.tags() == {"a": 1, "c": 3, "short": 2}
    clock.advance(2 * 3600)
    assert rows(lake, "expire_tags", table="db.t") == [{"expired_tags": "short"}]
    assert rows(lake, "expire_tags", table="db.t") == []
    with pytest.raises(NotFoundError) as caught:
        lake.call("delete_tag", table="db.t", tag="a,gone")
    assert caught.value.facts["procedure"] == "delete_tag"
    assert table.tags() == {"a": 1, "c": 3}
    assert rows(lake, "delete_tag", table="db.t", tag="a, c") == DONE
    assert table.tags() == {}


def test_tags_are_replaced_and_made_of_a_time(lake: tl.Lake, table: tl.Table) -> None:
    second = table.snapshot(2)
    found = {"tagName": "then", "snapshot": 2, "commit_time": second.time_ms, "watermark": None}
    assert rows(lake, "create_tag_from_timestamp", "db.t", "then", second.time_ms, "1 d") == [found]
    assert table.inspect.tags().column("time_retained").to_pylist() == ["PT24H"]
    with pytest.raises(InvalidInputError, match="time is not given"):
        lake.call("create_tag_from_timestamp", table="db.t", tag="now")
    assert rows(lake, "replace_tag", table="db.t", tag="then") == DONE
    assert table.tags() == {"then": 3}
    assert rows(lake, "replace_tag", "db.t", "then", 1, "2 h") == DONE
    assert table.tags() == {"then": 1}
    assert table.inspect.tags().column("time_retained").to_pylist() == ["PT2H"]


def test_automatic_tags_are_triggered(lake: tl.Lake, table: tl.Table, clock: FakeClock) -> None:
    assert rows(lake, "trigger_tag_automatic_creation", table="db.t") == DONE
    assert table.tags() == {}
    table.alter(set_options={"tag.automatic-creation": "process-time", "tag.default-time-retained": "1 h"})
    assert rows(lake, "trigger_tag_automatic_creation", "db.t") == DONE
    assert sorted(table.tags().values()) == [1, 2, 3]
    clock.advance(2 * 3600)
    assert rows(lake, "trigger_tag_automatic_creation", table="db.t") == DONE
    assert table.tags() == {}


def test_a_rollback_names_the_snapshots_before_and_after(lake: tl.Lake, table: tl.Table) -> None:
    lake.call("create_tag", table="db.t", tag="two", snapshot=2)
    lake.call("create_tag", table="db.t", tag="one", snapshot=1)
    back = {"previous_snapshot_id": 3, "current_snapshot_id": 3}
    assert rows(lake, "rollback", table="db.t", version="3") == [back]
    assert rows(lake, "rollback", table="db.t", tag="two") == [{**back, "current_snapshot_id": 2}]
    assert rows(lake, "rollback", "db.t", "one") == [{"previous_snapshot_id": 2, "current_snapshot_id": 1}]
    table.write([{"id": 1, "dt": "mon", "v": 9}])
    assert rows(lake, "rollback", table="db.t", snapshot="1") == [{"previous_snapshot_id": 2, "current_snapshot_id": 1}]
    for given in ({}, {"version": "1", "snapshot": 1}):
        with pytest.raises(InvalidInputError, match="exactly one target"):
            lake.call("rollback", table="db.t", **given)


@pytest.mark.parametrize("text", [True, False])
def test_a_rollback_to_a_time_finds_the_snapshot_of_then(lake: tl.Lake, table: tl.Table, text: bool) -> None:
    moment = START_MS + DAY_MS + 1_000
    given = str(moment) if text else moment
    result = rows(lake, "rollback_to_timestamp", table="db.t", timestamp=given)
    assert result == [{"previous_snapshot_id": 3, "current_snapshot_id": 2}]


def test_branches_are_made_moved_to_and_deleted(lake: tl.Lake, table: tl.Table) -> None:
    lake.call("create_tag", table="db.t", tag="two", snapshot=2)
    assert rows(lake, "create_branch", table="db.t", branch="b", tag="two") == DONE
    assert rows(lake, "create_branch", "db.t", "empty") == DONE
    assert rows(lake, "create_branch", table="db.t", branch="b", ignoreIfExists=True) == DONE
    with pytest.raises(InvalidInputError) as caught:
        lake.call("create_branch", table="db.t", branch="b")
    assert caught.value.code == "branch-exists"
    lake.table("db.t$branch_b").write([{"id": 1, "dt": "mon", "v": 9}])
    assert rows(lake, "fast_forward", table="db.t", branch="b") == DONE
    assert table.reload().to_arrow(where="v = 9").num_rows == 1
    with pytest.raises(NotFoundError):
        lake.call("delete_branch", table="db.t", branch="b,gone")
    assert table.branches() == ["b", "empty"]
    assert rows(lake, "delete_branch", table="db.t", branch="b,empty") == DONE
    assert table.branches() == []


def test_branches_are_renamed_and_merged(lake: tl.Lake) -> None:
    table = lake.create_table("db.a", {"id": "INT"})
    table.write([{"id": 1}])
    table.create_branch("old").write([{"id": 2}])
    assert rows(lake, "rename_branch", "db.a", "old", "new") == DONE
    assert table.branches() == ["new"]
    assert rows(lake, "merge_branch", table="db.a", source_branch="new") == DONE
    assert rows(lake, "merge_branch", "db.a", "new", "main") == DONE
    assert table.to_arrow().num_rows == 2
    assert rows(lake, "merge_branch", table="db.a", source_branch="main", target_branch="new") == DONE
    assert table.branch("new").to_arrow().num_rows == 2


def test_a_rollback_to_a_watermark_finds_the_newest_snapshot_below_it(lake: tl.Lake) -> None:
    table = lake.create_table("db.a", {"id": "INT"})
    job = table.new_commit("job")
    for number in (1, 2, 3):
        write = table.new_write("job")
        write.write(pa.table({"id": pa.array([number], pa.int32())}))
        job.commit(write.prepare_commit(number), identifier=number, watermark=number * 100)
        write.close()
    assert preview_call(lake, "rollback_to_watermark", ["db.a"], {"watermark": "250"}) is not None
    result = rows(lake, "rollback_to_watermark", table="db.a", watermark="250")
    assert result == [{"previous_snapshot_id": 3, "current_snapshot_id": 2}]
    with pytest.raises(NotFoundError):
        lake.call("rollback_to_watermark", "db.a", 99)


def test_the_oldest_snapshot_is_repaired(lake: tl.Lake, table: tl.Table) -> None:
    table.store.publisher.delete(2)
    columns = ("previous_earliest_snapshot_id", "current_earliest_snapshot_id")
    assert rows(lake, "repair_earliest_snapshot", table="db.t", snapshot_id=3) == [
        dict(zip(columns, (1, 3), strict=True))
    ]
    assert rows(lake, "repair_earliest_snapshot", "db.t", "3") == [dict(zip(columns, (3, 3), strict=True))]


def test_consumers_are_forgotten_by_regular_expressions(lake: tl.Lake, table: tl.Table) -> None:
    for name in ("a1", "a2", "b1"):
        table.reset_consumer(name, 1)
    assert rows(lake, "clear_consumers", table="db.t", includingConsumers="a.*", excludingConsumers=".*2") == DONE
    assert sorted(table.consumers()) == ["a2", "b1"]
    assert rows(lake, "clear_consumers", "db.t") == DONE
    assert table.consumers() == {}


def test_a_consumer_is_set_and_forgotten(lake: tl.Lake, table: tl.Table) -> None:
    with pytest.raises(NotFoundError, match="snapshot does not exist"):
        lake.call("reset_consumer", "db.t", "c", 99)
    assert rows(lake, "reset_consumer", table="db.t", consumerId="c", nextSnapshotId=2) == DONE
    assert table.consumers() == {"c": 2}
    assert rows(lake, "reset_consumer", "db.t", "c") == DONE
    assert table.consumers() == {}


def test_orphans_are_counted_and_deleted_in_a_table_or_a_database(
    lake: tl.Lake, table: tl.Table, clock: FakeClock
) -> None:
    other = lake.create_table("db.u", {"id": "INT"})
    other.write([{"id": 1}])
    for each in (table, other):
        each.store.env.io.write("manifest/manifest-nothing", b"12345")
    clock.advance(3 * 24 * 3600)
    one = [{"deletedFileCount": 1, "deletedFileTotalLenInBytes": 5}]
    both = [{"deletedFileCount": 2, "deletedFileTotalLenInBytes": 10}]
    assert rows(lake, "remove_orphan_files", table="db.*", dry_run=True) == both
    assert rows(lake, "remove_orphan_files", table="db.u", older_than="2 d", parallelism=4, mode="local") == one
    assert rows(lake, "remove_orphan_files", table="db.*") == one
    assert rows(lake, "remove_orphan_files", table="db.*")[0]["deletedFileCount"] == 0
    with pytest.raises(UnsupportedError):
        lake.call("remove_orphan_files", table="db.*", mode="distributed")
    with pytest.raises(InvalidInputError, match="a day old"):
        lake.call("remove_orphan_files", table="db.t", older_than="1 h")


CALLS: dict[str, dict[str, object]] = {
    "compact": {},
    "compact_manifest": {},
    "materialize_deletion_vectors": {},
    "purge_files": {},
    "remove_unexisting_files": {},
    "rescale": {"bucket_num": 3},
    "expire_snapshots": {"retain_min": 1, "older_than": "1 h"},
    "expire_tags": {"older_than": "1 h"},
    "expire_partitions": {"expiration_time": "1 h", "expire_strategy": "update-time"},
    "delete_tag": {"tag": "two"},
    "replace_tag": {"tag": "two"},
    "trigger_tag_automatic_creation": {},
    "rollback": {"snapshot": 1},
    "rollback_to_timestamp": {"timestamp": START_MS + 1_000},
    "rollback_to_watermark": {"watermark": 7},
    "clear_consumers": {"excludingConsumers": "x"},
    "delete_branch": {"branch": "b"},
    "fast_forward": {"branch": "b"},
    "remove_orphan_files": {},
}


@pytest.mark.parametrize("name", CALLS)
def test_a_preview_says_what_would_go_and_changes_nothing(lake: tl.Lake, table: tl.Table, name: str) -> None:
    lake.call("create_tag", table="db.t", tag="two", snapshot=2)
    lake.call("create_tag", table="db.t", tag="short", snapshot=2, time_retained="1 h")
    lake.call("create_branch", table="db.t", branch="b", tag="two")
    table.store.env.io.write("manifest/manifest-nothing", b"12345")
    marked = snapshot_to_json(replace(table.snapshot(1), watermark=5))
    table.store.env.io.overwrite("snapshot/snapshot-1", marked)
    if name == "clear_consumers":
        table.reset_consumer("c", 1)
    table.store.env.clock.advance(3 * 24 * 3600)  # type: ignore[attr-defined]
    before = (table.store.snapshots.ids(), table.tags(), table.branches(), table.files().num_rows)
    preview = preview_call(lake, name, ["db.t"], CALLS[name])
    assert preview is not None
    # No row of the table is deleted by a vector, and no file is missing.
    assert preview.is_empty == (name in ("materialize_deletion_vectors", "remove_unexisting_files"))
    assert "db.t" in preview.text
    assert (table.store.snapshots.ids(), table.tags(), table.branches(), table.files().num_rows) == before


OF_SEVERAL_TABLES = {"copy": ["db.t", "db.copy"], "repair": ["db"], "compact_database": ["db"]}


@pytest.mark.parametrize("name", OF_SEVERAL_TABLES)
def test_a_preview_of_several_tables_names_them_and_changes_nothing(lake: tl.Lake, table: tl.Table, name: str) -> None:
    table.store.env.io.overwrite("snapshot/LATEST", b"1")
    preview = preview_call(lake, name, OF_SEVERAL_TABLES[name])
    assert preview is not None
    assert "db.t" in preview.text
    assert (table.store.env.io.read("snapshot/LATEST"), lake.tables("db")) == (b"1", ["t"])
    assert table.store.snapshots.ids() == [1, 2, 3]


def test_what_deletes_or_rewrites_has_a_preview() -> None:
    previewed = {each.name for each in PROCEDURES.values() if each.preview is not None}
    assert previewed == {*CALLS, *OF_SEVERAL_TABLES}


def test_procedures_are_listed_with_their_arguments(lake: tl.Lake) -> None:
    listed = lake.procedures()
    assert listed.column_names == ["name", "arguments", "result_columns", "description"]
    row = next(each for each in listed.to_pylist() if each["name"] == "rollback")
    assert row["arguments"] == "table, [version], [snapshot], [tag]"
    assert row["result_columns"] == "previous_snapshot_id, current_snapshot_id"


REFUSED = [each.name for each in PROCEDURES.values() if each.refusal]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_name_whatever_the_arguments(lake: tl.Lake, name: str) -> None:
    for call in (lambda: lake.call(f"sys.{name.upper()}", wrong=1), lambda: preview_call(lake, name, ["db.t"])):
        with pytest.raises(UnsupportedError, match="procedure is not supported") as caught:
            call()
        assert caught.value.code == "procedure-unsupported"
        assert caught.value.facts["procedure"] == name
        assert caught.value.facts["reason"] == PROCEDURES[name].refusal
    row = next(each for each in lake.procedures().to_pylist() if each["name"] == name)
    assert row["description"].startswith("Not supported: ")


@pytest.mark.parametrize("name", [each for each in PROCEDURES if each not in {*REFUSED, "compact_database"}])
def test_a_procedure_refuses_a_view_and_a_missing_table(lake: tl.Lake, table: tl.Table, name: str) -> None:
    given: dict[str, tuple[object, ...]] = {
        "create_tag": ("x",),
        "rename_tag": ("x", "y"),
        "create_branch": ("x",),
        "rename_branch": ("x", "y"),
        "merge_branch": ("x",),
        "repair_earliest_snapshot": (3,),
        "reset_consumer": ("c", "1"),
        "create_tag_from_timestamp": ("x", START_MS),
        "mark_partition_done": ("dt=mon",),
    }
    given["copy"] = ("db.copy",)
    arguments = dict(CALLS.get(name, {}))
    with pytest.raises(NotFoundError) as caught:
        lake.call(name, "db.gone", *given.get(name, ()), **arguments)
    assert caught.value.code == "table-not-found"
    with pytest.raises(tl.TidelakeError):
        lake.call(name, "db.t$ro", *given.get(name, ()), **arguments)
    assert table.store.snapshots.ids() == [1, 2, 3]


def test_expired_partitions_are_named_as_paimon_names_them(lake: tl.Lake, clock: FakeClock) -> None:
    made = lake.create_table("db.e", {"id": "INT", "dt": "STRING", "h": "INT"}, partition_by=["dt", "h"])
    made.write([{"id": 1, "dt": "19691201", "h": 7}, {"id": 2, "dt": "19691202", "h": 8}])
    call = {"table": "db.e", "expiration_time": "30 d", "timestamp_formatter": "yyyyMMdd"}
    assert rows(lake, "expire_partitions", **call, max_expires=1) == [{"expired_partitions": "dt=19691201, h=7"}]
    options = "partition.expiration-time=30 d,partition.timestamp-formatter=yyyyMMdd"
    by_position = ("db.e", None, "yyyyMMddHH", "$dt0$h", "values-time", None, options)
    assert rows(lake, "expire_partitions", *by_position) == [{"expired_partitions": "dt=19691202, h=8"}]
    assert rows(lake, "expire_partitions", **call) == [{"expired_partitions": "No expired partitions."}]
    with pytest.raises(UnsupportedError):
        lake.call("expire_partitions", **call, expire_strategy="custom")


def test_partitions_are_marked_done(lake: tl.Lake, table: tl.Table) -> None:
    assert rows(lake, "mark_partition_done", "db.t", "dt=mon; dt=tue") == DONE
    assert [table.store.env.io.exists(f"dt={day}/_SUCCESS") for day in ("mon", "tue")] == [True, True]
    with pytest.raises(NotFoundError):
        lake.call("mark_partition_done", table="db.t", partitions="dt=wed")
    assert not table.store.env.io.exists("dt=wed/_SUCCESS")
