"""Views of a table that are opened by name are only read."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.spec.schemas.evolution import SetOption
from tidelake.table import Table
from tidelake.table.views import VIEWS, View

CALLS = {
    "add_column": ("w", "INT"),
    "alter": (SetOption("write-only", "true"),),
    "change_type": ("v", "BIGINT"),
    "analyze": (),
    "check_update": ({"v": "3"},),
    "clear_consumers": (),
    "compact": (),
    "compact_manifests": (),
    "context_to_write": (),
    "create_automatic_tags": (),
    "create_branch": ("b",),
    "create_tag": ("t",),
    "delete": ("id = 1",),
    "delete_branch": ("old",),
    "delete_tag": ("old",),
    "drop_column": ("v",),
    "drop_partitions": ("id = 1",),
    "expire_changelogs": (),
    "expire_partitions": ("30 d",),
    "expire_snapshots": (),
    "expire_tags": (),
    "fast_forward": ("old",),
    "keep_compacted": (),
    "mark_partition_done": ({"v": 1},),
    "materialize_deletion_vectors": (),
    "merge_branch": ("old",),
    "merge": ([{"id": 1, "v": 2}], ["id"]),
    "new_commit": (),
    "new_write": (),
    "purge_files": (),
    "remove_orphans": (),
    "remove_unexisting_files": (),
    "rename_branch": ("old", "new"),
    "rename_column": ("v", "w"),
    "rename_tag": ("old", "new"),
    "repair_earliest_snapshot": (1,),
    "replace_tag": ("old",),
    "rescale": (2,),
    "reset_consumer": ("c", 1),
    "rollback_schema": (0,),
    "rollback_to": (),
    "set_comment": ("who buys",),
    "set_options": ({"write-only": "true"},),
    "truncate": (),
    "update": ({"v": "3"}, "id = 1"),
    "write": ([{"id": 2, "v": 2}],),
}
READ_ONLY = {
    *("at", "branch", "branches", "changes", "check", "consumers", "count", "files", "follow", "latest_snapshot"),
    *(
        "reload",
        "scan",
        "snapshot",
        "tags",
        "to_arrow",
        "to_batches",
        "to_duckdb",
        "to_pandas",
        "to_polars",
        "to_spark",
    ),
    *("diagnose", "parse_condition", "statistics", "why", "with_options"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tl.Lake:
    lake = tl.connect(tmp_path_factory.mktemp("lake"))
    table = lake.create_table("db.t", {"id": "INT", "v": "INT"}, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 1, "v": 1}])
    table.create_tag("old")
    table.create_branch("old", tag="old")
    return lake


def test_every_method_of_a_table_is_known_to_read_or_to_change():
    methods = {name for name, _ in inspect.getmembers(Table, inspect.isfunction) if not name.startswith("_")}
    assert methods == READ_ONLY | CALLS.keys()


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_changed_through_a_system_view(lake: tl.Lake, view: str):
    opened = lake.table(f"db.t${view}")
    place = Path(lake.location.removeprefix("file://"))
    before = sorted(place.rglob("*"))
    for name, arguments in CALLS.items():
        with pytest.raises(InvalidInputError, match="a view cannot be changed"):
            getattr(opened, name)(*arguments)
    assert sorted(place.rglob("*")) == before


def test_a_view_stays_a_view_on_another_branch(lake: tl.Lake):
    view = lake.table("db.t$ro")
    for other in (view.branch("old"), view.with_options({"branch": "old"})):
        assert type(other) is type(view)
        with pytest.raises(InvalidInputError, match="a view cannot be changed"):
            other.create_tag("x")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_no_verb_that_changes_a_table(lake: tl.Lake, view: str):
    opened = lake.table(f"db.t${view}")
    assert not isinstance(opened, Table)
    assert CALLS.keys() & set(dir(opened)) == set()
    assert {name for name in dir(opened) if not name.startswith("_")} >= {"at", "branch", "inspect", "scan", "to_arrow"}
    with pytest.raises(AttributeError, match="no attribute 'wirte'"):
        getattr(opened, "wirte")  # noqa: B009 - what is not there is not typed


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_says_of_its_table_what_the_table_says(lake: tl.Lake, view: str):
    opened, table = lake.table(f"db.t${view}"), lake.table("db.t")
    for name in ("branches", "consumers", "latest_snapshot", "tags"):
        assert getattr(opened, name)() == getattr(table, name)(), name
    assert opened.check().findings == ()
    assert opened.files().equals(table.files())
    assert opened.snapshot(1) == table.snapshot(1)
    assert opened.why({"id": 1}).key == table.why({"id": 1}).key
    assert opened.inspect.snapshots().equals(table.inspect.snapshots())


def test_a_view_stays_a_view_at_another_point_in_time(lake: tl.Lake):
    view = lake.table("db.t$audit_log")
    for other in (view.at(snapshot=1), view.at(tag="old"), view.reload()):
        assert isinstance(other, View)
        assert other.name == "db.t$audit_log"
        assert other.to_arrow().to_pylist() == [{"rowkind": "+I", "id": 1, "v": 1}]
