"""The tables that releases of Paimon wrote, unpacked to be read."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compat.facts import open_branch
from compat.make_golden import unpack
from tidelake.table import Table

DATA = Path(__file__).with_name("data")


class Golden:
    """One archive, unpacked."""

    def __init__(self, archive: Path, folder: Path) -> None:
        unpack(archive, folder)
        self.folder, self.release = folder, archive.parent.name
        self.expected: dict[str, dict[str, Any]] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        (folder / "expected.json").unlink()

    def points(self) -> Iterator[tuple[str, Table, dict[str, Any]]]:
        """Every branch at every snapshot and tag, and what is expected there."""
        for branch, view in self.expected.items():
            table = open_branch(self.folder, branch)
            for snapshot, expected in view["snapshots"].items():
                yield f"{branch} at {snapshot}", table.at(snapshot=int(snapshot)), expected
            for tag, expected in view["tags"].items():
                yield f"{branch} at tag {tag}", table.at(tag=tag), expected

    @functools.cached_property
    def main(self) -> Table:
        return open_branch(self.folder)

    def latest_rows(self) -> list[str]:
        snapshots = self.expected["main"]["snapshots"]
        rows: list[str] = snapshots[max(snapshots, key=int)]["rows"]
        return rows
