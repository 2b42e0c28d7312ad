"""The changes that a table tells of, beside the real Paimon: the same rows, kinds and numbers for the same writes.

Two tables get the same rows in the same commits, one from each side; what lies in the changelog files of each commit
must be the same. Then one table is written by both in turns, and Paimon follows what we told of.
"""

from __future__ import annotations

from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pytest

import oracle
import tidelake as tl
from compat.keyed_cells import LIFT
from compat.keyed_engines import ENGINES
from compat.turns import COLUMNS, Rows, draw, they_write, told_since, we_write
from kit.changelogs import changelog, changelog_files
from tidelake.table import Table

pytestmark = pytest.mark.oracle

LAYOUT = {"compaction.size-ratio": "-99"}
"""Both put files on the same levels, whatever their sizes: what a deletion still hides depends on where it lies."""
MORE: dict[str, dict[str, str]] = {
    "": {},
    "deduplicated": {"changelog-producer.row-deduplicate": "true"},
    "partly compared": {
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "s,n",
    },
}


def producers(engine: str) -> list[str]:
    return ["lookup"] if engine.startswith("first-row") else ["input", "lookup", "full-compaction"]


def cases() -> list[tuple[str, str, str]]:
    found = []
    for number, engine in enumerate(ENGINES):
        for producer in producers(engine):
            found.append((engine, producer, ""))
            if producer != "input":
                found.append((engine, producer, list(MORE)[1 + number % 2]))
    return found


@pytest.mark.parametrize(("engine", "producer", "more"), cases())
def test_the_same_writes_tell_of_the_same_changes(engine, producer, more, catalog, tmp_path):
    options, kinds = ENGINES[engine]
    options = {"bucket": "1", "changelog-producer": producer, **LAYOUT, **options, **MORE[more]}
    rng = Random(f"{engine} {producer} {more}")
    ours = tl.connect(tmp_path / "ours").create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", COLUMNS, ("k",), (), dict(options))
    mirror = tl.open_table(str(tmp_path / "theirs/d.db/t"))
    seen = other = 0
    for step in range(8):
        # The first file is only moved. Of its rows Paimon tells what its engine makes of them, we what stays there:
        # no matter for rows that an engine leaves as they are.
        rows = draw(rng, kinds) if step else [("+I", (k, "a", k, k)) for k in range(5)]
        we_write(ours, rows)
        they_write(theirs, rows, producer)
        if step == 4:
            ours.compact(full=True)
            theirs.compact()
        one, two = told_since(ours, seen), told_since(mirror, other)
        assert [each[1:] for each in one] == [each[1:] for each in two], (step, rows)
        if not any(kind & 1 for kind in kinds):
            # Where deletions were forgotten, numbers go on from what is left, and each forgets when it compacts.
            assert [number for number, *_ in one] == [number for number, *_ in two], (step, rows)
        seen, other = ours.latest_snapshot().id, mirror.latest_snapshot().id
    assert_they_follow(oracle.Catalog(tmp_path / "ours").table("d.t"), ours)
    assert ours.check().ok


def assert_they_follow(theirs: oracle.Table, ours: Table) -> None:
    """Paimon reads from our changelog files what we wrote there, one snapshot at a time and all of them at once."""
    last = ours.latest_snapshot().id
    told = {number: changelog(ours, number) for number in range(1, last + 1)}
    stream = theirs.stream({"scan.mode": "from-snapshot", "scan.snapshot-id": 1})
    followed = {after - 1: rows for after, rows in stream.drain()}
    assert {n: [(kind, *row.values()) for kind, row in rows] for n, rows in followed.items()} == {
        number: rows for number, rows in told.items() if rows
    }
    how = {"incremental-between": f"0,{last}", "incremental-between-scan-mode": "changelog"}
    between = [(row.pop("rowkind"), *row.values()) for row in theirs.audit_log(options=how)]
    assert sorted(map(repr, between)) == sorted(repr(row) for rows in told.values() for row in rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_of_both_in_turns_lead_from_state_to_state(engine, producer, catalog, tmp_path):
    if producer not in producers(engine):
        return
    options, kinds = ENGINES[engine]
    options = {"bucket": "2", "changelog-producer": producer, **options}
    table = tl.connect(tmp_path).create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = catalog.table("d.t")
    rng = Random(f"{engine} {producer} in turns")
    state: dict[Any, tuple[Any, ...]] = {}
    seen = 0
    for step in range(10):
        rows = draw(rng, kinds)
        if rng.random() < 0.5:
            we_write(table, rows)
        else:
            they_write(theirs, rows, producer)
        if rng.random() < 0.2:
            rng.choice([table.compact, theirs.compact])(full=True)
        for _, kind, row in told_since(table, seen):
            if kind in ("-U", "-D"):
                assert state.pop(row["k"]) == tuple(row.values()), (step, kind, row)
            else:
                assert state.setdefault(row["k"], tuple(row.values())) == tuple(row.values())
        seen = table.latest_snapshot().id
        found = {row["k"]: tuple(row.values()) for row in table.to_arrow().to_pylist()}
        assert found == state == {row["k"]: tuple(row.values()) for row in theirs.read()}, step
    assert_they_follow(theirs, table)
    assert table.check().ok


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_changelog_files_are_described_as_theirs_are(producer, catalog, tmp_path):
    options = {"bucket": "1", "changelog-producer": producer, "changelog-file.prefix": "log-"}
    options |= {"changelog-file.format": "avro", "changelog-file.compression": "null"}
    options |= {"changelog-file.stats-mode": "full"}
    ours = tl.connect(tmp_path / "ours").create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", COLUMNS, ("k",), (), dict(options))
    mirror = tl.open_table(str(tmp_path / "theirs/d.db/t"))
    writes: list[Rows] = [
        [("+I", (1, "a", 1, 1)), ("+I", (2, "b", None, 2)), ("+U", (1, "c", 3, 1))],
        [("-D", (2, "b", None, 2)), ("+U", (1, None, 4, 1)), ("+I", (7, "new", 1, 1))],
    ]
    for rows in writes:
        we_write(ours, rows)
        they_write(theirs, rows, producer)
    told_apart = {"file_name", "file_size", "creation_time_ms"}
    described = []
    for table in (ours, mirror):
        files = [file for n in range(1, table.latest_snapshot().id + 1) for file in changelog_files(table, n)]
        assert all(file.file_name.startswith("log-") and file.file_name.endswith(".avro") for file in files)
        names = [name for name in files[0].__dataclass_fields__ if name not in told_apart]
        described.append([{name: getattr(file, name) for name in names} for file in files])
    differing = [
        {name: (mine[name], other[name]) for name in mine if mine[name] != other[name]}
        for mine, other in zip(*described, strict=True)
    ]
    assert not any(differing), differing
    ours_seen = oracle.Catalog(tmp_path / "ours").table("d.t")
    counts = [[each.get("changelogRecordCount") for each in table.snapshots()] for table in (ours_seen, theirs)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_middle_levels_hold_whole_rows_where_paimon_loses_older_levels(engine, tmp_path):
    options = {
        "bucket": "1",
        "merge-engine": engine,
        "changelog-producer": "full-compaction",
        "force-lookup": "true",
        "full-compaction.delta-commits": "100",
    }
    ours = tl.connect(tmp_path / "ours").create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", COLUMNS, ("k",), (), dict(options))
    for rows, how in (([("+I", (1, "a", 1, 1))], {}), ([("+U", (1, None, 2, 2))], LIFT)):
        we_write(ours.with_options({"write-only": "true"}), rows)
        ours.with_options(how).compact(full=not how)
        theirs.write(rows, options={"write-only": True})
        theirs.compact(full=not how, options=how)
    whole, cut = ({"k": 1, "v": text, "n": 2, "s": 2} for text in ("a", None))
    assert theirs.read() == [cut]
    assert ours.to_arrow().to_pylist() == [whole]
    assert oracle.Catalog(tmp_path / "ours").table("d.t").read() == [whole]
    ours.compact(full=True)
    assert told_since(ours, 2)[-1][1:] == ("+U", whole)
    assert oracle.Catalog(tmp_path / "ours").table("d.t").read() == [whole]
