"""Statistics of ANALYZE: Java reads ours and we read Java's, the documents are equal, and both keep them as long."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from oracle.types import to_java, to_python
from tidelake.table import Table

from .java_values import table_of

pytestmark = pytest.mark.oracle

SIZES = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INT": 4,
    "BIGINT": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "DATE": 4,
    "TIME": 4,
    "TIMESTAMP": 8,
}
FIELDS = {"id": "INT NOT NULL", "v": "STRING"}


def length_of(text: str) -> int | None:
    """The bytes of a value as Spark counts them; None for texts and bytes, which have their own lengths."""
    root = text.partition(" NOT")[0].partition("(")[0]
    if root == "DECIMAL":
        return 8 if int(text.partition("(")[2].partition(",")[0]) <= 18 else 16
    return SIZES.get(root)


def rank(value: Any) -> tuple[int, Any]:
    return (1, 0) if value != value else (0, value)


def by_hand(table: oracle.Table, types: dict[str, str], analyzed: list[str], *, size: int) -> Any:
    """The Java statistics of a table, of the rows that Java reads."""
    rows, loaded = table.read(), table.load()
    box = oracle.java("java.lang.Long").valueOf
    columns = oracle.java("java.util.HashMap")()
    for field in loaded.rowType().getFields():
        name = str(field.name())
        if name not in analyzed:
            continue
        values = [row[name] for row in rows if row[name] is not None]
        values = [value + 0.0 if isinstance(value, float) else value for value in values]  # one zero, not -0.0 too
        length, ends = length_of(types[name]), (None, None)
        if length is not None:
            ends = tuple(to_java(field.type())(end(values, key=rank)) for end in (min, max))
        lengths = (
            (length, length) if length else (math.ceil(sum(map(len, values)) / len(values)), max(map(len, values)))
        )
        nulls = box(len(rows) - len(values))
        distinct = box(len(set(map(repr, values))))
        columns.put(
            name, oracle.java("stats.ColStats").newColStats(field.id(), distinct, *ends, nulls, *map(box, lengths))
        )
    snapshot = loaded.latestSnapshot().get()
    of = oracle.java("stats.Statistics")
    return of(snapshot.id(), snapshot.schemaId(), box(len(rows)), box(size), columns)


def document(table: Table) -> Any:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.statistics is not None
    return json.loads(table.store.env.io.read(table.store.layout.statistics_path(snapshot.statistics)))


def open_ours(folder: Path) -> Table:
    return tl.connect(str(folder)).table("d.t")


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_documents_of_every_type_are_equal(jvm: None, tmp_path: Path, kind: str) -> None:
    types, rows = table_of(kind)
    oracle.Catalog(tmp_path / "ours").create_table("d.t", types, options={"file.format": kind}).write(rows)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    done = open_ours(tmp_path / "ours").analyze("all")
    assert done.statistics is not None
    assert done.statistics.columns is not None

    theirs = oracle.Catalog(tmp_path / "theirs").table("d.t")
    size = done.statistics.merged_record_size_bytes
    theirs.analyze(by_hand(theirs, types, list(done.statistics.columns), size=size))
    ours_say, theirs_say = (document(open_ours(tmp_path / side)) for side in ("ours", "theirs"))
    differing = {types[name] for name, found in ours_say["colStats"].items() if theirs_say["colStats"][name] != found}
    assert not differing
    assert ours_say == theirs_say
    assert open_ours(tmp_path / "theirs").statistics() == done.statistics

    # Java reads what we wrote, values and all.
    found = oracle.Catalog(tmp_path / "ours").table("d.t").load().statistics().get()
    assert json.loads(str(found.toJson())) == document(open_ours(tmp_path / "ours"))
    kinds = {str(each.name()): each.type() for each in theirs.load().rowType().getFields()}
    for name, column in found.colStats().items():
        if column.min().isPresent():
            values = [row[str(name)] for row in rows if row[str(name)] is not None]
            least, most = (to_python(kinds[str(name)])(end.get()) for end in (column.min(), column.max()))
            assert rank(least) == min(map(rank, values))
            assert rank(most) == max(map(rank, values))


def test_the_snapshot_is_the_one_that_java_publishes(jvm: None, tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true"}
    table = oracle.Catalog(tmp_path / "ours").create_table("d.t", FIELDS, ["id"], options=options)
    for turn in range(3):
        table.write([(1, f"a{turn}"), (turn, "b")])
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    done = open_ours(tmp_path / "ours").analyze(["v"])
    theirs = oracle.Catalog(tmp_path / "theirs").table("d.t")
    assert done.statistics is not None
    assert done.statistics.merged_record_count == 3
    types = dict(FIELDS)
    theirs.analyze(by_hand(theirs, types, ["v"], size=done.statistics.merged_record_size_bytes))
    ours, other = (oracle.Catalog(tmp_path / side).table("d.t").snapshots()[-1] for side in ("ours", "theirs"))
    named = {"baseManifestList", "deltaManifestList", "statistics", "commitUser", "timeMillis", "uuid", "writerVersion"}
    sizes = {"baseManifestListSize", "deltaManifestListSize"}
    assert {key: value for key, value in ours.items() if key not in named | sizes} == {
        key: value for key, value in other.items() if key not in named | sizes
    }
    assert document(open_ours(tmp_path / "ours")) == document(open_ours(tmp_path / "theirs"))
    for side in ("ours", "theirs"):
        report = open_ours(tmp_path / side).check(deep=True)
        assert report.ok, str(report)


def test_both_keep_statistics_until_the_schema_changes(jvm: None, tmp_path: Path) -> None:
    table = oracle.Catalog(tmp_path).create_table("d.t", FIELDS)
    table.write([(1, "a")])
    first = open_ours(tmp_path).analyze(["id"]).statistics
    table.write([(2, "b")])
    open_ours(tmp_path).write([{"id": 3, "v": "c"}])
    assert open_ours(tmp_path).statistics() == first
    assert table.load().statistics().isPresent()
    table.alter(("add", "n", "INT"))
    assert open_ours(tmp_path).statistics() == first
    assert table.load().statistics().isPresent()
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    table.write([(4, "d", 4)])
    open_ours(tmp_path / "copy").write([{"id": 4, "v": "d", "n": 4}])
    for folder in (tmp_path, tmp_path / "copy"):
        assert open_ours(folder).statistics() is None
        assert not oracle.Catalog(folder).table("d.t").load().statistics().isPresent()
    # A table that was altered since its newest snapshot is analyzed with its columns of now.
    changed = open_ours(tmp_path).add_column("late", "INT")
    assert changed.analyze("all").statistics is not None
    table.write([(5, "e", 5, 5)])
    assert set(table.load().statistics().get().colStats().keySet()) == {"id", "v", "n", "late"}


def test_both_expire_a_document_with_its_last_snapshot(jvm: None, tmp_path: Path) -> None:
    table = oracle.Catalog(tmp_path / "theirs").create_table("d.t", FIELDS)
    for turn in range(3):
        table.write([(turn, "a")])
        open_ours(tmp_path / "theirs").analyze("all" if turn else None)
    table.create_tag("kept", 4)
    shutil.copytree(tmp_path / "theirs", tmp_path / "ours")

    def documents(side: str) -> set[str]:
        return {each.name for each in (tmp_path / side / "d.db/t/statistics").iterdir() if each.name[0] != "."}

    assert len(documents("ours")) == 3
    for keep in (3, 1):
        table.expire_snapshots(retain_max=keep)
        open_ours(tmp_path / "ours").expire_snapshots(retain_max=keep, retain_min=1, older_than=2**53)
        assert documents("ours") == documents("theirs")
        assert len(documents("ours")) == 2
        for side in ("ours", "theirs"):
            assert oracle.Catalog(tmp_path / side).table("d.t").load().statistics().isPresent()
            assert open_ours(tmp_path / side).check(deep=True).ok
    table.delete_tag("kept")
    open_ours(tmp_path / "ours").delete_tag("kept")
    assert documents("ours") == documents("theirs")
    assert len(documents("ours")) == 1
