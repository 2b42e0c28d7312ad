"""DELETE and UPDATE of primary-key tables, whatever the merge engine, whoever commits in between."""

from __future__ import annotations

import pytest

import tidelake as tl
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.ops.change.verbs import run_delete, run_update
from tidelake.table import Table

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "n"},
    "deduplicate, deletions ignored": {"ignore-delete": "true"},
    "partial-update": {"merge-engine": "partial-update"},
    "partial-update, deletions remove": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "sequence group": {"merge-engine": "partial-update", "fields.n.sequence-group": "v"},
    "sequence group, deletions remove": {
        "merge-engine": "partial-update",
        "fields.n.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "n",
    },
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "aggregation, deletions remove": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"merge-engine": "first-row"},
}


@pytest.fixture
def make(tmp_path):
    def table(columns=None, primary_key=("k",), partition_by=(), **options) -> Table:
        return tl.connect(tmp_path).create_table(
            "d.t",
            columns or COLUMNS,
            primary_key=list(primary_key),
            partition_by=list(partition_by),
            options={"bucket": "1", **options},
        )

    return table


def rows(table: Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def write(table: Table, *found: tuple[object, ...]) -> None:
    table.write([dict(zip(table.schema.names, row, strict=True)) for row in found])


def kinds(table: Table) -> list[str]:
    last = table.latest_snapshot()
    return [table.snapshot(number).commit_kind.value for number in range(1, last.id + 1)] if last else []


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_match_are_gone_and_stay_gone(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1), (2, "b", 2), (3, None, None), (4, "d", 4))
    write(table, (2, "b", 2), (5, "e", 5))
    before = {row[0]: row for row in rows(table)}
    assert table.delete("k in (2, 3)").rows == 2
    left = [row for key, row in before.items() if key not in (2, 3)]
    assert rows(table) == left
    assert table.count() == len(left)
    table.compact(full=True)
    assert rows(table) == left
    assert table.check(rows=True).ok


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_match_show_their_new_values(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1), (2, "b", 2), (3, None, None))
    write(table, (2, "c", 3))
    before = {row[0]: row for row in rows(table)}
    assert table.update({"v": "'new'", "n": "n - 1"}, "k >= 2").rows == 2
    wanted = [row if key == 1 else (key, "new", None if row[2] is None else row[2] - 1) for key, row in before.items()]
    assert rows(table) == wanted
    table.compact(full=True)
    assert rows(table) == wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_can_be_taken_away(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1), (2, "b", 2))
    assert table.update({"v": "null"}, "k = 2").rows == 1
    assert rows(table) == [(1, "a", 1), (2, None, 2)]


def test_a_smaller_sequence_value_does_not_lose_to_the_row_it_replaces(make):
    table = make(**{"sequence.field": "n"})
    write(table, (1, "a", 7))
    assert table.update({"n": "3"}, "k = 1").rows == 1
    assert rows(table) == [(1, "a", 3)]
    write(table, (1, "b", 5))
    assert rows(table) == [(1, "b", 5)]


def test_deletions_are_versions_where_they_win_and_replace_files_where_they_do_not(make, tmp_path):
    table = make()
    write(table, (1, "a", 1), (2, "b", 2))
    table.delete("k = 1")
    assert kinds(table) == ["APPEND", "APPEND"]
    other = tl.connect(tmp_path).create_table(
        "d.u", COLUMNS, primary_key=["k"], options={"bucket": "1", **ENGINES["aggregation"]}
    )
    write(other, (1, "a", 1), (2, "b", 2))
    other.delete("k = 1")
    assert kinds(other) == ["APPEND", "OVERWRITE"]
    assert other.latest_snapshot().operation == "DELETE"
    assert other.files()["level"].to_pylist() == [5]


def test_only_the_sections_that_hold_a_match_are_written_anew(make):
    table = make(**ENGINES["aggregation"], **{"write-only": "true"})
    write(table, (1, "a", 1), (2, "b", 2))
    write(table, (10, "a", 1), (12, "b", 2))
    write(table, (11, "a", 1))
    names = dict(zip(table.files()["min_sequence"].to_pylist(), table.files()["file_name"].to_pylist(), strict=True))
    table.delete("k = 11")
    left = table.files().to_pylist()
    assert {file["file_name"] for file in left} & set(names.values()) == {names[0]}
    assert sorted((file["level"], file["row_count"]) for file in left) == [(0, 2), (5, 2)]


@pytest.mark.parametrize("engine", ["deduplicate", "first-row"])
def test_nothing_is_committed_where_nothing_matches(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1))
    before = kinds(table)
    assert table.delete("v = 'zz'").snapshot_ids == ()
    assert table.update({"v": "'y'"}, "n > 100").snapshot_ids == ()
    assert kinds(table) == before


def test_a_section_that_loses_all_its_rows_leaves_no_file(make):
    table = make(**ENGINES["first-row"])
    write(table, (1, "a", 1))
    assert table.delete("v = 'a'").rows == 1
    assert table.files().num_rows == 0
    write(table, (1, "b", 2))
    assert rows(table) == [(1, "b", 2)]


def test_a_row_that_waits_on_level_0_is_deleted_with_the_one_that_hides_it(make):
    table = make(**ENGINES["first-row"])
    write(table, (1, "a", 1), (2, "b", 2))
    write(table.with_options({"write-only": "true"}), (1, "z", 9), (3, "c", 3))
    assert rows(table) == [(1, "a", 1), (2, "b", 2)]
    table.delete("v = 'a'")
    table.compact(full=True)
    assert rows(table) == [(2, "b", 2), (3, "c", 3)]


def test_a_new_value_that_does_not_fit_is_refused_and_leaves_nothing_behind(make, tmp_path):
    table = make({"k": "INT NOT NULL", "v": "INT NOT NULL"}, **{"merge-engine": "first-row"})
    table.write([{"k": 1, "v": 1}])
    files = sorted((tmp_path / "d.db/t/bucket-0").iterdir())
    with pytest.raises(InvalidInputError, match="null"):
        table.update({"v": "null"}, "k = 1")
    assert sorted((tmp_path / "d.db/t/bucket-0").iterdir()) == files
    assert rows(table) == [(1, 1)]


def test_the_primary_key_cannot_be_updated_whatever_the_engine(make):
    table = make(**ENGINES["aggregation"])
    write(table, (1, "a", 1))
    with pytest.raises(InvalidInputError, match="primary key cannot be changed"):
        table.update({"k": "2"}, "k = 1")


# ------------------------------------------------------------------------------------------------ whole partitions


PARTED = {"dt": "STRING", "k": "INT NOT NULL", "v": "STRING"}


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation", "first-row", "no key"])
def test_a_condition_on_partitions_alone_drops_them_without_reading_a_row(make, tmp_path, engine):
    keys = () if engine == "no key" else ("dt", "k")
    columns = PARTED if engine == "no key" else {**PARTED, "dt": "STRING NOT NULL"}
    options = {"bucket": "-1"} if engine == "no key" else {"merge-engine": engine}
    table = make(columns, primary_key=keys, partition_by=["dt"], **options)
    write(table, ("a", 1, "x"), ("a", 2, "y"), ("b", 1, "z"))
    for data in (tmp_path / "d.db/t/dt=a").rglob("data-*"):
        data.write_bytes(b"unreadable")
    done = table.delete("dt < 'b'")
    assert done.rows == 2
    assert rows(table) == [("b", 1, "z")]
    assert kinds(table)[-1] == "OVERWRITE"
    assert table.delete("dt = 'nowhere'").snapshot_ids == ()
    assert table.delete("true").rows == 1
    assert rows(table) == []
    assert table.delete("false").snapshot_ids == ()


def test_a_partition_that_is_null_is_no_match(make):
    table = make(PARTED, primary_key=(), partition_by=["dt"], bucket="-1")
    write(table, (None, 1, "x"), ("a", 2, "y"))
    assert table.delete("dt <> 'zz'").rows == 1
    assert rows(table) == [(None, 1, "x")]
    assert table.delete("dt is null").rows == 1
    assert rows(table) == []


def test_changes_are_written_where_they_are_asked_for(make):
    table = make(
        {**PARTED, "dt": "STRING NOT NULL"},
        primary_key=("dt", "k"),
        partition_by=["dt"],
        **{"delete.force-produce-changelog": "true"},
    )
    write(table, ("a", 1, "x"), ("b", 1, "z"))
    assert table.delete("dt = 'a'").rows == 1
    assert kinds(table) == ["APPEND", "APPEND"]
    assert rows(table) == [("b", 1, "z")]


def test_a_condition_on_partitions_and_more_looks_at_rows(make):
    table = make({**PARTED, "dt": "STRING NOT NULL"}, primary_key=("dt", "k"), partition_by=["dt"])
    write(table, ("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"))
    assert table.delete("dt = 'a' and v = 'x'").rows == 1
    assert rows(table) == [("a", 2, "y"), ("b", 1, "x")]


# ------------------------------------------------------------------------------------------------ others in between


class Interrupted:
    """A committer before whose first commits another job acts."""

    def __init__(self, table: Table, *others) -> None:
        self._inner = table._committer(None)
        self._others = list(others)
        self.attempts = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def commit(self, *args, **how):
        self.attempts += 1
        if self._others:
            self._others.pop(0)()
        return self._inner.commit(*args, **how)


def increment(table: Table, committer: Interrupted, where: str) -> int:
    scalars = {"n": table._scalar("n + 1")}
    return run_update(table.context_to_write(), committer, scalars, table._condition(where)).rows


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_a_row_that_another_commit_changed_meanwhile_is_read_again(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1), (2, "b", 2))
    committer = Interrupted(table, lambda: write(table, (1, "other", 100)))
    assert increment(table, committer, "k = 1") == 1
    assert committer.attempts == 2
    assert rows(table) == [(1, "other", 101), (2, "b", 2)]


def test_a_delete_does_not_take_a_row_that_no_longer_matches(make):
    table = make()
    write(table, (1, "a", 1), (2, "a", 2))
    committer = Interrupted(table, lambda: write(table, (1, "kept", 1)))
    assert run_delete(table.context_to_write(), committer, table._condition("v = 'a'")).rows == 1
    assert rows(table) == [(1, "kept", 1)]


def test_other_keys_of_the_bucket_are_nobodys_business(make):
    table = make()
    write(table, (1, "a", 1), (2, "b", 2), (9, "z", 9))
    committer = Interrupted(table, lambda: write(table, (3, "c", 3), (5, "e", 5)))
    assert increment(table, committer, "k in (1, 9)") == 2
    assert committer.attempts == 1
    assert rows(table) == [(1, "a", 2), (2, "b", 2), (3, "c", 3), (5, "e", 5), (9, "z", 10)]


def test_an_overwrite_in_between_is_not_undone(make):
    table = make()
    write(table, (1, "a", 1), (2, "b", 2))
    committer = Interrupted(table, lambda: table.write([{"k": 2, "v": "fresh", "n": 7}], mode="overwrite"))
    assert increment(table, committer, "k <= 2") == 1
    assert rows(table) == [(2, "fresh", 8)]


def test_a_compaction_in_between_does_no_harm(make):
    table = make()
    write(table, (1, "a", 1))
    write(table, (2, "b", 2))
    committer = Interrupted(table, lambda: table.compact(full=True))
    assert increment(table, committer, "k = 1") == 1
    assert rows(table) == [(1, "a", 2), (2, "b", 2)]
    assert committer.attempts == 1


@pytest.mark.parametrize("engine", ["aggregation", "first-row"])
def test_a_rewrite_is_planned_again_when_its_files_are_gone(make, engine):
    table = make(**ENGINES[engine], **{"write-only": "true"})
    write(table, (1, "a", 1), (2, "b", 2))
    write(table, (2, "c", 2), (3, "c", 3))
    plain = table.with_options({"write-only": "false"})
    committer = Interrupted(table, lambda: plain.compact(full=True))
    assert run_delete(table.context_to_write(), committer, table._condition("k = 2")).rows == 1
    assert committer.attempts == 2
    assert rows(plain) == [(1, "a", 1), (3, "c", 3)]
    assert table.check(rows=True).ok


@pytest.mark.parametrize("engine", ["aggregation", "first-row"])
def test_rows_written_while_others_are_rewritten_are_kept(make, engine):
    table = make(**ENGINES[engine])
    write(table, (1, "a", 1), (2, "b", 2))
    committer = Interrupted(table, lambda: write(table.with_options({"write-only": "true"}), (1, "n", 5), (3, "c", 3)))
    assert run_delete(table.context_to_write(), committer, table._condition("k = 1")).rows == 1
    table.compact(full=True)
    assert rows(table) == [(1, "n", 5), (2, "b", 2), (3, "c", 3)]


def test_two_updates_of_one_row_both_count(make):
    """An update that replaces files meets one that wrote a version of the same row."""
    table = make(**{"sequence.field": "n"})
    write(table, (1, "a", 1), (2, "b", 2))
    committer = Interrupted(table, lambda: table.update({"v": "concat(v, '!')"}, "k = 1"))
    assert increment(table, committer, "k = 1") == 1
    assert committer.attempts == 2
    assert rows(table) == [(1, "a!", 2), (2, "b", 2)]


def test_one_that_is_overtaken_every_time_gives_up_and_changes_nothing(make):
    table = make()
    write(table, (1, "a", 1))
    committer = Interrupted(table, *([lambda: table.update({"v": "concat(v, '!')"}, "k = 1")] * 20))
    with pytest.raises(CommitConflictError, match="changed the same rows") as caught:
        increment(table, committer, "k = 1")
    assert caught.value.code == "rows-changed"
    assert rows(table) == [(1, "a" + "!" * committer.attempts, 1)]
    assert table.check().ok


# ------------------------------------------------------------------------------------------------ counting


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_counted_as_they_are_read(make, engine):
    table = make(**ENGINES[engine], **{"write-only": "true"})
    for low in (0, 5, 40, 44):
        write(table, *((key, "x", key) for key in range(low, low + 10)))
    table.compact()
    write(table, *((key, "y", key) for key in range(90, 95)))
    assert table.count() == table.to_arrow().num_rows
    assert table.scan(limit=7).count() == min(7, table.count())


def test_files_that_overlap_nothing_are_counted_by_their_metadata(make, tmp_path):
    table = make(**{"write-only": "true"})
    write(table, *((key, "x", key) for key in range(10)))
    alone = table.files()["file_name"].to_pylist()[0]
    write(table, *((key, "x", key) for key in range(20, 30)))
    write(table, *((key, "x", key) for key in range(25, 35)))
    table.write([{"k": 25, "v": None, "n": None, "rowkind": "-D"}])
    (tmp_path / "d.db/t/bucket-0" / alone).write_bytes(b"unreadable")
    assert table.count() == 10 + 14


# ------------------------------------------------------------------------------------------------ NOT NULL


def test_a_null_that_a_merge_makes_in_a_column_without_nulls_is_refused_by_name(make):
    table = make(
        {"k": "INT NOT NULL", "v": "INT NOT NULL", "w": "STRING"},
        **{"merge-engine": "aggregation", "fields.v.aggregate-function": "last_non_null_value"},
    )
    table.write([{"k": 1, "v": 5, "w": "a"}, {"k": 2, "v": 6, "w": "b"}])
    table.write([{"k": 1, "v": 5, "w": "a", "rowkind": "-U"}])
    with pytest.raises(InvalidInputError, match="declared NOT NULL holds a null") as caught:
        table.to_arrow()
    assert caught.value.facts["column"] == "v"
    assert [row["w"] for row in table.to_arrow(["w"]).to_pylist()] == [None, "b"]
    with pytest.raises(InvalidInputError, match="null"):
        table.compact(full=True)
    assert rows(table.alter(nullable={"v": True})) == [(1, None, None), (2, 6, "b")]


WAITING = {
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors of 64 bits": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "vectors, partial-update": {
        "deletion-vectors.enabled": "true",
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "vectors, aggregation": {"deletion-vectors.enabled": "true", "merge-engine": "aggregation"},
    "first-row": {"merge-engine": "first-row"},
}


@pytest.fixture
def waiting(make):
    """A table with rows that reads show, and others that wait for a compaction, some of keys that are shown."""

    def made(kind: str) -> Table:
        table = make(**WAITING[kind])
        write(table, (1, "a", 1), (2, "b", 2), (3, "c", 3))
        table.compact(full=True)
        write(table.with_options({"write-only": "true"}), (2, "wait", 20), (4, "wait", 40), (5, "wait", 50))
        assert [row[0] for row in rows(table)] == [1, 2, 3]
        return table

    return made


@pytest.mark.parametrize("kind", WAITING)
def test_a_row_that_waits_for_a_compaction_is_deleted_too(waiting, kind):
    table = waiting(kind)
    first = kind == "first-row"
    assert table.delete("k = 4 or n = 20").rows == (1 if first else 2)
    table.compact(full=True)
    left = [(1, "a", 1), (2, "b", 2), (3, "c", 3)] if first else [(1, "a", 1), (3, "c", 3)]
    assert rows(table) == [*left, (5, "wait", 50)]
    assert table.check(rows=True).ok


@pytest.mark.parametrize("kind", WAITING)
def test_a_row_that_waits_for_a_compaction_is_updated_too(waiting, kind):
    table = waiting(kind)
    second = (2, "b", 2) if kind == "first-row" else (2, "wait", 20)
    assert table.update({"v": "'new'"}, "n >= 20").rows == (2 if kind == "first-row" else 3)
    table.compact(full=True)
    changed = second if kind == "first-row" else (2, "new", 20)
    assert rows(table) == [(1, "a", 1), changed, (3, "c", 3), (4, "new", 40), (5, "new", 50)]
    assert table.check(rows=True).ok


@pytest.mark.parametrize("kind", WAITING)
def test_a_merge_meets_rows_that_wait_for_a_compaction(waiting, kind):
    table = waiting(kind)
    source = [{"k": 2, "v": "x", "n": 20}, {"k": 4, "v": "y", "n": 0}, {"k": 6, "v": "z", "n": 60}]
    merge = table.merge(source, on="target.k = source.k")
    done = (
        merge.when_matched_delete("target.n = source.n")
        .when_matched_update({"v": "source.v"})
        .when_not_matched_insert()
    )
    result = done.run()
    first = kind == "first-row"
    assert (result.updated, result.deleted, result.inserted) == ((2, 0, 1) if first else (1, 1, 1))
    table.compact(full=True)
    second = [(2, "x", 2)] if first else []
    left = [(1, "a", 1), *second, (3, "c", 3), (4, "y", 40), (5, "wait", 50), (6, "z", 60)]
    assert rows(table) == left


def test_a_change_of_rows_that_wait_does_not_bring_them_out(waiting):
    """A writer that does not compact adds to what waits; reads show both changes together, later."""
    table = waiting("vectors")
    assert table.with_options({"write-only": "true"}).delete("k in (1, 4)").rows == 2
    assert [row[0] for row in rows(table)] == [1, 2, 3]
    table.compact()
    assert [row[0] for row in rows(table)] == [2, 3, 5]
