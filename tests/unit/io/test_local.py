"""What only the local storage does: order of syncs, temporary names, late failures, pickling."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest

from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError
from tidelake.io import Created, LocalFileIO, MemoryFileIO, SeededIds
from tidelake.io.posix import OsFile, RealPosix
from tidelake.testing import FaultyPosix, PosixFault


def traced(root: Path, *faults: PosixFault, durability: str = "fsync") -> tuple[LocalFileIO, FaultyPosix]:
    posix = FaultyPosix(RealPosix(), faults)
    return LocalFileIO(root, durability="none" if durability == "none" else "fsync", posix=posix), posix


def syncs(posix: FaultyPosix) -> list[str]:
    return [name for name, _ in posix.calls if name not in ("lstat", "open_read")]


def test_a_publish_syncs_content_before_the_name_and_the_folder_after(tmp_path: Path) -> None:
    io, posix = traced(tmp_path)
    io.make_dir("snapshot")
    io.create_exclusive("snapshot/snapshot-1", b"{}")
    posix.calls.clear()
    io.create_exclusive("snapshot/snapshot-2", b"{}")
    assert syncs(posix) == ["open_new", "write", "fsync", "close", "link", "unlink", "fsync_dir"]


def test_new_folders_are_durable_before_the_publish(tmp_path: Path) -> None:
    io, posix = traced(tmp_path / "lake")
    io.create_exclusive("db/t/snapshot/snapshot-1", b"{}")
    calls = posix.calls
    link = calls.index(("link", str(tmp_path / "lake/db/t/snapshot/snapshot-1")))
    synced_before = {path for name, path in calls[:link] if name == "fsync_dir"}
    assert synced_before >= {str(tmp_path / folder) for folder in (".", "lake", "lake/db", "lake/db/t")}
    assert ("fsync_dir", str(tmp_path / "lake/db/t/snapshot")) in calls[link:]


def test_a_folder_of_another_process_is_synced_before_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "db/t").mkdir(parents=True)
    io, posix = traced(tmp_path)
    io.write("db/t/data", b"x")
    assert {path for name, path in posix.calls if name == "fsync_dir"} == {
        str(tmp_path),
        str(tmp_path / "db"),
        str(tmp_path / "db/t"),
    }
    posix.calls.clear()
    io.write("db/t/data2", b"x")
    assert [path for name, path in posix.calls if name == "fsync_dir"] == [str(tmp_path / "db/t")]


def test_a_folder_that_was_deleted_and_made_again_is_synced_again(tmp_path: Path) -> None:
    io, posix = traced(tmp_path)
    io.write("p/data", b"x")
    io.delete_dir("p")
    posix.calls.clear()
    io.write("p/data", b"x")
    assert ("fsync_dir", str(tmp_path)) in posix.calls


def test_sync_covers_writes_that_were_not_durable(tmp_path: Path) -> None:
    io, posix = traced(tmp_path)
    io.write("b0/a", b"x", durable=False)
    io.write("b0/b", b"x", durable=False)
    assert "fsync" not in syncs(posix)
    assert "fsync_dir" not in syncs(posix)
    posix.calls.clear()
    io.sync(["b0/a", "b0/b"])
    assert syncs(posix) == ["fsync_file", "fsync_file", "fsync_dir", "fsync_dir"]
    with pytest.raises(NotFoundError):
        io.sync(["b0/missing"])


def test_durability_none_never_syncs(tmp_path: Path) -> None:
    io, posix = traced(tmp_path, durability="none")
    io.write("d/a", b"x")
    io.overwrite("d/h", b"x")
    assert io.create_exclusive("d/s", b"x") == Created()
    io.sync(["d/a", "d"])
    io.make_dir("e/f")
    assert not [name for name in syncs(posix) if name.startswith("fsync")]


def test_a_file_whose_write_failed_is_not_left_behind(tmp_path: Path) -> None:
    for call in ("write", "fsync", "close"):
        io, _ = traced(tmp_path / call, PosixFault(call, errno.ENOSPC, after=call == "close"))
        for attempt in (io.write, io.overwrite):
            io, _ = traced(tmp_path / call, PosixFault(call, errno.ENOSPC, after=call == "close"))
            attempt = getattr(io, attempt.__name__)
            with pytest.raises(StorageError) as caught:
                attempt("d/f", b"data")
            assert caught.value.facts["errno"] == "ENOSPC"
            assert "space" in str(caught.value.hint)
            assert io.list("d") == []


def test_a_failed_replace_keeps_the_old_bytes(tmp_path: Path) -> None:
    LocalFileIO(tmp_path).overwrite("LATEST", b"1")
    io, _ = traced(tmp_path, PosixFault("replace", errno.EIO))
    with pytest.raises(StorageError):
        io.overwrite("LATEST", b"2")
    assert io.read("LATEST") == b"1"
    assert [child.name for child in io.list("")] == ["LATEST"]


@pytest.mark.parametrize(
    ("call", "ask"),
    [
        ("open_read", lambda io: io.read("f")),
        ("lstat", lambda io: io.status("f")),
        ("scandir", lambda io: io.list("")),
        ("unlink", lambda io: io.delete("f")),
        ("remove_tree", lambda io: io.delete_dir("d")),
        ("fsync_file", lambda io: io.sync(["f"])),
        ("fsync_dir", lambda io: io.sync([""])),
        ("mkdir", lambda io: io.make_dir("new")),
    ],
)
def test_an_input_output_error_is_typed_and_names_the_file(tmp_path: Path, call: str, ask) -> None:  # type: ignore[no-untyped-def]
    LocalFileIO(tmp_path).write("d/f", b"x")
    LocalFileIO(tmp_path).write("f", b"x")
    io, _ = traced(tmp_path, PosixFault(call, errno.EIO))
    with pytest.raises(StorageError) as caught:
        ask(io)
    assert str(tmp_path) in caught.value.facts["path"]
    assert caught.value.facts["errno"] == "EIO"


def test_a_folder_pruned_while_writing_is_made_again(tmp_path: Path) -> None:
    io, posix = traced(tmp_path, PosixFault("open_new", errno.ENOENT, 1), PosixFault("open_new", errno.ENOENT, 2))
    io.write("p/f", b"x")
    assert io.read("p/f") == b"x"
    assert [name for name, _ in posix.calls].count("open_new") == 3


def test_delete_dir_bears_a_second_deleter(tmp_path: Path) -> None:
    io, _ = traced(tmp_path, PosixFault("remove_tree", errno.ENOENT, 1), PosixFault("remove_tree", errno.ENOTEMPTY, 2))
    io.write("d/f", b"x")
    io.delete_dir("d")
    assert not io.exists("d")


def test_delete_of_a_folder_says_what_to_use(tmp_path: Path) -> None:
    for io in (LocalFileIO(tmp_path), MemoryFileIO()):
        io.write("d/f", b"x")
        with pytest.raises(InvalidInputError, match="delete_dir"):
            io.delete("d")


def test_a_file_in_the_place_of_a_folder_is_a_storage_error(tmp_path: Path) -> None:
    for io in (LocalFileIO(tmp_path), MemoryFileIO()):
        io.write("f", b"x")
        for attempt in (io.write, io.overwrite, io.create_exclusive):
            with pytest.raises(StorageError):
                attempt("f/below", b"x")
        assert not io.exists("f/below")
        with pytest.raises(NotFoundError):
            io.read("f/below")


def test_temporary_names_hide_and_fit(tmp_path: Path) -> None:
    io, posix = traced(tmp_path)
    io.create_exclusive("é" * 127, b"x")
    io.overwrite("snapshot-1", b"x")
    names = [os.path.basename(path) for name, path in posix.calls if name == "open_new"]
    assert all(name.startswith(".") and name.endswith(".tmp") and len(name.encode()) <= 255 for name in names)
    assert names[1].startswith(".snapshot-1.")


def test_a_path_too_long_for_the_system_is_an_input_error(tmp_path: Path) -> None:
    io = LocalFileIO(tmp_path)
    with pytest.raises(InvalidInputError):
        io.write("/".join(["x" * 200] * 30), b"x")


def test_permissions_are_explained(tmp_path: Path) -> None:
    io, _ = traced(tmp_path, PosixFault("open_new", errno.EACCES))
    with pytest.raises(StorageError, match="permissions"):
        io.write("f", b"x")


def test_a_local_storage_pickles_by_its_folder(tmp_path: Path) -> None:
    io = LocalFileIO(tmp_path, durability="none").sub("t")
    again = pickle.loads(pickle.dumps(io))
    assert again.root == io.root
    again.write("f", b"x")
    assert io.read("f") == b"x"
    with pytest.raises(InvalidInputError):
        pickle.dumps(traced(tmp_path)[0])
    with pytest.raises(InvalidInputError):
        pickle.dumps(MemoryFileIO())


@pytest.mark.parametrize("root", ["", "a\0b"])
def test_a_root_must_be_a_folder_name(root: str) -> None:
    with pytest.raises(InvalidInputError):
        LocalFileIO(root)


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        LocalFileIO(tmp_path, durability="maybe")  # type: ignore[arg-type]


def test_seeded_names_make_runs_repeatable(tmp_path: Path) -> None:
    runs = []
    for run in ("a", "b"):
        posix = FaultyPosix(RealPosix())
        io = LocalFileIO(tmp_path / run, ids=SeededIds(7), posix=posix)
        io.create_exclusive("s", b"x")
        runs.append([os.path.basename(path) for name, path in posix.calls if name == "open_new"])
    assert runs[0] == runs[1]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    io = LocalFileIO(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    io.write("d/f", b"x")
    io.create_exclusive("d/s", b"x")
    io.create_exclusive("d/s", b"x")
    io.overwrite("d/h", b"x")
    io.sync(["d/f"])
    io.list("d")
    io.read("d/f")
    io.read_range("d/f", 0, 1)
    for fault in ("write", "fsync", "fsync_dir", "link"):
        faulty, _ = traced(tmp_path, PosixFault(fault, errno.EIO))
        try:
            faulty.create_exclusive(f"d/{fault}", b"x")
        except StorageError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_impossible_claim_is_refused_before_any_byte_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = LocalFileIO(tmp_path)
    io.write("f", b"x" * 100)
    reads: list[object] = []
    monkeypatch.setattr(OsFile, "read", lambda self, size=-1: reads.append(size) or b"")
    with pytest.raises(FormatError):
        io.read("f", limit=99)
    with pytest.raises(FormatError):
        io.read_range("f", 0, 10**15)
    assert reads == []


def test_a_file_that_grows_while_it_is_read_still_meets_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = LocalFileIO(tmp_path)
    io.write("f", b"x" * 100)
    monkeypatch.setattr(OsFile, "size", lambda self: 10)
    with pytest.raises(FormatError):
        io.read("f", limit=50)


def test_a_very_long_read_is_made_of_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.io.posix._READ_BYTES_MAX", 7)
    io = LocalFileIO(tmp_path)
    io.write("f", bytes(range(100)))
    assert io.read_range("f", 0, 100) == bytes(range(100))
    assert io.read_range("f", 50, 20) == bytes(range(50, 70))
