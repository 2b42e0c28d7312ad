"""Is it published already? The one place that decides what an error means to whoever called.

Before a commit has published a snapshot, an error says that nothing happened, and the call may be repeated. From then
on the rows are in the table and a repetition would double them: whatever fails is a warning of the result, and an
interrupt is raised again with a note that names the snapshots. In between lies the moment at which a snapshot was
offered and nobody can tell whether it is there: then nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tidelake.errors import CommitConflictError
from tidelake.ops.commit.messages import CommitResult
from tidelake.spec.snapshot import CommitKind, Snapshot

__all__ = ["CommitOutcome", "compaction_warning", "follow", "name_published", "warning", "without_compaction_warning"]

_COMPACTION = "committed, but its compaction failed"
_NOTE = "the commit is published"
_DOUBT = "interrupted while a snapshot was published"


@dataclass(slots=True)
class CommitOutcome:
    """How far one commit has come: what it has published, and what could not be done afterwards."""

    published: list[Snapshot] = field(default_factory=list)
    unknown: bool = False
    """Whether a snapshot was offered of which nobody can tell whether it is there."""
    warnings: list[str] = field(default_factory=list)
    published_before: bool = False
    """Whether rows of the commit are in the table from an earlier attempt."""

    @property
    def is_published(self) -> bool:
        """Whether rows of the commit are in the table."""
        return self.published_before or bool(self.published)

    @property
    def is_compacted(self) -> bool:
        """Whether what was compacted is published too."""
        return any(each.commit_kind is CommitKind.COMPACT for each in self.published)

    @property
    def left_nothing(self) -> bool:
        """Whether it is certain that no snapshot names a file of the commit."""
        return not self.unknown and not self.is_published

    @contextmanager
    def following(self, what: str) -> Iterator[None]:
        """Run a part of the commit that may come after its publication: then what fails is a warning."""
        try:
            yield
        except Exception as error:
            if not self.is_published:
                raise
            self.warnings.append(warning(what, error))
        except BaseException as interrupt:
            self.note(interrupt)
            raise

    def note(self, interrupt: BaseException) -> None:
        """Name the published snapshots in an interrupt, once."""
        name_published(interrupt, [each.id for each in self.published])
        if self.unknown and not _is_noted(interrupt):
            interrupt.add_note(f"{_DOUBT}: look whether it is there before repeating the commit")


def follow(result: CommitResult, what: str, act: Callable[[], object]) -> CommitResult:
    """Do something after a commit; the result with a warning if it fails.

    Another job that does the same is not worth a warning: what is left to do is done by the next commit.

    Raises:
        Exception: what failed, if the commit made no snapshot and found none of an earlier attempt.
    """
    try:
        act()
    except CommitConflictError:
        if not _is_published(result):
            raise
    except Exception as error:
        if not _is_published(result):
            raise
        return replace(result, warnings=(*result.warnings, warning(what, error)))
    except BaseException as interrupt:
        name_published(interrupt, result.snapshot_ids)
        raise
    return result


def warning(what: str, error: Exception) -> str:
    """What a person is told of something that failed after the commit."""
    return f"committed, but {what} failed: {str(error) or type(error).__name__}"


def compaction_warning(error: Exception, *, hides: bool) -> str:
    """What a person is told of a compaction that failed after the rows it read were published.

    `hides` says that rows of the table are shown once they are compacted.
    """
    told = str(error) or type(error).__name__
    if hides:
        return f"{_COMPACTION}, and its rows are shown by the next write to their buckets or `compact`: {told}"
    return f"{_COMPACTION} and is left for later: {told}"


def without_compaction_warning(result: CommitResult) -> CommitResult:
    """The result of a commit whose compaction was made up for."""
    left = tuple(each for each in result.warnings if not each.startswith(_COMPACTION))
    return replace(result, warnings=left)


def _is_published(result: CommitResult) -> bool:
    return bool(result.snapshot_ids) or result.repeated


def name_published(interrupt: BaseException, snapshot_ids: Sequence[int]) -> None:
    """Say in an interrupt which snapshots were published before it, unless it says so already."""
    if snapshot_ids and not _is_noted(interrupt):
        many = "snapshot" if len(snapshot_ids) == 1 else "snapshots"
        interrupt.add_note(f"{_NOTE} as {many} {', '.join(map(str, snapshot_ids))}: do not repeat it")


def _is_noted(interrupt: BaseException) -> bool:
    return any(note.startswith((_NOTE, _DOUBT)) for note in getattr(interrupt, "__notes__", ()))
