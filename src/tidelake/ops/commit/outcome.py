"""How far a commit has come: the one place that decides what an error means to the caller.

Before a commit has published a snapshot, an error means that nothing happened, and the call may be repeated. After that
the rows are in the table and a repetition would duplicate them: failures become warnings of the result, and an
interrupt is raised again with a note that names the snapshots. In between, while a snapshot was offered and it is
unknown whether it exists, no file is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitResult
from tidelake.spec.documents.snapshot import CommitKind, Snapshot

__all__ = ["CommitOutcome", "compaction_warning", "describe_failure", "name_published", "without_compaction_warning"]

_COMPACTION = "committed, but its compaction failed"
_NOTE = "the commit is published"
_DOUBT = "interrupted while a snapshot was published"


@dataclass(slots=True)
class CommitOutcome:
    """What one commit has published, and what failed after that."""

    published: list[Snapshot] = field(default_factory=list)
    unknown: bool = False
    """Whether a snapshot was offered and it is unknown whether it exists."""
    warnings: list[str] = field(default_factory=list)
    published_before: bool = False
    """Whether rows of the commit are in the table from an earlier attempt."""

    @property
    def is_published(self) -> bool:
        """Whether rows of the commit are in the table."""
        return self.published_before or bool(self.published)

    @property
    def is_compacted(self) -> bool:
        """Whether the compacted part is published too."""
        return any(each.commit_kind is CommitKind.COMPACT for each in self.published)

    @property
    def left_nothing(self) -> bool:
        """Whether it is certain that no snapshot names a file of the commit."""
        return not self.unknown and not self.is_published

    @contextmanager
    def warn_on_failure(self, what: str) -> Iterator[None]:
        """Run an action after the publish; its failure becomes a warning if a snapshot is published.

        A conflict gives no warning: another job does the same work, and the next commit does what is left.

        Raises:
            Exception: the action failed, and no snapshot of the commit is published.
        """
        try:
            yield
        except CommitConflictError:
            if not self.is_published:
                raise
        except Exception as error:
            if not self.is_published:
                raise
            self.warnings.append(describe_failure(what, error))
        except BaseException as interrupt:
            self.note(interrupt)
            raise

    def note(self, interrupt: BaseException) -> None:
        """Name the published snapshots in an interrupt, once."""
        name_published(interrupt, [each.id for each in self.published])
        if self.unknown and not _is_noted(interrupt):
            interrupt.add_note(f"{_DOUBT}: check whether it exists before you repeat the commit")


def describe_failure(what: str, error: Exception) -> str:
    """The warning for an action that failed after the commit."""
    return f"committed, but {what} failed: {str(error) or type(error).__name__}"


def compaction_warning(error: Exception, *, hides: bool) -> str:
    """The warning for a compaction that failed after its rows were published.

    `hides` says that readers of the table do not see level-0 rows.
    """
    text = str(error) or type(error).__name__
    if hides:
        return f"{_COMPACTION}, and its rows are shown by the next write to their buckets or `compact`: {text}"
    return f"{_COMPACTION} and is left for later: {text}"


def without_compaction_warning(result: CommitResult) -> CommitResult:
    """The result without the warning about its compaction, once another compaction has done the work."""
    left = tuple(each for each in result.warnings if not each.startswith(_COMPACTION))
    return replace(result, warnings=left)


def name_published(interrupt: BaseException, snapshot_ids: Sequence[int]) -> None:
    """Add a note to an interrupt that names the snapshots published before it, those that no note names yet."""
    notes = getattr(interrupt, "__notes__", ())
    if any(note.startswith(_DOUBT) for note in notes):
        return
    named = {int(number) for note in notes if note.startswith(_NOTE) for number in re.findall(r"[0-9]+", note)}
    missing = [each for each in snapshot_ids if each not in named]
    if missing:
        many = "snapshot" if len(missing) == 1 else "snapshots"
        interrupt.add_note(f"{_NOTE} as {many} {', '.join(map(str, missing))}: do not repeat it")


def _is_noted(interrupt: BaseException) -> bool:
    return any(note.startswith((_NOTE, _DOUBT)) for note in getattr(interrupt, "__notes__", ()))
