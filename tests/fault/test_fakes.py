"""The fakes do what they claim: a fault that does not bite would make every other test worthless."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

import pytest

import tidelake.testing
from tidelake.errors import NotFoundError, StorageError
from tidelake.io import Created, FileIO, MemoryFileIO, Unknown
from tidelake.testing import (
    Chance,
    Crash,
    Fault,
    FaultyFileIO,
    FaultyPosix,
    ForgettingPosix,
    PosixFault,
    UnsyncedFileIO,
)

OPS: dict[str, Callable[[FileIO], object]] = {
    "read": lambda io: io.read("old"),
    "read_range": lambda io: io.read_range("old", 0, 1),
    "open_input": lambda io: io.open_input("old"),
    "exists": lambda io: io.exists("old"),
    "status": lambda io: io.status("old"),
    "list": lambda io: io.list(""),
    "write": lambda io: io.write("new", b"12345678"),
    "overwrite": lambda io: io.overwrite("old", b"12345678"),
    "create_exclusive": lambda io: io.create_exclusive("new", b"12345678"),
    "make_dir": lambda io: io.make_dir("dir"),
    "delete": lambda io: io.delete("old"),
    "delete_dir": lambda io: io.delete_dir("folder"),
    "sync": lambda io: io.sync(["old"]),
}


def storage() -> MemoryFileIO:
    io = MemoryFileIO()
    io.write("old", b"old bytes")
    io.write("folder/f", b"x")
    return io


def picture(io: FileIO, path: str = "") -> dict[str, bytes]:
    found = {}
    for child in io.list(path):
        found |= (
            {child.path + "/": b"", **picture(io, child.path)} if child.is_dir else {child.path: io.read(child.path)}
        )
    return found


def effect_of(name: str) -> dict[str, bytes]:
    io = storage()
    OPS[name](io)
    return picture(io)


def test_without_a_plan_nothing_fails_and_all_is_logged() -> None:
    inner = storage()
    io = FaultyFileIO(inner)
    for name, run in OPS.items():
        if name != "delete":
            run(io)
    assert [op.name for op in io.ops] == [name for name in OPS if name != "delete"]
    assert [op.number for op in io.ops] == list(range(1, len(OPS)))
    assert io.injected_faults == []
    assert io.root == inner.root
    io.close()


@pytest.mark.parametrize("name", OPS)
def test_before_has_no_effect(name: str) -> None:
    io = FaultyFileIO(storage(), {1: "before"})
    with pytest.raises(StorageError):
        OPS[name](io)
    assert picture(io.inner) == picture(storage())
    assert [(op.name, fault) for op, fault in io.injected_faults] == [(name, Fault.BEFORE)]
    OPS[name](io)
    assert picture(io.inner) == effect_of(name)


@pytest.mark.parametrize("name", OPS)
def test_after_has_the_effect_and_hides_it(name: str) -> None:
    io = FaultyFileIO(storage(), {1: Fault.AFTER})
    if name == "create_exclusive":
        assert isinstance(OPS[name](io), Unknown)
    else:
        with pytest.raises(StorageError):
            OPS[name](io)
    assert picture(io.inner) == effect_of(name)


@pytest.mark.parametrize("name", OPS)
def test_lost_is_an_unknown_publish_without_effect(name: str) -> None:
    io = FaultyFileIO(storage(), {1: Fault.LOST})
    if name == "create_exclusive":
        assert isinstance(OPS[name](io), Unknown)
    else:
        with pytest.raises(StorageError):
            OPS[name](io)
    assert picture(io.inner) == picture(storage())


@pytest.mark.parametrize("fault", [Fault.TORN, Fault.NO_SPACE])
@pytest.mark.parametrize("name", OPS)
def test_torn_leaves_half_of_a_write_and_nothing_of_what_is_atomic(name: str, fault: Fault) -> None:
    io = FaultyFileIO(storage(), {1: fault})
    with pytest.raises(StorageError):
        OPS[name](io)
    half = {"new": b"1234"} if name == "write" else {}
    assert picture(io.inner) == picture(storage()) | half


@pytest.mark.parametrize("name", ["read", "read_range", "open_input", "status"])
def test_not_found_hides_a_file_from_a_reader(name: str) -> None:
    io = FaultyFileIO(storage(), {1: Fault.NOT_FOUND})
    with pytest.raises(NotFoundError):
        OPS[name](io)
    OPS[name](io)


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.CRASH_AFTER])
@pytest.mark.parametrize("name", OPS)
def test_a_crash_is_final_until_the_process_starts_again(name: str, fault: Fault) -> None:
    io = FaultyFileIO(storage(), {1: fault})
    with pytest.raises(Crash):
        OPS[name](io)
    assert io.has_crashed
    for run in OPS.values():
        with pytest.raises(Crash):
            run(io.sub("below") if run is OPS["list"] else io)
    assert picture(io.inner) == (effect_of(name) if fault is Fault.CRASH_AFTER else picture(storage()))
    io.revive()
    OPS["list"](io)


def test_a_crash_is_no_ordinary_exception() -> None:
    assert not issubclass(Crash, Exception)


def test_storages_below_share_the_plan_and_the_log() -> None:
    io = FaultyFileIO(storage(), {2: Fault.BEFORE})
    below = io.sub("a").sub("b")
    below.write("f", b"x")
    with pytest.raises(StorageError):
        io.read("old")
    assert [(op.number, op.name, op.path) for op in io.ops] == [(1, "write", "a/b/f"), (2, "read", "old")]
    assert below.ops is io.ops


def run_by_chance(seed: int, **settings: float) -> list[tuple[int, Fault]]:
    io = FaultyFileIO(storage(), Chance(seed, **settings))  # type: ignore[arg-type]
    for _ in range(300):
        try:
            io.read("old")
        except (StorageError, NotFoundError):
            continue
    return [(op.number, fault) for op, fault in io.injected_faults]


def test_chance_repeats_by_its_seed_and_stops_at_its_limit() -> None:
    first = run_by_chance(1, p=0.2)
    assert first == run_by_chance(1, p=0.2)
    assert first != run_by_chance(2, p=0.2)
    assert 30 < len(first) < 100
    assert {fault for _, fault in first} >= {Fault.BEFORE, Fault.AFTER, Fault.NOT_FOUND, Fault.NO_SPACE}
    assert len(run_by_chance(1, p=0.9, max_faults=7)) == 7
    assert run_by_chance(1, p=0.0) == []


def test_the_loop_over_every_operation_visits_them_all() -> None:
    def scenario(io: FileIO) -> None:
        io.write("a", b"1")
        io.create_exclusive("b", b"2")
        io.overwrite("c", b"3")

    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean)
    visited = []
    for op in clean.ops:
        io = FaultyFileIO(MemoryFileIO(), {op.number: Fault.CRASH})
        with pytest.raises(Crash):
            scenario(io)
        visited.append(sorted(picture(io.inner)))
    assert visited == [[], ["a"], ["a", "b"]]


# -- the disk that forgets


def outcomes(prepare: Callable[[UnsyncedFileIO], object], look: Callable[[UnsyncedFileIO], object]) -> set[object]:
    seen = set()
    for seed in range(60):
        io = UnsyncedFileIO()
        prepare(io)
        io.crash(seed)
        seen.add(look(io))
    return seen


def content(path: str) -> Callable[[UnsyncedFileIO], object]:
    return lambda io: io.read(path) if io.exists(path) else None


def test_a_durable_write_survives() -> None:
    assert outcomes(lambda io: io.write("d/e/f", b"12345678"), content("d/e/f")) == {b"12345678"}


def test_an_unsynced_write_may_vanish_tear_or_survive() -> None:
    seen = outcomes(lambda io: io.write("f", b"12345678", durable=False), content("f"))
    assert {None, b"", b"12345678"} <= seen
    assert any(isinstance(data, bytes) and 0 < len(data) < 8 for data in seen)
    assert any(isinstance(data, bytes) and len(data) == 8 and data.endswith(b"\0") for data in seen)


def test_a_synced_write_survives() -> None:
    def prepare(io: UnsyncedFileIO) -> None:
        io.write("d/f", b"1234", durable=False)
        io.sync(["d/f"])

    assert outcomes(prepare, content("d/f")) == {b"1234"}


def test_an_overwrite_is_old_or_new_and_never_between() -> None:
    def prepare(io: UnsyncedFileIO) -> None:
        io.overwrite("h", b"old")
        io.faults.crash_at = len(io.calls) + 5
        with pytest.raises(Crash):
            io.overwrite("h", b"new")

    assert outcomes(prepare, content("h")) <= {b"old", b"new"}


def test_an_unsynced_delete_may_come_back_and_a_synced_one_does_not() -> None:
    def delete(io: UnsyncedFileIO) -> None:
        io.write("d/f", b"x")
        io.delete("d/f")

    def delete_and_sync(io: UnsyncedFileIO) -> None:
        delete(io)
        io.sync(["d"])

    assert outcomes(delete, content("d/f")) == {None, b"x"}
    assert outcomes(delete_and_sync, content("d/f")) == {None}


def test_a_publish_is_durable_once_created() -> None:
    def prepare(io: UnsyncedFileIO) -> None:
        assert io.create_exclusive("s/1", b"{}") == Created()

    assert outcomes(prepare, content("s/1")) == {b"{}"}


def test_a_crash_repeats_by_its_seed() -> None:
    def after(seed: int) -> dict[str, bytes]:
        io = UnsyncedFileIO()
        for number in range(10):
            io.write(f"d{number % 3}/{number}", bytes([number]) * 10, durable=False)
        io.crash(seed)
        return picture(io)

    assert after(1) == after(1)
    assert len({str(after(seed)) for seed in range(10)}) > 5


def test_a_crash_point_stops_all_calls_until_the_power_is_back() -> None:
    io = UnsyncedFileIO(crash_at=3)
    with pytest.raises(Crash):
        io.write("a/b", b"x")
    with pytest.raises(Crash):
        io.list("")
    io.crash(0)
    io.write("a/c", b"x")
    assert io.read("a/c") == b"x"


def test_the_forgetting_disk_answers_as_posix_does() -> None:
    disk = ForgettingPosix()
    disk.mkdir("/d")
    fd = disk.open_new("/d/f")
    disk.close(fd)
    cases: list[tuple[Callable[[], object], int]] = [
        (lambda: disk.open_new("/d/f"), errno.EEXIST),
        (lambda: disk.open_new("/x/f"), errno.ENOENT),
        (lambda: disk.open_new("/d/f/g"), errno.ENOTDIR),
        (lambda: disk.lstat("/d/f/g"), errno.ENOTDIR),
        (lambda: disk.write(fd, b"x"), errno.EBADF),
        (lambda: disk.open_read("/d"), errno.EISDIR),
        (lambda: disk.open_read("/x"), errno.ENOENT),
        (lambda: disk.fsync_dir("/d/f"), errno.ENOTDIR),
        (lambda: disk.link("/d/f", "/d"), errno.EEXIST),
        (lambda: disk.link("/x", "/y"), errno.ENOENT),
        (lambda: disk.rename_noreplace("/d/f", "/d"), errno.EEXIST),
        (lambda: disk.unlink("/d"), errno.EISDIR),
        (lambda: disk.unlink("/x"), errno.ENOENT),
        (lambda: disk.mkdir("/d"), errno.EEXIST),
        (lambda: disk.scandir("/d/f"), errno.ENOTDIR),
        (lambda: disk.remove_tree("/x"), errno.ENOENT),
    ]
    for call, number in cases:
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
            call()
        assert caught.value.errno == number
    disk.rename_noreplace("/d/f", "/g")
    assert [name for name, _ in disk.scandir("/d")] == []
    assert disk.lstat("/g").size == 0


def test_a_posix_fault_strikes_the_call_it_names() -> None:
    posix = FaultyPosix(
        ForgettingPosix(), [PosixFault("mkdir", errno.EIO, 2), PosixFault("mkdir", errno.EIO, 3, after=True)]
    )
    posix.mkdir("/a")
    for path, there in (("/b", False), ("/c", True)):
        with pytest.raises(OSError, match="Input/output error") as caught:
            posix.mkdir(path)
        assert caught.value.errno == errno.EIO
        assert (path[1:] in [name for name, _ in posix.scandir("/")]) is there


def test_the_package_offers_every_fake_by_name() -> None:
    for name in tidelake.testing.__all__:
        assert getattr(tidelake.testing, name).__name__ == name
    with pytest.raises(AttributeError):
        tidelake.testing.no_such_fake  # noqa: B018 - the look-up is the point
