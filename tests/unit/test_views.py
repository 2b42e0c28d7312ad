"""Views of a table that are opened by name are only read."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.spec.evolution import SetOption
from tidelake.table import Table
from tidelake.table.views import VIEWS

CALLS = {
    "add_column": ("w", "INT"),
    "alter": (SetOption("write-only", "true"),),
    "change_type": ("v", "BIGINT"),
    "check_update": ({"v": "3"},),
    "compact": (),
    "create_branch": ("b",),
    "create_tag": ("t",),
    "delete": ("id = 1",),
    "delete_branch": ("old",),
    "delete_tag": ("old",),
    "drop_column": ("v",),
    "drop_partitions": ("id = 1",),
    "expire_changelogs": (),
    "expire_snapshots": (),
    "expire_tags": (),
    "fast_forward": ("old",),
    "keep_compacted": (),
    "merge": ([{"id": 1, "v": 2}], ["id"]),
    "new_commit": (),
    "new_write": (),
    "remove_orphans": (),
    "rename_column": ("v", "w"),
    "rename_tag": ("old", "new"),
    "rescale": (2,),
    "reset_consumer": ("c", 1),
    "rollback_to": (),
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
    *("why", "with_options"),
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
        with pytest.raises(InvalidInputError, match="a view is only read"):
            getattr(opened, name)(*arguments)
    assert sorted(place.rglob("*")) == before


def test_a_view_stays_a_view_on_another_branch(lake: tl.Lake):
    view = lake.table("db.t$ro")
    for other in (view.branch("old"), view.with_options({"branch": "old"})):
        assert type(other) is type(view)
        with pytest.raises(InvalidInputError, match="a view is only read"):
            other.create_tag("x")
