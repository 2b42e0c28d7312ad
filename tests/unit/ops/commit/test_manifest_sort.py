"""Sorted manifests: which are rewritten, what a plan reads afterwards, and that no file is lost or comes back."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest

import tidelake as tl
from kit.small_tables import committer, file, message, names, new_table, other_handle, row
from tidelake.errors import InvalidInputError
from tidelake.ops.commit import manifest_sort
from tidelake.ops.commit.manifest_merge import run_merge
from tidelake.ops.commit.manifest_sort import ManifestOrder, make_order, plan_sort
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import INT, STRING
from tidelake.store.manifests import ManifestNames
from tidelake.table import Table

ORDER = ManifestOrder((STRING,), 0)


def meta(low: str | None, high: str | None, size: int = 100, *, nulls: int = 0, deleted: int = 0) -> ManifestMeta:
    stats = SimpleStats(row(low), row(high), (nulls,))
    name = f"m-{low}-{high}-{size}-{nulls}"
    return ManifestMeta(
        file_name=name, file_size=size, num_added=9, num_deleted=deleted, partition_stats=stats, schema_id=0
    )


def options(**given: str) -> ManifestOptions:
    return ManifestOptions.parse({"manifest.target-file-size": "100 b", "manifest-sort.enabled": "true"} | given)


def planned(*metas: ManifestMeta, changing: tuple[ManifestMeta, ...] = (), **given: str) -> tuple[Any, ...]:
    plan = plan_sort(metas, ORDER, frozenset(changing), options(**given))
    assert sorted(map(id, (*plan.kept, *plan.rewritten))) == sorted(map(id, metas))
    return plan.sections, plan.unsorted


# ------------------------------------------------------------------------------------------------ planning


def test_manifests_that_overlap_are_sorted_together_and_others_left_alone() -> None:
    a, b, c = meta("a", "c"), meta("b", "d"), meta("e", "f")
    assert planned(a, b, c) == (((a, b),), ())
    assert planned(a, c) == ((), ())


def test_manifests_that_share_only_a_bound_are_in_order() -> None:
    assert planned(meta("a", "b"), meta("b", "c"), meta("c", "c"), meta("c", "d")) == ((), ())


def test_a_null_comes_before_every_value() -> None:
    a, b = meta("b", "c"), meta("m", "n", nulls=1)
    assert planned(a, b) == (((b, a),), ())


def test_small_neighbours_are_joined_and_a_lone_one_is_left() -> None:
    a, b, c = meta("a", "a", 20), meta("b", "b", 24), meta("c", "c", 25)
    assert planned(c, a, b) == (((a, b),), ())
    assert planned(a, c) == ((), ())


def test_a_manifest_with_deleted_files_is_rewritten_even_alone() -> None:
    a, b = meta("a", "a", deleted=1), meta("b", "b")
    assert planned(a, b, changing=(a,)) == (((a,),), ())


def test_what_exceeds_the_limit_is_left_and_the_widest_ranges_go_first() -> None:
    wide, narrow, deleting = meta("a", "z"), meta("b", "c"), meta("d", "e", deleted=1)
    far, further = meta("zz", "zzz", 99), meta("zzb", "zzc", 99)
    assert planned(narrow, wide, deleting, changing=(deleting,), **{"manifest-sort.max-rewrite-size": "200 b"}) == (
        ((wide, narrow),),
        (deleting,),
    )
    # Two are sorted in any case, and then nothing more.
    limit = {"manifest-sort.max-rewrite-size": "50 b"}
    assert planned(narrow, wide, far, further, **limit) == (((wide, narrow),), ())


def test_the_column_to_sort_by_is_the_first_partition_column_or_the_one_that_is_named() -> None:
    lake = tl.connect("memory://")
    columns = {"id": "INT", "dt": "STRING", "n": "INT"}
    schema = lake.create_table("db.t", columns, partition_by=["dt", "n"]).schema
    assert make_order(options(), schema) == ManifestOrder((STRING, INT), 0)
    chosen = options(**{"manifest-sort.partition-field": "n"})
    assert make_order(chosen, schema) == ManifestOrder((STRING, INT), 1)
    assert make_order(ManifestOptions(), schema) is None
    assert make_order(options(), lake.create_table("db.u", columns).schema) is None
    with pytest.raises(InvalidInputError, match="partition columns only"):
        make_order(options(**{"manifest-sort.partition-field": "id"}), schema)


def test_entries_are_ordered_by_the_named_column_the_others_and_the_bucket() -> None:
    order = ManifestOrder((STRING, INT), 1)
    places = [("b", 1, 0), ("a", 2, 0), ("a", 1, 1), ("a", 1, 0), (None, 1, 0), ("a", None, 7)]
    rows = [encode_row([text, number], [STRING, INT]) for text, number, _ in places]
    keys = pa.table({"partition": pa.array(rows, pa.large_binary()), "bucket": pa.array([each[2] for each in places])})
    assert [places[each] for each in order.sort(keys)] == [
        ("a", None, 7),
        (None, 1, 0),
        ("a", 1, 0),
        ("a", 1, 1),
        ("b", 1, 0),
        ("a", 2, 0),
    ]


# ------------------------------------------------------------------------------------------------ running

SORTED = {
    "manifest.target-file-size": "2 kb",
    "manifest.merge-min-count": "1000",
    "manifest.full-compaction-threshold-size": "1 gb",
    "manifest-sort.enabled": "true",
}


def named(number: int, day: int, which: int) -> str:
    """A name that does not compress, so that the manifests are not tiny."""
    return f"f-{number}-{day:02}-{which}-{hashlib.sha256(bytes([number, day, which])).hexdigest()}"


def scattered(commits: int = 6, days: int = 12, **given: str) -> Table:
    """Each commit adds files to every day; some commits delete files of earlier ones."""
    table = new_table()
    table = table.alter(set_options=SORTED | {"manifest-sort." + key: text for key, text in given.items()})
    job = committer(table)
    for number in range(commits):
        new = [file(named(number, day, i)) for i in range(6) for day in range(days)]
        places = [message(each, dt=f"d{each.file_name.split('-')[2]}") for each in new]
        gone = [file(named(number - 1, day, 0)) for day in range(0, days, 5)] if number else []
        places += [message(dt=f"d{each.file_name.split('-')[2]}", deleted_files=(each,)) for each in gone]
        job.commit(Committable(messages=tuple(places)))
    return table


def bytes_for(table: Table, day: str) -> float:
    """The share of manifest bytes that a plan of one day needs."""
    metas = data_manifests(table.store.manifests, table.latest_snapshot())
    near = PartitionSet(frozenset({row(day)}), (STRING,)).prune(metas)
    return sum(each.file_size for each in near) / sum(each.file_size for each in metas)


def test_a_sorted_table_reads_few_manifests_for_one_partition_and_has_the_same_files() -> None:
    table = scattered()
    before = table.files().sort_by("file_name")
    assert bytes_for(table, "d05") == 1
    plan = table.compact_manifests(plan_only=True)
    assert (plan.rewritten, plan.sorts) == (plan.manifests, True)
    assert len(table.compact_manifests().snapshot_ids) == 1
    assert table.files().sort_by("file_name").equals(before)
    assert bytes_for(table, "d05") < 0.4
    assert not any(table.inspect.manifests().column("num_deleted_files").to_pylist())
    assert table.latest_snapshot().commit_kind.value == "COMPACT"


def test_a_table_in_order_is_left_as_it_is() -> None:
    table = scattered()
    table.compact_manifests()
    assert table.compact_manifests(plan_only=True).is_empty
    assert table.compact_manifests().snapshot_ids == ()


def test_only_what_came_since_is_sorted_into_the_rest() -> None:
    table = scattered()
    table.compact_manifests()
    late = (message("late", dt="d04"), message("later", dt="d06"))
    committer(table).commit(Committable(messages=late))
    plan = table.compact_manifests(plan_only=True)
    assert 1 < plan.rewritten < plan.manifests
    table.compact_manifests()
    assert table.compact_manifests(plan_only=True).is_empty
    assert "late" in names(table)


def test_a_limit_sorts_a_part_at_a_time_until_all_is_in_order() -> None:
    table = scattered(commits=12, days=20)
    before = names(table)
    limit = sum(table.inspect.manifests().column("file_size").to_pylist()) // 3
    shares = [bytes_for(table, "d05")]
    for _ in range(12):
        if not table.compact_manifests(max_rewrite_size=limit).snapshot_ids:
            break
        assert names(table) == before
        shares.append(bytes_for(table, "d05"))
    assert shares[-1] < 0.5
    assert len(shares) > 2


def test_the_table_option_decides_unless_the_call_does() -> None:
    unsorted = scattered(enabled="false")
    assert unsorted.options["manifest-sort.enabled"] == "false"
    assert not unsorted.compact_manifests(plan_only=True).sorts
    unsorted.compact_manifests()
    assert bytes_for(unsorted, "d05") == 1
    assert unsorted.compact_manifests(sort=True).snapshot_ids
    assert bytes_for(unsorted, "d05") < 0.4
    with pytest.raises(InvalidInputError, match="partition columns only"):
        unsorted.compact_manifests(sort=True, sort_field="v")
    with pytest.raises(InvalidInputError, match="size cannot be parsed"):
        unsorted.compact_manifests(sort=True, max_rewrite_size="a lot")


def test_a_commit_that_merges_fully_sorts_too() -> None:
    table = scattered()
    table = table.alter(set_options={"manifest.full-compaction-threshold-size": "1 b"})
    committer(other_handle(table)).commit(Committable(messages=(message("late", dt="d03"),)))
    assert bytes_for(table, "d05") < 0.4
    assert "late" in names(table)


def test_a_merge_of_neighbours_sorts_within_them_unless_a_deletion_is_among_them() -> None:
    table = new_table()
    store, job = table.store.manifests, committer(table)
    for name, day in (("x", "d2"), ("y", "d1")):
        job.commit(Committable(messages=(message(name, dt=day),)))
    few = ManifestOptions.parse({"manifest.merge-min-count": "2", "manifest-sort.enabled": "true"})
    metas = data_manifests(store, table.latest_snapshot())
    merged = run_merge(store, ManifestNames("n"), metas, few, schema_id=0, order=ORDER)
    assert store.read_entries(merged.after).column("file_name").to_pylist() == ["y", "x"]
    job.commit(Committable(messages=(message(dt="d2", deleted_files=(file("x"),)),)))
    metas = data_manifests(store, table.latest_snapshot())[1:]
    merged = run_merge(store, ManifestNames("o"), metas, few, schema_id=0, order=ORDER)
    assert store.read_entries(merged.after).column("file_name").to_pylist() == ["y", "x"]


def test_a_file_that_was_added_again_after_its_deletion_stays() -> None:
    table = scattered(commits=2)
    job = committer(table)
    job.commit(Committable(messages=(message(dt="d03", deleted_files=(file(named(1, 3, 3)),)),)))
    committer(table).commit(Committable(messages=(message(file(named(1, 3, 3)), dt="d03"),)))
    before = names(table)
    assert before.count(named(1, 3, 3)) == 1
    table.compact_manifests()
    assert names(table) == before


def test_memory_is_bounded_by_passes_over_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    table = scattered()
    before = table.files().sort_by("file_name")
    monkeypatch.setattr(manifest_sort, "PASS_ROWS", 100)
    table.compact_manifests()
    assert table.files().sort_by("file_name").equals(before)
    assert bytes_for(table, "d05") < 0.4
