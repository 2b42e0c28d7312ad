"""The live files of a snapshot."""

from __future__ import annotations

import pytest

from kit.small_tables import compaction, file, message, names, new_table, row
from tidelake.errors import FormatError
from tidelake.expr import col
from tidelake.ops.scan.partitions import PartitionPredicate, PartitionSet
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.data_file import DataFile
from tidelake.spec.layout import TableLayout
from tidelake.spec.manifests.manifest import ADD, DELETE, entries_table
from tidelake.spec.types.data_types import STRING
from tidelake.store.manifests import ManifestNames, ManifestStore
from tidelake.testing import MemoryFileIO, TracingFileIO


@pytest.fixture
def store() -> ManifestStore:
    return ManifestStore(TracingFileIO(MemoryFileIO()), TableLayout(), (STRING,))


def write(store: ManifestStore, names: ManifestNames, *entries: tuple[int, str, str]):
    rows = [(kind, row(dt), 0, 1, DataFile(file_name=name, file_size=1, row_count=1)) for kind, dt, name in entries]
    return store.write_entries(names, entries_table(rows), schema_id=0)


@pytest.fixture
def metas(store):
    names = ManifestNames("u")
    return [
        *write(store, names, (ADD, "d1", "a"), (ADD, "d1", "b")),
        *write(store, names, (ADD, "d2", "c")),
        *write(store, names, (DELETE, "d1", "a")),
    ]


def test_the_live_files_are_those_added_and_not_deleted(store, metas):
    live = live_entries(store, metas)
    assert live["file_name"].to_pylist() == ["b", "c"]
    assert live["kind"].to_pylist() == [ADD, ADD]


def test_the_wanted_columns_are_enough_although_more_are_needed_inside(store, metas):
    assert live_entries(store, metas, columns=["row_count"]).to_pydict() == {"row_count": [1, 1]}


def test_manifests_of_other_partitions_are_not_even_opened(store, metas):
    wanted = PartitionSet(frozenset({row("d2")}), (STRING,))
    start = len(store.io.ops)
    assert live_entries(store, metas, partitions=wanted)["file_name"].to_pylist() == ["c"]
    assert [op.path for op in store.io.ops[start:]] == [f"manifest/{metas[1].file_name}"]


def test_changes_are_returned_as_they_stand(store, metas):
    changes = read_changes(store, metas, columns=["kind", "file_name"])
    assert changes["kind"].to_pylist() == [ADD, ADD, ADD, DELETE]
    only = read_changes(store, metas, partitions=PartitionPredicate(col("dt") == "d2", ("dt",), (STRING,)))
    assert only["file_name"].to_pylist() == ["c"]


def test_a_deletion_of_what_was_never_added_is_refused(store):
    metas = write(store, ManifestNames("u"), (ADD, "d1", "a"), (DELETE, "d1", "ghost"))
    with pytest.raises(FormatError) as caught:
        live_entries(store, metas)
    assert caught.value.code == "delete-without-add"
    assert caught.value.facts["file"] == "ghost"


def test_an_addition_of_what_is_there_is_refused(store):
    names = ManifestNames("u")
    metas = [*write(store, names, (ADD, "d1", "a"), (DELETE, "d1", "a")), *write(store, names, (ADD, "d1", "b"))]
    metas += write(store, names, (ADD, "d1", "b"))
    with pytest.raises(FormatError) as caught:
        live_entries(store, metas)
    assert caught.value.code == "double-entry"


def test_no_manifests_no_files(store):
    assert live_entries(store, []).num_rows == 0


def test_a_snapshot_is_its_base_and_its_own_change():
    table = new_table()
    commit = table.new_commit("u")
    commit.commit([message("a"), message("b", dt="d2", changelog_files=(file("changelog-b"),))])
    commit.commit([compaction((file("a"),), (file("a2"),))])
    manifests, latest, first = table.store.manifests, table.latest_snapshot(), table.snapshot(1)
    assert names(table) == ["a2", "b"]
    own = read_changes(manifests, delta_manifests(manifests, latest))
    assert list(zip(own["kind"].to_pylist(), own["file_name"].to_pylist(), strict=True)) == [(DELETE, "a"), (ADD, "a2")]
    assert len(data_manifests(manifests, latest)) == 2
    assert changelog_manifests(manifests, latest) == ()
    logged = read_changes(manifests, changelog_manifests(manifests, first))
    assert logged["file_name"].to_pylist() == ["changelog-b"]
