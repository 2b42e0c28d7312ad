"""Whether a numbered commit is there is looked for once per write, and again only if somebody committed in between."""

from __future__ import annotations

import pytest

from kit.small_tables import committer, message, new_table, other_handle
from tidelake.ops.commit import committer as module
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.progress import find_published


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The identifiers that were looked for, in order."""
    found: list[int] = []

    def search(*args):
        found.append(args[-1])
        return find_published(*args)

    monkeypatch.setattr(module, "find_published", search)
    return found


def numbered(number: int) -> Committable:
    return Committable(messages=(message(f"file-{number}"),), identifier=number)


def test_a_write_that_asked_before_does_not_search_again(searches):
    ours = committer(new_table())
    assert ours.filter_committed([1]) == [1]
    assert ours.commit(numbered(1)).snapshot_ids == (1,)
    assert searches == [1]
    assert ours.filter_committed([1]) == []
    assert searches == [1, 1]


def test_a_commit_in_between_is_looked_at(searches):
    table = new_table()
    ours, twin = committer(table), committer(other_handle(table))
    assert ours.filter_committed([1]) == [1]
    assert twin.commit(numbered(1)).snapshot_ids == (1,)
    assert ours.commit(numbered(1)).repeated
    assert searches == [1, 1, 1]


def test_a_twin_that_committed_nothing_under_the_number_is_believed(searches):
    table = new_table(snapshot__ignore_empty_commit="true")
    ours, twin = committer(table), committer(other_handle(table))
    empty = Committable(messages=(), identifier=1)
    assert ours.filter_committed([1]) == [1]
    assert not twin.commit(empty).snapshot_ids
    assert ours.commit(empty).repeated
