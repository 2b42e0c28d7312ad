"""The handle of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import tidelake as tl
from kit.small_tables import compaction, file, message, names, new_table, other_handle, row
from tidelake.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.spec.manifests.manifest import ENTRIES
from tidelake.spec.schemas.evolution import AddColumn, SetOption
from tidelake.table import load_table


def test_a_handle_shows_what_the_table_is():
    table = new_table(keyed=True)
    assert (table.primary_key, table.partition_by, table.comment) == (("dt", "id"), ("dt",), None)
    assert table.options["bucket"] == "2"
    assert repr(table).startswith("Table(db.t: id INT NOT NULL")
    assert repr(table).endswith("primary key (dt, id), partitioned by (dt), empty)")
    table.new_commit("u").commit([message("a", total=2)])
    assert repr(table).endswith("snapshot 1)")


def test_an_empty_table_has_no_snapshot_and_no_files():
    table = new_table()
    assert table.latest_snapshot() is None
    assert table.files().equals(ENTRIES.empty_table())
    assert table.check().ok
    for listing in (table.inspect.snapshots(), table.inspect.files(), table.inspect.manifests()):
        assert listing.num_rows == 0
    assert table.inspect.partitions().num_rows == 0
    with pytest.raises(NotFoundError):
        table.snapshot(1)


def test_files_are_those_of_the_wanted_snapshot_and_partitions():
    table = new_table()
    commit = table.new_commit("u")
    commit.commit([message("a"), message("b", dt="d2")])
    commit.commit([compaction((file("a"),), (file("a2"),))])
    assert names(table) == ["a2", "b"]
    assert names(table, snapshot=1) == ["a", "b"]
    assert names(table, where=tl.col("dt") == "d2") == ["b"]
    assert table.files(columns=["row_count"]).column_names == ["row_count"]
    with pytest.raises(InvalidInputError, match="not a partition column"):
        table.files(where=tl.col("id") == 1)
    with pytest.raises(NotFoundError):
        table.files(snapshot=9)


def test_every_batch_job_is_a_user_of_its_own():
    table = new_table(commit__user_prefix="etl")
    users = {table.new_commit().user for _ in range(3)}
    assert len(users) == 3
    assert all(user.startswith("etl_") for user in users)
    assert table.new_commit("job").user == "job"


def test_a_repeated_numbered_commit_is_a_no_op():
    table = new_table()
    assert table.new_commit("u").commit([message("a")], identifier=5).snapshot_ids == (1,)
    again = other_handle(table).new_commit("u")
    assert again.commit([message("a")], identifier=5).repeated
    assert again.filter_committed([4, 5, 6]) == [6]
    assert table.latest_snapshot().id == 1


def test_batch_commits_have_no_number():
    table = new_table()
    commit = table.new_commit("u")
    commit.commit([message("a")], watermark=7, properties={"k": "v"})
    commit.commit([message("b")])
    latest = table.latest_snapshot()
    assert (latest.id, latest.commit_identifier, latest.watermark) == (2, BATCH_IDENTIFIER, 7)
    assert table.snapshot(1).properties["k"] == "v"


def test_overwriting_truncating_and_merging_manifests():
    table = new_table()
    commit = table.new_commit("u")
    commit.commit([message("a"), message("b", dt="d2")])
    commit.overwrite([message("c")], {"dt": "d1"}, dynamic=False)
    assert names(table) == ["b", "c"]
    commit.compact_manifests()
    assert names(table) == ["b", "c"]
    assert len(table.inspect.manifests()) == 1
    commit.truncate()
    assert names(table) == []


def test_a_changed_schema_is_a_new_handle():
    table = new_table()
    altered = table.alter(AddColumn("extra", "INT"))
    assert "extra" in [column.name for column in altered.schema.fields]
    assert "extra" not in [column.name for column in table.schema.fields]
    assert "extra" in [column.name for column in table.reload().schema.fields]
    assert altered.inspect.schemas().num_rows == 2


def test_a_dropped_table_is_gone_for_its_handles():
    table = new_table()
    table.store.env.io.delete_dir("schema")
    with pytest.raises(NotFoundError) as caught:
        table.reload()
    assert caught.value.code == "table-not-found"
    with pytest.raises(NotFoundError):
        load_table(table.store.env, "db.t")


def test_system_tables_say_what_happened():
    table = new_table()
    table.new_commit("u").commit([message("a"), message("b", dt=None)])
    assert table.inspect.snapshots()["commit_user"].to_pylist() == ["u"]
    partitions = table.inspect.partitions()
    assert len(set(partitions["partition"].to_pylist())) == 2
    assert partitions["record_count"].to_pylist() == [10, 10]
    assert table.inspect.files().num_rows == 2
    assert dict(zip(*table.inspect.options().to_pydict().values(), strict=True)) == dict(table.options)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "given",
    [
        {"identifier": 2**63},
        {"identifier": "7"},
        {"identifier": True},
        {"watermark": 2**63},
        {"watermark": 1.5},
        {"properties": {"a": 1}},
        {"properties": {"a": "\ud800"}},
        {"properties": {1: "a"}},
    ],
)
def test_a_wrong_number_or_property_is_refused_before_anything_is_written(given: dict[str, Any]):
    table = new_table()
    commit = table.new_commit("u")
    before = table.store.env.io.list("manifest")
    with pytest.raises(InvalidInputError):
        commit.commit([message("a")], **given)
    assert table.latest_snapshot() is None
    assert table.store.env.io.list("manifest") == before


@pytest.mark.parametrize("sent", [None, {}, "message", 7, b""])
def test_what_is_no_message_is_refused(sent):
    commit = new_table().new_commit("u")
    with pytest.raises(InvalidInputError):
        commit.commit([sent])


def test_a_single_message_must_stand_in_a_list():
    with pytest.raises(InvalidInputError, match="must be a sequence"):
        new_table().new_commit("u").commit(message("a"))


@pytest.mark.parametrize("partition", [b"", b"\x00", row("d1")[:6], b"\x00\x00\x00\x02" + bytes(20), "d1", None, 7])
def test_a_partition_that_is_no_row_of_the_table_is_refused(partition):
    table = new_table()
    with pytest.raises(InvalidInputError):
        table.new_commit("u").commit([replace(message("a"), partition=partition)])
    assert table.latest_snapshot() is None


@pytest.mark.parametrize("user", ["\ud800", 7, b"x", ["a"]])
def test_a_user_that_is_no_text_is_refused(user):
    with pytest.raises(InvalidInputError):
        new_table().new_commit(user)


def test_an_option_of_the_wrong_form_never_reaches_the_schema():
    table = new_table()
    for key, value in (("commit.max-retries", "x"), ("manifest.compression", "lz9"), ("commit.timeout", "never")):
        with pytest.raises(InvalidInputError):
            table.alter(SetOption(key, value))
    assert table.store.schemas.ids() == [0]


def spoil(table: tl.Table, **options: str) -> None:
    """Put options into the schema as another writer could have."""
    io = table.store.env.io
    document = json.loads(io.read("schema/schema-0"))
    document["options"] |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    io.overwrite("schema/schema-0", json.dumps(document).encode())


@pytest.mark.parametrize(
    "options",
    [
        {"manifest__target_file_size": "banana"},
        {"manifest__compression": "lz9"},
        {"manifest__merge_min_count": "x"},
        {"commit__timeout": "never"},
    ],
)
def test_a_bad_option_of_another_writer_stops_commits_and_not_reading(options):
    table = new_table()
    table.new_commit("u").commit([message("a")])
    spoil(table, **options)
    opened = table.reload()
    assert names(opened) == ["a"]
    assert opened.inspect.files().num_rows == 1
    with pytest.raises(InvalidInputError):
        opened.new_commit("u")
    (key,) = (name.replace("__", ".").replace("_", "-") for name in options)
    good = {"manifest.compression": "zstd", "commit.timeout": "5 s"}.get(key, "7")
    repaired = opened.alter(SetOption(key, good))
    assert repaired.new_commit("u").commit([message("b")]).snapshot_ids == (2,)


def test_an_option_that_commits_do_not_honour_is_refused_and_reading_goes_on():
    table = new_table()
    table.new_commit("u").commit([message("a")])
    spoil(table, row_tracking__enabled="true")
    opened = table.reload()
    assert names(opened) == ["a"]
    with pytest.raises(UnsupportedError):
        opened.new_commit("u")


@pytest.mark.parametrize("value", ["²", "--5", "9" * 5_000, "", "x", "1e3"])
def test_a_hostile_progress_property_is_not_believed_and_breaks_nothing(value):
    table = new_table()
    table.new_commit("them").commit([message("a")], properties={"progress.u": value})
    assert table.new_commit("u").commit([message("b")], identifier=3).snapshot_ids == (2,)


def test_a_sequence_property_that_is_no_number_is_a_format_error():
    table = new_table(keyed=True, write__sequence_number_init_mode="snapshot")
    table.new_commit("u").commit(
        [message("a", total=2)], properties={"sequence.generation.max-sequence-number": "many"}
    )
    io = table.store.env.io
    document = json.loads(io.read("snapshot/snapshot-1"))
    document["properties"]["sequence.generation.max-sequence-number"] = "many"
    io.overwrite("snapshot/snapshot-1", json.dumps(document).encode())
    with pytest.raises(FormatError, match="not a number"):
        table.new_commit("u").commit([message("b", total=2)])
    assert table.latest_snapshot().id == 1


def test_partitions_are_dropped_by_a_condition_on_their_columns(tmp_path):
    table = tl.connect(tmp_path).create_table("d.p", {"id": "INT", "dt": "STRING"}, partition_by=["dt"])
    table.write([{"id": n, "dt": day} for n, day in enumerate(["a", "b", "c", "a"])])
    table.drop_partitions("dt >= 'b'")
    assert table.to_arrow()["id"].to_pylist() == [0, 3]
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    assert table.at(snapshot=1).count() == 4
    with pytest.raises(tl.InvalidInputError, match="partition"):
        table.drop_partitions("id = 1")


def test_a_column_in_double_quotes_deletes_nothing():
    table = tl.connect("memory://lake").create_table(
        "db.pay", {"id": "INT", "status": "STRING", "dt": "STRING"}, partition_by=["dt"]
    )
    table.write([{"id": 1, "status": "paid", "dt": "a"}, {"id": 2, "status": "new", "dt": "a"}])
    wrong = "\"Status\" <> 'paid'"
    joined = table.merge([{"id": 1, "status": "paid", "dt": "a"}], "t.id = s.id")
    for attempt in (
        lambda: table.delete(wrong),
        lambda: table.update({"id": "0"}, wrong),
        lambda: table.update({"status": '"status"'}, "true"),
        lambda: table.to_arrow(where=wrong),
        lambda: table.count(wrong),
        lambda: table.compact(where="\"dt\" = 'a'"),
        lambda: table.changes(0, 1, where=wrong).to_arrow(),
        lambda: list(table.follow(where=wrong, until="latest")),
        lambda: table.merge([{"id": 1}], '"id" = s.id').when_matched_delete().run(),
        lambda: joined.when_matched_update({"status": '"status"'}).run(),
        lambda: joined.when_matched_delete(wrong).run(),
    ):
        with pytest.raises(InvalidInputError, match="double quotes") as caught:
            attempt()
        assert "`" in caught.value.hint
        assert "'" in caught.value.hint
    assert table.count() == 2
