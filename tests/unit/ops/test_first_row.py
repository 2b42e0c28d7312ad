"""First-row tables: level 0 is lifted by itself, and what exists below the output of a compaction is left out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from random import Random  # noqa: TID251 - drawn from fixed seeds

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.ops.compact.level_lookup import LevelLookup
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.split import bucket_splits
from tidelake.table import Table

STEPS = {"compaction.max-size-amplification-percent": "100000", "compaction.size-ratio": "-99"}
"""Nothing is taken along, so that every lift of level 0 ends on a level of its own."""
KEYS = {
    "INT": lambda n: n - 500,
    "STRING": lambda n: f"key-{n:06d}" + "é" * (n % 3),
    "DECIMAL(20, 2)": lambda n: Decimal(n - 25).scaleb(-2),
    "TIMESTAMP(6)": lambda n: dt.datetime(1969, 12, 31, 23, 50) + dt.timedelta(seconds=n),
    "BYTES": lambda n: bytes([n % 256, n // 256]),
    "DOUBLE": lambda n: float("nan") if n == 7 else (n - 20) / 4,
    "DATE": lambda n: dt.date(1969, 12, 31) + dt.timedelta(days=n),
}


@pytest.fixture
def make(tmp_path):
    def table(key="INT", primary_key=("k",), name="d.t", **options) -> Table:
        return tl.connect(tmp_path).create_table(
            name,
            {"k": f"{key} NOT NULL", "c": "INT NOT NULL", "v": "BIGINT"},
            primary_key=list(primary_key),
            options={"bucket": "1", "merge-engine": "first-row", **options},
        )

    return table


def levels(table: Table) -> list[tuple[int, int]]:
    found = table.inspect.lsm()
    return list(zip(found["level"].to_pylist(), found["files"].to_pylist(), strict=True))


def write(table: Table, *rows: tuple[object, ...]) -> None:
    table.write([dict(zip(("k", "c", "v"), row, strict=True)) for row in rows])


def values(table: Table) -> dict[str, object]:
    rows = table.to_arrow().to_pylist()
    found = {repr((row["k"], row["c"])): row["v"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def test_level_0_is_lifted_without_touching_what_lies_below(make):
    table = make(**STEPS)
    write(table, *((k, 0, k) for k in range(100)))
    assert levels(table) == [(5, 1)]
    bottom = table.files()["file_name"].to_pylist()
    write(table, (50, 0, -1), (100, 0, 1))
    assert levels(table) == [(4, 1), (5, 1)]
    assert set(bottom) < set(table.files()["file_name"].to_pylist())
    assert [file["row_count"] for file in table.files().to_pylist() if file["level"] == 4] == [1]
    assert values(table)["(50, 0)"] == 50
    assert values(table)["(100, 0)"] == 1


def test_a_file_of_rows_that_all_exist_below_leaves_nothing(make):
    table = make(**STEPS)
    write(table, (1, 0, 1), (2, 0, 2))
    write(table, (1, 0, 9), (2, 0, 9))
    assert levels(table) == [(5, 1)]
    assert values(table) == {"(1, 0)": 1, "(2, 0)": 2}


@pytest.mark.parametrize(
    ("key", "file_format"), [(key, ("parquet", "avro", "orc")[turn % 3]) for turn, key in enumerate(KEYS)]
)
def test_the_first_row_of_each_key_is_kept_over_many_levels(make, key, file_format):
    rng = Random(f"{key} {file_format}")
    table = make(key, primary_key=("k", "c"), **STEPS, **{"target-file-size": "2 kb", "file.format": file_format})
    model: dict[str, object] = {}
    depths = set()
    for step in range(8):
        rows = []
        for _ in range(rng.choice([1, 5, 60])):
            made = KEYS[key](rng.randrange(1 << 9))
            rows.append((made, rng.randrange(2), len(model) + step))
            model.setdefault(repr(rows[-1][:2]), rows[-1][2])
        write(table, *rows)
        depths.add(len(levels(table)))
        assert values(table) == model, step
    assert max(depths) >= 3, "nothing was ever looked up"
    assert table.check(rows=True).ok


def test_a_gentle_table_lets_level_0_wait(make):
    table = make(
        **{
            **STEPS,
            "lookup-compact": "gentle",
            "lookup-compact.max-interval": "3",
            "num-sorted-run.compaction-trigger": "3",
        }
    )
    write(table, (1, 0, 1))
    assert levels(table) == [(0, 1)]
    assert values(table) == {}
    table.compact(full=True)
    assert values(table) == {"(1, 0)": 1}


def test_rows_of_two_writers_whose_numbers_overlap_are_looked_up_all_the_same(make):
    table = make(**STEPS, **{"write-only": "true"})
    one, other = table.new_write(), table.new_write()
    schema = table.schema.to_arrow()
    one.write(pa.RecordBatch.from_pylist([{"k": 1, "c": 0, "v": 1}, {"k": 5, "c": 0, "v": 1}], schema=schema))
    other.write(pa.RecordBatch.from_pylist([{"k": 1, "c": 0, "v": 2}, {"k": 9, "c": 0, "v": 2}], schema=schema))
    table.new_commit().commit(one.prepare_commit())
    table.new_commit().commit(other.prepare_commit())
    table.with_options({"write-only": "false"}).compact()
    assert values(table) == {"(1, 0)": 1, "(5, 0)": 1, "(9, 0)": 2}


def test_retractions_are_refused_or_left_out(make):
    table = make()
    both = [{"k": 1, "c": 0, "v": 1, "rowkind": "+I"}, {"k": 1, "c": 0, "v": 1, "rowkind": "-D"}]
    with pytest.raises(InvalidInputError, match="does not accept -U and -D rows"):
        table.write(both)
    patient = make(name="d.u", **{"ignore-delete": "true"})
    patient.write(both)
    assert values(patient) == {"(1, 0)": 1}


# ------------------------------------------------------------------------------------------------ the look-up itself


def looker(table: Table, columns: tuple[str, ...] = ()) -> LevelLookup:
    store = table.store.manifests
    entries = live_entries(store, data_manifests(store, table.latest_snapshot()))
    (split,) = bucket_splits(entries, 1, table.paths, None)
    merging = Merging(table.schema, table.context.options)
    files = sorted(merging.files(split.files), key=lambda file: (file.level, file.min_key))
    depths = sorted({file.level for file in files})
    runs = [[file for file in files if file.level == level] for level in depths]
    return LevelLookup(table.store, split, merging, runs, columns=columns)


def wide(make, *ranges: range) -> Table:
    """A table whose lowest level has a file for each range of keys."""
    table = make(**STEPS, **{"target-file-size": "1 kb"})
    waiting = table.with_options({"write-only": "true"})
    for keys in ranges:
        write(waiting, *((k, 0, k * 10) for k in keys))
    table.compact(full=True)
    assert levels(table) == [(5, len(ranges))]
    return table


def asked(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32())})


def test_a_look_up_tells_the_file_the_place_and_the_values(make):
    table = wide(make, range(0, 100, 2), range(100, 200, 2), range(200, 400, 2))
    write(table, (1, 0, 11), (3, 0, 33))
    lookup = looker(table, ("v",))
    found = lookup.find(asked(-5, 0, 1, 2, 5, 398, 399))
    assert found.hits.tolist() == [False, True, True, True, False, True, False]
    assert found.values.column("v").to_pylist() == [0, 11, 20, 3980]
    assert [lookup.files[file].level for file in found.files[found.hits]] == [5, 4, 5, 5]
    by_name = {file["file_name"]: file for file in table.files().to_pylist()}
    for key, file, place in zip([0, 1, 2, 398], found.files[found.hits], found.positions[found.hits], strict=True):
        name = lookup.files[file].name
        path = f"{table.location.removeprefix('file://')}/bucket-0/{name}"
        assert pq.read_table(path)["k"][int(place)].as_py() == key
        assert place < by_name[name]["row_count"]


def test_keys_may_be_asked_for_in_many_calls(make):
    table = wide(make, range(0, 90, 3), range(90, 120, 3), range(120, 300, 3))
    whole, lookup = looker(table), looker(table)
    keys = list(range(-2, 310))
    at_once = whole.find(asked(*keys))
    cuts = [0, 1, 2, 50, 51, 200, len(keys)]
    parts = [lookup.find(asked(*keys[a:b])) for a, b in pairwise(cuts)]
    assert np.concatenate([part.hits for part in parts]).tolist() == at_once.hits.tolist()
    assert np.concatenate([part.positions for part in parts]).tolist() == at_once.positions.tolist()
    assert at_once.hits.tolist() == [0 <= key < 300 and key % 3 == 0 for key in keys]


def test_files_that_no_key_can_lie_in_are_not_opened(make, tmp_path):
    table = wide(make, range(500), range(500, 800), range(800, 1000))
    lookup = looker(table)
    near = next(file for file in lookup.files if file.min_key <= (700,) <= file.max_key)
    for file in lookup.files:
        if file.name != near.name:
            (tmp_path / "d.db/t/bucket-0" / file.name).write_bytes(b"unreadable")
    assert lookup.find(asked(700)).hits.tolist() == [True]


# ------------------------------------------------------------------------------------------------ read-optimised


def test_a_read_optimised_read_shows_what_full_compactions_left(make):
    table = make(**STEPS, name="d.ro")
    write(table, (1, 0, 1), (2, 0, 2))
    write(table, (3, 0, 3))
    assert table.scan(["k"]).read_optimized().to_arrow()["k"].to_pylist() == [1, 2]
    assert table.inspect.ro()["k"].to_pylist() == [1, 2]
    assert table.at(snapshot=1).inspect.ro().num_rows == 0
    assert table.scan(where="v = 2").read_optimized().count() == 1
    table.compact(full=True)
    assert table.inspect.ro()["k"].to_pylist() == [1, 2, 3]
