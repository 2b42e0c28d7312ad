"""What a list says of a manifest: counts and ranges."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tidelake.spec.data_file import EMPTY_ROW, DataFile, SimpleStats
from tidelake.spec.manifests.manifest import ADD, DELETE, empty_entries, entries_table
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.manifests.manifest_meta import combine_metas, meta_of_entries
from tidelake.spec.rows.binary_row_scalar import decode_row, encode_row
from tidelake.spec.types.data_types import DOUBLE, INT, STRING, with_nullable

TYPES = (STRING, INT)


def meta_of(rows: list[tuple[Any, ...]], types=TYPES, **fields: Any) -> ManifestMeta:
    entries = [
        (ADD, encode_row(list(row), types), i, 9, DataFile(file_name=f"f{i}", file_size=1, row_count=10, **fields))
        for i, row in enumerate(rows)
    ]
    return meta_of_entries(entries_table(entries), "m", 5, types, schema_id=0)


def bounds(meta: ManifestMeta, types=TYPES) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return decode_row(meta.partition_stats.min_values, types), decode_row(meta.partition_stats.max_values, types)


def test_counts_and_ranges_are_those_of_the_entries():
    file = DataFile(file_name="f", file_size=1, row_count=10, schema_id=3, level=2)
    rows = [
        (ADD, encode_row(["b", 1], TYPES), 4, 9, file),
        (DELETE, encode_row(["a", None], TYPES), 7, 9, DataFile(file_name="g", file_size=1, row_count=1)),
    ]
    meta = meta_of_entries(entries_table(rows), "manifest-1", 77, TYPES, schema_id=0)
    assert (meta.file_name, meta.file_size, meta.num_added, meta.num_deleted) == ("manifest-1", 77, 1, 1)
    assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (4, 7, 0, 2)
    assert meta.schema_id == 3
    assert bounds(meta) == (("a", 1), ("b", 1))
    assert meta.partition_stats.null_counts == (0, 1)
    assert (meta.min_row_id, meta.max_row_id) == (None, None)


def test_row_ids_cover_all_rows_and_are_unknown_where_one_is():
    meta = meta_of([("a", 1), ("a", 2)], first_row_id=100)
    assert (meta.min_row_id, meta.max_row_id) == (100, 109)
    mixed = entries_table(
        [
            (ADD, EMPTY_ROW, 0, 1, DataFile(file_name="f", file_size=1, row_count=1, first_row_id=0)),
            (ADD, EMPTY_ROW, 0, 1, DataFile(file_name="g", file_size=1, row_count=1)),
        ]
    )
    assert meta_of_entries(mixed, "m", 1, (), schema_id=0).max_row_id is None


def test_one_partition_is_its_own_minimum_and_maximum():
    meta = meta_of([("a", None)] * 3)
    row = encode_row(["a", None], TYPES)
    assert meta.partition_stats == SimpleStats(row, row, (0, 3))


def test_a_table_without_partitions_has_empty_bounds():
    assert meta_of([()] * 2, ()).partition_stats == SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


def test_a_manifest_without_entries_takes_the_given_schema():
    meta = meta_of_entries(empty_entries(), "m", 1, TYPES, schema_id=8)
    assert (meta.schema_id, meta.num_entries, meta.min_bucket) == (8, 0, None)


def test_a_partition_that_is_nan_has_no_bounds():
    meta = meta_of([(math.nan,), (1.0,)], (DOUBLE,))
    assert bounds(meta, (DOUBLE,)) == ((None,), (None,))
    assert meta.partition_stats.null_counts == (0,)


def test_the_whole_is_as_wide_as_its_parts():
    combined = combine_metas([meta_of([("b", 5)]), meta_of([("a", None), ("c", 9)])], "n", 6, TYPES)
    assert bounds(combined) == (("a", 5), ("c", 9))
    assert combined.partition_stats.null_counts == (0, 1)
    assert (combined.file_name, combined.num_added, combined.max_bucket) == ("n", 3, 1)


def test_a_part_of_nulls_alone_does_not_widen_the_bounds():
    combined = combine_metas([meta_of([("a", None)]), meta_of([("a", 4)])], "n", 6, TYPES)
    assert bounds(combined) == (("a", 4), ("a", 4))


def test_a_part_without_bounds_takes_those_of_the_whole_away():
    """A file of partition 50.0 beside one of NaN vanished from plans once its manifest was merged with another."""
    combined = combine_metas(
        [meta_of([(math.nan,), (50.0,)], (DOUBLE,)), meta_of([(1.0,)], (DOUBLE,))], "n", 6, (DOUBLE,)
    )
    assert bounds(combined, (DOUBLE,)) == ((None,), (None,))


def test_only_the_column_without_bounds_loses_them():
    types = (DOUBLE, with_nullable(INT, False))
    combined = combine_metas([meta_of([(math.nan, 1)], types), meta_of([(1.0, 3)], types)], "n", 6, types)
    nullable = [with_nullable(dtype, True) for dtype in types]
    assert bounds(combined, nullable) == ((None, 1), (None, 3))


@pytest.mark.parametrize("missing", ["min_bucket", "max_level", "min_row_id"])
def test_a_range_that_one_part_does_not_know_is_not_known_of_the_whole(missing):
    part = meta_of([("a", 1)], first_row_id=3)
    assert getattr(combine_metas([part, part], "n", 1, TYPES), missing) is not None
    assert getattr(combine_metas([part, replace(part, **{missing: None})], "n", 1, TYPES), missing) is None
