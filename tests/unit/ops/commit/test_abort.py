"""Deleting the files of a commit that certainly never happened."""

from __future__ import annotations

import pytest

from kit.small_tables import committer, compaction, file, message, names, new_table, vectors
from tidelake.errors import FormatError
from tidelake.ops.commit.abort import plan_abort, referenced_names
from tidelake.ops.commit.messages import Committable
from tidelake.spec.documents.progress import CommitProgress
from tidelake.spec.layout import TableLayout


def path_of(partition: bytes, bucket: int, name: str) -> str:
    return f"p/bucket-{bucket}/{name}"


def index_path_of(partition: bytes, bucket: int, name: str) -> str:
    return TableLayout().index_path(name)


def planned(*messages) -> tuple[str, ...]:
    return plan_abort(messages, path_of, index_path_of)


def test_the_files_a_message_made_are_planned_with_their_companions():
    sent = message(
        file("a", extra_files=("a.index",)), changelog_files=(file("log"),), new_index_files=(vectors("v", "a"),)
    )
    assert planned(sent) == ("p/bucket-0/a", "p/bucket-0/a.index", "p/bucket-0/log", "index/v")


def test_files_that_a_compaction_read_or_moved_are_never_planned():
    sent = compaction((file("old"), file("moved")), (file("moved", level=3), file("new")))
    assert planned(sent) == ("p/bucket-0/new",)
    assert referenced_names([sent, message(deleted_files=(file("d"),))]) == {"old", "moved", "d"}


def test_files_outside_the_table_are_never_planned():
    assert planned(message(file("a", external_path="s3://b/a"))) == ()


def test_a_file_is_planned_once():
    assert planned(message("a"), message("a")) == ("p/bucket-0/a",)


@pytest.fixture
def table():
    made = new_table()
    for name in ("a", "b"):
        made.store.env.io.write(f"dt=d1/bucket-0/{name}", b"x" * 100)
    return made


def test_files_that_were_never_committed_are_deleted(table):
    result = committer(table).abort([message("a")])
    assert result.deleted == ("dt=d1/bucket-0/a",)
    assert not table.store.env.io.exists("dt=d1/bucket-0/a")
    assert table.store.env.io.exists("dt=d1/bucket-0/b")


def test_files_that_were_committed_stay_although_the_engine_aborts(table):
    user = committer(table)
    user.commit(Committable(messages=(message("a"),)))
    result = user.abort([message("a")])
    assert result.deleted == ()
    assert result.left == ("dt=d1/bucket-0/a",)
    assert "exists" in (result.reason or "")
    assert table.store.env.io.exists("dt=d1/bucket-0/a")


def test_another_identifier_of_the_same_user_may_be_aborted(table):
    user = committer(table)
    user.commit(Committable(messages=(message("a"),), identifier=1))
    assert user.abort([message("b")], identifier=2).deleted == ("dt=d1/bucket-0/b",)
    assert user.abort([message("a")], identifier=1).deleted == ()
    assert names(table) == ["a"]


def test_a_commit_that_was_about_to_be_published_leaves_its_files(table):
    user = committer(table)
    table.store.progress.write(CommitProgress(user="u", pending=5, after=0))
    assert user.abort([message("a")], identifier=5).reason is not None
    assert user.abort([message("a")]).reason is not None
    assert table.store.env.io.exists("dt=d1/bucket-0/a")


def test_snapshots_that_cannot_be_read_leave_everything(table):
    user = committer(table)
    table.store.env.io.write("snapshot/snapshot-1", b"damaged")
    result = user.abort([message("a")])
    assert result.deleted == ()
    assert "could not be read" in (result.reason or "")


def test_expired_snapshots_leave_everything(table):
    user = committer(table)
    other = committer(table, "them")
    for name in ("x", "y", "z"):
        other.commit(Committable(messages=(message(name),)))
    for number in (1, 2):
        table.store.env.io.delete(f"snapshot/snapshot-{number}")
    assert user.abort([message("a")]).reason == "snapshots since the job began have expired"


@pytest.mark.parametrize("name", ["../../x", "a/b", ""])
def test_a_hostile_name_deletes_nothing_at_all(table, name):
    with pytest.raises(FormatError):
        committer(table).abort([message("a"), message(name)])
    assert table.store.env.io.exists("dt=d1/bucket-0/a")
