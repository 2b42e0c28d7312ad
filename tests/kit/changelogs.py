"""The changelog of a snapshot as it lies in its files, read without the reader of changes."""

from __future__ import annotations

import itertools
from typing import Any

from tidelake.catalog.lake import Lake
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.ops.read.append import read_data_file
from tidelake.ops.scan.plan import changelog_manifests, read_changes
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table

__all__ = [
    "UPDATES",
    "WORDS",
    "changelog",
    "changelog_files",
    "changelog_problems",
    "changelogs",
    "cut_in_two",
    "cut_updates",
    "last_told",
    "numbered_changelog",
]

WORDS = ("+I", "-U", "+U", "-D")


def changelog_files(table: Table, snapshot_id: int) -> list[DataFile]:
    """The changelog files that a snapshot names."""
    store = table.store
    metas = changelog_manifests(store.manifests, store.snapshots.get(snapshot_id))
    return list(data_files(read_changes(store.manifests, metas)))


def numbered_changelog(table: Table, snapshot_id: int) -> list[tuple[int, str, dict[str, Any]]]:
    """Sequence numbers, kinds and rows, bucket after bucket, in the order of the files."""
    store = table.store
    metas = changelog_manifests(store.manifests, store.snapshots.get(snapshot_id))
    schema = store.schema
    request = ReadRequest(schema=schema, columns=schema.names, stored=(SEQUENCE_FIELD, KIND_FIELD, *schema.fields))
    found: list[tuple[int, str, dict[str, Any]]] = []
    for split in bucket_splits(read_changes(store.manifests, metas), snapshot_id, table.paths, None):
        for file in split.files:
            for batch in read_data_file(store, split, file, request):
                found += [(row.pop(SEQUENCE), WORDS[row.pop(KIND)], row) for row in batch.to_pylist()]
    return found


def changelog(table: Table, snapshot_id: int) -> list[tuple[str, ...]]:
    """Kinds and values of the rows."""
    return [(kind, *row.values()) for _, kind, row in numbered_changelog(table, snapshot_id)]


def changelogs(table: Table) -> dict[int, list[tuple[str, ...]]]:
    """The changelog of every snapshot that has one."""
    snapshots = table.store.snapshots
    ids = range(1, (snapshots.latest_id() or 0) + 1)
    return {each: found for each in ids if (found := changelog(table, each))}


def changelog_problems(table: Table) -> list[str]:
    """Whether the changes told by compactions lead from each state without rows on level 0 to the next such state.

    What an overwrite does is not told: after one, the state is taken as it is.
    """
    if table.options.get("changelog-producer", "none") not in ("lookup", "full-compaction"):
        return []
    state: dict[tuple[Any, ...], dict[str, Any]] | None = None
    keys = table.primary_key
    earliest = table.store.snapshots.earliest_id() or 1
    for snapshot_id in range(earliest, (table.store.snapshots.latest_id() or 0) + 1):
        here = f"snapshot {snapshot_id}"
        if table.snapshot(snapshot_id).commit_kind is CommitKind.OVERWRITE:
            state = None
        for _, kind, row in numbered_changelog(table, snapshot_id) if state is not None else ():
            key = tuple(row[name] for name in keys)
            if kind in ("-U", "-D"):
                if _known(state.pop(key, {})) != _known(row):
                    return [f"{here} takes back {row}, which was not there"]
            elif key in state:
                return [f"{here} brings {row}, whose key is there"]
            else:
                state[key] = row
        if 0 in table.files(snapshot=snapshot_id).column("level").to_pylist():
            continue
        rows = table.at(snapshot=snapshot_id).to_arrow().to_pylist()
        there = {tuple(row[name] for name in keys): row for row in rows}
        told = None if state is None else {key: _known(row) for key, row in state.items()}
        if told is not None and told != {key: _known(row) for key, row in there.items()}:
            return [f"{here} shows {there}, and its changes lead to {state}"]
        state = there
    return []


UPDATES = [("+U", [p, p], [k, k], ["old", f"new{k}"], [k, k]) for p in "xy" for k in range(0, 8, 2)]
"""What the binlog shows of the last changelog of `cut_updates`."""


def cut_updates(lake: Lake, name: str, producer: str, *, rows: int = 1, bucket: int = 1) -> Table:
    """A table whose last changelog tells of updates, in files that end after so many rows."""
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING", "n": "INT"}
    options = {"bucket": str(bucket), "changelog-producer": producer, "target-file-row-num": str(rows)}
    table = lake.create_table(name, columns, primary_key=["p", "k"], partition_by=["p"], options=options)
    first = [dict(zip(columns, (p, k, "old", k), strict=True)) for p in "xy" for k in range(8)]
    table.write(first)
    updates = []
    for row in first:
        if row["k"] % 2 == 0:
            updates += [{"rowkind": "-U", **row}] if producer == "input" else []
            updates.append({"rowkind": "+U", **row, "v": f"new{row['k']}"})
    table.write(updates)
    return table


def last_told(table: Table) -> int:
    """The newest snapshot that has a changelog."""
    return max(each for each in range(1, table.latest_snapshot().id + 1) if changelog_files(table, each))


def cut_in_two(table: Table, snapshot_id: int) -> int:
    """How many updates of a changelog have their rows in two files."""
    kinds = [kind for _, kind, _ in numbered_changelog(table, snapshot_id)]
    store = table.store
    metas = changelog_manifests(store.manifests, store.snapshots.get(snapshot_id))
    splits = bucket_splits(read_changes(store.manifests, metas), snapshot_id, table.paths, None)
    ends = list(itertools.accumulate(file.row_count for split in splits for file in split.files))
    return sum(kinds[end - 1 : end + 1] == ["-U", "+U"] for end in ends)


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its nulls: it may have been told of before a column was added."""
    return {name: value for name, value in row.items() if value is not None}
