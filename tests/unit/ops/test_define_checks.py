"""What is checked of options when a table is made, altered or used with options of its own."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from kit.small_tables import new_table
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.options import all_options
from tidelake.options.catalogue import _CHOICES, _LEAST, KNOWN, check_values
from tidelake.spec.schemas.evolution import AddColumn, UpdateDefault
from tidelake.spec.types.format_types import unstorable
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing import FakeClock, MemoryFileIO

WRONG = [
    ("write-only", "maybe"),
    ("bucket", "four"),
    ("target-file-size", "-1"),
    ("target-file-size", "0"),
    ("snapshot.time-retained", "1 parsec"),
    ("snapshot.num-retained.min", "0"),
    ("snapshot.expire.limit", "0"),
    ("source.split.target-size", "big"),
    ("scan.manifest.parallelism", "0"),
    ("scan.mode", "sideways"),
    ("scan.snapshot-id", "x"),
    ("file.format", "csv"),
    ("file.compression", "bogus"),
    ("file.compression.zstd-level", "99"),
    ("file.format.per.level", "0=avro"),
    ("tag.creation-period", "weekly"),
    ("deduplicate.ignore-delete", "perhaps"),
    ("commit.max-retries", "-1"),
    ("lookup.cache-max-memory-size", "much"),
    ("dynamic-bucket.target-row-num", "0"),
]


def lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_value_of_the_wrong_form_is_refused_everywhere(key: str, value: str) -> None:
    fresh = lake()
    table = new_table()
    for act in (
        lambda: fresh.create_table("d.t", {"id": "INT"}, options={key: value}),
        lambda: table.alter(set_options={key: value}),
        lambda: table.with_options({key: value}),
    ):
        with pytest.raises(InvalidInputError) as caught:
            act()
        assert key in str(caught.value)
        assert caught.value.hint or caught.value.facts
    assert "d.t" not in fresh
    assert table.reload().schema.id == 0


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_the_default_of_every_option_passes_its_own_check(key: str) -> None:
    entry = KNOWN[key]
    if entry.default is not None and entry.default != "infinite":
        check_values({key: entry.default})


def test_every_check_is_of_a_key_that_exists() -> None:
    assert set(_CHOICES) | set(_LEAST) <= set(KNOWN)


def test_declared_defaults_pass_too() -> None:
    for spec in all_options():
        if spec.default_text is not None and spec.key in KNOWN:
            check_values({spec.key: spec.default_text})


def test_keys_that_nobody_knows_are_kept_with_a_warning() -> None:
    table = new_table()
    with pytest.warns(UserWarning, match="did you mean `scan.snapshot-id`"):
        table.with_options({"scan.snapshotid": "1"})
    with pytest.warns(UserWarning, match=r"did you mean `snapshot.num-retained.min`"):
        altered = table.alter(set_options={"snapshot.num-retained-min": "4"})
    assert altered.options["snapshot.num-retained-min"] == "4"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        altered.with_options({"sink.parallelism": "4", "parquet.page.size": "1000", "fields.v.stats-mode": "none"})


def test_a_table_with_a_bad_option_of_another_writer_can_be_repaired() -> None:
    table = new_table()
    io = table.store.env.io
    text = io.read("schema/schema-0").decode().replace('"options" : { }', '"options" : { "write-only" : "maybe" }')
    assert "maybe" in text
    io.overwrite("schema/schema-0", text.encode())
    broken = table.reload()
    assert broken.to_arrow().num_rows == 0
    renamed = broken.alter(rename={"v": "w"})
    assert renamed.alter(set_options={"write-only": "true"}).options["write-only"] == "true"


def test_immutable_options_change_neither_in_place_nor_for_one_use() -> None:
    table = new_table()
    table.write([{"id": 1, "dt": "a"}])
    for key, value in (("merge-engine", "first-row"), ("row-tracking.enabled", "true"), ("bucket-key", "id")):
        with pytest.raises(InvalidInputError, match="cannot change"):
            table.alter(set_options={key: value})
        with pytest.raises(InvalidInputError) as caught:
            table.with_options({key: value})
        assert caught.value.code == "option-immutable"


# ------------------------------------------------------------------------------------------------ types and formats

CANNOT: list[tuple[str, str]] = [
    ("orc", "VARIANT"),
    ("orc", "ROW<a ARRAY<VARIANT>>"),
    ("orc", "VECTOR<FLOAT, 3>"),
    ("avro", "VARIANT"),
    ("avro", "TIMESTAMP(9)"),
    ("avro", "TIMESTAMP_LTZ(7)"),
    ("avro", "MAP<STRING, TIMESTAMP(9)>"),
    ("avro", "TIME(6)"),
    ("avro", "MULTISET<INT>"),
]


@pytest.mark.parametrize(("kind", "dtype"), CANNOT)
def test_a_format_that_cannot_hold_a_column_is_refused_when_it_is_named(kind: str, dtype: str) -> None:
    fresh = lake()
    with pytest.raises(InvalidInputError) as caught:
        fresh.create_table("d.t", {"id": "INT", "x": dtype}, options={"file.format": kind})
    assert (caught.value.code, caught.value.facts["column"]) == ("type-format", "x")
    plain = fresh.create_table("d.t", {"id": "INT", "x": dtype})
    with pytest.raises(InvalidInputError):
        plain.alter(set_options={"file.format": kind})
    other = fresh.create_table("d.u", {"id": "INT"}, options={"file.format": kind})
    with pytest.raises(InvalidInputError):
        other.alter(add={"x": dtype})


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    "dtype", ["INT", "TIME(3)", "TIMESTAMP(6)", "MULTISET<STRING>", "MAP<INT, INT>", "VECTOR<FLOAT, 2>", "VARIANT"]
)
def test_what_is_accepted_can_be_written(kind: str, dtype: str) -> None:
    if unstorable(kind, parse_type(dtype)) is not None:
        return
    table = lake().create_table("d.t", {"id": "INT", "x": dtype}, options={"file.format": kind})
    table.write([{"id": 1, "x": None}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "x": None}]


# ------------------------------------------------------------------------------------------------ defaults


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("ARRAY<INT>", ["[]", "[1, 2]", "[null]", "ARRAY(1, 2)"], ["[a]", "[1", "1", "[1, x]", "{1}"]),
        ("MAP<STRING, INT>", ["{}", "{a -> 1}", "{a -> 1, b -> null}", "MAP('a', 1)"], ["{a}", "{a -> b}", "MAP('a')"]),
        (
            "ROW<a INT, b STRING>",
            ["{1, x}", "{null, 'a, b'}", "STRUCT(1, x)"],
            ["{1}", "{x, 1}", "{1, 2, 3}", "[1, x]"],
        ),
        ("ARRAY<ARRAY<INT>>", ["[[1], []]"], ["[1]", "[[x]]"]),
        ("ARRAY<INT NOT NULL>", ["[1]"], ["[null]"]),
        ("VECTOR<FLOAT, 2>", ["[1, 2.5]"], ["[1]", "[1, x]"]),
    ],
)
def test_a_constructed_default_fits_member_by_member(dtype: str, good: list[str], bad: list[str]) -> None:
    table = lake().create_table("d.t", {"id": "INT", "x": dtype})
    for text in good:
        assert table.alter(defaults={"x": text}).schema.field("x").default == text
    for text in bad:
        with pytest.raises(InvalidInputError, match="does not fit"):
            table.alter(defaults={"x": text})


def test_a_default_inside_a_column_is_refused() -> None:
    table = lake().create_table("d.t", {"id": "INT", "r": "ROW<a INT>"})
    changes: list[Any] = [UpdateDefault(("r", "a"), "1"), AddColumn(("r", "b"), "INT", default="1")]
    for change in changes:
        with pytest.raises(InvalidInputError, match="nested field"):
            table.alter(change)
    assert table.alter(UpdateDefault(("r", "a"), None)).schema.id == 0
