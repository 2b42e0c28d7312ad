"""What writers pass to the committer: frozen, picklable, without credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelake.notebook import html_card
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.index_manifest import IndexFile

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
    """Files that a compaction replaced and wrote. A name in both lists is a file that only moved to another level."""

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
    compaction_wait_ms: int = field(default=0, compare=False)
    """How long the writer waited for compactions of the bucket."""

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return self.data == DataIncrement() and self.compact == CompactIncrement()

    @property
    def compacts_new_files(self) -> bool:
        """Whether its compaction read files that it adds."""
        new = {file.file_name for file in self.data.new_files}
        return any(file.file_name in new for file in self.compact.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """All messages of one commit, and the other fields of its snapshot."""

    messages: tuple[CommitMessage, ...]
    identifier: int = BATCH_IDENTIFIER
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: str | None = None
    origin: str | None = None
    """A short text that stands for what the rows were read from; kept with the commit progress."""

    @property
    def is_batch(self) -> bool:
        """Whether it is the commit of a batch job, which has no number and is never repeated."""
        return self.identifier == BATCH_IDENTIFIER


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What compactions read and wrote. A file that only moved to another level counts as neither."""

    files_in: int = 0
    rows_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    rows_out: int = 0
    bytes_out: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit did.

    `snapshot_ids` is empty for an empty or repeated commit. `rows` counts rows that were written, changed or removed;
    rows that a compaction rewrote count only if the commit did nothing else. If whole partitions are deleted without
    reading them, it counts the rows of their files, including older versions of keys and deleted positions.
    `warnings` describes what failed after the commit was published. `compaction_lost` means that the compacted part
    met a conflict or an error after the written part was published; the next compaction will redo it. `attempts` counts
    every attempt to publish a snapshot, and `conflicts` the plans before the last one that contradicted what other jobs
    committed in between. `compacted` is what the compactions of this commit read and wrote, and `compaction_wait_ms` is
    how long its writers waited for compactions, summed over buckets.
    """

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    files: int = 0
    bytes: int = 0
    attempts: int = 0
    repeated: bool = False
    compaction_lost: bool = False
    warnings: tuple[str, ...] = ()
    conflicts: int = 0
    compacted: Compacted = Compacted()
    compaction_wait_ms: int = 0

    def of_messages(self, messages: Iterable[CommitMessage]) -> CommitResult:
        """The same with the time that the writers of these messages waited."""
        return replace(self, compaction_wait_ms=sum(each.compaction_wait_ms for each in messages))

    @property
    def retries(self) -> int:
        """How often another writer took the id of the snapshot first, so that it was offered again."""
        return max(self.attempts - len(self.snapshot_ids), 0)

    def _repr_html_(self) -> str:
        ids = ", ".join(map(str, self.snapshot_ids))
        facts = [("rows", f"{self.rows:,}"), ("files", self.files), ("bytes", f"{self.bytes:,}")]
        remarks = [("warning", warning) for warning in self.warnings]
        if self.compaction_lost and not self.warnings:
            remarks.append(("warning", "the compacted part met a conflict and is left to the next compaction"))
        if self.repeated:
            return html_card("already committed, nothing was done", remarks)
        return html_card(f"snapshot {ids}" if ids else "nothing to do", [*facts, *remarks] if ids else remarks)
