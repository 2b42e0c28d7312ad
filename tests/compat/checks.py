"""What must hold for every set of tables that a release wrote: tidelake sees in them what Java saw.

Each function walks over all tables and branches and returns how much it compared, so that a test can tell that it
compared something.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from compat.facts import by_name, entry_facts, index_facts, meta_facts, open_branch
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.spec.rows.partition_path import partition_paths


class Written:
    """The tables of one release and what its Java says of them."""

    def __init__(self, release: str, folder: Path) -> None:
        self.release, self.folder = release, folder
        self.expected: dict[str, dict[str, Any]] = json.loads((folder / "expected.json").read_text())

    def views(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(table, branch, facts) of every branch of every table."""
        for name, branches in self.expected.items():
            for branch, facts in branches.items():
                yield name, branch, facts

    def table_folder(self, name: str) -> Path:
        return self.folder / "d.db" / name


def without_nulls(document: Any) -> Any:
    return {key: value for key, value in document.items() if value is not None}


def same_snapshots(written: Written) -> int:
    """Every snapshot document says what Java reads in it."""
    count = 0
    for name, branch, facts in written.views():
        table = open_branch(written.table_folder(name), branch)
        latest = max(map(int, facts["snapshots"]), default=None)
        assert table.store.snapshots.latest_id() == latest, (name, branch)
        for snapshot_id, expected in facts["snapshots"].items():
            ours = json.loads(snapshot_to_json(table.snapshot(int(snapshot_id))))
            assert without_nulls(ours) == without_nulls(expected["document"]), (name, branch, snapshot_id)
            count += 1
    return count


def same_files(written: Written) -> int:
    """Names, partitions, buckets, levels, counts, keys, statistics, sequences: every member of every live file."""
    count = 0
    for name, branch, facts in written.views():
        table = open_branch(written.table_folder(name), branch)
        for snapshot_id, expected in facts["snapshots"].items():
            ours = by_name(entry_facts(table.files(snapshot=int(snapshot_id))))
            assert ours == by_name(expected["files"]), (name, branch, snapshot_id)
            count += len(ours)
    return count


def same_manifests(written: Written) -> int:
    """Every manifest list and index manifest, with counts, ranges and partition statistics."""
    count = 0
    for name, branch, facts in written.views():
        table = open_branch(written.table_folder(name), branch)
        store = table.store.manifests
        for snapshot_id, expected in facts["snapshots"].items():
            snapshot = table.snapshot(int(snapshot_id))
            place = (name, branch, snapshot_id)
            assert meta_facts(data_manifests(store, snapshot)) == expected["data"], place
            assert meta_facts(delta_manifests(store, snapshot)) == expected["delta"], place
            assert meta_facts(changelog_manifests(store, snapshot)) == expected["changelog"], place
            index = store.read_index(snapshot.index_manifest) if snapshot.index_manifest else ()
            assert by_name(index_facts(index)) == by_name(expected["index"]), place
            count += len(expected["data"])
    return count


def same_folders(written: Written) -> set[str]:
    """The partition folders that were compared."""
    seen: set[str] = set()
    for name, branch, facts in written.views():
        table = open_branch(written.table_folder(name), branch)
        paths = {row: path for each in facts["snapshots"].values() for row, path in each["partition_paths"].items()}
        rows = pa.array([bytes.fromhex(row) for row in paths], pa.binary())
        how: dict[str, Any] = {"legacy": True, "default_name": "__DEFAULT_PARTITION__"}
        ours = partition_paths(rows, table.partition_by, table.schema.partition_types, **how)
        assert ours == list(paths.values()), name
        seen |= set(ours)
    return seen


def sound(written: Written) -> None:
    """Every table passes our own check, data files included."""
    for name in written.expected:
        report = open_branch(written.table_folder(name)).check(deep=True)
        assert report.ok, f"{name}: {report}"
