"""Laws of first-row tables: the first row of a key is shown, however commits and compactions are dealt out.

And of the look-up they rest on: it finds what a dictionary of the lower levels holds, whatever the keys look like.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.lsm.keys import window
from tidelake.ops.compact.level_lookup import LevelLookup
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.scan.split import bucket_splits
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

TEXTS = st.sampled_from(["", "a", "a\0", "a\0b", "user-0000000001", "user-00000000011", "user-0000000002", "é", "zz"])
KEYS = {"INT": st.integers(-8, 8), "STRING": TEXTS, "DOUBLE": st.sampled_from([-0.0, 0.0, 1.5, float("inf"), -2.0])}


def new_table(key: str, columns: int, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(), SeededIds(1))))
    names = [f"k{number}" for number in range(columns)]
    return lake.create_table(
        "d.t",
        {**dict.fromkeys(names, f"{key} NOT NULL"), "v": "INT"},
        primary_key=names,
        options={
            "bucket": "1",
            "compaction.max-size-amplification-percent": "100000",
            "compaction.size-ratio": "-99",
            "num-sorted-run.compaction-trigger": "4",
            **options,
        },
    )


def write(table: Table, keys: list[tuple[object, ...]], first: int) -> None:
    rows = [{**{f"k{i}": part for i, part in enumerate(key)}, "v": first + place} for place, key in enumerate(keys)]
    table.write(pa.Table.from_pylist(rows, schema=table.schema.to_arrow()))


@st.composite
def histories(draw):
    key = draw(st.sampled_from(sorted(KEYS)))
    columns = draw(st.integers(1, 2))
    some = st.lists(st.tuples(*[KEYS[key]] * columns), min_size=1, max_size=12)
    steps = draw(st.lists(st.one_of(some, some, some, st.sampled_from(["compact", "full"])), min_size=2, max_size=7))
    return key, columns, steps


@settings(max_examples=12, deadline=None)
@given(histories(), st.booleans())
def test_the_first_row_of_a_key_is_shown_once_level_0_is_lifted(history, gentle):
    key, columns, steps = history
    options = {"merge-engine": "first-row", **({"lookup-compact": "gentle"} if gentle else {})}
    table = new_table(key, columns, **options)
    model: dict[str, int] = {}
    count = 0
    for step in steps:
        if isinstance(step, str):
            table.compact(full=step == "full")
        else:
            write(table, step, count)
            for each in step:
                model.setdefault(repr(each), count)
                count += 1
        found = table.to_arrow().to_pylist()
        shown = {repr(tuple(row.values())[:-1]): row["v"] for row in found}
        assert len(shown) == len(found)
        assert shown.items() <= model.items(), "a later row is shown"
        if not gentle:
            assert shown == model
    table.compact(full=True)
    assert {repr(tuple(row.values())[:-1]): row["v"] for row in table.to_arrow().to_pylist()} == model
    assert table.count() == len(model)


@settings(max_examples=40, deadline=None)
@given(histories(), st.data())
def test_a_look_up_finds_what_the_levels_hold(history, data):
    key, columns, steps = history
    table = new_table(key, columns)
    for number, step in enumerate(step for step in steps if not isinstance(step, str)):
        write(table, step, number * 100)
    if table.latest_snapshot() is None:
        return
    store = table.store.manifests
    (split,) = bucket_splits(live_entries(store, data_manifests(store, table.latest_snapshot())), 1, table.paths, None)
    merging = Merging(table.schema, table.context.options)
    runs = [[file] for file in sorted(merging.files(split.files), key=lambda file: -file.meta.max_sequence)]
    model: dict[str, tuple[int, int, int]] = {}
    for place, (file,) in reversed(list(enumerate(runs))):
        rows = _rows_of(table, split, file)
        model |= {repr(tuple(row.values())[:-1]): (place, at, row["v"]) for at, row in enumerate(rows)}
    asked = data.draw(st.lists(st.tuples(*[KEYS[key]] * columns), min_size=1, max_size=20))
    schema = pa.schema([table.schema.to_arrow().field(f"k{number}") for number in range(columns)])
    needles = pa.Table.from_pylist([{f"k{i}": part for i, part in enumerate(each)} for each in asked], schema=schema)
    codec = merging.plan(by_age=True, ordered=True, drop_retracts=True).keys
    (words,) = window([codec.encode(needles)], sorted_parts=False)
    order = words.order()
    needles = needles.take(pa.array(order[words.starts(order)]))
    # Beside as many keys the rows are read as they are walked past, for few keys afterwards.
    many = data.draw(st.booleans())
    lookup = LevelLookup(table.store, split, merging, runs, new=[run[0] for run in runs] if many else (), columns=["v"])
    cut = data.draw(st.integers(0, needles.num_rows))
    parts = [lookup.find(part) for part in (needles.slice(0, cut), needles.slice(cut)) if part.num_rows]
    wanted = [model.get(repr(tuple(row.values()))) for row in needles.to_pylist()]
    assert np.concatenate([part.hits for part in parts]).tolist() == [each is not None for each in wanted]
    found = [pair for part in parts for pair in zip(part.files.tolist(), part.positions.tolist(), strict=True)]
    assert found == [(-1, -1) if each is None else each[:2] for each in wanted]
    values = [value for part in parts if part.values is not None for value in part.values["v"].to_pylist()]
    assert values == [each[2] for each in wanted if each is not None]


def _rows_of(table, split, file):
    request = ReadRequest(schema=table.schema, columns=table.schema.names)
    return [row for batch in read_data_file(table.store, split, file.meta, request) for row in batch.to_pylist()]
