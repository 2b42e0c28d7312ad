"""MERGE with a frame of Spark into tables whose keys move between partitions, and such with postponed buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.merge_rows import AFTER_EVERY_CLAUSE, BASE, COLUMNS, FOR_EVERY_CLAUSE, SUM, data, every_clause, frame, rows
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.merge import job as spark_merge
from tidelake.engines.spark.write import job as writing
from tidelake.engines.spark.write.dynamic_buckets import owners_ran_once
from tidelake.errors import InvalidInputError
from tidelake.table import Table
from tidelake.table.merge_builder import Merge

PARTIAL = {"merge-engine": "partial-update"}
FIRST = {"merge-engine": "first-row"}
MOVING = {"bucket": "-1", "dynamic-bucket.target-row-num": "2"}
POSTPONED = {"bucket": "-2", "postpone.target-row-num-per-bucket": "2"}
STAGED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "moving": (["k"], MOVING),
    "moving, partial-update": (["k"], {**MOVING, **PARTIAL}),
    "moving, aggregation": (["k"], {**MOVING, **SUM}),
    "moving, first-row": (["k"], {**MOVING, **FIRST}),
    "postponed": (["p", "k"], POSTPONED),
    "postponed, a number": (["p", "k"], {"bucket": "-2", "postpone.default-bucket-num": "2"}),
    "postponed, staged": (["p", "k"], STAGED),
    "postponed, partial-update": (["p", "k"], {**POSTPONED, **PARTIAL}),
    "postponed, staged, aggregation": (["p", "k"], {**STAGED, **SUM}),
    "postponed, first-row": (["p", "k"], {**POSTPONED, **FIRST}),
}
Build = Callable[[Table, Any], Merge]


def filled(lake: Lake, name: str, kind: str, **options: str) -> Table:
    key, own = KINDS[kind]
    table = lake.create_table(f"db.{name}", COLUMNS, primary_key=key, partition_by=["p"], options={**own, **options})
    for part in (BASE[:3], BASE[3:]):
        table.write(data(*part))
    table.compact()
    return table


def files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def buckets(table: Table) -> list[tuple[Any, ...]]:
    """How many buckets each partition has, and which of them are in use."""
    columns = ["partition", "bucket", "total_buckets"]
    return sorted({tuple(map(str, row.values())) for row in table.files(columns=columns).to_pylist()})


def outcome(merge: Merge) -> Any:
    """What a merge counts, or what it is refused for."""
    try:
        done = merge.run()
    except InvalidInputError as error:
        return error.code, error.message
    return [getattr(done, each) for each in ("updated", "deleted", "inserted", "written", "rows")]


def assert_same(
    spark: Any, lake: Lake, kind: str, build: Build, found: Any, before: Callable[[Table], object] | None = None
) -> Table:
    """Assert that a merge on Spark does what it does in process; gives the table that Spark merged into."""
    here, there = filled(lake, "here", kind), filled(lake, "there", kind)
    for table in (here, there):
        if before is not None:
            before(table)
    assert outcome(build(there, frame(spark, found))) == outcome(build(here, found))
    assert rows(there) == rows(here)
    if there.options["bucket"] == "-2":
        assert buckets(there) == buckets(here)
    assert there.check(deep=True, rows=True).ok
    assert there.check(deep=True).orphans == ()
    for table in (here, there):
        table.compact(full=True)
    assert rows(there) == rows(here)
    return there


# ------------------------------------------------------------------------------------------------ clauses


@pytest.mark.parametrize("kind", KINDS)
def test_every_clause_does_its_part_as_in_process(spark: Any, lake: Lake, kind: str) -> None:
    table = assert_same(spark, lake, kind, every_clause, FOR_EVERY_CLAUSE)
    assert rows(table) == AFTER_EVERY_CLAUSE


@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if "moving" in kind), "postponed", "postponed, staged"])
def test_a_new_row_with_the_key_of_a_changed_one_comes_behind_it(spark: Any, lake: Lake, kind: str) -> None:
    """Keys that are elsewhere move, stay or lose; rows of one key come from several tasks."""

    def build(table: Table, source: Any) -> Merge:
        return (
            table.merge(source, on=["v"])
            .when_matched_update({"n": "t.n + s.n"})
            .when_not_matched_insert()
            .when_not_matched_by_source_update({"n": "-1", "v": "'changed'"}, condition="t.k <= 3")
            .when_not_matched_by_source_delete("t.k = 5")
        )

    found = data((1, "a", "x", 10), (2, "c", None, 20), (3, "b", "z", None), (5, "c", "w", 50), (9, "a", "d", 90))
    assert_same(spark, lake, kind, build, found)


@pytest.mark.parametrize("kind", ["moving", "moving, first-row", "postponed"])
def test_a_merge_that_needs_no_look_is_a_write(spark: Any, lake: Lake, kind: str) -> None:
    keys = KINDS[kind][0]

    def build(table: Table, source: Any) -> Merge:
        merge = table.merge(source, on=keys)
        if "moving, " in kind:  # rows of such a table stay where they are
            return merge.when_not_matched_insert()
        return merge.when_matched_update().when_not_matched_insert()

    table = assert_same(spark, lake, kind, build, data((2, "b", None, 9), (1, "c", "moved", 8), (9, "a", "z", 1)))
    assert len({row[0] for row in rows(table)}) == 6


def test_an_update_moves_a_row_to_another_partition(spark: Any, lake: Lake) -> None:
    def build(table: Table, source: Any) -> Merge:
        merge = table.merge(source, on=["k"]).when_matched_update({"p": "s.p", "n": "t.n + s.n"})
        return merge.when_not_matched_insert().when_not_matched_by_source_update({"p": "'d'"}, condition="t.k = 4")

    table = assert_same(spark, lake, "moving", build, data((1, "b", "x", 10), (5, "a", "x", 10), (9, "c", "z", 9)))
    assert rows(table) == [
        (1, "b", "a", 11),
        (2, "b", "b", 2),
        (3, "a", None, None),
        (4, "d", "d", 4),
        (5, "a", "e", 15),
        (9, "c", "z", 9),
    ]


def test_a_row_that_must_not_move_is_refused(spark: Any, lake: Lake) -> None:
    table = filled(lake, "t", "moving, partial-update")
    with pytest.raises(InvalidInputError, match="cannot move to another partition"):
        table.merge(frame(spark, data((1, "b", "x", 10))), on=["k"]).when_matched_update({"p": "s.p"}).run()


@pytest.mark.parametrize("kind", ["moving", "postponed", "postponed, a number"])
def test_defaults_fill_new_rows_and_not_the_nulls_of_others(spark: Any, lake: Lake, kind: str) -> None:
    table = filled(lake, "t", kind).alter(defaults={"v": "none"})
    merge = table.merge(frame(spark, data((3, "a", "x", 5), (9, "a", "y", 6))), on=["k"])
    done = merge.when_matched_update({"n": "s.n"}).when_not_matched_insert({"k": "s.k", "p": "s.p"}).run()
    assert (done.updated, done.inserted) == (1, 1)
    assert [row for row in rows(table) if row[0] in (3, 9)] == [(3, "a", None, 5), (9, "a", "none", None)]


@pytest.mark.parametrize("kind", ["moving", "postponed"])
def test_an_empty_table_and_an_empty_source(spark: Any, lake: Lake, kind: str) -> None:
    key, own = KINDS[kind]
    table = lake.create_table("db.t", COLUMNS, primary_key=key, partition_by=["p"], options=own)
    merge = table.merge(frame(spark, data((1, "a", "x", 5))), on=["k"]).when_not_matched_insert()
    assert merge.run(plan_only=True).source_rows == 1
    assert (merge.run().inserted, rows(table)) == (1, [(1, "a", "x", 5)])
    assert table.merge(frame(spark, []), on=["k"]).when_not_matched_by_source_delete("t.k < 3").run().deleted == 1


def test_a_batch_that_needs_far_more_buckets_rescales_first(spark: Any, lake: Lake) -> None:
    factor = {"postpone.batch-write-fixed-bucket.rescale-load-factor": "2"}
    found = data(*((number, "a", "new", number) for number in range(1, 30)))
    made = []
    for name, source in (("here", found), ("there", frame(spark, found))):
        table = filled(lake, name, "postponed", **factor)
        merge = table.merge(source, on=["k", "p"]).when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert()
        made.append((outcome(merge), rows(table), buckets(table)))
    assert made[0] == made[1]
    assert made[0][0] == [3, 0, 26, 29, 29]


# ------------------------------------------------------------------------------------------------ rows that wait


def stage(table: Table, *found: tuple[Any, ...]) -> None:
    table.write(data(*found), commit_user="stream", identifier=1)


@pytest.mark.parametrize(
    ("on", "refused"),
    [
        ("t.k = s.k and t.p = s.p", False),
        ("t.k = s.k and t.p = lower(s.p)", False),
        ("t.n < s.n and t.p <> 'b'", False),
        ("t.k = s.k", True),
    ],
)
def test_rows_that_wait_are_in_the_way_where_they_are_in_process(
    spark: Any, lake: Lake, on: str, refused: bool
) -> None:
    def build(table: Table, source: Any) -> Merge:
        return table.merge(source, on=on).when_matched_update({"v": "s.v", "n": "9"})

    found = data((1, "a", "x", 2), (7, "c", "y", 0))  # b, where rows wait, lies between
    table = assert_same(spark, lake, "postponed", build, found, lambda table: stage(table, (4, "b", "waits", 40)))
    assert ((1, "a", "a", 1) in rows(table)) is refused
    assert (4, "b", "waits", 40) in rows(table)  # they have their buckets now
    if refused:
        assert outcome(build(table, frame(spark, found))) == [1, 0, 0, 1, 1]


def test_an_upsert_does_not_look_at_rows_that_wait(spark: Any, lake: Lake) -> None:
    def build(table: Table, source: Any) -> Merge:
        return table.merge(source, on=["k", "p"]).when_matched_update().when_not_matched_insert()

    table = assert_same(
        spark, lake, "postponed", build, data((4, "b", "x", 9)), lambda table: stage(table, (4, "b", "waits", 40))
    )
    assert (4, "b", "waits", 40) in rows(table)


def test_of_very_many_partitions_their_range_is_looked_at(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.engines.spark.merge.source.LISTED", 1)
    table = filled(lake, "t", "postponed")
    stage(table, (4, "b", "waits", 40))
    changing = {"v": "s.v"}
    assert table.merge(frame(spark, data((1, "a", "x", 1))), on=["k", "p"]).when_matched_update(changing).run().updated
    both = table.merge(frame(spark, data((1, "a", "y", 1), (1, "c", "y", 1))), on=["k", "p"])
    with pytest.raises(InvalidInputError, match="staged rows have no buckets yet"):
        both.when_matched_update(changing).run()


# ------------------------------------------------------------------------------------------------ others in between


def run_between(monkeypatch: pytest.MonkeyPatch, merge: Merge, *others: Callable[[], object]) -> tuple[Any, int]:
    """The merge, with other jobs that act before its first commits; and how often it was tried."""
    real, waiting, attempts = spark_merge.commit_merge, list(others), []

    def commit(*args: Any) -> Any:
        attempts.append(args)
        if waiting:
            waiting.pop(0)()
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(spark_merge, "commit_merge", commit)
        return merge.run(), len(attempts)


def adding(spark: Any, table: Table, *found: tuple[Any, ...]) -> Merge:
    merge = table.merge(frame(spark, data(*found)), on=list(table.primary_key))
    return merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert()


@pytest.mark.parametrize("kind", ["moving", "moving, first-row", "postponed", "postponed, a number"])
def test_what_others_commit_meanwhile_is_neither_lost_nor_doubled(
    spark: Any, lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", kind)

    def other() -> None:
        both = data((9, "a", "other", 100), (4, "b", "other", 100))
        table.merge(both, on=["k"]).when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert().run()

    done, attempts = run_between(monkeypatch, adding(spark, table, (9, "a", "mine", 1), (4, "b", "mine", 1)), other)
    assert attempts == 2
    assert (done.updated, done.inserted) == (2, 0)
    assert rows(table)[3:] == [(4, "b", "d", 105), (5, "a", "e", 5), (9, "a", "other", 101)]
    report = table.check(deep=True, rows=True)
    assert report.ok
    assert report.orphans == ()


def test_keys_that_others_moved_or_removed_meanwhile_are_looked_for_again(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", "moving")

    def other() -> None:
        table.write(data((1, "z", "moved", 100), (9, "z", "new", 100)))
        table.delete("k = 4")
        table.write(data((6, "b", "in its place", 6)))

    merge = adding(spark, table, (9, "a", "mine", 1), (1, "a", "mine", 1), (4, "a", "again", 1))
    done, attempts = run_between(monkeypatch, merge, other)
    assert (attempts, done.updated, done.inserted) == (2, 2, 1)
    assert [row for row in rows(table) if row[0] in (1, 4, 9)] == [
        (1, "z", "moved", 101),
        (4, "a", "again", 1),
        (9, "z", "new", 101),
    ]
    assert table.check(deep=True, rows=True).ok


def test_an_upsert_of_keys_that_others_moved_is_settled_again(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", "moving")
    known, others = spark_merge.commit_rows, [lambda: table.write(data((1, "z", "other", 0)))]

    def overtaken(*args: Any) -> Any:
        if others:
            others.pop()()
        return known(*args)

    monkeypatch.setattr(spark_merge, "commit_rows", overtaken)
    merge = table.merge(frame(spark, data((1, "b", "mine", 7))), on=["k"])
    assert merge.when_matched_update().when_not_matched_insert().run().written == 1
    assert [row for row in rows(table) if row[0] == 1] == [(1, "b", "mine", 7)]
    assert table.check(deep=True, rows=True).ok


@pytest.mark.parametrize("kind", ["postponed", "postponed, staged"])
def test_rows_that_waited_and_got_their_buckets_meanwhile_are_not_lost(
    spark: Any, lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", kind)

    def other() -> None:
        stage(table, (4, "b", "other", 100), (2, "b", "other", 100))
        table.compact()

    done, attempts = run_between(monkeypatch, adding(spark, table, (4, "b", "mine", 1)), other)
    table.compact()
    assert (attempts, done.updated) == (2, 1)
    assert [row for row in rows(table) if row[1] == "b"] == [(2, "b", "other", 100), (4, "b", "other", 101)]


def test_a_merge_that_would_wait_is_not_put_behind_rows_that_wait(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", "postponed, staged")
    merge = adding(spark, table, (4, "b", "mine", 1))
    with pytest.raises(InvalidInputError, match="staged rows have no buckets yet"):
        run_between(monkeypatch, merge, lambda: stage(table, (5, "b", "other", 1), (4, "b", "other", 100)))
    table.compact()
    assert (4, "b", "other", 100) in rows(table)


# ------------------------------------------------------------------------------------------------ what fails


@pytest.mark.parametrize("kind", ["moving", "postponed"])
def test_what_is_refused_leaves_nothing_behind(spark: Any, lake: Lake, kind: str) -> None:
    table = filled(lake, "t", kind)
    there = files(table)
    twice = frame(spark, data((4, "b", "x", 1), (4, "b", "y", 2), (9, "a", "z", 3)))
    with pytest.raises(InvalidInputError, match="several source rows change one row"):
        table.merge(twice, on=["k"]).when_matched_update({"v": "s.v"}).when_not_matched_insert().run()
    new = frame(spark, data((9, "a", "x", 1), (9, "a", "y", 2)))
    with pytest.raises(InvalidInputError, match="several source rows have one key"):
        table.merge(new, on=["v"]).when_not_matched_insert().run()
    assert (rows(table), files(table)) == (BASE, there)


def test_owners_that_ran_twice_are_run_again(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(lake, "t", "moving")
    answers = iter([False, True])
    monkeypatch.setattr(writing, "owners_ran_once", lambda runs: owners_ran_once(runs) and next(answers))
    assert adding(spark, table, (9, "a", "z", 9), (1, "b", "x", 10)).run().rows == 2
    assert list(answers) == []
    assert rows(table)[0] == (1, "a", "a", 11)
    assert table.check(deep=True).orphans == ()
