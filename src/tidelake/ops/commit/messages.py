"""What writers hand to the committer: frozen, picklable, free of credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelake.notebook import html_card
from tidelake.spec.data_file import DataFile
from tidelake.spec.index_manifest import IndexFile

BATCH_IDENTIFIER = 2**63 - 1
"""The commit identifier of every batch commit: such commits are not numbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIncrement:
    """Files that a write added or (row-level deletes) removed."""

    new_files: tuple[DataFile, ...] = ()
    deleted_files: tuple[DataFile, ...] = ()
    changelog_files: tuple[DataFile, ...] = ()
    new_index_files: tuple[IndexFile, ...] = ()
    deleted_index_files: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactIncrement:
    """Files that a compaction read and made. A file in both lists under one name was only moved to another level."""

    before: tuple[DataFile, ...] = ()
    after: tuple[DataFile, ...] = ()
    changelog_files: tuple[DataFile, ...] = ()
    new_index_files: tuple[IndexFile, ...] = ()
    deleted_index_files: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """The work of one writer on one bucket.

    `base_snapshot_id` is the snapshot its sequence numbers continue from and its compaction was planned on; None where
    order between commits does not depend on it. `assigned_on` names the hash indexes of the partition that its rows got
    their dynamic buckets from; None where that is not known. `assigned_by` names the writer that chose these buckets on
    its own (or, of keys that move, the partitions); None where writers shared that work.
    """

    partition: bytes
    bucket: int
    total_buckets: int | None = None
    data: DataIncrement = DataIncrement()
    compact: CompactIncrement = CompactIncrement()
    base_snapshot_id: int | None = None
    assigned_on: str | None = None
    assigned_by: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return self.data == DataIncrement() and self.compact == CompactIncrement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """All messages of one commit, with what the snapshot shall say beside them."""

    messages: tuple[CommitMessage, ...]
    identifier: int = BATCH_IDENTIFIER
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: str | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the commit is one of a batch job, which is never replayed."""
        return self.identifier == BATCH_IDENTIFIER


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit did.

    `snapshot_ids` is empty for an empty or repeated commit. `rows` are those that were written, changed or removed, not
    those of others that a compaction wrote again; a commit that only compacts counts these. Where whole partitions go
    without a look at their rows, it counts what their files hold: also older versions of keys, and rows that deletion
    vectors mark. `warnings` tells what could
    not be done after the commit was published. `compaction_lost` tells that the compaction part met a conflict or an
    error after the written part was published; it will be done anew by the next compaction.
    """

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    files: int = 0
    bytes: int = 0
    attempts: int = 0
    repeated: bool = False
    compaction_lost: bool = False
    warnings: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        ids = ", ".join(map(str, self.snapshot_ids))
        facts = [("rows", f"{self.rows:,}"), ("files", self.files), ("bytes", f"{self.bytes:,}")]
        remarks = [("warning", warning) for warning in self.warnings]
        if self.compaction_lost and not self.warnings:
            remarks.append(("warning", "the compaction part met a conflict and is left to the next compaction"))
        if self.repeated:
            return html_card("already committed, nothing was done", remarks)
        return html_card(f"snapshot {ids}" if ids else "nothing to do", [*facts, *remarks] if ids else remarks)
