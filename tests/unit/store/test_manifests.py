"""Manifests in storage: rolling, projection, counts, sizes, copying."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelake.errors import FormatError, NotFoundError
from tidelake.io.executor import ThreadExecutor
from tidelake.spec.avro.container import parse_container
from tidelake.spec.data_file import EMPTY_ROW, DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.limits import Limits
from tidelake.spec.manifests.index_manifest import IndexEntry, IndexFile
from tidelake.spec.manifests.manifest import ADD, DELETE, ENTRIES, entries_table
from tidelake.store.manifests import ManifestNames, ManifestStore
from tidelake.testing import MemoryFileIO, TracingFileIO


def entries(start: int, count: int, *, kind: int = ADD) -> pa.Table:
    return entries_table(
        [
            (kind, EMPTY_ROW, i % 5, 5, DataFile(file_name=f"data-{i:06}.parquet", file_size=i, row_count=1))
            for i in range(start, start + count)
        ]
    )


@pytest.fixture
def store() -> ManifestStore:
    return ManifestStore(TracingFileIO(MemoryFileIO()), TableLayout(), ())


@pytest.fixture
def names() -> ManifestNames:
    return ManifestNames("uuid")


def test_names_count_up_for_each_kind_of_file(names):
    assert [names.next("manifest"), names.next("manifest-list"), names.next("manifest")] == [
        "manifest-uuid-0",
        "manifest-list-uuid-0",
        "manifest-uuid-1",
    ]


def test_entries_come_back_in_the_order_of_the_manifests(store, names):
    first = store.write_entries(names, entries(0, 3), schema_id=0)
    second = store.write_entries(names, entries(3, 3), schema_id=0)
    found = store.read_entries([*second, *first])
    assert found["file_size"].to_pylist() == [3, 4, 5, 0, 1, 2]
    assert found.schema == ENTRIES


def test_nothing_to_write_writes_nothing_and_nothing_to_read_is_an_empty_table(store, names):
    assert store.write_entries(names, entries(0, 0), schema_id=0) == []
    assert store.read_entries([]).equals(ENTRIES.empty_table())
    assert store.read_entries([], columns=["bucket"]).column_names == ["bucket"]


def test_a_manifest_that_is_full_rolls_into_the_next(store, names):
    small = replace(store, target_bytes=1, codec="null")
    table = entries(0, 2_000)
    metas = small.write_entries(names, table, schema_id=0)
    assert len(metas) > 2
    assert sum(meta.num_added for meta in metas) == 2_000
    assert small.read_entries(metas).equals(table)
    assert all(meta.file_size == len(small.io.read(f"manifest/{meta.file_name}")) for meta in metas)


def test_only_blocks_with_wanted_entries_are_decoded_and_only_those_entries_returned(store, names):
    metas = store.write_entries(names, entries(0, 3_000), schema_id=0)
    wanted = store.read_entries(
        metas, columns=["file_size", "bucket"], keep=lambda table: pc.equal(table["bucket"], 3).combine_chunks()
    )
    assert wanted["file_size"].to_pylist() == list(range(3, 3_000, 5))
    none = store.read_entries(metas, keep=lambda table: pa.repeat(pa.scalar(False), table.num_rows))
    assert none.num_rows == 0
    deciding = store.read_entries(
        metas, columns=["bucket"], keep=lambda table: pc.equal(table["bucket"], 0).combine_chunks()
    )
    assert deciding["bucket"].to_pylist() == [0] * 600


def test_threads_keep_the_order(store, names):
    metas = [meta for i in range(12) for meta in store.write_entries(names, entries(i * 10, 10), schema_id=0)]
    executor = ThreadExecutor(4)
    try:
        found = replace(store, executor=executor).read_entries(metas)
    finally:
        executor.close()
    assert found["file_size"].to_pylist() == list(range(120))


@pytest.mark.parametrize("change", ["size", "count", "missing", "garbage"])
def test_a_manifest_that_is_not_what_the_list_says_is_refused(store, names, change):
    (meta,) = store.write_entries(names, entries(0, 3), schema_id=0)
    path = f"manifest/{meta.file_name}"
    match change:
        case "size":
            store.io.overwrite(path, store.io.read(path) + b"x")
        case "count":
            meta = replace(meta, num_added=4)
        case "missing":
            store.io.delete(path)
        case "garbage":
            store.io.overwrite(path, b"?" * meta.file_size)
    with pytest.raises((FormatError, NotFoundError)) as caught:
        store.read_entries([meta])
    assert meta.file_name in str(caught.value)


@pytest.mark.parametrize("field", ["file_name", "extra_files"])
def test_a_hostile_name_is_refused_when_its_column_is_read(store, names, field):
    hostile = DataFile(
        **{"file_name": "f", "file_size": 1, "row_count": 1, field: "../x" if field == "file_name" else ("../x",)}
    )
    metas = store.write_entries(names, entries_table([(ADD, EMPTY_ROW, 0, 1, hostile)]), schema_id=0)
    with pytest.raises(FormatError) as caught:
        store.read_entries(metas)
    assert caught.value.code == "file-name"
    assert store.read_entries(metas, columns=["bucket"]).num_rows == 1


def test_a_manifest_over_the_limit_is_not_read_at_all(store, names):
    (meta,) = store.write_entries(names, entries(0, 50), schema_id=0)
    with pytest.raises(FormatError, match="larger than"):
        replace(store, limits=Limits(manifest_bytes_max=100)).read_entries([meta])


def test_lists_and_index_manifests_come_back(store, names):
    metas = tuple(store.write_entries(names, entries(0, 3), schema_id=0))
    size = store.write_list("manifest-list-1", metas)
    assert store.read_list("manifest-list-1", size=size) == metas
    with pytest.raises(FormatError, match="another size"):
        store.read_list("manifest-list-1", size=size + 1)
    entry = IndexEntry(EMPTY_ROW, 0, IndexFile(index_type="HASH", file_name="i", file_size=1, row_count=1))
    assert store.write_index("index-manifest-1", [entry]) > 0
    assert store.read_index("index-manifest-1") == (entry,)


def test_reading_a_hostile_list_name_never_reaches_the_storage(store):
    for name in ("../x", "a/b", "", ".."):
        with pytest.raises(FormatError):
            store.read_list(name)
    assert store.io.ops == []


# ------------------------------------------------------------------------------------------------ copying


def test_small_blocks_are_packed_and_large_ones_copied_as_they_are(store, names):
    small = [meta for i in range(5) for meta in store.write_entries(names, entries(i, 1), schema_id=0)]
    (large,) = store.write_entries(names, entries(100, 400), schema_id=0)
    before = parse_container(store.io.read(f"manifest/{large.file_name}"), path="m")
    (joined,) = store.concat(names, [*small, large])
    after = parse_container(store.io.read(f"manifest/{joined.file_name}"), path="m")
    assert len(after.blocks) == len(before.blocks) + 1
    kept = after.blocks[-1]
    assert after.data[kept.start : kept.start + kept.size] == before.data[before.blocks[-1].start :][: kept.size]
    assert store.read_entries([joined]).equals(store.read_entries([*small, large]))
    assert (joined.num_added, joined.num_deleted) == (405, 0)


def test_files_of_another_codec_or_schema_are_not_copied(store, names):
    (ours,) = store.write_entries(names, entries(0, 2), schema_id=0)
    (theirs,) = replace(store, codec="snappy").write_entries(names, entries(2, 2), schema_id=0)
    assert store.concat(names, [ours, theirs]) is None
    sequences = DataFile(file_name="f", file_size=1, row_count=1, write_cols_sequences=(1,))
    (wide,) = store.write_entries(names, entries_table([(ADD, EMPTY_ROW, 0, 1, sequences)]), schema_id=0)
    assert store.concat(names, [ours, wide]) is None


def test_what_may_roll_is_not_copied(store, names):
    metas = [meta for i in range(3) for meta in store.write_entries(names, entries(i, 1), schema_id=0)]
    assert replace(store, target_bytes=metas[0].file_size).concat(names, metas) is None


def test_copying_checks_the_counts_of_the_list(store, names):
    (meta,) = store.write_entries(names, entries(0, 2), schema_id=0)
    with pytest.raises(FormatError, match="another number of entries"):
        store.concat(names, [replace(meta, num_added=3), meta])


def test_deleting_and_syncing_touch_the_named_files_only(store, names):
    (a,) = store.write_entries(names, entries(0, 1), schema_id=0)
    (b,) = store.write_entries(names, entries(1, 1, kind=DELETE), schema_id=0)
    store.sync([a.file_name])
    store.delete([a.file_name])
    assert not store.io.exists(f"manifest/{a.file_name}")
    assert store.io.exists(f"manifest/{b.file_name}")
