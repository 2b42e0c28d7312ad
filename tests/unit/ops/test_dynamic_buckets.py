"""Dynamic buckets: known hashes stay, new ones fill buckets in order, and every writer keeps to its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.verb_samples import table
from tidelake.errors import FormatError, InvalidInputError, UnsupportedError
from tidelake.index.hash_index import Hashes, decode_hash_index
from tidelake.ops.placement.dynamic_buckets import (
    BUCKET_MAX,
    Assigner,
    BucketIndex,
    DynamicBucketOptions,
    DynamicBuckets,
    PartitionIndex,
    assign,
    assigners_for,
    hash_entries,
    load_index,
    merge_hashes,
)
from tidelake.spec.manifests.index_manifest import HASH, IndexEntry, IndexFile
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import STRING

PARTITION = bytes(12)
ONE = Assigner()


def ints(values: Iterable[int]) -> Hashes:
    return np.array(list(values), np.int32)


def options(**given: str) -> DynamicBucketOptions:
    return DynamicBucketOptions.parse(
        {f"dynamic-bucket.{key.replace('_', '-')}": value for key, value in given.items()}
    )


# ------------------------------------------------------------------------------------------------ one batch


def test_new_hashes_fill_one_bucket_after_the_other_in_the_order_of_rows() -> None:
    buckets, index = assign(PartitionIndex(), ints([9, 4, 9, -7, 4, 1, 2]), ONE, options(target_row_num="2"))
    assert buckets.tolist() == [0, 0, 0, 1, 0, 1, 2]
    assert dict(index.counts) == {0: 2, 1: 2, 2: 1}
    assert len(index) == 5


def test_a_known_hash_goes_where_it_went_before() -> None:
    chosen = options(target_row_num="2")
    _, index = assign(PartitionIndex(), ints(range(5)), ONE, chosen)
    again, same = assign(index, ints([4, 3, 2, 1, 0, 0]), ONE, chosen)
    assert again.tolist() == [2, 1, 1, 0, 0, 0]
    assert same is index


def test_a_bucket_with_room_is_filled_before_a_new_one_is_opened() -> None:
    loaded = load_index({0: ints([1, 2]), 3: ints([7])}, ONE, 0)
    buckets, _ = assign(loaded, ints([7, 20, 21, 22, 23]), ONE, options(target_row_num="2"))
    assert buckets.tolist() == [3, 3, 1, 1, 2]


def test_an_empty_batch_changes_nothing() -> None:
    buckets, index = assign(PartitionIndex(), ints([]), ONE, options())
    assert (len(buckets), len(index)) == (0, 0)


def test_with_a_limit_full_buckets_take_more_and_keys_stay_where_they_are() -> None:
    chosen = options(target_row_num="2", max_buckets="3")
    hashes = ints(range(-50, 50))
    first, index = assign(PartitionIndex(), hashes, ONE, chosen)
    assert set(first.tolist()) == {0, 1, 2}
    assert min(index.counts.values()) > 20
    assert sum(index.counts.values()) == 100
    again, _ = assign(index, hashes[::-1], ONE, chosen)
    assert again.tolist() == first[::-1].tolist()


def test_without_a_limit_running_out_of_numbers_is_an_error() -> None:
    full = load_index({bucket: ints([bucket]) for bucket in range(BUCKET_MAX + 1)}, ONE, 0)
    with pytest.raises(InvalidInputError, match="all dynamic buckets are full") as caught:
        assign(full, ints([-1]), ONE, options(target_row_num="1"))
    assert "target-row-num" in str(caught.value.hint)
    last, _ = assign(
        PartitionIndex((), dict.fromkeys(range(BUCKET_MAX), 1)), ints([-1]), ONE, options(target_row_num="1")
    )
    assert last.tolist() == [BUCKET_MAX]


def slow(
    known: dict[int, int], counts: dict[int, int], hashes: list[int], assigner: Assigner, target: int, top: int
) -> list[int]:
    """One row after the other, as the format tells it; only where buckets do not run out."""
    result = []
    for each in hashes:
        if each not in known:
            room = [bucket for bucket in sorted(counts) if counts[bucket] < target]
            new = (b for b in range(top + 1) if b % assigner.assigners == assigner.id % assigner.assigners)
            bucket = room[0] if room else next(b for b in new if b not in counts)
            counts[bucket] = counts.get(bucket, 0) + 1
            known[each] = bucket
        result.append(known[each])
    return result


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(-40, 40), max_size=30), max_size=6),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_a_batch_is_assigned_as_its_rows_one_after_the_other(
    batches: list[list[int]], target: int, assigners: int, number: int
) -> None:
    assigner = Assigner(id=number % assigners, assigners=assigners, channels=assigners)
    index, known, counts = PartitionIndex(), {}, {}
    for batch in batches:
        mine = ints(batch)[assigner.owned_hashes(0, ints(batch))]
        buckets, index = assign(index, mine, assigner, options(target_row_num=str(target)))
        assert buckets.tolist() == slow(known, counts, mine.tolist(), assigner, target, BUCKET_MAX)
        assert dict(index.counts) == counts
    assert sorted(index.hashes_of(assigner.id % assigners).tolist()) == sorted(
        each for each, bucket in known.items() if bucket == assigner.id % assigners
    )


# ------------------------------------------------------------------------------------------------ sharing the work


def test_every_hash_has_one_owner_and_every_bucket_too() -> None:
    hashes = ints([-(2**31), -7, -1, 0, 1, 2, 3, 2**31 - 1])
    team = [Assigner(id=channel, assigners=3, channels=4) for channel in range(4)]
    for partition_hash in (-5, 0, 6):
        owned = np.stack([each.owned_hashes(partition_hash, hashes) for each in team])
        assert owned.sum(axis=0).tolist() == [1] * len(hashes)
    # abs(-7 % 3) is 1 with the remainder of Java, and the partition shifts the channel by abs(-5 % 4).
    assert team[0].owners(-5, ints([-7])).tolist() == [2]
    assert list(team[1].owned_buckets(8)) == [1, 4, 7]


@pytest.mark.parametrize(
    ("given", "parallelism", "wanted"),
    [
        ({}, None, (1, 1)),
        ({}, 4, (4, 4)),
        ({"initial_buckets": "3"}, None, (3, 3)),
        ({"initial_buckets": "3"}, 2, (2, 2)),
        ({"initial_buckets": "3"}, 8, (3, 8)),
        ({"assigner_parallelism": "5"}, 8, (5, 5)),
        ({"max_buckets": "2"}, 8, (2, 2)),
    ],
)
def test_the_number_of_assigners_follows_the_options(
    given: dict[str, str], parallelism: int | None, wanted: tuple[int, int]
) -> None:
    team = assigners_for(options(**given), parallelism)
    assert [each.id for each in team] == list(range(wanted[1]))
    assert {(each.assigners, each.channels) for each in team} == {wanted}


def test_no_bucket_at_all_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="-1 or at least 1"):
        assigners_for(options(max_buckets="0"))


def test_an_assigner_loads_its_own_hashes_from_every_bucket_but_counts_its_own_buckets_only() -> None:
    # Written by one assigner; now there are two.
    files = {0: ints([0, 1, 2]), 1: ints([3, 4])}
    even, odd = (load_index(files, Assigner(id=i, assigners=2, channels=2), 0) for i in range(2))
    assert even.find(ints([0, 1, 2, 3, 4])).tolist() == [0, -1, 0, -1, 1]
    assert odd.find(ints([0, 1, 2, 3, 4])).tolist() == [-1, 0, -1, 1, -1]
    assert (dict(even.counts), dict(odd.counts)) == ({0: 3}, {1: 2})


def test_a_hash_in_two_buckets_is_refused() -> None:
    with pytest.raises(FormatError, match="two dynamic buckets") as caught:
        load_index({0: ints([5]), 4: ints([5])}, ONE, 0)
    assert caught.value.facts["second"] == "4"


# ------------------------------------------------------------------------------------------------ index files


def test_an_index_changes_only_by_hashes_it_does_not_hold() -> None:
    index = BucketIndex(None, ints([1, 5]))
    assert merge_hashes(index, ints([5, 5, 1])) is index
    grown = merge_hashes(index, ints([9, 3, 5, -4, 3]))
    assert grown.hashes.tolist() == [-4, 1, 3, 5, 9]
    assert grown.changed


def entry(file: IndexFile, bucket: int, partition: bytes = PARTITION) -> IndexEntry:
    return IndexEntry(partition, bucket, file)


def test_two_hash_indexes_of_one_bucket_are_refused_and_other_kinds_are_left_out() -> None:
    one, other = (IndexFile(index_type=HASH, file_name=name, file_size=4, row_count=1) for name in "ab")
    vectors = IndexFile(index_type="DELETION_VECTORS", file_name="v", file_size=4, row_count=1)
    assert hash_entries([entry(one, 0), entry(vectors, 0), entry(other, 1)]) == {PARTITION: {0: one, 1: other}}
    with pytest.raises(FormatError, match="two hash indexes"):
        hash_entries([entry(one, 0), entry(other, 0)])


def test_a_commit_replaces_the_index_files_of_the_buckets_that_grew() -> None:
    store = table(keyed=True).store
    chosen = options(target_row_num="3")
    buckets = DynamicBuckets(store, chosen)
    assert buckets.assign(PARTITION, ints([1, 2, 3, 4])).tolist() == [0, 0, 0, 1]
    first = buckets.prepare()
    assert {place: (new.row_count, old) for place, (new, old) in first.items()} == {
        (PARTITION, 0): (3, None),
        (PARTITION, 1): (1, None),
    }
    assert buckets.prepare() == {}
    assert buckets.assign(PARTITION, ints([4, 1])).tolist() == [1, 0]
    assert buckets.prepare() == {}
    buckets.assign(PARTITION, ints([9]))
    second = buckets.prepare()
    ((place, (new, old)),) = second.items()
    assert (place, old) == ((PARTITION, 1), first[PARTITION, 1][0])
    data = store.env.io.read(store.layout.index_path(new.file_name))
    assert (new.file_size, new.index_type) == (8, HASH)
    assert decode_hash_index(data, path="x", row_count=new.row_count).tolist() == [4, 9]


def test_another_writer_goes_on_from_the_files() -> None:
    store = table(keyed=True).store
    chosen = options(target_row_num="3", initial_buckets="2")
    days = [encode_row([day], [STRING]) for day in ("a", "b")]
    writer = DynamicBuckets(store, chosen)
    hashes = ints(range(-10, 10))
    wanted = [writer.assign(day, hashes).tolist() for day in days]
    written = writer.prepare()
    entries = [entry(new, bucket, day) for (day, bucket), (new, _) in written.items()]
    assert sum(each.file.row_count for each in entries) == 40
    other = DynamicBuckets(store, chosen, entries)
    assert [other.assign(day, hashes).tolist() for day in days] == wanted
    assert other.prepare() == {}
    # A writer with another number of assigners finds every key too.
    alone = DynamicBuckets(store, options(target_row_num="3"), entries)
    assert [alone.assign(day, hashes).tolist() for day in days] == wanted


def test_a_new_partition_starts_with_as_many_buckets_as_asked() -> None:
    buckets = DynamicBuckets(table(keyed=True).store, options(initial_buckets="4"))
    assert set(buckets.assign(PARTITION, ints(range(100))).tolist()) == {0, 1, 2, 3}


def test_a_partition_that_was_forgotten_is_read_again() -> None:
    store = table(keyed=True).store
    buckets = DynamicBuckets(store, options(target_row_num="2"))
    day, other = (encode_row([name], [STRING]) for name in "ab")
    before = buckets.assign(day, ints(range(5))).tolist()
    buckets.prepare()
    buckets.assign(other, ints([1]))
    buckets.prepare()
    buckets.prepare()
    assert buckets.assign(day, ints(range(5))).tolist() == before
    assert buckets.prepare() == {}


def test_a_missing_or_cut_index_file_is_named() -> None:
    store = table(keyed=True).store
    gone = IndexFile(index_type=HASH, file_name="index-x-0", file_size=4, row_count=1)
    buckets = DynamicBuckets(store, options(), [entry(gone, 0)])
    with pytest.raises(FormatError, match="missing") as caught:
        buckets.assign(PARTITION, ints([1]))
    assert caught.value.facts["path"] == "index/index-x-0"
    store.env.io.write("index/index-x-0", b"abc")
    with pytest.raises(FormatError, match=r"hash index"):
        buckets.assign(PARTITION, ints([1]))


def test_index_files_beside_data_are_refused_by_the_name_of_the_option() -> None:
    chosen = DynamicBucketOptions.parse({"index-file-in-data-file-dir": "true"})
    with pytest.raises(UnsupportedError, match="index-file-in-data-file-dir"):
        DynamicBuckets(table(keyed=True).store, chosen)
