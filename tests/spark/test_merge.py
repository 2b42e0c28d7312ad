"""MERGE with a frame of Spark: the same rows, counts and refusals as in process; the source stays on the cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.merge_rows import (
    AFTER_EVERY_CLAUSE,
    BASE,
    COLUMNS,
    FOR_EVERY_CLAUSE,
    SUM,
    data,
    every_clause,
    frame,
    rows,
)
from tidelake.catalog.lake import Lake
from tidelake.engines.spark.merge import job as spark_merge
from tidelake.engines.spark.merge.tasks import Match, Shuffle, merge_by_key
from tidelake.errors import CommitConflictError, InvalidInputError, UnsupportedError
from tidelake.ops.change.merge import Way
from tidelake.table import Table
from tidelake.table.merge_builder import Merge

VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "append": ([], ["p"], {}),
    "append, buckets": ([], [], {"bucket": "2", "bucket-key": "k"}),
    "append, vectors": ([], [], {**VECTORS, "deletion-vectors.bitmap64": "true"}),
    "deduplicate": (["k"], [], {"bucket": "2"}),
    "deduplicate, vectors": (["p", "k"], ["p"], {"bucket": "1", **VECTORS, "changelog-producer": "lookup"}),
    "dynamic buckets": (["k"], [], {"dynamic-bucket.target-row-num": "3"}),
    "by sequence": (["k"], [], {"bucket": "1", "sequence.field": "n"}),
    "partial-update": (["k"], [], {"bucket": "1", "merge-engine": "partial-update"}),
    "aggregation": (["p", "k"], ["p"], {"bucket": "2", **SUM}),
    "first-row": (["k"], [], {"bucket": "2", "merge-engine": "first-row"}),
}


def filled(lake: Lake, name: str, kind: str, **options: str) -> Table:
    key, partition, own = KINDS[kind]
    table = lake.create_table(
        f"db.{name}", COLUMNS, primary_key=key, partition_by=partition, options={**own, **options}
    )
    for part in (BASE[:3], BASE[3:]):
        table.write([dict(zip(COLUMNS, row, strict=True)) for row in part])
    return table


def files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("*-*") if path.parent.name.startswith(("bucket", "index"))}


def assert_same(spark: Any, lake: Lake, kind: str, build: Callable[[Table, Any], Merge], found: Any) -> Table:
    """Assert that a merge on Spark does what it does in process; gives the table that Spark merged into."""
    here, there = filled(lake, "here", kind), filled(lake, "there", kind)
    local, remote = build(here, found), build(there, frame(spark, found))
    done, wanted = remote.run(), local.run()
    assert rows(there) == rows(here)
    counts = ("updated", "deleted", "inserted", "written", "rows")
    assert [getattr(done, each) for each in counts] == [getattr(wanted, each) for each in counts]
    assert len(done.snapshot_ids) == len(wanted.snapshot_ids)
    assert all(there.snapshot(each).operation in ("MERGE", None) for each in done.snapshot_ids)
    assert there.check(deep=True, rows=True).ok
    return there


# ------------------------------------------------------------------------------------------------ clauses


@pytest.mark.parametrize("kind", KINDS)
def test_every_clause_does_its_part_as_in_process(spark: Any, lake: Lake, kind: str) -> None:
    table = assert_same(spark, lake, kind, every_clause, FOR_EVERY_CLAUSE)
    assert rows(table) == AFTER_EVERY_CLAUSE
    table.compact(full=True)
    assert rows(table) == AFTER_EVERY_CLAUSE


@pytest.mark.parametrize("kind", ["append", "deduplicate", "dynamic buckets", "partial-update", "aggregation"])
def test_update_all_and_insert_all_are_an_upsert(spark: Any, lake: Lake, kind: str) -> None:
    keys = KINDS[kind][0] or ["k"]

    def build(table: Table, source: Any) -> Merge:
        return table.merge(source, on=keys).when_matched_update().when_not_matched_insert()

    assert_same(spark, lake, kind, build, data((2, "b", None, 9), (9, "a", "z", 1)))


@pytest.mark.parametrize("kind", ["append", "deduplicate", "aggregation"])
def test_rows_belong_together_by_any_condition(spark: Any, lake: Lake, kind: str) -> None:
    def build(table: Table, source: Any) -> Merge:
        return table.merge(source, on="t.n < s.n").when_matched_update({"v": "concat(s.v, ' met')"})

    table = assert_same(spark, lake, kind, build, data((0, "a", "x", 3)))
    assert {row[0] for row in rows(table) if row[2] == "x met"} == {1, 2}


def test_a_new_version_that_would_lose_makes_sections_be_written_anew(spark: Any, lake: Lake) -> None:
    def build(table: Table, source: Any) -> Merge:
        return table.merge(source, on=["k"]).when_matched_update({"n": "s.n", "v": "s.v"}).when_not_matched_insert()

    table = assert_same(spark, lake, "by sequence", build, data((4, "b", "older", 1), (9, "a", "z", 1)))
    assert (4, "b", "older", 1) in rows(table)


@pytest.mark.parametrize("kind", ["deduplicate", "dynamic buckets", "by sequence"])
def test_a_new_row_with_the_key_of_a_changed_one_comes_behind_it(spark: Any, lake: Lake, kind: str) -> None:
    def build(table: Table, source: Any) -> Merge:
        return (
            table.merge(source, on=["v"])
            .when_matched_update({"n": "s.n"})
            .when_not_matched_insert()
            .when_not_matched_by_source_update({"v": "'changed'"}, condition="t.k <= 4")
            .when_not_matched_by_source_delete("t.k = 5")
        )

    new = [(*old[:2], text, old[3] or 0) for old, text in zip(BASE, "zyzwx", strict=True)]  # from both of two tasks
    table = assert_same(spark, lake, kind, build, data(*new, (9, "a", "d", 5)))
    assert [row[2] for row in rows(table)] == (["z", "y", "z", "d", "x"] if kind == "by sequence" else list("zyzwx"))


def test_values_that_expressions_compute_are_upserted_without_a_read(spark: Any, lake: Lake) -> None:
    def build(table: Table, source: Any) -> Merge:
        values = {"p": "s.p", "v": "concat(s.v, '?')", "n": "s.n * 2"}
        return table.merge(source, on=["k"]).when_matched_update(values).when_not_matched_insert({"k": "s.k", **values})

    table = assert_same(spark, lake, "deduplicate", build, data((4, "c", "x", 3), (9, "a", None, None)))
    assert (4, "c", "x?", 6) in rows(table)


def test_keys_of_other_types_meet_where_they_are_equal(spark: Any, lake: Lake) -> None:
    columns = {"x": "DOUBLE", "d": "DECIMAL(10, 2)", "t": "TIMESTAMP(3)", "m": "TIME(3)", "hit": "INT"}
    table = lake.create_table("db.t", columns)
    import datetime as dt
    from decimal import Decimal

    at = dt.datetime(2026, 1, 2)
    table.write(
        [
            {"x": 0.0, "d": Decimal("1.50"), "t": at, "m": dt.time(1), "hit": 0},
            {"x": float("nan"), "d": Decimal("2.50"), "t": at, "m": dt.time(2), "hit": 0},
            {"x": 1.0, "d": None, "t": None, "m": None, "hit": 0},
        ]
    )
    source = spark.createDataFrame(
        [(-0.0, Decimal("1.5"), at, 3_600_000), (float("nan"), Decimal("2.5"), at, 7_200_000), (1.0, None, None, None)],
        "x double, d decimal(4, 1), t timestamp_ntz, m int",
    )
    for on, hits in ((["x"], 3), (["d"], 2), ("t.x = s.x and t.m <=> s.m", 3)):
        assert table.merge(source, on=on).when_matched_update({"hit": "t.hit + 1"}).run().updated == hits, on
    with pytest.raises(InvalidInputError, match="several source rows change one row"):
        table.merge(source, on=["t"]).when_matched_update({"hit": "9"}).run()


def test_defaults_fill_what_an_insert_leaves_out_and_not_the_nulls_of_other_rows(spark: Any, lake: Lake) -> None:
    for name, keys in (("a", []), ("k", ["k"])):
        table = lake.create_table(f"db.{name}", COLUMNS, primary_key=keys, options={"bucket": "1"} if keys else {})
        table.write(data((1, "a", None, 1)))
        table = table.alter(defaults={"v": "none"})
        done = (
            table.merge(frame(spark, data((1, "a", "x", 5), (2, "a", "y", 6))), on=["k"])
            .when_matched_update({"n": "s.n"})
            .when_not_matched_insert({"k": "s.k", "p": "s.p"})
            .run()
        )
        assert (done.updated, done.inserted) == (1, 1)
        assert rows(table) == [(1, "a", None, 5), (2, "a", "none", None)]


def test_with_merge_schema_columns_are_added(spark: Any, lake: Lake) -> None:
    table = filled(lake, "t", "append", **{"write.merge-schema": "true"})
    source = spark.createDataFrame([(1, "a", True)], "k int, p string, extra boolean")
    table.merge(source, on=["k"]).when_matched_update().run()
    assert table.reload().to_arrow(where="k = 1").to_pylist() == [{"k": 1, "p": "a", "v": "a", "n": 1, "extra": True}]


def test_an_empty_source_and_an_empty_table(spark: Any, lake: Lake) -> None:
    table = filled(lake, "t", "append")
    nothing = frame(spark, [])
    assert table.merge(nothing, on=["k"]).when_matched_delete().run().snapshot_ids == ()
    assert table.merge(nothing, on=["k"]).when_not_matched_by_source_delete("t.k < 3").run().deleted == 2
    empty = lake.create_table("db.e", COLUMNS, primary_key=["k"], options={"bucket": "1", **SUM})
    done = empty.merge(frame(spark, data((1, "a", "x", 5))), on=["k"]).when_not_matched_insert().run()
    assert (done.inserted, rows(empty)) == (1, [(1, "a", "x", 5)])


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("kind", ["append", "append, buckets", "deduplicate"])
def test_two_source_rows_for_one_row_are_refused_and_nothing_is_left_behind(spark: Any, lake: Lake, kind: str) -> None:
    table = filled(lake, "t", kind)
    there = files(table)
    merge = table.merge(frame(spark, data((4, "b", "x", 1), (4, "b", "y", 2), (9, "a", "z", 3))), on=["k"])
    with pytest.raises(InvalidInputError, match="several source rows change one row") as caught:
        merge.when_matched_update({"v": "s.v", "n": "t.n + s.n"}).when_not_matched_insert().run()
    assert caught.value.code == "merge-ambiguous"
    assert caught.value.facts["row"] == "t.k = 4"
    assert rows(table) == BASE
    assert files(table) == there
    chosen = merge.when_matched_update({"v": "s.v"}, condition="s.n = 2").run()
    assert (chosen.updated, rows(table)[3]) == (1, (4, "b", "y", 4))


def test_two_source_rows_for_one_new_key_are_refused(spark: Any, lake: Lake) -> None:
    table = filled(lake, "t", "deduplicate")
    twice = frame(spark, data((9, "a", "x", 1), (9, "b", "y", 2)))
    for merge in (
        table.merge(twice, on=["k"]).when_not_matched_insert(),
        table.merge(twice, on=["k"]).when_matched_update().when_not_matched_insert(),
        table.merge(twice, on=["v"]).when_not_matched_insert(),
    ):
        with pytest.raises(InvalidInputError, match="several source rows have one key") as caught:
            merge.run()
        assert caught.value.facts["row"] == "k = 9"
    assert rows(table) == BASE


def test_a_value_that_does_not_fit_refuses_the_merge_and_leaves_nothing_behind(spark: Any, lake: Lake) -> None:
    for kind in ("append", "deduplicate"):
        table = filled(lake, kind, kind)
        there = files(table)
        source = frame(spark, [{"k": 1, "big": 2**40}], "k bigint, big bigint")
        with pytest.raises(InvalidInputError):
            table.merge(source, on=["k"]).when_not_matched_insert({"k": "s.big", "p": "'a'"}).when_matched_update(
                {"n": "cast('no number' as bigint)"}
            ).run()
        assert rows(table) == BASE
        assert files(table) == there


def test_what_spark_cannot_carry_is_refused_by_name(spark: Any, lake: Lake) -> None:
    fine = lake.create_table("db.fine", {"k": "INT NOT NULL", "t": "TIMESTAMP(9)"})
    source = frame(spark, [{"k": 1}], "k int")
    with pytest.raises(UnsupportedError, match="below a microsecond") as caught:
        fine.merge(source, on=["k"]).when_matched_update({"t": "null"}).run()
    assert caught.value.facts["column"] == "t"
    assert fine.merge(source, on=["k"]).when_matched_delete().run().deleted == 0
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidInputError, match="stream"):
        fine.merge(stream, on="t.k = s.value").when_matched_delete().run()
    twice = source.select("k", "k")
    with pytest.raises(InvalidInputError, match="column twice"):
        fine.merge(twice, on=["k"]).when_matched_delete().run()


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
    merge = table.merge(frame(spark, data(*found)), on="t.k = s.k and t.p = s.p")
    return merge.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert()


@pytest.mark.parametrize("kind", ["append", "append, vectors", "deduplicate", "dynamic buckets", "aggregation"])
def test_what_others_commit_meanwhile_is_neither_lost_nor_doubled(
    spark: Any, lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", kind)

    def other() -> None:
        both = data((9, "a", "other", 100), (4, "b", "other", 100))
        table.merge(both, on=["k", "p"]).when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert().run()

    merge = adding(spark, table, (9, "a", "mine", 1), (4, "b", "mine", 1))
    done, attempts = run_between(monkeypatch, merge, other)
    assert attempts == 2
    assert (done.updated, done.inserted) == (2, 0)
    assert rows(table)[3:] == [(4, "b", "d", 105), (5, "a", "e", 5), (9, "a", "other", 101)]
    assert table.check(deep=True, rows=True).ok


@pytest.mark.parametrize("kind", ["append", "deduplicate"])
def test_rows_of_others_count_only_if_they_have_a_partner(
    spark: Any, lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(lake, "t", kind)
    merge = (
        table.merge(frame(spark, data((8, "a", "y", 1), (50, "a", "z", 1))), on=["v"])
        .when_matched_update({"n": "t.n + s.n"})
        .when_not_matched_insert()
    )
    done, attempts = run_between(monkeypatch, merge, lambda: table.write(data((40, "a", "yy", 10))))
    assert (attempts, done.inserted) == (1, 2)
    done, attempts = run_between(
        monkeypatch,
        table.merge(frame(spark, data((60, "a", "q", 1))), on=["v"])
        .when_matched_update({"n": "t.n + s.n"})
        .when_not_matched_insert(),
        lambda: table.write(data((41, "a", "q", 10))),
    )
    assert (attempts, done.updated, done.inserted) == (2, 1, 0)
    assert (41, "a", "q", 11) in rows(table)


def test_who_is_overtaken_every_time_is_told_so_and_leaves_nothing_behind(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.ops.commit.replan._PLANS_MAX", 2)
    table = filled(lake, "t", "deduplicate")
    others = [lambda number=number: table.write(data((1, "a", "other", number))) for number in range(3)]
    with pytest.raises(CommitConflictError, match="another commit changed the same rows first"):
        run_between(monkeypatch, adding(spark, table, (1, "a", "mine", 1)), *others)
    assert rows(table)[0] == (1, "a", "other", 1)
    assert not table.check(deep=True).orphans


# ------------------------------------------------------------------------------------------------ how


def test_only_files_that_can_hold_a_partner_are_read_and_the_frame_is_let_go(spark: Any, lake: Lake) -> None:
    table = filled(lake, "t", "append")
    source = frame(spark, data((1, "a", "x", 1)))
    merge = table.merge(source, on=["k", "p"]).when_matched_update({"v": "s.v"})
    plan = merge.run(plan_only=True)
    assert (plan.way, plan.files, plan.source_rows) == (Way.FILES, 1, 1)
    assert "copy on write of files" in str(plan)
    before = set(table.files(columns=["file_name"]).column("file_name").to_pylist())
    merge.run()
    after = set(table.files(columns=["file_name"]).column("file_name").to_pylist())
    assert len(before - after) == 1
    assert not source.is_cached
    kept = source.cache()
    merge.run()
    assert kept.is_cached, "what the user keeps stays kept"
    kept.unpersist()


def test_the_source_never_comes_to_the_driver(spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(lake, "t", "append")

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("collected")

    source = spark.range(20_000).selectExpr("cast(id as int) k", "'a' p", "'s' v", "id n")
    for name in ("toArrow", "toPandas", "toLocalIterator"):
        monkeypatch.setattr(type(source), name, refused)
    done = table.merge(source, on=["k", "p"]).when_matched_delete().when_not_matched_insert().run()
    assert (done.deleted, done.inserted) == (3, 19_997)
    assert table.count() == 19_999


def test_what_tasks_do_pickles_and_holds_no_store(lake: Lake) -> None:
    table = filled(lake, "t", "deduplicate")
    merge = merge_by_key(table.schema)
    fields = tuple(table.schema.fields)
    for each in (
        Match(table.schema, table.context.options, merge, fields, fields),
        Shuffle.of(merge.join.equals, "t", fields, 3),
    ):
        again = pickle.loads(pickle.dumps(each))
        assert again == each
        assert b"TableStore" not in pickle.dumps(each)
