"""The committer of one commit user: commits, overwrites, recovers and aborts.

A commit has two parts, what was written and what was compacted, and so one or two snapshots with one identifier. A
numbered commit is published at most once, however often it is repeated. Once the written part is published nothing
fails the caller any more (`outcome`): a compaction that loses its race or meets an error is left to a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import (
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    TidelakeError,
)
from tidelake.ops.commit.abort import AbortResult, plan_abort, referenced_names
from tidelake.ops.commit.changes import NO_CHANGES, Changes, split_messages, upgrade_levels
from tidelake.ops.commit.leftovers import unpublished
from tidelake.ops.commit.lookups import check_lookups, looks_up
from tidelake.ops.commit.loop import Done, Loop, Request, State, validate_number
from tidelake.ops.commit.messages import (
    BATCH_IDENTIFIER,
    CommitMessage,
    CommitResult,
    Committable,
    CompactIncrement,
    DataIncrement,
)
from tidelake.ops.commit.options import CommitOptions, ManifestOptions, TableShape, check_shape
from tidelake.ops.commit.outcome import CommitOutcome, compaction_warning, follow
from tidelake.ops.commit.overwrite import (
    Overwrite,
    check_inside,
    dynamic_filter,
    overwrite_changes,
    static_filter,
    written_partitions,
)
from tidelake.ops.commit.progress import Published, find_published, note_committed, note_pending
from tidelake.ops.commit.publish import FileSystemPublisher, SnapshotPublisher
from tidelake.ops.commit.rebase import Reassigner, SequenceRebaser, rebase_messages
from tidelake.ops.commit.replays import check_replays
from tidelake.ops.commit.success import mark_done
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import EVERY_PARTITION
from tidelake.options import Bytes
from tidelake.spec.avro import codec_name
from tidelake.spec.binary_row import decode_rows
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifest import ADD
from tidelake.spec.option_support import refuse_commit
from tidelake.spec.progress import PROPERTY_PREFIX, Progress
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.spec.types import with_nullable
from tidelake.store.manifests import ManifestNames
from tidelake.store.paths import DataPaths, PathOptions
from tidelake.store.table_store import TableStore

_INT64 = 2**63
_HEADROOM = 1 << 16
"""Sequence numbers that a second rebase leaves free at most; each further one sixteen times as many."""

Guard = Callable[[Snapshot | None, tuple[CommitMessage, ...]], None]
"""Looks at the newest snapshot and at the messages as they stand, and raises if they do not go together."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The snapshots a commit has published so far."""

    done: tuple[Done, ...] = ()
    compaction_lost: bool = False
    incomplete: bool = False
    """Whether whoever repeats the commit shall try what was compacted once more."""


class Committer:
    """Commits for one user. Not shared between threads; cheap to make."""

    def __init__(
        self,
        store: TableStore,
        user: str,
        *,
        publisher: SnapshotPublisher | None = None,
        rebaser: SequenceRebaser | None = None,
        reassigner: Reassigner | None = None,
        options: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> None:
        """A committer of one user.

        Args:
            store: the table's documents.
            user: the commit user.
            publisher: who makes a snapshot the newest one; by default the table's own folder.
            rebaser: who rewrites files whose sequence numbers another commit overtook.
            reassigner: who puts rows elsewhere whose keys another commit placed there first.
            options: the options in force, where they are more than those of the table's schema.
            guard: asked before every attempt to overwrite some partitions.

        Raises:
            InvalidInputError: the user is no text, or an option has a wrong value.
            UnsupportedError: an option is set that commits do not honour.
        """
        options = store.schema.options if options is None else options
        _check_text("commit user", user)
        refuse_commit(options)
        self._options = CommitOptions.parse(options)
        self._manifest = ManifestOptions.parse(options)
        codec, target = codec_name(self._manifest.compression), self._manifest.target_bytes
        store = replace(store, manifests=replace(store.manifests, codec=codec, target_bytes=target))
        self._store = store
        self._user = user
        self._rebaser, self._reassigner = rebaser, reassigner
        self._guard = guard
        self._shape = TableShape.parse(options)
        self._bucket = BucketOptions.parse(options).bucket
        self._looks_up = bool(store.schema.primary_keys) and looks_up(options)
        self._paths = DataPaths(store.layout, store.schema, PathOptions.parse(options))
        check_shape(self._shape, store.layout.branch)
        self._loop = Loop(
            store,
            user,
            publisher or FileSystemPublisher(store.snapshots),
            commit=self._options,
            manifest=self._manifest,
            shape=self._shape,
            bucket=self._bucket,
            names=ManifestNames(store.env.ids.uuid()),
        )
        self._opened_after = store.snapshots.latest_id() or 0
        self._unknown = False
        self._outcome = CommitOutcome()
        self._added: set[str] = set()

    @property
    def user(self) -> str:
        """The commit user."""
        return self._user

    @property
    def left_nothing(self) -> bool:
        """Whether it is certain that the last commit published nothing."""
        return self._outcome.left_nothing

    def note_interrupt(self, error: BaseException) -> None:
        """Name in an interrupt what the last commit published; an `Exception` says what it says itself."""
        if not isinstance(error, Exception):
            self._outcome.note(error)

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the files of the commit that was just tried, or was about to be, as far as they are nobody's.

        For whoever wrote them itself and will not offer them again. Where the written part is published only what was
        compacted goes; where anything may be, nothing does. An error of the storage leaves the rest to orphan cleaning.
        """
        outcome = self._outcome
        if outcome.unknown or self._unknown:
            return
        if outcome.is_published:
            if outcome.is_compacted:
                return
            messages = [replace(each, data=DataIncrement()) for each in messages]
        kept = referenced_names(messages)
        paths = plan_abort(messages, self._path_of, self._paths.index)
        self._delete([path for path in paths if path.rpartition("/")[2] not in kept])

    # -------------------------------------------------------------------------------------------- commit

    def commit(self, committable: Committable, *, recovering: bool = False, guard: Guard | None = None) -> CommitResult:
        """Publish what writers prepared.

        Repeating a numbered commit is a no-op that tells `repeated`. `recovering` also checks the written part for
        conflicts, because an old attempt may have been overtaken. `guard` is asked before every attempt to publish
        the written part, and refuses it by raising.

        Raises:
            InvalidInputError: a number does not fit, or a file is added twice.
            CommitConflictError: others changed the same files.
            CommitUnknownError: the storage did not tell whether a snapshot is there; nothing was deleted.
            StorageError: the storage failed, and nothing (more) was published.
        """
        self._validate(committable)
        return self._numbered(committable, lambda found: self._commit_parts(committable, found, recovering, guard))

    def _commit_parts(
        self, committable: Committable, published: Published, recovering: bool, guard: Guard | None
    ) -> _Parts:
        written, compacted = split_messages(committable.messages, default_buckets=self._bucket)
        if committable.is_batch:
            self._refuse_committed(written)
        ignore_empty = self._options.ignores_empty(committable.is_batch)
        done: list[Done] = []
        # The written part is published first, and may have expired since: any snapshot of the number proves it.
        if not (ignore_empty and written.is_empty) and not published.snapshots:
            takes_away = written.deletes_rows
            provider = _Rebasing(
                self._store, committable.messages, written, self._rebaser, self._reassigner, self._bucket, guard
            )
            request = self._request(
                committable,
                seen_id=published.seen_id,
                kind=CommitKind.OVERWRITE if takes_away else CommitKind.APPEND,
                provider=provider,
                # After a lost answer the same files may be there already, and only looking tells.
                detect_conflicts=takes_away or recovering or self._unknown,
            )
            done += _some(self._run_rebasing(request, provider, committable))
            if provider.messages != committable.messages and not any(each.repeated for each in done):
                return self._after_rebase(committable, published, done, provider.messages)
        return self._compact_part(committable, published, done, compacted, committable.messages)

    def _run_rebasing(self, request: Request, provider: _Rebasing, committable: Committable) -> Done | None:
        """Publish the written part; of the files of before and after a rebase those go that are certainly nobody's."""
        try:
            done = self._loop.run(request, self._outcome)
        except BaseException:
            if self._outcome.left_nothing:
                self._delete(self._only_in(*provider.made()))
            raise
        if done is None or done.repeated:
            self._delete(self._only_in(*provider.made()))
        else:
            with self._outcome.following("removing what was written again"):
                self._let_go(self._only_in(*provider.replaced()), committable)
        return done

    def _only_in(self, some: Sequence[CommitMessage], others: Sequence[CommitMessage]) -> list[str]:
        """The files that the first messages brought and the others did not."""
        gone, kept = (plan_abort(each, self._path_of, self._paths.index) for each in (some, others))
        return sorted(set(gone).difference(kept))

    def _let_go(self, paths: Sequence[str], committable: Committable) -> None:
        """Remove files that came with a commit and that it did not publish, if nobody else can have done so.

        A number is looked for before anything is published; of a batch that is tried again only the snapshots tell.
        """
        if committable.is_batch:
            try:
                paths = unpublished(self._store, paths, committable.messages)
            except Exception:  # noqa: BLE001 - found by orphan cleaning
                return
        self._delete(paths)

    def _delete(self, paths: Sequence[str]) -> None:
        """Delete what belongs to nobody, as far as the storage lets us; what stays is an orphan."""
        for path in paths:
            # Whatever fails here must not hide what the commit has come to.
            with suppress(Exception):
                self._store.env.io.delete(path)

    def _after_rebase(
        self, committable: Committable, published: Published, done: Sequence[Done], messages: Sequence[CommitMessage]
    ) -> _Parts:
        """Compactions that read files which were written again are left to the next one; the others follow."""
        _, compacted = split_messages(messages, default_buckets=self._bucket)
        parts = self._compact_part(committable, published, done, compacted, messages)
        kept = [each.compact for each in messages]
        lost = any(each.compact != CompactIncrement() and each.compact not in kept for each in committable.messages)
        if lost and self._looks_up and not parts.compaction_lost:
            overtaken = CommitConflictError("another job committed to the same buckets first")
            self._outcome.warnings.append(compaction_warning(overtaken, hides=True))
        return replace(parts, compaction_lost=parts.compaction_lost or lost)

    def _refuse_committed(self, written: Changes) -> None:
        """A batch commit has no number that would make its repetition a no-op, and an append looks at no live file."""
        again = self._added.intersection(_added_names(written))
        if again:
            raise InvalidInputError(
                "files were committed before by this committer",
                code="committed-before",
                file=min(again),
                files=len(again),
                hint="commit each message once, or number the commits with identifier=",
            )

    def _compact_part(
        self,
        committable: Committable,
        published: Published,
        done: Sequence[Done],
        compacted: Changes,
        messages: Sequence[CommitMessage] = (),
    ) -> _Parts:
        """Publish what was compacted; `messages` tell on which snapshots that was planned."""
        if compacted.is_empty or CommitKind.COMPACT in published.kinds():
            return _Parts(tuple(done))
        outcome = self._outcome

        def provider(state: State) -> Changes:
            if self._looks_up:
                check_lookups(self._store, messages, state.snapshot)
            if self._bucket == POSTPONE_BUCKET:
                check_replays(self._store, messages, state.snapshot)
            return compacted

        request = self._request(
            committable,
            seen_id=published.seen_id,
            kind=CommitKind.COMPACT,
            provider=provider,
            detect_conflicts=True,
        )
        try:
            return _Parts((*done, *_some(self._loop.run(request, outcome))))
        except Exception as error:
            if not outcome.is_published:
                raise
            failed = not isinstance(error, CommitConflictError)
            if failed or self._looks_up:
                outcome.warnings.append(compaction_warning(error, hides=self._looks_up))
            self._let_go_compacted(committable, messages)
            return _Parts(tuple(done), compaction_lost=True, incomplete=failed)
        except BaseException:
            if outcome.is_published:
                self._let_go_compacted(committable, messages)
            raise

    def _let_go_compacted(self, committable: Committable, messages: Sequence[CommitMessage]) -> None:
        """Remove what a compaction wrote that follows a published write and was certainly not published itself."""
        # A twin that repeats a numbered commit may be about to publish the same files.
        if committable.is_batch and not self._outcome.unknown:
            compactions = [replace(each, data=DataIncrement()) for each in messages]
            self._let_go(self._only_in(compactions, ()), committable)

    def _request(self, committable: Committable, **how: object) -> Request:
        properties = dict(committable.properties)
        if not committable.is_batch:
            properties[PROPERTY_PREFIX + self._user] = str(committable.identifier)
        return Request(
            identifier=committable.identifier,
            watermark=committable.watermark,
            properties=properties,
            operation=committable.operation,
            **how,  # type: ignore[arg-type]
        )

    # -------------------------------------------------------------------------------------------- overwrite

    @property
    def published_schema_id(self) -> int:
        """The newest schema that the last commit met: a snapshot names the schema that its table has by then."""
        return max((each.schema_id for each in self._outcome.published), default=self._store.schema.id)

    def overwrite(
        self, committable: Committable, partition: Mapping[str, object] | None = None, *, dynamic: bool | None = None
    ) -> CommitResult:
        """Replace partitions by what writers prepared.

        A dynamic overwrite (the default of partitioned tables) replaces the partitions that rows were written to; a
        static one the partitions that `partition` names, all without it. Changelog files are not published by an
        overwrite.

        Raises:
            InvalidInputError: a new file lies outside the partitions to replace, or a name is no partition column.
            CommitConflictError: as `commit`.
            CommitUnknownError: as `commit`.
            StorageError: as `commit`.
        """
        self._validate(committable)
        touched = written_partitions(committable.messages)
        if self._reassigner is None:
            return self._overwritten(committable, partition, dynamic, touched)
        # Nothing of what is there stays, so that buckets which were chosen by it are indexed anew.
        placed = replace(committable, messages=self._reassigner.reassign(committable.messages, None, ()))
        try:
            done = self._overwritten(placed, partition, dynamic, touched)
        except BaseException:
            if self._outcome.left_nothing:
                self._delete(self._only_in(placed.messages, committable.messages))
            raise
        if done.repeated:
            self._delete(self._only_in(placed.messages, committable.messages))
            return done
        left = self._only_in(committable.messages, placed.messages)
        return follow(done, "removing indexes that were written again", lambda: self._let_go(left, committable))

    def _overwritten(
        self,
        committable: Committable,
        partition: Mapping[str, object] | None,
        dynamic: bool | None,
        touched: frozenset[bytes],
    ) -> CommitResult:
        schema = self._store.schema
        chosen = self._options.dynamic_partition_overwrite if dynamic is None else dynamic
        messages = self._raised(committable.messages)
        written, compacted = split_messages(messages, default_buckets=self._bucket)
        if schema.partition_keys and chosen:
            if not touched:
                return self._numbered(
                    committable, lambda found: self._compact_part(committable, found, (), compacted, messages)
                )
            partitions: PartitionFilter = dynamic_filter(schema, touched)
        else:
            partitions = static_filter(schema, partition or {})
            check_inside(written.delta, partitions)
        return self._overwrite(committable, partitions, written, compacted)

    def truncate(self, *, identifier: int = BATCH_IDENTIFIER) -> CommitResult:
        """Delete every row of the table; `rows` of the result are those that went."""
        committable = Committable(messages=(), identifier=identifier, operation="TRUNCATE")
        self._validate(committable)
        return self._overwrite(committable, EVERY_PARTITION, NO_CHANGES, NO_CHANGES)

    def drop_partitions(
        self, partitions: PartitionFilter, *, identifier: int = BATCH_IDENTIFIER, operation: str | None = "TRUNCATE"
    ) -> CommitResult:
        """Delete every row of the chosen partitions; `rows` of the result are those that went."""
        committable = Committable(messages=(), identifier=identifier, operation=operation)
        self._validate(committable)
        return self._overwrite(committable, partitions, NO_CHANGES, NO_CHANGES)

    def _overwrite(
        self, committable: Committable, partitions: PartitionFilter, written: Changes, compacted: Changes
    ) -> CommitResult:
        overwrite = Overwrite(partitions, postponed=self._bucket == POSTPONE_BUCKET)
        manifests = self._store.manifests

        def provider(state: State) -> Changes:
            if self._guard is not None and partitions is not EVERY_PARTITION:
                self._guard(state.snapshot, committable.messages)
            return overwrite_changes(written, overwrite, manifests, state.metas, state.index)

        def parts(published: Published) -> _Parts:
            done: list[Done] = []
            if not published.snapshots:  # any snapshot of the number proves it, see `_commit_parts`
                request = self._request(
                    committable,
                    seen_id=published.seen_id,
                    kind=CommitKind.OVERWRITE,
                    provider=provider,
                    detect_conflicts=True,
                    fixed_changes=False,
                )
                done += _some(self._loop.run(request, self._outcome))
            return self._compact_part(committable, published, done, compacted, committable.messages)

        return self._numbered(committable, parts)

    def _raised(self, messages: Sequence[CommitMessage]) -> tuple[CommitMessage, ...]:
        schema = self._store.schema
        plain = tuple(replace(m, data=replace(m.data, changelog_files=())) for m in messages)
        wanted = self._options.overwrite_upgrade and schema.primary_keys
        if not wanted or any(message.compact.after or message.compact.before for message in plain):
            return plain
        types = [schema.field(name).type for name in schema.trimmed_primary_keys]
        return upgrade_levels(plain, level=self._shape.max_level, key_types=types)

    # -------------------------------------------------------------------------------------------- other snapshots

    def compact_manifests(self) -> CommitResult:
        """Merge all manifests fully; publishes a snapshot only if that changed them."""
        forced = replace(self._manifest, merge_min_count=1, full_threshold_bytes=Bytes(1))
        request = Request(
            kind=CommitKind.COMPACT,
            provider=lambda _: NO_CHANGES,
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=False,
            force_merge=forced,
            skip_unchanged=True,
        )
        return _result(_Parts(tuple(_some(self._guarded(request)))))

    def analyze(self, statistics_file: str) -> CommitResult:
        """Publish a statistics document that is already written."""
        request = Request(
            kind=CommitKind.ANALYZE,
            provider=lambda _: NO_CHANGES,
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=False,
            statistics=statistics_file,
        )
        return _result(_Parts(tuple(_some(self._guarded(request)))))

    def _guarded(self, request: Request) -> Done | None:
        with self._tried() as outcome:
            return self._loop.run(request, outcome)

    @contextmanager
    def _tried(self, published: Published | None = None) -> Iterator[CommitOutcome]:
        """One commit: whatever ends it, it is known how far it came, and an interrupt says so."""
        before = published is not None and bool(published.snapshots)
        outcome = self._outcome = CommitOutcome(published_before=before)
        try:
            yield outcome
        except Exception:
            raise
        except BaseException as interrupt:
            outcome.note(interrupt)
            raise
        finally:
            self._unknown |= outcome.unknown

    # -------------------------------------------------------------------------------------------- recovery

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """Of these identifiers, in order, those that are not published yet.

        Raises:
            InvalidInputError: they do not increase strictly.
            CommitUnknownError: nobody can tell any more.
        """
        wanted = list(identifiers)
        if any(a >= b for a, b in pairwise(wanted)):
            raise InvalidInputError("commit identifiers must increase", identifiers=wanted[:20])
        progress = self._store.progress.read(self._user)
        open_ones = []
        for identifier in wanted:
            published = find_published(self._store.snapshots, progress, identifier)
            if not published.done and not published.snapshots:
                open_ones.append(identifier)
        return open_ones

    def recover(self, committables: Sequence[Committable]) -> list[CommitResult]:
        """After a restart: publish those of these commits that are not there yet, in order.

        Raises:
            CommitUnknownError: files of an unpublished commit are gone, or nobody can tell what was published.
            CommitConflictError: as `commit`.
        """
        ordered = sorted(committables, key=lambda each: each.identifier)
        missing = set(self.filter_committed([each.identifier for each in ordered]))
        for committable in ordered:
            lost = self._lost_file(committable.messages) if committable.identifier in missing else None
            if lost is not None:
                raise CommitUnknownError(
                    "file of a commit to recover is gone",
                    path=lost,
                    commit_identifier=committable.identifier,
                    hint="the job resumes from a state that is too old; start it from a newer one",
                )
        return [self._recovered(committable) for committable in ordered]

    def _recovered(self, committable: Committable) -> CommitResult:
        """Publish what is missing of a commit; a compaction whose files were cleaned away meanwhile is left undone."""
        progress = self._store.progress.read(self._user)
        published = find_published(self._store.snapshots, progress, committable.identifier)
        if published.snapshots and CommitKind.COMPACT not in published.kinds():
            rest = [replace(message, data=DataIncrement()) for message in committable.messages]
            if self._lost_file(rest) is not None:
                return CommitResult(repeated=True, compaction_lost=True)
        return self.commit(committable, recovering=True)

    def _lost_file(self, messages: Sequence[CommitMessage]) -> str | None:
        paths = plan_abort(messages, self._path_of, self._paths.index)
        return next((path for path in paths if not self._store.env.io.exists(path)), None)

    def abort(self, messages: Sequence[CommitMessage], *, identifier: int | None = None) -> AbortResult:
        """Delete the files of messages that were never committed; leave them in any doubt.

        Raises:
            StorageError: the storage failed; some files may be left.
        """
        paths = plan_abort(messages, self._path_of, self._paths.index)
        kept = referenced_names(messages)
        reason = self._doubt(identifier)
        if reason is not None:
            return AbortResult(left=paths, reason=reason)
        deleted = [path for path in paths if path.rpartition("/")[2] not in kept]
        for path in deleted:
            self._store.env.io.delete(path)
        return AbortResult(deleted=tuple(deleted))

    def _doubt(self, identifier: int | None) -> str | None:
        """Why files of this user may be live, or None when it is certain that they are not."""
        if self._unknown:
            return "the outcome of a commit is unknown"
        try:
            snapshots = self._store.snapshots
            progress = self._store.progress.read(self._user)
            if progress.pending is not None and identifier in (None, BATCH_IDENTIFIER, progress.pending):
                return "a commit of this user was about to be published"
            earliest = snapshots.earliest_id()
            if earliest is not None and earliest > self._opened_after + 1:
                return "snapshots since the job began have expired"
            for snapshot in snapshots.newest_first():
                if snapshot.commit_user == self._user and identifier in (
                    None,
                    BATCH_IDENTIFIER,
                    snapshot.commit_identifier,
                ):
                    return "a snapshot of this user and identifier exists"
        except TidelakeError as error:
            return f"the snapshots could not be read: {error.message}"
        return None

    # -------------------------------------------------------------------------------------------- numbered commits

    def _numbered(self, committable: Committable, run: Callable[[Published], _Parts]) -> CommitResult:
        """Run the parts of a commit so that a numbered one is published at most once."""
        self._outcome = CommitOutcome()
        progress: Progress | None = None
        published = Published()
        if not committable.is_batch:
            progress = self._store.progress.read(self._user)
            published = find_published(self._store.snapshots, progress, committable.identifier)
            if published.done:
                return CommitResult(repeated=True)
            if not published.snapshots:
                progress = note_pending(self._store.progress, progress, committable.identifier, published.seen_id)
        with self._tried(published) as outcome:
            parts = run(published)
            mine = tuple(each for each in parts.done if not each.repeated)
            if committable.is_batch:
                self._added |= {name for each in mine for name in _added_names(each.changes)}
                if mine:  # as they were given, too: they may have been written again on the way
                    self._added |= {file.file_name for each in committable.messages for file in each.data.new_files}
            there = outcome.published_before = bool(published.snapshots) or len(mine) < len(parts.done)
            with outcome.following("writing a note of it"):
                self._note_done(committable, progress, parts)
            result = replace(_result(replace(parts, done=mine)), warnings=tuple(outcome.warnings))
            return replace(result, repeated=True) if there and not mine else result

    def _note_done(self, committable: Committable, progress: Progress | None, parts: _Parts) -> None:
        """What follows a publish."""
        if progress is not None and not parts.incomplete:
            note_committed(self._store.progress, progress, committable.identifier)
        if committable.is_batch and self._shape.mark_done_at_end and parts.done:
            self._mark_done(parts.done)

    def _mark_done(self, done: Sequence[Done]) -> None:
        if not self._store.schema.partition_keys:
            return
        touched = {row for each in done for row in each.changes.delta.column("partition").unique().to_pylist()}
        paths = sorted(self._paths.partition(row) for row in touched)
        mark_done(self._store.env.io, self._store.layout, paths, self._store.env.clock)

    def _path_of(self, partition: bytes, bucket: int, name: str) -> str:
        return self._store.layout.data_path(self._paths.partition(partition), bucket, name)

    def _validate(self, committable: Committable) -> None:
        validate_number("commit identifier", committable.identifier, -_INT64, _INT64 - 1)
        validate_number("watermark", committable.watermark, -_INT64, _INT64 - 1)
        for key, value in committable.properties.items():
            _check_text("snapshot property", key)
            _check_text("snapshot property", value)
        arity = len(self._store.schema.partition_keys).to_bytes(4, "big")
        for message in committable.messages:
            if not isinstance(message, CommitMessage):
                raise InvalidInputError("message is no commit message", got=type(message).__name__)
            row: object = message.partition
            if not isinstance(row, bytes) or row[:4] != arity:
                raise InvalidInputError("commit message has another number of partition values", bucket=message.bucket)
        self._check_partitions({message.partition for message in committable.messages})

    def _check_partitions(self, rows: set[bytes]) -> None:
        types = [with_nullable(dtype, True) for dtype in self._store.schema.partition_types]
        try:
            decode_rows(pa.array(sorted(rows), pa.large_binary()), types)
        except FormatError as cause:
            raise InvalidInputError("commit message has damaged partition values", cause=cause.message) from cause


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} must be a text", got=type(text).__name__)
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InvalidInputError(f"{what} is not valid Unicode text", value=ascii(text[:80])) from cause


class _Rebasing:
    """Provides the written changes, with rows placed and numbered anew where another commit was there first."""

    def __init__(
        self,
        store: TableStore,
        messages: Sequence[CommitMessage],
        written: Changes,
        rebaser: SequenceRebaser | None,
        reassigner: Reassigner | None,
        default_buckets: int,
        guard: Guard | None,
    ) -> None:
        self._store, self._given, self.messages, self._written = store, tuple(messages), tuple(messages), written
        self._rebaser, self._reassigner = rebaser, reassigner
        self._default_buckets, self._guard = default_buckets, guard
        self._passed: list[CommitMessage] = []
        self._rebased = self._checked_id = 0

    def _headroom(self) -> int:
        """Numbers to leave free: by chance, so that not all who wait have to rebase when one is published."""
        if not self._rebased:
            return 0
        return int(self._store.env.ids.random() * (_HEADROOM << min(4 * self._rebased - 4, 24)))

    def __call__(self, state: State) -> Changes:
        before = self.messages
        if self._guard is not None:
            self._guard(state.snapshot, before)
        if self._reassigner is not None:
            self._take(self._reassigner.reassign(before, state.snapshot, state.index, checked_id=self._checked_id))
        placed = self.messages
        redeal = None if self._reassigner is None else self._redealt
        self._take(
            rebase_messages(
                self._store, placed, state.snapshot, self._rebaser, self._headroom(), self._checked_id, redeal
            )
        )
        self._checked_id = state.snapshot.id if state.snapshot else 0
        self._rebased += self.messages != placed
        if self.messages != before:
            self._written, _ = split_messages(self.messages, default_buckets=self._default_buckets)
        return self._written

    def _redealt(
        self, messages: Sequence[CommitMessage], counts: Mapping[bytes, int], latest: Snapshot
    ) -> tuple[CommitMessage, ...]:
        assert self._reassigner is not None
        self._take(self._reassigner.redeal(messages, counts, latest))
        return self.messages

    def _take(self, messages: tuple[CommitMessage, ...]) -> None:
        """Go on with these messages; what came before them is remembered, because somebody has to remove it."""
        if messages != self.messages:
            self._passed += self.messages
            self.messages = messages

    def made(self) -> tuple[Sequence[CommitMessage], Sequence[CommitMessage]]:
        """Messages with what was made on the way, and those that were given."""
        return (*self._passed, *self.messages), self._given

    def replaced(self) -> tuple[Sequence[CommitMessage], Sequence[CommitMessage]]:
        """Messages with what was given and made on the way, and those that were published."""
        return self._passed, self.messages


def _added_names(changes: Changes) -> list[str]:
    delta = changes.delta
    names: list[str] = delta.column("file_name").filter(pc.equal(delta.column("kind"), ADD)).to_pylist()
    return names


def _added(done: Sequence[Done]) -> pa.Table:
    """What these snapshots added."""
    deltas = [each.changes.delta for each in done]
    return pa.concat_tables([delta.filter(pc.equal(delta.column("kind"), ADD)) for delta in deltas])


def _some(done: Done | None) -> list[Done]:
    return [] if done is None else [done]


def _removed_rows(done: Sequence[Done]) -> int:
    """How many rows the snapshots of a commit that adds nothing took away."""
    return -sum(each.snapshot.delta_record_count or 0 for each in done)


def _result(parts: _Parts) -> CommitResult:
    if not parts.done:
        return CommitResult(compaction_lost=parts.compaction_lost)
    added = _added(parts.done)
    # Rows that a compaction wrote again are those of others: only where nothing else was done they are what was done.
    written = [each for each in parts.done if each.snapshot.commit_kind is not CommitKind.COMPACT]
    counted = _added(written) if written else added
    rows = int(pc.sum(counted.column("row_count")).as_py() or 0) if added.num_rows else _removed_rows(parts.done)
    return CommitResult(
        snapshot_ids=tuple(each.snapshot.id for each in parts.done),
        rows=rows,
        files=added.num_rows,
        bytes=int(pc.sum(added.column("file_size")).as_py() or 0),
        attempts=sum(each.attempts for each in parts.done),
        compaction_lost=parts.compaction_lost,
    )
