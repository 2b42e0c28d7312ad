"""Tests that the lists of the format ask for and no other names: conditions, collisions, the worked example read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.types.data_types import BIGINT, with_nullable
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "w"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": SUM,
    "first-row": {"merge-engine": "first-row"},
}
LAYOUTS: dict[str, dict[str, str]] = {
    "merged": {"write-only": "true"},
    "lifted": {"compaction.force-up-level-0": "true"},
    "looked up": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, merged": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.merge-on-read": "true",
        "write-only": "true",
    },
}


def create(columns: dict[str, str] | None = None, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    found = columns or {"k": "INT NOT NULL", "v": "INT", "w": "INT"}
    return lake.create_table("d.t", found, primary_key=["k"], options=options)


def put(table: Table, *rows: tuple[Any, ...], **how: Any) -> None:
    table.write([dict(zip(("rowkind", *table.schema.names), row, strict=False)) for row in rows], **how)


def read(table: Table, where: str | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(where=where).to_arrow().to_pylist())


# ------------------------------------------------------------------------------------------------ conditions (15.13)


# A table of first rows has no vectors, and shows nothing before a compaction.
CELLS = [(engine, layout) for engine in ENGINES for layout in LAYOUTS if engine != "first-row" or layout == "looked up"]


@pytest.mark.parametrize(("engine", "layout"), CELLS)
def test_a_condition_on_values_brings_no_older_version_back(engine: str, layout: str) -> None:
    table = create(**{"bucket": "1", "num-sorted-run.compaction-trigger": "100", **ENGINES[engine], **LAYOUTS[layout]})
    put(table, *(("+I", key, 1, 1) for key in range(10)))
    put(table, *(("+U", key, 2, 2) for key in range(0, 10, 2)))
    put(table, *(("+U", key, 5, 3) for key in range(0, 10, 4)))
    if engine in ("deduplicate", "by sequence"):
        put(table, ("-D", 1, 1, 9), ("-D", 4, 5, 9))
    whole = read(table)
    assert len(whole) == (8 if engine in ("deduplicate", "by sequence") else 10)
    for value in (1, 2, 3, 5, 8, 9):
        assert read(table, f"v = {value}") == [row for row in whole if row[1] == value], value
        assert table.count(f"v < {value}") == sum(row[1] < value for row in whole), value
        assert read(table, f"k >= 4 and w = {value}") == [row for row in whole if row[0] >= 4 and row[2] == value]
    assert read(table, "v is null") == []


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_a_condition_that_no_file_alone_fulfils_finds_merged_rows(engine: str) -> None:
    table = create(**{"bucket": "1", "write-only": "true", **ENGINES[engine]})
    put(table, ("+I", 1, 10, None), ("+I", 2, 10, None))
    put(table, ("+U", 1, None if engine == "partial-update" else 7, 3))
    where = "v = 10 and w = 3" if engine == "partial-update" else "v = 17 and w = 3"
    assert read(table, where) == [(1, 10 if engine == "partial-update" else 17, 3)]
    assert read(table, "w is null") == [(2, 10, None)]


@pytest.mark.parametrize("mode", ["none", "full", "truncate(2)"])
@pytest.mark.parametrize("layout", ["merged", "vectors"])
def test_statistics_of_older_columns_hide_no_row(mode: str, layout: str) -> None:
    options = {"bucket": "1", "metadata.stats-mode": mode, "metadata.stats-dense-store": "true", **LAYOUTS[layout]}
    table = create({"k": "INT NOT NULL", "v": "INT"}, **options)
    put(table, *(("+I", key, key) for key in range(4)))
    table.add_column("x", "STRING")
    table.change_type("v", "BIGINT")
    table.rename_column("v", "n")
    table = table.reload()
    put(table, ("+U", 3, 2**40, "y"), ("+I", 9, None, None))
    assert read(table, "x is null") == [(0, 0, None), (1, 1, None), (2, 2, None), (9, None, None)]
    assert read(table, "x = 'y'") == [(3, 2**40, "y")]
    assert read(table, "n > 2") == [(3, 2**40, "y")]
    assert read(table, "n = 3") == []
    assert read(table, "n <= 1") == [(0, 0, None), (1, 1, None)]
    assert read(table, "n is null") == [(9, None, None)]


def test_a_tag_named_like_a_number_goes_before_the_snapshot() -> None:
    table = create(bucket="1", **{"write-only": "true"})
    for number in (1, 2, 3):
        put(table, ("+I", number, number, number))
    table.create_tag("3", snapshot=1)
    assert table.with_options({"scan.version": "3"}).count() == 1
    assert table.with_options({"scan.version": "2"}).count() == 2
    assert table.with_options({"scan.snapshot-id": "3"}).count() == 3


def test_the_moment_of_a_commit_belongs_to_it() -> None:
    table = create(bucket="1", **{"write-only": "true"})
    for number in (1, 2, 3):
        put(table, ("+I", number, number, number))
    at = {"scan.timestamp-millis": str(table.snapshot(2).time_ms)}
    assert table.with_options(at).count() == 2
    stream = table.with_options(at).follow(timeout=0)
    assert [change.snapshot_id for change in stream] == [2, 3]


# ------------------------------------------------------------------------------------------------ producers (13.6)

COMMITS = ([("+I", 1, 1)], [("+U", 1, 2), ("+U", 1, 3)], [("-D", 1, 3)], [("-D", 1, 3)])
READ: dict[str, tuple[list[tuple[str, int, int]], ...]] = {
    "none": ([("+I", 1, 1)], [("+U", 1, 3)], [("-D", 1, 3)], [("-D", 1, 3)]),
    "input": COMMITS,
    "lookup": ([("+I", 1, 1)], [("-U", 1, 1), ("+U", 1, 3)], [("-D", 1, 3)], []),
    "full-compaction": ([], [("+I", 1, 3)], [], [("-D", 1, 3)]),
}


@pytest.mark.parametrize("producer", READ)
def test_the_worked_example_as_streams_and_ranges_read_it(producer: str) -> None:
    more = {"full-compaction.delta-commits": "2"} if producer == "full-compaction" else {}
    table = create({"k": "INT NOT NULL", "v": "INT"}, **{"bucket": "1", "changelog-producer": producer, **more})
    stream = table.follow(start="earliest", timeout=0, poll=0)
    ends = [0]
    for number, rows in enumerate(COMMITS, start=1):
        put(table, *rows, commit_user="u", identifier=number)
        ends.append(table.store.snapshots.latest_id() or 0)
    found = {step.snapshot_id: [tuple(row.values()) for row in step.to_arrow().to_pylist()] for step in stream}
    for wanted, since, until in zip(READ[producer], ends, ends[1:], strict=False):
        assert [tuple(row.values()) for row in table.changes(since, until).to_arrow().to_pylist()] == wanted
        assert [row for at, told in found.items() if since < at <= until for row in told] == wanted


# ------------------------------------------------------------------------------------------------ buckets (14.7)


def test_keys_of_one_hash_share_a_bucket_and_stay_two_rows() -> None:
    keys = np.arange(400_000) * 7919 + 10**12  # two words of which both vary; one word alone has no collisions
    hashes = np.asarray(hash_rows([pa.array(keys)], [with_nullable(BIGINT, False)]))
    order = np.argsort(hashes, kind="stable")
    twin = int(np.flatnonzero(np.diff(hashes[order]) == 0)[0])
    one, other = (int(keys[order[twin + side]]) for side in (0, 1))
    table = create({"k": "BIGINT NOT NULL", "v": "INT"}, **{"dynamic-bucket.target-row-num": "1"})
    put(table, ("+I", one, 1))
    put(table, ("+I", other, 2), ("+I", 5, 3))
    assert read(table) == sorted([(one, 1), (other, 2), (5, 3)])
    assert set(table.files().column("bucket").to_pylist()) == {0, 1}
    put(table, ("-D", one, 1), ("+U", other, 9))
    assert read(table) == [(5, 3), (other, 9)]
    assert table.check().ok
