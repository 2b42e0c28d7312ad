"""Laws of the writer: waiting on disk, merging beforehand and sorting fast change nothing that comes out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import TidelakeError
from tidelake.files.parquet.dictionaries import dictionary_columns
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.lsm.keys import KeyCodec
from tidelake.lsm.order import stable_order
from tidelake.ops.write import spill as spill_module
from tidelake.ops.write.spill import Window, windows
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

ENGINES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "deduplicate": ({}, ("+I", "+U", "-D", "-U")),
    "deduplicate, deletions left out": ({"ignore-delete": "true"}, ("+I", "+U", "-D", "-U")),
    "by sequence": ({"sequence.field": "n"}, ("+I", "-D")),
    "by sequence, descending": ({"sequence.field": "n", "sequence.field.sort-order": "descending"}, ("+I", "-D")),
    "partial-update": ({"merge-engine": "partial-update"}, ("+I", "+U")),
    "removing": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        ("+I", "+U", "-D"),
    ),
    "sequence group": ({"merge-engine": "partial-update", "fields.n.sequence-group": "v"}, ("+I", "-U", "-D")),
    "sum and max": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max"},
        ("+I", "+U"),
    ),
    # Taken back in parts it gives something else than taken back at once: nothing may be merged twice.
    "product": (
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "product"},
        ("+I", "+U", "-U", "-D"),
    ),
    "first-row": ({"merge-engine": "first-row"}, ("+I",)),
}
PLAIN = ("deduplicate", "by sequence", "partial-update", "sequence group", "sum and max", "first-row")
"""Engines that merge additions in any number of steps."""
values = st.tuples(
    st.integers(0, 9), st.integers(0, 6), st.none() | st.integers(1, 3), st.none() | st.sampled_from("xyz")
)
blocks = st.lists(st.lists(values, min_size=1, max_size=12), min_size=1, max_size=5)
KEYS = {"one word": ["k"], "text": ["s"], "text and word": ["s", "k"]}


@pytest.fixture(autouse=True, scope="module")
def _small_segments():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill_module, "_SEGMENT_BYTES_MIN", 1)
        yield


def written(engine: str, kinds: tuple[str, ...], data: list[list[Any]], key: str, **more: str) -> tuple[Any, ...]:
    """What a table shows, what its one commit holds, and the error if it fails."""
    options, _ = ENGINES[engine]
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    table: Table = lake.create_table(
        "d.t",
        {"k": "INT NOT NULL", "s": "STRING NOT NULL", "n": "INT", "v": "STRING"},
        primary_key=KEYS[key],
        options={"bucket": "2", **options, **{name.replace("_", "-"): value for name, value in more.items()}},
    )
    writer = table.new_write()
    try:
        for block in data:
            rows = [
                {"k": k, "s": "a text and " + "ab"[k % 2] * k, "n": n, "v": v, "rowkind": kinds[choice % len(kinds)]}
                for choice, k, n, v in block
            ]
            writer.write(rows)
        messages = writer.prepare_commit()
    except TidelakeError as error:
        writer.close()
        return (type(error).__name__, error.message)
    files = [
        (message.bucket, file.row_count, file.delete_row_count, file.min_sequence, file.max_sequence, file.min_key)
        for message in messages
        for file in message.data.new_files
    ]
    table.new_commit().commit(messages)
    return sorted(table.to_arrow().to_pylist(), key=repr), sorted(files)


@settings(max_examples=45, deadline=None)
@given(
    engine=st.sampled_from(list(ENGINES)),
    data=blocks,
    key=st.sampled_from(list(KEYS)),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
)
def test_rows_that_waited_on_disk_come_out_as_if_they_had_waited_in_memory(engine, data, key, codec):
    kinds = ENGINES[engine][1]
    plain = written(engine, kinds, data, key)
    assert written(engine, kinds, data, key, write_buffer_size="1", spill_compression=codec) == plain


@settings(max_examples=20, deadline=None)
@given(
    engine=st.sampled_from(PLAIN),
    data=blocks,
    key=st.sampled_from(list(KEYS)),
    size=st.sampled_from(["1", "200", "1 mb"]),
)
def test_merging_beforehand_changes_nothing_that_is_read(engine, data, key, size):
    kinds = ("+I", "+U", "-D") if engine == "deduplicate" else ("+I",)
    shown, *_ = written(engine, kinds, data, key)
    assert written(engine, kinds, data, key, local_merge_buffer_size=size)[0] == shown


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=5),
    step=st.integers(1, 7),
)
def test_windows_give_every_row_once_by_key_and_run(runs, step):
    def pieces(number: int, keys: list[int]) -> list[Window]:
        ordered = sorted(keys)
        starts = [0, *(i for i in range(1, len(ordered)) if ordered[i] != ordered[i - 1]), len(ordered)]
        cuts = sorted({*starts[::step], len(ordered)})
        return [
            Window(pa.table({"k": pa.array(ordered[a:b], pa.int32()), "run": [number] * (b - a)}), False)
            for a, b in pairwise(cuts)
        ]

    codec = KeyCodec(("k",), (pa.int32(),))
    found = list(windows([iter(pieces(number, keys)) for number, keys in enumerate(runs)], codec))
    flat = [(row["k"], row["run"]) for each in found for row in each.rows.to_pylist()]
    assert sorted(flat) == sorted((key, number) for number, keys in enumerate(runs) for key in keys)
    tops = [max(each.rows["k"].to_pylist()) for each in found]
    lows = [min(each.rows["k"].to_pylist()) for each in found]
    assert all(top < low for top, low in zip(tops, lows[1:], strict=False))
    for each in found:
        of_key: dict[int, list[int]] = {}
        for row in each.rows.to_pylist():
            of_key.setdefault(row["k"], []).append(row["run"])
        assert all(order == sorted(order) for order in of_key.values())


@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(0, 600),
    span=st.sampled_from([1, 3, 1000, 2**40, 2**62, 2**64 - 1]),
    shape=st.sampled_from(["random", "sorted", "runs", "low bits"]),
    seed=st.integers(0, 1000),
)
def test_the_fast_order_of_words_is_the_stable_one(count, span, shape, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, span, count, dtype=np.uint64, endpoint=True)
    if shape == "sorted":
        words.sort()
    elif shape == "runs":
        words = np.concatenate([np.sort(each) for each in np.array_split(words, 3)])
    elif shape == "low bits":
        words = (words & np.uint64(7)) | np.where(words & np.uint64(8), np.uint64(1 << 63), np.uint64(0))
    assert np.array_equal(stable_order(words), np.argsort(words, kind="stable"))


@settings(max_examples=20, deadline=None)
@given(rows=st.sampled_from([10, 2_000, 50_000]), distinct=st.sampled_from([1, 100, 10**9]), seed=st.integers(0, 99))
def test_columns_whose_values_repeat_get_a_dictionary_and_nested_ones_keep_theirs(rows, distinct, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, distinct, rows)
    table = pa.table({"n": numbers, "unique": np.arange(rows), "l": pa.array([[1]] * rows)})
    chosen = dictionary_columns(table, wanted=True)
    assert dictionary_columns(table, wanted=False) is False
    if rows < 1024:
        assert chosen is True
        return
    assert isinstance(chosen, list)
    assert "unique" not in chosen
    assert any(path.startswith("l.") for path in chosen)
    assert ("n" in chosen) == (distinct * 4 <= rows)
