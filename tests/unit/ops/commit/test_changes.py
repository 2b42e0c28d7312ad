"""Messages become the lists of a commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.small_tables import compaction, file, message, ranged, row, vectors
from tidelake.errors import InvalidInputError
from tidelake.ops.commit.changes import NO_CHANGES, drop_stats_of_deleted_files, split_messages, upgrade_levels
from tidelake.ops.commit.messages import CommitMessage
from tidelake.spec.data_file import EMPTY_ROW, SimpleStats
from tidelake.spec.manifests.index_manifest import HASH, IndexFile
from tidelake.spec.manifests.manifest import ADD, DELETE, entries_table
from tidelake.spec.types.data_types import INT


def facts(table) -> list[tuple[int, str]]:
    return list(zip(table["kind"].to_pylist(), table["file_name"].to_pylist(), strict=True))


def test_written_and_compacted_files_part_and_deletions_stand_first():
    both = replace(
        message("new", deleted_files=(file("old"),), changelog_files=(file("log"),)),
        compact=compaction((file("x"),), (file("y"),)).compact,
    )
    written, compacted = split_messages([both], default_buckets=-1)
    assert facts(written.delta) == [(DELETE, "old"), (ADD, "new")]
    assert facts(written.changelog) == [(ADD, "log")]
    assert facts(compacted.delta) == [(DELETE, "x"), (ADD, "y")]
    assert compacted.changelog.num_rows == 0


def test_the_table_says_how_many_buckets_where_the_message_does_not():
    written, _ = split_messages([message("a", total=None), message("b", total=7)], default_buckets=4)
    assert written.delta["total_buckets"].to_pylist() == [4, 7]


def test_nothing_changes_nothing():
    written, compacted = split_messages([], default_buckets=-1)
    assert written.is_empty
    assert compacted.is_empty
    assert NO_CHANGES.is_empty
    assert not NO_CHANGES.deletes_rows


def test_an_index_file_alone_is_a_change():
    written, _ = split_messages([message(new_index_files=(vectors("i", "a"),))], default_buckets=-1)
    assert not written.is_empty
    assert written.deletes_rows
    assert written.partitions() == {row("d1")}


def test_a_hash_index_takes_no_rows_away_and_belongs_to_no_partition_of_its_own():
    hashes = IndexFile(index_type=HASH, file_name="h", file_size=1, row_count=1)
    written, _ = split_messages([message("a", dt="d2", new_index_files=(hashes,))], default_buckets=-1)
    assert not written.deletes_rows
    assert written.partitions() == {row("d2")}


def test_one_file_added_twice_by_two_messages_is_refused():
    with pytest.raises(InvalidInputError, match="adds one file twice"):
        split_messages([message("a"), message("a")], default_buckets=-1)
    split_messages([message("a"), message("a", dt="d2"), message("a", bucket=1)], default_buckets=-1)


@pytest.mark.parametrize(
    "fields",
    [
        {"file_name": "../x"},
        {"file_name": ""},
        {"file_name": None},
        {"file_name": 7},
        {"file_name": "a\ud800"},
        {"extra_files": ("a/b",)},
        {"extra_files": (None,)},
        {"file_size": -1},
        {"file_size": 2**70},
        {"file_size": None},
        {"row_count": -1},
        {"row_count": "1"},
        {"level": 2**40},
        {"level": -1},
        {"schema_id": -1},
        {"min_key": None},
        {"value_stats": SimpleStats(None)},  # type: ignore[arg-type]
        {"value_stats": None},
        {"min_sequence": 2**63},
    ],
)
def test_what_no_reader_would_accept_is_refused_before_it_is_published(fields: dict[str, Any]):
    bad = replace(file("a"), **fields)
    for sent in (message(bad), compaction((), (bad,)), message("b", changelog_files=(bad,))):
        with pytest.raises(InvalidInputError):
            split_messages([sent], default_buckets=-1)


@pytest.mark.parametrize("bucket", [-1, -3, 2**31, -(2**40)])
def test_a_bucket_without_a_folder_is_refused(bucket):
    with pytest.raises(InvalidInputError):
        split_messages([message("a", bucket=bucket)], default_buckets=-1)


@pytest.mark.parametrize("bucket", [0, 7, -2])
def test_real_buckets_and_the_postponed_one_are_fine(bucket):
    written, _ = split_messages([message("a", bucket=bucket)], default_buckets=-1)
    assert written.delta["bucket"].to_pylist() == [bucket]


@pytest.mark.parametrize("name", ["../i", "a/b", ""])
def test_a_hostile_index_file_is_refused(name):
    with pytest.raises(InvalidInputError):
        split_messages([message(new_index_files=(vectors(name, "a"),))], default_buckets=-1)


def test_statistics_leave_deletions_and_stay_with_additions():
    full = file("a", value_stats=SimpleStats(b"lo", b"hi", (1,)), value_stats_cols=("v",))
    table = entries_table([(ADD, row("d1"), 0, 1, full), (DELETE, row("d1"), 0, 1, replace(full, file_name="b"))])
    dropped = drop_stats_of_deleted_files(table)
    assert dropped["value_stats_min"].to_pylist() == [b"lo", EMPTY_ROW]
    assert dropped["value_stats_null_counts"].to_pylist() == [[1], []]
    assert dropped["value_stats_cols"].to_pylist() == [["v"], []]
    assert dropped.drop_columns([n for n in table.column_names if n.startswith("value_stats")]).equals(
        table.drop_columns([n for n in table.column_names if n.startswith("value_stats")])
    )


# ------------------------------------------------------------------------------------------------ raising levels


def levels(messages: tuple[CommitMessage, ...]) -> list[int]:
    return [each.level for sent in messages for each in sent.data.new_files]


def raised(*messages: CommitMessage) -> tuple[CommitMessage, ...]:
    return upgrade_levels(messages, level=5, key_types=[INT])


def test_files_that_do_not_overlap_go_to_the_top():
    assert levels(raised(message(ranged("a", 1, 3, level=0), ranged("b", 4, 9, level=0)))) == [5, 5]


def test_files_that_overlap_stay_and_other_buckets_do_not_care():
    sent = raised(
        message(ranged("a", 1, 3, level=0), ranged("b", 3, 9, level=0)), message(ranged("c", 1, 3, level=0), bucket=1)
    )
    assert levels(sent) == [0, 0, 5]


def test_messages_of_one_bucket_are_looked_at_together():
    sent = raised(message(ranged("a", 1, 5, level=0)), message(ranged("b", 2, 3, level=0)))
    assert sorted(each.file_name for m in sent for each in m.data.new_files) == ["a", "b"]
    assert levels(sent) == [0, 0]


@pytest.mark.parametrize("odd", [message(ranged("z", 1, 2, level=1)), message(ranged("z", 1, 2, level=0), bucket=-2)])
def test_nothing_is_raised_unless_every_file_is_new_and_in_a_real_bucket(odd):
    assert levels(raised(message(ranged("a", 50, 60, level=0), dt="d2"), odd))[0] == 0


def test_files_that_a_commit_moves_are_the_same_tuple_of_values():
    assert message("a") == message("a")
    assert message().is_empty
    assert not message("a").is_empty
