"""Primary-key tables and maintenance with wrong input: a typed error names the thing and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "visits": "INT", "dt": "STRING NOT NULL"}


class Shop:
    """A lake with one table of each kind, all with one row."""

    def __init__(self, folder: Path) -> None:
        self.lake = tl.connect(folder)
        self.users = self.make("users", {"bucket": 2})
        self.first = self.make("first", {"bucket": 1, "merge-engine": "first-row"})
        self.daily = self.make("daily", {"bucket": 1}, primary_key=["id", "dt"], partition_by=["dt"])
        self.log = self.make("log", {}, primary_key=[])
        for table in (self.users, self.first, self.daily, self.log):
            table.write([{"id": 1, "name": "ann", "visits": 1, "dt": "mon"}])

    def make(self, name: str, options: dict[str, object], *, primary_key: Any = ("id",), **more: Any) -> tl.Table:
        return self.lake.create_table(f"db.{name}", COLUMNS, primary_key=primary_key, options=options, **more)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("lake"))


def aggregation(function: str, column: str = "visits") -> dict[str, object]:
    return {"merge-engine": "aggregation", f"fields.{column}.aggregate-function": function}


ROW = {"id": 1, "name": "a", "visits": 1, "dt": "mon"}
MISTAKES: dict[str, tuple[Callable[[Shop], object], str, str]] = {
    # What is done, what the error names, what it says to do.
    "unknown engine": (lambda s: s.make("x", {"merge-engine": "last-row"}), "last-row", "deduplicate, partial-update"),
    "no buckets": (lambda s: s.make("x", {"bucket": 0}), "bucket", "positive number"),
    "negative buckets": (lambda s: s.make("x", {"bucket": -5}), "-5", "positive number"),
    "buckets as a word": (lambda s: s.make("x", {"bucket": "many"}), "many", "an integer"),
    "bucket key elsewhere": (lambda s: s.make("x", {"bucket": 2, "bucket-key": "name"}), "name", "choose among id"),
    "unknown key": (lambda s: s.make("x", {}, primary_key=["idd"]), "idd", "id, name, visits, dt"),
    "key twice": (lambda s: s.make("x", {}, primary_key=["id", "id"]), "id", "once"),
    "key of partitions alone": (
        lambda s: s.make("x", {}, primary_key=["dt"], partition_by=["dt"]), "only partition columns", "add a column",
    ),
    "unknown sequence": (lambda s: s.make("x", {"sequence.field": "ts"}), "ts", "add the column"),
    "unknown function": (lambda s: s.make("x", aggregation("summ")), "summ", "did you mean sum?"),
    "function of another type": (lambda s: s.make("x", aggregation("sum", "name")), "name", "sum accepts DECIMAL"),
    "function of no column": (lambda s: s.make("x", aggregation("sum", "visitz")), "visitz", "add the column"),
    "unknown producer": (lambda s: s.make("x", {"changelog-producer": "inputs"}), "inputs", "none, input"),
    "trigger of nothing": (
        lambda s: s.make("x", {"num-sorted-run.compaction-trigger": 0}), "compaction-trigger", "at least 1",
    ),
    "size as a word": (lambda s: s.make("x", {"target-file-size": "big"}), "target-file-size", "128 mb"),
    "null key": (lambda s: s.users.write([{**ROW, "id": None}]), "column=`id`", "give every row a value"),
    "no key": (lambda s: s.users.write([{"name": "a", "dt": "x"}]), "column=`id`", "does not have the column"),
    "unknown column": (lambda s: s.users.write([{**ROW, "nam": "a"}]), "nam", "columns are id, name, visits, dt"),
    "key of another type": (lambda s: s.users.write([{**ROW, "id": "x"}]), "column=`id`", "cast the data"),
    "unknown kind": (lambda s: s.users.write([{**ROW, "rowkind": "D"}]), "value=`D`", "+I, -U, +U, -D"),
    "kinds of no column": (lambda s: s.users.write([ROW], row_kind="op"), "op", "name of an existing column"),
    "a deletion in a log": (lambda s: s.log.write([{**ROW, "rowkind": "-D"}]), "primary key", "delete()"),
    "unknown mode": (lambda s: s.users.write([ROW], mode="upsert"), "upsert", "append is an upsert"),
    "number without a user": (lambda s: s.users.write([ROW], identifier=1), "commit user", "commit_user="),
    "update of the key": (lambda s: s.users.update({"id": "7"}, "id = 1"), "column=`id`", "delete the row"),
    "update of no column": (lambda s: s.users.update({"nam": "'x'"}, "id = 1"), "nam", "the columns are"),
    "text without quotes": (lambda s: s.users.update({"name": "paid"}, "id = 1"), "paid", "single quotes: 'paid'"),
    "no condition": (lambda s: s.users.delete(None), "NoneType", '"true" stands for all'),  # type: ignore[arg-type]
    "compaction by a value": (lambda s: s.daily.compact(where="id = 1"), "column=`id`", "use dt"),
    "part of a key": (lambda s: s.daily.why({"id": 1}), "id", "each of id, dt"),
    "another key": (lambda s: s.users.why({"idd": 1}), "idd", "each of id"),
    "a key that is no mapping": (lambda s: s.users.why(1), "int", "{column: value}"),  # type: ignore[arg-type]
    "a key of another type": (lambda s: s.users.why({"id": "x"}), "column=`id`", "a value of that type"),
    "a key of null": (lambda s: s.users.why({"id": None}), "never null", "each of id"),
    "why in a log": (lambda s: s.log.why({"id": 1}), "no primary key", "filter"),
    "levels of a log": (lambda s: s.log.inspect.lsm(), "no levels", "inspect.files()"),
    "retain nothing": (lambda s: s.users.expire_snapshots(retain_min=0), "retain_min=`0`", "1 or more"),
    "retain less than least": (lambda s: s.users.expire_snapshots(retain_max=1), "retain_max=`1`", "lower retain_min"),
    "retain a text": (lambda s: s.users.expire_snapshots(retain_max="3"), "'3'", "whole number"),  # type: ignore[arg-type]
    "expire soon": (lambda s: s.users.expire_snapshots(older_than="soon"), "soon", "`7 d`"),
    "tag of no snapshot": (lambda s: s.users.create_tag("t", 99), "99", "inspect.snapshots()"),
    "tag with a slash": (lambda s: s.users.create_tag("a/b"), "a/b", "another tag name"),
    "tag for no time": (lambda s: s.users.create_tag("t", time_retained="0 d"), "retained", "`90 d`"),
    "tag for some time": (lambda s: s.users.create_tag("t", time_retained="soon"), "soon", "`1 d`"),
    "unknown tag": (lambda s: s.users.delete_tag("zz"), "zz", "create_tag"),
    "read an unknown tag": (lambda s: s.users.at(tag="zz"), "zz", "create_tag"),
    "back to nowhere": (lambda s: s.users.rollback_to(snapshot=99), "99", "inspect.snapshots()"),
    "back to two places": (lambda s: s.users.rollback_to(snapshot=1, tag="a"), "one target", "snapshot=, tag="),
    "young orphans": (lambda s: s.users.remove_orphans("1 h"), "a day old", "`1 d`"),
    "unknown branch": (lambda s: s.users.delete_branch("zz"), "zz", "branches are main"),
    "branch called main": (lambda s: s.users.create_branch("main"), "main", "another branch name"),
    "unknown consumer": (lambda s: s.users.reset_consumer("zz"), "zz", "no consumer"),
    "consumer of nothing": (lambda s: s.users.reset_consumer("c", 0), "snapshot 1", "1 or more"),
    "another engine": (lambda s: s.users.alter(set_options={"merge-engine": "first-row"}), "merge-engine", "new table"),
    "drop the key": (lambda s: s.users.alter(drop=["id"]), "column=`id`", "new table"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_fix(shop: Shop, name: str) -> None:
    act, named, fix = MISTAKES[name]
    with pytest.raises((tl.InvalidInputError, tl.NotFoundError)) as caught:
        act(shop)
    assert named in str(caught.value)
    assert fix in (caught.value.hint or "")
    assert shop.users.store.snapshots.ids() == [1]
    assert "db.x" not in shop.lake


def test_an_unknown_key_is_no_mistake_and_shows_no_row(shop: Shop) -> None:
    found = shop.users.why({"id": 99})
    assert (found.row, found.versions.num_rows) == (None, 0)
    assert "no file holds a version" in str(found)


def test_a_group_names_columns_that_exist(shop: Shop) -> None:
    options = {"merge-engine": "partial-update", "fields.ts.sequence-group": "name"}
    with pytest.raises(tl.InvalidInputError, match=r"column=`ts`"):
        shop.make("x", options)


def test_a_type_that_its_function_does_not_take_is_refused_by_alter(tmp_path: Path) -> None:
    table = tl.connect(tmp_path).create_table(
        "a.b", COLUMNS, primary_key=["id"], options={"bucket": 1, **aggregation("sum")}
    )
    with pytest.raises(tl.InvalidInputError, match="does not accept the type"):
        table.change_type("visits", "STRING")
    assert table.reload().schema.id == 0


def test_a_table_that_could_not_be_merged_before_can_still_be_changed(tmp_path: Path) -> None:
    import json

    table = tl.connect(tmp_path).create_table(
        "a.b", COLUMNS, primary_key=["id"], options={"bucket": 1, **aggregation("sum")}
    )
    path = Path(table.location) / "schema" / "schema-0"
    document = json.loads(path.read_text())
    document["options"]["fields.visits.aggregate-function"] = "summ"
    path.write_text(json.dumps(document))
    broken = tl.open_table(table.location)
    assert broken.set_comment("still here").comment == "still here"
    mended = broken.reload().alter(set_options={"fields.visits.aggregate-function": "sum"})
    mended.write([ROW, ROW])
    assert mended.to_arrow().column("visits").to_pylist() == [2]
