"""Opens the committer of a table, with the ports that its kind of table needs and its post-commit hooks."""

from __future__ import annotations

from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.safety import require_exclusive_create
from tidelake.ops.context import TableContext
from tidelake.ops.hooks.after_commit import hooks_after_commit
from tidelake.ops.write.opening import make_overwrite_guards, make_reassigner, make_rebaser

__all__ = ["make_user", "open_committer"]


def open_committer(
    context: TableContext, user: str | None = None, *, expires: bool | None = None, last_safe: int | None = None
) -> Committer:
    """Open the committer of one user; without a user, of a new one for a single batch job.

    `expires` overrides the option `write-only`. With `last_safe` the committer refuses a commit if others replaced its
    files since that snapshot, as strict mode does.

    Raises:
        InvalidInputError: the user is not a string, or an option has a wrong value.
        StorageError: the storage cannot create a file exclusively, so that commits would not be safe.
        UnsupportedError: the table has an option that commits do not support.
    """
    if context.publisher.relies_on_storage:
        require_exclusive_create(context.store.env, context.options)
    user = user or make_user(context)
    return Committer(
        context,
        user,
        rebaser=make_rebaser(context),
        reassigner=make_reassigner(context),
        overwrite_guards=make_overwrite_guards(context, user),
        hooks=hooks_after_commit(context, user, expires=expires),
        last_safe=last_safe,
    )


def make_user(context: TableContext) -> str:
    """Make a commit user that no other job has, with the prefix of the option `commit.user-prefix`."""
    prefix = context.options.get("commit.user-prefix")
    fresh = context.store.env.ids.uuid()
    return f"{prefix}_{fresh}" if prefix else fresh
