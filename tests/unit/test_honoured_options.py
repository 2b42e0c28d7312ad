"""Every option that is said to be honoured is: a test changes it and sees another result.

`TESTS` names tests of other modules that show it; the scenarios of this module show the others.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.io.scratch import Extent, ScratchFile
from tidelake.lsm.options import CompactionOptions
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.placement import cross_partition
from tidelake.options import OptionSpec, all_options
from tidelake.options.capabilities import HONOURED_BY_NAME, REFUSED, WITHOUT_EFFECT, Honoured, all_capabilities
from tidelake.options.catalogue import KNOWN
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidelake"

TESTS = {
    "compat/test_changelogs.py": {
        "test_changelog_files_are_described_as_theirs_are": ("changelog-file.stats-mode",),
        "test_middle_levels_hold_whole_rows_where_paimon_loses_older_levels": ("force-lookup",),
    },
    "compat/test_following.py": {
        "test_a_bound_of_the_watermark_ends_streams_where_theirs_end": ("scan.bounded.watermark",),
        "test_every_place_to_begin_is_theirs": ("scan.creation-time-millis",),
    },
    "compat/test_they_read_ours.py": {
        "test_files_that_java_put_under_external_roots_are_read": ("data-file.external-paths",),
    },
    "spark/test_buckets.py": {
        "test_the_function_mod_is_the_remainder_and_zero_for_null": ("bucket-function.type",),
    },
    "spark/test_postponed.py": {
        "test_writes_are_staged_without_numbers_if_the_options_say_so": (
            "postpone.batch-write-fixed-bucket",
            "postpone.merge-on-read",
        ),
    },
    "spark/test_write.py": {
        "test_dynamic_buckets_that_owners_share_are_shuffled_twice": (
            "dynamic-bucket.assigner-parallelism",
            "dynamic-bucket.initial-buckets",
        ),
        "test_the_sink_strategy_hash_brings_the_rows_of_a_partition_together": ("partition.sink-strategy",),
        "test_types_widen_or_change_only_where_the_options_say_so": (
            "write.merge-schema.explicit-cast",
            "write.merge-schema.type-widening",
        ),
    },
    "unit/cli/test_following_commands.py": {
        "test_changelogs_expire_after_a_yes": ("changelog.time-retained",),
    },
    "unit/files/test_options.py": {
        "test_a_level_has_its_own_format_codec_and_statistics": (
            "file.compression.per.level",
            "file.format.per.level",
            "metadata.stats-mode.per.level",
        ),
        "test_statistics_modes_follow_column_key_and_position": ("metadata.stats-keep-first-n-columns",),
        "test_the_codec_can_stand_in_the_name": ("file.suffix.include.compression",),
    },
    "unit/files/test_write.py": {
        "test_a_mode_decides_what_is_kept": ("metadata.stats-mode",),
        "test_a_row_group_ends_at_its_rows_or_its_bytes": ("file.block-size",),
        "test_dictionary_encoding_and_codecs_can_be_chosen": (
            "file.compression",
            "parquet.enable.dictionary",
        ),
    },
    "unit/lsm/aggregate/test_every_type.py": {
        "test_versions_are_ordered_by_a_column_of_every_type": ("sequence.field.sort-order",),
    },
    "unit/lsm/test_pick.py": {
        "test_a_table_that_looks_up_lifts_level_0_at_once_or_gently_now_and_then": (
            "lookup-compact",
            "lookup-compact.max-interval",
        ),
        "test_unset_options_follow_the_trigger": (
            "compaction.small-file-ratio",
            "num-sorted-run.compaction-trigger",
        ),
    },
    "unit/ops/commit/test_manifest_sort.py": {
        "test_the_column_to_sort_by_is_the_first_partition_column_or_the_one_that_is_named": (
            "manifest-sort.partition-field",
        ),
        "test_the_table_option_decides_unless_the_call_does": ("manifest-sort.enabled",),
        "test_what_exceeds_the_limit_is_left_and_the_widest_ranges_go_first": ("manifest-sort.max-rewrite-size",),
    },
    "unit/ops/commit/test_merging.py": {
        "test_a_full_merge_is_due_when_their_bytes_reach_the_threshold": (
            "manifest.full-compaction-threshold-size",
            "manifest.target-file-size",
        ),
    },
    "unit/ops/commit/test_options.py": {
        "test_the_highest_level_follows_from_the_options": ("num-levels",),
    },
    "unit/ops/commit/test_surprises.py": {
        "test_a_branch_given_for_one_use_is_the_one_that_is_read_and_written": ("branch",),
        "test_a_storage_without_exclusive_creation_is_refused_unless_someone_vouches_for_it": ("unsafe.commit",),
        "test_options_for_one_use_reach_the_commit": (
            "commit.strict-mode.last-safe-snapshot",
            "manifest.compression",
        ),
    },
    "unit/ops/maintain/test_partition_expiry.py": {
        "test_a_batch_commit_looks_at_its_end_where_the_option_says_so": ("end-input.check-partition-expire",),
        "test_after_a_commit_old_partitions_go_once_in_each_interval": (
            "partition.expiration-check-interval",
            "partition.expiration-time",
        ),
        "test_by_update_time_partitions_with_a_new_file_stay": ("partition.expiration-strategy",),
        "test_so_many_go_at_a_time_and_so_many_with_a_commit": (
            "partition.expiration-batch-size",
            "partition.expiration-max-num",
        ),
        "test_the_values_make_a_time_by_pattern_and_formatter": (
            "partition.timestamp-formatter",
            "partition.timestamp-pattern",
        ),
    },
    "unit/ops/maintain/test_partition_marks.py": {
        "test_reports_say_which_partition_of_which_table": (
            "partition.mark-done-action",
            "partition.mark-done-action.http.params",
            "partition.mark-done-action.http.url",
        ),
    },
    "unit/ops/maintain/test_changelogs.py": {
        "test_commits_expire_changelogs_whose_time_is_over": ("changelog.num-retained.min",),
        "test_consumers_hold_changelogs_and_on_demand_nothing_else": ("consumer.changelog-only",),
    },
    "unit/ops/test_changelog_producers.py": {
        "test_an_update_to_the_same_values_is_told_unless_rows_are_deduplicated": (
            "changelog-producer.row-deduplicate",
        ),
        "test_changelog_files_have_their_own_name_format_and_codec": (
            "changelog-file.compression",
            "changelog-file.format",
            "changelog-file.prefix",
        ),
        "test_changes_of_a_partial_update_are_whole_rows": ("merge-engine",),
        "test_columns_that_do_not_count_are_not_compared": ("changelog-producer.row-deduplicate-ignore-fields",),
        "test_commits_that_do_not_wait_tell_later": ("lookup-wait",),
        "test_compactions_to_middle_levels_tell_nothing": ("compaction.force-up-level-0",),
        "test_local_merge_comes_before_the_input_is_told": ("local-merge-buffer-size",),
        "test_writers_that_only_write_leave_the_changes_to_a_compaction": ("write-only",),
    },
    "unit/ops/test_changes.py": {
        "test_a_difference_shows_what_was_and_what_is": ("incremental-between-scan-mode",),
        "test_sequence_numbers_are_shown_on_demand": ("table-read.sequence-number.enabled",),
        "test_tags_are_compared_and_may_stand_for_their_snapshots": ("incremental-between-tag-to-snapshot",),
    },
    "unit/ops/test_committer.py": {
        "test_an_empty_batch_commit_makes_no_snapshot_and_an_empty_numbered_one_does": (
            "snapshot.ignore-empty-commit",
        ),
        "test_duplicate_files_are_dropped_where_the_option_says_so": ("commit.discard-duplicate-files",),
        "test_manifests_are_merged_when_enough_small_ones_have_gathered": ("manifest.merge-min-count",),
        "test_partitions_are_marked_done_where_the_option_says_so": ("partition.end-input-to-done",),
        "test_statistics_of_deletions_are_dropped_where_the_option_says_so": ("manifest.delete-file-drop-stats",),
    },
    "unit/ops/test_compaction_verb.py": {
        "test_compacting_a_write_only_table_also_expires_what_is_due": (
            "snapshot.num-retained.max",
            "snapshot.num-retained.min",
        ),
    },
    "unit/ops/test_cross_partition.py": {
        "test_the_index_forgets_keys_of_old_files": ("cross-partition-upsert.index-ttl",),
    },
    "unit/ops/test_dedicated_compaction.py": {
        "test_due_by_time_alone_is_seen_without_news": ("compaction.optimization-interval",),
    },
    "unit/ops/test_follow.py": {
        "test_a_stream_looks_as_often_as_it_is_told_or_the_table_says": ("continuous.discovery-interval",),
        "test_an_idle_consumer_that_still_looks_is_not_forgotten": ("consumer.expiration-time",),
        "test_at_least_once_saves_now_and_then_and_when_it_is_closed": ("consumer.mode",),
        "test_compactions_change_nothing_and_overwrites_are_seen_on_demand": (
            "streaming-read-append-overwrite",
            "streaming-read-overwrite",
        ),
        "test_progress_can_be_ignored_and_is_then_kept_anew": (
            "consumer-id",
            "consumer.ignore-progress",
        ),
        "test_young_snapshots_wait_for_their_delay": ("streaming.read.snapshot.delay",),
    },
    "unit/ops/test_keyed_row_level.py": {
        "test_a_smaller_sequence_value_does_not_lose_to_the_row_it_replaces": ("sequence.field",),
        "test_changes_are_written_where_they_are_asked_for": ("delete.force-produce-changelog",),
    },
    "unit/ops/test_keyed_tables.py": {
        "test_a_deletion_that_no_merge_could_take_is_refused_before_it_is_written": (
            "partial-update.remove-record-on-delete",
        ),
        "test_a_small_buffer_flushes_on_the_way_and_order_is_kept": ("write-buffer-size",),
        "test_a_table_chooses_its_buckets_itself": ("dynamic-bucket.target-row-num",),
        "test_kinds_may_be_a_column_of_the_table": ("rowkind.field",),
    },
    "unit/ops/test_keyed_vectors.py": {
        "test_changes_are_told_beside_the_marks": ("changelog-producer",),
        "test_rows_wait_for_their_compaction_unless_reads_merge": ("deletion-vectors.merge-on-read",),
    },
    "unit/ops/test_keyed_writer.py": {
        "test_a_batch_waits_for_its_compaction_and_so_does_a_commit_that_is_told_to": ("commit.force-compact",),
        "test_buckets_with_few_rows_go_on_waiting_when_memory_is_flushed": ("write-buffer-spillable",),
        "test_numbered_commits_compact_fully_every_so_many": ("full-compaction.delta-commits",),
        "test_sequence_numbers_start_from_the_snapshot_and_no_manifest_is_read": ("write.sequence-number-init-mode",),
        "test_too_many_runs_make_a_writer_wait": ("num-sorted-run.stop-trigger",),
        "test_where_the_disk_is_used_up_rows_are_flushed": (
            "local-sort.max-num-file-handles",
            "write-buffer-spill.max-disk-size",
        ),
    },
    "unit/ops/test_marking.py": {
        "test_a_delete_marks_rows_and_leaves_files_alone": ("index-file-in-data-file-dir",),
        "test_a_file_is_written_anew_when_much_of_it_is_deleted": ("compaction.delete-ratio-threshold",),
        "test_a_table_that_stopped_marking_still_honours_its_marks": ("deletion-vectors.enabled",),
        "test_only_index_files_with_a_change_are_written_anew": ("deletion-vector.index-file.target-size",),
        "test_small_files_with_marks_are_joined_and_the_others_left": ("compaction.min.file-num",),
    },
    "unit/ops/test_merge.py": {
        "test_with_merge_schema_columns_are_added_and_missing_ones_stay": ("write.merge-schema",),
    },
    "unit/ops/test_postponed.py": {
        "test_a_partition_gets_more_buckets_only_if_it_needs_many_times_those_it_has": (
            "postpone.batch-write-fixed-bucket.rescale-load-factor",
            "postpone.default-bucket-num",
        ),
        "test_the_number_of_buckets_follows_rows_then_the_option_then_the_size": (
            "postpone.batch-write-fixed-bucket.max-parallelism",
            "postpone.target-row-num-per-bucket",
        ),
    },
    "unit/ops/test_record_expiry.py": {
        "test_a_first_row_that_expired_still_hides_later_ones_below_it": (
            "compaction.max-size-amplification-percent",
            "compaction.size-ratio",
        ),
    },
    "unit/ops/test_spec_lists.py": {
        "test_a_tag_named_like_a_number_goes_before_the_snapshot": ("scan.version",),
    },
    "unit/ops/test_taken_back.py": {
        "test_a_deletion_removes_the_row_whatever_order_the_groups_have": (
            "partial-update.remove-record-on-sequence-group",
        ),
    },
    "unit/spec/test_evolution.py": {
        "test_a_nullable_column_becomes_not_null_only_where_the_table_allows_it": (
            "alter-column-null-to-not-null.disabled",
        ),
        "test_columns_may_be_added_in_front_of_the_partition_columns": ("add-column-before-partition",),
        "test_explicit_casts_can_be_switched_off": ("disable-explicit-type-casting",),
        "test_the_guard_of_deletion_vectors_is_lifted_by_an_alter_of_its_own": ("deletion-vectors.modifiable",),
    },
    "unit/spec/test_schema.py": {
        "test_keys_given_as_options_move_out_of_them": (
            "partition",
            "primary-key",
        ),
        "test_primary_key_columns_become_not_null": ("primary-key.nullable",),
    },
    "unit/test_branches.py": {
        "test_a_fallback_branch_fills_in_whole_partitions": ("scan.fallback-branch",),
        "test_a_primary_branch_comes_first": ("scan.primary-branch",),
    },
    "unit/test_keyed_options.py": {
        "test_kinds_that_a_table_ignores_are_left_out": (
            "ignore-delete",
            "ignore-update-before",
        ),
    },
    "unit/test_moments.py": {
        "test_every_verb_takes_a_moment_by_the_local_clock": ("scan.timestamp",),
    },
    "unit/test_refused_options.py": {
        "test_a_column_that_its_options_cannot_hold_makes_no_table": (
            "blob-descriptor-field",
            "blob-field",
            "blob-view-field",
            "vector-field",
        ),
        "test_a_numbered_commit_without_rows_makes_a_snapshot_where_the_option_says_so": (
            "commit.force-create-snapshot",
        ),
    },
    "unit/test_scan_options.py": {
        "test_by_creation_time_a_snapshot_of_the_history_is_read_or_files_made_since": (
            "scan.file-creation-time-millis",
        ),
        "test_changes_are_what_appends_added": ("incremental-between",),
        "test_changes_by_time_begin_with_the_empty_table": ("incremental-between-timestamp",),
        "test_each_mode_reads_its_part": (
            "scan.mode",
            "scan.snapshot-id",
            "scan.timestamp-millis",
        ),
        "test_files_that_are_gone_or_damaged_are_left_out_only_on_request": (
            "scan.ignore-corrupt-files",
            "scan.ignore-lost-files",
        ),
        "test_folders_of_partitions_keep_their_names_for_every_use": (
            "partition.default-name",
            "partition.legacy-name",
        ),
        "test_manifests_are_read_by_as_many_threads_as_are_asked_for": ("scan.manifest.parallelism",),
        "test_small_splits_hold_one_file_each": (
            "source.split.open-file-cost",
            "source.split.target-size",
        ),
        "test_splits_come_in_the_order_of_their_partitions": ("scan.plan-sort-partition",),
    },
}
"""The tests of other modules (below `tests`) that show what an option does."""

SEEN_IN = {key: (path, test) for path, tests in TESTS.items() for test, keys in tests.items() for key in keys}

SHOWN: set[str] = set()
"""The options of the scenarios below."""


def shows(*keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a scenario as the one that shows what these options do."""
    SHOWN.update(keys)
    return lambda scenario: scenario


@functools.cache
def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def declared() -> tuple[OptionSpec, ...]:
    return all_options(make_docs()._option_groups())


def honoured() -> dict[str, Honoured]:
    return {key: each for key, each in all_capabilities(declared()).items() if isinstance(each, Honoured)}


# ------------------------------------------------------------------------------------------------------- the table


def test_every_key_of_the_format_has_one_capability() -> None:
    found = all_capabilities(declared())
    assert KNOWN.keys() <= found.keys()
    assert {key for key in found if key not in KNOWN} == {
        "branch-merge.enabled",
        "unsafe.commit",
        "write.merge-schema",
        "write.merge-schema.explicit-cast",
        "write.merge-schema.type-widening",
    }


def test_every_capability_says_who_or_why() -> None:
    for each in all_capabilities(declared()).values():
        if isinstance(each, Honoured):
            assert each.verbs
        else:
            assert each.reason
    sentences = {each.reason for each in WITHOUT_EFFECT}
    assert [each for each in sentences if not re.fullmatch(r"[A-Z`].*[^.]\.", each)] == []


@pytest.mark.parametrize("each", HONOURED_BY_NAME, ids=lambda each: each.key)
def test_an_option_that_a_module_reads_by_its_name_is_there(each: Honoured) -> None:
    assert each.module is not None
    assert f'"{each.key}"' in (SOURCE / each.module).read_text()


@pytest.mark.parametrize("each", [each for each in REFUSED if each.module], ids=lambda each: each.key)
def test_a_module_with_a_refusal_of_its_own_names_the_option(each: Any) -> None:
    assert f'"{each.key}"' in (SOURCE / each.module).read_text()


def test_the_page_has_no_empty_cell() -> None:
    rows = [line for line in make_docs().options_page().splitlines() if line.startswith("| `")]
    known = [row for row in rows if row.split("`")[1] in KNOWN]
    assert len(known) == len(KNOWN)
    assert [row for row in known if not re.search(r"\| (honoured: \w|refused \(\w|no effect\. \S).* \|$", row)] == []


def test_every_honoured_option_is_seen_to_do_something() -> None:
    wanted = honoured().keys()
    assert sorted(wanted - SEEN_IN.keys() - SHOWN) == []
    assert sorted((SEEN_IN.keys() | SHOWN) - wanted) == []
    assert sorted(SEEN_IN.keys() & SHOWN) == []
    assert len(SEEN_IN) == sum(len(keys) for tests in TESTS.values() for keys in tests.values())


@functools.cache
def functions_of(path: Path) -> Mapping[str, str]:
    """The text of each function of a module, its decorators included."""
    text = path.read_text()
    lines = text.splitlines()
    return {
        node.name: "\n".join(
            lines[min(node.lineno, *(each.lineno for each in node.decorator_list), node.lineno) - 1 : node.end_lineno]
        )
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("key", SEEN_IN)
def test_the_test_that_shows_an_option_is_there_and_names_it(key: str) -> None:
    path, name = SEEN_IN[key]
    text = functions_of(ROOT / "tests" / path)[name]
    as_argument = key.replace(".", "__").replace("-", "_")
    assert f'"{key}"' in text or re.search(rf"\b{as_argument}=", text)


# ------------------------------------------------------------------------------------------------------- the scenarios


def make(keyed: bool = True, *, clock: FakeClock | None = None, partition: bool = False, **options: str) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock or FakeClock(1_000), SeededIds(1))))
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    if keyed:
        given = {"bucket": "1", **given}
    columns = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT"}
    keys = (["k", "p"] if partition else ["k"]) if keyed else []
    return lake.create_table("db.t", columns, primary_key=keys, partition_by=["p"] if partition else [], options=given)


def rows(*numbers: int, p: str = "a", v: int = 1) -> list[dict[str, Any]]:
    return [{"k": number, "p": p, "v": v} for number in numbers]


def files(table: Table) -> list[dict[str, Any]]:
    return table.files().to_pylist()


def paths(table: Table, folder: str = "") -> list[str]:
    """Every file of the table."""
    found = []
    for each in table.store.env.io.list(folder):
        found += paths(table, each.path) if each.is_dir else [each.path]
    return found


@shows("bucket")
def test_the_number_of_buckets_is_that_of_the_option() -> None:
    counts = []
    for number in ("1", "4"):
        table = make(bucket=number)
        table.write(rows(*range(50)))
        counts.append(len({file["bucket"] for file in files(table)}))
    assert counts == [1, 4]


@shows("bucket-key")
def test_rows_with_one_bucket_key_share_a_bucket() -> None:
    buckets = []
    for key in ("k", "v"):
        table = make(False, bucket="4", bucket_key=key)
        table.write(rows(*range(50)))
        buckets.append(len({file["bucket"] for file in files(table)}))
    assert buckets == [4, 1]


@shows("fields.default-aggregate-function")
def test_columns_without_a_function_get_the_default_one() -> None:
    totals = []
    for function in ("sum", "max"):
        table = make(
            merge_engine="aggregation",
            fields__default_aggregate_function=function,
            fields__p__aggregate_function="last_value",
        )
        for value in (1, 2):
            table.write(rows(1, v=value))
        totals.append(table.to_arrow().column("v").to_pylist())
    assert totals == [[3], [2]]


@shows("aggregation.remove-record-on-delete")
def test_a_deletion_removes_an_aggregated_row_where_the_option_says_so() -> None:
    left = []
    for removes in ("true", "false"):
        options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "bucket": "1"}
        options["aggregation.remove-record-on-delete"] = removes
        lake = tl.connect("memory://")
        table = lake.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key="k", options=options)
        table.write([{"k": 1, "v": 5}])
        table.write([{"k": 1, "v": 2, "rowkind": "-D"}])
        left.append(table.to_arrow().column("v").to_pylist())
    assert left == [[], [3]]


@shows("commit.user-prefix")
def test_generated_users_of_commits_have_the_prefix() -> None:
    for prefix in ("", "nightly"):
        table = make(**({"commit__user_prefix": prefix} if prefix else {}))
        table.write(rows(1))
        assert table.latest_snapshot().commit_user.startswith("nightly_") is bool(prefix)


@shows("commit.max-retries", "commit.max-retry-wait", "commit.min-retry-wait", "commit.timeout")
def test_retries_of_commits_are_those_of_the_options() -> None:
    unset = CommitOptions.parse({}).retry()
    given = {"commit.max-retries": "3", "commit.min-retry-wait": "7 s", "commit.max-retry-wait": "9 s"}
    chosen = CommitOptions.parse(given).retry()
    assert (unset.tries_max, chosen.tries_max) == (None, 4)
    assert (chosen.delay_min_ms, chosen.delay_max_ms) == (7_000, 9_000)
    assert unset.delay_min_ms < 7_000 > unset.delay_max_ms
    assert CommitOptions.parse({"commit.timeout": "1 s"}).retry().elapsed_max_ms == 1_000 < unset.elapsed_max_ms


@shows("compaction.force-rewrite-all-files")
def test_a_full_compaction_rewrites_every_file_where_it_is_forced_to() -> None:
    again = []
    for forced in ("true", "false"):
        table = make(compaction__force_rewrite_all_files=forced)
        table.write(rows(1))
        table.compact(full=True)
        before = [file["file_name"] for file in files(table)]
        table.compact(full=True)
        again.append([file["file_name"] for file in files(table)] != before)
    assert again == [True, False]


@shows("compaction.total-size-threshold", "compaction.incremental-size-threshold")
@pytest.mark.parametrize("key", ["compaction.total-size-threshold", "compaction.incremental-size-threshold"])
def test_sizes_start_a_full_compaction(key: str) -> None:
    size = "1 gb" if "total" in key else "1 b"
    levels = []
    for options in ({key: size}, {}):
        table = make(**{name.replace(".", "__"): text for name, text in options.items()})
        table.write(rows(1))
        table.compact(full=True)
        table.write(rows(2))
        levels.append({file["level"] for file in files(table)})
    assert levels[0] == {5}
    assert 0 in levels[1]


@shows("compaction.offpeak-ratio", "compaction.offpeak.end.hour", "compaction.offpeak.start.hour")
def test_runs_may_be_larger_in_quiet_hours() -> None:
    given = {"compaction.offpeak.start.hour": "2", "compaction.offpeak.end.hour": "4", "compaction.offpeak-ratio": "50"}
    options = CompactionOptions.parse(given)
    assert [options.ratio_percent_at(hour * 3_600_000) for hour in (1, 2, 3, 4)] == [1, 51, 51, 1]


@shows("target-file-size")
def test_a_file_ends_at_the_target_size() -> None:
    counts = []
    for size in ("1 kb", "1 gb"):
        table = make(False, target_file_size=size, file__format="avro", file__compression="null")
        table.write(
            pa.table({"k": range(50_000), "p": ["a"] * 50_000, "v": range(50_000)}).cast(table.to_arrow().schema)
        )
        counts.append(len(files(table)))
    assert counts[0] > counts[1] == 1


@shows("target-file-row-num")
def test_a_file_ends_at_the_target_number_of_rows() -> None:
    table = make(False, target_file_row_num="10")
    table.write(rows(*range(35)))
    assert sorted(file["row_count"] for file in files(table)) == [5, 10, 10, 10]


@shows("data-file.prefix")
def test_names_of_data_files_begin_with_the_prefix() -> None:
    table = make(data_file__prefix="mine-")
    table.write(rows(1))
    assert files(table)[0]["file_name"].startswith("mine-")


@shows("data-file.path-directory")
def test_data_lies_in_the_folder_of_the_option() -> None:
    table = make(data_file__path_directory="inner")
    table.write(rows(1))
    assert [path for path in paths(table) if path.startswith("inner/bucket-0/")]


@shows("data-file.thin-mode")
def test_thin_files_do_not_repeat_their_keys() -> None:
    names = []
    for thin in ("true", "false"):
        table = make(data_file__thin_mode=thin)
        table.write(rows(1))
        (path,) = [path for path in paths(table) if "bucket-0/" in path]
        names.append(pq.read_schema(pa.BufferReader(table.store.env.io.read(path))).names)
    assert "_KEY_k" not in names[0]
    assert "_KEY_k" in names[1]


@shows("file.format")
def test_files_have_the_format_of_the_option() -> None:
    table = make(file__format="orc")
    table.write(rows(1))
    assert files(table)[0]["file_name"].endswith(".orc")


@shows("file.compression.zstd-level")
def test_a_higher_level_of_zstd_makes_smaller_files() -> None:
    sizes = []
    for level in ("1", "19"):
        table = make(False, file__compression__zstd_level=level, parquet__enable__dictionary="false")
        table.write(rows(*(number * number % 7919 for number in range(20_000))))
        sizes.append(files(table)[0]["file_size"])
    assert sizes[0] > sizes[1]


@shows("write.batch-size")
def test_orc_files_are_written_in_batches_of_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, sizes = orc.ORCWriter, []

    def open_writer(*args: Any, batch_size: int, **more: Any) -> Any:
        sizes.append(batch_size)
        return writer(*args, batch_size=batch_size, **more)

    monkeypatch.setattr(orc, "ORCWriter", open_writer)
    for given in ({"write__batch_size": "7"}, {}):
        table = make(False, file__format="orc", **given)
        table.write(rows(*range(20)))
        assert table.count() == 20
    assert sizes == [7, 1024]


@shows("metadata.stats-dense-store")
def test_columns_without_statistics_take_place_only_where_the_option_says_so() -> None:
    counts = []
    for dense in ("true", "false"):
        table = make(False, metadata__stats_dense_store=dense, fields__v__stats_mode="none")
        table.write(rows(1))
        columns = files(table)[0]["value_stats_cols"]
        counts.append(columns)
    assert counts == [["k", "p"], None]


@shows("dynamic-partition-overwrite")
def test_an_overwrite_keeps_other_partitions_only_if_it_is_dynamic() -> None:
    left = []
    for dynamic in ("true", "false"):
        table = make(False, partition=True, dynamic_partition_overwrite=dynamic)
        table.write([*rows(1), *rows(2, p="b")])
        writer = table.new_write()
        writer.write(rows(3))
        table.new_commit().overwrite(writer.prepare_commit())
        left.append(sorted(table.to_arrow().column("k").to_pylist()))
    assert left == [[2, 3], [3]]


@shows("overwrite-upgrade")
def test_files_of_an_overwrite_go_to_the_top_level_where_the_option_says_so() -> None:
    levels = []
    for upgrade in ("true", "false"):
        table = make(overwrite_upgrade=upgrade, write_only="true")
        table.write(rows(1), mode="overwrite")
        levels.append([file["level"] for file in files(table)])
    assert levels == [[5], [0]]


@shows("postpone.target-size-per-bucket")
def test_staged_bytes_decide_the_number_of_buckets() -> None:
    counts = []
    for size in ("1 kb", "1 gb"):
        table = make(bucket="-2", postpone__target_size_per_bucket=size)
        table.write(rows(*range(2_000)))
        table.compact()
        assert table.count() == 2_000
        counts.append(len({file["bucket"] for file in files(table)}))
    assert counts[0] > counts[1] == 1


@shows("dynamic-bucket.max-buckets")
def test_dynamic_buckets_have_an_upper_bound() -> None:
    counts = []
    for most in ("-1", "2"):
        table = make(bucket="-1", dynamic_bucket__target_row_num="5", dynamic_bucket__max_buckets=most)
        table.write(rows(*range(40)))
        counts.append(len({file["bucket"] for file in files(table)}))
    assert counts[0] > counts[1] == 2


@shows("deletion-vectors.bitmap64")
def test_wide_vectors_have_another_magic_number() -> None:
    bytes_of = []
    for wide in ("true", "false"):
        table = make(False, deletion_vectors__enabled="true", deletion_vectors__bitmap64=wide)
        table.write(rows(*range(10)))
        table.delete("k = 3")
        (path,) = [path for path in paths(table) if path.startswith("index/index-")]
        bytes_of.append(bytes(table.store.env.io.read(path)))
    assert bytes_of[0] != bytes_of[1]


@shows("scan.tag-name")
def test_a_tag_is_read_where_the_option_names_one() -> None:
    table = make()
    table.write(rows(1))
    table.create_tag("then")
    table.write(rows(2))
    assert (table.with_options({"scan.tag-name": "then"}).count(), table.count()) == (1, 2)


@shows("scan.watermark")
def test_the_first_snapshot_with_a_watermark_is_read() -> None:
    table = make(False)
    for number in (1, 2):
        writer = table.new_write("u")
        writer.write(rows(number))
        table.new_commit("u").commit(writer.prepare_commit(number), identifier=number, watermark=number * 10)
    assert (table.with_options({"scan.watermark": "5"}).count(), table.count()) == (1, 2)


@shows("record-level.expire-time", "record-level.time-field")
def test_rows_past_their_time_go_in_a_compaction() -> None:
    left = []
    for options in ({}, {"record_level__expire_time": "1 h", "record_level__time_field": "v"}):
        table = make(clock=FakeClock(10_000_000), **options)
        table.write([*rows(1, v=10), *rows(2, v=9_990)])
        table.compact(full=True)
        left.append(table.to_arrow().column("k").to_pylist())
    assert left == [[1, 2], [2]]


@shows("snapshot.time-retained", "snapshot.expire.limit")
@pytest.mark.parametrize(
    ("options", "oldest"),
    [
        ({"snapshot.time-retained": "1 ms"}, 5),
        ({"snapshot.time-retained": "1 d"}, 1),
        ({"snapshot.time-retained": "1 ms", "snapshot.expire.limit": "2"}, 3),
    ],
)
def test_snapshots_expire_by_time_and_so_many_at_once(options: dict[str, str], oldest: int) -> None:
    clock = FakeClock(1_000)
    table = make(False, clock=clock, write_only="true", snapshot__num_retained__min="1")
    for number in range(5):
        table.write(rows(number))
        clock.advance(3600 * 2)
    table = table.alter(set_options=options)
    table.expire_snapshots()
    assert min(table.inspect.snapshots().column("snapshot_id").to_pylist()) == oldest


@shows("snapshot.clean-empty-directories")
def test_folders_that_expiry_empties_go_where_the_option_says_so(tmp_path: Path) -> None:
    there = []
    for clean in ("true", "false"):
        lake = tl.connect(str(tmp_path / clean))
        table = lake.create_table(
            "db.t",
            {"k": "INT", "p": "STRING"},
            partition_by=["p"],
            options={"snapshot.clean-empty-directories": clean},
        )
        table.write([{"k": 1, "p": "a"}, {"k": 1, "p": "b"}])
        table.drop_partitions("p = 'a'")
        table.expire_snapshots("0 s", retain_min=1, retain_max=1)
        there.append((tmp_path / clean / "db.db" / "t" / "p=a").exists())
    assert there == [False, True]


@shows("changelog.num-retained.max")
def test_changelogs_beyond_their_number_go() -> None:
    left = []
    for most in ("4", "40"):
        clock = FakeClock(1_000)
        table = make(
            clock=clock,
            changelog_producer="input",
            snapshot__num_retained__min="1",
            snapshot__num_retained__max="2",
            changelog__num_retained__min="1",
            changelog__num_retained__max=most,
            changelog__time_retained="30 d",
        )
        for number in range(8):
            table.write(rows(number))
            clock.advance(3600 * 2)
        left.append(len([path for path in paths(table) if path.startswith("changelog/changelog-")]))
    assert left[0] < left[1]


@shows("tag.default-time-retained", "tag.time-expire-enabled")
def test_tags_go_after_their_time_unless_that_is_switched_off() -> None:
    left = []
    for options in (
        {"tag__default_time_retained": "1 h"},
        {},
        {"tag__default_time_retained": "1 h", "tag__time_expire_enabled": "false"},
    ):
        clock = FakeClock(1_000)
        table = make(False, clock=clock, **options)
        table.write(rows(1))
        table.create_tag("then")
        clock.advance(3600 * 2)
        table.write(rows(2))
        left.append(list(table.tags()))
    assert left == [[], ["then"], ["then"]]


@shows("tag.create-success-file")
def test_tags_have_a_success_file_where_the_option_says_so() -> None:
    for wanted in ("true", "false"):
        table = make(False, tag__create_success_file=wanted)
        table.write(rows(1))
        table.create_tag("then")
        assert any("tag-success-file" in path for path in paths(table)) is (wanted == "true")


@shows("incremental-to-auto-tag", "tag.creation-period", "tag.period-formatter")
@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("2024-01-01", "2024-01-02"), {}),
        (("20240101", "20240102"), {"tag.period-formatter": "without_dashes"}),
        (("2024-01-01 10", "2024-01-01 11"), {"tag.creation-period": "hourly"}),
    ],
)
def test_changes_up_to_an_automatic_tag_are_those_since_the_one_before(
    names: tuple[str, str], options: dict[str, str]
) -> None:
    table = make(False)
    for number, name in enumerate(names):
        table.write(rows(number))
        table.create_tag(name)
    chosen = {"incremental-to-auto-tag": names[1]}
    assert table.with_options({**chosen, **options}).to_arrow().column("k").to_pylist() == [1]
    if "tag.creation-period" in options:  # what follows the day is ignored: both names stand for one day
        assert table.with_options(chosen).to_arrow().num_rows == 0
    elif options:
        with pytest.raises(InvalidInputError):
            table.with_options(chosen).to_arrow()


@shows(
    "tag.automatic-creation",
    "tag.creation-delay",
    "tag.num-retained-max",
    "tag.automatic-completion",
    "tag.batch.customized-name",
    "tag.creation-period-duration",
    "sink.process-time-zone",
)
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, []),
        ({"tag.automatic-creation": "process-time"}, ["2024-05-01", "2024-05-02", "2024-05-05"]),
        ({"tag.automatic-creation": "process-time", "tag.creation-delay": "1 h"}, ["2024-05-01", "2024-05-05"]),
        ({"tag.automatic-creation": "process-time", "tag.num-retained-max": "1"}, ["2024-05-05"]),
        (
            {"tag.automatic-creation": "process-time", "tag.automatic-completion": "true"},
            ["2024-05-01", "2024-05-02", "2024-05-03"],
        ),
        (
            {"tag.automatic-creation": "process-time", "tag.creation-period-duration": "36 h"},
            ["202404301200", "202405031200"],
        ),
        (
            {"tag.automatic-creation": "process-time", "sink.process-time-zone": "Asia/Shanghai"},
            ["2024-05-01", "2024-05-02", "2024-05-05"],
        ),
        (
            {"tag.automatic-creation": "process-time", "sink.process-time-zone": "America/New_York"},
            ["2024-05-01", "2024-05-04"],
        ),
        (
            {"tag.automatic-creation": "batch", "sink.process-time-zone": "UTC"},
            ["batch-write-2024-05-02", "batch-write-2024-05-03", "batch-write-2024-05-06"],
        ),
        ({"tag.automatic-creation": "batch", "tag.batch.customized-name": "job"}, ["job"]),
    ],
)
def test_automatic_tags_are_made_as_the_options_say(options: dict[str, str], names: list[str]) -> None:
    clock = FakeClock(int(datetime(2024, 5, 2, 12, tzinfo=UTC).timestamp() * 1000))
    given = options if "sink.process-time-zone" in options else {**options, "sink.process-time-zone": "UTC"}
    table = make(False, clock=clock).with_options(given)
    for hours in (0, 12.5, 3 * 24):
        clock.advance(hours * 3600)
        table.write(rows(1))
    assert sorted(table.tags()) == names


@shows("sink.watermark-time-zone")
def test_watermarks_have_the_time_zone_of_the_option() -> None:
    for zone, name in (("UTC", "2024-05-01"), ("Asia/Shanghai", "2024-05-02")):
        table = make(False).with_options({"tag.automatic-creation": "watermark", "sink.watermark-time-zone": zone})
        table.write(rows(1))
        assert table.tags() == {}
        writer = table.new_write()
        writer.write(rows(2))
        mark = int(datetime(2024, 5, 2, 18, tzinfo=UTC).timestamp() * 1000)
        table.new_commit("job").commit(writer.prepare_commit(), identifier=1, watermark=mark)
        assert table.tags() == {name: 2}


@shows("spill-compression", "spill-compression.zstd-level")
def test_the_codec_of_spilled_rows_is_that_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    append, sizes = ScratchFile.append, [0]

    def count(self: ScratchFile, data: pa.Buffer) -> Extent:
        sizes[-1] += data.size
        return append(self, data)

    monkeypatch.setattr(ScratchFile, "append", count)
    for given in (
        {"spill_compression": "none"},
        {"spill_compression__zstd_level": "1"},
        {"spill_compression__zstd_level": "19"},
    ):
        table = make(write_buffer_size="256 kb", write_buffer_spillable="true", write_only="true", **given)
        table.write(rows(*(number * 7919 % 40_009 for number in range(40_000))))
        assert table.count() == 40_000
        sizes.append(0)
    plain, little, much = sizes[:3]
    assert plain > little > much > 0


def moving(**options: str) -> Table:
    """A table whose keys move between partitions, with some files in each of three partitions."""
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000), SeededIds(1))))
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    columns = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT"}
    table = lake.create_table(
        "db.t", columns, primary_key=["k"], partition_by=["p"], options={"write-only": "true", **given}
    )
    for number, partition in enumerate("abc"):
        table.write(rows(*range(40 * number, 40 * number + 40), p=partition))
    return table


@shows("lookup.cache-max-memory-size")
def test_known_keys_beyond_the_memory_of_the_option_go_to_local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_partition, "_HAND_KEYS", 10)
    append, spilled = ScratchFile.append, [0]

    def count(self: ScratchFile, data: Any) -> Extent:
        spilled[-1] += 1
        return append(self, data)

    monkeypatch.setattr(ScratchFile, "append", count)
    for memory in ("1 b", "256 mb"):
        table = moving(lookup__cache_max_memory_size=memory)
        spilled.append(0)
        table.write(rows(5, p="c", v=9))
        assert [row for row in table.to_arrow().to_pylist() if row["k"] == 5] == rows(5, p="c", v=9)
        assert table.count() == 120
    assert spilled[1] > 0
    assert spilled[2] == 0


@shows("cross-partition-upsert.bootstrap-parallelism")
def test_so_many_readers_load_the_known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    read, readers = cross_partition.read_keys, []

    def count(context: Any, share: Any) -> Any:
        readers.append(len(share))
        return read(context, share)

    monkeypatch.setattr(cross_partition, "read_keys", count)
    for width in ("1", "3"):
        table = moving(cross_partition_upsert__bootstrap_parallelism=width)
        readers.clear()
        table.write(rows(5, p="c", v=9))
        assert table.count() == 120
        assert len(readers) == int(width)
