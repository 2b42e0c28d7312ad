"""The one promise everything rests on: one winner per name, all or nothing, durable when acknowledged.

Three ways of asking: processes that race for a name, every errno at every step of a publish, and a power loss after
every single call of the file system.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tidelake.errors import NotFoundError, StorageError
from tidelake.io import Created, Exists, LocalFileIO, SequencedStore, SystemClock, Unknown
from tidelake.io.posix import RealPosix
from tidelake.testing import Crash, FakeClock, FaultyPosix, ForgettingPosix, PosixFault, UnsyncedFileIO

RACER = """
import errno, sys, time
from tidelake.io.local import LocalFileIO
from tidelake.io.posix import RealPosix

class Poor(RealPosix):
    def link(self, source, target):
        if mechanism != "link":
            raise OSError(errno.EPERM, "no links here")
        super().link(source, target)
    def rename_noreplace(self, source, target):
        if mechanism == "create":
            raise OSError(errno.ENOSYS, "no renames here")
        super().rename_noreplace(source, target)

root, mechanism, me, rounds, step = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
io = LocalFileIO(root, durability="none", posix=Poor())
won = []
print("ready", flush=True)
start = float(sys.stdin.readline())
for number in range(int(rounds)):
    time.sleep(max(0, start + number * step - time.monotonic()))
    outcome = io.create_exclusive(f"s/{number}", f"{number} by {int(me)} ".encode() * 50)
    if type(outcome).__name__ == "Created":
        won.append(number)
    else:
        assert type(outcome).__name__ == "Exists", outcome
print(*won)
"""


@pytest.mark.parametrize(("mechanism", "rounds"), [("link", 100), ("rename", 60), ("create", 60)])
def test_of_racing_processes_exactly_one_wins_each_name(tmp_path: Path, mechanism: str, rounds: int) -> None:
    racers, step = 8, 0.012
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), mechanism, *map(str, (me, rounds, step))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(racers)
    ]
    assert [child.stdout and child.stdout.readline() for child in children] == ["ready\n"] * racers
    start = SystemClock().monotonic() + 0.1
    for child in children:
        assert child.stdin is not None
        child.stdin.write(f"{start}\n")
        child.stdin.flush()
    won = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0] * racers
    wins = Counter(int(number) for line in won for number in line.split())
    assert wins == dict.fromkeys(range(rounds), 1)
    for me, line in enumerate(won):
        for number in line.split():
            assert (tmp_path / "s" / number).read_bytes() == f"{number} by {me} ".encode() * 50
    assert sorted(os.listdir(tmp_path / "s"), key=int) == [str(number) for number in range(rounds)]
    assert sum(1 for line in won if line.split()) > 1, "no race took place"


def local(root: Path, *faults: PosixFault) -> LocalFileIO:
    LocalFileIO(root).make_dir("s")
    return LocalFileIO(root, posix=FaultyPosix(RealPosix(), faults))


def clean(io: LocalFileIO) -> list[str]:
    return [child.name for child in LocalFileIO(io.root).list("s")]


@pytest.mark.parametrize("call", ["open_new", "write", "fsync", "close"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_failure_before_the_publish_is_certain(tmp_path: Path, call: str, number: int) -> None:
    io = local(tmp_path, PosixFault(call, number, after=call == "close"))
    with pytest.raises(StorageError):
        io.create_exclusive("s/1", b"ours")
    assert clean(io) == []
    assert io.create_exclusive("s/1", b"ours") == Created()


def test_a_folder_that_cannot_be_made_durable_stops_the_publish(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("fsync_dir", errno.EIO))
    with pytest.raises(StorageError):
        io.create_exclusive("s/1", b"ours")
    assert clean(io) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EINTR])
def test_a_link_whose_answer_was_lost_is_ours_when_it_is_there(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", number, after=True))
    assert io.create_exclusive("s/1", b"ours") == Created()
    assert clean(io) == ["1"]


def test_a_repeated_link_that_finds_our_own_file_is_created(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("link", errno.EEXIST, after=True))
    assert io.create_exclusive("s/1", b"ours") == Created()
    assert io.read("s/1") == b"ours"


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_that_may_still_happen_is_unknown(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", number))
    outcome = io.create_exclusive("s/1", b"ours")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.cause, OSError)
    assert outcome.cause.errno == number
    assert clean(io) == []


def test_a_lost_answer_that_cannot_be_looked_up_is_unknown(tmp_path: Path) -> None:
    stats = [PosixFault("lstat", errno.EIO, nth) for nth in range(3, 9)]
    io = local(tmp_path, PosixFault("link", errno.EIO, after=True), *stats)
    assert isinstance(io.create_exclusive("s/1", b"ours"), Unknown)
    assert clean(io) == ["1"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_a_link_that_was_refused_is_certain(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", number))
    with pytest.raises(StorageError):
        io.create_exclusive("s/1", b"ours")
    assert clean(io) == []


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.EPERM, errno.ENOSPC])
def test_whatever_the_link_says_a_file_of_another_is_exists(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", number))
    LocalFileIO(tmp_path).write("s/1", b"theirs")
    assert io.create_exclusive("s/1", b"ours") == Exists()
    assert io.read("s/1") == b"theirs"
    assert clean(io) == ["1"]


NO_LINK = [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS]


@pytest.mark.parametrize("number", NO_LINK)
def test_without_links_a_rename_that_does_not_replace_publishes(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", number, 1), PosixFault("link", number, 2))
    assert io.create_exclusive("s/1", b"ours") == Created()
    assert io.create_exclusive("s/1", b"late") == Exists()
    assert io.read("s/1") == b"ours"
    assert clean(io) == ["1"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST])
def test_a_rename_whose_answer_was_lost_is_ours_when_it_is_there(tmp_path: Path, number: int) -> None:
    io = local(tmp_path, PosixFault("link", errno.EPERM), PosixFault("rename_noreplace", number, after=True))
    assert io.create_exclusive("s/1", b"ours") == Created()
    assert clean(io) == ["1"]


def test_a_rename_that_may_still_happen_is_unknown(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("link", errno.EPERM), PosixFault("rename_noreplace", errno.EIO))
    assert isinstance(io.create_exclusive("s/1", b"ours"), Unknown)
    assert clean(io) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP])
def test_without_either_an_exclusive_create_publishes(tmp_path: Path, number: int) -> None:
    faults = [
        PosixFault(call, code, nth)
        for nth in (1, 2)
        for call, code in (("link", errno.EPERM), ("rename_noreplace", number))
    ]
    io = local(tmp_path, *faults)
    assert io.create_exclusive("s/1", b"ours") == Created()
    assert io.create_exclusive("s/1", b"late") == Exists()
    assert io.read("s/1") == b"ours"
    assert clean(io) == ["1"]


def test_a_torn_exclusive_create_is_taken_back_or_unknown(tmp_path: Path) -> None:
    poor = [PosixFault("link", errno.EPERM), PosixFault("rename_noreplace", errno.ENOSYS)]
    io = local(tmp_path, *poor, PosixFault("write", errno.ENOSPC, 2))
    with pytest.raises(StorageError):
        io.create_exclusive("s/1", b"ours")
    assert clean(io) == []
    io = local(tmp_path, *poor, PosixFault("write", errno.ENOSPC, 2), PosixFault("unlink", errno.EIO, 1))
    assert isinstance(io.create_exclusive("s/1", b"ours"), Unknown)


def test_a_publish_whose_folder_could_not_be_synced_is_unknown(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("fsync_dir", errno.EIO, 2))
    outcome = io.create_exclusive("s/1", b"ours")
    assert isinstance(outcome, Unknown)
    assert io.read("s/1") == b"ours"


def test_a_temporary_file_that_cannot_be_removed_does_not_undo_the_publish(tmp_path: Path) -> None:
    io = local(tmp_path, PosixFault("unlink", errno.EIO))
    assert io.create_exclusive("s/1", b"ours") == Created()
    names = clean(io)
    assert len(names) == 2
    assert names[0].startswith(".1.")


# -- power loss


def commits(io: UnsyncedFileIO, acknowledged: list[int]) -> None:
    """Three commits in the order of a real one: data, one sync, snapshot, hint."""
    table = io.sub("shop.db/orders")
    store = SequencedStore(table, "snapshot", "snapshot-", True, clock=FakeClock())
    for version in (1, 2, 3):
        files = [f"dt={version}/bucket-0/data-{version}", f"manifest/manifest-{version}"]
        for path in files:
            table.write(path, path.encode() * 20, durable=False)
        table.sync(files)
        assert store.publish(version, b'{"id":%d,"pad":"%s"}' % (version, b"x" * 200)) == Created()
        acknowledged.append(version)
        store.write_hint_latest(version)
        store.write_hint_earliest(1)


def lost(io: UnsyncedFileIO, acknowledged: list[int]) -> list[str]:
    """What is wrong with the table now; empty when every promise was kept."""
    table = io.sub("shop.db/orders")
    store = SequencedStore(table, "snapshot", "snapshot-", True, clock=FakeClock())
    ids = store.ids()
    wrong = [f"snapshot {version} was acknowledged and is gone" for version in acknowledged if version not in ids]
    if ids != list(range(1, len(ids) + 1)):
        wrong.append(f"ids are not dense: {ids}")
    if (store.latest_id(), store.earliest_id()) != (max(ids, default=None), min(ids, default=None)):
        wrong.append("a hint changed the answer")
    for version in ids:
        if table.read(f"snapshot/snapshot-{version}") != b'{"id":%d,"pad":"%s"}' % (version, b"x" * 200):
            wrong.append(f"snapshot {version} is torn")
        for path in (f"dt={version}/bucket-0/data-{version}", f"manifest/manifest-{version}"):
            try:
                if table.read(path) != path.encode() * 20:
                    wrong.append(f"{path} is torn")
            except NotFoundError:
                wrong.append(f"{path} is gone")
    return wrong


def power_losses(durability: str, seeds: int) -> list[str]:
    whole = UnsyncedFileIO(clock=FakeClock(), durability=durability)
    commits(whole, [])
    wrong = []
    for crash_at in range(1, len(whole.calls) + 1):
        for seed in range(seeds):
            io = UnsyncedFileIO(clock=FakeClock(), crash_at=crash_at, durability=durability)
            acknowledged: list[int] = []
            with pytest.raises(Crash):
                commits(io, acknowledged)
            io.crash(seed)
            wrong += [f"crash_at={crash_at} seed={seed}: {text}" for text in lost(io, acknowledged)]
    return wrong


def test_a_power_loss_at_any_call_loses_no_acknowledged_commit_and_tears_none() -> None:
    assert power_losses("fsync", seeds=6) == []


def test_without_syncs_the_same_power_losses_are_noticed() -> None:
    wrong = power_losses("none", seeds=12)
    assert [text for text in wrong if "acknowledged" in text]
    assert [text for text in wrong if "torn" in text]


@pytest.mark.parametrize("call", ["fsync", "fsync_file", "fsync_dir"])
def test_each_kind_of_sync_is_needed(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(ForgettingPosix, call, lambda self, where: None)
    assert power_losses("fsync", seeds=3)


def test_after_a_power_loss_the_same_commits_can_be_made_again() -> None:
    whole = UnsyncedFileIO(clock=FakeClock())
    commits(whole, [])
    for crash_at in range(1, len(whole.calls) + 1, 3):
        io = UnsyncedFileIO(clock=FakeClock(), crash_at=crash_at)
        with pytest.raises(Crash):
            commits(io, [])
        io.crash(crash_at)
        io.sub("shop.db").delete_dir("orders")
        again: list[int] = []
        commits(io, again)
        assert again == [1, 2, 3]
        assert lost(io, again) == []
