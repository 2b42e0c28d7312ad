"""What follows a commit on a table that is not write-only: tags, consumers and snapshots past their time go.

The commit is published, so nothing here may make it look failed: every error becomes a warning of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidelake.errors import TidelakeError
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import TableShape
from tidelake.ops.commit.outcome import follow
from tidelake.ops.maintain.changelogs import plan_changelog_expiry, run_changelog_expiry
from tidelake.ops.maintain.consumers import ConsumerOptions, run_consumer_expiry
from tidelake.ops.maintain.expire import ExpireOptions, plan_expire, run_expire
from tidelake.ops.maintain.tags import TagOptions, run_tag_expiry
from tidelake.spec.option_support import commit_warnings
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


def run_afterwards(
    store: TableStore, paths: DataPaths, options: Mapping[str, str], result: CommitResult
) -> CommitResult:
    """Expire what is due after a commit that made a snapshot; the result tells what could not be done."""
    if not result.snapshot_ids:
        return result

    def expire_tags() -> None:
        if TagOptions.parse(options).expire:
            run_tag_expiry(store, paths, clean_folders=ExpireOptions.parse(options).clean_folders)

    def expire_snapshots() -> None:
        how = ExpireOptions.parse(options)
        done = run_expire(store, plan_expire(store, paths, how), how)
        if done.left:
            left.append(f"committed, but {len(done.left)} expired files were left: {done.reason}")

    def expire_changelogs() -> None:
        how = ExpireOptions.parse(options)
        if how.decoupled:
            run_changelog_expiry(store, plan_changelog_expiry(store, paths, options), how)

    left = list(commit_warnings(options))
    hooks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("expiring tags", expire_tags),
        ("forgetting idle consumers", lambda: run_consumer_expiry(store, ConsumerOptions.parse(options))),
        ("expiring snapshots", expire_snapshots),
        ("expiring changelogs", expire_changelogs),
    )
    try:
        expires = not TableShape.parse(options).write_only
    except TidelakeError as error:
        left.append(f"committed, but nothing was expired: {error}")
        expires = False
    for what, act in hooks if expires else ():
        result = follow(result, what, act)
    return replace(result, warnings=(*result.warnings, *left)) if left else result
