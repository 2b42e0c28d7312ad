"""Schema files, and the rules for new schemas."""

import json
import pickle
from dataclasses import replace

import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.schemas.schema import Column, Schema, new_schema, schema_from_json, schema_to_json
from tidelake.spec.types.data_types import BIGINT, INT, STRING, Field, RowType, with_nullable

# Written by release 2.0.0 of the reference implementation.
JAVA = """{
  "version" : 3,
  "id" : 0,
  "fields" : [ {
    "id" : 0,
    "name" : "id",
    "type" : "BIGINT NOT NULL"
  }, {
    "id" : 1,
    "name" : "a",
    "type" : {
      "type" : "ROW",
      "fields" : [ {
        "id" : 4,
        "name" : "b",
        "type" : {
          "type" : "ROW",
          "fields" : [ {
            "id" : 2,
            "name" : "c",
            "type" : "INT"
          }, {
            "id" : 3,
            "name" : "d",
            "type" : "INT"
          } ]
        }
      }, {
        "id" : 5,
        "name" : "e",
        "type" : "INT"
      } ]
    }
  }, {
    "id" : 6,
    "name" : "s",
    "type" : {
      "type" : "ARRAY NOT NULL",
      "element" : "INT NOT NULL"
    },
    "description" : "desc",
    "defaultValue" : "[1]"
  }, {
    "id" : 7,
    "name" : "m",
    "type" : {
      "type" : "MAP",
      "key" : "STRING",
      "value" : {
        "type" : "ARRAY",
        "element" : "INT"
      }
    }
  }, {
    "id" : 8,
    "name" : "dt",
    "type" : "STRING NOT NULL"
  } ],
  "highestFieldId" : 8,
  "partitionKeys" : [ "dt" ],
  "primaryKeys" : [ "id", "dt" ],
  "options" : {
    "bucket" : "2",
    "note" : "a\\"b\\\\c/é\u2028\\u0001\\t😀"
  },
  "comment" : "cmt",
  "timeMillis" : 1794783574896
}""".encode()

# The example of the specification, spaced as printed there.
SPEC = b"""{
  "version" : 3,
  "id" : 2,
  "fields" : [
    { "id" : 3, "name" : "d", "type" : { "type" : "ROW", "fields" : [ { "id" : 4, "name" : "x", "type" : "INT" } ] },
      "description" : "new" },
    { "id" : 0, "name" : "a", "type" : "BIGINT" },
    { "id" : 1, "name" : "b2", "type" : "STRING", "defaultValue" : "dflt" },
    { "id" : 5, "name" : "c", "type" : "STRING" } ],
  "highestFieldId" : 5,
  "partitionKeys" : [ ],
  "primaryKeys" : [ ],
  "options" : { "snapshot.num-retained.min" : "5" },
  "comment" : "cmt",
  "timeMillis" : 1794771894238
}"""

PLAIN = {
    "version": 3,
    "id": 2,
    "fields": [{"id": 0, "name": "a", "type": "BIGINT"}],
    "highestFieldId": 5,
    "partitionKeys": [],
    "primaryKeys": [],
    "options": {},
    "timeMillis": 5,
}


def read(doc: dict, **how) -> Schema:
    return schema_from_json(json.dumps(doc).encode(), path="t/schema/schema-2", **how)


def test_a_file_of_the_reference_is_written_back_byte_for_byte():
    schema = schema_from_json(JAVA, path="p", expected_id=0)
    assert schema_to_json(schema) == JAVA
    assert schema.field("a").type == RowType(
        fields=(
            Field(4, "b", RowType(fields=(Field(2, "c", INT), Field(3, "d", INT)))),
            Field(5, "e", INT),
        )
    )
    assert schema.options["note"] == 'a"b\\c/é\u2028\x01\t😀'


def test_the_same_table_made_here_has_the_same_bytes():
    made = new_schema(
        [
            Column("id", "BIGINT"),
            Column("a", "ROW<b ROW<c INT, d INT>, e INT>"),
            Column("s", "ARRAY<INT NOT NULL> NOT NULL", "desc", "[1]"),
            Column("m", "MAP<STRING, ARRAY<INT>>"),
            Column("dt", "STRING"),
        ],
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "2", "note": 'a"b\\c/é\u2028\x01\t😀'},
        comment="cmt",
        time_ms=1794783574896,
    )
    assert schema_to_json(made) == JAVA


def test_the_example_of_the_specification_is_read():
    schema = schema_from_json(SPEC, path="p", expected_id=2)
    assert schema.names == ("d", "a", "b2", "c")
    assert schema.field("b2").default == "dflt"
    assert schema.field("d").description == "new"
    assert schema.highest_field_id == 5
    assert (schema.comment, schema.time_ms) == ("cmt", 1794771894238)
    assert json.loads(schema_to_json(schema)) == json.loads(SPEC)


def test_derived_properties():
    schema = schema_from_json(JAVA, path="p")
    assert schema.trimmed_primary_keys == ("id",)
    assert schema.bucket_keys == ("id",)
    assert schema.partition_types == (with_nullable(STRING, False),)
    assert schema.row_type == RowType(nullable=False, fields=schema.fields)
    assert schema.field_by_id(8).name == "dt"
    assert schema.field_by_id(4) is None
    assert replace(schema, options={"bucket-key": "id,s"}).bucket_keys == ("id", "s")
    with pytest.raises(InvalidInputError, match="does not exist") as error:
        schema.field("nope")
    assert "id, a, s, m, dt" in error.value.hint


def test_old_files_keep_the_defaults_of_their_time():
    without = {key: value for key, value in PLAIN.items() if key not in ("version", "timeMillis")}
    assert read(without).options == {"bucket": "1", "file.format": "orc"}
    assert read(without).version == 1
    assert read(without).time_ms == 0
    assert read(PLAIN | {"version": 2}).options == {"file.format": "orc"}
    assert read(PLAIN).options == {}
    kept = {"bucket": "7", "file.format": "avro"}
    assert read(PLAIN | {"version": 1, "options": kept}).options == kept


def test_a_null_comment_is_no_comment_and_is_not_written():
    schema = read(PLAIN | {"comment": None})
    assert schema.comment is None
    assert b"comment" not in schema_to_json(schema)
    assert read(PLAIN | {"comment": ""}).comment == ""


def test_unknown_members_are_carried_through_behind_the_known_ones():
    schema = read(PLAIN | {"future": {"a": [1, None]}})
    assert schema.unknown == {"future": {"a": [1, None]}}
    assert list(json.loads(schema_to_json(schema))) == [*PLAIN, "future"]


def test_the_id_must_be_the_one_of_the_file_name():
    assert read(PLAIN, expected_id=2).id == 2
    with pytest.raises(FormatError, match="differs from its file name"):
        read(PLAIN, expected_id=3)


def test_schemas_are_values():
    schema = schema_from_json(JAVA, path="p")
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(schema) == hash(schema_from_json(JAVA, path="q"))


@pytest.mark.parametrize("key", ["id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options"])
def test_required_members_are_named_when_they_are_missing_or_wrong(key):
    for doc in ({k: v for k, v in PLAIN.items() if k != key}, PLAIN | {key: None}, PLAIN | {key: True}):
        with pytest.raises(FormatError) as error:
            read(doc)
        assert error.value.facts["key"] == key
        assert error.value.facts["path"] == "t/schema/schema-2"


@pytest.mark.parametrize(
    "change",
    [
        {"id": -1},
        {"id": "2"},
        {"version": -1},
        {"highestFieldId": -2},
        {"highestFieldId": 2**31},
        {"timeMillis": 2**70},
        {"options": {"a": 1}},
        {"comment": 3},
        {"partitionKeys": ["zz"]},
        {"primaryKeys": ["zz"]},
        {"primaryKeys": ["a", "a"]},
        {"primaryKeys": [1]},
        {"fields": [{"id": 0, "name": "a", "type": "FOO"}]},
        {"fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "a", "type": "INT"}]},
        {"fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 0, "name": "b", "type": "INT"}]},
    ],
)
def test_malformed_members_are_format_errors(change):
    with pytest.raises(FormatError):
        read(PLAIN | change)


# --------------------------------------------------------------------------------------------------------- new schemas


def make(columns=None, **how) -> Schema:
    return new_schema(columns or {"k": "INT", "v": "INT", "p": "STRING"}, **{"time_ms": 0, **how})


def test_ids_are_handed_out_column_first_then_inside_out():
    schema = make({"a": "ROW<b ROW<c INT, d INT>, e INT>", "z": "INT"})
    a, z = schema.fields
    b, e = a.type.fields
    assert [a.id, *(f.id for f in b.type.fields), b.id, e.id, z.id] == [0, 1, 2, 3, 4, 5]
    assert schema.highest_field_id == 5
    assert make({"x": INT}).highest_field_id == 0


def test_a_table_needs_a_column():
    with pytest.raises(InvalidInputError, match="at least one column"):
        new_schema({}, time_ms=0)


def test_primary_key_columns_become_not_null():
    schema = make(primary_keys=["k"])
    assert schema.field("k").type == with_nullable(INT, False)
    assert schema.field("v").type.nullable
    nullable = make(primary_keys=["k"], options={"primary-key.nullable": "true"})
    assert nullable.field("k").type.nullable


def test_keys_given_as_options_move_out_of_them():
    schema = make(options={"primary-key": " k , p", "partition": "p", "x": "1"})
    assert schema.primary_keys == ("k", "p")
    assert schema.partition_keys == ("p",)
    assert schema.options == {"x": "1"}
    assert make(options={"primary-key": ""}).primary_keys == ()


def test_names_that_differ_in_case_are_different_columns():
    assert make({"a": "INT", "A": BIGINT, "ROWKIND": "INT"}).names == ("a", "A", "ROWKIND")


def test_a_key_without_its_partition_column_is_allowed_in_every_bucket_mode():
    for bucket in ("-1", "-2", "2"):
        assert make(primary_keys=["k"], partition_keys=["p"], options={"bucket": bucket})


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ({"columns": [Column("a", "INT"), Column("a", "STRING")]}, "a"),
        ({"columns": {"": "INT"}}, "blank"),
        ({"columns": {"_KEY_a": "INT"}}, "_KEY_a"),
        ({"columns": {"_SEQUENCE_NUMBER": "INT"}}, "_SEQUENCE_NUMBER"),
        ({"columns": {"_VALUE_KIND": "INT"}}, "_VALUE_KIND"),
        ({"columns": {"_LEVEL": "INT"}}, "_LEVEL"),
        ({"columns": {"rowkind": "INT"}}, "rowkind"),
        ({"columns": {"_ROW_ID": "INT"}}, "_ROW_ID"),
        ({"columns": {"a": "NOPE"}}, "NOPE"),
        ({"columns": [Column("a", "INT", None, "x")]}, "default"),
        ({"columns": {"r": RowType(fields=(Field(0, "x", INT), Field(1, "x", INT)))}}, "twice"),
        ({"columns": {"r": RowType(fields=(Field(0, " ", INT),))}}, "blank"),
        ({"primary_keys": ["zz"]}, "zz"),
        ({"primary_keys": ["k", "k"]}, "twice"),
        ({"partition_keys": ["zz"]}, "zz"),
        ({"partition_keys": ["p", "p"]}, "twice"),
        ({"primary_keys": ["p"], "partition_keys": ["p"]}, "only partition columns"),
        ({"primary_keys": ["k"], "options": {"primary-key": "k"}}, "primary-key"),
        ({"partition_keys": ["p"], "options": {"partition": "p"}}, "partition"),
        ({"options": {"path": "/x"}}, "path"),
        ({"options": {"bucket": 4}}, "bucket"),
        ({"options": {"bucket": "x"}}, "bucket"),
        ({"options": {"bucket": "0"}}, "bucket"),
        ({"options": {"bucket": "-2"}}, "bucket"),
        ({"primary_keys": ["k"], "options": {"bucket": "-3"}}, "bucket"),
        ({"options": {"bucket": "2"}}, "bucket"),
        ({"options": {"bucket-key": "k"}}, "bucket-key"),
        ({"options": {"bucket": "2", "bucket-key": "zz"}}, "zz"),
        ({"options": {"bucket": "2", "bucket-key": " k "}}, " k "),
        ({"partition_keys": ["p"], "options": {"bucket": "2", "bucket-key": "p"}}, "p"),
        ({"primary_keys": ["k"], "options": {"bucket": "2", "bucket-key": "v"}}, "v"),
        ({"columns": {"a": "ARRAY<INT>"}, "options": {"bucket": "2", "bucket-key": "a"}}, "a"),
        ({"primary_keys": ["k"], "options": {"sequence.field": "zz"}}, "zz"),
        ({"primary_keys": ["k"], "options": {"sequence.field": "v,v"}}, "sequence.field"),
        ({"options": {"fields.zz.aggregate-function": "sum"}}, "zz"),
        ({"options": {"fields.v,zz.sequence-group": "p"}}, "zz"),
        ({"options": {"fields.v.sequence-group": "p,zz"}}, "zz"),
        ({"options": {"file-index.bitmap.columns": "zz"}}, "zz"),
        ({"options": {"changelog-producer": "input"}}, "primary key"),
        ({"primary_keys": ["k"], "options": {"changelog-producer": "other"}}, "changelog-producer"),
        ({"options": {"streaming-read-overwrite": "true"}}, "primary key"),
        ({"options": {"snapshot.num-retained.min": "0"}}, "snapshot.num-retained.min"),
        ({"options": {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "2"}}, "larger"),
        ({"primary_keys": ["k"], "options": {"row-tracking.enabled": "true"}}, "row"),
        ({"options": {"row-tracking.enabled": "maybe"}}, "row-tracking.enabled"),
        ({"options": {"data-evolution.enabled": "true"}}, "row tracking"),
        ({"options": {"sequence.snapshot-ordering": "true"}}, "primary key"),
        ({"primary_keys": ["k"], "options": {"merge-engine": "first-row", "sequence.field": "v"}}, "sequence"),
        (
            {"primary_keys": ["k"], "options": {"merge-engine": "first-row", "deletion-vectors.enabled": "true"}},
            "first-row",
        ),
        ({"primary_keys": ["k"], "options": {"merge-engine": "FIRST_ROW", "changelog-producer": "input"}}, "first-row"),
        (
            {
                "primary_keys": ["k"],
                "options": {"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"},
            },
            "deletion vectors",
        ),
        (
            {
                "primary_keys": ["k"],
                "options": {"changelog-producer": "lookup", "full-compaction.delta-commits": "3"},
            },
            "full-compaction.delta-commits",
        ),
        ({"options": {"full-compaction.delta-commits": "3"}}, "full-compaction.delta-commits"),
        ({"options": {"changelog.num-retained.max": "7"}}, "changelog.num-retained.max"),
        ({"options": {"manifest-sort.enabled": "true"}}, "manifest-sort.enabled"),
        ({"options": {"table-read.sequence-number.enabled": "true"}}, "primary key"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused_naming_the_culprit(how, names):
    with pytest.raises(InvalidInputError) as error:
        make(how.pop("columns", None), **how)
    assert names in str(error.value)


@pytest.mark.parametrize(
    "dtype",
    [
        "ARRAY<INT>",
        "MAP<INT, INT>",
        "ROW<a INT>",
        "MULTISET<INT>",
        "VECTOR<INT, 2>",
        "VARIANT",
        "GEOMETRY",
        "GEOGRAPHY",
        "BLOB",
    ],
)
def test_constructed_and_opaque_types_cannot_be_keys(dtype):
    for keys in ({"primary_keys": ["k"]}, {"partition_keys": ["k"]}):
        with pytest.raises(InvalidInputError, match="cannot be in a"):
            make({"k": dtype, "v": "INT"}, **keys)


def test_a_type_too_deep_for_a_schema_file_is_refused_before_it_is_written():
    def rows(depth: int) -> str:
        return "ROW<a " * depth + "INT" + ">" * depth

    deepest = make({"c": rows(20)})
    assert schema_from_json(schema_to_json(deepest), path="p").fields == deepest.fields
    with pytest.raises(InvalidInputError, match="too deeply"):
        make({"c": rows(21)})
    assert make({"c": "ARRAY<" * 32 + "INT" + ">" * 32})


def test_too_many_fields_are_refused():
    with pytest.raises(InvalidInputError, match="too many fields"):
        make({f"c{i}": "INT" for i in range(10_001)})
