"""Merging reads of primary-key tables: key columns that files store by number, and how much of a run is in hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.lsm.coded import Coded
from tidelake.ops.read.keyed import HAND_ROWS, hand_rows
from tidelake.table import Table

COLUMNS = {"shop": "STRING NOT NULL", "k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
ROWS = 6000


def version(start: int, step: int, number: int) -> pa.Table:
    chosen = range(start, ROWS, step)
    return pa.table(
        {
            "shop": [f"shop-{n // 100:06d}" for n in chosen],
            "k": pa.array([n % 100 for n in chosen], pa.int32()),
            "v": pa.array([number] * len(chosen), pa.int64()),
            "s": [f"s{number}"] * len(chosen),
        }
    )


def filled(lake: Any, base: str = "parquet", top: str = "parquet", **options: str) -> Table:
    settings = {"bucket": "1", "write-only": "true", **options}
    table = lake.create_table("d.t", COLUMNS, primary_key=["shop", "k"], options=settings)
    table.with_options({"file.format": base}).write(version(0, 1, 0))
    table.with_options({"file.format": top}).write(version(1, 3, 1))
    table.write(version(0, 700, 2))  # too few rows for a dictionary to be worth it
    table.write([{"shop": "shop-000000", "k": 1, "v": 0, "s": None, "rowkind": "-D"}])
    return table


def expected(engine: str = "deduplicate") -> dict[tuple[str, int], int]:
    found = {(f"shop-{n // 100:06d}", n % 100): 0 for n in range(ROWS)}
    for start, step, number in ((1, 3, 1), (0, 700, 2)):
        for n in range(start, ROWS, step):
            key = (f"shop-{n // 100:06d}", n % 100)
            found[key] = number + (found[key] if engine == "aggregation" else 0)
    if engine == "deduplicate":
        del found["shop-000000", 1]
    return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every key column that came by number."""
    made: list[int] = []
    real = Coded.of.__func__  # type: ignore[attr-defined]

    def noted(cls: Any, array: pa.Array) -> Coded:
        made.append(len(array))
        return real(cls, array)

    monkeypatch.setattr(Coded, "of", classmethod(noted))
    return made


@pytest.mark.parametrize(
    ("base", "top"), [("parquet", "parquet"), ("parquet", "avro"), ("parquet", "orc"), ("orc", "parquet")]
)
def test_key_columns_come_by_number_where_files_have_them_so(tmp_path, seen, base, top):
    table = filled(tl.connect(tmp_path), base, top)
    seen.clear()
    whole = {(row["shop"], row["k"]): row["v"] for row in table.to_arrow().to_pylist()}
    assert whole == expected()
    assert seen == [rows for rows, kind in ((ROWS, base), (ROWS // 3, top)) if kind == "parquet"]
    assert sorted(table.to_arrow(columns=["v"])["v"].to_pylist()) == sorted(whole.values())
    assert table.to_arrow(columns=["shop", "v"]).schema.field("shop").type == pa.string()
    assert table.count() == len(whole)
    one = table.to_arrow(where="shop = 'shop-000007' AND k < 3")
    assert sorted(one["k"].to_pylist()) == [0, 1, 2]
    assert table.to_arrow(where="v = 2", columns=["shop"])["shop"].to_pylist() == [
        key[0] for key in sorted(whole) if whole[key] == 2
    ]


def test_a_compaction_of_key_columns_by_number_writes_plain_rows_in_order(tmp_path, seen):
    table = filled(tl.connect(tmp_path)).with_options({"write-only": "false"})
    seen.clear()
    table.compact(full=True)
    assert ROWS in seen
    found = table.to_arrow()
    assert found.schema.field("shop").type == pa.string()
    keys = list(zip(found["shop"].to_pylist(), found["k"].to_pylist(), strict=True))
    assert keys == sorted(expected())
    assert dict(zip(keys, found["v"].to_pylist(), strict=True)) == expected()


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_engines_that_look_at_their_keys_get_them(tmp_path, engine):
    options = {"merge-engine": engine, "ignore-delete": "true"}
    if engine == "aggregation":
        options["fields.v.aggregate-function"] = "sum"
    table = filled(tl.connect(tmp_path), **options)
    wanted = expected(engine)
    assert sorted(table.to_arrow(columns=["v"])["v"].to_pylist()) == sorted(wanted.values())
    found = table.to_arrow(columns=["k", "shop", "v"]).to_pylist()
    assert {(row["shop"], row["k"]): row["v"] for row in found} == wanted


def test_a_merge_has_as_much_of_a_run_in_hand_as_its_share_and_the_width_of_its_rows_allow():
    narrow, wide = [pa.int32(), pa.int32()], [pa.string()] * 100
    assert hand_rows([10_000_000, 5_000_000], narrow) == [HAND_ROWS, HAND_ROWS]
    base, small, tiny = hand_rows([10_000_000, 1_000_000, 1], narrow)
    assert (base, small, tiny) == (HAND_ROWS, HAND_ROWS // 4, HAND_ROWS // 4)
    assert hand_rows([10_000_000, 3_000_000], narrow)[1] == HAND_ROWS * 3 // 5
    assert hand_rows([1000, 1000], wide)[0] < HAND_ROWS // 16
    assert sum(hand_rows([1000] * 64, narrow)) == sum(hand_rows([1000] * 128, narrow))
    assert all(rows > 0 for rows in hand_rows([0, 0], []))
