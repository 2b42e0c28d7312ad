"""Numbered versions: one winner each, and hints that change the speed of an answer but never the answer."""

from __future__ import annotations

import pytest

from tidelake.errors import FormatError, InvalidInputError, NotFoundError
from tidelake.io import Created, Exists, FileIO, MemoryFileIO, SequencedStore
from tidelake.testing import FakeClock, FaultyFileIO
from tidelake.testing.faulty import Fault


def store_of(io: FileIO, *, hints: bool = True) -> SequencedStore:
    return SequencedStore(io, "snapshot", "snapshot-", hints, clock=FakeClock())


def filled(*versions: int) -> tuple[MemoryFileIO, SequencedStore]:
    io = MemoryFileIO()
    store = store_of(io)
    for version in versions:
        assert store.publish(version, b'{"id":%d}' % version) == Created()
    return io, store


def test_versions_are_created_once(fileio: FileIO) -> None:
    store = store_of(fileio)
    assert store.latest_id() is None
    assert store.earliest_id() is None
    assert store.ids() == []
    for version in (1, 2, 3):
        assert store.publish(version, b'{"id": %d}\n' % version) == Created()
        store.write_hint_latest(version)
    store.write_hint_earliest(1)
    assert store.publish(2, b'{"id":"other"}') == Exists()
    assert (store.earliest_id(), store.latest_id(), store.ids()) == (1, 3, [1, 2, 3])
    assert store.read(2) == b'{"id": 2}\n'
    assert store.exists(3)
    assert not store.exists(4)
    with pytest.raises(NotFoundError):
        store.read(4)
    assert fileio.read("snapshot/LATEST") == b"3"
    assert fileio.read("snapshot/EARLIEST") == b"1"


HINTS = {
    "missing": None,
    "right": b"7",
    "stale": b"6",
    "very stale": b"5",
    "expired": b"2",
    "ahead": b"9",
    "far ahead": b"9223372036854775807",
    "empty": b"",
    "blank": b" \n",
    "with newline": b"7\n",
    "text": b"seven",
    "negative": b"-7",
    "zero": b"0",
    "leading zeros": b"007",
    "plus": b"+7",
    "fraction": b"7.0",
    "too large": b"9" * 30,
    "bytes": b"\xff\xfe\0",
    "arabic digits": "٧".encode(),
    "long": b"7" * 5_000,
    "torn": b"\0\0\0",
}


@pytest.mark.parametrize("case", HINTS)
def test_no_hint_changes_the_latest_or_earliest(case: str) -> None:
    io, store = filled(5, 6, 7)
    hint = HINTS[case]
    if hint is not None:
        io.overwrite("snapshot/LATEST", hint)
        io.overwrite("snapshot/EARLIEST", hint)
    assert store.latest_id() == 7
    assert store.earliest_id() == 5


def test_hints_of_an_empty_folder_mean_nothing() -> None:
    io, store = filled()
    io.overwrite("snapshot/LATEST", b"3")
    io.overwrite("snapshot/EARLIEST", b"1")
    assert (store.latest_id(), store.earliest_id()) == (None, None)


def test_a_hint_far_behind_falls_back_to_the_listing() -> None:
    io, store = filled(*range(1, 40))
    io.overwrite("snapshot/LATEST", b"1")
    assert store.latest_id() == 39
    io.overwrite("snapshot/EARLIEST", b"20")
    assert store.earliest_id() == 1


def test_a_hint_that_is_a_folder_is_ignored() -> None:
    io, store = filled(1, 2)
    io.write("snapshot/LATEST/odd", b"")
    assert store.latest_id() == 2


def test_a_good_hint_saves_the_listing() -> None:
    io, store = filled(*range(1, 6))
    store.write_hint_latest(4)
    store.write_hint_earliest(1)
    counting = FaultyFileIO(io)
    assert store_of(counting).latest_id() == 5
    assert store_of(counting).earliest_id() == 1
    assert "list" not in {op.name for op in counting.ops}


def test_without_hints_none_is_read_or_written() -> None:
    io = MemoryFileIO()
    counting = FaultyFileIO(io)
    store = SequencedStore(counting, "schema", "schema-", False)
    store.publish(0, b"{}")
    store.write_hint_latest(0)
    store.write_hint_earliest(0)
    assert (store.latest_id(), store.earliest_id()) == (0, 0)
    assert [child.name for child in io.list("schema")] == ["schema-0"]
    assert {op.name for op in counting.ops} == {"create_exclusive", "list"}


def test_names_that_are_not_versions_are_ignored() -> None:
    io, store = filled(1, 10)
    for name in (
        "snapshot-1f0c.tmp",
        ".snapshot-11.uuid.tmp",
        "snapshot-",
        "snapshot-012",
        "snapshot-+13",
        "snapshot--14",
        "snapshot-15 ",
        "snapshot-9223372036854775808",
        "snapshot-١",
        "other-99",
        "99",
    ):
        io.write(f"snapshot/{name}", b"{}")
    io.write("snapshot/snapshot-50/file", b"{}")
    assert store.ids() == [1, 10]
    assert store.latest_id() == 10
    assert not store.exists(50)


@pytest.mark.parametrize(
    "content", [b"", b"   \n", b'{"id":1', b'{"id":1,"commit', b"\0" * 40, b'{"id":1}\0\0', b"[]", b"null"]
)
def test_a_torn_head_is_reported_and_not_skipped(content: bytes) -> None:
    io, store = filled(1)
    io.write("snapshot/snapshot-2", content)
    assert store.latest_id() == 2
    with pytest.raises(FormatError) as caught:
        store.read(2)
    assert caught.value.code == "torn-document"
    assert caught.value.facts["path"].endswith("snapshot/snapshot-2")


def test_an_oversized_document_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.io.sequenced.DOCUMENT_BYTES_MAX", 10)
    _, store = filled(1)
    assert store.read(1)
    io, store = filled()
    io.write("snapshot/snapshot-1", b"{" + b" " * 10 + b"}")
    with pytest.raises(FormatError):
        store.read(1)


@pytest.mark.parametrize("version", [-1, 2**63])
def test_a_number_out_of_range_is_refused(version: int) -> None:
    _, store = filled()
    with pytest.raises(InvalidInputError):
        store.publish(version, b"{}")


def test_the_largest_number_has_no_neighbour() -> None:
    _, store = filled(2**63 - 1)
    store.write_hint_latest(2**63 - 1)
    assert store.latest_id() == 2**63 - 1
    assert not store.exists(2**63)
    assert not store.exists(-1)


def test_an_empty_document_is_not_published() -> None:
    io, store = filled()
    with pytest.raises(InvalidInputError):
        store.publish(1, b"")
    assert io.list("snapshot") == []


@pytest.mark.parametrize(("failures", "written"), [(1, True), (2, True), (3, False), (5, False)])
def test_a_hint_is_tried_three_times_and_never_raises(failures: int, written: bool) -> None:
    io, _ = filled(1)
    faulty = FaultyFileIO(io, dict.fromkeys(range(1, failures + 1), Fault.BEFORE))
    store_of(faulty).write_hint_latest(1)
    assert io.exists("snapshot/LATEST") is written
    assert len(faulty.ops) == min(failures + 1, 3)


def test_a_hint_that_cannot_be_read_costs_only_time() -> None:
    io, store = filled(1, 2)
    store.write_hint_latest(2)
    faulty = FaultyFileIO(io, lambda op: Fault.BEFORE if op.path.endswith("LATEST") else None)
    assert store_of(faulty).latest_id() == 2


def test_a_deleted_version_is_gone() -> None:
    _, store = filled(1, 2)
    store.delete(1)
    store.delete(1)
    assert store.ids() == [2]
    assert store.earliest_id() == 2
