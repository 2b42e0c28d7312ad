"""Partitions whose number of buckets changes, by us and by the real Paimon: both read on, write on and compact."""

from __future__ import annotations

import jpype
import pytest

import oracle
import tidelake as tl
from tidelake.errors import InvalidInputError

pytestmark = pytest.mark.oracle

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "BIGINT"}
KINDS = {
    "deduplicate": {},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
    "hashed by mod": {"bucket-key": "k", "bucket-function.type": "mod"},
    "append": None,
}


def make(path, kind: str, buckets: int = 2) -> tl.table.Table:
    options = {"bucket": str(buckets), **(KINDS[kind] or {})}
    keyed = KINDS[kind] is not None
    return tl.connect(path).create_table(
        "d.t",
        COLUMNS,
        primary_key=["k", "dt"] if keyed else [],
        partition_by=["dt"],
        options=options if keyed else {**options, "bucket-key": "k"},
    )


def rows(turn: int, keys: range = range(30)) -> list[dict[str, object]]:
    return [{"k": key, "dt": dt, "v": turn * 100 + key} for dt in "ab" for key in keys]


def ours(table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_arrow().to_pylist())


def both_agree(table, theirs) -> None:
    found = ours(table)
    assert found == sorted(repr(tuple(row.values())) for row in theirs.read())
    assert len(found) > 0
    for key in (0, 7, 29):
        mine = sorted(repr(tuple(row.values())) for row in table.to_arrow(where=f"k = {key}").to_pylist())
        assert mine == sorted(repr(tuple(row.values())) for row in theirs.read(where=("=", "k", key)))
    assert table.check(deep=True, rows=True).ok


def counts(theirs) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for entry in theirs.load().store().newScan().plan().files():
        found.setdefault(str(entry.partition().getString(0)), set()).add(int(entry.totalBuckets()))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_paimon_reads_writes_and_compacts_what_we_rescaled(kind, catalog, tmp_path):
    table = make(tmp_path, kind)
    theirs = catalog.table("d.t")
    table.write(rows(0))
    theirs.write([tuple(row.values()) for row in rows(1, range(10, 40))])
    before = ours(table)
    table.rescale(5, "dt = 'a'")
    assert ours(table) == before
    assert counts(theirs) == {"a": {5}, "b": {2}}
    both_agree(table, theirs)
    with pytest.raises(jpype.JException, match="bucket num"):
        theirs.write([(1, "a", 5)])
    theirs.write([(1, "b", 5)])
    theirs.alter(("set", "bucket", "5"))
    table = table.reload()
    theirs.write([(key, "a", 7) for key in range(5, 50)])
    both_agree(table, theirs)
    with pytest.raises(InvalidInputError, match="another number of buckets"):
        table.write([{"k": 1, "dt": "b", "v": 5}])
    table.rescale()
    table.write(rows(2, range(25, 45)))
    both_agree(table, theirs)
    if KINDS[kind] is not None:
        theirs.compact(full=True)
        both_agree(table, theirs)
        table.compact(full=True)
        both_agree(table, theirs)
    assert counts(theirs) == {"a": {5}, "b": {5}}


@pytest.mark.parametrize("kind", KINDS)
def test_we_read_write_and_compact_what_paimon_rescaled(kind, catalog, tmp_path):
    table = make(tmp_path, kind)
    theirs = catalog.table("d.t")
    for turn in range(3):
        table.write(rows(turn))
    theirs.alter(("set", "bucket", "3"))
    table = table.reload()
    kept = [tuple(row.values()) for row in theirs.read() if row["dt"] == "a"]
    theirs.write(kept, overwrite={"dt": "a"})
    assert counts(theirs) == {"a": {3}, "b": {2}}
    both_agree(table, theirs)
    table.write([{"k": key, "dt": "a", "v": 1} for key in range(20, 60)])
    both_agree(table, theirs)
    with pytest.raises(InvalidInputError, match="another number of buckets"):
        table.write([{"k": 1, "dt": "b", "v": 5}])
    table.compact(full=True)
    both_agree(table, theirs)
    table.rescale(4, partitions=[{"dt": "a"}])
    both_agree(table, theirs)
    assert counts(theirs) == {"a": {4}, "b": {2}}


def test_our_compaction_beside_their_write_only_writer(catalog, tmp_path):
    table = make(tmp_path, "aggregation")
    theirs = catalog.table("d.t")
    with theirs.writer(user="job", options={"write-only": "true"}) as writer:
        for turn in range(12):
            writer.write([tuple(row.values()) for row in rows(turn)])
            writer.commit()
            table.keep_compacted(max_rounds=1)
    assert max(table.inspect.lsm()["sorted_runs"].to_pylist()) <= 6
    both_agree(table, theirs)
    expected = {key: sum(turn * 100 + key for turn in range(12)) for key in range(30)}
    assert {row["k"]: row["v"] for row in theirs.read() if row["dt"] == "b"} == expected


def test_paimon_takes_a_partition_apart_that_we_gave_more_buckets_than_rows(catalog, tmp_path):
    table = make(tmp_path, "deduplicate", buckets=1)
    theirs: oracle.Table = catalog.table("d.t")
    table.write([{"k": 1, "dt": "a", "v": 1}])
    table.rescale(16)
    theirs.alter(("set", "bucket", "16"))
    theirs.write([(2, "a", 2), (3, "a", 3)])
    assert ours(table.reload()) == ["(1, 'a', 1)", "(2, 'a', 2)", "(3, 'a', 3)"]
