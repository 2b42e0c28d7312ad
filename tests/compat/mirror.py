"""Two tables side by side: Java writes one, and tidelake commits the same data files to the other.

Every step is done by Java on the scratch table; the data files it added are copied into the folders of our table and
their metadata, decoded from the scratch table's manifests, goes through our committer. So both tables must look the
same to every reader after every step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import oracle
import tidelake as tl
from compat import write_tables
from compat.facts import by_name, entry_facts, open_branch
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.scan.plan import changelog_manifests, delta_manifests, read_changes
from tidelake.spec.data_file import DataFile, data_files
from tidelake.spec.manifests.manifest import ADD, ENTRIES
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.rows.partition_path import partition_path
from tidelake.table import Table, TableCommit

SAME = (
    "version", "schemaId", "commitKind", "totalRecordCount", "deltaRecordCount", "changelogRecordCount", "watermark",
    "nextRowId",
    "operation",
)  # fmt: skip
"""Members of a snapshot that do not depend on who wrote it."""


class Mirror:
    """A scratch table of Java, and ours."""

    def __init__(
        self,
        folder: Path,
        fields: dict[str, str],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: dict[str, str] | None = None,
        ours_only: dict[str, str] | None = None,
    ) -> None:
        options = options or {}
        self.folder = folder
        self.scratch = oracle.Catalog(folder / "scratch").create_table(
            "d.t", fields, primary_key, partition_by, options
        )
        lake = tl.connect(folder / "ours")
        self.table = lake.create_table(
            "d.t", fields, primary_key=primary_key, partition_by=partition_by, options={**options, **(ours_only or {})}
        )
        self.theirs = oracle.Catalog(folder / "ours").table("d.t")
        self.committer = self.table.new_commit("ours")

    # -------------------------------------------------------------------------------------------- steps

    def step(
        self, act: Callable[[oracle.Table], Any], publish: Callable[[TableCommit, list[CommitMessage]], Any]
    ) -> None:
        """Let Java act on the scratch table and publish the outcome on ours."""
        before = len(self.scratch.snapshots())
        act(self.scratch)
        after = len(self.scratch.snapshots())
        messages = [m for snapshot_id in range(before + 1, after + 1) for m in self.messages(snapshot_id)]
        publish(self.committer, messages)

    def write(self, rows: Sequence[Any], **how: Any) -> None:
        """Append."""
        self.step(lambda t: t.write(rows), lambda c, m: c.commit(m, **how))

    def compact(self, **how: Any) -> None:
        """Compact."""
        self.step(lambda t: t.compact(**how), lambda c, m: c.commit(m))

    def overwrite(self, rows: Sequence[Any], partition: dict[str, str], *, dynamic: bool) -> None:
        """Replace partitions."""
        options = {"dynamic-partition-overwrite": dynamic}
        self.step(
            lambda t: t.write(rows, options, overwrite=partition),
            lambda c, m: c.overwrite(m, None if dynamic else partition, dynamic=dynamic),
        )

    # -------------------------------------------------------------------------------------------- files

    def messages(self, snapshot_id: int) -> list[CommitMessage]:
        """What a writer would hand over to make this snapshot of the scratch table; its new files are copied."""
        table = open_branch(self.folder / "scratch/d.db/t")
        snapshot = table.snapshot(snapshot_id)
        store = table.store.manifests
        delta = read_changes(store, delta_manifests(store, snapshot)).to_pylist()
        changelog = read_changes(store, changelog_manifests(store, snapshot)).to_pylist()
        compacted = snapshot.commit_kind.value == "COMPACT"
        places = {(row["partition"], row["bucket"], row["total_buckets"]): None for row in [*delta, *changelog]}
        messages = []
        for place in places:
            added = self._files(place, [row for row in delta if row["kind"] == ADD], table)
            removed = self._files(place, [row for row in delta if row["kind"] != ADD], table, copy=False)
            changes = self._files(place, changelog, table)
            partition, bucket, total = place
            parts: dict[str, Any] = (
                {"compact": CompactIncrement(before=removed, after=added, changelog_files=changes)}
                if compacted
                else {"data": DataIncrement(new_files=added, changelog_files=changes)}
            )
            messages.append(CommitMessage(partition=partition, bucket=bucket, total_buckets=total, **parts))
        return messages

    def _files(
        self, place: tuple[bytes, int, int], rows: list[dict[str, Any]], table: Table, *, copy: bool = True
    ) -> tuple[DataFile, ...]:
        files = []
        for row in rows:
            if (row["partition"], row["bucket"], row["total_buckets"]) != place:
                continue
            (file,) = data_files(pa.Table.from_pylist([row], schema=ENTRIES))
            files.append(file)
            if copy:
                schema = table.schema
                values = decode_row(row["partition"], schema.partition_types)
                how: dict[str, Any] = {"legacy": True, "default_name": "__DEFAULT_PARTITION__"}
                path = partition_path(schema.partition_keys, values, schema.partition_types, **how)
                folder = table.store.layout.bucket_dir(path.rstrip("/"), row["bucket"])
                self._copy(folder, (file.file_name, *file.extra_files))
        return tuple(files)

    def _copy(self, folder: str, names: Sequence[str]) -> None:
        source, target = self.folder / "scratch/d.db/t" / folder, self.folder / "ours/d.db/t" / folder
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (source / name).exists():
                shutil.copyfile(source / name, target / name)

    # -------------------------------------------------------------------------------------------- comparison

    def compare(self) -> None:
        """Both tables have the same files and rows at the newest snapshot, whoever reads them."""
        ours, theirs = self.theirs.load(), self.scratch.load()
        assert self.theirs.files() == self.scratch.files() or sorted_files(self.theirs) == sorted_files(self.scratch)
        assert java_files(ours) == java_files(theirs)
        assert java_files(ours) == by_name(entry_facts(self.table.files()))
        assert rows_of(self.theirs) == rows_of(self.scratch)
        mine, yours = self.theirs.snapshots()[-1], self.scratch.snapshots()[-1]
        assert {key: mine.get(key) for key in SAME} == {key: yours.get(key) for key in SAME}
        report = self.table.check(deep=True)
        assert report.ok, str(report)


def sorted_files(table: oracle.Table) -> list[Any]:
    return sorted(map(str, table.files()))


def java_files(table: Any, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """What the Java planner says of every live file."""
    latest = table.snapshotManager().latestSnapshotId() if snapshot_id is None else snapshot_id
    if latest is None:
        return []
    entries = table.store().newScan().withSnapshot(int(latest)).plan().files()
    return by_name(write_tables.entry_facts(entry) for entry in entries)


def rows_of(table: oracle.Table, **how: Any) -> list[str]:
    return sorted(repr(row) for row in table.read(**how))


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())
