"""Append tables with deletion vectors, in turns with the real Paimon: both see the same rows at every snapshot.

Each side writes rows, marks rows of its own files and of the other's, adds to the other's vectors, and compacts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import numpy as np
import pytest

import oracle
import tidelake as tl
from tidelake.files.options import FORMATS
from tidelake.index.vector_codec import bitmap_of, encode_vectors
from tidelake.ops.commit.committer import Committer
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.table import Table

pytestmark = pytest.mark.oracle

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}
LAYOUTS: dict[str, dict[str, str]] = {
    "unaware": {},
    "unaware, small index files": {"deletion-vector.index-file.target-size": "30 b"},
    "buckets": {"bucket": "2", "bucket-key": "id"},
    "buckets, index beside data": {"bucket": "2", "bucket-key": "id", "index-file-in-data-file-dir": "true"},
}


def texts(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows)


def assert_same_at_every_snapshot(ours: Table, theirs: oracle.Table) -> None:
    newest = ours.latest_snapshot()
    assert newest is not None
    for number in range(1, newest.id + 1):
        mine = texts(ours.at(snapshot=number).to_arrow().to_pylist())
        assert mine == texts(theirs.read(snapshot=number)), number
        assert ours.at(snapshot=number).count() == len(mine)


def new_rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "dt": f"d{n % 2}", "v": f"v{n}" if n % 5 else None} for n in range(start, start + count)]


def they_mark(theirs: oracle.Table, rng: Random) -> None:
    """Mark some rows of one of the files, whoever wrote it and whoever marked rows of it before."""
    file = rng.choice(sorted(theirs.files(), key=lambda each: each["file"]))
    theirs.delete_positions(file["file"], rng.sample(range(file["rows"]), rng.randint(1, max(1, file["rows"] // 3))))


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", FORMATS)
def test_whoever_marks_writes_and_compacts(
    catalog: oracle.Catalog, tmp_path: Path, kind: str, layout: str, wide: bool
) -> None:
    options = {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": str(wide).lower(),
        "file.format": kind,
        "compaction.min.file-num": "3",
        **LAYOUTS[layout],
    }
    rng = Random(f"{kind} {layout} {wide}")
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, partition_by=["dt"], options=options)
    theirs = catalog.table("d.t")
    table.write(new_rows(0, 60))
    theirs.write([tuple(row.values()) for row in new_rows(60, 60)])
    steps = ["we delete", "they mark", "we update", "they mark", "we delete", "we write", "they write"]
    last = ["they compact", "we delete", "they mark", "we compact", "they mark", "we compact fully", "they compact"]
    for number, step in enumerate([*rng.sample(steps, len(steps)), *last]):
        before = len(texts(table.to_arrow().to_pylist()))
        match step:
            case "we delete":
                chosen = f"id % {rng.choice([7, 11, 13])} = {rng.randint(0, 6)}"
                wanted = table.count(chosen)
                assert table.delete(chosen).rows == wanted
                assert table.count() == before - wanted
            case "we update":
                assert table.update({"v": "'new'"}, "id % 6 = 1").rows == table.count("id % 6 = 1")
            case "we write":
                table.write(new_rows(200 + number, 9))
            case "they write":
                theirs.write([tuple(row.values()) for row in new_rows(300 + number, 9)])
            case "they mark":
                they_mark(theirs, rng)
            case "we compact" | "we compact fully":
                table.compact(full=step.endswith("fully"))
            case "they compact":
                theirs.compact()
        found = texts(table.to_arrow().to_pylist())
        assert found == texts(theirs.read()), (number, step)
        report = table.check(deep=True, rows=True)
        assert report.ok, (number, step, str(report))
        if step == "we compact fully":
            assert snapshot_vectors(table.store.manifests, table.latest_snapshot()) is None
    assert_same_at_every_snapshot(table, theirs)


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_the_bytes_of_a_vector_are_those_of_the_reference(catalog: oracle.Catalog, tmp_path: Path, wide: bool) -> None:
    """Arrays, bitmaps and runs: each container comes out in the form that Java chooses."""
    options = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": str(wide).lower()}
    table = tl.connect(tmp_path).create_table("d.t", {"id": "INT"}, options=options)
    theirs = catalog.table("d.t")
    rng = Random(5)
    rows = 200_000
    table.write({"id": np.arange(rows, dtype=np.int32)})
    (file,) = theirs.files()
    marked: set[int] = set()
    for more in (
        [3, 7, 11],
        range(100, 130),
        rng.sample(range(65_536, 131_072), 9_000),
        range(131_072, 180_000),
        rng.sample(range(rows), 500),
    ):
        marked |= set(more)
        theirs.delete_positions(file["file"], sorted(marked))
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        (entry,) = table.store.manifests.read_index(snapshot.index_manifest or "")
        data = table.store.env.io.read(f"index/{entry.file.file_name}")
        mine, ranges = encode_vectors([(file["file"], bitmap_of(np.array(sorted(marked))))], wide=wide)
        assert mine == data
        assert ranges == entry.file.deletion_vectors
        assert table.count() == rows - len(marked)


def test_a_primary_key_table_with_vectors_of_the_reference_is_read(catalog: oracle.Catalog, tmp_path: Path) -> None:
    """Level 0 waits, upper levels are read without a merge; with merge-on-read level 0 is merged in."""
    rng = Random(8)
    for number, wide in enumerate((False, True)):
        options = {
            "bucket": "2",
            "deletion-vectors.enabled": "true",
            "deletion-vectors.bitmap64": str(wide).lower(),
            "write-only": "true",
            "num-sorted-run.compaction-trigger": "3",
        }
        name = f"d.k{number}"
        theirs = catalog.create_table(name, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], (), options)
        for step in range(8):
            theirs.write([(rng.choice(["+I", "+I", "-D"]), (rng.randint(0, 60), f"{step}")) for _ in range(30)])
            if step % 3:
                theirs.compact(full=step == 7)
            table = tl.connect(tmp_path).table(name)
            for how in ({}, {"deletion-vectors.merge-on-read": "true"}):
                ours = texts(table.with_options(how).to_arrow().to_pylist())
                assert ours == texts(theirs.read(options=how)), (wide, step, how)
                assert table.with_options(how).count() == len(ours)
                some = texts(table.with_options(how).to_arrow(where="v >= '3'").to_pylist())
                assert some == texts(row for row in theirs.read(options=how) if row["v"] >= "3")
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        report = table.check(deep=True)
        assert report.ok, str(report)
        for each in range(1, snapshot.id + 1):
            assert texts(table.at(snapshot=each).to_arrow().to_pylist()) == texts(theirs.read(snapshot=each)), each


def test_a_change_that_copies_files_of_a_key_table_drops_their_vectors(catalog: oracle.Catalog, tmp_path: Path) -> None:
    """An aggregation makes nothing of deletions, so that the rows that stay are written anew."""
    options = {
        "bucket": "1",
        "deletion-vectors.enabled": "true",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
    }
    theirs = catalog.create_table("d.t", {"k": "INT NOT NULL", "n": "BIGINT"}, ["k"], (), options)
    theirs.write([(k, 1) for k in range(20)])
    theirs.compact()
    theirs.write([(k, 10) for k in range(5)])
    table = tl.connect(tmp_path).table("d.t")
    assert table.inspect.table_indexes().num_rows == 1
    assert table.delete("k in (2, 7)").rows == 2
    assert texts(table.to_arrow().to_pylist()) == texts(theirs.read())
    assert sorted((row["k"], row["n"]) for row in theirs.read()) == [
        (k, 11 if k < 5 else 1) for k in range(20) if k not in (2, 7)
    ]
    report = table.check(deep=True)
    assert report.ok, str(report)


def test_the_list_of_index_files_says_what_theirs_says(catalog: oracle.Catalog, tmp_path: Path) -> None:
    for number, layout in enumerate(("unaware", "buckets")):
        options = {"deletion-vectors.enabled": "true", **LAYOUTS[layout]}
        table = tl.connect(tmp_path).create_table(f"d.t{number}", COLUMNS, partition_by=["dt"], options=options)
        table.write(new_rows(0, 40))
        table.delete("id % 3 = 0")
        they_mark(catalog.table(f"d.t{number}"), Random(1))
        system = catalog.table(f"d.t{number}").system("table_indexes")
        ours = table.inspect.table_indexes()
        assert ours.column_names == list(system.fields())
        assert texts(ours.to_pylist()) == texts(system.read())


@pytest.mark.parametrize("layout", ["unaware", "buckets"])
def test_two_jobs_that_mark_rows_of_one_bucket_meet(catalog: oracle.Catalog, tmp_path: Path, layout: str) -> None:
    """Their marks stay when ours come a moment later."""
    options = {"deletion-vectors.enabled": "true", **LAYOUTS[layout]}
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, options=options)
    theirs = catalog.table("d.t")
    table.write(new_rows(0, 40))
    table.write(new_rows(100, 40))
    rng, commit, left = Random(3), Committer.commit, [2]

    def late(self: Committer, *args: Any, **how: Any) -> Any:
        if left:
            left.pop()
            they_mark(theirs, rng)
        return commit(self, *args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Committer, "commit", late)
        table.delete("id % 4 = 1")
    assert not left
    assert texts(table.to_arrow().to_pylist()) == texts(theirs.read())
    assert_same_at_every_snapshot(table, theirs)
    marked = texts(table.at(snapshot=3).to_arrow().to_pylist())
    assert len(marked) < 80
    assert not {row["id"] for row in theirs.read()} & {n for n in range(140) if n % 4 == 1}
    assert set(texts(theirs.read())) < set(marked)
    assert table.check(deep=True).ok


@pytest.mark.parametrize("layout", ["unaware", "buckets"])
def test_a_tag_and_an_expiry_keep_what_is_needed(catalog: oracle.Catalog, tmp_path: Path, layout: str) -> None:
    options = {"deletion-vectors.enabled": "true", **LAYOUTS[layout]}
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, partition_by=["dt"], options=options)
    theirs = catalog.table("d.t")
    table.write(new_rows(0, 40))
    table.delete("id % 3 = 0")
    table.create_tag("kept")
    wanted = texts(table.to_arrow().to_pylist())
    for low in (5, 10, 20):
        table.delete(f"id < {low}")
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=table.latest_snapshot().time_ms + 10**9)
    report = table.check(deep=True, rows=True)
    assert report.ok, str(report)
    assert not report.orphans
    assert texts(theirs.read(tag="kept")) == wanted == texts(table.at(tag="kept").to_arrow().to_pylist())
    assert texts(theirs.read()) == texts(table.to_arrow().to_pylist())
    assert len(theirs.read()) == sum(1 for n in range(20, 40) if n % 3)
