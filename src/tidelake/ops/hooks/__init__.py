"""Post-commit hooks, and the committers that run them: every committer is opened here, with all its hooks.

Hooks:
    after_commit        the hooks of every commit: expire tags, consumers, snapshots and changelogs
    committers          open the committer of a table for one user, with its ports and hooks
"""
