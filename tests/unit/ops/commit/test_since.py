"""What was committed since a base: every commit once, oldest first; of a gap one entry, which nobody can read."""

from __future__ import annotations

import pytest

from kit.small_tables import committer, message, new_table
from tidelake.errors import NotFoundError
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.since import commits_since
from tidelake.spec.documents.snapshot import CommitKind


@pytest.fixture
def table():
    made = new_table()
    for number, user in enumerate("aabb", start=1):
        committer(made, user).commit(Committable(messages=(message(f"file-{number}"),)))
    return made


def test_every_commit_after_the_base_comes_once_and_in_order(table):
    assert [each.id for each in commits_since(table.store, 1, 4)] == [2, 3, 4]
    assert [each.is_by("a") for each in commits_since(table.store, 1, 4)] == [True, False, False]
    assert {each.kind for each in commits_since(table.store, 0, 4)} == {CommitKind.APPEND}
    assert not list(commits_since(table.store, 4, 4))


def test_entries_are_those_of_the_commit_alone(table):
    found = [each.read_entries(columns=["file_name"]).to_pydict() for each in commits_since(table.store, 2, 4)]
    assert found == [{"file_name": ["file-3"]}, {"file_name": ["file-4"]}]


def test_a_gap_is_one_commit_of_which_nothing_is_known(table):
    for gone in (1, 2, 3):
        table.store.snapshots.delete(gone)
    first, last = commits_since(table.store, 0, 4)
    assert (first.id, first.snapshot, first.kind, first.is_by("a")) == (1, None, None, False)
    assert last.id == 4
    with pytest.raises(NotFoundError) as raised:
        first.read_entries()
    assert raised.value.code == "snapshot-not-found"
