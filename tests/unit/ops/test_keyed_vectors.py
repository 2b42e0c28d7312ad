"""Deletion vectors on primary-key tables: what compactions mark, what goes with rewritten files, who may publish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kit.changelogs import changelogs
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"k": "INT NOT NULL", "v": "INT", "w": "STRING"}
FEW_RUNS = {"num-sorted-run.compaction-trigger": "100", "num-levels": "6"}
BASE = [(k, k, "a" * 200) for k in range(1000)]


@pytest.fixture
def make() -> Callable[..., Table]:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))

    def table(**options: str) -> Table:
        given = {"bucket": "1", "deletion-vectors.enabled": "true", **FEW_RUNS, **options}
        return lake.create_table("d.t", COLUMNS, primary_key=["k"], options=given)

    return table


def put(table: Table, *rows: tuple[Any, ...], kind: str = "+I", **how: Any) -> None:
    table.write([dict(zip((*COLUMNS, "rowkind"), (*row, kind), strict=True)) for row in rows], **how)


def batch(table: Table, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    given = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(given, schema=table.schema.to_arrow())


def marks(table: Table) -> dict[int, int]:
    """How many rows are marked of the files of each level."""
    snapshot = table.latest_snapshot()
    vectors = snapshot_vectors(table.store.manifests, snapshot)
    if vectors is None:
        return {}
    levels = {row["file_name"]: row["level"] for row in table.files().to_pylist()}
    found: Counter[int] = Counter()
    for row in vectors.to_pylist():
        found[levels[row["data_file"]]] += row["cardinality"]
    return dict(found)


def shown(table: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("wide", ["false", "true"])
def test_what_a_compaction_supersedes_is_marked_where_it_lies(make, wide):
    table = make(**{"deletion-vectors.bitmap64": wide})
    put(table, *BASE)
    assert marks(table) == {}
    put(table, (5, -5, "b"), (7, -7, "b"), (5000, 1, "new"))
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    assert marks(table) == {5: 2}
    put(table, (7, -77, "c"))
    assert sorted(table.files().column("level").to_pylist()) == [3, 4, 5]
    assert marks(table) == {4: 1, 5: 2}
    put(table, *((k, -k, "d" * 200) for k in range(7, 40)))  # takes levels 3 and 4 along: their marks go
    assert sorted(table.files().column("level").to_pylist()) == [4, 5]
    assert marks(table) == {5: 34}
    assert shown(table) == {**{k: k for k in range(1000)}, 5: -5, **{k: -k for k in range(7, 40)}, 5000: 1}
    assert table.scan().count() == 1001
    assert table.check(deep=True).ok


def test_a_deletion_marks_the_row_and_is_not_kept(make):
    table = make()
    put(table, *BASE)
    put(table, (3, 3, "a"), kind="-D")
    assert marks(table) == {5: 1}
    assert sum(row["delete_row_count"] or 0 for row in table.files().to_pylist()) == 0
    assert 3 not in shown(table)
    put(table, (3, 33, "back"))
    assert shown(table)[3] == 33
    assert table.check(deep=True).ok


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"merge-engine": "partial-update"}, (5, "b")),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, (15, "b")),
        ({"sequence.field": "v"}, (10, "a" * 200)),
    ],
)
def test_engines_fold_in_the_row_that_they_mark(make, options, expected):
    table = make(**options)
    put(table, *[(k, 10, "a" * 200) for k in range(1000)])
    put(table, (1, 5, "b"))
    assert marks(table) == {5: 1}
    rows = {row["k"]: (row["v"], row["w"]) for row in table.to_arrow().to_pylist()}
    assert rows[1] == expected
    assert len(rows) == 1000


def test_a_full_compaction_leaves_no_vectors(make):
    table = make()
    put(table, *BASE)
    put(table, (5, -5, "b"))
    before = shown(table)
    table.compact(full=True)
    assert marks(table) == {}
    assert index_files_of(table.store, table.latest_snapshot()) == {}
    assert shown(table) == before
    assert table.check(deep=True).ok


def test_a_full_compaction_rewrites_files_of_the_lowest_level_for_their_vectors_alone(make):
    table = make()
    put(table, *BASE)
    put(table, (3, 3, "a"), kind="-D")
    assert table.files().column("level").to_pylist() == [5]
    table.compact(full=True)
    assert table.files().column("row_count").to_pylist() == [999]
    assert marks(table) == {}


def test_a_bucket_has_one_index_file_and_replaces_it(make):
    table = make()
    put(table, *BASE)
    names = set()
    for k in range(4):
        put(table, (k * 100, -1, "b"))
        ((place, files),) = index_files_of(table.store, table.latest_snapshot()).items()
        assert len(files) == 1, place
        names.add(files[0].file_name)
    assert len(names) == 4
    assert marks(table)[5] == 4


def test_rows_wait_for_their_compaction_unless_reads_merge(make):
    table = make(**{"write-only": "true"})
    put(table, *BASE)
    assert shown(table) == {}
    table.compact()
    put(table, (1, -1, "b"))
    assert shown(table)[1] == 1
    assert shown(table.with_options({"deletion-vectors.merge-on-read": "true"}))[1] == -1
    table.compact()
    assert shown(table)[1] == -1
    assert shown(table.with_options({"deletion-vectors.merge-on-read": "true"}))[1] == -1
    assert marks(table) == {5: 1}


def test_changes_are_told_beside_the_marks(make):
    table = make(**{"changelog-producer": "lookup"})
    put(table, *BASE[:200])
    put(table, (5, -5, "b"), (7000, 1, "new"))
    put(table, (5, -5, "b"), kind="-D")
    told = list(changelogs(table).values())
    assert told[1:] == [
        [("-U", 5, 5, "a" * 200), ("+U", 5, -5, "b"), ("+I", 7000, 1, "new")],
        [("-D", 5, -5, "b")],
    ]


def test_compactions_of_one_commit_build_on_the_vectors_of_each_other(make):
    table = make()
    put(table, *BASE)
    writer = table.new_write("u")
    (partition,) = set(table.files().column("partition").to_pylist())
    for k in range(3):
        writer.write(batch(table, (k * 10, -1, "b")))
        writer.compact(partition, 0)
    (message,) = writer.prepare_commit(1)
    assert len(message.compact.new_index_files) == 1
    assert message.compact.deleted_index_files == ()
    table.new_commit("u").commit([message], identifier=1)
    assert marks(table)[5] == 3
    assert [shown(table)[k] for k in (0, 10, 20)] == [-1, -1, -1]
    report = table.check(deep=True)
    assert report.ok
    assert not report.orphans, report.orphans


def test_marks_made_on_old_vectors_are_not_published_over_newer_ones(make):
    table = make()
    put(table, *BASE)
    slow, fast = table.new_write("slow"), table.new_write("fast")
    slow.write(batch(table, (1, -1, "slow")))
    fast.write(batch(table, (2, -2, "fast")))
    waiting = slow.prepare_commit(1)
    table.new_commit("fast").commit(fast.prepare_commit(1), identifier=1)
    result = table.new_commit("slow").commit(waiting, identifier=1)
    assert result.compaction_lost
    assert (shown(table)[1], shown(table)[2]) == (1, -2)
    put(table, (3, -3, "next"))  # lifts what waits on level 0
    assert [shown(table)[k] for k in (1, 2, 3)] == [-1, -2, -3]
    assert marks(table)[5] == 3
    assert table.check(deep=True).ok


def test_an_overwrite_replaces_rows_and_their_vectors(make):
    table = make()
    put(table, *BASE)
    put(table, (5, -5, "b"))
    put(table, (1, 1, "only"), (1, 2, "only"), mode="overwrite")
    assert shown(table) == {1: 2}
    assert marks(table) == {}
    assert table.check(deep=True).ok


def test_vectors_stay_true_where_they_are_no_longer_wanted(make):
    table = make(**{"deletion-vectors.modifiable": "true"})
    put(table, *BASE)
    put(table, (5, -5, "b"), (6, -6, "b"))
    table = table.alter(set_options={"deletion-vectors.enabled": "false"})
    put(table, (5, -55, "c"))
    before = {**{k: k for k in range(1000)}, 5: -55, 6: -6}
    assert shown(table) == before
    table.compact(full=True)
    assert shown(table) == before
    assert marks(table) == {}
    assert table.check(deep=True).ok


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
@pytest.mark.parametrize("verb", ["delete", "update", "rescale"])
def test_rows_that_are_changed_by_a_verb_leave_no_stray_vector(make, engine, verb):
    table = make(**{"merge-engine": engine})
    put(table, *BASE)
    put(table, (5, -5, "b"), (6, -6, "b"))
    match verb:
        case "delete":
            table.delete("k between 4 and 5")
            assert 5 not in shown(table)
        case "update":
            table.update({"v": "0"}, "k = 5")
            assert shown(table)[5] == 0
        case "rescale":
            table.rescale(2)
            assert shown(table)[5] == -5
    assert shown(table)[6] == -6
    assert table.check(deep=True).ok


def test_why_tells_which_versions_are_marked_and_which_wait(make):
    table = make()
    put(table, *BASE)
    table.compact(full=True)
    put(table, (7, 70, "b"))
    waiting = table.with_options({"write-only": "true"})
    put(waiting, (7, 700, "c"))
    found = table.why({"k": 7})
    told = list(zip(*(found.versions[name].to_pylist() for name in ("v", "level", "hidden")), strict=True))
    assert [told[0], told[2]] == [(7, 5, "marked as deleted"), (700, 0, "waits for a compaction")]
    assert (told[1][0], told[1][2]) == (70, None)
    assert found.row == {"k": 7, "v": 70, "w": "b"}
    assert str(found).count("marked as deleted") == 1
    put(waiting, (7, 0, ""), kind="-D")
    assert table.why({"k": 7}).row == {"k": 7, "v": 70, "w": "b"}
    table.compact()
    assert table.why({"k": 7}).row is None
    merged = table.with_options({"deletion-vectors.merge-on-read": "true"})
    put(waiting, (7, 1, "d"))
    assert merged.why({"k": 7}).row == {"k": 7, "v": 1, "w": "d"}
    assert merged.why({"k": 7}).versions["hidden"].to_pylist()[-1] is None
