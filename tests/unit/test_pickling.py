"""Every public handle goes to another process and works there; credentials and open files stay."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import tidelake as tl


@pytest.fixture(scope="module")
def handles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lake = tl.connect(tmp_path_factory.mktemp("lake"), storage={"durability": "none"})
    table = lake.create_table("d.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "1"})
    result = table.write([{"id": 1, "v": "a"}])
    table.create_tag("first")
    merge = table.merge([{"id": 1, "v": "b"}], on=["id"]).when_matched_update()
    return {
        "Lake": lake,
        "Table": table,
        "View": lake.table("d.t$audit_log"),
        "SystemTable": lake.table("d.t$files"),
        "GlobalTable": lake.table("sys.tables"),
        "SystemScan": lake.table("d.t$files").scan(["level"], "level = 0", 3, "level"),
        "branch": table.create_branch("b", tag="first"),
        "past": table.at(snapshot=1),
        "Scan": table.scan(where=tl.col("id") > 0, limit=3, order_by="id"),
        "changes": table.changes(since=0),
        "Merge": merge,
        "MergePlan": merge.run(plan_only=True),
        "Inspect": table.inspect,
        "Following": table.follow(consumer="c", timeout=0),
        "Change": next(table.follow(timeout=0)),
        "TableCommit": table.new_commit("u"),
        "CommitResult": result,
        "Plan": table.scan().plan(),
        "Snapshot": table.latest_snapshot(),
        "Schema": table.schema,
        "CheckReport": table.check(),
        "Why": table.why({"id": 1}),
        "CompactionPlan": table.compact(full=True, plan_only=True),
        "ExpirePlan": table.expire_snapshots(plan_only=True),
        "OrphanPlan": table.remove_orphans(plan_only=True),
        "condition": tl.col("id") > 3,
    }


def copied(handle: Any) -> Any:
    return pickle.loads(pickle.dumps(handle))


def test_every_handle_pickles(handles: dict[str, Any]) -> None:
    for name, handle in handles.items():
        again = copied(handle)
        assert type(again) is type(handle), name


def test_system_tables_that_were_pickled_are_read(handles: dict[str, Any]) -> None:
    for name in ("SystemTable", "GlobalTable", "SystemScan"):
        assert copied(handles[name]).to_arrow().equals(handles[name].to_arrow()), name


def test_a_table_that_was_pickled_is_read_and_written(handles: dict[str, Any]) -> None:
    rows = [{"id": 1, "v": "a"}]
    assert copied(handles["Lake"]).table("d.t").to_arrow().to_pylist() == rows
    for name in ("Table", "branch", "past", "Scan"):
        assert copied(handles[name]).to_arrow().to_pylist() == rows, name
    assert copied(handles["View"]).scan().to_arrow().column_names == ["rowkind", "id", "v"]
    assert copied(handles["changes"]).to_arrow().num_rows == 1
    assert copied(handles["Change"]).to_arrow().num_rows == 1
    assert copied(handles["Inspect"]).tags().num_rows == 1
    assert copied(handles["branch"]).write([{"id": 2}]).rows == 1
    assert copied(handles["Merge"]).run().updated == 1


def test_a_stream_that_was_pickled_goes_on_where_it_stood(handles: dict[str, Any]) -> None:
    stream = handles["Following"]
    change = next(stream)
    again = copied(stream)
    assert again.next_snapshot == stream.next_snapshot == change.snapshot_id + 1
    copied(change).ack()
    assert handles["Table"].inspect.consumers().to_pylist() == [
        {"consumer_id": "c", "next_snapshot_id": change.snapshot_id + 1}
    ]


def test_a_writer_with_open_files_says_that_it_stays(handles: dict[str, Any]) -> None:
    with pytest.raises(tl.InvalidInputError, match="prepare_commit"):
        pickle.dumps(handles["Table"].new_write())


def test_a_lake_in_memory_says_that_it_stays() -> None:
    with pytest.raises(tl.InvalidInputError, match="memory"):
        pickle.dumps(tl.connect("memory://"))


@pytest.mark.s3
def test_a_handle_on_a_bucket_pickles_without_its_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lake = tl.connect("s3://bucket/lake", storage={"access_key_id": "canary", "secret_access_key": "canary"})
    sent = pickle.dumps(lake)
    assert b"canary" not in sent
    assert pickle.loads(sent).location == lake.location
