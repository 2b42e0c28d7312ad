"""Primary-key tables through the public face: upserts, deletions, updates, compaction, levels and explanations."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.write.keyed import find_temporary_files, join_increments
from tidelake.spec.data_file import DataFile
from tidelake.table import Table

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}


@pytest.fixture
def make(tmp_path):
    def table(name="d.t", columns=None, primary_key=("k",), partition_by=(), **options) -> Table:
        return tl.connect(tmp_path).create_table(
            name,
            columns or COLUMNS,
            primary_key=list(primary_key),
            partition_by=list(partition_by),
            options={"bucket": "1", **{key.replace("_", "-"): value for key, value in options.items()}},
        )

    return table


def rows(table: Table, **how: object) -> list[dict[str, object]]:
    return sorted(table.to_arrow(**how).to_pylist(), key=repr)


def levels(table: Table) -> list[tuple[int, int]]:
    found = table.inspect.lsm()
    return list(zip(found["level"].to_pylist(), found["files"].to_pylist(), strict=True))


def test_the_newest_row_of_a_key_wins(make):
    table = make()
    table.write([{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "b", "n": 2}, {"k": 1, "v": "c", "n": 3}])
    table.write([{"k": 2, "v": "d", "n": 4}])
    assert rows(table) == [{"k": 1, "v": "c", "n": 3}, {"k": 2, "v": "d", "n": 4}]
    assert rows(table.at(snapshot=1)) == [{"k": 1, "v": "c", "n": 3}, {"k": 2, "v": "b", "n": 2}]
    assert table.count() == 2
    assert "1 needs a merge" in table.scan().explain()


def test_kinds_come_in_a_column_that_the_table_does_not_have(make):
    table = make()
    table.write([{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "b", "n": 1}])
    table.write([{"k": 1, "v": "a", "n": 1, "rowkind": "-D"}, {"k": 3, "v": "c", "n": 1, "rowkind": "+I"}])
    table.write(pa.table({"k": [2], "v": ["z"], "n": [9], "op": ["-D"]}), row_kind="op")
    assert rows(table) == [{"k": 3, "v": "c", "n": 1}]


def test_a_kind_that_is_none_is_refused_and_nothing_is_written(make):
    table = make()
    with pytest.raises(InvalidInputError, match="row kind is not known"):
        table.write([{"k": 1, "v": "a", "n": 1, "rowkind": "DELETE"}])
    assert table.latest_snapshot() is None


def test_kinds_may_be_a_column_of_the_table(make):
    table = make(columns={"k": "INT NOT NULL", "op": "STRING"}, **{"rowkind.field": "op"})
    table.write([{"k": 1, "op": "+I"}, {"k": 2, "op": "+I"}])
    table.write([{"k": 1, "op": "-D"}])
    assert [row["k"] for row in rows(table)] == [2]


def test_deletions_are_refused_where_there_is_no_key(tmp_path):
    table = tl.connect(tmp_path).create_table("d.a", COLUMNS)
    with pytest.raises(InvalidInputError, match="only insertions"):
        table.write([{"k": 1, "v": "a", "n": 1, "rowkind": "-D"}])


def test_delete_and_update_find_rows_by_a_condition(make):
    table = make()
    table.write([{"k": k, "v": "a", "n": k} for k in range(5)])
    assert table.delete("n >= 3").rows == 2
    assert table.update({"v": "concat(v, '!')"}, "k = 1").rows == 1
    assert [(row["k"], row["v"]) for row in rows(table)] == [(0, "a"), (1, "a!"), (2, "a")]


def test_the_primary_key_cannot_be_updated(make):
    table = make()
    table.write([{"k": 1, "v": "a", "n": 1}])
    with pytest.raises(InvalidInputError, match="primary key cannot be changed"):
        table.update({"k": "2"}, "k = 1")


def test_writers_compact_by_themselves_and_a_full_compaction_leaves_one_level(make):
    table = make()
    for number in range(5):
        table.write([{"k": k, "v": str(number), "n": number} for k in range(number, number + 3)])
    assert levels(table) == [(5, 1)]
    table.write([{"k": 0, "v": "new", "n": 9, "rowkind": "-D"}])
    before = rows(table)
    assert levels(table) == [(0, 1), (5, 1)]
    plan = table.compact(full=True, plan_only=True)
    assert plan.files == 2
    table.compact(full=True)
    assert levels(table) == [(5, 1)]
    assert rows(table) == before
    assert table.files()["delete_row_count"].to_pylist() == [0]
    assert table.check().ok


def test_a_write_only_table_leaves_compaction_to_others(make):
    table = make(**{"write-only": "true"})
    for number in range(7):
        table.write([{"k": 1, "v": str(number), "n": number}])
    assert levels(table) == [(0, 7)]
    table.compact()
    assert levels(table) == [(5, 1)]
    assert rows(table) == [{"k": 1, "v": "6", "n": 6}]


def test_a_table_chooses_its_buckets_itself(make):
    table = make(bucket="-1", **{"dynamic-bucket.target-row-num": "10"})
    table.write([{"k": k, "v": "a", "n": k} for k in range(35)])
    table.write([{"k": k, "v": "b", "n": k} for k in range(30, 45)])
    assert sorted(set(table.files()["bucket"].to_pylist())) == [0, 1, 2, 3, 4]
    assert [row["v"] for row in sorted(rows(table), key=lambda row: row["k"])] == ["a"] * 30 + ["b"] * 15


def test_a_partition_keeps_its_number_of_buckets(make):
    table = make(
        bucket="2", columns={**COLUMNS, "dt": "STRING NOT NULL"}, primary_key=("dt", "k"), partition_by=("dt",)
    )
    table.write([{"k": 1, "v": "a", "n": 1, "dt": "x"}])
    table = table.alter(set_options={"bucket": "4"})
    with pytest.raises(InvalidInputError, match="another number of buckets"):
        table.write([{"k": 1, "v": "a", "n": 1, "dt": "x"}])
    table.write([{"k": 1, "v": "b", "n": 1, "dt": "y"}])
    assert len(rows(table)) == 2


def test_a_small_buffer_flushes_on_the_way_and_order_is_kept(make):
    table = make(**{"write-buffer-size": "64 kb", "num-sorted-run.compaction-trigger": "100"})
    table.write([{"k": k % 50, "v": "x" * 20, "n": k} for k in range(5_000)], mode="append")
    assert sorted(row["n"] for row in rows(table)) == list(range(4_950, 5_000))


def test_two_writers_of_one_bucket_take_turns_and_the_later_commit_wins(make):
    table = make()
    first, second = table.new_write("a"), table.new_write("b")
    first.write([{"k": 1, "v": "first", "n": 1}, {"k": 2, "v": "first", "n": 1}])
    second.write([{"k": 1, "v": "second", "n": 2}])
    mine, theirs = first.prepare_commit(), second.prepare_commit()
    table.new_commit("b").commit(theirs)
    table.new_commit("a").commit(mine)
    expected = [{"k": 1, "v": "first", "n": 1}, {"k": 2, "v": "first", "n": 1}]
    assert rows(table) == expected
    table.compact(full=True)
    assert rows(table) == expected
    assert table.check().ok


def test_columns_that_are_not_asked_for_still_decide(make):
    table = make(**{"merge-engine": "partial-update", "fields.n.sequence-group": "v"})
    table.write([{"k": 1, "v": "new", "n": 5}])
    table.write([{"k": 1, "v": "late", "n": 3}])
    assert rows(table, columns=["v"]) == [{"v": "new"}]
    assert rows(table, columns=["k"], where="v = 'late'") == []


def test_why_tells_every_version_of_a_key(make):
    table = make()
    table.write([{"k": 1, "v": "a", "n": 1}])
    table.write([{"k": 1, "v": "b", "n": 2}])
    found = table.why({"k": 1})
    assert found.versions["v"].to_pylist() == ["a", "b"]
    assert found.versions["kind"].to_pylist() == ["+I", "+I"]
    assert found.row == {"k": 1, "v": "b", "n": 2}
    assert "the newest version wins" in str(found)
    table.delete("k = 1")
    assert table.why({"k": 1}).row is None
    assert table.why({"k": 7}).versions.num_rows == 0
    with pytest.raises(InvalidInputError, match="exactly the columns of the primary key"):
        table.why({})


def test_rows_of_older_schemas_are_merged_with_newer_ones(make):
    table = make()
    table.write([{"k": 1, "v": "a", "n": 1}, {"k": 2, "v": "b", "n": 2}])
    table = table.alter(add={"w": "INT"}, rename={"v": "text"})
    table.write([{"k": 2, "text": "c", "n": 3, "w": 7}])
    assert rows(table) == [{"k": 1, "text": "a", "n": 1, "w": None}, {"k": 2, "text": "c", "n": 3, "w": 7}]
    table.compact(full=True)
    assert rows(table) == [{"k": 1, "text": "a", "n": 1, "w": None}, {"k": 2, "text": "c", "n": 3, "w": 7}]


def file(name: str, level: int) -> DataFile:
    return DataFile(file_name=name, file_size=1, row_count=1, level=level)


def test_compactions_that_follow_each_other_are_told_as_one():
    first = CompactIncrement(before=(file("a", 0), file("b", 0)), after=(file("c", 4), file("b", 4)))
    second = CompactIncrement(before=(file("c", 4), file("b", 4)), after=(file("d", 5),))
    whole = join_increments([first, second])
    assert [(each.file_name, each.level) for each in whole.before] == [("a", 0), ("b", 0)]
    assert [(each.file_name, each.level) for each in whole.after] == [("d", 5)]
    assert [each.file_name for each in find_temporary_files([first, second])] == ["c"]


def test_a_deletion_that_no_merge_could_take_is_refused_before_it_is_written(make):
    table = make(merge_engine="partial-update")
    table.write([{"k": 1, "v": "a", "n": 1}])
    with pytest.raises(InvalidInputError, match="does not accept -U and -D rows") as caught:
        table.write([{"k": 2, "v": None, "n": None, "rowkind": "-D"}])
    assert "ignore-delete" in str(caught.value.hint)
    assert rows(table) == [{"k": 1, "v": "a", "n": 1}]
    removing = make("d.removing", merge_engine="partial-update", **{"partial-update.remove-record-on-delete": "true"})
    removing.write([{"k": 1, "v": "a", "n": 1}])
    removing.write([{"k": 1, "v": None, "n": None, "rowkind": "-D"}])
    assert rows(removing) == []


@pytest.mark.parametrize("bucket", ["1", "-1", "-2"])
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_an_overwrite_replaces_a_partition_whose_new_rows_take_each_other_back(make, bucket, producer):
    """Its old rows stayed where a compaction left no file of the new ones; Paimon goes by what was written."""
    table = make(
        columns={"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"},
        primary_key=("k", "p"),
        partition_by=("p",),
        bucket=bucket,
        **{"changelog-producer": producer, "num-sorted-run.compaction-trigger": "1"},
    )
    table.write([{"k": 1, "p": "a", "v": "x"}, {"k": 2, "p": "b", "v": "x"}, {"k": 3, "p": "c", "v": "x"}])
    news = [{"k": 5, "p": "a", "v": "new"}, {"k": 2, "p": "b", "v": "x"}, {"k": 2, "p": "b", "v": "x"}]
    kinds = ["+I", "+I", "-D"]
    data = [{**row, "rowkind": kind} for row, kind in zip(news, kinds, strict=True)]
    table.write(data, mode="overwrite-dynamic")
    table.compact()
    assert rows(table) == [{"k": 3, "p": "c", "v": "x"}, {"k": 5, "p": "a", "v": "new"}]
    assert table.check(deep=True).ok


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge-engine": "partial-update"},
        {"merge-engine": "partial-update", "full-compaction.delta-commits": "1"},
        {"merge-engine": "partial-update", "changelog-producer": "lookup"},
        {"merge-engine": "partial-update", "deletion-vectors.enabled": "true"},
        {"merge-engine": "first-row"},
        {"bucket": "-1", "full-compaction.delta-commits": "1"},
    ],
    ids=["plain", "partial", "full", "lookup", "vectors", "first-row", "dynamic"],
)
def test_a_job_that_began_before_a_column_was_added_does_not_erase_its_values(tmp_path, options):
    """Its compactions wrote the rows of others again with the columns that it knew."""
    lake = tl.connect(tmp_path)
    table = lake.create_table("d.t", COLUMNS, primary_key=["k"], options={"bucket": "1", **options})
    stale, added = lake.table("d.t"), table.alter(add={"w": "INT"})
    added.write([{"k": k, "v": "new", "n": k, "w": k} for k in range(1, 4)])
    for number in range(8):
        assert stale.write([{"k": 2, "v": "old", "n": 0}, {"k": 100 + number, "v": "old", "n": 0}]).warnings == ()
    prepared = stale.new_write()
    prepared.write([{"k": 200, "v": "old", "n": 0}])
    (warning,) = stale.new_commit().commit(prepared.prepare_commit()).warnings
    assert "committed with schema 0, but the table has schema 1" in warning
    for _ in range(2):
        found = {row["k"]: row["w"] for row in lake.table("d.t").to_arrow().to_pylist()}
        overwritten = "merge-engine" not in options
        assert [found[k] for k in (1, 2, 3)] == [1, None if overwritten else 2, 3]
        assert len(found) == 12
        lake.table("d.t").compact(full=True)
    assert lake.table("d.t").check(deep=True, rows=True).ok


@pytest.mark.parametrize("primary_key", [None, ["k"]], ids=["append", "keyed"])
def test_a_long_lived_job_is_told_that_the_table_has_a_newer_schema(tmp_path, primary_key):
    """It went on for ever with the old columns and left compactions to others, without a word."""
    lake = tl.connect(tmp_path)
    options = {"bucket": "1"} if primary_key else {}
    table = lake.create_table("d.t", COLUMNS, primary_key=primary_key, options=options)
    writer, commit = table.new_write("job"), table.new_commit("job")

    def commit_row(number: int) -> tuple[str, ...]:
        writer.write([{"k": number, "v": "x", "n": number}])
        return commit.commit(writer.prepare_commit(number), identifier=number).warnings

    assert commit_row(1) == ()
    table.alter(add={"w": "INT"})
    for number in (2, 3):
        (warning,) = commit_row(number)
        assert warning.endswith("open the table again")
    again = lake.table("d.t")
    written = again.new_write("job")
    written.write([{"k": 4, "v": "x", "n": 4, "w": 4}])
    assert again.new_commit("job").commit(written.prepare_commit(4), identifier=4).warnings == ()
    assert again.to_arrow(order_by="k").column("w").to_pylist() == [None, None, None, 4]
