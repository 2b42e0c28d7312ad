"""The handle of a table: what a user calls to read, write and maintain it.

Modules:
    handle        `Table`: point in time, branch, schema changes, checks
    base          the base of the handle: documents, schema, options in force
    reading       scans and their shorthands, changes, follow
    placed        scans with hidden columns
    writing       write, delete, update, merge, compact, rescale
    upkeep        deletion vectors, manifests, missing files, purging
    several       compact and repair several tables
    maintenance   dedicated compaction, expiry, rollback, orphans, statistics, marks of partitions
    references    tags, branches, consumers
    views         the read-only views `$audit_log`, `$binlog` and `$ro`
    system        the read-only system tables, such as `$files`
    read_only     the base of views and system tables
    inspecting    system tables as Arrow tables
    health        the facts of a diagnosis
    following     the stream of changes that `follow` returns
    merge_builder   the builder that `merge` returns
    jobs          writers and committers for engines
    naming        parses columns, types and positions as users write them
    engine_port   what a table needs from an engine such as Spark
"""

from tidelake.table.handle import Table, load_table, open_table
from tidelake.table.inspecting import Inspect
from tidelake.table.jobs import TableCommit, TableWrite
from tidelake.table.naming import path_of, to_data_type

__all__ = ["Inspect", "Table", "TableCommit", "TableWrite", "load_table", "open_table", "path_of", "to_data_type"]
