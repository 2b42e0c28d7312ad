"""After a rollback the numbered commits that it removed are free, others not, whoever wrote and whatever died."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, FormatError, StorageError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.progress import find_newest_in
from tidelake.ops.maintain.rewind import Removed, plan_rewind
from tidelake.ops.maintain.tags import tag_store
from tidelake.spec.documents.progress import CommitProgress
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.spec.documents.tag import tag_to_json
from tidelake.table import Table
from tidelake.testing import Crash, FakeClock, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import restore_image, take_image

NAME = "d.t"
JOB = "job"


def new_table() -> Table:
    return opened_lake(MemoryFileIO()).create_table(NAME, {"id": "INT"})


def opened_lake(io: FileIO, seed: int = 1) -> Lake:
    return Lake(FileSystemCatalog(Env(io, FakeClock(tick_ms=1), SeededIds(seed))))


def put(table: Table, number: int, user: str = JOB) -> bool:
    """Whether a batch, whose only row is its number, was written and not taken for a repeat."""
    return not table.write([{"id": number}], commit_user=user, identifier=number).repeated


def rows(table: Table) -> list[int]:
    return sorted(row["id"] for row in table.reload().to_arrow().to_pylist())


def note_origins(table: Table, *numbers: int) -> None:
    progress = table.store.progress.read(JOB)
    table.store.progress.write(replace(progress, origins=tuple((each, f"o{each}") for each in numbers)))


def drop_properties(table: Table) -> None:
    """What the snapshots and tags look like if a writer that does not copy properties made them."""
    store = table.store
    for snapshot_id in store.snapshots.ids():
        bare = replace(store.snapshots.get(snapshot_id), properties={})
        store.env.io.overwrite(store.layout.snapshot_path(snapshot_id), snapshot_to_json(bare))
    for name, tag in tag_store(store).all().items():
        bare_tag = replace(tag, snapshot=replace(tag.snapshot, properties={}))
        store.env.io.overwrite(store.layout.tag_path(name), tag_to_json(bare_tag))


def expire(table: Table, keep: int = 1) -> None:
    table.expire_snapshots(retain_max=keep, retain_min=keep, older_than="2100-01-01")


# ------------------------------------------------------------------------------------------------ what was lost


def test_rows_of_a_batch_that_was_empty_before_a_rollback_are_not_lost_after_it():
    """Batch 1 was empty and made no commit. After the rollback it counted as committed."""
    table = new_table()
    put(table, 0)
    put(table, 2)
    table.rollback_to(snapshot=1)
    assert table.store.progress.read(JOB).committed == 0
    assert put(table, 1)
    assert rows(table) == [0, 1]


@pytest.mark.parametrize("expired", [False, True])
def test_rows_of_batches_whose_snapshots_expired_are_not_lost_after_a_rollback_to_a_tag(expired: bool):
    """The progress of users whose removed snapshots had expired stayed, and their batches counted as committed."""
    table = new_table()
    put(table, 0)
    table.create_tag("good")
    for number in (1, 2):
        put(table, number)
        put(table, number, "late")
    table.write([{"id": 100}])
    if expired:
        expire(table)
    table.rollback_to(tag="good")
    assert [put(table, 1), put(table, 2), put(table, 0), put(table, 1, "late")] == [True, True, False, True]
    assert rows(table) == [0, 1, 1, 2]


def test_rows_of_batches_whose_snapshots_expired_are_not_lost_after_a_fast_forward():
    table = new_table()
    put(table, 0)
    side = table.create_branch("side", snapshot=1)
    side.write([{"id": 50}])
    put(table, 1)
    table.write([{"id": 100}])
    table.write([{"id": 101}])
    expire(table)
    table.fast_forward("side")
    table = table.reload()
    assert [put(table, 0), put(table, 1)] == [False, True]
    assert rows(table) == [0, 1, 50]


# ------------------------------------------------------------------------------------------------ what proves it


def test_a_kept_snapshot_proves_a_number_that_another_writer_does_not_carry_on():
    table = new_table()
    put(table, 0)
    put(table, 3)
    table.write([{"id": 100}])
    put(table, 7)
    drop_properties(table)
    table.rollback_to(snapshot=3)
    assert table.store.progress.read(JOB) == CommitProgress(user=JOB, committed=3, after=3)
    assert [put(table, 3), put(table, 5)] == [False, True]
    assert rows(table) == [0, 3, 5, 100]


def test_commits_before_the_target_stay_committed_although_nothing_else_shows_them():
    """All removed snapshots are there, and none is of the user: so its commits are at or before the target."""
    table = new_table()
    put(table, 0)
    put(table, 1)
    for number in (100, 101, 102):
        table.write([{"id": number}])
    drop_properties(table)
    expire(table, keep=2)
    before = table.store.progress.read(JOB)
    table.rollback_to(snapshot=4)
    assert table.store.progress.read(JOB) == before
    assert [put(table, 0), put(table, 1), put(table, 2)] == [False, False, True]


def test_origins_before_the_first_removed_number_say_which_numbers_are_committed():
    table = new_table()
    put(table, 0)
    table.write([{"id": 100}])
    table.write([{"id": 101}])
    put(table, 2)
    drop_properties(table)
    note_origins(table, 0, 2)
    expire(table, keep=2)
    table.rollback_to(snapshot=3)
    assert table.store.progress.read(JOB) == CommitProgress(user=JOB, committed=0, after=3, origins=((0, "o0"),))
    assert [put(table, 0), put(table, 1)] == [False, True]


def test_a_number_of_which_nothing_shows_whether_it_is_left_is_neither_doubled_nor_lost():
    table = new_table()
    for number in (0, 1):
        put(table, number)
    table.write([{"id": 100}])
    table.create_tag("good")
    for number in (2, 3):
        put(table, number)
    table.write([{"id": 101}])
    drop_properties(table)
    expire(table)
    table.rollback_to(tag="good")
    assert table.store.progress.read(JOB).uncertain == 3
    for number in range(4):
        with pytest.raises(CommitUnknownError, match="after a rollback") as caught:
            put(table, number)
        assert caught.value.facts["newest_uncertain"] == "3"
    assert put(table, 4)
    assert not put(table, 4)
    assert not put(table, 3)
    assert table.store.progress.read(JOB).uncertain is None


def test_a_damaged_progress_document_stops_a_rollback_before_a_snapshot_goes():
    table = new_table()
    put(table, 0)
    put(table, 1)
    table.store.env.io.overwrite(table.store.progress.path("another"), b"{")
    with pytest.raises(FormatError):
        table.rollback_to(snapshot=1)
    assert table.store.snapshots.ids() == [1, 2]


def test_a_pending_commit_is_looked_for_in_the_snapshots_that_follow_the_target():
    progress = CommitProgress(user=JOB, committed=1, pending=2, after=9, origins=((1, "a"), (2, "b")))
    rewound = plan_rewind(progress, 4, (1, True), Removed({}, is_whole=True))
    assert rewound.settled == rewound.noted == replace(progress, after=4)


@pytest.mark.parametrize(
    ("properties", "ids", "proven"),
    [
        ({}, (3, 2, 1), (None, True)),
        ({}, (3, 2), (None, False)),
        ({"progress-since": "1"}, (3,), (None, True)),
        ({"progress-since": "2"}, (3,), (None, False)),
        ({"progress-since": "3"}, (4, 2, 1), (None, True)),
        ({}, (4, 2, 1), (None, False)),
        ({f"progress.{JOB}": "7"}, (3,), (7, True)),
    ],
)
def test_history_proves_the_newest_number_only_without_gaps(
    properties: dict[str, str], ids: tuple[int, ...], proven: tuple[int | None, bool]
):
    table = new_table()
    table.write([{"id": 1}])
    first = table.latest_snapshot()
    assert first is not None
    line = [replace(first, id=each, properties=properties if each == ids[0] else {}) for each in ids]
    assert find_newest_in(line, JOB) == proven


# ------------------------------------------------------------------------------------------------ crashes


def make_past(*, expired: bool, carried: bool) -> Any:
    io = MemoryFileIO()
    table = opened_lake(io).create_table(NAME, {"id": "INT"})
    put(table, 0)
    table.create_tag("good")
    for number in (1, 3):
        put(table, number)
    table.write([{"id": 100}])
    table.write([{"id": 101}])
    if not carried:
        drop_properties(table)
    if expired:
        expire(table)
    return take_image(io)


def storage(image: Any) -> FileIO:
    io = MemoryFileIO()
    restore_image(io, image)
    return io


def repeat_all(table: Table) -> list[int]:
    """Repeat all batches of the job; return those of which nobody knows whether they are in the table."""
    unknown = []
    for number in range(5):
        there = number in rows(table)
        try:
            written = put(table, number)
        except CommitUnknownError:
            unknown.append(number)
            continue
        # Batch 2 was empty once, so it may be left out if a later one is there.
        assert written != there or (number == 2 and 3 in rows(table)), number
    found = rows(table)
    assert len(found) == len(set(found)), found
    return unknown


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "dropped"])
@pytest.mark.parametrize("expired", [True, False], ids=["expired", "kept"])
def test_no_batch_is_lost_or_doubled_wherever_a_rollback_dies(expired: bool, carried: bool):
    image = make_past(expired=expired, carried=carried)
    clean = FaultyFileIO(storage(image))
    opened_lake(clean).table(NAME).rollback_to(tag="good")
    for op in clean.ops:
        if op.name in READS:
            continue
        for fault in (Fault.CRASH, Fault.CRASH_AFTER):
            io = FaultyFileIO(storage(image), {op.number: fault})
            with pytest.raises((Crash, StorageError)):
                opened_lake(io).table(NAME).rollback_to(tag="good")
            left = take_image(io.inner)
            unknown = repeat_all(opened_lake(storage(left), 2).table(NAME))
            assert not unknown or (expired and not carried)
            again = opened_lake(storage(left), 2).table(NAME)
            again.rollback_to(tag="good")
            assert rows(again) == [0]
            assert repeat_all(again) == []
            assert rows(again) == [0, 1, 2, 3, 4]
