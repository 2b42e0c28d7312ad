"""The storage is tried before it is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.s3_server import ScriptedS3, storage_options
from tidelake.errors import StorageError
from tidelake.io import Created, FileIO, LocalFileIO, MemoryFileIO, Outcome, SystemClock, Unknown, open_fileio, selftest
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import FaultyFileIO
from tidelake.testing.faulty import Fault


def test_every_storage_passes_and_is_left_clean(fileio: FileIO) -> None:
    fileio.write("keep", b"x")
    probe_create_exclusive(fileio, again=True)
    assert [child.name for child in fileio.list("")] == ["keep"]


def test_a_pass_is_remembered_for_the_location(tmp_path: Path) -> None:
    for expected in (12, 0):
        counting = FaultyFileIO(LocalFileIO(tmp_path))
        probe_create_exclusive(counting)
        assert len(counting.ops) == expected
    other = FaultyFileIO(LocalFileIO(tmp_path / "other"))
    probe_create_exclusive(other)
    assert other.ops


def test_the_local_probe_is_quick(tmp_path: Path) -> None:
    clock = SystemClock()
    times = []
    for _ in range(5):
        start = clock.monotonic()
        probe_create_exclusive(LocalFileIO(tmp_path), again=True)
        times.append(clock.monotonic() - start)
    assert min(times) < 0.25


class CheckThenRename(MemoryFileIO):
    """The mistake this guards against: look, then replace."""

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        if not self.exists(path):
            SystemClock().sleep(0.005)
        self.overwrite(path, data)
        return Created()


class Amnesiac(MemoryFileIO):
    """Says created, and keeps nothing."""

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        return Created()


class Replaced(MemoryFileIO):
    """One winner, whose bytes are then replaced."""

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        outcome = super().create_exclusive(path, data)
        self.overwrite(path, b"other")
        return outcome


class Flatterer(MemoryFileIO):
    """A storage that reports success to every writer of a file."""

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        super().create_exclusive(path, data)
        return Created()


def test_several_winners_are_counted() -> None:
    with pytest.raises(StorageError) as caught:
        probe_create_exclusive(Flatterer())
    assert caught.value.facts["winners"] == "10"


@pytest.mark.parametrize("unfit", [CheckThenRename, Amnesiac, Replaced, Flatterer])
def test_an_unfit_storage_is_refused_and_the_fix_is_named(unfit: type[MemoryFileIO]) -> None:
    io = unfit()
    with pytest.raises(StorageError) as caught:
        probe_create_exclusive(io)
    assert caught.value.code == "no-exclusive-create"
    assert "unsafe.commit=true" in str(caught.value.hint)
    assert io.list("") == []
    with pytest.raises(StorageError):
        probe_create_exclusive(io)


@pytest.mark.s3
def test_a_store_that_ignores_the_condition_is_found_out() -> None:
    server = ScriptedS3()
    server.script = ["ignore"] * 10
    with server.serve() as endpoint:
        io = open_fileio("s3://bucket/t", {**storage_options(endpoint), "disable_bulk_delete": "true"})
        with pytest.raises(StorageError) as caught:
            probe_create_exclusive(io)
    assert caught.value.code == "no-exclusive-create"


def test_a_lost_answer_does_not_condemn_the_storage() -> None:
    io = FaultyFileIO(MemoryFileIO(), lambda op: Fault.AFTER if op.number == 1 else None)
    probe_create_exclusive(io, racers=1, again=True)
    assert len(io.injected_faults) == 1


def test_a_storage_that_never_answers_is_not_trusted() -> None:
    class Silent(MemoryFileIO):
        def create_exclusive(self, path: str, data: bytes) -> Outcome:
            return Unknown(StorageError("no answer"))

    with pytest.raises(StorageError):
        probe_create_exclusive(Silent())


def test_a_failing_storage_raises_its_own_error() -> None:
    io = FaultyFileIO(MemoryFileIO(), lambda op: Fault.BEFORE if op.name == "create_exclusive" else None)
    with pytest.raises(StorageError) as caught:
        probe_create_exclusive(io, again=True)
    assert caught.value.code == "storage"


def test_a_process_at_its_thread_limit_gets_an_error_and_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread_class, started = selftest.threading.Thread, []
    start = thread_class.start

    def scarce(thread: Any) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(thread_class, "start", scarce)
    with pytest.raises(StorageError, match="threads could not be started"):
        probe_create_exclusive(MemoryFileIO("scarce"), again=True)
    assert len(started) == 3
    assert not any(thread.is_alive() for thread in started)
