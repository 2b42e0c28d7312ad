"""One FileIO of each kind, so that the same behaviour is asked of all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.s3_server import BUCKET, moto_s3
from tidelake.io import FileIO, LocalFileIO, MemoryFileIO, open_fileio
from tidelake.testing import UnsyncedFileIO

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options


@pytest.fixture(params=["local", "memory", "unsynced", pytest.param("s3", marks=pytest.mark.s3)])
def fileio(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileIO]:
    io: FileIO
    match request.param:
        case "local":
            io = LocalFileIO(tmp_path / "lake")
        case "memory":
            io = MemoryFileIO()
        case "unsynced":
            io = UnsyncedFileIO()
        case _:
            options = request.getfixturevalue("s3_options")
            io = open_fileio(f"s3://{BUCKET}/lake {next(_numbers)}", options)
    yield io
    io.close()
