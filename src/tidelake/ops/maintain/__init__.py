"""Maintenance: checks, expiry, tags, branches, rollback, and deletion of unused files.

Snapshots and references:
    expire              expire snapshots
    changelogs          expire long-lived changelogs
    tags                create, replace, rename, delete and expire tags
    tag_schedule        when automatic tags are due, and their names
    auto_tags           create automatic tags
    branches            create, rename, delete and fast-forward branches
    branch_merge        append the files of a branch to another one
    partition_expiry    drop partitions that are too old
    partition_marks     mark partitions done
    consumers           set, delete and expire consumers
    rollback            roll a table back
    returning           publish the state of an older snapshot again
    schema_rollback     delete newer schemas
    earliest            repair the hint of the oldest snapshot
    rewind              set commit progress back with the table

Files:
    holders             what holds files, at one moment
    reachable           files that a snapshot refers to
    deletion            delete files and empty folders
    orphans             files that nothing refers to
    manifests           merge and sort all manifests
    unexisting          drop files that do not exist
    purge               remove everything but the schema
    copy_files          copy a table by its files
    repair              write hints again

Statistics:
    analyze             compute and publish statistics of a table and its columns
    column_sketch       statistics of one column, with bounded memory

Checks:
    check               metadata against the invariants
    deep_check          rows and statistics of data files
    key_check           buckets and key indexes of keys
    row_places          whether rows are in their partition and bucket
    finding             what a check finds

Arguments:
    times               moments and durations that users give
"""
