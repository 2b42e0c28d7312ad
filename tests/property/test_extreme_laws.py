"""The laws of `count`, `min` and `max`: they are those of the rows that a scan returns, however they are found."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
COLUMNS = {
    "id": "INT NOT NULL",
    "p": "STRING NOT NULL",
    "b": "BOOLEAN",
    "n": "INT",
    "s": "STRING",
    "y": "BYTES",
    "f": "FLOAT",
    "g": "DOUBLE",
    "c": "DECIMAL(10, 2)",
    "d": "DATE",
    "m": "TIMESTAMP(6)",
    "z": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
}
START = dt.datetime(2020, 1, 1)

number = st.integers(-4, 4)
floats = st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("nan"), float("inf")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "n": number,
    "s": st.sampled_from(["", "a", "ab", "b", "z" * 20, "z" * 20 + "a", "ü"]),
    "y": st.sampled_from([b"", b"\xff" * 20, b"\xff", b"a"]),
    "f": floats,
    "g": floats,
    "c": number.map(lambda cents: Decimal(cents) / 100),
    "d": number.map(lambda days: START.date() + dt.timedelta(days)),
    "m": number.map(lambda n: START + dt.timedelta(microseconds=n)),
    "z": number.map(lambda n: START.replace(tzinfo=dt.UTC) + dt.timedelta(milliseconds=n)),
}
row = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "p": st.sampled_from("abc"),
        **{name: st.none() | values for name, values in VALUES.items()},
    }
)
writes = st.lists(st.lists(row, min_size=1, max_size=4), max_size=4)
TABLES: list[dict[str, Any]] = [
    {"options": {}},
    {"options": {"metadata.stats-mode": "full"}, "partition_by": ["p"]},
    {"options": {"file.format": "orc", "metadata.stats-mode": "counts"}},
    {"options": {"file.format": "avro", "deletion-vectors.enabled": "true"}, "partition_by": ["p"]},
    {"options": {"bucket": "1"}, "primary_key": ["id"]},
    {"options": {"bucket": "2", "write-only": "true"}, "primary_key": ["p", "id"], "partition_by": ["p"]},
    {"options": {"bucket": "1", "deletion-vectors.enabled": "true"}, "primary_key": ["id"]},
    {
        "options": {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        "primary_key": ["id"],
    },
]
CONDITIONS = [None, "p <> 'b'", "p = 'no'", "n > 0", "id < 5 and p <> 'c'"]


def filled(shape: dict[str, Any], written: list[list[dict[str, Any]]], *, widens: bool, deletes: bool) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    table = lake.create_table("d.t", COLUMNS, **shape)
    for turn, rows in enumerate(written):
        table.write(rows)
        if turn == 1 and widens:
            table = table.alter(types={"n": "BIGINT", "f": "DOUBLE"}, add={"late": "INT"}, rename={"c": "cents"})
            table = table.alter(rename={"cents": "c"})
        if turn == 1 and deletes and "aggregation" not in shape["options"].values():
            table.delete("id < 3")
        if turn == 2:
            table.compact(full=True)
    return table


def rank(value: Any) -> tuple[int, Any]:
    return (1, 0) if value != value else (0, value)


@given(st.sampled_from(TABLES), writes, st.sampled_from(CONDITIONS), st.booleans(), st.booleans())
@FEW
def test_count_min_and_max_are_those_of_the_rows(shape, written, where, widens, deletes) -> None:
    table = filled(shape, written, widens=widens, deletes=deletes)
    rows = table.to_arrow(where=where)
    scan = table.scan(where=where)
    scan.explain()
    assert scan.count() == rows.num_rows
    for name in table.schema.names:
        values = [value for value in rows.column(name).to_pylist() if value is not None]
        expected = (min(values, key=rank), max(values, key=rank)) if values else (None, None)
        found = (scan.min(name), scan.max(name))
        assert list(map(repr_of, found)) == list(map(repr_of, expected)), name


def repr_of(value: Any) -> str:
    """NaN equals itself here, and the zeros equal each other."""
    return repr(value + 0.0 if isinstance(value, float) else value)
