"""Plan, commit, and plan again after a conflict: for every verb whose plan another job can invalidate.

Errors that a new plan solves say so themselves (`TidelakeError.replannable`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from tidelake.errors import TidelakeError
from tidelake.ops.commit.messages import CommitResult

__all__ = ["replan"]

_PLANS_MAX: Final = 10
"""Plans of one verb at most, unless the caller allows fewer."""
T = TypeVar("T")


def replan(attempt: Callable[[], T], *, plans: int | None = None) -> T:
    """Plan and commit, and do both again after a conflict with another job.

    An attempt that fails must have published nothing and left no files. A `CommitResult` says how many plans failed.

    Raises:
        TidelakeError: the last plan met a conflict too, or a new plan does not solve the error.
    """
    most = _PLANS_MAX if plans is None else plans
    for conflicts in range(most - 1):
        try:
            return _note_conflicts(attempt(), conflicts)
        except TidelakeError as error:
            if not error.replannable:
                raise
    return _note_conflicts(attempt(), most - 1)


def _note_conflicts(done: T, conflicts: int) -> T:
    if conflicts and isinstance(done, CommitResult):
        return replace(done, conflicts=done.conflicts + conflicts)
    return done
