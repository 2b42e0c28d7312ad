"""Types from and to text and JSON."""

import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.types.data_types import (
    BIGINT,
    BYTES,
    DOUBLE,
    INT,
    STRING,
    DecimalType,
    ElementType,
    Field,
    GeoType,
    LengthType,
    MapType,
    Root,
    RowType,
    TimeType,
    VectorType,
    with_nullable,
)
from tidelake.spec.types.type_codec import (
    fields_from_json,
    fields_to_json,
    number_nested,
    parse_type,
    type_depth,
    type_from_json,
    type_json_depth,
    type_to_json,
)

NOT_NULL_INT = with_nullable(INT, False)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("int", "INT"),
        ("  INT  ", "INT"),
        ("INT NOT \n NULL", "INT NOT NULL"),
        ("INT NULL", "INT"),
        ("INTEGER", "INT"),
        ("DEC", "DECIMAL(10, 0)"),
        ("NUMERIC(5)", "DECIMAL(5, 0)"),
        ("DECIMAL(38,10)", "DECIMAL(38, 10)"),
        ("DECIMAL ( 5 , 2 )", "DECIMAL(5, 2)"),
        ("DOUBLE PRECISION not null", "DOUBLE NOT NULL"),
        ("CHAR", "CHAR(1)"),
        ("CHAR(5)", "CHAR(5)"),
        ("VARCHAR", "VARCHAR(1)"),
        ("VARCHAR(2147483647)", "STRING"),
        ("BINARY", "BINARY(1)"),
        ("VARBINARY(9)", "VARBINARY(9)"),
        ("VARBINARY(2147483647)", "BYTES"),
        ("TIME", "TIME(0)"),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"),
        ("timestamp with local time zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ(3) NOT NULL", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"),
        ("VARIANT", "VARIANT"),
        ("BLOB", "BLOB"),
        ("GEOMETRY", "GEOMETRY(OGC:CRS84)"),
        ("geometry(srid:4326)", "GEOMETRY(srid:4326)"),
        ("GEOGRAPHY", "GEOGRAPHY(OGC:CRS84, spherical)"),
        ("GEOGRAPHY(OGC:CRS84, vincenty)", "GEOGRAPHY(OGC:CRS84, vincenty)"),
        ("INT ARRAY", "ARRAY<INT>"),
        ("INT NOT NULL ARRAY NOT NULL", "ARRAY<INT NOT NULL> NOT NULL"),
        ("INT MULTISET", "MULTISET<INT>"),
        ("VECTOR<FLOAT,4>", "VECTOR<FLOAT, 4>"),
        ("map<string,array<int>>", "MAP<STRING, ARRAY<INT>>"),
        ("ROW<a INT, `b c` ARRAY<STRING> NOT NULL>", "ROW<`a` INT, `b c` ARRAY<STRING> NOT NULL>"),
        ("ROW(a INT)", "ROW<`a` INT>"),
        ("ROW<`row` ROW<`int` INT>, array INT ARRAY>", "ROW<`row` ROW<`int` INT>, `array` ARRAY<INT>>"),
        ("ROW<>", "ROW<>"),
        ("MULTISET<ROW<x DECIMAL(10,2)>> NOT NULL", "MULTISET<ROW<`x` DECIMAL(10, 2)>> NOT NULL"),
    ],
)
def test_a_written_type_means_its_canonical_text(text, canonical):
    assert str(parse_type(text)) == canonical
    assert parse_type(canonical) == parse_type(text)


def test_quoted_names_and_comments_of_row_fields_are_unquoted():
    row = parse_type("ROW<`a``b` INT 'it''s', c STRING COMMENT 'x, y>'>")
    assert row == RowType(fields=(Field(0, "a`b", INT, "it's"), Field(1, "c", STRING, "x, y>")))


def test_row_members_are_numbered_after_what_is_inside_them():
    row = parse_type("ROW<b ROW<c INT, d INT>, e MAP<ROW<f INT>, ROW<g INT>>>")
    assert isinstance(row, RowType)
    b, e = row.fields
    assert [field.id for field in b.type.fields] == [0, 1]
    assert b.id == 2
    assert (e.type.key.fields[0].id, e.type.value.fields[0].id, e.id) == (3, 4, 5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "INT foo",
        "INT(4)",
        "INT NOT",
        "NOT NULL",
        "BYTES(4)",
        "STRING(4)",
        "BOOLE",
        "`INT`",
        "'INT'",
        "CHAR(0)",
        "CHAR(-1)",
        "CHAR(x)",
        "CHAR(1, 2)",
        "CHAR(1",
        "CHAR VARYING(5)",
        "VARCHAR(2147483648)",
        "VARCHAR(99999999999999999999)",
        "VARCHAR(\u0663)",
        "DECIMAL(0)",
        "DECIMAL(39, 0)",
        "DECIMAL(5, 6)",
        "DECIMAL(5, 1, 1)",
        "TIME(10)",
        "TIMESTAMP(10)",
        "TIMESTAMP WITH TIME ZONE",
        "ARRAY",
        "ARRAY<>",
        "ARRAY<INT",
        "ARRAY<INT, INT>",
        "ARRAY(INT)",
        "INT ARRAY ARRAY",
        "MAP<INT>",
        "VECTOR<FLOAT>",
        "VECTOR<FLOAT, 0>",
        "VECTOR<STRING, 3>",
        "ROW<a>",
        "ROW<a INT,>",
        "ROW<a INT b INT>",
        "ROW<a INT)",
        "ROW<a INT, a STRING>",
        "ROW<`` INT>",
        "ROW<'a' INT>",
        "ROW<`a INT>",
        "ROW",
        "INT\x00",
    ],
)
def test_what_is_no_type_is_refused_as_input(text):
    with pytest.raises(InvalidInputError) as error:
        parse_type(text)
    assert "position" in error.value.facts


@pytest.mark.parametrize(("text", "meant"), [("JSON", "VARIANT"), ("BIGIN", "BIGINT"), ("number(3)", "DECIMAL")])
def test_a_misspelt_type_gets_a_suggestion(text, meant):
    with pytest.raises(InvalidInputError) as error:
        parse_type(text)
    assert meant in (error.value.hint or "")


def nested(depth: int) -> str:
    return "ARRAY<" * depth + "INT" + ">" * depth


def test_thirty_two_levels_are_read_and_one_more_is_refused():
    assert type_depth(parse_type(nested(32))) == 32
    with pytest.raises(InvalidInputError, match="too deeply"):
        parse_type(nested(33))
    with pytest.raises(InvalidInputError, match="too deeply"):
        parse_type("ARRAY<" * 32 + "INT ARRAY" + ">" * 32)


def test_a_hundred_thousand_levels_do_not_reach_the_stack():
    for text in (nested(100_000), "ROW<a " * 100_000, "MAP<INT, " * 100_000):
        with pytest.raises(InvalidInputError, match="too deeply"):
            parse_type(text)


def test_too_many_fields_are_refused():
    assert len(parse_type(f"ROW<{', '.join(f'c{i} INT' for i in range(10_000))}>").fields) == 10_000
    with pytest.raises(InvalidInputError, match="too many fields"):
        parse_type(f"ROW<{', '.join(f'c{i} INT' for i in range(10_001))}>")


# ------------------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("INT", INT),
        ("INT NOT NULL", NOT_NULL_INT),
        ("STRING", STRING),
        ("BYTES", BYTES),
        ("CHAR(5)", LengthType(Root.CHAR, length=5)),
        ("DECIMAL(38, 10)", DecimalType(precision=38, scale=10)),
        ("TIME(0)", TimeType(Root.TIME, precision=0)),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", TimeType(Root.TIMESTAMP_LTZ, precision=6)),
        ("GEOGRAPHY(OGC:CRS84, spherical)", GeoType(Root.GEOGRAPHY, algorithm="spherical")),
        ({"type": "ARRAY NOT NULL", "element": "INT NOT NULL"}, ElementType(Root.ARRAY, False, NOT_NULL_INT)),
        ({"type": "MULTISET", "element": "INT"}, ElementType(Root.MULTISET, element=INT)),
        ({"type": "MAP", "key": "STRING", "value": "BIGINT"}, MapType(key=STRING, value=BIGINT)),
        ({"type": "VECTOR", "element": "DOUBLE", "length": 4}, VectorType(element=DOUBLE, length=4)),
        ({"type": "ROW", "fields": []}, RowType()),
        (
            {
                "type": "ROW NOT NULL",
                "fields": [{"id": 7, "name": "x", "type": "INT", "description": "d", "defaultValue": "5"}],
            },
            RowType(nullable=False, fields=(Field(7, "x", INT, "d", "5"),)),
        ),
    ],
)
def test_the_json_form_is_read_and_written_alike(value, dtype):
    assert type_from_json(value, path="p") == dtype
    assert type_to_json(dtype) == value


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("INT ARRAY", ElementType(Root.ARRAY, element=INT)),
        ("VECTOR<DOUBLE, 4>", VectorType(element=DOUBLE, length=4)),
        ({"type": "ARRAYX NOT NULL", "element": "INT"}, ElementType(Root.ARRAY, False, INT)),
        ({"type": "ARRAY not null", "element": "INT"}, ElementType(Root.ARRAY, True, INT)),
        ({"type": "MAP<INT>", "key": "INT", "value": "INT", "nullable": True}, MapType(key=INT, value=INT)),
    ],
)
def test_object_types_are_read_as_loosely_as_the_reference_does(value, dtype):
    assert type_from_json(value, path="p") == dtype


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        True,
        [],
        "",
        "FOO",
        "ARRAY<INT>",
        "ROW<a INT>",
        "MAP<INT, INT>",
        "CHAR(0)",
        {},
        {"type": 3},
        {"type": "INT"},
        {"type": "array", "element": "INT"},
        {"type": "ARRAY"},
        {"type": "ARRAY", "element": None},
        {"type": "MAP", "key": "INT"},
        {"type": "VECTOR", "element": "FLOAT"},
        {"type": "VECTOR", "element": "FLOAT", "length": 0},
        {"type": "VECTOR", "element": "STRING", "length": 1},
        {"type": "ROW"},
        {"type": "ROW", "fields": {}},
        {"type": "ROW", "fields": [3]},
        {"type": "ROW", "fields": [{"name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": "a"}]},
        {"type": "ROW", "fields": [{"id": -1, "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 2**31, "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": True, "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": " ", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT"}, {"id": 2, "name": "a", "type": "INT"}]},
        {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "INT"}]},
    ],
)
def test_a_malformed_type_in_a_file_is_a_format_error(value):
    with pytest.raises(FormatError) as error:
        type_from_json(value, path="t/schema/schema-3")
    assert error.value.facts["path"] == "t/schema/schema-3"


def test_the_depth_of_json_types_is_bounded():
    value: object = "INT"
    for _ in range(32):
        value = {"type": "ARRAY", "element": value}
    assert type_depth(type_from_json(value, path="p")) == 32
    for deeper in ({"type": "ARRAY", "element": value}, {"type": "MAP", "key": "INT", "value": value}):
        with pytest.raises(FormatError, match="too deeply"):
            type_from_json(deeper, path="p")


def test_the_field_limit_counts_over_all_levels():
    leaf = [{"id": i, "name": f"c{i}", "type": "INT"} for i in range(5_000)]
    row = {"type": "ROW", "fields": leaf}
    fields = [{"id": 0, "name": "a", "type": row}, {"id": 1, "name": "b", "type": row}]
    with pytest.raises(FormatError, match="too many fields"):
        fields_from_json(fields, path="p")
    assert fields_to_json(fields_from_json(fields[:1], path="p")) == fields[:1]


def test_json_depth_counts_what_a_schema_file_nests():
    assert type_json_depth(INT) == 0
    assert type_json_depth(parse_type("ARRAY<INT>")) == 1
    assert type_json_depth(parse_type("ROW<a INT>")) == 3
    assert type_json_depth(parse_type("ROW<a ROW<b ARRAY<INT>>>")) == 7
    assert type_json_depth(parse_type("ROW<>")) == 2


def test_numbering_continues_from_the_given_id():
    dtype, next_id = number_nested(parse_type("ARRAY<ROW<a INT, b VECTOR<FLOAT, 2>>>"), 10)
    assert [field.id for field in dtype.element.fields] == [10, 11]
    assert next_id == 12


@pytest.mark.parametrize("text", ["BOOL", "INT64", "TEXT", "DATETIME"])
def test_a_schema_file_holds_the_names_of_the_format_alone(text):
    assert parse_type(text)
    with pytest.raises(FormatError):
        type_from_json(text, path="schema-0")
