"""Append tables with deletion vectors: what deletes, updates and compactions leave, and what races do not lose."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, FormatError
from tidelake.index.vector_codec import bitmap_of
from tidelake.io.cache import Cache
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.deletion_vectors import deleted_counts, snapshot_vectors
from tidelake.ops.vectors.vector_writer import write_index_files
from tidelake.spec.manifests.index_manifest import IndexEntry, encode_index_manifest
from tidelake.store.deletion_vectors import VectorOptions
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

BUCKETS = {"bucket": "2", "bucket-key": "id"}
LAYOUTS = [{}, BUCKETS, {"index-file-in-data-file-dir": "true", **BUCKETS}]


def new_table(options: dict[str, str] | None = None, *, partitioned: bool = False) -> Table:
    env = Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1), cache=Cache(1 << 20))
    given = {"deletion-vectors.enabled": "true", **(options or {})}
    columns = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}
    return Lake(FileSystemCatalog(env)).create_table(
        "d.t", columns, partition_by=["dt"] if partitioned else [], options=given
    )


def data(*ids: int) -> list[dict[str, Any]]:
    return [{"id": each, "dt": f"d{each % 2}", "v": str(each)} for each in ids]


def ids(table: Table, **how: Any) -> list[int]:
    return sorted(table.to_arrow(**how).column("id").to_pylist())


def index_files(table: Table) -> list[IndexEntry]:
    snapshot = table.latest_snapshot()
    name = None if snapshot is None else snapshot.index_manifest
    return [] if name is None else list(table.store.manifests.read_index(name))


def marked(table: Table) -> dict[str, int | None]:
    """Deleted rows of each data file that has a vector."""
    return {v.data_file: v.cardinality for entry in index_files(table) for v in entry.file.deletion_vectors or ()}


def sound(table: Table) -> None:
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert not report.orphans


# ------------------------------------------------------------------------------------------------ deleting


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_delete_marks_rows_and_leaves_files_alone(layout: dict[str, str], partitioned: bool) -> None:
    table = new_table(layout, partitioned=partitioned)
    table.write(data(*range(10)))
    before = table.files()
    result = table.delete("id in (2, 3, 8)")
    assert result.rows == 3
    assert ids(table) == [0, 1, 4, 5, 6, 7, 9]
    assert table.count() == 7
    assert table.files().sort_by("file_name") == before.sort_by("file_name")
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    assert table.latest_snapshot().operation == "DELETE"
    assert ids(table.at(snapshot=1)) == list(range(10))
    assert sum(filter(None, marked(table).values())) == 3
    beside = {"bucket-" in each.path for each in _stored_index(table)}
    assert beside == {"index-file-in-data-file-dir" in layout}
    sound(table)


def _stored_index(table: Table) -> list[Any]:
    """The index files in storage, whoever knows of them."""
    io, found, folders = table.store.env.io, [], [""]
    while folders:
        for each in io.list(folders.pop()):
            folders += [each.path] if each.is_dir and each.name != "manifest" else []
            found += [each] if not each.is_dir and each.name.startswith("index-") else []
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_marks_add_up_and_nothing_is_marked_twice(layout: dict[str, str]) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    assert table.delete("id < 3").rows == 3
    assert table.delete("id < 5").rows == 2
    assert table.delete("id < 5").rows == 0
    assert table.latest_snapshot().id == 3
    assert ids(table) == [5, 6, 7, 8, 9]
    assert sum(filter(None, marked(table).values())) == 5
    sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_without_a_row_left_goes_with_its_vector(layout: dict[str, str]) -> None:
    table = new_table(layout)
    table.write(data(0, 1, 2, 3))
    table.write(data(10, 11, 12, 13))
    table.delete("id in (0, 11)")
    table.delete("id < 10")
    assert ids(table) == [10, 12, 13]
    live = set(table.files().column("file_name").to_pylist())
    assert set(marked(table)) < live | {""}
    assert table.latest_snapshot().total_record_count == 4
    table.delete("id > 0")
    assert table.count() == 0
    assert table.files().num_rows == 0
    assert index_files(table) == []
    sound(table)


def test_only_index_files_with_a_change_are_written_anew() -> None:
    table = new_table({"deletion-vector.index-file.target-size": "1 b"})
    for first in (0, 10, 20):
        table.write(data(*range(first, first + 5)))
    table.delete("id % 10 = 0")
    before = {each.file.file_name for each in index_files(table)}
    assert len(before) == 3
    table.delete("id = 11")
    after = {each.file.file_name for each in index_files(table)}
    assert len(after) == 3
    assert len(after & before) == 2
    assert sorted(filter(None, marked(table).values())) == [1, 1, 2]
    assert ids(table) == [1, 2, 3, 4, 12, 13, 14, 21, 22, 23, 24]


def test_without_rolling_all_new_marks_of_a_partition_come_into_one_file() -> None:
    table = new_table(partitioned=True)
    for first in (0, 10, 20):
        table.write(data(*range(first, first + 4)))
    table.delete("id % 10 < 2")
    assert len(index_files(table)) == 2
    assert len(marked(table)) == 6


def test_a_condition_that_matches_nothing_commits_nothing() -> None:
    table = new_table()
    table.write(data(1, 2))
    assert table.delete("id = 7").snapshot_ids == ()
    assert table.update({"v": "'x'"}, "id = 7").snapshot_ids == ()
    assert table.latest_snapshot().id == 1
    assert new_table().delete("id = 7").snapshot_ids == ()


# ------------------------------------------------------------------------------------------------ updating


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_an_update_marks_the_old_rows_and_adds_new_ones_in_one_snapshot(
    layout: dict[str, str], partitioned: bool
) -> None:
    table = new_table(layout, partitioned=partitioned)
    table.write(data(*range(6)))
    result = table.update({"v": "concat(v, '!')", "dt": "'d9'", "id": "id + 100"}, "id >= 4")
    assert result.rows == 2
    assert table.latest_snapshot().id == 2
    found = sorted((row["id"], row["dt"], row["v"]) for row in table.to_arrow().to_pylist())
    assert found == [*((n, f"d{n % 2}", str(n)) for n in range(4)), (104, "d9", "4!"), (105, "d9", "5!")]
    assert ids(table.at(snapshot=1)) == list(range(6))
    sound(table)


def test_an_update_that_fails_leaves_nothing_behind() -> None:
    table = new_table()
    table.write(data(1, 2))
    with pytest.raises(tl.TidelakeError):
        table.update({"id": "null"}, "id = 1")
    assert ids(table) == [1, 2]
    sound(table)


# ------------------------------------------------------------------------------------------------ reading


def test_limits_counts_and_first_rows_do_not_count_deleted_rows() -> None:
    table = new_table()
    for first in range(0, 50, 10):
        table.write(data(*range(first, first + 10)))
    table.delete("id % 10 <> 9 and id < 40")
    assert table.to_arrow(limit=3).num_rows == 3
    assert len(table.scan(limit=3).splits()[0].files) == 3
    assert table.scan(order_by="id", limit=3).to_arrow().column("id").to_pylist() == [9, 19, 29]
    assert table.scan(order_by="id desc", limit=11).to_arrow().column("id").to_pylist() == [*range(49, 39, -1), 39]
    assert table.count("id < 30") == 3
    assert table.scan(limit=2).count() == 2


def test_an_unknown_number_of_deletions_is_looked_up() -> None:
    table = new_table()
    table.write(data(*range(10)))
    table.delete("id in (1, 2)")
    _rewrite_index(table, lambda each: replace(each, cardinality=None))
    assert table.count() == 8
    assert table.to_arrow(limit=8).num_rows == 8
    vectors = snapshot_vectors(table.store.manifests, table.latest_snapshot())
    assert deleted_counts(table.files(), vectors).tolist() == [10]
    table.compact()
    assert ids(table) == [0, 3, 4, 5, 6, 7, 8, 9]


def _rewrite_index(table: Table, change: Any) -> None:
    """Change the ranges of every vector of the newest index manifest in place."""
    entries = [
        replace(each, file=replace(each.file, deletion_vectors=tuple(map(change, each.file.deletion_vectors or ()))))
        for each in index_files(table)
    ]
    name = table.latest_snapshot().index_manifest
    table.store.env.io.overwrite(f"manifest/{name}", encode_index_manifest(entries))
    cache = table.store.env.cache
    if cache is not None:
        cache._kept.clear()


def test_splits_carry_the_vectors_of_their_files_and_travel() -> None:
    table = new_table()
    table.write(data(*range(5)))
    table.write(data(*range(10, 15)))
    table.delete("id in (0, 1)")
    (split,) = table.scan().splits()
    again = pickle.loads(pickle.dumps(split))
    assert again == split
    assert [split.with_files((file,)).live_row_count for file in split.files] == [3, 5]
    assert sum(len(split.with_files((file,)).vectors) for file in split.files) == 1
    request = ReadRequest(schema=table.schema, columns=("id",))
    found = [n for batch in read_splits(table.store, [again], request) for n in batch.column("id").to_pylist()]
    assert sorted(found) == [2, 3, 4, *range(10, 15)]


def test_row_groups_that_are_passed_over_do_not_shift_positions() -> None:
    table = new_table({"parquet.block.size": "4096"})
    numbers = np.arange(40_000, dtype=np.int32)
    table.write(pa.table({"id": numbers, "dt": pa.nulls(40_000, pa.string()), "v": numbers.astype(str)}))
    table.delete("id % 1000 = 7")
    assert ids(table, where="id > 20000 and id < 22010") == [n for n in range(20_001, 22_010) if n % 1000 != 7]
    assert ids(table, where="id in (7, 8, 39007, 39008)") == [8, 39008]
    assert table.count() == 40_000 - 40


def test_lost_and_damaged_vectors_are_errors_and_never_rows() -> None:
    table = new_table()
    table.write(data(*range(5)))
    table.delete("id = 1")
    (entry,) = index_files(table)
    path = f"index/{entry.file.file_name}"
    whole = table.store.env.io.read(path)
    plain = _without_cache(table)
    for place in range(1, len(whole)):
        plain.store.env.io.overwrite(path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FormatError):
            plain.to_arrow()
    plain.store.env.io.delete(path)
    with pytest.raises(FormatError, match="missing"):
        plain.to_arrow()
    assert plain.with_options({"scan.ignore-lost-files": "true"}).to_arrow().num_rows == 0
    assert any(each.invariant == "I2" for each in plain.check().errors)


def _without_cache(table: Table) -> Table:
    store = table.store
    env = replace(store.env, cache=None)
    return replace(table, store=replace(store, env=env, manifests=replace(store.manifests, cache=None)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda each: replace(each, data_file="gone"), "not live"),
        (lambda each: replace(each, cardinality=9), "number of deletions differs"),
        (lambda each: replace(each, offset=2), "deletion vector"),
        (lambda each: replace(each, length=9_999), "outside"),
    ],
)
def test_the_check_tells_of_vectors_that_do_not_fit(change: Any, words: str) -> None:
    table = _without_cache(new_table())
    table.write(data(*range(5)))
    table.delete("id = 1")
    sound(table)
    _rewrite_index(table, change)
    wrong = [each for each in table.check().errors if each.invariant == "I7"]
    assert wrong
    assert words in wrong[0].message


def test_two_vectors_for_one_file_are_refused_by_reads_and_told_by_the_check() -> None:
    table = _without_cache(new_table())
    table.write(data(*range(5)))
    table.delete("id = 1")
    (entry,) = index_files(table)
    twice = replace(entry, file=replace(entry.file, deletion_vectors=(entry.file.deletion_vectors or ()) * 2))
    name = table.latest_snapshot().index_manifest
    table.store.env.io.overwrite(f"manifest/{name}", encode_index_manifest([twice]))
    with pytest.raises(FormatError, match="two deletion vectors"):
        table.to_arrow()
    assert "I7" in {each.invariant for each in table.check().errors}


# ------------------------------------------------------------------------------------------------ races


def racing(table: Table, act: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let another job act once, just before the next commit of this one."""
    calls: list[int] = []
    commit = Committer.commit

    def late(self: Committer, *args: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            act()
        return commit(self, *args, **how)

    monkeypatch.setattr(Committer, "commit", late)
    return calls


@pytest.mark.parametrize("layout", [{}, BUCKETS, {"deletion-vector.index-file.target-size": "1 b"}])
@pytest.mark.parametrize("before", [False, True], ids=["first marks", "more marks"])
@pytest.mark.parametrize("other", ["same file", "other file", "same rows", "compact", "append", "overwrite"])
def test_a_delete_loses_nothing_to_another_job(
    layout: dict[str, str], before: bool, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    table.write(data(*range(20, 30)))
    if before:
        table.delete("id in (9, 29)")
    model = set(ids(table))
    rival = table.with_options({})
    acts = {
        "same file": (lambda: rival.delete("id in (3, 4)"), model - {3, 4}),
        "other file": (lambda: rival.delete("id in (23, 24)"), model - {23, 24}),
        "same rows": (lambda: rival.delete("id in (1, 2)"), model - {1, 2}),
        "compact": (lambda: rival.compact(full=True), model),
        "append": (lambda: rival.write(data(50)), model | {50}),
        "overwrite": (lambda: rival.write(data(1, 60), mode="overwrite"), {1, 60}),
    }
    act, left = acts[other]
    with monkeypatch.context() as patch:
        calls = racing(table, act, patch)
        result = table.delete("id in (1, 2)")
    assert ids(table) == sorted(left - {1, 2})
    assert result.rows == len(left & {1, 2})
    assert len(calls) >= 2
    sound(table)


@pytest.mark.parametrize("layout", [{}, BUCKETS])
@pytest.mark.parametrize("marks", [False, True], ids=["no marks", "marks"])
def test_a_compaction_brings_no_deleted_row_back(
    layout: dict[str, str], marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table({**layout, "compaction.min.file-num": "2"})
    table.write(data(*range(10)))
    table.write(data(*range(20, 30)))
    if marks:
        table.delete("id in (9, 29)")
    model = set(ids(table))
    rival = table.with_options({})
    with monkeypatch.context() as patch:
        racing(table, lambda: rival.delete("id in (3, 23)"), patch)
        table.compact(full=True)
    assert ids(table) == sorted(model - {3, 23})
    sound(table)


@pytest.mark.parametrize("layout", [{}, BUCKETS])
def test_an_update_writes_each_row_once_however_often_it_is_planned(
    layout: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    rival = table.with_options({})
    with monkeypatch.context() as patch:
        racing(table, lambda: rival.update({"v": "'theirs'"}, "id < 5"), patch)
        table.update({"v": "concat(v, '+')"}, "id < 6")
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {**dict.fromkeys(range(5), "theirs+"), 5: "5+", **{n: str(n) for n in range(6, 10)}}
    assert table.count() == 10
    sound(table)


def test_a_delete_gives_up_when_another_is_always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    table.write(data(*range(100)))
    rival = table.with_options({})
    monkeypatch.setattr("tidelake.ops.commit.replan._PLANS_MAX", 3)
    commit = Committer.commit
    busy: list[int] = []

    def late(self: Committer, *args: Any, **how: Any) -> Any:
        if not busy:
            busy.append(1)
            rival.delete(f"id = {table.latest_snapshot().id + 10}")
            busy.clear()
        return commit(self, *args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        with pytest.raises(CommitConflictError):
            table.delete("id = 1")
    assert 1 in ids(table)
    sound(table)


# ------------------------------------------------------------------------------------------------ compaction


def test_a_file_is_written_anew_when_much_of_it_is_deleted() -> None:
    table = new_table({"target-file-size": "1 b"})
    table.write(data(*range(10)))
    table.write(data(*range(20, 30)))
    table.delete("id in (0, 1, 20, 21, 22)")
    assert table.compact().files == 1
    assert sorted(filter(None, marked(table).values())) == [2]
    assert sorted(table.files().column("row_count").to_pylist()) == [7, 10]
    assert ids(table) == [*range(2, 10), *range(23, 30)]
    sound(table)
    table.with_options({"compaction.delete-ratio-threshold": "0.1"}).compact()
    assert index_files(table) == []
    assert ids(table) == [*range(2, 10), *range(23, 30)]
    sound(table)


def test_small_files_with_marks_are_joined_and_the_others_left() -> None:
    table = new_table()
    for first in range(0, 60, 10):
        table.write(data(*range(first, first + 10)))
    table.delete("id in (0, 10)")
    assert table.with_options({"compaction.min.file-num": "10"}).compact().files == 1
    assert sorted(table.files().column("row_count").to_pylist()) == [10, 10, 10, 10, 18]
    assert index_files(table) == []
    table.compact(full=True)
    assert table.files().column("row_count").to_pylist() == [58]
    sound(table)


def test_a_file_of_which_all_is_marked_is_compacted_to_nothing() -> None:
    """Another engine may leave such a file."""
    table = new_table()
    table.write(data(*range(5)))
    (split,) = table.scan().splits()
    update = write_index_files(
        table.store,
        table.paths,
        (),
        partition=split.partition,
        bucket=0,
        marked={split.files[0].file_name: bitmap_of(np.arange(5))},
        removed=(),
        options=VectorOptions(),
        rolled=True,
    )
    increment = DataIncrement(new_index_files=update.new)
    table.new_commit("u").commit([CommitMessage(partition=split.partition, bucket=0, total_buckets=-1, data=increment)])
    assert ids(table) == []
    assert table.count() == 0
    assert table.files().num_rows == 1
    table.compact()
    assert table.files().num_rows == 0
    assert index_files(table) == []
    sound(table)


@pytest.mark.parametrize("full", [False, True])
def test_a_compaction_of_buckets_keeps_the_order_of_rows(full: bool) -> None:
    table = new_table({"bucket": "1", "bucket-key": "id", "compaction.min.file-num": "3", "target-file-size": "1 b"})
    for first in (0, 10, 20, 30):
        table.write(data(*range(first, first + 5)))
    table.delete("id in (10, 11, 30)")
    table.compact(full=full)
    assert table.to_arrow().column("id").to_pylist() == [*range(5), 12, 13, 14, *range(20, 25), *range(31, 35)]
    sound(table)


# ------------------------------------------------------------------------------------------------ everything else


@pytest.mark.parametrize("layout", LAYOUTS)
def test_overwrites_and_dropped_partitions_take_vectors_along(layout: dict[str, str]) -> None:
    table = new_table(layout, partitioned=True)
    table.write(data(*range(10)))
    table.delete("id < 4")
    table.write(data(100), mode="overwrite", partition={"dt": "d0"})
    assert ids(table) == [5, 7, 9, 100]
    sound(table)
    table.delete("dt = 'd1'")
    assert ids(table) == [100]
    assert index_files(table) == []
    table.delete("id = 100")
    table.write(data(1, 2))
    table.delete("id = 1")
    table.truncate()
    assert index_files(table) == []
    sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_expiry_tags_branches_and_orphans_know_index_files(layout: dict[str, str]) -> None:
    table = new_table(layout)
    table.write(data(*range(10)))
    table.delete("id = 1")
    table.create_tag("kept")
    table.delete("id = 2")
    table.delete("id = 3")
    table.compact(full=True)
    table.expire_snapshots(older_than=10**15, retain_max=1, retain_min=1)
    sound(table)
    assert ids(table.at(tag="kept")) == [0, *range(2, 10)]
    assert ids(table) == [0, *range(4, 10)]
    table.delete_tag("kept")
    sound(table)
    assert _stored_index(table) == []


def test_the_index_files_are_listed() -> None:
    table = new_table(partitioned=True)
    assert table.inspect.table_indexes().num_rows == 0
    table.write(data(*range(10)))
    table.delete("id in (1, 3, 4)")
    rows = table.inspect.table_indexes().sort_by("partition").to_pylist()
    assert [(row["partition"], row["bucket"], row["index_type"], row["row_count"]) for row in rows] == [
        ("{d0}", 0, "DELETION_VECTORS", 1),
        ("{d1}", 0, "DELETION_VECTORS", 1),
    ]
    assert [row["dv_ranges"][0]["_CARDINALITY"] for row in rows] == [1, 2]
    assert table.at(snapshot=1).inspect.table_indexes().num_rows == 0


def test_a_table_that_stopped_marking_still_honours_its_marks() -> None:
    table = new_table({"deletion-vectors.modifiable": "true"})
    table.write(data(*range(10)))
    table.delete("id = 1")
    table = table.alter(set_options={"deletion-vectors.enabled": "false"})
    assert table.count() == 9
    table.delete("id = 2")
    assert ids(table) == [0, *range(3, 10)]
    table.compact(full=True)
    assert index_files(table) == []
    files = table.files().column("file_name").to_pylist()
    table.delete("id = 3")
    assert table.files().column("file_name").to_pylist() != files
    assert ids(table) == [0, *range(4, 10)]
    sound(table)
