"""Planning again: as often as the budget allows, and only for errors that a fresh plan solves."""

from __future__ import annotations

import pickle

import pytest

from tidelake.errors import CommitConflictError, NotFoundError, TidelakeError
from tidelake.ops.commit.replan import replan


class Attempts:
    """Fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: TidelakeError) -> None:
        self._errors = list(errors)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@pytest.mark.parametrize("code", ["rows-changed", "keys-moved", "file-deleted", "file-conflict", "index-conflict"])
def test_a_conflict_that_a_fresh_plan_solves_is_planned_again(code):
    attempt = Attempts(*(CommitConflictError("overtaken", code=code) for _ in range(3)))
    assert replan(attempt, plans=4) == "done"
    assert attempt.count == 4


def test_the_last_conflict_is_raised_once_the_plans_are_used_up():
    attempt = Attempts(*(CommitConflictError(f"overtaken {n}", code="rows-changed") for n in range(3)))
    with pytest.raises(CommitConflictError, match="overtaken 1"):
        replan(attempt, plans=2)


@pytest.mark.parametrize("code", ["strict-mode", "bucket-count", "table-replaced", "too-many-attempts", None])
def test_other_conflicts_are_raised_at_once(code):
    attempt = Attempts(CommitConflictError("overtaken", code=code))
    with pytest.raises(CommitConflictError):
        replan(attempt)
    assert attempt.count == 1


def test_a_plan_whose_snapshot_expired_is_made_again():
    assert replan(Attempts(NotFoundError("gone", code="snapshot-expired"))) == "done"
    with pytest.raises(NotFoundError):
        replan(Attempts(NotFoundError("gone")))


def test_who_knows_what_was_planned_on_says_that_a_fresh_plan_helps_also_after_pickling():
    error = CommitConflictError("overtaken", code="strict-mode")
    assert not error.replannable
    error.replannable = True
    again = pickle.loads(pickle.dumps(error))
    assert again.replannable
    assert replan(Attempts(again)) == "done"
