"""What an overwrite deletes."""

from __future__ import annotations

import pytest

from kit.small_tables import file, index_entry, message, new_table, vectors
from tidelake.errors import InvalidInputError
from tidelake.expr import Compare, IsNull
from tidelake.ops.commit.changes import NO_CHANGES, split_messages
from tidelake.ops.commit.overwrite import (
    Overwrite,
    check_inside,
    dynamic_filter,
    equals,
    overwrite_changes,
    static_filter,
)
from tidelake.ops.scan.plan import EVERY_PARTITION, data_manifests
from tidelake.spec.manifests.manifest import ADD, DELETE


@pytest.fixture
def table():
    made = new_table()
    made.new_commit("u").commit(
        [message("a"), message("b", dt="d2"), message("n", dt=None), message("p", bucket=-2, total=-2)]
    )
    return made


def replaced(table, partitions, *messages, postponed=False, index=()):
    new, _ = split_messages(messages, default_buckets=-1)
    store, snapshot = table.store.manifests, table.latest_snapshot()
    plan = Overwrite(partitions, postponed=postponed)
    return overwrite_changes(new if messages else NO_CHANGES, plan, store, data_manifests(store, snapshot), index)


def facts(changes) -> list[tuple[int, str]]:
    return list(zip(changes.delta["kind"].to_pylist(), changes.delta["file_name"].to_pylist(), strict=True))


def test_a_static_overwrite_deletes_the_named_partition_and_adds_after_it(table):
    found = replaced(table, static_filter(table.schema, {"dt": "d1"}), message("new"))
    assert facts(found) == [(DELETE, "a"), (ADD, "new")]


def test_no_specification_names_every_partition(table):
    assert static_filter(table.schema, {}) is EVERY_PARTITION
    assert facts(replaced(table, EVERY_PARTITION)) == [(DELETE, "a"), (DELETE, "b"), (DELETE, "n")]


def test_staged_rows_are_replaced_only_by_a_table_that_postpones(table):
    assert (DELETE, "p") in facts(replaced(table, EVERY_PARTITION, postponed=True))


def test_none_names_the_null_partition(table):
    assert facts(replaced(table, static_filter(table.schema, {"dt": None}))) == [(DELETE, "n")]
    assert equals("dt", None) == IsNull("dt")
    assert equals("dt", "x") == Compare("dt", "=", "x")


def test_a_dynamic_overwrite_names_the_partitions_with_new_files(table):
    new, _ = split_messages([message("x", dt="d2")], default_buckets=-1)
    chosen = dynamic_filter(table.schema, frozenset(new.delta.column("partition").to_pylist()))
    assert facts(replaced(table, chosen, message("x", dt="d2"))) == [(DELETE, "b"), (ADD, "x")]


def test_index_files_of_replaced_partitions_go_and_changelog_files_are_not_published(table):
    index = [index_entry(vectors("v1", "a")), index_entry(vectors("v2", "b"), dt="d2")]
    sent = message("new", changelog_files=(file("log"),), new_index_files=(vectors("v3", "new"),))
    found = replaced(table, static_filter(table.schema, {"dt": "d1"}), sent, index=index)
    assert [(each.kind, each.entry.file.file_name) for each in found.index] == [(DELETE, "v1"), (ADD, "v3")]
    assert found.changelog.num_rows == 0
    everything = replaced(table, EVERY_PARTITION, index=index)
    assert len(everything.index) == 2


def test_a_column_that_is_no_partition_is_refused(table):
    with pytest.raises(InvalidInputError, match="not a partition column"):
        static_filter(table.schema, {"id": 1})


def test_a_new_file_outside_the_replaced_partitions_is_refused(table):
    new, _ = split_messages([message("in"), message("out", dt="d2")], default_buckets=-1)
    chosen = static_filter(table.schema, {"dt": "d1"})
    with pytest.raises(InvalidInputError, match="outside the partitions") as caught:
        check_inside(new.delta, chosen)
    assert caught.value.facts["file"] == "out"
    check_inside(new.delta.slice(0, 1), chosen)
    check_inside(new.delta, EVERY_PARTITION)
