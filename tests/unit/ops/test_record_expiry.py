"""Record-level expiry: compactions drop rows whose time is too long ago, and nobody else does."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.lsm.record_expiry import RecordExpiry, expiry_for
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import new_schema
from tidelake.spec.types.data_types import Field
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

NOW = 1_800_000_000
HOUR = {"record-level.expire-time": "1 h", "record-level.time-field": "ts"}
OLD, NEW = NOW - 7200, NOW - 60
DATE = dt.datetime(1970, 1, 1)


@pytest.fixture
def make():
    def table(dtype="INT", **options) -> Table:
        lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(NOW * 1000), SeededIds(1))))
        return lake.create_table(
            "d.t",
            {"k": "INT NOT NULL", "v": "STRING", "ts": dtype},
            primary_key=["k"],
            options={"bucket": "1", **HOUR, **options},
        )

    return table


def write(table: Table, *rows: tuple[object, ...]) -> None:
    table.write([dict(zip(("k", "v", "ts"), row, strict=True)) for row in rows])


def shown(table: Table) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in table.to_arrow().to_pylist())


def files(table: Table) -> list[tuple[int, str]]:
    return [(row["level"], row["file_name"]) for row in table.files().to_pylist()]


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        ("INT", lambda second: second),
        ("BIGINT", lambda second: second),
        ("BIGINT", lambda second: second * 1000 + 999),
        ("TIMESTAMP(0)", lambda second: DATE + dt.timedelta(seconds=second)),
        ("TIMESTAMP(3)", lambda second: DATE + dt.timedelta(seconds=second, milliseconds=999)),
        ("TIMESTAMP(6)", lambda second: DATE + dt.timedelta(seconds=second, microseconds=999_999)),
        ("TIMESTAMP(9)", lambda second: DATE + dt.timedelta(seconds=second)),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            lambda second: (DATE + dt.timedelta(seconds=second)).replace(tzinfo=dt.UTC),
        ),
    ],
)
def test_rows_are_gone_the_second_after_their_time(make, dtype, unit):
    table = make(dtype)
    last = NOW - 3600
    write(table, (1, "gone", unit(last - 1)), (2, "stays", unit(last)), (3, "no time", None), (4, "new", unit(NEW)))
    write(table, (4, "newer", unit(NEW)))
    assert [k for k, _ in shown(table)] == [1, 2, 3, 4]
    table.compact(full=True)
    assert [k for k, _ in shown(table)] == [2, 3, 4]
    assert table.check(rows=True).ok


def test_numbers_from_a_million_millions_on_are_milliseconds():
    field = Field(0, "ts", new_schema({"ts": "BIGINT"}, time_ms=0).fields[0].type)
    expiry = RecordExpiry(field, 3600)
    times = pa.array([999_999_999_999, 1_000_000_000_000, -(2**63), 2**63 - 1, -(10**13), None], pa.int64())
    assert expiry.mask_expired(times, NOW * 1000).tolist() == [False, True, True, False, True, False]


def test_an_expired_version_no_longer_hides_an_older_one(make):
    table = make()
    write(table, (1, "older", NEW), (2, "b", NEW))
    write(table, (1, "newer", OLD))
    table.write([{"k": 2, "v": "b", "ts": OLD, "rowkind": "-D"}])
    assert shown(table) == [(1, "newer")]
    table.compact(full=True)
    assert shown(table) == [(1, "older"), (2, "b")]


def test_what_was_folded_before_it_expired_stays_folded(make):
    table = make(**{"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"})
    write(table, (1, "a", OLD))
    write(table, (1, "b", NEW))
    assert shown(table) == [(1, "a,b")]
    table.compact(full=True)
    assert shown(table) == [(1, "b")]


def test_a_file_is_only_moved_when_no_row_of_it_has_expired(make):
    table = make(**{"write-only": "true"})
    write(table, (1, "a", NEW))
    before = files(table)
    table.compact(full=True)
    assert files(table) == [(5, before[0][1])]
    expiring = make(**{"write-only": "true"})
    write(expiring, (1, "a", OLD), (2, "b", NEW))
    before = files(expiring)
    expiring.compact(full=True)
    assert files(expiring)[0][0] == 5
    assert files(expiring)[0][1] != before[0][1]


def test_a_full_compaction_takes_files_of_the_lowest_level_once_their_time_has_passed(make):
    table = make(**{"target-file-size": "1 b"})
    waiting = table.with_options({"write-only": "true"})
    write(waiting, (1, "a", NEW), (2, "b", NEW + 600))
    write(waiting, (5, "c", NEW + 600), (6, "d", NEW + 600))
    table.compact(full=True)
    settled = files(table)
    assert [level for level, _ in settled] == [5, 5]
    assert table.compact(full=True).snapshot_ids == ()
    table.store.env.clock.jump(3_640)
    assert shown(table) == [(1, "a"), (2, "b"), (5, "c"), (6, "d")]
    assert table.compact(full=True, plan_only=True).files == 1
    table.compact(full=True)
    assert shown(table) == [(2, "b"), (5, "c"), (6, "d")]
    assert len(set(settled) & set(files(table))) == 1


def test_a_file_whose_rows_have_all_expired_leaves_nothing(make):
    table = make()
    write(table, (1, "a", OLD))
    table.compact(full=True)
    assert files(table) == []
    assert shown(table) == []


def test_a_file_without_statistics_is_not_known_to_hold_expired_rows(make):
    table = make(**{"metadata.stats-mode": "none"})
    write(table, (1, "a", OLD), (2, "b", NEW))
    table.compact(full=True)
    assert shown(table) == [(1, "a"), (2, "b")]
    write(table, (3, "c", NEW))
    table.compact(full=True)
    assert shown(table) == [(2, "b"), (3, "c")]


def test_a_time_column_that_came_later_or_became_wider_is_understood(make):
    table = make(**{"write-only": "true"})
    write(table, (1, "a", OLD), (2, "b", NEW))
    wider = table.alter(types={"ts": "BIGINT"})
    write(wider, (3, "c", OLD * 1000), (4, "d", NEW * 1000))
    wider.compact(full=True)
    assert shown(wider) == [(2, "b"), (4, "d")]


def test_a_first_row_that_expired_still_hides_later_ones_below_it(make):
    steps = {"compaction.max-size-amplification-percent": "100000", "compaction.size-ratio": "-99"}
    table = make(**{"merge-engine": "first-row", **steps})
    patient = table.with_options({"record-level.expire-time": "100 d"})
    patient.write([{"k": k, "v": "x", "ts": OLD if k == 1 else NEW} for k in range(300)])
    patient.compact(full=True)
    write(table, (1, "new", NEW), (1000, "y", NEW))
    found = dict(shown(table))
    assert (found[1], found[1000]) == ("x", "y")


@pytest.mark.parametrize("dtype", ["STRING", "DATE", "SMALLINT", "DOUBLE", "TIME(3)", "DECIMAL(10, 0)"])
def test_a_column_that_tells_no_time_is_refused_when_the_table_is_made(make, dtype):
    with pytest.raises(InvalidInputError, match="cannot be used for record-level expiry"):
        make(dtype)


def test_expiry_needs_a_column_that_exists():
    with pytest.raises(InvalidInputError, match="needs a time column"):
        new_schema({"k": "INT"}, options={"record-level.expire-time": "1 h"}, time_ms=0)
    with pytest.raises(InvalidInputError, match="does not exist"):
        new_schema({"k": "INT"}, options={**HOUR}, time_ms=0)


def test_a_table_of_others_without_the_column_is_refused_when_it_is_compacted():
    schema = new_schema({"k": "INT", "d": "DATE"}, time_ms=0)
    assert expiry_for(schema, TableOptions()) is None
    assert expiry_for(schema, TableOptions({"record-level.time-field": "d"})) is None
    with pytest.raises(InvalidInputError, match="needs a time column"):
        expiry_for(schema, TableOptions({"record-level.expire-time": "1 h"}))
    with pytest.raises(InvalidInputError, match="cannot be the time column"):
        expiry_for(schema, TableOptions({"record-level.expire-time": "1 h", "record-level.time-field": "d"}))


BELOW = {"compaction.max-size-amplification-percent": "100000", "compaction.size-ratio": "-99"}
"""Sizes do not matter: level 0 is lifted to the level above the last one."""


def with_expired_below(make, **options) -> Table:
    """A table whose lowest level has two rows that expired since."""
    table = make(**BELOW, **options)
    fresh = table.with_options({"record-level.expire-time": "30 d"})
    write(fresh, (1, "old", OLD), (2, "old", OLD), *((k, "x", NEW) for k in range(10, 300)))
    fresh.compact(full=True)
    return table


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_row_that_expired_is_not_folded_into_a_newer_one_and_not_told_of(make, vectors):
    how = {"merge-engine": "partial-update", "changelog-producer": "lookup", "deletion-vectors.enabled": vectors}
    table = with_expired_below(make, **how)
    seen = table.latest_snapshot().id
    write(table, (1, None, NEW), (3, "new", NEW))
    assert {row["k"]: row["v"] for row in table.to_arrow(where="k in (1, 3)").to_pylist()} == {1: None, 3: "new"}
    told = table.changes(seen).to_arrow().to_pylist()
    assert sorted((row["rowkind"], row["k"]) for row in told) == [("+I", 1), ("+I", 3)]
    assert table.count() == 2 + 290 + 1  # nobody has met the other row that expired
    assert table.check(deep=True, rows=True).ok


def test_a_row_that_expired_is_marked_when_its_key_is_written_or_deleted(make):
    table = with_expired_below(make, **{"deletion-vectors.enabled": "true", "sequence.field": "v"})
    table.write([{"k": 1, "v": "a", "ts": NEW, "rowkind": "+I"}, {"k": 2, "v": "z", "ts": NEW, "rowkind": "-D"}])
    assert [each for each in shown(table) if each[0] < 10] == [(1, "a")]
    assert table.check(deep=True, rows=True).ok
