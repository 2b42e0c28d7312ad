"""What Arrow's threads are given: no object of Python, which they could not let go of while the interpreter ends."""

from __future__ import annotations

import threading  # noqa: TID251 - which thread reads is the subject
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.file_samples import make_batch, make_fields, read, write
from tidelake.errors import FormatError
from tidelake.files.arrow_input import copy_ranges, open_natively
from tidelake.files.parquet import read as parquet_read
from tidelake.files.ranges import GAP_BYTES, join_ranges
from tidelake.io.fileio import BytesFile
from tidelake.io.local import LocalFileIO
from tidelake.io.memory import MemoryFileIO
from tidelake.io.posix import OsFile

FIELDS = make_fields({"id": "INT NOT NULL", "name": "STRING", "v": "DOUBLE"})
BATCHES = [make_batch([{"id": n, "name": f"n{n}", "v": n / 7} for n in range(k, k + 500)], FIELDS) for k in (0, 500)]


def test_arrow_is_given_files_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Any] = []
    opened = pq.ParquetFile

    def watch(source: Any, **how: Any) -> Any:
        given.append(source)
        return opened(source, **how)

    monkeypatch.setattr(parquet_read.pq, "ParquetFile", watch)
    for io in (LocalFileIO(tmp_path), MemoryFileIO()):
        _, path, _ = write(BATCHES, FIELDS, "parquet", io=io, flush=True)
        assert read(io, path, FIELDS).num_rows == 1000
    assert {type(each) for each in given} == {pa.OSFile, pa.BufferReader}


def test_a_file_of_python_is_read_on_the_thread_that_asks() -> None:
    threads: set[int] = set()

    class Watching(MemoryFileIO):
        def open_input(self, path: str) -> Any:
            class Watched(BytesFile):
                def read(self, size: int | None = -1, /) -> bytes:
                    threads.add(threading.get_ident())
                    return super().read(size)

            return Watched(self.read(path))

    io, path, _ = write(BATCHES, FIELDS, "parquet", io=Watching(), flush=True)
    assert read(io, path, FIELDS)["id"].to_pylist() == list(range(1000))
    assert threads == {threading.get_ident()}


def test_an_open_file_is_read_on_after_its_name_is_gone(tmp_path: Path) -> None:
    io = LocalFileIO(tmp_path)
    io.write("f", b"before")
    file = io.open_input("f")
    io.delete("f")
    io.write("f", b"after!")
    native = open_natively(file)
    assert native is not None
    file.close()
    assert native.read() == b"before"


def test_a_file_that_watches_its_reads_is_not_passed_by(tmp_path: Path) -> None:
    io = LocalFileIO(tmp_path)
    io.write("f", b"abc")

    class Watched(OsFile):
        pass

    with Watched(tmp_path / "f", "rb") as file:
        assert open_natively(file) is None
    assert open_natively(BytesFile(b"abc")) is None


def test_ranges_are_copied_to_their_places() -> None:
    data = bytes(range(256)) * 1024
    reader = copy_ranges(BytesFile(data), len(data), [(200_000, 200_010), (5, 9), (9, 9)])
    assert reader.size() == len(data)
    assert reader.read_at(4, 5) == data[5:9]
    assert reader.read_at(10, 200_000) == data[200_000:200_010]
    with pytest.raises(FormatError, match="ends before"):
        copy_ranges(BytesFile(b"abc"), 10, [(1, 9)])


def test_ranges_are_joined_over_small_gaps_only() -> None:
    far = 10 + GAP_BYTES + 1
    assert join_ranges([(far, far + 1), (0, 5), (7, 10), (3, 4), (6, 6)]) == [(0, 10), (far, far + 1)]
    assert join_ranges([(far - 1, far), (0, 10)]) == [(0, far)]
    assert join_ranges([]) == []
