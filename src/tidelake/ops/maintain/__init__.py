"""Maintenance: checks, expiry, tags, branches, rollback, and deletion of unused files.

Snapshots and references:
    expire              expire snapshots
    changelogs          expire long-lived changelogs
    tags                create, rename, delete and expire tags
    branches            create, delete and fast-forward branches
    partition_expiry    drop partitions that are too old
    partition_marks     mark partitions done
    consumers           set, delete and expire consumers
    rollback            roll a table back
    rewind              set commit progress back with the table

Files:
    holders             what holds files, at one moment
    reachable           files that a snapshot refers to
    deletion            delete files and empty folders
    orphans             files that nothing refers to

Checks:
    check               metadata against the invariants
    deep_check          rows and statistics of data files
    key_check           buckets and key indexes of keys
    row_places          whether rows are in their partition and bucket
    finding             what a check finds

Arguments:
    times               moments and durations that users give
"""
