"""Small trees to test with: files with INT keys, named, sized and placed by hand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels, build_levels
from tidelake.spec.data_file import DataFile

MB = 1 << 20
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Sized:
    """A run by its level and size alone."""

    level: int
    size: int


def file(low: int, high: int, *, level: int = 0, size: int = 10, name: str | None = None, **more: Any) -> RunFile:
    facts = {"row_count": 1, **more}
    meta = DataFile(file_name=name or f"data-{next(_numbers)}.parquet", file_size=size, level=level, **facts)
    return RunFile(meta, (low,), (high,))


def tree(*files: RunFile, num_levels: int = 6) -> Levels:
    return build_levels(files, num_levels=num_levels)


def names(files: Any) -> list[str]:
    return [each.name for each in files]
