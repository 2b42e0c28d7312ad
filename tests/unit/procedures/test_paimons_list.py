"""Every procedure has the name, the arguments in their order, and the result columns that Paimon's own has."""

from __future__ import annotations

import re

import pytest

from tidelake.procedures.registry import PROCEDURES

# Rows of the list of procedures in the project's specification of Paimon's Spark surface, without their remarks.
PAIMON = """
compact | table, [partitions], [compact_strategy], [order_strategy], [order_by], [where], [options], [partition_idle_time], [buckets] | result
compact_manifest | table, [options], [dry_run], [manifest_sort_enabled], [manifest_sort_partition_field], [manifest_sort_max_rewrite_size] | result
materialize_deletion_vectors | table, [partitions], [options], [where] | result
rescale | table, [bucket_num], [partitions], [where] | result
expire_snapshots | table, [retain_max], [retain_min], [older_than], [max_deletes], [options] | deleted_snapshots_count
expire_partitions | table, [expiration_time], [timestamp_formatter], [timestamp_pattern], [expire_strategy], [max_expires], [options] | expired_partitions
mark_partition_done | table, partitions | result
create_tag | table, tag, [snapshot], [time_retained] | result
replace_tag | table, tag, [snapshot], [time_retained] | result
create_tag_from_timestamp | table, tag, [timestamp], [time_retained] | tagName, snapshot, commit_time, watermark
rename_tag | table, tag, target_tag | result
delete_tag | table, tag | result
expire_tags | table, [older_than] | expired_tags
trigger_tag_automatic_creation | table | result
rollback | table, [version], [snapshot], [tag] | previous_snapshot_id, current_snapshot_id
rollback_to_timestamp | table, timestamp | previous_snapshot_id, current_snapshot_id
rollback_to_watermark | table, watermark | previous_snapshot_id, current_snapshot_id
repair_earliest_snapshot | table, snapshot_id | previous_earliest_snapshot_id, current_earliest_snapshot_id
create_branch | table, branch, [tag], [ignoreIfExists] | result
delete_branch | table, branch | result
rename_branch | table, from_branch, to_branch | result
fast_forward | table, branch | result
merge_branch | table, source_branch, [target_branch] | result
reset_consumer | table, consumerId, [nextSnapshotId] | result
clear_consumers | table, [includingConsumers], [excludingConsumers] | result
remove_orphan_files | table, [older_than], [dry_run], [parallelism], [mode] | deletedFileCount, deletedFileTotalLenInBytes
compact_database | [including_databases], [including_tables], [excluding_tables], [options] | result
purge_files | table | result
remove_unexisting_files | table, [dry_run], [parallelism] | fileName
copy | source_table, target_table, [where] | result
repair | [database_or_table] | result
compact_chain_table | table, partition, [overwrite] | result
reassign_row_id | table, [partitions] | result
rewrite_file_index | table, [where] | written_partitions, written_indexes
create_global_index | table, index_column, index_type, [partitions], [options] | result
drop_global_index | table, index_column, index_type, [partitions], [dry_run] | result, dropped_file_count
migrate_table | source_type, table, [options], [delete_origin], [target_table], [options_map], [parallelism] | result
migrate_database | source_type, database, [options], [options_map], [parallelism] | result
alter_view_dialect | view, action, [engine], [query] | result
create_function | function, inputParams, returnParams, [deterministic], [comment], [options] | result
alter_function | function, change | result
drop_function | function | result
"""  # noqa: E501
ROWS = {cells[0]: cells[1:] for cells in (line.split(" | ") for line in PAIMON.strip().splitlines())}


def test_the_list_and_the_registry_have_the_same_names() -> None:
    assert set(PROCEDURES) == set(ROWS)
    assert list(PROCEDURES) == sorted(PROCEDURES)


@pytest.mark.parametrize("name", ROWS)
def test_a_procedure_has_the_arguments_and_columns_of_paimons(name: str) -> None:
    arguments, columns = ROWS[name]
    found = PROCEDURES[name]
    assert found.name == name
    assert ", ".join(map(str, found.arguments)) == arguments
    assert ", ".join(found.columns.names) == columns


@pytest.mark.parametrize("name", ROWS)
def test_a_procedure_explains_itself(name: str) -> None:
    found = PROCEDURES[name]
    for text in (found.doc, *(each.doc for each in found.arguments)):
        assert re.fullmatch(r"[A-Z`].*\.", text), text
    for each in found.arguments:
        assert not (each.required and each.default is not None)
