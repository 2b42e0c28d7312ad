"""SQL text: what it becomes, what its constants mean beside a column, and how it is refused."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.errors import InvalidInputError
from tidelake.expr import (
    ALWAYS,
    NEVER,
    UNKNOWN,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Coalesce,
    ColumnRef,
    Compare,
    Holds,
    In,
    Is,
    IsNull,
    Like,
    Literal,
    Member,
    Missing,
    Negate,
    Not,
    NullIf,
    Or,
    Regex,
    StartsWith,
    Test,
    Truth,
)
from tidelake.expr.evaluate import matches
from tidelake.expr.parse import DEPTH_MAX, TEXT_MAX, parse_scalar, parse_where
from tidelake.expr.sides import Sides
from tidelake.spec.types.data_types import BIGINT, FLOAT, INT, SMALLINT, STRING, TINYINT, Field
from tidelake.spec.types.type_codec import parse_type

TYPES = {
    "a": "INT",
    "b": "BIGINT",
    "ti": "TINYINT",
    "s": "STRING",
    "d": "DATE",
    "ts": "TIMESTAMP(3)",
    "t9": "TIMESTAMP(9)",
    "lz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "lz9": "TIMESTAMP(9) WITH LOCAL TIME ZONE",
    "tm": "TIME(3)",
    "n": "DECIMAL(5, 2)",
    "f": "FLOAT",
    "g": "DOUBLE",
    "ok": "BOOLEAN",
    "y": "BYTES",
    "r": "ROW<x INT, Y ROW<z DATE>>",
    "arr": "ARRAY<INT>",
    "Name": "INT",
    "NAME": "INT",
    "with `tick": "INT",
    "dotted.name": "INT",
}
FIELDS = [Field(index, name, parse_type(text)) for index, (name, text) in enumerate(TYPES.items())]
FINE = 1_704_412_800_123_456_789
"""2024-01-05 00:00:00.123456789"""
A, S = ColumnRef("a"), ColumnRef("s")


def where(text):
    return parse_where(text, FIELDS)


def scalar(text):
    return parse_scalar(text, FIELDS)


# ------------------------------------------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", Compare("a", "=", 1)),
        ("a == 1", Compare("a", "=", 1)),
        ("a <> 1", Compare("a", "!=", 1)),
        ("3 < a", Compare("a", ">", 3)),
        ("a = b", Test(A, "=", ColumnRef("b"))),
        ("a <=> 5", Test(A, "<=>", Literal(5))),
        ("a IS DISTINCT FROM b", Not(Test(A, "<=>", ColumnRef("b")))),
        ("a IN (1, 2, NULL)", In("a", (1, 2, None))),
        ("a NOT IN (1)", Not(In("a", (1,)))),
        ("a IN (1, b)", Or((Compare("a", "=", 1), Test(A, "=", ColumnRef("b"))))),
        (
            "a BETWEEN 1 AND 5 AND ok",
            And((And((Compare("a", ">=", 1), Compare("a", "<=", 5))), Holds(ColumnRef("ok")))),
        ),
        ("a IS NULL", IsNull("a")),
        ("a IS NOT NULL", Not(IsNull("a"))),
        ("a + 1 IS NULL", Missing(Arithmetic("+", A, Literal(1)))),
        ("isnotnull(a)", Not(IsNull("a"))),
        ("ok", Holds(ColumnRef("ok"))),
        ("NOT ok", Not(Holds(ColumnRef("ok")))),
        ("ok IS NOT TRUE", Not(Is(Holds(ColumnRef("ok")), True))),
        ("(a > 1) IS UNKNOWN", Is(Compare("a", ">", 1), None)),
        ("TRUE", ALWAYS),
        ("FALSE", NEVER),
        ("NULL", UNKNOWN),
        ("s LIKE 'ab%'", StartsWith("s", "ab")),
        ("s LIKE 'a_b%'", Like(S, "a_b%")),
        ("s NOT LIKE 'a!_%' ESCAPE '!'", Not(StartsWith("s", "a_"))),
        ("s ILIKE 'ab%'", Like(S, "ab%", True)),
        ("s RLIKE '^a'", Regex(S, "^a")),
        ("regexp_like(s, '^a')", Regex(S, "^a")),
        ("startswith(s, '50%')", StartsWith("s", "50%")),
        ("endswith(s, 'x_')", Like(S, "%x\\_")),
        ("contains(s, 'x')", Like(S, "%x%")),
        ("a = 1 OR a = 2 AND s = 'x'", Or((Compare("a", "=", 1), And((Compare("a", "=", 2), Compare("s", "=", "x")))))),
        ("a = 1 AND s = 'x' AND ok", And((Compare("a", "=", 1), Compare("s", "=", "x"), Holds(ColumnRef("ok"))))),
        ("NOT a = 1", Not(Compare("a", "=", 1))),
        ("a = 1 -- note\n/* more */", Compare("a", "=", 1)),
    ],
)
def test_a_condition_becomes_its_tree(text, expected):
    assert where(text) == expected


# -------------------------------------------------------------------------------------------------------- constants


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = '5'", 5),
        ("a = 5.0", 5),
        ("a = 5e0", 5),
        ("b = -9223372036854775808", -(2**63)),
        ("b = 9223372036854775807L", 2**63 - 1),
        ("n = 1.25", Decimal("1.25")),
        ("n = '1.25'", Decimal("1.25")),
        ("n = 1", Decimal(1)),
        ("g = 0.1", 0.1),
        ("f = 0.5", 0.5),
        ("s = 'x'", "x"),
        ('s = "x"', "x"),
        ("s = 'it''s'", "it's"),
        ("s = 'a' 'b'", "ab"),
        (r"s = 'a\'\n\\\u0041\101'", "a'\n\\AA"),
        (r"s = '50\%'", "50\\%"),
        (r"s = r'\n'", "\\n"),
        ("y = X'0aFF'", b"\n\xff"),
        ("y = 'ab'", b"ab"),
        ("ok = 'yes'", True),
        ("d = '2024-1-5'", dt.date(2024, 1, 5)),
        ("d = '2024'", dt.date(2024, 1, 1)),
        ("d = DATE '2024-01-05'", dt.date(2024, 1, 5)),
        ("d = '2024-01-05 10:00:00'", dt.date(2024, 1, 5)),
        ("ts = '2024-01-05'", dt.datetime(2024, 1, 5)),
        ("ts = '2024-01-05T10:11:12.5'", dt.datetime(2024, 1, 5, 10, 11, 12, 500_000)),
        ("ts = TIMESTAMP '2024-01-05 10:00:00+02:00'", dt.datetime(2024, 1, 5, 8)),
        ("ts = DATE '2024-01-05'", dt.datetime(2024, 1, 5)),
        ("lz = '2024-01-05 10:00:00'", dt.datetime(2024, 1, 5, 10, tzinfo=dt.UTC)),
        ("lz = '2024-01-05 10:00:00-01:30'", dt.datetime(2024, 1, 5, 11, 30, tzinfo=dt.UTC)),
        ("t9 = '2024-01-05 00:00:00.123456789'", pa.scalar(FINE, pa.timestamp("ns"))),
        ("lz9 = '2024-01-05 00:00:00.123456789+01:00'", pa.scalar(FINE - 3600 * 10**9, pa.timestamp("ns", "UTC"))),
        ("tm = '10:11:12.5'", dt.time(10, 11, 12, 500_000)),
        ("a = NULL", None),
    ],
)
def test_a_constant_is_read_as_a_value_of_the_column(text, value):
    found = where(text)
    assert isinstance(found, Compare)
    assert found.value == value
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("a < 1.5", Decimal("1.5")),
        ("a = 99999999999", 99999999999),
        ("ti = 300", 300),
        ("n = 1.234", Decimal("1.234")),
        ("n = 12345", 12345),
        ("f = 0.1", Decimal("0.1")),
        ("d > TIMESTAMP '2024-01-05 00:00:01'", dt.datetime(2024, 1, 5, 0, 0, 1)),
        ("s = 5", 5),
    ],
)
def test_a_constant_that_is_no_value_of_the_column_keeps_its_own_type(text, constant):
    found = where(text)
    assert isinstance(found, Test)
    assert found.right == Literal(constant)


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("a < 1.5", pa.array([1, 2, None], pa.int32()), [True, False, False]),
        ("a <> 99999999999", pa.array([1, None], pa.int32()), [True, False]),
        ("ti IN (1, 300)", pa.array([1, 44], pa.int8()), [True, False]),
        ("n >= 1.234", pa.array([Decimal("1.23"), Decimal("1.24")], pa.decimal128(5, 2)), [False, True]),
        ("f = 0.1", pa.array([0.1], pa.float32()), [False]),
        ("d > TIMESTAMP '2024-01-05 00:00:01'", pa.array([dt.date(2024, 1, 5), dt.date(2024, 1, 6)]), [False, True]),
        ("s = 5", pa.array(["5", "05", "6"]), [True, True, False]),
        ("t9 = '2024-01-05 00:00:00.123456789'", pa.array([1704412800123456789], pa.timestamp("ns")), [True]),
        ("t9 IN ('2024-01-05 00:00:00.123456789')", pa.array([1704412800123456789], pa.timestamp("ns")), [True]),
        ("lz9 > '2024-01-05 00:00:00.123456788'", pa.array([1704412800123456789], pa.timestamp("ns", "UTC")), [True]),
        ("tm < '10:00'", pa.array([dt.time(9), dt.time(10)], pa.time32("ms")), [True, False]),
    ],
)
def test_such_comparisons_are_exact(text, column, expected):
    predicate = where(text)
    (name,) = predicate.columns()
    assert matches(predicate, {name: column}, len(column)).to_pylist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "a = 'five'",
        "a = ''",
        "n = 'x'",
        "g = 'x'",
        "ok = 'maybe'",
        "ok = 1",
        "d = '2024-02-30'",
        "d = 'yesterday'",
        "d = 5",
        "ts = '2024-01-05 25:00:00'",
        "ts = '2024-01-05 10:00:00 Europe/Berlin'",
        "lz = '0001-01-01 00:00:00+05:00'",
        "ts = '2024-01-05 10:00:00+19:00'",
        "tm = '25:00'",
        "tm = 5",
        "y = 5",
        "a = X'01'",
        "s = X'01'",
        "y = X'0_1'",
        "arr = 1",
        "r = 1",
        "a = 1e",
        "g = 1e400",
        "b = 300Y",
        "b = 12345678901234567890L",
        "a = 123456789012345678901234567890123456789",
        r"s = '\ud800'",
        "d = DATE 'x'",
    ],
)
def test_a_constant_that_makes_no_sense_is_refused_with_its_place(text):
    with pytest.raises(InvalidInputError) as caught:
        where(text)
    assert caught.value.facts.get("position", "").startswith("line 1, column") or "escape" in caught.value.facts
    assert caught.value.hint


# ---------------------------------------------------------------------------------------------------------- scalars


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 1 * 2", Arithmetic("+", A, Arithmetic("*", Literal(1), Literal(2)))),
        ("(a + 1) * 2", Arithmetic("*", Arithmetic("+", A, Literal(1)), Literal(2))),
        ("a div 2", Arithmetic("div", A, Literal(2))),
        ("mod(a, 2)", Arithmetic("%", A, Literal(2))),
        ("-a", Negate(A)),
        ("-5", Literal(-5)),
        ("-(5)", Negate(Literal(5))),
        ("5L", Literal(5, BIGINT)),
        ("5S", Literal(5, SMALLINT)),
        ("-128Y", Literal(-128, TINYINT)),
        ("1.5F", Literal(1.5, FLOAT)),
        ("1.50", Literal(Decimal("1.50"))),
        ("15BD", Literal(Decimal(15))),
        ("CAST(NULL AS INT)", Literal(None, INT)),
        ("CAST(a AS STRING)", Cast(A, STRING)),
        ("a::string", Cast(A, STRING)),
        ("int(s)", Cast(S, INT)),
        ("s || 'x' || a", Call("concat", (S, Literal("x"), A))),
        ("UCASE(s)", Call("upper", (S,))),
        ("substr(s, 2)", Call("substring", (S, Literal(2)))),
        ("ltrim('x', s)", Call("ltrim", (S, Literal("x")))),
        ("trim(TRAILING 'x' FROM s)", Call("rtrim", (S, Literal("x")))),
        ("extract(YEAR FROM d)", Call("year", (ColumnRef("d"),))),
        ("nvl(a, 0)", Coalesce((A, Literal(0)))),
        ("nullif(a, 0)", NullIf(A, Literal(0))),
        ("if(ok, a, 0)", Case(((Holds(ColumnRef("ok")), A),), Literal(0))),
        ("CASE a WHEN 1 THEN 'x' END", Case(((Compare("a", "=", 1), Literal("x")),))),
        ("a > 3", Truth(Compare("a", ">", 3))),
        ("r.x", Member(ColumnRef("r"), "x")),
        ("R.y.Z", Member(Member(ColumnRef("r"), "Y"), "z")),
    ],
)
def test_a_scalar_becomes_its_tree(text, expected):
    assert scalar(text) == expected


def test_a_constant_beside_a_member_is_a_value_of_its_type():
    z = Member(Member(ColumnRef("r"), "Y"), "z")
    assert where("r.y.z >= '2024-01-05'") == Test(z, ">=", Literal(dt.date(2024, 1, 5)))


# ------------------------------------------------------------------------------------------------------------ names


def test_names_match_exactly_or_without_regard_to_case_if_only_one_fits():
    assert where("A = 1") == Compare("a", "=", 1)
    assert where("Name = 1") == Compare("Name", "=", 1)
    assert where("`with ``tick` = 1") == Compare("with `tick", "=", 1)
    assert where("`dotted.name` = 1") == Compare("dotted.name", "=", 1)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        where("nAmE = 1")


@pytest.mark.parametrize(
    "name", ["load", "show", "comment", "date", "timestamp", "user", "set", "end", "interval", "left"]
)
def test_a_column_may_have_the_name_of_a_keyword(name):
    fields = [Field(0, name, INT)]
    assert parse_where(f"{name} > 5 and {name.upper()} < 9", fields) == And(
        (Compare(name, ">", 5), Compare(name, "<", 9))
    )


def test_an_unknown_name_gets_the_nearest_one_and_its_place():
    with pytest.raises(InvalidInputError, match="column does not exist") as caught:
        where("a = 1\n  and dottedname = 2")
    assert caught.value.facts == {"position": "line 2, column 7", "column": "dottedname"}
    assert caught.value.hint == "did you mean dotted.name? a text needs single quotes: 'dottedname'"
    with pytest.raises(InvalidInputError, match="function is not known") as caught:
        where("uper(s) = 'X'")
    assert caught.value.hint == "did you mean upper?"


def test_members_of_what_is_no_row_are_refused():
    with pytest.raises(InvalidInputError, match="no members"):
        where("a.x = 1")
    with pytest.raises(InvalidInputError, match="member does not exist"):
        where("r.q = 1")


# ---------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a IN (SELECT 1)", "subqueries"),
        ("EXISTS (SELECT 1)", "subqueries"),
        ("a = (SELECT 1)", "subqueries"),
        ("a > ALL (SELECT 1)", "subqueries"),
        ("SELECT a", "syntax error"),
        ("s LIKE ANY ('a', 'b')", "ANY"),
        ("sum(a) > 1", "aggregates"),
        ("COUNT(*) > 1", "aggregates"),
        ("row_number() OVER (ORDER BY a) = 1", "window"),
        ("sum(a) FILTER (WHERE ok) > 1", "window functions and filters"),
        ("d > d + INTERVAL 1 DAY", "intervals"),
        ("d = current_date", "changes with each evaluation"),
        ("ts < current_timestamp()", "changes with each evaluation"),
        ("ts < now()", "changes with each evaluation"),
        ("g < rand()", "changes with each evaluation"),
        ("try_cast(s AS INT) = 1", "try_cast"),
        ("CAST(a AS ARRAY<INT>) IS NULL", "type is not supported"),
        ("CAST(a AS DECIMAL(39, 0)) = 1", "out of range"),
        ("arr[0] = 1", "elements"),
        ("(a, b) IN ((1, 2))", "tuples"),
        ("a = ?", "parameters"),
        ("a = :x", "parameters"),
        ("*", "star"),
        ("a b", "syntax error"),
        ("upper(s a) = 'x'", "syntax error"),
        ("a & 1 = 1", "not supported"),
        ("s COLLATE x = 'y'", "not supported"),
        ("a BETWEEN SYMMETRIC 1 AND 5", "not supported"),
        ("a = b = ok", "inside a comparison"),
        ("a + b || s = 'x'", "bind differently"),
        ("s LIKE s", "plain text"),
        ("a IN ()", "no values"),
        ("abs(a, b) = 1", "wrong number"),
        ("nullif(a) = 1", "wrong number"),
        ("coalesce() = 1", "wrong number"),
        ("extract(week FROM d) = 1", "not known"),
        ("a = 1; DROP TABLE t", "more than one"),
        ("", "empty"),
        (" -- nothing", "empty"),
        ("a =", "syntax error"),
        ("(a = 1", "syntax error"),
        ("a = 1)", "syntax error"),
        ("s = 'x", "syntax error"),
        ("a = 1 2", "syntax error"),
        ("y = X'0g'", "syntax error"),
        ("DROP TABLE t", "syntax error"),
        ("a", "not a condition"),
        ("upper(a) = 'x'", "wrong type"),
        ("s + 1 = 2", "not a number"),
        ("upper(s) = 5 AND a LIKE 'x_'", "not text"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        where(text)
    assert caught.value.hint


def test_the_place_of_a_syntax_error_is_named():
    with pytest.raises(InvalidInputError) as caught:
        where("a = 1 and\n and b = 2")
    assert caught.value.facts["position"].startswith("line ")


def test_deep_nesting_is_a_typed_error_and_never_a_recursion_error():
    for depth in (50, DEPTH_MAX + 1, 20_000):
        for text in ("(" * depth + "a = 1" + ")" * depth, "NOT " * depth + "ok", "a" + "+1" * depth + " = 1"):
            try:
                assert where(text).columns() <= {"a", "ok"}
            except InvalidInputError as error:
                assert "deep" in error.message  # noqa: PT017  either answer is right, a RecursionError is not
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        where("a" + "+1" * 20_000 + " = 1")


def test_long_texts_are_fine_up_to_the_limit():
    many = " OR ".join(f"a = {number}" for number in range(5_000))
    found = where(many)
    assert isinstance(found, Or)
    assert len(found.parts) == 5_000
    assert len(where(f"a IN ({', '.join(map(str, range(5_000)))})").values) == 5_000
    with pytest.raises(InvalidInputError, match="too long"):
        where("a = 1" + " " * TEXT_MAX)


def test_reading_trees_without_sql_does_not_load_the_sql_grammar():
    code = (
        "import sys, tidelake.expr, tidelake.expr.evaluate, tidelake.expr.prune, tidelake.expr.simplify;"
        "sys.exit('sqlglot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------------------------------------- double quotes


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("\"s\" <> 'paid'", "write `s` for the column, 's' for the text"),
        ("'paid' <> \"S\"", "write `s` for the column, 'S' for the text"),
        ('s = "ok"', "write `ok` for the column, 'ok' for the text"),
        ("a > 1 OR s IN ('x', \"d\")", "write `d` for the column, 'd' for the text"),
        ('s LIKE "s"', "write `s` for the column, 's' for the text"),
        ("upper(\"s\") = 'S'", "write `s` for the column, 's' for the text"),
        ("r\"s\" = 's'", "write `s` for the column, 's' for the text"),
        ("'' \"s\" '' <> 'paid'", "write `s` for the column, 's' for the text"),
        ('"o" "k" = s', "write `ok` for the column, 'ok' for the text"),
        ("\"r.y.z\" = '2024-01-01'", "write `r`.`Y`.`z` for the column, 'r.y.z' for the text"),
        ('"with `tick" = s', "write `with ``tick` for the column, 'with `tick' for the text"),
    ],
)
def test_a_text_in_double_quotes_that_is_the_name_of_a_column_is_refused(text, hint):
    for read in (where, scalar):
        with pytest.raises(InvalidInputError, match="text in double quotes is also the name of a column") as caught:
            read(text)
        assert caught.value.hint == hint
        assert "line 1, column" in caught.value.facts["position"]


def test_other_texts_in_double_quotes_stay_texts():
    assert where('s = "paid"') == Compare("s", "=", "paid")
    assert where("s = 's'") == Compare("s", "=", "s")
    assert where("s = '\"s\"'") == Compare("s", "=", '"s"')
    assert where('s = "s "') == Compare("s", "=", "s ")


@pytest.mark.parametrize("text", ['r."x" = 1', '"r"."x" = 1', '"nothing".x = 1'])
def test_a_path_does_not_go_through_a_text(text):
    with pytest.raises(InvalidInputError, match=r"double quotes|in the place of a|not supported"):
        where(text)


@pytest.mark.parametrize("name", ["v", "V", "t.v", "target.v", "s.v", "SOURCE.V", "only", "s.r.x"])
def test_in_a_merge_the_columns_of_both_sides_are_in_scope(name):
    target = (Field(0, "id", INT), Field(1, "v", STRING))
    source = (
        Field(0, "id", INT),
        Field(1, "v", STRING),
        Field(2, "only", INT),
        Field(3, "r", parse_type("ROW<x INT>")),
    )
    sides = Sides(target, source)
    for read in (sides.condition, sides.value):
        with pytest.raises(InvalidInputError, match="text in double quotes is also the name of a column"):
            read(f"\"{name}\" = 'a'")
    assert sides.condition('t.v = "w"') == Compare("t.v", "=", "w")
