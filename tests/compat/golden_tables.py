"""Write golden tables with one release, and note beside each what the release itself reads of it.

    python tests/compat/golden_tables.py VERSION FOLDER GROUP/NAME ...

FOLDER/GROUP becomes a warehouse with the database `d`; FOLDER/GROUP/NAME.json holds, for each branch, types and rows
at every snapshot and tag. A process holds one release, so `make_golden` runs this once per release.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import oracle
from compat.actors import Theirs, encoded, their_view
from compat.keyed_tables import KEYED, MARKED, STREAMED, run
from compat.tables import SCRIPTS

__all__ = ["GROUPS", "wanted"]

GROUPS: dict[str, dict[str, Any]] = {"append": SCRIPTS, "pk": KEYED, "later": MARKED}
"""Append tables that we read, primary-key tables, and append tables of which we read only some snapshots."""


def wanted() -> Iterator[tuple[str, str, str]]:
    """(release, group, name) of every golden table."""
    for group, scripts in GROUPS.items():
        for name, script in scripts.items():
            for release in script.releases:
                yield release, group, name


def write_one(folder: Path, group: str, name: str) -> None:
    script = GROUPS[group][name]
    actor = Theirs(folder / group)
    if group == "append":
        actor.create(script)
        for step in script.steps:
            actor.do(name, step)
    else:
        run(actor.catalog, script)
    table = actor.table(name)
    branches = {"main": table}
    for branch in map(str, table.load().branchManager().branches()):
        branches[branch] = table.branch(branch)
    views = {branch: their_view(each) for branch, each in branches.items()}
    # A batch read of changes in 0.9 leaves retractions out.
    if script.options.get("changelog-producer", "none") != "none" and oracle.running() != "0.9.0":
        views["main"]["changes"] = changes(table, sorted(map(int, views["main"]["snapshots"])))
    if group == "pk" and name in STREAMED:
        views["main"]["stream"] = stream(table)
    (folder / group / f"{name}.json").write_text(json.dumps(views, indent=1, ensure_ascii=False), encoding="utf-8")


def changes(table: oracle.Table, snapshots: list[int]) -> dict[str, list[str]]:
    """What a reader of changes sees from each snapshot to the next."""
    found = {}
    for before, after in itertools.pairwise(snapshots):
        how = {"incremental-between": f"{before},{after}", "incremental-between-scan-mode": "changelog"}
        read = table.read(options=how, kinds=True)
        found[str(after)] = encoded([{"rowkind": kind, **row} for kind, row in read])
    return found


def stream(table: oracle.Table) -> dict[str, list[str]]:
    """What a stream from the first snapshot on gets of each, expired ones too."""
    steps = table.stream({"scan.mode": "from-snapshot", "scan.snapshot-id": 1}).drain()
    return {str(after - 1): encoded([{"rowkind": kind, **row} for kind, row in rows]) for after, rows in steps if rows}


if __name__ == "__main__":
    oracle.start(sys.argv[1])
    for place in sys.argv[3:]:
        write_one(Path(sys.argv[2]), *place.split("/"))
