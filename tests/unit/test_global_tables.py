"""The database `sys` belongs to the system tables of the lake: it is read, and nothing in it is created or changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.table import Table
from tidelake.table.system import SystemTable


@pytest.fixture
def lake(tmp_path: Path) -> tl.Lake:
    lake = tl.connect(tmp_path, storage={"durability": "none"})
    lake.create_table("a.t", {"id": "INT", "p": "STRING"}, partition_by=["p"])
    lake.create_table("b.u", {"id": "INT NOT NULL"}, primary_key=["id"], options={"bucket": "1"})
    lake.table("a.t").write([{"id": 1, "p": "x"}, {"id": 2, "p": "x"}, {"id": 3, "p": None}])
    return lake


def test_the_lake_lists_its_tables_partitions_and_options(lake: tl.Lake) -> None:
    assert lake.databases() == ["a", "b"]
    assert lake.tables("sys") == ["tables", "partitions", "all_table_options"]
    columns = ["database_name", "table_name", "table_type", "partitioned", "primary_key"]
    assert [tuple(row.values()) for row in lake.table("sys.tables").to_arrow(columns).to_pylist()] == [
        ("a", "t", "table", True, False),
        ("b", "u", "table", False, True),
    ]
    parts = lake.table("sys.partitions").to_arrow(order_by="partition_name desc").to_pylist()
    assert [(row["table_name"], row["partition_name"], row["record_count"], row["done"]) for row in parts] == [
        ("t", "p=x", 2, False),
        ("t", "p=__DEFAULT_PARTITION__", 1, False),
    ]
    snapshot = lake.table("a.t").latest_snapshot()
    assert snapshot is not None
    assert abs(parts[0]["last_file_creation_time"] - snapshot.time_ms) < 60_000
    options = lake.table("sys.all_table_options")
    assert options.to_arrow(["value"], "database_name = 'b' and key = 'bucket'").to_pylist() == [{"value": "1"}]
    assert options.count("key = 'path'") == 2


@pytest.mark.s3
def test_a_lake_shows_its_options_only_where_it_is_asked_to_and_without_credentials(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist") as caught:
        tl.connect(tmp_path).table("sys.catalog_options")
    assert "catalog-options-table.enabled" in (caught.value.hint or "")
    storage: dict[str, object] = {"catalog-options-table.enabled": True, "access_key_id": "hush", "region": "eu"}
    storage["secret_access_key"] = "hush"
    lake = tl.connect("s3://bucket/lake", storage=storage)
    assert lake.tables("sys")[-1] == "catalog_options"
    shown = {row["key"]: row["value"] for row in lake.table("sys.catalog_options").to_arrow().to_pylist()}
    assert shown["region"] == "eu"
    assert shown["secret_access_key"] == "***"
    assert "hush" not in repr(lake)


def test_nothing_is_created_or_changed_in_the_database_of_the_system_tables(lake: tl.Lake) -> None:
    for act in (
        lambda: lake.create_database("sys"),
        lambda: lake.create_database("sys", if_not_exists=True),
        lambda: lake.drop_database("sys", cascade=True),
        lambda: lake.create_table("sys.x", {"id": "INT"}),
        lambda: lake.create_table("sys.tables", {"id": "INT"}, if_not_exists=True),
        lambda: lake.drop_table("sys.tables"),
        lambda: lake.rename_table("a.t", "sys.t"),
        lambda: lake.rename_table("sys.tables", "a.x"),
    ):
        with pytest.raises(InvalidInputError, match="belongs to the system tables") as caught:
            act()
        assert caught.value.code == "system-name"
    assert lake.databases() == ["a", "b"]
    assert lake.tables("a") == ["t"]


def test_a_system_table_of_the_lake_is_only_read(lake: tl.Lake) -> None:
    found = lake.table("sys.TABLES")
    assert isinstance(found, SystemTable)
    assert not isinstance(found, Table)
    assert found.name == "sys.tables"
    assert "sys.tables" in lake
    assert "sys.nope" not in lake
    assert found.reload().count() == 2
    for act in (
        lambda: found.write([]),
        lambda: found.latest_snapshot(),
        lambda: found.at(snapshot=1),
        lambda: found.branch("b"),
        lambda: found.with_options({"scan.snapshot-id": "1"}),
        lambda: found.inspect,
    ):
        with pytest.raises(InvalidInputError, match="whole lake"):
            act()
    with pytest.raises(AttributeError):
        found.wirte  # type: ignore[attr-defined]  # noqa: B018
    for name in ("sys.nope", "sys.tables$files"):
        with pytest.raises(NotFoundError, match="system table of the lake does not exist"):
            lake.table(name)


def test_a_table_that_is_dropped_while_the_lake_is_listed_is_left_out(
    lake: tl.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = type(lake.catalog).tables
    monkeypatch.setattr(type(lake.catalog), "tables", lambda self, name: [*listed(self, name), "gone"])
    assert lake.table("sys.tables").count() == 2


def test_nothing_is_copied_into_the_database_of_the_system_tables(lake: tl.Lake) -> None:
    with pytest.raises(InvalidInputError) as caught:
        lake.copy_table("a.t", "sys.t")
    assert caught.value.code == "system-name"
    lake.env.io.write("sys.db/stray", b"x")
    assert lake.databases() == ["a", "b"]
    assert lake.repair(plan_only=True)


def test_the_least_value_of_a_system_table_is_read(lake: tl.Lake) -> None:
    scan = lake.table("a.t$snapshots").scan()
    assert (scan.min("snapshot_id"), scan.max("snapshot_id")) == (1, 1)
    assert lake.table("a.t$files").scan(where="record_count > 100").max("record_count") is None
