"""Apache Paimon reads what tidelake commits, and goes on from there; tidelake goes on from what Paimon commits.

Method: data files come from a scratch table that Java writes (see `mirror`); every snapshot, schema and manifest of the
table under test is ours. After each step Java's planner, its system tables and its rows must agree with ours.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jpype
import pyarrow as pa
import pytest

import oracle
import tidelake as tl
from compat.facts import by_name, entry_facts, open_branch
from compat.mirror import Mirror, java_files, rows_of
from compat.write_tables import VALUES, value_row
from tidelake.errors import CommitConflictError, FormatError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.scan.partitions import PartitionPredicate
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.manifest import ADD, DELETE, entries_table, merge_entries
from tidelake.spec.schemas.evolution import (
    AddColumn,
    DropColumn,
    First,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateType,
)
from tidelake.spec.types.data_types import Root
from tidelake.table import TableCommit

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("jvm")]

PARTITIONED = {"id": "INT", "dt": "STRING", "hr": "INT", "v": "STRING"}
KEYED = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}


def partitioned(tmp_path: Path, **options: str) -> Mirror:
    return Mirror(tmp_path, PARTITIONED, partition_by=["dt", "hr"], options=options)


def keyed(tmp_path: Path, **options: str) -> Mirror:
    options = {"bucket": "2", "write-only": "true", **options}
    return Mirror(tmp_path, KEYED, primary_key=["dt", "id"], partition_by=["dt"], options=options)


# ------------------------------------------------------------------------------------------------ commits


def test_appends_overwrites_and_truncation_look_as_if_java_made_them(tmp_path: Path) -> None:
    m = partitioned(tmp_path)
    m.write([(i, f"d{i % 3}", i % 2, "a") for i in range(12)])
    m.compare()
    m.write([(20, None, 1, "null"), (21, "", None, "blank"), (22, "a b/c=d", -5, "odd"), (23, "ü%", 7, "x")])
    m.compare()
    compare_system_tables(m)
    m.overwrite([(30, "d0", 0, "static")], {"dt": "d0"}, dynamic=False)
    m.compare()
    m.overwrite([(40, "d1", 1, "dynamic")], {}, dynamic=True)
    m.compare()
    m.step(lambda t: t.truncate([{"dt": "d2", "hr": "1"}]), drop_partition("d2", 1))
    m.compare()
    m.overwrite([(50, "all", 0, "new")], {}, dynamic=False)
    m.compare()
    m.step(lambda t: t.truncate(), lambda c, _: c.truncate())
    m.compare()
    m.write([(60, "d9", 9, "last")])
    m.compare()
    assert [s["commitKind"] for s in m.theirs.snapshots()] == [s["commitKind"] for s in m.scratch.snapshots()]
    for snapshot_id in range(1, 9):
        assert rows_of(m.theirs, snapshot=snapshot_id) == rows_of(m.scratch, snapshot=snapshot_id)
    compare_system_tables(m)


def drop_partition(day: str, hour: int) -> Callable[[TableCommit, list[CommitMessage]], Any]:
    def publish(commit: TableCommit, _: list[CommitMessage]) -> None:
        schema = commit._committer._store.schema
        where = (tl.col("dt") == day) & (tl.col("hr") == hour)
        commit._committer.drop_partitions(
            PartitionPredicate(where, tuple(schema.partition_keys), tuple(schema.partition_types)),
            operation="TRUNCATE",
        )

    return publish


def test_every_type_and_its_statistics_come_through(tmp_path: Path) -> None:
    m = Mirror(tmp_path, VALUES)
    assert m.theirs.fields() == m.scratch.fields()
    for number in range(6):
        m.write([value_row(5 * number + i) for i in range(5)])
    m.compare()
    m.compact()
    m.compare()
    assert len(m.theirs.read(where=(">", "id", 20))) == 9
    compare_system_tables(m)


def test_primary_key_tables_with_levels_and_changelog(tmp_path: Path) -> None:
    m = keyed(tmp_path, **{"changelog-producer": "input"})
    m.write([(i, f"d{i % 2}", "a") for i in range(20)])
    m.compact()
    m.compare()
    for number in range(3):
        m.write([("+U", (i, f"d{i % 2}", f"u{number}")) for i in range(number, 12)])
        m.compact(full=False, options={"compaction.force-up-level-0": True, "compaction.size-ratio": -99})
        m.compare()
    m.write([("-D", (1, "d1", "a")), ("-U", (2, "d0", "a")), ("+U", (2, "d0", "b"))])
    m.compact()
    m.compare()
    m.overwrite([(5, "d0", "over")], {"dt": "d0"}, dynamic=False)
    m.compare()
    m.write([(7, "d1", "end")])
    m.compare()
    changes = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
    assert m.theirs.stream(changes).drain() == m.scratch.stream(changes).drain()
    compare_system_tables(m)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "zstd"])
def test_manifests_of_every_codec_are_read(tmp_path: Path, codec: str) -> None:
    m = partitioned(tmp_path, **{"manifest.compression": codec})
    for number in range(3):
        m.write([(number, "x", number, "v")])
    m.compare()


def test_merged_manifests_are_read_and_merged_again(tmp_path: Path) -> None:
    """Many small commits with low thresholds: minor and full merging, then Java merges ours and we merge Java's."""
    m = Mirror(
        tmp_path,
        PARTITIONED,
        partition_by=["dt", "hr"],
        ours_only={"manifest.merge-min-count": "4", "manifest.full-compaction-threshold-size": "12 kb"},
    )
    for number in range(24):
        if number % 5 == 4:
            m.overwrite([(number, f"d{number % 3}", 0, "o")], {"dt": f"d{number % 3}"}, dynamic=False)
        else:
            m.write([(number, f"d{number % 3}", number % 2, "v")])
        assert java_files(m.theirs.load()) == java_files(m.scratch.load())
    m.compare()
    assert len(m.table.inspect.manifests()) < 10
    compare_system_tables(m)
    m.committer.compact_manifests()
    assert rows_of(m.theirs) == rows_of(m.scratch)
    for number in range(8):
        m.theirs.write([(100 + number, "d1", 1, "java")])
        m.scratch.write([(100 + number, "d1", 1, "java")])
    m.write([(200, "d2", 2, "ours")])
    assert rows_of(m.theirs) == rows_of(m.scratch)
    assert java_files(m.theirs.load()) == by_name(entry_facts(m.table.files()))


def test_numbered_and_empty_commits_are_continued_by_java(tmp_path: Path) -> None:
    m = keyed(tmp_path)
    stream = m.table.new_commit("job")
    with m.scratch.writer(user="job") as writer:
        for identifier in (1, 2, 3):
            rows = [(identifier, "x", f"v{identifier}")] if identifier != 2 else []
            writer.write(rows)
            writer.commit(identifier, watermark=100 * identifier)
            stream.commit(m.messages(identifier), identifier=identifier, watermark=100 * identifier)
            m.compare()
    mine, yours = m.theirs.snapshots(), m.scratch.snapshots()
    keys = ("commitUser", "commitIdentifier", "commitKind", "watermark", "id")
    assert [[s.get(k) for k in keys] for s in mine] == [[s.get(k) for k in keys] for s in yours]
    assert stream.commit(m.messages(3), identifier=3).repeated
    # Java's own recovery sees which of these commits are done.
    theirs = m.theirs.load()
    committer = theirs.store().newCommit("job", theirs)
    committables = [oracle.java("manifest.ManifestCommittable")(i) for i in (2, 3, 4)]
    left = committer.filterCommitted(oracle.java("java.util.ArrayList")(committables))
    assert [int(each.identifier()) for each in left] == [4]
    assert stream.filter_committed([2, 3, 4]) == [4]
    committer.close()


# ------------------------------------------------------------------------------------------------ in turns


def test_both_write_in_turns(tmp_path: Path) -> None:
    m = keyed(tmp_path)
    expected = []
    for number in range(4):
        rows = [(i, f"d{i % 2}", f"{number}") for i in range(number, number + 6)]
        m.write(rows)
        m.theirs.write([(100 + number, "d1", "java")])
        m.scratch.write([(100 + number, "d1", "java")])
        if number % 2:
            m.theirs.compact()
        expected.append(rows_of(m.scratch))
        assert rows_of(m.theirs) == expected[-1]
    table = open_branch(tmp_path / "ours/d.db/t")
    kinds = [s["commitKind"] for s in m.theirs.snapshots()]
    assert kinds.count("COMPACT") == 2
    for snapshot_id in range(1, len(kinds) + 1):
        ours = by_name(entry_facts(table.files(snapshot=snapshot_id)))
        assert ours == java_files(m.theirs.load(), snapshot_id), snapshot_id
    assert table.check(deep=True).ok


def test_a_compaction_that_java_already_did_is_a_conflict(tmp_path: Path) -> None:
    m = keyed(tmp_path)
    m.write([(i, "x", "a") for i in range(6)])
    m.write([(i, "x", "b") for i in range(6)])
    m.theirs.compact()
    m.scratch.compact()
    with pytest.raises(CommitConflictError):
        m.table.new_commit("late").commit(m.messages(3))
    assert rows_of(m.theirs) == rows_of(m.scratch)
    assert java_files(m.theirs.load()) == by_name(entry_facts(m.table.files()))


def test_java_goes_on_after_each_of_our_commits(tmp_path: Path) -> None:
    """Java overwrites, truncates, tags, branches, rolls back and expires on top of our snapshots."""
    m = partitioned(tmp_path)
    for number in range(5):
        m.write([(number, f"d{number % 2}", 0, "v")])
    m.theirs.create_tag("three", 3)
    m.theirs.create_branch("dev", "three")
    m.theirs.branch("dev").write([(70, "dev", 0, "v")])
    m.theirs.write([(80, "d0", 0, "java")], {"dynamic-partition-overwrite": False}, overwrite={"dt": "d0"})
    assert len(m.theirs.read(tag="three")) == 3
    assert len(m.theirs.branch("dev").read()) == 4
    branch = open_branch(tmp_path / "ours/d.db/t", "dev")
    assert by_name(entry_facts(branch.files())) == java_files(m.theirs.branch("dev").load())
    assert by_name(entry_facts(m.table.files())) == java_files(m.theirs.load())
    m.theirs.rollback(4)
    assert len(m.theirs.read()) == 4
    m.write([(90, "d1", 0, "after rollback")])
    assert len(m.theirs.read()) == 5
    m.theirs.expire_snapshots(retain_max=1)
    assert len(m.theirs.read()) == 5
    assert len(m.theirs.read(tag="three")) == 3
    assert by_name(entry_facts(m.table.files())) == java_files(m.theirs.load())
    report = open_branch(tmp_path / "ours/d.db/t").check(deep=True)
    assert report.ok, str(report)


# ------------------------------------------------------------------------------------------------ schemas


def test_java_reads_old_and_new_files_after_our_schema_change(tmp_path: Path) -> None:
    m = Mirror(tmp_path, {"id": "INT NOT NULL", "v": "INT", "gone": "INT", "r": "ROW<a INT>"})
    m.write([(1, 5, 0, {"a": 1})])
    changes = [
        AddColumn("n", "STRING", position=First()),
        RenameColumn("v", "w"),
        UpdateType("w", "BIGINT"),
        DropColumn("gone"),
        AddColumn(["r", "b"], "ARRAY<INT>"),
        UpdateComment("id", "the key"),
        SetOption("snapshot.num-retained.min", "3"),
    ]
    table = m.table.alter(*changes)
    m.scratch.alter(
        ("add", "n", "STRING", "first"), ("rename", "v", "w"), ("type", "w", "BIGINT"), ("drop", "gone"),
        ("add", ["r", "b"], "ARRAY<INT>"), ("comment", "id", "the key"), ("set", "snapshot.num-retained.min", "3"),
    )  # fmt: skip
    assert m.theirs.fields() == m.scratch.fields()
    mine, yours = (json.loads((tmp_path / side / "d.db/t/schema/schema-1").read_text()) for side in ("ours", "scratch"))
    assert {**mine, "timeMillis": 0} == {**yours, "timeMillis": 0}
    m.table, m.committer = table, table.new_commit("ours")
    m.write([{"n": "x", "id": 2, "w": 2**40, "r": {"a": 2, "b": [3]}}])
    m.compare()
    assert len(m.theirs.read()) == 2
    compare_system_tables(m)


def test_a_table_that_we_make_is_the_one_that_java_makes(tmp_path: Path) -> None:
    options = {"bucket": "3", "merge-engine": "partial-update", "fields.s.sequence-group": "v", "my.own": "ü \"'\\"}
    fields = {
        "id": "BIGINT",
        "dt": "DATE",
        "s": "INT",
        "v": "MAP<STRING, ROW<`a b` INT NOT NULL, c ARRAY<DECIMAL(9, 3)>>>",
    }
    lake = tl.connect(tmp_path / "ours")
    with pytest.warns(UserWarning, match="my.own"):
        lake.create_table(
            "d.t", fields, primary_key=["dt", "id"], partition_by=["dt"], options=options, comment="says é"
        )
    simple = {**fields, "v": {"type": "MAP", "key": "STRING", "value": {"type": "ROW", "fields": [
        {"id": 0, "name": "a b", "type": "INT NOT NULL"},
        {"id": 1, "name": "c", "type": {"type": "ARRAY", "element": "DECIMAL(9, 3)"}},
    ]}}}  # fmt: skip
    catalog = oracle.Catalog(tmp_path / "theirs")
    catalog.create_table("d.t", simple, ["dt", "id"], ["dt"], options, "says é")
    mine, yours = (json.loads((tmp_path / s / "d.db/t/schema/schema-0").read_text()) for s in ("ours", "theirs"))
    assert {**mine, "timeMillis": 0} == {**yours, "timeMillis": 0}
    assert oracle.Catalog(tmp_path / "ours").tables("d") == ["t"]
    assert lake.tables("d") == ["t"]


# ------------------------------------------------------------------------------------------------ system tables


def plain(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000) if isinstance(value, dt.datetime) else value


def rows_by(table: pa.Table | list[dict[str, Any]], columns: list[str], key: str) -> list[dict[str, Any]]:
    rows = table.to_pylist() if isinstance(table, pa.Table) else table
    return sorted(({c: plain(row[c]) for c in columns} for row in rows), key=lambda row: (row[key], str(row)))


KEY_OF = {
    "snapshots": "snapshot_id", "schemas": "schema_id", "options": "key", "manifests": "file_name",
    "files": "file_path", "partitions": "partition", "buckets": "partition", "tags": "tag_name",
    "branches": "branch_name", "consumers": "consumer_id",
}  # fmt: skip


def compare_system_tables(m: Mirror) -> None:
    """Our `inspect` tables say what Java's system tables say, in the same columns."""
    for name, key in KEY_OF.items():
        ours = getattr(m.table.inspect, name)()
        system = m.theirs.system(name)
        newer = ["writer_version"] if name == "snapshots" else []
        assert ours.column_names == [*system.fields(), *newer], name
        theirs = system.read()
        if name == "files":
            ours, theirs = (without_bytes(rows, m.table) for rows in (ours.to_pylist(), theirs))
        if name == "schemas":
            theirs = [{**row, **unjson(row)} for row in theirs]
            ours = [{**row, **unjson(row)} for row in ours.to_pylist()]
        if name == "options":
            theirs = [row for row in theirs if row["key"] != "path"]
        columns = list(system.fields())
        assert rows_by(ours, columns, key) == rows_by(theirs, columns, key), name


def without_bytes(rows: list[dict[str, Any]], table: tl.Table) -> list[dict[str, Any]]:
    """The rows without the bounds of binary columns: Java prints the address of an array in memory, we its content."""
    roots = (Root.BINARY, Root.VARBINARY)
    names = "|".join(field.name for field in table.schema.fields if field.type.root in roots) or "$^"
    bounds = ("min_value_stats", "max_value_stats")
    return [{**row, **{c: re.sub(rf"\b({names})=(\[B@)?[0-9a-f]*\b", r"\1=", row[c]) for c in bounds}} for row in rows]


def unjson(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(row[name]) for name in ("fields", "partition_keys", "primary_keys", "options")}


def test_system_tables_of_every_type_tags_branches_and_consumers_are_those_of_java(tmp_path: Path) -> None:
    """Statistics and keys of each type as text; binary values apart, of which Java prints an address in memory."""
    texts = {
        "k": "INT", "d": "DATE", "t3": "TIMESTAMP(3)", "t6": "TIMESTAMP(6)", "n": "DECIMAL(10, 2)", "f": "DOUBLE",
        "g": "FLOAT", "b": "BOOLEAN", "tm": "TIME(3)", "s": "STRING", "i": "BIGINT", "y": "TINYINT",
    }  # fmt: skip
    when = dt.datetime(2024, 1, 2, 3, 4)
    keys = (
        1,
        when.date(),
        when,
        when.replace(microsecond=678),
        Decimal("1.50"),
        1e10,
        1.5,
        True,
        dt.time(1, 2),
        "a, é",
    )
    m = Mirror(
        tmp_path,
        {**texts, "a": "ARRAY<INT>", "v": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
        primary_key=[*list(texts)[:10], "i", "y"],
        options={"bucket": "1", "write-only": "true"},
    )
    m.write([(*keys, 2**40, 3, [1], when), (*keys, 2**41, 3, None, None)])
    m.write([(2, *keys[1:], -1, -3, [], when)])
    compare_system_tables(m)
    m.theirs.create_tag("one", 1)
    m.theirs.create_branch("dev", "one")
    m.theirs.set_consumer("me", 2)
    m.table = m.table.alter(AddColumn("w", "INT"))
    compare_system_tables(m)


def test_files_that_java_put_under_external_roots_are_read(tmp_path: Path) -> None:
    roots = ",".join(f"file://{tmp_path}/{name}" for name in ("one", "two"))
    options = {"data-file.external-paths": roots, "data-file.external-paths.strategy": "round-robin"}
    theirs = oracle.Catalog(tmp_path / "lake").create_table("d.t", {"id": "INT", "dt": "STRING"}, [], ["dt"], options)
    for number in range(4):
        theirs.write([(number, "a b/%")])
    table = tl.connect(tmp_path / "lake").table("d.t")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert all(path.startswith("file:/") for path in table.files()["external_path"].to_pylist())
    report = table.check(deep=True)
    assert report.ok, str(report)


def test_java_refuses_the_sequences_of_entries_that_we_refuse(tmp_path: Path) -> None:
    """A second ADD before a DELETE is an error even if two DELETEs follow; ADD, DELETE, ADD counts once."""
    theirs = oracle.Catalog(tmp_path).create_table("d.t", {"id": "INT"}, [], [], {})
    theirs.write([(1,)])
    live = theirs.load().store().newScan().plan().files().get(0)
    kinds, entry = oracle.java("manifest.FileKind"), oracle.java("manifest.ManifestEntry")
    merge = oracle.java("manifest.FileEntry").mergeEntries

    def java_keeps(text: str) -> list[str] | None:
        listed = jpype.JClass("java.util.ArrayList")()
        for each in text:
            kind = kinds.ADD if each == "A" else kinds.DELETE
            listed.add(entry.create(kind, live.partition(), live.bucket(), live.totalBuckets(), live.file()))
        try:
            return [str(kept.kind())[0] for kept in merge(listed)]
        except jpype.JException:
            return None

    def we_keep(text: str) -> list[str] | None:
        file = DataFile(file_name="f", file_size=1, row_count=1)
        rows = [(ADD if each == "A" else DELETE, bytes(12), 0, -1, file) for each in text]
        try:
            return ["AD"[kind] for kind in merge_entries(entries_table(rows))["kind"].to_pylist()]
        except FormatError:
            return None

    for text in ("A", "D", "AD", "ADA", "AA", "AADD", "ADAA"):
        assert we_keep(text) == java_keeps(text), text
    # Two deletions cancel in Java; we do not take them for nothing. A file that comes back after a deletion whose
    # addition lies in an older manifest stops Java, and we keep it: what lies before still adds it.
    assert (java_keeps("DD"), we_keep("DD")) == ([], None)
    assert (java_keeps("DA"), we_keep("DA")) == (None, [])
