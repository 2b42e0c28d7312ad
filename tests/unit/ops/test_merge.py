"""MERGE into tables of every kind: clauses, what they may say, and who commits in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.ops.change import merge_keyed
from tidelake.ops.change.merge import Way, run_merge
from tidelake.ops.change.merge_rules import resolve_merge
from tidelake.ops.change.merge_source import typed_source
from tidelake.table import Table
from tidelake.table.merge_builder import Merge

COLUMNS = {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "append": ((), {}),
    "append, buckets": ((), {"bucket": "2", "bucket-key": "k"}),
    "append, vectors": ((), {"deletion-vectors.enabled": "true"}),
    "append, wide vectors": ((), {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}),
    "deduplicate": (("k",), {"bucket": "1"}),
    "deduplicate, vectors": (("k",), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "deduplicate, lookup": (("k",), {"bucket": "1", "changelog-producer": "lookup"}),
    "deduplicate, buckets": (("k",), {"bucket": "3"}),
    "dynamic buckets": (("k",), {}),
    "postponed buckets": (("k",), {"bucket": "-2"}),
    "by sequence": (("k",), {"bucket": "1", "sequence.field": "n"}),
    "deletions ignored": (("k",), {"bucket": "1", "ignore-delete": "true"}),
    "partial-update": (("k",), {"bucket": "1", "merge-engine": "partial-update"}),
    "partial-update, deletions remove": (
        ("k",),
        {"bucket": "1", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    ),
    "sequence group": (("k",), {"bucket": "1", "merge-engine": "partial-update", "fields.n.sequence-group": "v"}),
    "aggregation": (("k",), {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}),
    "aggregation, deletions remove": (
        ("k",),
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "aggregation.remove-record-on-delete": "true",
        },
    ),
    "aggregation, vectors": (
        ("k",),
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "deletion-vectors.enabled": "true",
        },
    ),
    "first-row": (("k",), {"bucket": "1", "merge-engine": "first-row"}),
}
BASE = [(1, "a", 1), (2, "b", 2), (3, None, None), (4, "d", 4), (5, "e", 5)]


@pytest.fixture
def make(tmp_path):
    def table(kind: str = "deduplicate", columns=None, partition_by=(), **options) -> Table:
        key, own = KINDS[kind]
        return tl.connect(tmp_path).create_table(
            "d.t",
            columns or COLUMNS,
            primary_key=[*partition_by, *key] if key else [],
            partition_by=list(partition_by),
            options={**own, **options},
        )

    return table


def write(table: Table, *found: tuple[object, ...]) -> None:
    table.write([dict(zip(table.schema.names, row, strict=True)) for row in found])


def filled(table: Table) -> Table:
    write(table, *BASE[:3])
    write(table, *BASE[3:])
    return table


def rows(table: Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def source(*found: tuple[object, ...], names: str = "k v n") -> list[dict[str, object]]:
    return [dict(zip(names.split(), row, strict=True)) for row in found]


# ------------------------------------------------------------------------------------------------ clauses


@pytest.mark.parametrize("kind", KINDS)
def test_every_clause_does_its_part(make, kind):
    table = filled(make(kind))
    changes = source((1, "x", 100), (2, "gone", 0), (7, "new", 7), (8, "left", 0))
    done = (
        table.merge(changes, on=["k"])
        .when_matched_delete("s.v = 'gone'")
        .when_matched_update({"v": "s.v", "n": "t.n + s.n"})
        .when_not_matched_insert({"k": "s.k", "n": "s.n"}, condition="s.n > 0")
        .when_not_matched_by_source_update({"v": "concat(t.v, '!')"}, condition="t.k = 5")
        .when_not_matched_by_source_delete("t.n is null")
        .run()
    )
    wanted = [(1, "x", 101), (4, "d", 4), (5, "e!", 5), (7, None, 7)]
    assert rows(table) == wanted
    assert (done.updated, done.deleted, done.inserted, done.rows) == (2, 2, 1, 5)
    assert table.snapshot(done.snapshot_ids[0]).operation == "MERGE"
    assert table.check(rows=True).ok
    table.compact(full=True)
    assert rows(table) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_update_all_and_insert_all_are_an_upsert(make, kind):
    table = filled(make(kind))
    merge = (
        table.merge(source((2, None, 9), (9, "z", 1)), on="t.k = s.k").when_matched_update().when_not_matched_insert()
    )
    done = merge.run()
    assert rows(table) == [(1, "a", 1), (2, None, 9), (3, None, None), (4, "d", 4), (5, "e", 5), (9, "z", 1)]
    assert done.written == done.rows == 2
    assert table.check(rows=True).ok


@pytest.mark.parametrize("kind", KINDS)
def test_insert_alone_leaves_rows_that_are_there(make, kind):
    table = filled(make(kind))
    table.merge(source((2, "other", 100), (9, "z", 9)), on=["k"]).when_not_matched_insert().run()
    assert rows(table) == [*BASE, (9, "z", 9)]


@pytest.mark.parametrize("kind", KINDS)
def test_delete_alone_deletes(make, kind):
    table = filled(make(kind))
    done = table.merge(source((2,), (3,), (77,), names="k"), on=["k"]).when_matched_delete().run()
    assert (done.deleted, done.updated, done.inserted) == (2, 0, 0)
    assert rows(table) == [BASE[0], *BASE[3:]]


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_clause_fits_nothing_is_committed(make, kind):
    table = filled(make(kind))
    before = table.latest_snapshot().id
    done = (
        table.merge(source((1, "x", 1), (9, "y", 2)), on=["k"])
        .when_matched_update(condition="s.n > 100")
        .when_not_matched_insert(condition="null")
        .run()
    )
    assert (done.snapshot_ids, done.rows) == ((), 0)
    assert table.latest_snapshot().id == before


@pytest.mark.parametrize("kind", ["append", "deduplicate", "first-row"])
def test_an_empty_table_takes_the_inserts(make, kind):
    table = make(kind)
    merge = table.merge(source((1, "a", 1)), on=["k"]).when_matched_delete("s.n > 5").when_not_matched_insert()
    assert merge.run().inserted == 1
    assert rows(table) == [(1, "a", 1)]


@pytest.mark.parametrize("kind", ["append", "deduplicate", "aggregation"])
def test_an_empty_source_leaves_only_rows_without_a_partner(make, kind):
    table = filled(make(kind))
    empty = pa.schema([("k", pa.int32()), ("n", pa.int64())]).empty_table()
    done = table.merge(empty, on=["k"]).when_matched_delete().when_not_matched_by_source_delete("t.k < 4").run()
    assert done.deleted == 3
    assert rows(table) == BASE[3:]
    assert table.merge([], on=["k"]).when_matched_update().when_not_matched_insert().run().rows == 0


@pytest.mark.parametrize("kind", ["append", "deduplicate", "aggregation"])
def test_the_first_clause_that_fits_decides_and_null_does_not_fit(make, kind):
    table = filled(make(kind))
    (
        table.merge(source((2, "s", 0), (3, "s", 0), (4, "s", 0)), on=["k"])
        .when_matched_update({"v": "'first'"}, condition="t.n > 3")  # null for 3
        .when_matched_update({"v": "'second'"}, condition="t.n > 1")
        .when_matched_update({"v": "'last'"})
        .run()
    )
    assert [row[1] for row in rows(table)] == ["a", "second", "last", "first", "e"]


@pytest.mark.parametrize("kind", ["append", "deduplicate", "first-row"])
def test_a_condition_is_not_computed_for_rows_that_an_earlier_clause_took(make, kind):
    table = filled(make(kind))
    (
        table.merge(source((1, "x", 0), (2, "y", 2)), on=["k"])
        .when_matched_delete("s.n = 0")
        .when_matched_update({"v": "s.v"}, condition="t.n / s.n = 1")
        .run()
    )
    assert rows(table)[0] == (2, "y", 2)


# ------------------------------------------------------------------------------------------------ pairs


@pytest.mark.parametrize("kind", ["append", "deduplicate"])
@pytest.mark.parametrize(
    ("on", "partners"),
    [
        ("t.v = s.v", {1, 2}),
        ("t.v = s.v AND t.n > 1", {2}),
        ("t.v <=> s.v", {1, 2, 3}),
        ("upper(t.v) = upper(s.v) and s.n > t.n", {1}),
        ("t.n < s.n", {1, 2, 4, 5}),
        ("t.n = s.n / 5", {1, 4}),
        ("false", set()),
        (tl.col("t.k") == tl.col("s.n"), {5}),
        (tl.col("source.n") - 4 == tl.col("target.k"), {1}),
    ],
)
def test_rows_belong_together_by_any_condition(make, kind, on, partners):
    table = filled(make(kind))
    found = pa.table({"v": ["a", "b", None], "n": pa.array([5, None, 20], pa.int64())})
    if isinstance(on, str) and on == "t.n < s.n":
        found = found.slice(2)
    table.merge(found, on=on).when_matched_update({"v": "'met'"}).run()
    assert {row[0] for row in rows(table) if row[1] == "met"} == partners


@pytest.mark.parametrize("kind", ["append", "deduplicate", "aggregation"])
def test_two_source_rows_for_one_row_are_refused_with_its_key(make, kind, tmp_path):
    table = filled(make(kind))
    files = sorted(tmp_path.rglob("data-*"))
    merge = table.merge(source((4, "x", 1), (4, "y", 2)), on=["k"]).when_matched_update({"v": "s.v", "n": "t.n + s.n"})
    with pytest.raises(InvalidInputError, match="several source rows change one row") as caught:
        merge.run()
    assert caught.value.code == "merge-ambiguous"
    assert caught.value.facts["row"] == "t.k = 4"
    assert sorted(tmp_path.rglob("data-*")) == files
    assert rows(table) == BASE


@pytest.mark.parametrize("kind", ["append", "deduplicate"])
def test_conditions_may_choose_between_source_rows(make, kind):
    table = filled(make(kind))
    merge = table.merge(source((4, "x", 1), (4, "y", 2)), on=["k"])
    merge.when_matched_update({"v": "s.v"}, condition="s.n = 2").run()
    assert rows(table)[3] == (4, "y", 4)


@pytest.mark.parametrize("kind", ["append", "deduplicate", "first-row"])
def test_a_row_may_be_deleted_by_several_source_rows_if_nothing_else_can_happen(make, kind):
    table = filled(make(kind))
    assert table.merge(source((4, "x", 1), (4, "y", 2)), on=["k"]).when_matched_delete().run().deleted == 1
    with pytest.raises(InvalidInputError, match="several source rows"):
        table.merge(source((5, "x", 1), (5, "y", 2)), on=["k"]).when_matched_delete("s.n > 0").run()


@pytest.mark.parametrize("kind", ["deduplicate", "aggregation", "first-row"])
def test_two_source_rows_for_one_new_key_are_refused(make, kind):
    table = filled(make(kind))
    twice = source((9, "x", 1), (9, "y", 2))
    for merge in (
        table.merge(twice, on=["k"]).when_not_matched_insert(),
        table.merge(twice, on=["k"]).when_matched_update().when_not_matched_insert(),
    ):
        with pytest.raises(InvalidInputError, match="several source rows have one key") as caught:
            merge.run()
        assert caught.value.facts["row"] == "k = 9"
    assert rows(table) == BASE


def test_an_append_table_takes_equal_rows(make):
    table = filled(make("append"))
    assert table.merge(source((9, "x", 1), (9, "x", 1)), on=["k"]).when_not_matched_insert().run().inserted == 2
    assert rows(table)[-2:] == [(9, "x", 1)] * 2


def test_nan_meets_nan_and_both_zeros_meet(make):
    table = make("append", {"x": "DOUBLE", "hit": "BOOLEAN"})
    table.write([{"x": 0.0}, {"x": float("nan")}, {"x": 1.5}, {"x": None}])
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    found = pa.table({"x": [-0.0, other_nan, None]})
    assert table.merge(found, on=["x"]).when_matched_update({"hit": "true"}).run().updated == 2
    assert [str(row["x"]) for row in table.to_arrow(where="hit", order_by="x").to_pylist()] == ["0.0", "nan"]


@pytest.mark.parametrize(
    ("dtype", "ours", "theirs"),
    [
        ("BIGINT", [1, 2], pa.array([2, 3], pa.int8())),
        ("TINYINT", [1, 2], pa.array([2, 300], pa.int64())),
        ("DECIMAL(10, 2)", ["1.00", "2.00"], pa.array(["2", "3"]).cast(pa.decimal128(4, 1))),
        ("DATE", ["2026-01-01", "2026-01-02"], pa.array(["2026-01-02", "2026-01-03"]).cast(pa.date32())),
        ("TIMESTAMP(3)", ["2026-01-01", "2026-01-02"], pa.array(["2026-01-02", "2026-01-03"]).cast(pa.timestamp("us"))),
        ("STRING", ["a", "b"], pa.array(["b", "c"]).dictionary_encode()),
        ("BYTES", [b"a", b"b"], pa.array([b"b", b"c"], pa.large_binary())),
        ("BOOLEAN", [True, False], pa.array([False, None])),
        ("FLOAT", [0.5, 1.5], pa.array([1.5, 7.25], pa.float64())),
    ],
)
@pytest.mark.parametrize("kind", ["append", "deduplicate"])
def test_keys_of_other_types_meet_where_they_are_equal(make, kind, dtype, ours, theirs):
    table = make(kind, {"k": f"{dtype} NOT NULL", "hit": "INT"})
    arrow = table.schema.to_arrow().field("k").type
    table.write(pa.table({"k": pa.array(ours).cast(arrow)}))
    assert (
        table.merge(pa.table({"k": theirs, "i": [1, 2]}), on=["k"]).when_matched_update({"hit": "s.i"}).run().updated
        == 1
    )
    assert table.to_arrow(where="hit is not null")["hit"].to_pylist() == [1]


# ------------------------------------------------------------------------------------------------ values


def test_a_star_needs_every_column_and_passes_over_others(make):
    table = filled(make())
    more = source((1, "x", 9, "extra"), names="k v n more")
    table.merge(more, on=["k"]).when_matched_update().run()
    assert rows(table)[0] == (1, "x", 9)
    with pytest.raises(InvalidInputError, match="source lacks columns of the table") as caught:
        table.merge(source((1, "x"), names="k v"), on=["k"]).when_matched_update().run()
    assert caught.value.facts["columns"] == "n"


@pytest.mark.parametrize("kind", ["append", "deduplicate"])
def test_with_merge_schema_columns_are_added_and_missing_ones_stay(make, kind):
    table = filled(make(kind, **{"write.merge-schema": "true"}))
    changes = source((1, "x", 7), (9, "y", 8), names="k v more")
    table.merge(changes, on=["k"]).when_matched_update().when_not_matched_insert().run()
    table = table.reload()
    assert table.schema.names == ("k", "v", "n", "more")
    found = {row[0]: row for row in rows(table)}
    assert found[1] == (1, "x", 1, 7)
    assert found[9] == (9, "y", None, 8)
    assert found[2] == (2, "b", 2, None)


@pytest.mark.parametrize("kind", ["append", "deduplicate", "partial-update"])
def test_defaults_fill_columns_that_an_insert_leaves_out_and_not_those_of_other_rows(make, kind):
    table = filled(make(kind))
    table = table.alter(defaults={"v": "none"})
    merge = table.merge(source((3, 33), (9, 99), names="k n"), on=["k"])
    merge.when_matched_update({"n": "s.n"}).when_not_matched_insert({"k": "s.k", "n": "s.n"}).run()
    found = {row[0]: row for row in rows(table)}
    assert found[9] == (9, "none", 99)
    assert found[3] == (3, None, 33)


@pytest.mark.parametrize("kind", ["append", "deduplicate", "first-row"])
def test_a_value_that_does_not_fit_refuses_the_merge_and_leaves_nothing_behind(make, kind, tmp_path):
    table = make(kind, {"k": "INT NOT NULL", "v": "INT NOT NULL"})
    write(table, (1, 1), (2, 2))
    files = sorted(tmp_path.rglob("data-*"))
    for values, message in (({"v": "nullif(s.v, 5)"}, "must not be null"), ({"v": "s.v * 1000000000"}, "fit")):
        with pytest.raises(InvalidInputError, match=message):
            table.merge(pa.table({"k": [1, 2], "v": [5, 5]}), on=["k"]).when_matched_update(values).run()
    with pytest.raises(InvalidInputError, match="fit"):
        table.merge(pa.table({"k": [9], "v": ["x"]}), on=["k"]).when_matched_update({"v": "s.v"}).run()
    assert sorted(tmp_path.rglob("data-*")) == files
    assert rows(table) == [(1, 1), (2, 2)]


def test_the_primary_key_cannot_be_changed_but_may_be_repeated(make):
    table = filled(make())
    with pytest.raises(InvalidInputError, match="primary key cannot be changed"):
        table.merge(source((1, "x", 2)), on=["k"]).when_matched_update({"k": "s.n"}).run()
    with pytest.raises(InvalidInputError, match="primary key cannot be changed"):
        table.merge(source((1, "a", 2)), on=["v"]).when_matched_update().run()
    table.merge(source((1, "x", 2)), on=["k"]).when_matched_update({"k": "s.k", "t.v": "s.v"}).run()
    assert rows(table)[0] == (1, "x", 1)


def test_a_row_of_an_append_table_moves_to_its_new_partition_and_bucket(make):
    table = make("append", {"dt": "STRING", "k": "INT", "n": "INT"}, partition_by=["dt"])
    write(table, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3))
    moved = pa.table({"k": [1, 9], "dt": ["c", "d"]})
    table.merge(moved, on=["k"]).when_matched_update({"dt": "s.dt"}).when_not_matched_insert(
        {"k": "s.k", "dt": "s.dt"}
    ).run()
    assert rows(table) == [("a", 2, 2), ("b", 3, 3), ("c", 1, 1), ("d", 9, None)]


def test_a_row_moves_to_another_partition_where_keys_may_and_is_refused_where_they_may_not(tmp_path):
    columns = {"dt": "STRING", "k": "INT NOT NULL", "n": "INT"}
    lake = tl.connect(tmp_path)
    table = lake.create_table("d.moving", columns, primary_key=["k"], partition_by=["dt"])
    write(table, ("a", 1, 1), ("a", 2, 2), ("b", 3, 3))
    news = [{"dt": "c", "k": 1, "n": 5}, {"dt": "c", "k": 9, "n": 9}]
    merge = table.merge(news, on=["k"]).when_matched_update({"dt": "s.dt", "n": "t.n + s.n"}).when_not_matched_insert()
    assert (merge.run().updated, rows(table)) == (1, [("a", 2, 2), ("b", 3, 3), ("c", 1, 6), ("c", 9, 9)])
    table.merge([{"dt": "b", "k": 2, "n": 0}], on=["k"]).when_matched_update().when_not_matched_insert().run()
    assert rows(table) == [("b", 2, 0), ("b", 3, 3), ("c", 1, 6), ("c", 9, 9)]
    fixed = lake.create_table("d.fixed", columns, primary_key=["k"], partition_by=["dt"], options={"bucket": "1"})
    write(fixed, ("a", 1, 1))
    with pytest.raises(InvalidInputError, match="cannot move to another partition"):
        fixed.merge(news, on=["k"]).when_matched_update({"dt": "s.dt"}).run()
    fixed.merge(news, on="t.k = s.k and t.dt <> s.dt").when_matched_update({"n": "s.n"}).run()
    assert rows(fixed) == [("a", 1, 5)]


def test_rows_that_wait_for_their_buckets_are_not_merged_over(make):
    table = filled(make("postponed buckets"))
    staged = table.new_write("job")
    staged.write(pa.Table.from_pylist(source((1, "waits", 9)), schema=table.schema.to_arrow()))
    table.new_commit("job").commit(staged.prepare_commit(1), identifier=1)
    merge = table.merge(source((1, "x", 1)), on=["k"]).when_matched_update({"n": "t.n + s.n"})
    with pytest.raises(InvalidInputError, match="staged rows have no buckets yet"):
        merge.run()
    table.compact()
    merge.run()
    assert rows(table)[0] == (1, "waits", 10)


@pytest.mark.parametrize("make_source", [lambda t: t, lambda t: t.scan(where="k <= 2"), lambda t: t.to_polars()])
def test_a_source_may_be_a_table_a_scan_or_a_frame(make, make_source):
    table = filled(make())
    done = table.merge(make_source(table), on=["k"]).when_matched_update({"n": "s.n * 10"}).run()
    assert done.updated in (2, 5)
    assert rows(table)[1] == (2, "b", 20)


def test_a_smaller_sequence_value_is_what_the_merge_says_all_the_same(make):
    table = filled(make("by sequence"))
    table.merge(source((4, "low", 1), (5, "high", 9)), on=["k"]).when_matched_update().run()
    assert rows(table)[3:] == [(4, "low", 1), (5, "high", 9)]
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    table.merge(source((4, "higher", 3), (5, "same", 9)), on=["k"]).when_matched_update().run()
    assert rows(table)[3:] == [(4, "higher", 3), (5, "same", 9)]
    assert table.latest_snapshot().commit_kind.value == "APPEND"


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: m, "merge has no clause"),
        (lambda m: m.when_matched_update({}), "nothing to update"),
        (lambda m: m.when_matched_update(["v"]), "not a mapping"),
        (lambda m: m.when_matched_update({"zz": "1"}), "column does not exist"),
        (lambda m: m.when_matched_update({"v": "s.zz"}), "column does not exist"),
        (lambda m: m.when_matched_update({"v": "v"}), "ambiguous"),
        (lambda m: m.when_matched_update({"v": tl.col("v")}), "ambiguous"),
        (lambda m: m.when_matched_update({"v": tl.col("s.zz")}), "does not exist"),
        (lambda m: m.when_matched_update(condition=5), "neither text nor an expression"),
        (lambda m: m.when_matched_update(condition="s.n +"), "syntax error"),
        (lambda m: m.when_not_matched_insert({"k": "t.k"}), "uses the side that has no row"),
        (lambda m: m.when_not_matched_insert(condition="t.k > 1"), "uses the side that has no row"),
        (lambda m: m.when_not_matched_by_source_delete("s.k > 1"), "uses the side that has no row"),
        (lambda m: m.when_not_matched_by_source_update({"v": "s.v"}), "uses the side that has no row"),
        (lambda m: m.when_matched_delete().when_matched_update(), "clause can never be reached"),
    ],
)
def test_a_clause_that_makes_no_sense_is_refused_before_anything_is_read(make, build, message):
    table = filled(make())
    with pytest.raises(InvalidInputError, match=message):
        build(table.merge(source((1, "x", 1)), on=["k"])).run()


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ([], "does not say which rows belong together"),
        (None, "does not say which rows belong together"),
        (["zz"], "not one of the table"),
        (["v"], "not one of the source"),
        ("v", "not one of the source"),
        ("k > 1", "ambiguous"),
        ("t.k = s.zz", "does not exist"),
    ],
)
def test_a_condition_that_names_no_pairs_is_refused(make, on, message):
    table = filled(make())
    with pytest.raises(InvalidInputError, match=message):
        table.merge(source((1,), names="k"), on=on).when_matched_delete().run()


def test_a_table_at_a_point_in_time_is_not_merged_into(make):
    table = filled(make())
    with pytest.raises(InvalidInputError, match="point in time"):
        table.at(snapshot=1).merge([], on=["k"])


# ------------------------------------------------------------------------------------------------ how it is done


def test_the_plan_says_how_and_what_is_read(make):
    table = filled(make(**{"write-only": "true"}))
    upsert = table.merge(source((1, "x", 1)), on=["k"]).when_matched_update().when_not_matched_insert()
    plan = upsert.run(plan_only=True)
    assert (plan.way, plan.files, plan.columns) == (Way.UPSERT, 0, ())
    some = table.merge(source((1, "x", 1)), on=["k"]).when_matched_update(condition="t.n < s.n")
    plan = some.run(plan_only=True)
    assert (plan.way, plan.files, plan.columns) == (Way.VERSIONS, 1, ("k", "n"))
    assert "when matched and t.n < s.n then update v = s.v, n = s.n" in some.explain()
    assert "reads   k, n of 1 files" in some.explain()
    assert table.latest_snapshot().id == 2
    assert repr(some) == "Merge(on=['k'], 1 clauses)"


def test_only_files_that_can_hold_a_partner_are_touched(make):
    table = make("append")
    write(table, (1, "a", 1), (2, "b", 2))
    write(table, (10, "a", 1), (12, "b", 2))
    names = set(table.files()["file_name"].to_pylist())
    merge = table.merge(source((11, "x", 1), (12, "y", 2)), on=["k"])
    assert merge.when_matched_delete().run(plan_only=True).files == 1
    merge.when_matched_update({"v": "s.v"}).when_not_matched_insert().run()
    left = table.files().to_pylist()
    assert len({file["file_name"] for file in left} & names) == 1
    assert rows(table) == [(1, "a", 1), (10, "a", 1), (11, "x", 1), (12, "y", 2), (2, "b", 2)]


def test_with_deletion_vectors_files_stay_and_rows_are_marked(make):
    table = filled(make("append, vectors"))
    names = set(table.files()["file_name"].to_pylist())
    merge = table.merge(source((1, "x", 1), (5, "y", 2)), on=["k"]).when_matched_update({"v": "s.v"})
    assert merge.run(plan_only=True).way is Way.MARKS
    merge.run()
    assert names < set(table.files()["file_name"].to_pylist())
    assert table.latest_snapshot().index_manifest is not None
    assert rows(table) == [(1, "x", 1), *BASE[1:4], (5, "y", 5)]
    table.merge(source((1,), (2,), (3,), names="k"), on=["k"]).when_matched_delete().run()
    assert rows(table) == [BASE[3], (5, "y", 5)]
    table.compact(full=True)
    assert rows(table) == [BASE[3], (5, "y", 5)]


def test_a_file_without_a_change_is_not_written_anew(make):
    table = make("append")
    write(table, (1, "a", 1), (5, "b", 2))
    names = table.files()["file_name"].to_pylist()
    done = table.merge(source((3, "x", 1)), on=["k"]).when_matched_delete().when_not_matched_insert().run()
    assert (done.deleted, done.inserted) == (0, 1)
    assert set(names) < set(table.files()["file_name"].to_pylist())
    assert table.latest_snapshot().commit_kind.value == "APPEND"


@pytest.mark.parametrize("kind", ["append", "deduplicate", "aggregation"])
def test_pieces_and_slices_of_pairs_do_not_change_the_result(make, monkeypatch, kind):
    from tidelake.ops.change import merge_join, merge_parts

    monkeypatch.setattr(merge_parts, "_PIECE_ROWS", 1)
    monkeypatch.setattr(merge_join, "_PAIRS", 2)
    table = make(kind)
    for number in range(6):
        write(table, *((number * 10 + each, "v", each) for each in range(5)))
    found = pa.table({"n": [1, 1, 3, 3, 7], "ok": [True, False, False, True, True]})
    done = (
        table.merge(found, on=["n"])
        .when_matched_update({"v": "'hit'"}, condition="s.ok")
        .when_not_matched_insert({"k": "0 - s.n", "n": "s.n"})
        .when_not_matched_by_source_delete("t.n = 0")
        .run()
    )
    assert (done.updated, done.inserted, done.deleted) == (12, 1, 6)
    hit = sorted(row[0] for row in rows(table) if row[1] == "hit")
    assert hit == [number * 10 + each for number in range(6) for each in (1, 3)]


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
        if args[0].operation is not None:  # what makes rows visible afterwards is no attempt
            self.attempts += 1
            if self._others:
                self._others.pop(0)()
        return self._inner.commit(*args, **how)


def run_between(table: Table, merge: Merge, *others):
    """The merge, with other jobs that act before its first commits; and how often it was tried."""
    committer = Interrupted(table, *others)
    data, fields = typed_source(merge.source, table.schema)
    resolved = resolve_merge(table.schema, fields, merge.on, merge.clauses)
    return run_merge(table.context_to_write(), committer, data, resolved), committer.attempts


def adding(table: Table, *found: tuple[object, ...]) -> Merge:
    """A merge that adds to `n`, or inserts."""
    return table.merge(source(*found), on=["k"]).when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert()


@pytest.mark.parametrize(
    "kind",
    [
        "append",
        "append, vectors",
        "deduplicate",
        "deduplicate, vectors",
        "dynamic buckets",
        "partial-update",
        "aggregation",
        "aggregation, vectors",
        "first-row",
    ],
)
def test_a_row_that_another_merge_inserted_meanwhile_is_not_doubled(make, kind):
    table = filled(make(kind))
    other = adding(table, (9, "other", 100))
    done, attempts = run_between(table, adding(table, (9, "mine", 1), (1, "x", 10)), other.run)
    assert attempts == 2
    assert (done.updated, done.inserted) == (2, 0)
    assert [row for row in rows(table) if row[0] == 9] == [(9, "other", 101)]
    assert rows(table)[0] == (1, "a", 11)
    assert table.check(rows=True).ok


@pytest.mark.parametrize(
    "kind",
    [
        "append",
        "append, vectors",
        "deduplicate",
        "deduplicate, vectors",
        "dynamic buckets",
        "partial-update",
        "aggregation",
        "aggregation, vectors",
        "first-row",
    ],
)
def test_an_update_of_another_merge_is_not_lost(make, kind):
    table = filled(make(kind))
    other = adding(table, (4, "other", 100))
    done, attempts = run_between(table, adding(table, (4, "mine", 1)), other.run)
    assert attempts == 2
    assert [row for row in rows(table) if row[0] == 4] == [(4, "d", 105)]
    assert done.updated == 1


@pytest.mark.parametrize("kind", ["append", "append, vectors", "deduplicate"])
def test_a_row_that_was_written_meanwhile_is_found_before_it_is_inserted_again(make, kind):
    table = filled(make(kind))
    done, attempts = run_between(table, adding(table, (9, "mine", 1)), lambda: write(table, (9, "blind", 50)))
    assert attempts == 2
    assert (done.inserted, done.updated) == (0, 1)
    assert rows(table)[-1] == (9, "blind", 51)


@pytest.mark.parametrize("fixed", ["true", "false"])
def test_rows_that_waited_and_got_their_buckets_meanwhile_are_not_lost(make, fixed):
    table = make("postponed buckets", **{"postpone.batch-write-fixed-bucket": fixed})
    write(table, *BASE)
    table.compact()

    def other() -> None:
        table.write(source((4, "other", 100), (1, "other", 100)), commit_user="stream", identifier=1)
        table.compact()

    done, attempts = run_between(table, adding(table, (4, "mine", 1)), other)
    table.compact()
    assert (attempts, done.updated) == (2, 1)
    assert [row for row in rows(table) if row[0] in (1, 4)] == [(1, "other", 100), (4, "other", 101)]


def test_a_merge_that_would_wait_is_not_put_behind_rows_that_wait(make):
    table = make("postponed buckets", **{"postpone.batch-write-fixed-bucket": "false"})
    write(table, *BASE)
    table.compact()
    with pytest.raises(InvalidInputError, match="staged rows have no buckets yet"):
        run_between(table, adding(table, (4, "mine", 1)), lambda: write(table, (5, "other", 1), (4, "other", 100)))
    table.compact()
    assert (4, "other", 100) in rows(table)


def test_a_key_that_went_before_the_rows_of_a_merge_found_their_places_does_not_come_back(tmp_path, monkeypatch):
    columns = {"dt": "STRING", "k": "INT NOT NULL", "n": "INT"}
    options = {"dynamic-bucket.target-row-num": "1"}
    table = tl.connect(tmp_path).create_table("d.t", columns, primary_key=["k"], partition_by=["dt"], options=options)
    write(table, ("a", 1, 1))
    known, plans = merge_keyed.plan_target_read, []

    def overtaken(*args):
        plan = known(*args)
        plans.append(plan)
        if len(plans) == 1:
            table.delete("k = 1")
            write(table, ("a", 2, 2))  # and takes its bucket
        return plan

    monkeypatch.setattr(merge_keyed, "plan_target_read", overtaken)
    done = table.merge(source((1, 10), names="k n"), on=["k"]).when_matched_update({"n": "t.n + s.n"}).run()
    assert (len(plans), done.updated) == (2, 0)
    assert rows(table) == [("a", 2, 2)]


@pytest.mark.parametrize("kind", ["append", "append, vectors", "deduplicate", "first-row"])
def test_rows_of_others_that_have_no_partner_are_nobodys_business(make, kind):
    table = filled(make(kind))
    done, attempts = run_between(table, adding(table, (9, "mine", 1)), lambda: write(table, (8, "theirs", 8)))
    assert attempts == 1
    assert done.inserted == 1
    assert [row[0] for row in rows(table)] == [1, 2, 3, 4, 5, 8, 9]


@pytest.mark.parametrize("kind", ["append", "append, vectors", "deduplicate", "first-row", "aggregation"])
def test_a_compaction_in_between_does_no_harm(make, kind):
    table = filled(make(kind))
    done, _ = run_between(table, adding(table, (1, "mine", 1), (9, "new", 9)), lambda: table.compact(full=True))
    assert (done.updated, done.inserted) == (1, 1)
    assert rows(table) == [(1, "a", 2), *BASE[1:], (9, "new", 9)]


@pytest.mark.parametrize("kind", ["append", "append, vectors", "deduplicate", "aggregation"])
def test_an_overwrite_in_between_is_not_undone(make, kind):
    table = filled(make(kind))
    fresh = [{"k": 2, "v": "fresh", "n": 7}]
    done, _ = run_between(
        table, adding(table, (1, "one", 1), (2, "two", 2)), lambda: table.write(fresh, mode="overwrite")
    )
    assert (done.updated, done.inserted) == (1, 1)
    assert rows(table) == [(1, "one", 1), (2, "fresh", 9)]


def test_a_key_that_two_merges_put_into_different_buckets_is_not_doubled(make):
    table = filled(make("dynamic buckets", **{"dynamic-bucket.target-row-num": "2"}))
    other = adding(table, (8, "fills the bucket", 8), (9, "other", 100))
    done, attempts = run_between(table, adding(table, (9, "mine", 1)), other.run)
    assert attempts == 2
    assert (done.updated, done.inserted) == (1, 0)
    assert rows(table)[-2:] == [(8, "fills the bucket", 8), (9, "other", 101)]


def test_by_other_columns_than_the_key_a_partner_is_not_doubled_either(make):
    table = filled(make())
    merge = (
        table.merge(source((50, "z", 1)), on=["v"]).when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert()
    )
    done, attempts = run_between(table, merge, lambda: write(table, (40, "z", 10)))
    assert attempts == 2
    assert (done.updated, done.inserted) == (1, 0)
    assert (40, "z", 11) in rows(table)
    assert not [row for row in rows(table) if row[0] == 50]


def test_who_is_overtaken_every_time_is_told_so_and_leaves_nothing_behind(make, tmp_path):
    table = filled(make())
    others = [lambda number=number: write(table, (1, "other", number)) for number in range(20)]
    with pytest.raises(CommitConflictError, match="another commit changed the same rows first") as caught:
        run_between(table, adding(table, (1, "mine", 1)), *others)
    assert caught.value.code == "rows-changed"
    assert rows(table)[0] == (1, "other", 9)
    assert table.check(rows=True).ok


@pytest.mark.parametrize("verb", ["delete", "update"])
def test_rows_of_an_append_table_whose_files_are_gone_are_looked_for_again(make, verb):
    from tidelake.ops.change.verbs import run_delete, run_update

    table = filled(make("append"))
    committer = Interrupted(table, lambda: table.compact(full=True))
    where = table._condition("k >= 4")
    if verb == "delete":
        assert run_delete(table.context_to_write(), committer, where).rows == 2
        assert rows(table) == BASE[:3]
    else:
        assert run_update(table.context_to_write(), committer, {"n": table._scalar("n + 1")}, where).rows == 2
        assert rows(table) == [*BASE[:3], (4, "d", 5), (5, "e", 6)]
    assert committer.attempts == 2


def test_a_merge_can_be_kept_and_built_on(make):
    table = filled(make())
    base = table.merge(source((1, "x", 1)), on=["k"])
    one, two = base.when_matched_delete(), base.when_matched_update_all().when_not_matched_insert_all()
    assert (len(base.clauses), len(one.clauses), len(two.clauses)) == (0, 1, 2)
    two.run()
    one.run()
    assert rows(table) == BASE[1:]
    assert replace(one.run(), commit=None).rows == 0


def test_an_engine_merges_into_the_newest_schema_also_from_an_old_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewritten rows would lose the values of a column that was added since the handle was opened."""
    lake = tl.connect("memory://old-handle-of-a-merge")
    old = lake.create_table("d.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
    lake.table("d.t").add_column("w", "INT")
    seen: list[list[str]] = []

    class Engine:
        def merge(self, table: Table, merge: object, plan_only: bool) -> None:
            seen.append([field.name for field in table.schema.fields])

    monkeypatch.setattr("tidelake.table.writing.is_engine_frame", lambda _: True)
    monkeypatch.setattr("tidelake.table.writing.engine", Engine)
    old.merge([{"k": 1}], on="k").when_matched_delete().run()
    assert seen == [["k", "v", "w"]]
