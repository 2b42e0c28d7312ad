"""Updates whose two rows lie in two changelog files: every view shows them as if one file held both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kit.changelogs import UPDATES, changelog_files, cut_in_two, cut_updates, last_told
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.expr.parse import parse_where
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.read.binlog import halves, pack_updates
from tidelake.ops.scan.request import ReadRequest, Shape
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import INT, Field, with_nullable
from tidelake.testing import FakeClock, MemoryFileIO

APART = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}


@pytest.fixture
def lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=5), SeededIds(1))))


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


PRODUCERS = ("input", "lookup", "full-compaction")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_an_update_is_one_row_where_a_changelog_file_ends_between_its_halves(
    lake: Lake, producer: str, rows: int
) -> None:
    table = cut_updates(lake, "d.t", producer, rows=rows)
    latest = last_told(table)
    assert len(changelog_files(table, latest)) >= 4
    assert cut_in_two(table, latest) >= 2
    for options in ({}, APART):
        log = lake.table("d.t$binlog").with_options(options)
        scan = log.changes(latest - 1, latest)
        assert len(scan.splits()) == (len(changelog_files(table, latest)) if options else 2)
        assert sorted(map(values, scan.to_arrow().to_pylist())) == UPDATES
        assert scan.count() == len(UPDATES)
        between = log.with_options({"incremental-between": f"{latest - 1},{latest}"})
        assert sorted(map(values, between.to_arrow().to_pylist())) == UPDATES


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_condition_keeps_or_drops_an_update_whole(lake: Lake, producer: str) -> None:
    table = cut_updates(lake, "d.t", producer)
    latest = last_told(table)
    log = lake.table("d.t$binlog").with_options(APART)

    def shown(where: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
        scan = log.changes(latest - 1, latest, columns=columns, where=where)
        assert scan.count() == scan.to_arrow().num_rows
        return sorted(map(values, scan.to_arrow().to_pylist()))

    one = [row for row in UPDATES if row[2] == [4, 4]]
    assert shown("k = 4") == one
    assert shown("v = 'new4'") == one  # true of the row after alone
    assert shown("v = 'old'") == UPDATES  # true of the row before alone
    assert shown("v = 'old' and p = 'x'") == UPDATES[:4]
    assert shown("v = 'new4' or (p = 'y' and k = 2)") == sorted(
        one + [r for r in UPDATES if r[1:3] == (["y"] * 2, [2] * 2)]
    )
    assert shown("v = 'none'") == []
    assert shown("v = 'new2'", ["n"]) == [("+U", [2, 2])] * 2
    everything = log.changes(0, latest, where="v = 'old'")
    kinds = everything.to_arrow().column("rowkind").to_pylist()
    assert sorted(kinds) == ["+I"] * 16 + ["+U"] * 8


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_limit_counts_updates_whole(lake: Lake, producer: str) -> None:
    table = cut_updates(lake, "d.t", producer)
    latest = last_told(table)
    log = lake.table("d.t$binlog").with_options({**APART, "incremental-between": f"{latest - 1},{latest}"})
    for limit in (1, 3, 100):
        found = list(map(values, log.to_arrow(limit=limit).to_pylist()))
        assert found == sorted(found) == UPDATES[:limit]
    assert list(map(values, log.to_arrow(where="v = 'new6'", limit=1).to_pylist())) == [UPDATES[3]]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_other_ways_to_read_changes_see_both_rows(lake: Lake, producer: str) -> None:
    table = cut_updates(lake, "d.t", producer)
    latest = last_told(table)
    halves_of = [
        (kind, p, k, v, k) for p in "xy" for k in range(0, 8, 2) for kind, v in (("-U", "old"), ("+U", f"new{k}"))
    ]
    audit = lake.table("d.t$audit_log").with_options(APART)
    apart = table.with_options(APART)
    for scan in (apart.changes(latest - 1, latest), audit.changes(latest - 1, latest)):
        assert list(map(values, scan.to_arrow().to_pylist())) == halves_of
        assert scan.count() == len(halves_of)
    after = apart.changes(latest - 1, latest, where="v = 'new4'").to_arrow().to_pylist()
    assert [row["rowkind"] for row in after] == ["+U", "+U"]
    for followed, rows in ((apart, halves_of), (audit, halves_of), (lake.table("d.t$binlog"), UPDATES)):
        with followed.follow(start=latest, timeout=0) as stream:
            assert [list(map(values, change.to_arrow().to_pylist())) for change in stream] == [rows]
    with lake.table("d.t$binlog").with_options(APART).follow(start=latest, timeout=0, where="v = 'new4'") as stream:
        found = [values(row) for change in stream for row in change.to_arrow().to_pylist()]
    assert found == [row for row in UPDATES if row[2] == [4, 4]]


# ------------------------------------------------------------------------------------------------ small parts


FIELDS = (Field(0, "k", with_nullable(INT, False)), Field(1, "n", INT))


def request(where: str | None = None, columns: tuple[str, ...] = ("n",)) -> ReadRequest:
    schema = Schema(id=0, fields=FIELDS, highest_field_id=1, primary_keys=("k",))
    condition = None if where is None else parse_where(where, FIELDS)
    return ReadRequest(schema=schema, columns=columns, where=condition, shape=Shape.BINLOG)


def changes(asked: ReadRequest, kinds: list[str], keys: list[int], cut: int) -> Iterator[pa.RecordBatch]:
    read = halves(asked)
    given = {"rowkind": kinds, "k": keys, "n": list(range(len(kinds)))}
    rows = pa.record_batch([pa.array(given[each.name], each.type) for each in read.arrow_schema], read.arrow_schema)
    return pack_updates([rows.slice(0, cut), rows.slice(cut)], asked)


@pytest.mark.parametrize("cut", range(8))
def test_updates_are_packed_wherever_batches_end(cut: int) -> None:
    kinds = ["+I", "-U", "+U", "-D", "-U", "-U", "+U"]
    found = changes(request(), kinds, [0, 1, 1, 2, 3, 4, 4], cut)
    plain = [(row["rowkind"], row["n"]) for batch in found for row in batch.to_pylist()]
    assert plain == [("+I", [0]), ("+U", [1, 2]), ("-D", [3]), ("-U", [4]), ("+U", [5, 6])]


@pytest.mark.parametrize("cut", range(5))
def test_halves_of_two_keys_are_no_update(cut: int) -> None:
    found = changes(request(), ["-U", "+U", "-U", "+U"], [1, 2, 3, 3], cut)
    assert [row["n"] for batch in found for row in batch.to_pylist()] == [[0], [1], [2, 3]]


@pytest.mark.parametrize("cut", range(6))
def test_a_condition_looks_at_both_halves_wherever_batches_end(cut: int) -> None:
    kinds, keys = ["-U", "+U", "-U", "+U", "+I"], [1, 1, 2, 2, 3]
    found = changes(request("n = 1 or n = 2"), kinds, keys, cut)
    assert [row["n"] for batch in found for row in batch.to_pylist()] == [[0, 1], [2, 3]]


def test_keys_are_left_out_again_where_they_are_not_asked_for() -> None:
    assert halves(request("n = 1", ("n",))).columns == ("n", "k")
    assert halves(request("n = 1")).where is None
    assert str(halves(request("n = 1 and k = 2")).where) == str(parse_where("k = 2", FIELDS))
    found = list(changes(request("k > 0 and n = 1"), ["-U", "+U"], [1, 1], 1))
    assert [batch.schema.names for batch in found] == [["rowkind", "n"]]
