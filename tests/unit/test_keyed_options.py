"""Options of primary-key tables: honoured, or refused by name; none is passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest

from kit.small_tables import with_foreign_options
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.spec.schemas.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "INT", "s": "INT", "r": "INT", "t": "STRING"}
PARTIAL = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.s.sequence-group": "a"}
AGGREGATION = {"merge-engine": "aggregation"}
REMOVE, REMOVE_GROUP = "partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group"

WRONG: list[tuple[dict[str, str], str]] = [
    ({**PARTIAL, "fields.s.sequence-group": "id"}, "column of the key"),
    ({**PARTIAL, "fields.id.sequence-group": "a"}, "column of the key"),
    ({**GROUP, "fields.r.sequence-group": "b,a"}, "two sequence groups"),
    ({**GROUP, REMOVE: "true"}, "what a deletion does"),
    ({**PARTIAL, REMOVE: "true", "ignore-delete": "true"}, "cannot remove rows"),
    ({**PARTIAL, REMOVE: "true", "partial-update.ignore-delete": "true"}, "cannot remove rows"),
    ({**GROUP, REMOVE_GROUP: "s", "ignore-delete": "true"}, "cannot remove rows"),
    ({**GROUP, REMOVE_GROUP: "a"}, "orders no sequence group"),
    ({**PARTIAL, REMOVE_GROUP: "s"}, "orders no sequence group"),
    ({**PARTIAL, "fields.a.aggregate-function": "sum"}, "needs a sequence group"),
    ({**GROUP, "fields.b.aggregate-function": "max"}, "needs a sequence group"),
    ({**GROUP, "fields.default-aggregate-function": "last_value"}, "needs a sequence group"),
    ({**AGGREGATION, "aggregation.remove-record-on-delete": "true", "fields.a.ignore-retract": "true"}, "does not go"),
    ({"rowkind.field": "a"}, "cannot hold row kinds"),
    ({"rowkind.field": "a,t"}, "from one column"),
    ({"num-levels": "1"}, "at least 2"),
    ({"num-sorted-run.compaction-trigger": "0"}, "at least 1"),
    ({"dynamic-bucket.max-buckets": "0", "bucket": "-1"}, "-1 or at least 1"),
    ({"spill-compression": "snappy"}, "zstd, lz4 or none"),
    ({"sort-engine": "bubble"}, "loser-tree"),
    ({"merge-engine": "first-row", "sequence.field": "s"}, "no sequence field"),
]

RIGHT: list[dict[str, str]] = [
    {**GROUP, "fields.a.aggregate-function": "sum"},
    {**GROUP, REMOVE_GROUP: "s"},
    {**PARTIAL, "fields.r,s.sequence-group": "a,b", REMOVE_GROUP: "r,s"},
    {**PARTIAL, REMOVE: "true"},
    {**PARTIAL, "fields.default-aggregate-function": "last_non_null_value"},
    {**PARTIAL, "sequence.field": "s", "fields.a.aggregate-function": "last_non_null_value"},
    {**AGGREGATION, "aggregation.remove-record-on-delete": "true", "fields.a.ignore-retract": "false"},
    {"rowkind.field": "t"},
    {"manifest.format": "AVRO"},
    {"spill-compression": "LZ4"},
]

UNWRITTEN: list[tuple[dict[str, str], str]] = [
    ({"pk-clustering-override": "true", "clustering.columns": "a"}, "pk-clustering-override"),
    ({"pk-btree.index.columns": "a"}, "pk-btree.index.columns"),
    ({"pk-bitmap.index.columns": "a"}, "pk-bitmap.index.columns"),
    ({"pk-multivalue.index.columns": "a"}, "pk-multivalue.index.columns"),
    ({"pk-full-text.index.columns": "t"}, "pk-full-text.index.columns"),
    ({"pk-vector.index.columns": "a"}, "pk-vector.index.columns"),
    ({"manifest.format": "orc"}, "manifest.format"),
    ({"sequence.snapshot-ordering": "true", "write-only": "true"}, "sequence.snapshot-ordering"),
]

IDLE: list[tuple[dict[str, str], bool, str]] = [
    ({"fields.a.aggregate-function": "sum"}, True, "merge-engine is deduplicate"),
    ({"fields.default-aggregate-function": "max", "merge-engine": "first-row"}, True, "merge-engine is first-row"),
    ({**AGGREGATION, "fields.s.sequence-group": "a"}, True, "it is for partial-update"),
    ({REMOVE: "true"}, True, "it is for partial-update"),
    ({**PARTIAL, "aggregation.remove-record-on-delete": "true"}, True, "it is for aggregation"),
    ({"merge-engine": "deduplicate"}, False, "no primary key"),
    ({"sequence.field": "s"}, False, "no primary key"),
]


def make(options: dict[str, str], **more: Any) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    settings = {"primary_key": ["id"], "options": {"bucket": "1", **options}, **more}
    return lake.create_table("d.t", COLUMNS, **settings)


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_options_that_contradict_each_other_or_the_columns_make_no_table(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        make(options)
    assert caught.value.hint


@pytest.mark.parametrize("options", RIGHT)
def test_options_that_go_together_make_a_table_that_is_written_merged_and_compacted(options: dict[str, str]) -> None:
    table = make(options)
    table.write([{"id": 1, "a": 1, "s": 1, "r": 1, "t": "+I"}])
    table.write([{"id": 1, "a": 2, "s": 2, "r": 2, "t": "+I"}])
    merged = table.to_arrow().to_pylist()
    table.compact(full=True)
    assert table.to_arrow().to_pylist() == merged
    assert len(merged) == 1


@pytest.mark.parametrize(("options", "named"), UNWRITTEN)
def test_a_table_that_asks_writers_for_more_is_refused_by_the_name_of_the_option(
    options: dict[str, str], named: str
) -> None:
    theirs = with_foreign_options(make({}), options)
    for act in (lambda: make(options), lambda: theirs.write([{"id": 1, "a": 1, "t": "x"}])):
        with pytest.raises(UnsupportedError) as caught:
            act()
        assert caught.value.facts["option"] == named
        assert caught.value.hint
    assert theirs.latest_snapshot() is None


@pytest.mark.parametrize(
    "options",
    [
        {"pk-clustering-override": "true", "clustering.columns": "a"},
        {"sequence.snapshot-ordering": "true", "write-only": "true"},
    ],
)
def test_a_table_whose_versions_another_engine_orders_otherwise_is_not_read_wrong(options: dict[str, str]) -> None:
    table = make({"write-only": "true"})
    table.write([{"id": 1, "a": 1}])
    theirs = ordered_otherwise(table, options)
    with pytest.raises(UnsupportedError, match="cannot be read yet") as caught:
        theirs.to_arrow()
    assert caught.value.facts["option"] == next(iter(options))


def ordered_otherwise(table: Table, options: dict[str, str]) -> Table:
    """The table as if another engine had made it with these options."""
    from dataclasses import replace

    from tidelake.table.handle import open_table

    schema: Schema = replace(table.schema, options={**table.schema.options, **options})
    schemas: SchemaStore = table.store.schemas
    return open_table(table.store.env, table.name, schema, schemas)


@pytest.mark.parametrize(
    ("option", "left"),
    [("ignore-delete", [1, 2]), ("deduplicate.ignore-delete", [1, 2]), ("ignore-update-before", [2]), (None, [])],
)
def test_kinds_that_a_table_ignores_are_left_out(option: str | None, left: list[int]) -> None:
    table = make({} if option is None else {option: "true"})
    table.write([{"id": 1}, {"id": 2}])
    table.write([{"id": 1, "rowkind": "-D"}, {"id": 2, "rowkind": "-U"}])
    assert table.to_arrow(order_by="id")["id"].to_pylist() == left
    table.compact(full=True)
    assert table.to_arrow(order_by="id")["id"].to_pylist() == left


@pytest.mark.parametrize(("options", "keyed", "words"), IDLE)
def test_an_option_of_another_engine_is_warned_of(options: dict[str, str], keyed: bool, words: str) -> None:
    with pytest.warns(UserWarning, match=words):
        make({**options, "bucket": "1" if keyed else "-1"}, primary_key=["id"] if keyed else None)


def test_a_commit_tells_what_it_leaves_undone_one_sentence_for_each_reason() -> None:
    table = make({"partition.timestamp-formatter": "yyyyMMdd"}, primary_key=["id", "t"], partition_by=["t"])
    theirs = with_foreign_options(table, {"partition.timestamp-format.strict": "true", "clustering.columns": "a"})
    for writer in (theirs, theirs.with_options({"write-only": True})):
        told = writer.write([{"id": 1, "t": "20200101"}]).warnings
        assert ["partition.timestamp-format.strict" in each for each in told] == [True, False]
        assert "clustering.columns" in told[1]
