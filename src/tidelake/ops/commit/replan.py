"""Plan, commit, and plan again after a conflict: for every verb whose plan another job can invalidate.

Errors that a new plan solves say so themselves (`TidelakeError.replannable`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tidelake.errors import TidelakeError

__all__ = ["replan"]

_PLANS_MAX: Final = 10
"""Plans of one verb at most, unless the caller allows fewer."""
T = TypeVar("T")


def replan(attempt: Callable[[], T], *, plans: int | None = None) -> T:
    """Plan and commit, and do both again after a conflict with another job.

    An attempt that fails must have published nothing and left no files.

    Raises:
        TidelakeError: the last plan met a conflict too, or a new plan does not solve the error.
    """
    for _ in range((_PLANS_MAX if plans is None else plans) - 1):
        try:
            return attempt()
        except TidelakeError as error:
            if not error.replannable:
                raise
    return attempt()
