"""Laws of manifests: codecs round-trip, both readers agree, and merging changes no live set."""

from __future__ import annotations

import datetime as dt
import io
import math

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.errors import FormatError
from tidelake.ops.commit.manifest_merge import run_merge
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.scan.plan import live_entries
from tidelake.spec.avro import decode as avro_decode
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.layout import TableLayout
from tidelake.spec.manifests.index_manifest import decode_index_manifest, encode_index_manifest
from tidelake.spec.manifests.manifest import (
    ADD,
    ENTRIES,
    LAYOUT,
    decode_manifest,
    encode_manifest,
    entries_table,
    identities,
    merge_entries,
)
from tidelake.spec.manifests.manifest_list import decode_manifest_list, encode_manifest_list
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import DOUBLE, STRING
from tidelake.store.manifests import ManifestNames, ManifestStore
from tidelake.testing import MemoryFileIO
from tidelake.testing.manifests import (
    Entry,
    entries,
    histories,
    index_entries,
    manifest_metas,
    slow_identity,
    slow_live,
    slow_merge,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
CODECS = ("zstandard", "null", "deflate", "snappy", "bzip2", "xz")
TYPES = (STRING, DOUBLE)
FLOATS = st.sampled_from((None, math.nan, -0.0, 0.0, 1.5, -3.0, math.inf))
VALUES = st.tuples(st.sampled_from((None, "", "a", "b", "é")), FLOATS)


@pytest.fixture(params=["few", "bulk"])
def reader(request, monkeypatch):
    monkeypatch.setattr(avro_decode, "BULK_COUNT", 0 if request.param == "bulk" else 10**9)
    return request.param


# ------------------------------------------------------------------------------------------------ codecs


@pytest.mark.parametrize("bulk", [False, True])
@given(rows=st.lists(entries(), max_size=8), codec=st.sampled_from(CODECS))
@settings(max_examples=60, deadline=None)
def test_a_manifest_reads_back_as_it_was_written_by_either_reader(bulk, rows, codec):
    table = entries_table(rows)
    before = avro_decode.BULK_COUNT
    avro_decode.BULK_COUNT = 0 if bulk else 10**9
    try:
        assert decode_manifest(encode_manifest(table, codec=codec), path="m").equals(table)
    finally:
        avro_decode.BULK_COUNT = before


@given(rows=st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_an_independent_avro_reader_sees_the_same_records(rows):
    data = encode_manifest(entries_table(rows), codec="null")
    records = list(fastavro.reader(io.BytesIO(data)))
    for record, (kind, partition, bucket, total, file) in zip(records, rows, strict=True):
        assert record["_VERSION"] == 2
        found = (record["_KIND"], record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"])
        assert found == (kind, partition, bucket, total)
        for column in LAYOUT.columns:
            if column.name in DataFile.__dataclass_fields__:
                value = record["_FILE"].get(column.path[-1])
                if isinstance(value, dt.datetime):
                    value = (value - EPOCH) // dt.timedelta(milliseconds=1)
                wanted = getattr(file, column.name)
                assert value == (list(wanted) if isinstance(wanted, tuple) else wanted), column.name
        stats = record["_FILE"]["_VALUE_STATS"]
        assert stats["_NULL_COUNTS"] == list(file.value_stats.null_counts)
        assert (stats["_MIN_VALUES"], stats["_MAX_VALUES"]) == (
            file.value_stats.min_values,
            file.value_stats.max_values,
        )


@given(rows=st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_records_encoded_by_an_independent_avro_writer_decode_to_the_same_columns(rows):
    table = entries_table(rows)
    ours = encode_manifest(table, codec="null")
    reader = fastavro.reader(io.BytesIO(ours), return_record_name=False)
    schema, records = reader.writer_schema, list(reader)
    theirs = io.BytesIO()
    fastavro.writer(theirs, schema, records, codec="deflate", sync_interval=200)
    assert decode_manifest(theirs.getvalue(), path="m").equals(table)


@given(rows=st.lists(entries(), max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_data_file_survives_the_way_through_a_table(rows):
    table = entries_table(rows)
    found = data_files(table)
    assert found == [file for *_, file in rows]


@given(metas=st.lists(manifest_metas(), max_size=6), codec=st.sampled_from(CODECS))
@settings(max_examples=60, deadline=None)
def test_a_manifest_list_reads_back_as_it_was_written(metas, codec):
    assert decode_manifest_list(encode_manifest_list(metas, codec=codec), path="l") == tuple(metas)


@given(rows=st.lists(index_entries(), max_size=6), codec=st.sampled_from(CODECS))
@settings(max_examples=60, deadline=None)
def test_an_index_manifest_reads_back_as_it_was_written(rows, codec):
    assert decode_index_manifest(encode_index_manifest(rows, codec=codec), path="i") == tuple(rows)


@given(rows=st.lists(entries(), max_size=8))
@settings(max_examples=60, deadline=None)
def test_identities_are_equal_exactly_where_the_identity_columns_are(rows):
    table = entries_table([*rows, *rows[:2]])
    fast, slow = identities(table).to_pylist(), [slow_identity(row) for row in table.to_pylist()]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(slow))}
    places = {key: number for number, key in enumerate(dict.fromkeys(fast))}
    assert [places[key] for key in fast] == [numbers[key] for key in slow]


# ------------------------------------------------------------------------------------------------ merging


def store_of(target_bytes: int, codec: str = "zstandard") -> ManifestStore:
    return ManifestStore(MemoryFileIO(), TableLayout(), TYPES, codec=codec, target_bytes=target_bytes)


def rows_of(history: list[list[Entry]]) -> list[dict]:
    return entries_table([entry for commit in history for entry in commit]).to_pylist()


@given(history=histories(TYPES, VALUES), cut=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_the_net_effect_equals_that_of_the_slow_twin_from_any_point_on(history, cut):
    rows = [entry for commit in history for entry in commit]
    suffix = entries_table(rows[int(cut * len(rows)) :])
    assert merge_entries(suffix).to_pylist() == slow_merge(suffix.to_pylist())


@given(
    history=histories(TYPES, VALUES, max_commits=12),
    target=st.integers(1, 6_000),
    count=st.integers(1, 5),
    threshold=st.integers(1, 40_000),
    codec=st.sampled_from(("zstandard", "null")),
)
@settings(max_examples=50, deadline=None)
def test_merging_while_committing_keeps_the_live_set_and_never_puts_a_deletion_first(
    history, target, count, threshold, codec
):
    options = ManifestOptions.parse(
        {
            "manifest.target-file-size": f"{target} b",
            "manifest.merge-min-count": str(count),
            "manifest.full-compaction-threshold-size": f"{threshold} b",
        }
    )
    store, names, metas = store_of(target, codec), ManifestNames("u"), ()
    for number, commit in enumerate(history, start=1):
        merged = run_merge(store, names, metas, options, schema_id=0)
        assert merged.before == metas
        assert set(merged.made) == {meta.file_name for meta in merged.after} - {meta.file_name for meta in metas}
        metas = (*merged.after, *store.write_entries(names, entries_table(commit), schema_id=0))
        wanted = slow_live(rows_of(history[:number]))
        # The strict fold fails on a deletion that stands before its addition.
        found = slow_live(store.read_entries(metas).to_pylist())
        assert found == wanted
        live = live_entries(store, metas).to_pylist()
        assert {slow_identity(row): row for row in live} == wanted
        for meta in metas:
            inside = store.read_entries([meta])
            assert (meta.num_added + meta.num_deleted) == inside.num_rows


@given(groups=st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=5), data=st.data())
@settings(max_examples=80, deadline=None)
def test_copying_blocks_describes_the_same_manifest_as_decoding_them(groups, data):
    store, names = store_of(1 << 20), ManifestNames("u")
    metas = []
    for g, group in enumerate(groups):
        rows = [
            (
                ADD,
                encode_row(list(values), TYPES),
                data.draw(st.integers(0, 3)),
                4,
                DataFile(file_name=f"f-{g}-{i}", file_size=1, row_count=1, level=data.draw(st.integers(0, 2))),
            )
            for i, values in enumerate(group)
        ]
        metas += store.write_entries(names, entries_table(rows), schema_id=0)
    (copied,) = store.concat(names, metas)
    (decoded,) = store.write_entries(names, merge_entries(store.read_entries(metas)), schema_id=0)
    assert store.read_entries([copied]).equals(store.read_entries([decoded]))
    plain = {name: getattr(copied, name) for name in copied.__slots__ if name not in ("file_name", "file_size")}
    assert plain == {name: getattr(decoded, name) for name in plain}


def test_a_file_added_twice_is_refused_by_both():
    row = (ADD, bytes(12), 0, 1, DataFile(file_name="f", file_size=1, row_count=1))
    table = entries_table([row, row])
    with pytest.raises(FormatError) as caught:
        merge_entries(table)
    assert caught.value.code == "double-entry"
    with pytest.raises(FormatError):
        slow_merge(table.to_pylist())


def test_many_entries_go_through_the_bulk_reader_and_few_through_the_other(reader):
    rows = [
        (i % 2, bytes(12), i, 4, DataFile(file_name=f"f{i}", file_size=i, row_count=i, extra_files=("x",) * (i % 3)))
        for i in range(300)
    ]
    table = entries_table(rows)
    data = encode_manifest(table)
    assert decode_manifest(data, path="m").equals(table)
    some = ["kind", "extra_files", "file_name"]
    wanted = table.select([name for name in ENTRIES.names if name in some])
    assert decode_manifest(data, path="m", columns=some).equals(wanted)
