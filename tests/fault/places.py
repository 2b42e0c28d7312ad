"""Storages filled with an image of a lake: a folder, a bucket."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from fault.harness import Image, doors
from kit.s3_server import BUCKET
from tidelake.io import FileIO, LocalFileIO, open_fileio
from tidelake.io.ids import SeededIds
from tidelake.io.local import Durability
from tidelake.testing import MemoryFileIO
from tidelake.testing.scenario import restore_image


def folder_with(image: Image, folder: Path, *, durability: Durability) -> FileIO:
    """The folder, emptied and filled with an image."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in image.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return LocalFileIO(folder, durability=durability, ids=SeededIds(0))


def bucket_with(options: dict[str, str], name: str = "every") -> Callable[[Image], FileIO]:
    """How to get a fresh folder of the bucket that holds an image."""
    numbers = itertools.count()

    def opened(image: Image) -> FileIO:
        io = open_fileio(f"s3://{BUCKET}/{name}-{next(numbers)}", options, doors(MemoryFileIO(), 0))
        restore_image(io, image)
        return io

    return opened
