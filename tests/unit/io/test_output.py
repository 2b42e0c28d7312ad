"""The door for files that are written piece by piece."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kit.s3_server import BUCKET
from tidelake.errors import InvalidInputError, StorageError
from tidelake.io import FileIO, LocalFileIO, MemoryFileIO, open_fileio
from tidelake.io.posix import RealPosix
from tidelake.testing import Crash, Fault, FaultyFileIO, FaultyPosix, PosixFault, TracingFileIO, UnsyncedFileIO

BIG = bytes(range(256)) * 8192  # two megabytes


@pytest.mark.parametrize("durable", [True, False])
def test_pieces_of_any_size_come_out_in_order(fileio: FileIO, durable: bool) -> None:
    output = fileio.open_output("bucket-0/data", durable=durable)
    pieces = [b"", b"a", BIG, b"b" * 1000, memoryview(b"cc"), BIG[:700_000], BIG[:700_000]]
    for piece in pieces:
        assert output.write(piece) == len(piece)
    whole = b"".join(bytes(piece) for piece in pieces)
    assert output.tell() == len(whole)
    assert not output.closed
    output.close()
    output.close()
    assert output.closed
    assert fileio.read("bucket-0/data") == whole
    with pytest.raises(InvalidInputError, match="closed"):
        output.write(b"x")


def test_a_buffer_may_be_reused_after_the_write(fileio: FileIO) -> None:
    output = fileio.open_output("f")
    buffer = bytearray(b"first")
    output.write(memoryview(buffer))
    buffer[:] = b"other"
    output.close()
    assert fileio.read("f") == b"first"


@pytest.mark.parametrize("size", [0, 10, len(BIG)])
def test_abort_leaves_nothing(fileio: FileIO, size: int) -> None:
    output = fileio.open_output("bucket-0/data")
    output.write(BIG[:size])
    output.abort()
    output.abort()
    assert output.closed
    assert not fileio.exists("bucket-0/data", folder=False)


def test_abort_after_close_keeps_the_file(fileio: FileIO) -> None:
    output = fileio.open_output("f")
    output.write(b"x")
    output.close()
    output.abort()
    assert fileio.read("f") == b"x"


def test_a_name_that_is_taken_is_refused(fileio: FileIO) -> None:
    fileio.write("f", b"first")
    with pytest.raises(StorageError) as caught:
        fileio.open_output("f")
    assert caught.value.code == "file-exists"
    assert fileio.read("f") == b"first"


def test_of_two_outputs_of_one_name_the_first_to_finish_stays_in_memory() -> None:
    io = MemoryFileIO()
    one, other = io.open_output("f"), io.open_output("f")
    one.write(b"one")
    other.write(b"other")
    one.close()
    with pytest.raises(StorageError):
        other.close()
    assert io.read("f") == b"one"


@pytest.mark.s3
def test_an_object_in_many_parts_appears_when_it_is_closed(
    s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fileio = open_fileio(f"s3://{BUCKET}/outputs", s3_options)
    monkeypatch.setattr("tidelake.io.object_store.PART_BYTES", 5 << 20)
    output = fileio.open_output("large")
    for _ in range(8):
        output.write(BIG)
    assert not fileio.exists("large")
    output.close()
    assert fileio.read("large") == BIG * 8
    output = fileio.open_output("given up")
    for _ in range(8):
        output.write(BIG)
    output.abort()
    assert not fileio.exists("given up")


def write_big(io: FileIO) -> None:
    output = io.open_output("bucket-0/data")
    try:
        output.write(BIG)
        output.close()
    except StorageError:
        output.abort()
        raise


@pytest.mark.parametrize("call", ["open_new", "write", "fsync", "close", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path, call: str, number: int) -> None:
    io = LocalFileIO(tmp_path / "lake", posix=FaultyPosix(RealPosix(), [PosixFault(call, number)]))
    with pytest.raises(StorageError) as caught:
        write_big(io)
    assert caught.value.facts["errno"] == errno.errorcode[number]
    assert LocalFileIO(tmp_path / "lake").list("bucket-0") == []


def test_a_closed_file_survives_a_power_loss_at_every_seed() -> None:
    for seed in range(20):
        io = UnsyncedFileIO()
        output = io.open_output("table/bucket-0/data")
        output.write(BIG)
        output.close()
        io.crash(seed)
        assert io.read("table/bucket-0/data") == BIG


def test_every_piece_is_a_place_where_a_fault_can_strike() -> None:
    clean = FaultyFileIO(MemoryFileIO())

    def scenario(io: FileIO) -> None:
        output = io.open_output("f")
        try:
            output.write(BIG)
            output.write(BIG)
            output.close()
        except StorageError:
            output.abort()
            raise

    scenario(clean)
    assert [op.name for op in clean.ops] == ["open_output", "output_write", "output_write", "output_close"]
    for op in clean.ops:
        for fault in (Fault.BEFORE, Fault.AFTER, Fault.TORN):
            io = FaultyFileIO(MemoryFileIO(), {op.number: fault})
            with pytest.raises(StorageError):
                scenario(io)
            assert not io.inner.exists("f")
        io = FaultyFileIO(MemoryFileIO(), {op.number: Fault.CRASH})
        with pytest.raises(Crash):
            scenario(io)
        assert not io.inner.exists("f")


def test_an_output_is_traced() -> None:
    io = TracingFileIO(MemoryFileIO())
    output = io.sub("table").open_output("f")
    output.write(b"x")
    output.close()
    assert io.paths == {"table/f"}
