"""How options are declared and parsed: value syntax, groups, fallbacks, hints."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import pytest

from tidelake.errors import InternalError, InvalidInputError
from tidelake.options import (
    Affects,
    Bytes,
    DurationMs,
    Int64,
    OptionGroup,
    TextMap,
    UnknownKey,
    all_options,
    at_least,
    between,
    format_bytes,
    format_duration,
    nearest,
    option,
    parse_bytes,
    parse_duration,
    parse_enum,
    parse_float,
    parse_list,
    parse_map,
    specs_of,
    unknown_keys,
)

WRITE = (Affects.WRITE,)


class Engine(Enum):
    PARTIAL_UPDATE = "partial-update"
    FIRST_ROW = "first-row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(OptionGroup):
    listed: ClassVar[bool] = False

    flag: bool = option("t.flag", False, doc="A switch.", affects=WRITE)
    count: int = option("t.count", 5, doc="A count.", affects=WRITE, check=at_least(1))
    rows: Int64 | None = option("t.rows", None, doc="Rows.", affects=WRITE)
    ratio: float = option("t.ratio", 0.5, doc="A share.", affects=WRITE, check=between(0, 1))
    name: str | None = option("t.name", None, doc="A name.", affects=WRITE, fallback=("t.older", "t.oldest"))
    engine: Engine = option("t.engine", Engine.FIRST_ROW, doc="How.", affects=WRITE, immutable=True)
    wait: DurationMs | None = option("t.wait", None, doc="A wait.", affects=(Affects.READ, Affects.WRITE))
    size: Bytes = option("t.size", parse_bytes("8 mb"), doc="A size.", affects=WRITE)
    columns: tuple[str, ...] = option("t.columns", (), doc="Columns.", affects=WRITE)
    levels: Mapping[str, str] = option("t.levels", TextMap(), doc="Per level.", affects=WRITE)
    hour: int = option("t.hour", 0, doc="An hour.", affects=WRITE, parse=lambda text: int(text.removesuffix("h")))


def parse_one(key: str, text: str) -> object:
    group = Sample.parse({f"t.{key}": text})
    return getattr(group, key)


def test_no_options_give_the_defaults_and_nothing_counts_as_given() -> None:
    group = Sample.parse({})
    assert group == Sample()
    assert (group.flag, group.count, group.rows, group.size) == (False, 5, None, 8 << 20)
    assert group.given == frozenset()


def test_keys_of_other_groups_are_left_alone() -> None:
    assert Sample.parse({"other.key": "not a number", "t.count": "7"}).count == 7


def test_a_group_knows_which_options_the_user_set_even_to_the_default() -> None:
    group = Sample.parse({"t.count": "5"})
    assert group.explicit("t.count")
    assert not group.explicit("t.rows")
    with pytest.raises(InternalError, match="not declared"):
        group.explicit("t.nothing")


def test_older_spellings_are_read_in_order_and_the_current_one_wins() -> None:
    assert Sample.parse({"t.oldest": "c", "t.older": "b", "t.name": "a"}).name == "a"
    older = Sample.parse({"t.oldest": "c", "t.older": "b"})
    assert older.name == "b"
    assert older.explicit("t.name")


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1 d", 86_400_000),
        ("2 days", 172_800_000),
        ("1h", 3_600_000),
        ("2 hours", 7_200_000),
        ("30 min", 1_800_000),
        ("3 m", 180_000),
        ("1 Minute", 60_000),
        ("10 s", 10_000),
        ("1 secs", 1_000),
        ("500 ms", 500),
        ("5 milliseconds", 5),
        ("100", 100),
        ("0", 0),
        (" 5  s ", 5_000),
        ("1500 micros", 1),
        ("999999 ns", 0),
        ("1 µs", 0),
        ("9223372036854775807", 2**63 - 1),
        ("007 s", 7_000),
    ],
)
def test_durations_are_read_as_the_format_reads_them(text: str, millis: int) -> None:
    assert parse_duration(text) == millis
    assert parse_one("wait", text) == millis


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "abc", "-1 s", "+5 s", "1.5 h", "1 w", "1 us", "1 mins", "1 h 30 min", "PT1H", "1_000", "١ s",
        "9223372036854775808", "99999999999999 d", "9" * 5000,
    ],
)  # fmt: skip
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="wrong form"):
        parse_one("wait", text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128 mb", 128 << 20),
        ("1 gb", 1 << 30),
        ("64 kb", 64 << 10),
        ("1 g", 1 << 30),
        ("1 tebibytes", 1 << 40),
        ("1 k", 1 << 10),
        (" 1MB ", 1 << 20),
        ("500 bytes", 500),
        ("7 b", 7),
        ("100", 100),
    ],
)
def test_sizes_are_read_as_the_format_reads_them(text: str, size: int) -> None:
    assert parse_one("size", text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5 mb", "1 kib", "1 byte", "1 p", "infinite", "9007199254740993 kb"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="wrong form"):
        parse_one("size", text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_booleans_are_true_or_false_in_any_case(text: str, value: bool) -> None:
    assert parse_one("flag", text) is value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("flag", "yes"), ("flag", "1"), ("flag", " true"), ("flag", ""),
        ("count", " 1 "), ("count", "1.0"), ("count", "1e3"), ("count", "0x10"), ("count", "1_0"), ("count", "١"),
        ("count", "2147483648"), ("count", "-2147483649"), ("count", "9" * 5000), ("count", ""),
        ("rows", "9223372036854775808"), ("rows", "x"),
        ("ratio", "inf"), ("ratio", "1_0"), ("ratio", ""), ("ratio", "0,5"), ("ratio", "f"), ("ratio", "NaNf"),
        ("engine", "partial"), ("engine", " first-row"),
        ("columns", "a,,b"), ("columns", ",a"),
        ("levels", "a"), ("levels", "a:b:c"), ("levels", "a:"), ("levels", ":b"), ("levels", "a:b,,c:d"),
        ("levels", "a:b,a:c"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_form_are_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_one(key, text)
    assert caught.value.code == "option-value"
    assert caught.value.facts["key"] == f"t.{key}"


def test_the_error_names_the_key_that_was_used_the_value_and_the_expected_form() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Sample.parse({"t.engine": "merge"})
    assert caught.value.facts == {"key": "t.engine", "value": "merge", "expected": "one of partial-update, first-row"}
    assert caught.value.hint == "give t.engine one of partial-update, first-row"


def test_integers_have_the_width_of_their_annotation() -> None:
    assert parse_one("count", "2147483647") == 2**31 - 1
    assert parse_one("count", "+7") == 7
    assert parse_one("rows", "-9223372036854775808") == -(2**63)


def test_a_value_that_fails_its_check_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        parse_one("count", "0")
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        parse_one("ratio", "1.5")
    with pytest.raises(InvalidInputError, match="from 0 to 1"):
        parse_one("ratio", "NaN")


@pytest.mark.parametrize(
    ("text", "value"), [("0.75", 0.75), ("1e-3", 0.001), (" .5 ", 0.5), ("1f", 1.0), ("1.5d", 1.5)]
)
def test_floats_may_have_an_exponent_blanks_and_a_type_letter(text: str, value: float) -> None:
    assert parse_float(text) == value


def test_infinite_floats_are_spelled_out() -> None:
    assert parse_float("-Infinity") == float("-inf")


@pytest.mark.parametrize("text", ["partial-update", "PARTIAL_UPDATE", "Partial-Update"])
def test_enums_are_read_in_any_case_with_either_dash(text: str) -> None:
    assert parse_one("engine", text) is Engine.PARTIAL_UPDATE


class Formatter(Enum):
    DASHED = "with_dashes"


@pytest.mark.parametrize("text", ["with_dashes", "With-Dashes", "dashed"])
def test_enums_are_found_by_value_or_name(text: str) -> None:
    assert parse_enum(text, Formatter) is Formatter.DASHED


def test_lists_are_trimmed_and_a_trailing_comma_adds_nothing() -> None:
    assert parse_one("columns", " a , b ,") == ("a", "b")
    assert parse_list("") == ()


def test_maps_are_trimmed_and_stay_in_order() -> None:
    assert dict(parse_map(" 1 : avro , 0 : orc,")) == {"1": "avro", "0": "orc"}
    assert list(parse_map("b:1,a:2")) == ["b", "a"]
    assert len(parse_map(" ")) == 0


def test_an_option_may_bring_its_own_parser() -> None:
    assert parse_one("hour", "7h") == 7
    with pytest.raises(InvalidInputError, match="wrong form"):
        parse_one("hour", "seven")


def test_a_value_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="wrong form"):
        Sample.parse({"t.count": 5})  # type: ignore[dict-item]


def test_a_parsed_group_is_hashable_and_pickles() -> None:
    group = Sample.parse({"t.levels": "0:avro", "t.columns": "a,b", "t.wait": "1 s"})
    assert pickle.loads(pickle.dumps(group)) == group
    assert hash(group) == hash(Sample.parse({"t.wait": "1000", "t.columns": "a, b", "t.levels": "0:avro"}))


@pytest.mark.parametrize("value", [0, 1, 999, 1_000, 60_000, 90_000, 3_600_000, 86_400_000, 86_400_001])
def test_formatted_durations_and_sizes_read_back(value: int) -> None:
    assert parse_duration(format_duration(value)) == value
    assert parse_bytes(format_bytes(value << 10)) == value << 10
    assert parse_bytes(format_bytes(value)) == value


def test_specs_carry_what_the_reference_page_needs() -> None:
    specs = {spec.key: spec for spec in specs_of(Sample)}
    assert [spec.attribute for spec in specs_of(Sample)][:3] == ["flag", "count", "rows"]
    assert specs["t.size"].default_text == "8 mb"
    assert specs["t.engine"].default_text == "first-row"
    assert specs["t.flag"].default_text == "false"
    assert specs["t.rows"].default_text is None
    assert [specs[f"t.{key}"].type_name for key in ("flag", "count", "rows", "ratio", "name", "engine")] == [
        "boolean", "integer", "long", "double", "string", "enum"
    ]  # fmt: skip
    assert [specs[f"t.{key}"].type_name for key in ("wait", "size", "columns", "levels")] == [
        "duration", "memorysize", "list", "map"
    ]  # fmt: skip
    assert specs["t.engine"].immutable
    assert not specs["t.flag"].immutable
    assert specs["t.wait"].affects == (Affects.READ, Affects.WRITE)


def test_every_default_reads_back_from_its_text() -> None:
    for spec in specs_of(Sample):
        if spec.default_text is not None and spec.key != "t.hour":
            assert spec.parse(spec.default_text) == spec.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash(OptionGroup):
    listed: ClassVar[bool] = False

    count: int = option("t.count", 6, doc="Another default.", affects=WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(OptionGroup):
    listed: ClassVar[bool] = False

    thing: complex = option("t.thing", 0j, doc="No parser.", affects=WRITE)


def test_one_key_with_two_declarations_is_our_bug() -> None:
    with pytest.raises(InternalError, match="declared twice"):
        all_options([Sample, Clash])


def test_an_annotation_without_a_parser_is_our_bug() -> None:
    with pytest.raises(InternalError, match="no parser"):
        specs_of(Unreadable)


def test_all_options_are_sorted_and_come_once() -> None:
    keys = [spec.key for spec in all_options([Sample, Sample])]
    assert keys == sorted(set(keys))
    assert "t.flag" in keys


def test_groups_that_are_not_listed_stay_out_of_the_registry() -> None:
    assert not {spec.key for spec in all_options()} & {spec.key for spec in specs_of(Sample)}


def test_the_nearest_key_is_found_through_misspellings_only() -> None:
    keys = ["commit.max-retries", "commit.timeout", "bucket"]
    assert nearest("comit.max_retrys", keys) == "commit.max-retries"
    assert nearest("Bucket", keys) == "bucket"
    assert nearest("something-else", keys) is None


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    found = unknown_keys(["commit.timeout", "comit.timeout", "zzz"], known=["commit.timeout"])
    assert found == (UnknownKey("comit.timeout", "commit.timeout"), UnknownKey("zzz", None))
