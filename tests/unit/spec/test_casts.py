"""Which type changes are allowed, and which texts may be defaults."""

import pytest

from tidelake.spec.casts.casts import CastRule, cast_rule, is_default_for, same_type
from tidelake.spec.types.type_codec import parse_type

COLUMNS = (
    "CHAR(5)", "VARCHAR(20)", "BOOLEAN", "BINARY(3)", "VARBINARY(9)", "DECIMAL(10,2)", "TINYINT", "SMALLINT", "INT",
    "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "STRING",
)  # fmt: skip

# What release 2.0.0 of the reference implementation allows, except the last two rows: it does not know those types, and
# they follow the specification. `=` is ours: the reference refuses some types given again, here that changes nothing.
REFERENCE = {
    "CHAR(5)":          "= I E E E E E E E E E E E E E E I",
    "VARCHAR(20)":      "E = E E E E E E E E E E E E E E I",
    "BOOLEAN":          "E E = - - E E E E E E E - - - - E",
    "BINARY(3)":        "E E - = I - - - - - - - - - - - E",
    "VARBINARY(9)":     "E E - E = - - - - - - - - - - - E",
    "DECIMAL(10,2)":    "E E - - - = E E E E I I - - - - E",
    "TINYINT":          "E E E - - I = I I I I I - - - - E",
    "SMALLINT":         "E E E - - I E = I I I I - - - - E",
    "INT":              "E E E - - I E E = I I I - - E E E",
    "BIGINT":           "E E E - - I E E E = I I - - E E E",
    "FLOAT":            "E E - - - I E E E E = I - - - - E",
    "DOUBLE":           "E E - - - I E E E E E = - - - - E",
    "DATE":             "- - - - - - - - - - - - = - E E E",
    "TIME(3)":          "- - - - - - - - - - - - - = E E E",
    "TIMESTAMP(6)":     "- - - - - - - - E E - - I I = I E",
    "TIMESTAMP_LTZ(6)": "- - - - - - - - E E - - E E I = E",
    "ARRAY<INT>":       "E E - - - - - - - - - - - - - - E",
    "MAP<INT, INT>":    "E E - - - - - - - - - - - - - - E",
    "ROW<a INT>":       "E E - - - - - - - - - - - - - - E",
    "MULTISET<INT>":    "- - - - - - - - - - - - - - - - -",
    "VECTOR<FLOAT, 2>": "- - - - - - - - - - - - - - - - -",
    "VARIANT":          "- - - - - - - - - - - - - - - - -",
    "BLOB":             "- - - - - - - - - - - - - - - - -",
    "GEOMETRY":         "- - - - - - - - - - - - - - - - -",
    "GEOGRAPHY":        "- - - - - - - - - - - - - - - - -",
}  # fmt: skip
RULES = {"=": CastRule.IDENTITY, "I": CastRule.IMPLICIT, "E": CastRule.EXPLICIT, "-": CastRule.REFUSED}


@pytest.mark.parametrize("source", REFERENCE)
def test_every_pair_of_types_gets_the_verdict_of_the_reference(source):
    found = [cast_rule(parse_type(source), parse_type(target)) for target in COLUMNS]
    assert found == [RULES[letter] for letter in REFERENCE[source].split()]


@pytest.mark.parametrize(
    "target", ["ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT>", "MULTISET<INT>", "VARIANT", "BLOB", "GEOMETRY"]
)
def test_nothing_becomes_a_constructed_or_opaque_type(target):
    for source in (*COLUMNS, "ARRAY<BIGINT>", "MAP<INT, BIGINT>", "ROW<a BIGINT>", "MULTISET<BIGINT>"):
        assert cast_rule(parse_type(source), parse_type(target)) is CastRule.REFUSED


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("DECIMAL(10, 2)", "DECIMAL(5, 1)"),
        ("VARCHAR(10)", "VARCHAR(5)"),
        ("CHAR(1)", "CHAR(3)"),
        ("BINARY(1)", "BINARY(2)"),
        ("BYTES", "VARBINARY(1)"),
        ("TIMESTAMP(6)", "TIMESTAMP(3)"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(9)"),
    ],
)
def test_parameters_may_change_freely(source, target):
    assert cast_rule(parse_type(source), parse_type(target)) is CastRule.IMPLICIT


def test_the_precision_of_time_cannot_change():
    assert cast_rule(parse_type("TIME(3)"), parse_type("TIME(0)")) is CastRule.REFUSED


@pytest.mark.parametrize("source", ["DATE", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(0)"])
def test_times_become_unbounded_text_only(source):
    assert cast_rule(parse_type(source), parse_type("STRING")) is CastRule.EXPLICIT
    assert cast_rule(parse_type(source), parse_type("VARCHAR(1000)")) is CastRule.REFUSED
    assert cast_rule(parse_type(source), parse_type("CHAR(1000)")) is CastRule.REFUSED


def test_identity_ignores_ids_and_the_outer_nullability_only():
    assert same_type(parse_type("INT NOT NULL"), parse_type("INT"))
    assert same_type(parse_type("ARRAY<ROW<a INT, b ROW<c INT>>>").element, parse_type("ROW<a INT, b ROW<c INT>>"))
    assert same_type(parse_type("MAP<INT, ROW<a INT 'x'>>"), parse_type("MAP<INT, ROW<a INT>> NOT NULL"))
    assert not same_type(parse_type("ARRAY<INT>"), parse_type("ARRAY<INT NOT NULL>"))
    assert not same_type(parse_type("ROW<a INT>"), parse_type("ROW<b INT>"))
    assert not same_type(parse_type("VECTOR<INT, 2>"), parse_type("VECTOR<INT, 3>"))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("TINYINT", ["0", "-128", "127", "+5"], ["128", "-129", "1.5", "", "x", "1e2", "9" * 100]),
        ("BIGINT", [str(2**63 - 1)], [str(2**63), "1_000"]),
        ("DOUBLE", ["1", "-1.5e10", ".5", "NaN"], ["", "x", "1e", "0x10"]),
        ("DECIMAL(4, 2)", ["99.99", "-1", "0.001"], ["100", "1e9", "x"]),
        ("BOOLEAN", ["true", "F", "yes", "0"], ["2", "", "maybe"]),
        ("DATE", ["2026-11-15", "2026-1-5"], ["2026-02-30", "15.11.2026", "", "0000-01-01"]),
        ("TIME(3)", ["10:11:12", "10:11:12.5", "9:05"], ["24:00:00", "10:60", "10"]),
        ("TIMESTAMP(6)", ["2026-11-15 10:11:12.123456", "2026-11-15", "2026-11-15T10:11"], ["2026-11-15 ", "now"]),
        ("STRING", ["", "anything"], []),
        ("BYTES", ["abc"], []),
        ("ARRAY<INT>", ["[]", "[1, 2]", "ARRAY(1)"], ["1", "{1}"]),
        ("MAP<INT, INT>", ["{1 -> 2}"], ["[1]"]),
        ("ROW<a INT>", ["{1}", "struct(1)"], ["1"]),
        ("VARIANT", [], ["1", "null"]),
    ],
)
def test_a_default_must_be_a_value_of_its_type(dtype, good, bad):
    assert [text for text in good if not is_default_for(parse_type(dtype), text)] == []
    assert [text for text in bad if is_default_for(parse_type(dtype), text)] == []
