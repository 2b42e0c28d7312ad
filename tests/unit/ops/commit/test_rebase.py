"""Sequence numbers of several writers on one bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kit.small_tables import committer, message, names, new_table, other_handle, ranged, row
from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitMessage, Committable
from tidelake.ops.commit.rebase import Bucket, rebase_messages


class FakeRebaser:
    """Moves sequence numbers above the floor and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[Bucket, int], int]] = []

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[Bucket, int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        self.asked.append((dict(floors), base_snapshot_id))
        made = []
        for each in messages:
            floor = floors[each.partition, each.bucket]
            files = tuple(
                replace(old, file_name=f"{old.file_name}-moved", min_sequence=floor + 1, max_sequence=floor + 10)
                for old in each.data.new_files
            )
            made.append(replace(each, base_snapshot_id=base_snapshot_id, data=replace(each.data, new_files=files)))
        return tuple(made)


def numbered(name: str, low: int, *, bucket: int = 0, dt: str = "d1", base: int | None = 0) -> CommitMessage:
    new = ranged(name, 1, 9, level=0, min_sequence=low, max_sequence=low + 9)
    return message(new, dt=dt, bucket=bucket, total=2, base=base)


@pytest.fixture
def table():
    made = new_table(keyed=True)
    made.new_commit("them").commit([numbered("theirs", 100)])
    return made


def rebased(table, *messages, rebaser=None):
    return rebase_messages(table.store, messages, table.latest_snapshot(), rebaser)


@pytest.mark.parametrize(
    "sent",
    [
        numbered("ours", 100, bucket=1),
        numbered("ours", 100, dt="d2"),
        numbered("ours", 110),
        numbered("ours", 0, base=1),
        numbered("ours", 0, base=None),
        message(base=0),
    ],
    ids=["other bucket", "other partition", "above", "newest base", "no base", "no files"],
)
def test_messages_that_nobody_overtook_stay_as_they_are(table, sent):
    assert rebased(table, sent) == (sent,)


def test_an_empty_table_overtakes_nobody():
    assert rebased(new_table(keyed=True), numbered("ours", 0)) == (numbered("ours", 0),)


def test_without_a_rebaser_an_overtaken_message_is_a_conflict(table):
    with pytest.raises(CommitConflictError) as caught:
        rebased(table, numbered("ours", 100))
    assert caught.value.code == "sequence-moved"


def test_only_overtaken_messages_are_rewritten_and_keep_their_place(table):
    rebaser = FakeRebaser()
    other = numbered("other", 0, bucket=1)
    found = rebased(table, other, numbered("ours", 105), numbered("far", 0, dt="d2"), rebaser=rebaser)
    assert [each.data.new_files[0].file_name for each in found] == ["other", "ours-moved", "far"]
    assert rebaser.asked == [({(row("d1"), 0): 109}, 1)]
    assert found[1].data.new_files[0].min_sequence == 110


def test_expired_snapshots_are_replaced_by_the_live_files(table):
    table.new_commit("them").commit([numbered("more", 300)])
    table.store.env.io.delete("snapshot/snapshot-1")
    rebaser = FakeRebaser()
    rebased(table, numbered("ours", 0), rebaser=rebaser)
    assert rebaser.asked == [({(row("d1"), 0): 309}, 2)]


def test_a_commit_that_lost_its_race_is_rebased_and_published(table):
    ours = committer(other_handle(table), "us", rebaser=FakeRebaser())
    result = ours.commit(Committable(messages=(numbered("ours", 100),)))
    assert result.snapshot_ids == (2,)
    assert names(table) == ["ours-moved", "theirs"]


def test_a_commit_without_a_rebaser_publishes_nothing(table):
    with pytest.raises(CommitConflictError):
        committer(table, "us").commit(Committable(messages=(numbered("ours", 100),)))
    assert table.latest_snapshot().id == 1
    assert names(table) == ["theirs"]
