"""Entries grouped by bucket and packed into splits."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.small_tables import new_table, row
from tidelake.ops.scan.options import SplitOptions
from tidelake.ops.scan.split import append_splits, bucket_codes, bucket_splits, pack
from tidelake.options import Bytes
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.manifest import ADD, empty_entries, entries_table

PATHS = new_table(keyed=True).paths


def entries(places: list[tuple[str | None, int]]):
    return entries_table(
        [
            (ADD, row(dt), bucket, 5, DataFile(file_name=f"f{number}", file_size=number + 1, row_count=1))
            for number, (dt, bucket) in enumerate(places)
        ]
    )


places = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", "z", None]), st.sampled_from([-2, 0, 1, 2, 30])), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(places)
def test_buckets_are_what_a_loop_over_the_entries_would_find(found):
    table = entries(found)
    numbered = [(row(dt), bucket, f"f{number}") for number, (dt, bucket) in enumerate(found)]
    ordered = sorted(numbered, key=lambda each: each[:2])
    expected = [(*place, [name for *_, name in group]) for place, group in groupby(ordered, lambda each: each[:2])]
    splits = bucket_splits(table, 7, PATHS, None)
    assert [(split.partition, split.bucket, [f.file_name for f in split.files]) for split in splits] == expected
    assert all((split.snapshot_id, split.total_buckets) == (7, 5) for split in splits)
    order = sorted({each[:2] for each in numbered})
    assert bucket_codes(table).tolist() == [order.index(each[:2]) for each in numbered]


def test_a_bucket_knows_its_folder():
    (split,) = bucket_splits(entries([("a", 3)]), 1, PATHS, None)
    assert split.bucket_path == "dt=a/bucket-3"
    assert split.path_of(split.files[0]) == "dt=a/bucket-3/f0"


def test_without_entries_there_is_no_bucket():
    assert bucket_splits(empty_entries(), 1, PATHS, None) == []
    assert bucket_codes(empty_entries()).tolist() == []


@pytest.mark.parametrize(
    ("weights", "bins"),
    [
        ([], []),
        ([10, 10, 10], [[10, 10], [10]]),
        ([50, 1], [[50], [1]]),
        ([1, 1, 1, 1, 1], [[1, 1, 1, 1], [1]]),
        ([15, 5, 20], [[15, 5], [20]]),
    ],
)
def test_a_bin_is_closed_when_the_next_item_would_be_too_much(weights, bins):
    assert pack(weights, lambda weight: weight, target=20, least=5) == bins


def test_files_of_an_append_bucket_are_read_in_write_order():
    (split,) = bucket_splits(
        entries_table(
            [
                (ADD, row("a"), 0, 1, DataFile(file_name=name, file_size=9, row_count=1, min_sequence=sequence))
                for name, sequence in [("c", 5), ("b", 0), ("a", 5)]
            ]
        ),
        1,
        PATHS,
        None,
    )
    options = SplitOptions(target_bytes=Bytes(18), open_file_cost=Bytes(1))
    assert [[f.file_name for f in each.files] for each in append_splits(split, options)] == [["b", "a"], ["c"]]
