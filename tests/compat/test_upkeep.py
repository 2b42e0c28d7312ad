"""Files and manifests put in order beside Apache Paimon: it reads what is left, goes on with it, and does the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from tidelake.ops.commit.manifest_sort import ManifestOrder
from tidelake.ops.scan.plan import data_manifests
from tidelake.ops.vectors.vector_writer import index_files_of
from tidelake.spec.types.data_types import STRING
from tidelake.table import Table

pytestmark = pytest.mark.oracle

FIELDS = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}


class Pair:
    """Two copies of a table that Java wrote: `theirs` is for Java to maintain, `ours` for tidelake."""

    def __init__(self, folder: Path, make: Callable[[oracle.Catalog], None]) -> None:
        self.folder = folder
        make(oracle.Catalog(folder / "theirs"))
        shutil.copytree(folder / "theirs", folder / "ours")

    @property
    def theirs(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "theirs").table("d.t")

    @property
    def theirs_in_python(self) -> Table:
        return tl.connect(str(self.folder / "theirs")).table("d.t")

    @property
    def ours(self) -> Table:
        return tl.connect(str(self.folder / "ours")).table("d.t")

    @property
    def ours_in_java(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "ours").table("d.t")


def rows_of(table: oracle.Table) -> list[str]:
    return sorted(map(repr, table.read()))


def live_files(table: Table) -> list[tuple[Any, ...]]:
    columns = ["partition", "bucket", "level", "file_name", "row_count"]
    return sorted(tuple(each.values()) for each in table.files(columns=columns).to_pylist())


# ------------------------------------------------------------------------------------------------ deletion vectors


def append_with_vectors(catalog: oracle.Catalog) -> None:
    table = catalog.create_table("d.t", FIELDS, (), ["dt"], {"deletion-vectors.enabled": "true"})
    for first in (0, 10):
        table.write([(first + i, f"d{i % 2}", i) for i in range(8)])
    for each in table.files()[:3]:
        table.delete_positions(each["file"], [0, 2])


def keyed_with_vectors(catalog: oracle.Catalog) -> None:
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "100"}
    table = catalog.create_table("d.t", FIELDS, ["dt", "id"], ["dt"], options | {"num-levels": "6"})
    table.write([(i, f"d{i % 2}", i) for i in range(1000)])
    table.write([(4, "d0", -4), ("-D", (5, "d1", 5)), (2000, "d0", 1)])


@pytest.mark.parametrize("make", [append_with_vectors, keyed_with_vectors])
def test_paimon_reads_a_table_without_its_vectors_and_goes_on_with_it(
    jvm: None, tmp_path: Path, make: Callable[[oracle.Catalog], None]
) -> None:
    pair = Pair(tmp_path, make)
    before = rows_of(pair.theirs)
    assert index_files_of(pair.ours.store, pair.ours.latest_snapshot())
    pair.ours.materialize_deletion_vectors()
    assert not index_files_of(pair.ours.store, pair.ours.latest_snapshot())
    assert rows_of(pair.ours_in_java) == before
    assert pair.ours_in_java.snapshots()[-1]["commitKind"] == "COMPACT"
    # Paimon's own full compaction of the twin leaves as many rows in as many files of a keyed table.
    pair.ours_in_java.write([(7_000, "d0", 1)])
    if make is keyed_with_vectors:
        pair.theirs.compact(full=True)
        assert rows_of(pair.theirs) == before
        pair.ours_in_java.write([("-D", (7_000, "d0", 1)), (6, "d0", 66)])
        assert pair.ours.to_arrow(where="id = 6").column("v").to_pylist() == [66]
    else:
        pair.ours_in_java.delete_positions(pair.ours_in_java.files()[0]["file"], [0])
    assert rows_of(pair.ours_in_java) == sorted(
        repr({"id": row["id"], "dt": row["dt"], "v": row["v"]}) for row in pair.ours.to_arrow().to_pylist()
    )
    pair.ours.materialize_deletion_vectors()
    assert pair.ours.check(deep=True).ok


# ------------------------------------------------------------------------------------------------ manifests

SORT = {"manifest-sort.enabled": "true", "manifest.target-file-size": "2 kb"}


def many_manifests(catalog: oracle.Catalog) -> None:
    options = {"manifest.merge-min-count": "1000", "write-only": "true", "bucket": "1", "bucket-key": "id", **SORT}
    table = catalog.create_table("d.t", FIELDS, (), ["dt"], options | {"manifest-sort.enabled": "false"})
    for number in range(4):
        table.write([(i, f"d{i:02}", number) for i in range(25)])
    table.truncate([{"dt": "d03"}, {"dt": "d17"}])


def compact_in_java(table: oracle.Table, options: dict[str, str]) -> None:
    commit = table.load().copy(oracle.java("java.util.HashMap")(options)).newBatchWriteBuilder().newCommit()
    commit.compactManifests()
    commit.close()


def sections(table: Table) -> list[tuple[int, int]]:
    """The ranges of the manifests, in order."""
    metas = data_manifests(table.store.manifests, table.latest_snapshot())
    low, high = ManifestOrder((STRING,), 0).rank_bounds(metas)
    return sorted(zip(low.tolist(), high.tolist(), strict=True))


def is_in_order(table: Table) -> bool:
    ranges = sections(table)
    return all(low >= high for (_, high), (low, _) in pairwise(ranges))


def test_both_sort_manifests_so_that_their_ranges_do_not_overlap(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, many_manifests)
    before, files = rows_of(pair.theirs), live_files(pair.ours)
    assert not is_in_order(pair.ours)
    compact_in_java(pair.theirs, SORT)
    pair.ours.with_options(SORT).compact_manifests()
    assert is_in_order(pair.ours)
    assert is_in_order(pair.theirs_in_python)
    assert live_files(pair.ours) == files
    assert live_files(pair.theirs_in_python) == files
    assert rows_of(pair.ours_in_java) == before
    for table in (pair.ours, pair.theirs_in_python):
        assert not any(table.inspect.manifests().column("num_deleted_files").to_pylist())
        assert table.latest_snapshot().commit_kind.value == "COMPACT"
        assert table.check(deep=True).ok


def test_each_side_finds_the_manifests_of_the_other_in_order_and_goes_on(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, many_manifests)
    compact_in_java(pair.theirs, SORT)
    pair.ours.with_options(SORT).compact_manifests()
    ids = [pair.ours.latest_snapshot().id, pair.theirs_in_python.latest_snapshot().id]
    compact_in_java(pair.ours_in_java, SORT)
    assert pair.theirs_in_python.with_options(SORT).compact_manifests(plan_only=True).rewritten == 0
    assert [pair.ours.latest_snapshot().id, pair.theirs_in_python.latest_snapshot().id] == ids
    pair.ours_in_java.write([(100, "d08", 1), (101, "d21", 1)])
    pair.ours.with_options(SORT).compact_manifests()
    assert is_in_order(pair.ours)
    pair.ours_in_java.write([(102, "d09", 1), (103, "d11", 1)])
    compact_in_java(pair.ours_in_java, SORT)  # Paimon may leave a small manifest for later
    pair.ours.with_options(SORT).compact_manifests()
    assert is_in_order(pair.ours)
    assert len(rows_of(pair.ours_in_java)) == pair.ours.count() == 4 * 23 + 4
    assert pair.ours.check(deep=True).ok


def test_both_refuse_to_sort_by_a_column_that_is_not_a_partition_column(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, many_manifests)
    wrong = SORT | {"manifest-sort.partition-field": "v"}
    with pytest.raises(Exception, match="not a partition field"):
        compact_in_java(pair.theirs, wrong)
    with pytest.raises(tl.InvalidInputError, match="partition columns only"):
        pair.ours.compact_manifests(sort=True, sort_field="v")


# ------------------------------------------------------------------------------------------------ files


def dynamic(catalog: oracle.Catalog) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
    table = catalog.create_table("d.t", FIELDS, ["dt", "id"], ["dt"], options)
    table.write([(i, f"d{i % 2}", i) for i in range(20)])
    table.write([(4, "d0", -4), ("-D", (5, "d1", 5))])


@pytest.mark.parametrize("make", [append_with_vectors, keyed_with_vectors, dynamic])
def test_paimon_reads_a_copy_and_goes_on_with_it(
    jvm: None, tmp_path: Path, make: Callable[[oracle.Catalog], None]
) -> None:
    catalog = oracle.Catalog(tmp_path)
    make(catalog)
    before = rows_of(catalog.table("d.t"))
    lake = tl.connect(str(tmp_path))
    lake.copy_table("d.t", "e.copy")
    lake.copy_table("d.t", "e.part", where="dt = 'd1'")
    lake.drop_table("d.t")
    copy = oracle.Catalog(tmp_path).table("e.copy")
    assert rows_of(copy) == before
    assert rows_of(oracle.Catalog(tmp_path).table("e.part")) == [each for each in before if "'d1'" in each]
    copy.write([(4, "d0", 44), (9_000, "d1", 1)])
    assert sorted(repr(row) for row in lake.table("e.copy").to_arrow().to_pylist()) == rows_of(copy)
    assert lake.table("e.copy").to_arrow(where="id = 9000").num_rows == 1
    assert lake.table("e.copy").check(deep=True).ok


def test_paimon_misses_the_same_files_and_reads_the_rest_once_they_are_dropped(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, append_with_vectors)
    split = pair.ours.scan(where="dt = 'd1'").splits()[0]
    lost = split.files[0]
    for side in ("ours", "theirs"):
        (pair.folder / side / "d.db/t" / split.bucket_path / lost.file_name).unlink()
    table = pair.ours_in_java.load()
    found = oracle.java("operation.ListUnexistingFiles")(table)
    partitions = list(table.newScan().listPartitions())

    def missing() -> list[str]:
        lists = [found.list(each) for each in partitions]
        return sorted(str(path).rpartition("/")[2] for each in lists for files in each.values() for path in files)

    assert missing() == [lost.file_name]
    plan = pair.ours.remove_unexisting_files(plan_only=True)
    assert [path.rpartition("/")[2] for path in plan.paths] == missing()
    pair.ours.remove_unexisting_files()
    kept = len(rows_of(pair.ours_in_java))
    assert kept == pair.ours.count()
    assert pair.ours_in_java.snapshots()[-1]["commitKind"] == "OVERWRITE"
    pair.ours_in_java.write([(100, "d1", 1)])
    assert pair.ours.count() == kept + 1


def test_both_purge_a_table_to_the_same(jvm: None, tmp_path: Path) -> None:
    def make(catalog: oracle.Catalog) -> None:
        table = catalog.create_table("d.t", FIELDS, ["dt", "id"], ["dt"], {"bucket": "1", "write-only": "true"})
        for number in range(4):
            table.write([(i, f"d{i % 2}", number) for i in range(6)])
        table.create_tag("t", 2)
        table.create_branch("b", "t")
        table.set_consumer("c", 2)

    pair = Pair(tmp_path, make)
    pair.theirs.load().purgeFiles()
    pair.ours.purge_files()
    left = []
    for side in ("ours", "theirs"):
        root = pair.folder / side / "d.db/t"
        files = [each for each in root.rglob("*") if each.is_file() and not each.name.endswith(".crc")]
        documents = {"snapshot", "schema", "tag", "branch", "consumer", "changelog"}
        names = sorted(
            each.name for each in files if each.parent.name in documents and each.name not in ("EARLIEST", "LATEST")
        )
        left.append((names, sum(each.suffix == ".parquet" for each in files)))
    assert left[0] == left[1] == (["schema-0", "snapshot-5"], 0)
    assert rows_of(pair.ours_in_java) == rows_of(pair.theirs) == []
    pair.ours_in_java.write([(1, "d1", 1)])
    assert pair.ours.count() == 1
    assert pair.ours.check(deep=True).ok
