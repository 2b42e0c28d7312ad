"""The file-system catalog."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.catalog.names import split_name
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.options import option_text
from tidelake.spec.types.data_types import INT, STRING
from tidelake.table.naming import column_types
from tidelake.testing import FakeClock, MemoryFileIO


@pytest.fixture
def lake() -> Lake:
    return Lake(FileSystemCatalog(Env(MemoryFileIO("catalog-tests"), FakeClock(), SeededIds(1))))


@pytest.fixture(autouse=True)
def _empty(lake):
    yield
    for name in lake.databases():
        lake.drop_database(name, cascade=True)


def test_databases_come_and_go(lake):
    lake.create_database("b")
    lake.create_database("a")
    assert lake.databases() == ["a", "b"]
    lake.create_database("a", if_not_exists=True)
    with pytest.raises(InvalidInputError) as caught:
        lake.create_database("a")
    assert caught.value.code == "database-exists"
    lake.drop_database("a")
    assert lake.databases() == ["b"]


def test_a_database_that_is_not_there_is_named(lake):
    for call in (lake.tables, lake.drop_database):
        with pytest.raises(NotFoundError) as caught:
            call("nope")
        assert caught.value.code == "database-not-found"


def test_a_database_with_tables_goes_only_with_them(lake):
    lake.create_table("db.t", {"a": "INT"})
    with pytest.raises(InvalidInputError, match="not empty"):
        lake.drop_database("db")
    assert "db.t" in lake
    lake.drop_database("db", cascade=True)
    assert lake.databases() == []
    assert "db.t" not in lake


def test_tables_come_and_go(lake):
    lake.create_table("db.b", {"a": "INT"})
    lake.create_table("db.a", {"a": "INT"})
    lake.env.io.write("db.db/no-table/file", b"")
    assert lake.tables("db") == ["a", "b"]
    assert lake.table("db.a").name == "db.a"
    lake.drop_table("db.a")
    assert lake.tables("db") == ["b"]
    with pytest.raises(NotFoundError):
        lake.table("db.a")
    with pytest.raises(NotFoundError):
        lake.drop_table("db.a")


def test_a_table_is_made_once(lake):
    first = lake.create_table("db.t", {"a": "INT"})
    with pytest.raises(InvalidInputError) as caught:
        lake.create_table("db.t", {"b": "INT"})
    assert caught.value.code == "table-exists"
    again = lake.create_table("db.t", {"b": "INT"}, if_not_exists=True)
    assert again.schema == first.schema


@pytest.mark.parametrize("name", ["", "t", ".t", "db.", "a.b.c", "db.t.x", "."])
def test_a_name_has_two_parts(lake, name):
    for call in (lake.table, lake.drop_table, split_name):
        with pytest.raises(InvalidInputError, match=r"must be database\.table"):
            call(name)


def test_a_long_or_strange_name_is_not_printed_as_it_is():
    with pytest.raises(InvalidInputError) as caught:
        split_name("\x1b[2J" + "x" * 5_000)
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"a": "INT", "s": "STRING"},
        {"a": INT, "s": STRING},
        pa.schema([("a", pa.int32()), ("s", pa.string())]),
        pa.table({"a": pa.array([1], pa.int32()), "s": ["x"]}),
        pa.record_batch({"a": pa.array([1], pa.int32()), "s": ["x"]}),
    ],
    ids=["texts", "types", "Arrow schema", "table", "batch"],
)
def test_a_schema_may_be_given_in_many_ways(lake, schema):
    table = lake.create_table("db.t", schema)
    assert [(column.name, str(column.type)) for column in table.schema.fields] == [("a", "INT"), ("s", "STRING")]


@pytest.mark.parametrize("schema", [None, 7, "a INT", [("a", "INT")]])
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(InvalidInputError):
        column_types(schema)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(InvalidInputError, match="share a name"):
        column_types(pa.schema([("a", pa.int32()), ("a", pa.int32())]))


@pytest.mark.parametrize(("value", "text"), [("x", "x"), (True, "true"), (False, "false"), (7, "7"), (1.5, "1.5")])
def test_an_option_may_be_a_text_a_number_or_a_truth_value(value, text):
    assert option_text("k", value) == text


@pytest.mark.parametrize("value", [None, [1], {}, b"x", object()])
def test_an_option_of_another_kind_is_refused_by_name(value):
    with pytest.raises(InvalidInputError) as caught:
        option_text("bucket", value)
    assert caught.value.facts["option"] == "bucket"


def test_one_key_column_may_be_given_as_a_text(lake):
    table = lake.create_table("db.t", {"id": "INT", "dt": "STRING"}, primary_key="id", options={"bucket": 1})
    assert table.primary_key == ("id",)


BAD_TABLES = [
    ({"a": "NONSENSE"}, {}),
    ({"a": "INT", "b": 7}, {}),
    ({7: "INT"}, {}),
    ({"a": "INT"}, {"primary_key": ["nope"]}),
    ({"a": "INT"}, {"partition_by": ["nope"]}),
    ({"a": "INT"}, {"options": {"bucket": "many"}}),
    ({"a": "INT"}, {"options": {"bucket": [1]}}),
    ({"a": "INT"}, {"options": {"manifest.compression": "lz9"}}),
    ({"a": "INT"}, {"options": {"manifest.target-file-size": "banana"}}),
    ({"a": "INT"}, {"options": {"commit.max-retries": "x"}}),
    ({"a": "INT"}, {"options": {"data-file.path-directory": "../x"}}),
    ({"a": "INT"}, {"options": {"note": "\ud800"}}),
    ({"a\ud800": "INT"}, {}),
    ({"a": "INT"}, {"comment": "\ud800"}),
]


@pytest.mark.filterwarnings("ignore:option")
@pytest.mark.parametrize(("schema", "given"), BAD_TABLES, ids=[str(i) for i in range(len(BAD_TABLES))])
def test_a_table_that_is_refused_is_not_there_afterwards(lake, schema, given):
    with pytest.raises(InvalidInputError):
        lake.create_table("db.t", schema, **given)
    assert "db.t" not in lake
    assert lake.databases() == []


def test_an_unknown_option_warns_with_the_nearest_known_one(lake):
    with pytest.warns(UserWarning, match="did you mean `bucket`"):
        lake.create_table("db.t", {"a": "INT"}, options={"buckte": "1"})
    assert lake.table("db.t").options["buckte"] == "1"


def test_a_lake_is_its_location(lake):
    assert repr(lake) == "Lake(memory://catalog-tests)"
    same = tl.connect("memory://catalog-tests")
    lake.create_table("db.t", {"a": "INT"})
    assert same.tables("db") == ["t"]


def test_a_table_may_be_opened_without_a_catalog(tmp_path):
    made = tl.connect(tmp_path).create_table("db.t", {"a": "INT"})
    opened = tl.open_table(made.location)
    assert opened.schema == made.schema
    assert opened.name == "t"
    with pytest.raises(NotFoundError):
        tl.open_table(tmp_path / "nothing")
