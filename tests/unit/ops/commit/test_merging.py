"""Which manifests are merged, and how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.small_tables import row
from tidelake.ops.commit.manifest_merge import Merged, full_is_due, must_change, plan_minor, run_merge
from tidelake.ops.commit.options import ManifestOptions
from tidelake.spec.data_file import DataFile, SimpleStats
from tidelake.spec.layout import TableLayout
from tidelake.spec.manifests.manifest import ADD, DELETE, entries_table
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.types.data_types import STRING
from tidelake.store.manifests import ManifestNames, ManifestStore
from tidelake.testing import MemoryFileIO, TracingFileIO

OPTIONS = ManifestOptions.parse({"manifest.target-file-size": "100 b", "manifest.merge-min-count": "3"})


def meta(name: str, size: int, deleted: int = 0) -> ManifestMeta:
    return ManifestMeta(
        file_name=name,
        file_size=size,
        num_added=1,
        num_deleted=deleted,
        partition_stats=SimpleStats(),
        schema_id=0,
    )


def groups(*sizes: int) -> list[list[int]]:
    metas = [meta(str(i), size) for i, size in enumerate(sizes)]
    return [[each.file_size for each in group] for group in plan_minor(metas, OPTIONS)]


@pytest.mark.parametrize(
    ("sizes", "planned"),
    [
        ((), []),
        ((100,), [[100]]),
        ((500, 500), [[500], [500]]),
        ((60, 60), [[60, 60]]),
        ((10, 100, 10), [[10, 100], [10]]),
        ((10, 10), [[10], [10]]),
        ((10, 10, 10), [[10, 10, 10]]),
        ((60, 60, 10, 10), [[60, 60], [10], [10]]),
        ((60, 60, 10, 10, 10), [[60, 60], [10, 10, 10]]),
    ],
)
def test_neighbours_are_grouped_until_they_fill_a_manifest_or_are_enough(sizes, planned):
    assert groups(*sizes) == planned


def test_a_full_merge_rewrites_what_deletes_or_is_small():
    assert must_change(meta("a", 100, deleted=1), OPTIONS)
    assert must_change(meta("a", 99), OPTIONS)
    assert not must_change(meta("a", 100), OPTIONS)


def test_a_full_merge_is_due_when_their_bytes_reach_the_threshold():
    options = ManifestOptions.parse(
        {"manifest.target-file-size": "100 b", "manifest.full-compaction-threshold-size": "150 b"}
    )
    assert full_is_due([meta("a", 90), meta("b", 60)], options)
    assert not full_is_due([meta("a", 90), meta("b", 59), meta("c", 5_000)], options)
    assert full_is_due([meta("a", 5_000, deleted=1)], options)


# ------------------------------------------------------------------------------------------------ running


@pytest.fixture
def store() -> ManifestStore:
    return ManifestStore(TracingFileIO(MemoryFileIO()), TableLayout(), (STRING,), target_bytes=1 << 20)


class Writer:
    def __init__(self, store: ManifestStore) -> None:
        self.store, self.names = store, ManifestNames("w")
        self.metas: tuple[ManifestMeta, ...] = ()

    def write(self, *entries: tuple[int, str], dt: str = "d1") -> ManifestMeta:
        rows = [(k, row(dt), 0, 1, DataFile(file_name=n, file_size=1, row_count=1)) for k, n in entries]
        (made,) = self.store.write_entries(self.names, entries_table(rows), schema_id=0)
        self.metas += (made,)
        return made


@pytest.fixture
def writer(store) -> Writer:
    return Writer(store)


def options(**given: str) -> ManifestOptions:
    return ManifestOptions.parse({f"manifest.{key.replace('_', '-')}": value for key, value in given.items()})


def contents(store: ManifestStore, metas) -> list[tuple[int, str]]:
    table = store.read_entries(metas)
    return list(zip(table["kind"].to_pylist(), table["file_name"].to_pylist(), strict=True))


def test_few_small_manifests_stay_as_they_are(store, writer):
    writer.write((ADD, "a"))
    writer.write((ADD, "b"))
    merged = run_merge(store, writer.names, writer.metas, options(), schema_id=0)
    assert merged == Merged(writer.metas, writer.metas)


def test_enough_small_manifests_become_one_in_order(store, writer):
    for name in "abc":
        writer.write((ADD, name))
    merged = run_merge(store, writer.names, writer.metas, options(merge_min_count="3"), schema_id=0)
    assert len(merged.after) == 1
    assert merged.made == (merged.after[0].file_name,)
    assert contents(store, merged.after) == [(ADD, "a"), (ADD, "b"), (ADD, "c")]


def test_pairs_cancel_and_a_deletion_without_its_addition_stays(store, writer):
    writer.write((ADD, "a"), (ADD, "b"))
    writer.write((DELETE, "a"), (DELETE, "elsewhere"))
    writer.write((ADD, "c"))
    merged = run_merge(store, writer.names, writer.metas, options(merge_min_count="3"), schema_id=0)
    assert contents(store, merged.after) == [(ADD, "b"), (DELETE, "elsewhere"), (ADD, "c")]
    assert (merged.after[0].num_added, merged.after[0].num_deleted) == (2, 1)


def test_manifests_that_cancel_wholly_disappear(store, writer):
    writer.write((ADD, "a"))
    writer.write((DELETE, "a"))
    merged = run_merge(store, writer.names, writer.metas, options(merge_min_count="2"), schema_id=0)
    assert merged.after == ()
    assert merged.made == ()


def test_a_full_merge_leaves_large_manifests_alone_that_hold_no_deleted_file(store, writer):
    untouched = writer.write(*((ADD, f"x{i}") for i in range(300)), dt="d0")
    touched = writer.write(*((ADD, f"y{i}") for i in range(300)))
    far = writer.write(*((ADD, f"z{i}") for i in range(300)), dt="d9")
    writer.write((DELETE, "y7"))
    target = min(each.file_size for each in (untouched, touched, far))
    small = options(target_file_size=f"{target} b", full_compaction_threshold_size="1 b")
    merged = run_merge(store, writer.names, writer.metas, small, schema_id=0)
    assert merged.after[:2] == (untouched, far)
    left = {name for kind, name in contents(store, merged.after) if kind == ADD}
    assert len(left) == 899
    assert "y7" not in left
    assert all(each.num_deleted == 0 for each in merged.after)


def test_large_manifests_of_other_partitions_are_not_read_by_a_full_merge(store, writer):
    far = writer.write(*((ADD, f"z{i}") for i in range(300)), dt="d9")
    writer.write((ADD, "a"))
    writer.write((DELETE, "a"))
    small = options(target_file_size=f"{far.file_size} b", full_compaction_threshold_size="1 b")
    start = len(store.io.ops)
    merged = run_merge(store, writer.names, writer.metas, small, schema_id=0)
    assert merged.after == (far,)
    assert f"manifest/{far.file_name}" not in {op.path for op in store.io.ops[start:]}


def test_one_manifest_alone_is_no_reason_for_a_full_merge(store, writer):
    writer.write((ADD, "a"))
    forced = options(full_compaction_threshold_size="1 b")
    assert run_merge(store, writer.names, writer.metas, forced, schema_id=0).after == writer.metas


def test_a_merge_fits_a_list_that_only_grew():
    a, b, c, x = meta("a", 1), meta("b", 1), meta("c", 1), meta("x", 1)
    merged = Merged((a, b), (x,), ("x",))
    assert merged.reapply((a, b, c)) == Merged((a, b, c), (x, c), ("x",))
    assert merged.reapply((a, c)) is None
    assert merged.reapply((a,)) is None
    assert merged.reapply((replace(a, num_added=9), b)) is None
