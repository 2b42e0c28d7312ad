"""Maintenance: checks, expiry, tags, branches, rollback, and deletion of unused files.

Snapshots and references:
    expire              expire snapshots
    changelogs          expire long-lived changelogs
    tags                create, rename, delete and expire tags
    branches            create, delete and fast-forward branches
    consumers           set, delete and expire consumers
    rollback            roll a table back
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

Checks:
    check               metadata against the invariants
    deep_check          rows and statistics of data files
    key_check           buckets and key indexes of keys
    row_places          whether rows are in their partition and bucket
    finding             what a check finds

Arguments:
    times               moments and durations that users give
"""
