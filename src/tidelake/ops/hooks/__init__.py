"""Post-commit hooks, and the committers that run them: every committer is opened here, with all its hooks.

Hooks:
    after_commit        the hooks of every commit: expire tags, partitions, consumers, snapshots and changelogs
    partition_expiry    drop expired partitions, once in each interval
    committers          open the committer of a table for one user, with its ports and hooks
"""
