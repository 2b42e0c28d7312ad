"""Moving a folder: in one step, onto nothing, and for good once the call has returned."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tidelake.errors import InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io import FileIO, LocalFileIO, MemoryFileIO, ThreadExecutor
from tidelake.io.posix import RealPosix
from tidelake.testing import Crash, FaultyFileIO, TracingFileIO, UnsyncedFileIO
from tidelake.testing.faulty import FaultyPosix, PosixFault

FILES = {"schema/schema-0": b"s", "deep/er/file": b"data", "top": b""}


@pytest.fixture
def movable(fileio: FileIO) -> FileIO:
    """A storage that moves folders; the refusal of the others has a test of its own."""
    if "ObjectStore" in type(fileio).__name__:
        with pytest.raises(UnsupportedError) as caught:
            fileio.rename_dir("a", "b")
        assert caught.value.code == "rename-not-atomic"
        return MemoryFileIO()
    return fileio


def fill(io: FileIO, folder: str) -> None:
    for name, data in FILES.items():
        io.write(f"{folder}/{name}", data)


def holds(io: FileIO, folder: str) -> bool:
    """Whether the folder is there; if so it must be whole."""
    if not io.exists(folder):
        return False
    assert {name: io.read(f"{folder}/{name}") for name in FILES} == FILES
    return True


def test_a_folder_moves_with_all_that_is_below_it(movable: FileIO) -> None:
    fill(movable, "a.db/t")
    movable.write("a.db/other", b"stays")
    movable.write("b.db/there", b"before")
    movable.rename_dir("a.db/t", "b.db/u")
    assert holds(movable, "b.db/u")
    assert not movable.exists("a.db/t")
    assert [each.name for each in movable.list("a.db")] == ["other"]
    assert [each.name for each in movable.list("b.db")] == ["there", "u"]
    movable.write("b.db/u/new", b"n")
    movable.rename_dir("b.db/u", "a.db/t")
    assert holds(movable, "a.db/t")
    assert movable.read("a.db/t/new") == b"n"


def test_the_folders_above_the_new_name_are_made(movable: FileIO) -> None:
    fill(movable, "t")
    movable.rename_dir("t", "x/y/z")
    assert holds(movable, "x/y/z")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_name_that_is_taken_stays_what_it_is(movable: FileIO, kind: str) -> None:
    fill(movable, "a")
    movable.write("b" if kind == "file" else "b/f", b"mine")
    with pytest.raises(StorageError) as caught:
        movable.rename_dir("a", "b")
    assert caught.value.code == "file-exists"
    assert holds(movable, "a")
    assert movable.read("b" if kind == "file" else "b/f") == b"mine"


def test_an_empty_folder_is_in_the_way_too(movable: FileIO) -> None:
    fill(movable, "a")
    movable.make_dir("b")
    with pytest.raises(StorageError) as caught:
        movable.rename_dir("a", "b")
    assert caught.value.code == "file-exists"
    assert holds(movable, "a")


def test_what_is_not_a_folder_is_not_moved(movable: FileIO) -> None:
    movable.write("file", b"")
    for source in ("missing", "file"):
        with pytest.raises(NotFoundError):
            movable.rename_dir(source, "elsewhere")
    assert not movable.exists("elsewhere")


@pytest.mark.parametrize(
    ("source", "target"), [("", "a"), ("a", ""), ("a", "a/b"), ("a/b", "a"), ("a", "a"), ("a", "../b")]
)
def test_a_folder_is_not_moved_into_itself_nor_outside(movable: FileIO, source: str, target: str) -> None:
    fill(movable, "a/b")
    with pytest.raises(InvalidInputError):
        movable.rename_dir(source, target)
    assert holds(movable, "a/b")


def test_of_racing_movers_one_wins_and_the_others_keep_theirs(movable: FileIO) -> None:
    executor = ThreadExecutor(4)
    for number in range(4):
        movable.write(f"from-{number}/id", str(number).encode())

    def move(number: int) -> bool:
        try:
            movable.rename_dir(f"from-{number}", "goal")
        except StorageError:
            return False
        return True

    try:
        won = executor.map(move, range(4))
    finally:
        executor.close()
    assert sum(won) == 1
    assert movable.read("goal/id") == str(won.index(True)).encode()
    assert [movable.exists(f"from-{number}") for number in range(4)] == [not winner for winner in won]


def test_what_was_opened_below_the_old_name_finds_nothing_there(movable: FileIO) -> None:
    fill(movable, "t")
    below = movable.sub("t")
    assert below.read("top") == b""
    movable.rename_dir("t", "u")
    with pytest.raises(NotFoundError):
        below.read("top")
    assert movable.sub("u").read("top") == b""


# ------------------------------------------------------------------------------------------------ disks with habits


def local(folder: Path, *faults: PosixFault) -> LocalFileIO:
    return LocalFileIO(folder, posix=FaultyPosix(RealPosix(), faults))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_promise_to_replace_nothing_moves_too(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, *(PosixFault("rename_noreplace", number, nth=nth) for nth in (1, 2)))
    fill(io, "a")
    io.rename_dir("a", "b")
    assert holds(io, "b")
    fill(io, "a")
    with pytest.raises(StorageError) as caught:
        io.rename_dir("a", "b")
    assert caught.value.code == "file-exists"


def test_a_lost_reply_to_a_rename_that_happened_is_not_a_failure(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("rename_noreplace", errno.EEXIST, after=True))
    fill(io, "a")
    io.rename_dir("a", "b")
    assert holds(io, "b")
    assert not io.exists("a")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", ["rename_noreplace", "fsync_dir"])
def test_a_disk_that_fails_leaves_the_folder_whole_under_one_name(tmp_path: Path, call: str, after: bool) -> None:
    clean = local(tmp_path / "clean")
    fill(clean, "a")
    before = sum(name == call for name, _ in clean._posix.calls)
    clean.rename_dir("a", "b")
    count = sum(name == call for name, _ in clean._posix.calls) - before
    assert count > 0
    for nth in range(1, count + 1):
        io = local(tmp_path / str(nth), PosixFault(call, errno.EIO, nth=before + nth, after=after))
        fill(io, "a")
        with_error = False
        try:
            io.rename_dir("a", "b")
        except StorageError:
            with_error = True
        again = LocalFileIO(tmp_path / str(nth))
        assert holds(again, "a") is not holds(again, "b")
        assert with_error or holds(again, "b")


def test_power_loss_leaves_the_folder_whole_under_one_name() -> None:
    clean = UnsyncedFileIO()
    fill(clean, "a.db/t")
    clean.make_dir("b.db")
    first = len(clean.calls)
    clean.rename_dir("a.db/t", "b.db/u")
    names = set()
    for number in range(first + 1, len(clean.calls) + 2):
        for seed in range(8):
            io = UnsyncedFileIO()
            fill(io, "a.db/t")
            io.make_dir("b.db")
            io.faults.crash_at = number
            done = False
            try:
                io.rename_dir("a.db/t", "b.db/u")
                done = True
            except Crash:
                pass
            io.crash(seed)
            old, new = holds(io, "a.db/t"), holds(io, "b.db/u")
            assert old is not new
            assert new or not done, "an acknowledged rename was forgotten"
            names.add(new)
    assert names == {True, False}


def test_the_fakes_pass_the_rename_on_and_number_it() -> None:
    traced = TracingFileIO(MemoryFileIO())
    fill(traced, "a")
    traced.sub("").rename_dir("a", "b")
    assert traced.ops[-1].name == "rename_dir"
    count = len(traced.ops)
    for fault, moved in (("before", False), ("after", True), ("crash", False), ("crash_after", True)):
        faulty = FaultyFileIO(MemoryFileIO(), {count: fault})
        fill(faulty, "a")
        with pytest.raises(Crash if "crash" in fault else StorageError):
            faulty.rename_dir("a", "b")
        assert holds(faulty.inner, "b") is moved
        assert holds(faulty.inner, "a") is not moved
