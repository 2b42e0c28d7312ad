"""Options and columns that are not honoured are refused where they are set; what others made with them is read."""

from __future__ import annotations

import pytest

import tidelake as tl
from kit.small_tables import with_foreign_options
from tidelake.errors import InvalidInputError, TidelakeError, UnsupportedError
from tidelake.options.capabilities import REFUSED as REFUSED_KEYS
from tidelake.spec.schemas.schema import new_schema, schema_violations
from tidelake.spec.types.data_types import DataType
from tidelake.spec.types.index_types import INDEXED_TYPES
from tidelake.table import Table

REFUSED = [
    ("auto-create", "true"),
    ("query-auth.enabled", "true"),
    ("type", "object-table"),
    ("type", "format-table"),
    ("clustering.columns", "v"),
    ("sink.clustering.by-columns", "v"),
    ("clustering.incremental", "true"),
    ("clustering.strategy", "hilbert"),
    ("partition.timestamp-format.strict", "true"),
    ("upsert-key", "v"),
    ("branch-merge.enabled", "true"),
    ("snapshot.watermark-idle-timeout", "1 min"),
    ("row-tracking.enabled", "true"),
    ("metadata.iceberg.storage", "table-location"),
    ("tag.callbacks", "a.B"),
    ("commit.callbacks", "a.B"),
    ("parquet.whatever", "x"),
]


@pytest.fixture
def lake() -> tl.Lake:
    return tl.connect("memory://")


def new(lake: tl.Lake, options: dict[str, str] | None = None) -> Table:
    return lake.create_table("db.t", {"id": "INT", "v": "STRING"}, options=options)


@pytest.mark.filterwarnings("ignore:option `branch-merge.enabled` is not known")
@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_an_option_that_is_not_honoured_is_refused_wherever_it_is_set(lake: tl.Lake, key: str, value: str) -> None:
    with pytest.raises(UnsupportedError):
        new(lake, {key: value})
    assert "db.t" not in lake
    table = new(lake)
    for act in (lambda: table.alter(set_options={key: value}), lambda: table.with_options({key: value})):
        with pytest.raises(TidelakeError) as caught:  # an immutable one is refused as such for one use
            act()
        assert key in caught.value.facts.values()
        assert caught.value.hint
    assert table.reload().schema.id == 0


@pytest.mark.filterwarnings("ignore:option `branch-merge.enabled` is not known")
@pytest.mark.parametrize("each", REFUSED_KEYS, ids=lambda each: each.key)
def test_a_value_that_asks_for_nothing_is_taken(lake: tl.Lake, each) -> None:
    if each.harmless:
        options = {each.key: each.harmless}
        assert new(lake, options).write([{"id": 1}]).snapshot_ids == (1,)


@pytest.mark.filterwarnings("ignore:option `branch-merge.enabled` is not known")
@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_what_others_made_with_such_an_option_opens_and_is_read(lake: tl.Lake, key: str, value: str) -> None:
    table = new(lake)
    table.write([{"id": 1, "v": "x"}])
    theirs = with_foreign_options(table, {key: value})
    assert lake.table("db.t").schema.options[key] == value
    if key == "query-auth.enabled" or value == "object-table":
        return
    assert theirs.to_arrow().num_rows == theirs.count() == 1


@pytest.mark.parametrize(("key", "value"), [("query-auth.enabled", "true"), ("type", "object-table")])
def test_rows_that_are_not_ours_to_show_are_not_read(lake: tl.Lake, key: str, value: str) -> None:
    table = new(lake)
    table.write([{"id": 1, "v": "x"}])
    theirs = with_foreign_options(table, {key: value})
    for read in (
        lambda: theirs.to_arrow(),
        lambda: theirs.count(),
        lambda: list(theirs.to_batches()),
        lambda: theirs.at(snapshot=1).to_arrow(),
        lambda: theirs.with_options({"query-auth.enabled": "false"}).to_arrow(),
        lambda: theirs.changes(since=0).to_arrow(),
        lambda: next(iter(theirs.follow(timeout=0))),
        lambda: lake.table("db.t$audit_log").to_arrow(),
    ):
        with pytest.raises(UnsupportedError) as caught:
            read()
        assert caught.value.facts["option"] == key
    assert "db.t" in repr(theirs)
    if key != "type":  # which never changes
        assert theirs.alter(unset_options=[key]).to_arrow().num_rows == 1


def test_a_numbered_commit_without_rows_makes_a_snapshot_where_the_option_says_so(lake: tl.Lake) -> None:
    options = {"snapshot.ignore-empty-commit": "true"}
    table = new(lake, options)
    assert table.new_commit("u").commit([], identifier=1).snapshot_ids == ()
    forced = table.with_options({"commit.force-create-snapshot": True})
    assert forced.new_commit("u").commit([], identifier=2).snapshot_ids == (1,)
    assert forced.new_commit().commit([]).snapshot_ids == ()


# ------------------------------------------------------------------------------------------------ columns

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(30, 2)"),
    *("CHAR(5)", "STRING", "BINARY(4)", "BYTES", "DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"),
    *("TIMESTAMP(6) WITH LOCAL TIME ZONE", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>", "MULTISET<INT>"),
    *("VARIANT", "VECTOR<FLOAT, 3>"),
)
NOT_INDEXED = {
    "bloom-filter": {"BOOLEAN", "DECIMAL(10, 2)", "DECIMAL(30, 2)"},
    "bitmap": {"DECIMAL(10, 2)", "DECIMAL(30, 2)", "BINARY(4)", "BYTES"},
    "bsi": {"BOOLEAN", "FLOAT", "DOUBLE", "CHAR(5)", "STRING", "BINARY(4)", "BYTES"},
    "range-bitmap": {"DECIMAL(30, 2)", "BINARY(4)", "BYTES", "TIMESTAMP(9)"},
}
NESTED = {"ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>", "MULTISET<INT>", "VARIANT", "VECTOR<FLOAT, 3>"}


def problems(columns: dict[str, str | DataType], **options: str) -> list[str]:
    try:
        schema = new_schema(columns, options=options, time_ms=1)
    except InvalidInputError as error:
        return [error.message]
    return [error.message for error in schema_violations(schema)]


@pytest.mark.parametrize("kind", INDEXED_TYPES)
def test_a_file_index_takes_the_types_that_apache_paimon_takes(kind: str) -> None:
    refused = {name for name in TYPES if problems({"id": "INT", "v": name}, **{f"file-index.{kind}.columns": "v"})}
    assert refused == NOT_INDEXED[kind] | NESTED


@pytest.mark.parametrize(
    ("dtype", "options", "allowed"),
    [
        ("MAP<STRING, BIGINT>", {"file-index.bloom-filter.columns": "v[a],v[b]"}, True),
        ("MAP<STRING, BOOLEAN>", {"file-index.bloom-filter.columns": "v[a]"}, False),
        ("MAP<INT, BIGINT>", {"file-index.bloom-filter.columns": "v[a]"}, False),
        ("INT", {"file-index.bloom-filter.columns": "v[a]"}, False),
        ("INT", {"file-index.nothing.columns": "v"}, False),
        ("INT", {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.fpp": "0.1"}, True),
        ("INT", {"file-index.bloom-filter.columns": "id", "file-index.bloom-filter.v.fpp": "0.1"}, False),
        ("BLOB", {}, False),
        ("ROW<x BLOB>", {"data-evolution.enabled": "true", "row-tracking.enabled": "true"}, False),
        ("MAP<INT, BLOB>", {"data-evolution.enabled": "true", "row-tracking.enabled": "true"}, True),
        ("BYTES", {"blob-field": "v"}, False),
        ("STRING", {"blob-descriptor-field": "v"}, False),
        ("INT", {"blob-view-field": "v"}, False),
        ("ARRAY<FLOAT>", {"vector-field": "v"}, False),
        ("VECTOR<FLOAT, 3>", {"vector-field": "v"}, True),
        ("VARIANT", {"file.format.per.level": "0:parquet,5:orc"}, False),
        ("MULTISET<INT>", {"file.format.per.level": "0:avro"}, False),
        ("MAP<INT, INT>", {"file.format.per.level": "0:avro"}, True),
    ],
)
def test_a_column_that_its_options_cannot_hold_makes_no_table(
    dtype: str, options: dict[str, str], allowed: bool
) -> None:
    assert (problems({"id": "INT", "v": dtype}, **options) == []) is allowed


def test_a_use_of_a_table_keeps_its_rules_too(lake: tl.Lake) -> None:
    table = new(lake)
    for options in ({"file-index.bsi.columns": "v"}, {"vector-field": "v"}, {"changelog-producer": "input"}):
        with pytest.raises(InvalidInputError):
            table.with_options(options)
    with pytest.raises(UnsupportedError):
        table.with_options({"file.format.per.level": "0:nothing"})


@pytest.mark.parametrize("key", ["write-only", "ignore-delete", "write.compaction-skip", "primary-key.nullable"])
def test_a_malformed_truth_value_is_refused_by_the_code_of_values(key: str) -> None:
    lake = tl.connect("memory://malformed")
    with pytest.raises(tl.InvalidInputError) as caught:
        lake.create_table("d.t", {"k": "INT NOT NULL"}, primary_key=["k"], options={key: "bogus"})
    assert (caught.value.code, caught.value.facts["key"]) == ("option-value", key)
