"""The committer of one commit user: commits, overwrites, recovers and aborts.

A commit has two parts, what was written and what was compacted, and so one or two snapshots with one identifier. A
numbered commit is published at most once, however often it is repeated. Once the written part is published nothing
raises to the caller any more (`outcome`): a compaction that lost its race or met an error is left to a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import (
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    TidelakeError,
)
from tidelake.ops.commit.abort import AbortResult, plan_abort, referenced_names
from tidelake.ops.commit.changes import NO_CHANGES, Changes, measure_compaction, split_messages, upgrade_levels
from tidelake.ops.commit.conflicts import PARTITIONS_EXPIRED
from tidelake.ops.commit.guards import Guard
from tidelake.ops.commit.hook import Hook
from tidelake.ops.commit.leftovers import select_unpublished
from tidelake.ops.commit.lookup_guard import LevelsUnchanged, looks_up
from tidelake.ops.commit.loop import Done, Loop, Request, validate_number
from tidelake.ops.commit.manifest_sort import make_order
from tidelake.ops.commit.mark_done import MarkDoneOptions, check_mark_done, run_mark_done
from tidelake.ops.commit.messages import (
    BATCH_IDENTIFIER,
    CommitMessage,
    CommitResult,
    Committable,
    Compacted,
    CompactIncrement,
    DataIncrement,
)
from tidelake.ops.commit.options import CommitOptions, ManifestOptions, TableShape, check_shape, force_full_merge
from tidelake.ops.commit.outcome import CommitOutcome, compaction_warning
from tidelake.ops.commit.overwrite import (
    Overwrite,
    check_inside,
    dynamic_filter,
    static_filter,
    written_partitions,
)
from tidelake.ops.commit.progress import Published, doubts_origin, find_published, note_committed, note_pending
from tidelake.ops.commit.providers import FixedChanges, OverwriteChanges, RebasedChanges, ReturningChanges
from tidelake.ops.commit.rebase import Reassigner, SequenceRebaser, drop_doubtful_compactions
from tidelake.ops.commit.replay_guard import BucketsUnwritten
from tidelake.ops.context import TableContext
from tidelake.ops.scan.partition_times import ExpiredByValue
from tidelake.ops.scan.partitions import PartitionFilter
from tidelake.ops.scan.plan import EVERY_PARTITION
from tidelake.options.capabilities import refuse_commit
from tidelake.spec.avro.container import codec_name
from tidelake.spec.documents.progress import PROPERTY_PREFIX, CommitProgress
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions
from tidelake.spec.types.data_types import with_nullable
from tidelake.store.manifests import ManifestNames
from tidelake.store.snapshots import SnapshotPublisher

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class _Parts:
    """The snapshots a commit has published so far."""

    done: tuple[Done, ...] = ()
    compaction_lost: bool = False
    incomplete: bool = False
    """Whether a repetition of the commit should publish the compacted part again."""


class Committer:
    """Commits for one user. Do not share it between threads; it is cheap to create."""

    def __init__(
        self,
        context: TableContext,
        user: str,
        *,
        publisher: SnapshotPublisher | None = None,
        rebaser: SequenceRebaser | None = None,
        reassigner: Reassigner | None = None,
        overwrite_guards: Sequence[Guard] = (),
        hooks: Sequence[Hook] = (),
        last_safe: int | None = None,
    ) -> None:
        """A committer of one user. Tables open theirs with `ops.hooks`, which knows all ports and hooks.

        Args:
            context: the table.
            user: the commit user.
            publisher: publishes snapshots; by default the publisher of the table.
            rebaser: rewrites files whose sequence numbers another commit overtook.
            reassigner: moves rows whose keys another commit placed in another bucket first.
            overwrite_guards: guards of an overwrite of some partitions.
            hooks: post-commit hooks of every commit, in this order.
            last_safe: refuse the commit if others replaced files since this snapshot; None: the option of strict mode.

        Raises:
            InvalidInputError: the user is not a string, or an option has a wrong value.
            UnsupportedError: an option is set that commits do not support.
        """
        store, options = context.store, context.options
        _check_text("commit user", user)
        refuse_commit(options)
        self._options = options.of(CommitOptions)
        self._manifest = options.of(ManifestOptions)
        make_order(self._manifest, store.schema)  # a wrong column is an error before anything is written
        codec, target = codec_name(self._manifest.compression), self._manifest.target_bytes
        store = replace(store, manifests=replace(store.manifests, codec=codec, target_bytes=target))
        self._store = store
        self._user = user
        self._rebaser, self._reassigner = rebaser, reassigner
        self._overwrite_guards, self._hooks = tuple(overwrite_guards), tuple(hooks)
        self._shape = options.of(TableShape)
        self._bucket = options.of(BucketOptions).bucket
        self._mode = context.bucket_mode
        self._looks_up = context.is_keyed and looks_up(options)
        self._compaction_guards = self._guards_of_compactions()
        self._paths = context.paths
        self._name, self._mark_done = context.name, options.of(MarkDoneOptions)
        check_shape(self._shape, store.layout.branch)
        if self._mark_done.at_end:
            check_mark_done(self._mark_done)
        self._loop = Loop(
            store,
            user,
            publisher or store.publisher,
            commit=self._options,
            manifest=self._manifest,
            shape=self._shape,
            mode=self._mode,
            names=ManifestNames(store.env.ids.uuid()),
            last_safe=self._options.strict_last_safe_snapshot if last_safe is None else last_safe,
            all_expired=ExpiredByValue(store.schema, options, store.env.clock),
        )
        self._opened_after = store.snapshots.latest_id() or 0
        self._unknown = False
        self._outcome = CommitOutcome()
        self._added: set[str] = set()
        self._found: tuple[tuple[int, CommitProgress, Snapshot | None], Published] | None = None

    def _guards_of_compactions(self) -> tuple[Guard, ...]:
        """The guards of every compaction: what it depends on besides the files that it replaces."""
        guards: list[Guard] = []
        if self._looks_up:
            guards.append(LevelsUnchanged(self._store))
        if self._mode is BucketMode.POSTPONED:
            guards.append(BucketsUnwritten(self._store))
        return tuple(guards)

    @property
    def user(self) -> str:
        """The commit user."""
        return self._user

    @property
    def left_nothing(self) -> bool:
        """Whether it is certain that the last commit published nothing."""
        return self._outcome.left_nothing

    def note_interrupt(self, error: BaseException) -> None:
        """Add to an interrupt a note with the snapshots of the last commit; an `Exception` names them itself."""
        if not isinstance(error, Exception):
            self._outcome.note(error)

    def discard(self, messages: Sequence[CommitMessage]) -> None:
        """Delete the files of a commit that failed or was not attempted, as far as no snapshot refers to them.

        For callers that wrote the files themselves and will not commit them again. If the written part is published,
        only the files of the compacted part are deleted; if the outcome is unknown, none are. If the storage fails,
        the rest is left to orphan cleaning.
        """
        outcome = self._outcome
        if outcome.unknown or self._unknown:
            return
        if outcome.is_published:
            if outcome.is_compacted:
                return
            messages = [replace(each, data=DataIncrement()) for each in messages]
        self.discard_unoffered(messages)

    def discard_unoffered(self, messages: Sequence[CommitMessage]) -> None:
        """Delete the files of messages that this committer never tried to commit, whatever it committed before."""
        kept = referenced_names(messages)
        paths = plan_abort(messages, self._path_of, self._paths.index)
        self._delete([path for path in paths if path.rpartition("/")[2] not in kept])

    # -------------------------------------------------------------------------------------------- commit

    def commit(
        self, committable: Committable, *, recovering: bool = False, guards: Sequence[Guard] = ()
    ) -> CommitResult:
        """Publish what writers prepared.

        Repeating a numbered commit is a no-op; its result has `repeated` set. `recovering` also checks the written part
        for conflicts, because other commits may have followed the first attempt. `guards` are checked before every
        attempt to publish the written part, and refuse it by raising.

        Raises:
            InvalidInputError: a number is out of range, or a file is added twice.
            CommitConflictError: others changed the same files.
            CommitUnknownError: it is unknown whether a snapshot was published; nothing was deleted.
            StorageError: the storage failed, and nothing (more) was published.
        """
        self._validate(committable)
        return self._run_numbered(
            committable, lambda found: self._commit_parts(committable, found, recovering, tuple(guards))
        )

    def _commit_parts(
        self, committable: Committable, published: Published, recovering: bool, guards: tuple[Guard, ...]
    ) -> _Parts:
        written, compacted = split_messages(committable.messages, default_buckets=self._bucket)
        if committable.is_batch:
            self._refuse_committed(written)
        ignore_empty = self._options.ignores_empty(committable.is_batch)
        done: list[Done] = []
        # The written part is published first, and may have expired since: any snapshot of the number proves it.
        if not (ignore_empty and written.is_empty) and not published.snapshots:
            takes_away = written.deletes_rows
            provider = RebasedChanges(
                self._store, committable.messages, written, self._rebaser, self._reassigner, self._bucket
            )
            request = self._request(
                committable,
                seen_id=published.seen_id,
                kind=CommitKind.OVERWRITE if takes_away else CommitKind.APPEND,
                provider=provider,
                guards=guards,
                # After a lost answer the same files may be live already; only the check for conflicts finds that out.
                detect_conflicts=takes_away or recovering or self._unknown,
            )
            done += _as_list(self._run_rebasing(request, provider, committable))
            if provider.messages != committable.messages and not any(each.repeated for each in done):
                return self._after_rebase(committable, published, done, provider.messages)
        before = (*published.snapshots, *(each.snapshot for each in done if each.repeated))
        if before and CommitKind.COMPACT not in published.kinds():
            kept = drop_doubtful_compactions(committable.messages, before[0])
            return self._after_rebase(committable, published, done, kept)
        return self._compact_part(committable, published, done, compacted, committable.messages)

    def _run_rebasing(self, request: Request, provider: RebasedChanges, committable: Committable) -> Done | None:
        """Publish the written part; delete files from before or after a rebase that certainly no snapshot names."""
        with self._delete_on_error(lambda: self._only_in(*provider.pair_made_with_given())):
            done = self._loop.run(request, self._outcome)
        if done is None or done.repeated:
            self._delete(self._only_in(*provider.pair_made_with_given()))
        else:
            with self._outcome.warn_on_failure("removing files replaced by a rebase"):
                self._remove_unpublished(self._only_in(*provider.pair_replaced_with_published()), committable)
        return done

    def _only_in(self, some: Sequence[CommitMessage], others: Sequence[CommitMessage]) -> list[str]:
        """The files that the first messages add and the others do not."""
        gone, kept = (plan_abort(each, self._path_of, self._paths.index) for each in (some, others))
        return sorted(set(gone).difference(kept))

    def _remove_unpublished(self, paths: Sequence[str], committable: Committable) -> None:
        """Delete files of a commit that it did not publish, unless another commit may have published them.

        A numbered commit was looked up before anything was published. A batch commit has no number, so the snapshots
        are searched for the files themselves.
        """
        if committable.is_batch:
            with suppress(Exception):  # orphan cleaning finds the files later
                self._delete(select_unpublished(self._store, paths, committable.messages))
        else:
            self._delete(paths)

    def _delete(self, paths: Sequence[str]) -> None:
        """Delete files that no snapshot refers to; a file that cannot be deleted stays as an orphan."""
        for path in paths:
            # A failure here must not hide the outcome of the commit.
            with suppress(Exception):
                self._store.env.io.delete(path)

    def _after_rebase(
        self, committable: Committable, published: Published, done: Sequence[Done], messages: Sequence[CommitMessage]
    ) -> _Parts:
        """Publish the compactions whose input was not rewritten by the rebase; the others are left to the next one."""
        _, compacted = split_messages(messages, default_buckets=self._bucket)
        parts = self._compact_part(committable, published, done, compacted, messages)
        kept = [each.compact for each in messages]
        lost = any(each.compact != CompactIncrement() and each.compact not in kept for each in committable.messages)
        if lost and self._looks_up and not parts.compaction_lost:
            overtaken = CommitConflictError("another job committed to the same buckets first")
            self._outcome.warnings.append(compaction_warning(overtaken, hides=True))
        return replace(parts, compaction_lost=parts.compaction_lost or lost)

    def _refuse_committed(self, written: Changes) -> None:
        """Refuse files of an earlier commit: a batch commit has no number, and an append reads no live files."""
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
        """Publish the compacted part; `messages` name the snapshots that it was planned on."""
        if compacted.is_empty or CommitKind.COMPACT in published.kinds():
            return _Parts(tuple(done))
        outcome = self._outcome
        request = self._request(
            committable,
            seen_id=published.seen_id,
            kind=CommitKind.COMPACT,
            provider=FixedChanges(compacted, tuple(messages)),
            guards=self._compaction_guards,
            detect_conflicts=True,
        )
        try:
            return _Parts((*done, *_as_list(self._loop.run(request, outcome))))
        except Exception as error:
            if not outcome.is_published:
                raise
            failed = not isinstance(error, CommitConflictError)
            if isinstance(error, CommitConflictError) and error.code == PARTITIONS_EXPIRED:
                outcome.warnings.append(f"committed, but {error}")
            elif failed or self._looks_up:
                outcome.warnings.append(compaction_warning(error, hides=self._looks_up))
            self._remove_lost_compaction(committable, messages)
            return _Parts(tuple(done), compaction_lost=True, incomplete=failed)
        except BaseException:
            if outcome.is_published:
                self._remove_lost_compaction(committable, messages)
            raise

    def _remove_lost_compaction(self, committable: Committable, messages: Sequence[CommitMessage]) -> None:
        """Delete the output of a compaction that was certainly not published although its written part was."""
        # Another process that repeats the same numbered commit may be about to publish the same files.
        if committable.is_batch and not self._outcome.unknown:
            compactions = [replace(each, data=DataIncrement()) for each in messages]
            self._remove_unpublished(self._only_in(compactions, ()), committable)

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
        """The newest schema of the last commit: each snapshot names the schema that is current when it is published."""
        return max((each.schema_id for each in self._outcome.published), default=self._store.schema.id)

    def schema_warning(self) -> str | None:
        """The warning if the last commit found a newer schema than the one the table was opened with; else None."""
        opened, published = self._store.schema.id, self.published_schema_id
        if published <= opened:
            return None
        return (
            f"committed with schema {opened}, but the table has schema {published} by now: new columns are null in "
            "these rows, and compactions of buckets that hold new columns are left to other jobs; open the table again"
        )

    def overwrite(
        self, committable: Committable, partition: Mapping[str, object] | None = None, *, dynamic: bool | None = None
    ) -> CommitResult:
        """Replace partitions with what writers prepared.

        A dynamic overwrite (the default of partitioned tables) replaces the partitions that rows were written to. A
        static one replaces the partitions that `partition` names, or all of them without it. An overwrite publishes no
        changelog files.

        Raises:
            InvalidInputError: a new file is outside the partitions to replace, or a name is not a partition column.
            CommitConflictError: as `commit`.
            CommitUnknownError: as `commit`.
            StorageError: as `commit`.
        """
        self._validate(committable)
        touched = written_partitions(committable.messages)
        if self._reassigner is None:
            return self._overwrite_partitions(committable, partition, dynamic, touched)
        # No live file stays, so the new rows get their buckets and key indexes without regard to the old ones.
        placed = replace(committable, messages=self._reassigner.reassign(committable.messages, None, ()))
        made = self._only_in(placed.messages, committable.messages)

        def remove_replaced(result: CommitResult) -> Iterable[str]:
            if not result.repeated:
                self._remove_unpublished(self._only_in(committable.messages, placed.messages), committable)
            return ()

        removal = Hook("removing replaced key indexes", remove_replaced, always=True)

        with self._delete_on_error(lambda: made):
            done = self._overwrite_partitions(placed, partition, dynamic, touched, removal)
        if done.repeated:
            self._delete(made)
        return done

    def _overwrite_partitions(
        self,
        committable: Committable,
        partition: Mapping[str, object] | None,
        dynamic: bool | None,
        touched: frozenset[bytes],
        *hooks: Hook,
    ) -> CommitResult:
        schema = self._store.schema
        chosen = self._options.dynamic_partition_overwrite if dynamic is None else dynamic
        messages = self._raise_levels(committable.messages)
        written, compacted = split_messages(messages, default_buckets=self._bucket)
        if schema.partition_keys and chosen:
            if not touched:
                return self._run_numbered(
                    committable, lambda found: self._compact_part(committable, found, (), compacted, messages), *hooks
                )
            partitions: PartitionFilter = dynamic_filter(schema, touched)
        else:
            partitions = static_filter(schema, partition or {})
            check_inside(written.delta, partitions)
        return self._overwrite(committable, partitions, written, compacted, *hooks)

    def truncate(self, *, identifier: int = BATCH_IDENTIFIER) -> CommitResult:
        """Delete every row of the table; `rows` of the result counts them."""
        committable = Committable(messages=(), identifier=identifier, operation="TRUNCATE")
        self._validate(committable)
        return self._overwrite(committable, EVERY_PARTITION, NO_CHANGES, NO_CHANGES)

    def drop_partitions(
        self, partitions: PartitionFilter, *, identifier: int = BATCH_IDENTIFIER, operation: str | None = "TRUNCATE"
    ) -> CommitResult:
        """Delete every row of the chosen partitions; `rows` of the result counts them."""
        committable = Committable(messages=(), identifier=identifier, operation=operation)
        self._validate(committable)
        return self._overwrite(committable, partitions, NO_CHANGES, NO_CHANGES)

    def drop_after(self, partitions: PartitionFilter, *, identifier: int, guards: Sequence[Guard] = ()) -> CommitResult:
        """Delete every row of the chosen partitions after a commit, in a snapshot with the same identifier.

        The commit is published, and its identifier is not looked up again: callers find out from the newest state what
        is to be deleted.

        Raises:
            CommitConflictError: a guard refused it, or every attempt lost its race.
            CommitUnknownError: it is unknown whether the snapshot was published.
            StorageError: the storage failed, and nothing was published.
        """
        overwrite = Overwrite(partitions, postponed=self._mode is BucketMode.POSTPONED)
        request = self._request(
            Committable(messages=(), identifier=identifier),
            seen_id=self._store.snapshots.latest_id() or 0,
            kind=CommitKind.OVERWRITE,
            provider=OverwriteChanges(self._store, NO_CHANGES, overwrite, ()),
            guards=(*self._overwrite_guards, *guards),
            detect_conflicts=True,
            fixed_changes=False,
        )
        return self._publish_alone(request)

    def _overwrite(
        self, committable: Committable, partitions: PartitionFilter, written: Changes, compacted: Changes, *hooks: Hook
    ) -> CommitResult:
        overwrite = Overwrite(partitions, postponed=self._mode is BucketMode.POSTPONED)
        provider = OverwriteChanges(self._store, written, overwrite, committable.messages)

        def parts(published: Published) -> _Parts:
            done: list[Done] = []
            if not published.snapshots:  # any snapshot of the number proves it, see `_commit_parts`
                request = self._request(
                    committable,
                    seen_id=published.seen_id,
                    kind=CommitKind.OVERWRITE,
                    provider=provider,
                    guards=() if partitions is EVERY_PARTITION else self._overwrite_guards,
                    detect_conflicts=True,
                    fixed_changes=False,
                )
                done += _as_list(self._loop.run(request, self._outcome))
            return self._compact_part(committable, published, done, compacted, committable.messages)

        return self._run_numbered(committable, parts, *hooks)

    def _raise_levels(self, messages: Sequence[CommitMessage]) -> tuple[CommitMessage, ...]:
        schema = self._store.schema
        plain = tuple(replace(m, data=replace(m.data, changelog_files=())) for m in messages)
        wanted = self._options.overwrite_upgrade and schema.primary_keys
        if not wanted or any(message.compact.after or message.compact.before for message in plain):
            return plain
        types = [schema.field(name).type for name in schema.trimmed_primary_keys]
        return upgrade_levels(plain, level=self._shape.max_level, key_types=types)

    # -------------------------------------------------------------------------------------------- other snapshots

    def compact_manifests(self, options: ManifestOptions | None = None) -> CommitResult:
        """Merge all manifests fully; publish a snapshot only if that changed them.

        `options` are by default those of the table. With sorting, manifests that overlap are merged too.

        Raises:
            InvalidInputError: manifests are to be sorted by a column that is not a partition column.
        """
        forced = force_full_merge(self._manifest if options is None else options)
        request = Request(
            kind=CommitKind.COMPACT,
            provider=FixedChanges(NO_CHANGES),
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=False,
            force_merge=forced,
            skip_unchanged=True,
        )
        return self._publish_alone(request)

    def analyze(self, statistics_file: str) -> CommitResult:
        """Publish a statistics document that is already written."""
        request = Request(
            kind=CommitKind.ANALYZE,
            provider=FixedChanges(NO_CHANGES),
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=False,
            statistics=statistics_file,
        )
        return self._publish_alone(request)

    def return_to(self, target: Snapshot) -> CommitResult:
        """Publish the state of an older snapshot again, as an overwrite on top of the newest snapshot.

        Data files, deletion vectors and key indexes become those of the older snapshot, and so do the schema id, the
        watermark, the statistics and the properties of the snapshot; the progress of commit users stays. The caller
        makes sure that the older snapshot does not expire while this runs.

        Raises:
            CommitConflictError: every attempt lost its race.
            CommitUnknownError: it is unknown whether the snapshot was published.
            NotFoundError: a file of the older snapshot is gone.
            StorageError: the storage failed, and nothing was published.
        """
        request = Request(
            kind=CommitKind.OVERWRITE,
            provider=ReturningChanges(self._store, target),
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=False,
            fixed_changes=False,
            force_merge=force_full_merge(self._manifest),
            returns_to=target,
        )
        return self._publish_alone(request)

    def append_entries(self, entries: pa.Table, *, guards: Sequence[Guard] = ()) -> CommitResult:
        """Publish files that exist already, by their manifest entries (of kind ADD), as an append.

        Raises:
            CommitConflictError: one of the files is in the table already, or a guard refuses.
            CommitUnknownError: as `commit`.
            StorageError: as `commit`.
        """
        request = Request(
            kind=CommitKind.APPEND,
            provider=FixedChanges(Changes(entries, NO_CHANGES.changelog)),
            identifier=BATCH_IDENTIFIER,
            detect_conflicts=True,
            guards=tuple(guards),
        )
        return self._publish_alone(request)

    def _publish_alone(self, request: Request) -> CommitResult:
        """Publish one snapshot that is not one of a writer."""
        with self._track_outcome() as outcome:
            done = self._loop.run(request, outcome)
            return self._run_hooks(self._hooks, _result(_Parts(tuple(_as_list(done)))))

    def _run_hooks(self, hooks: Sequence[Hook], result: CommitResult) -> CommitResult:
        """Run the post-commit hooks; return the result with all warnings of the commit.

        Raises:
            Exception: a hook failed, and the commit published nothing.
        """
        outcome = self._outcome
        for hook in hooks:
            if hook.always or result.snapshot_ids:
                with outcome.warn_on_failure(hook.name):
                    outcome.warnings += hook.run(result)
        return replace(result, warnings=tuple(outcome.warnings))

    @contextmanager
    def _track_outcome(self, published: Published | None = None) -> Iterator[CommitOutcome]:
        """Keep the outcome of one commit, however it ends; an interrupt gets a note that names its snapshots."""
        before = published is not None and bool(published.snapshots)
        outcome = self._outcome = CommitOutcome(published_before=before)
        try:
            yield outcome
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, which does not say what the commit published
                outcome.note(error)
            raise
        finally:
            self._unknown |= outcome.unknown

    @contextmanager
    def _delete_on_error(self, find_files: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Delete files if the block fails, unless a snapshot may name them."""

        def delete_unless_published() -> None:
            if self._outcome.left_nothing:
                self._delete(find_files())

        with undo_on_error(delete_unless_published):
            yield

    # -------------------------------------------------------------------------------------------- recovery

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """Return the identifiers, in order, that are not published yet.

        Raises:
            InvalidInputError: they do not increase strictly.
            CommitUnknownError: the snapshots that would show it have expired.
        """
        wanted = list(identifiers)
        if any(a >= b for a, b in pairwise(wanted)):
            raise InvalidInputError("commit identifiers must increase", identifiers=wanted[:20])
        progress = self._store.progress.read(self._user)
        open_ones = []
        for identifier in wanted:
            published = self._find(identifier, progress)
            if not published.done and not published.snapshots:
                open_ones.append(identifier)
        return open_ones

    def doubts_origin(self, identifier: int, origin: str | None) -> bool:
        """Whether a published identifier may have been committed with other rows than those of this origin."""
        progress = self._store.progress.read(self._user)
        return doubts_origin(progress, self._store.snapshots.latest(), identifier, origin)

    def _find(self, identifier: int, progress: CommitProgress) -> Published:
        """What is known of an identifier; looked up again only after another commit."""
        basis = (identifier, progress, self._store.snapshots.latest())
        if self._found is None or self._found[0] != basis:
            self._found = (basis, find_published(self._store.snapshots, progress, basis[2], identifier))
        return self._found[1]

    def recover(self, committables: Sequence[Committable]) -> list[CommitResult]:
        """After a restart, publish the commits that are not published yet, in order.

        Raises:
            CommitUnknownError: files of an unpublished commit are gone, or it is unknown what was published.
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
        return [self._recover_one(committable) for committable in ordered]

    def _recover_one(self, committable: Committable) -> CommitResult:
        """Publish the missing part of a commit; skip a compaction whose files have been deleted since."""
        progress = self._store.progress.read(self._user)
        published = self._find(committable.identifier, progress)
        if published.snapshots and CommitKind.COMPACT not in published.kinds():
            rest = [replace(message, data=DataIncrement()) for message in committable.messages]
            if self._lost_file(rest) is not None:
                return CommitResult(repeated=True, compaction_lost=True)
        return self.commit(committable, recovering=True)

    def _lost_file(self, messages: Sequence[CommitMessage]) -> str | None:
        paths = plan_abort(messages, self._path_of, self._paths.index)
        return next((path for path in paths if not self._store.env.io.exists(path)), None)

    def abort(self, messages: Sequence[CommitMessage], *, identifier: int | None = None) -> AbortResult:
        """Delete the files of messages that were never committed; if that is not certain, leave them.

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
        """Why files of this user may be live; None if they certainly are not."""
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

    def _run_numbered(self, committable: Committable, run: Callable[[Published], _Parts], *hooks: Hook) -> CommitResult:
        """Run the parts of a commit so that a numbered one is published at most once, then its hooks.

        `hooks` belong to this commit alone and run before the hooks of every commit.
        """
        self._outcome = CommitOutcome()
        progress: CommitProgress | None = None
        published = Published()
        if not committable.is_batch:
            progress = self._store.progress.read(self._user)
            published = self._find(committable.identifier, progress)
            if published.done:
                return CommitResult(repeated=True)
            if not published.snapshots:
                progress = note_pending(
                    self._store.progress, progress, committable.identifier, published.seen_id, committable.origin
                )
        with self._track_outcome(published) as outcome:
            parts = run(published)
            mine = tuple(each for each in parts.done if not each.repeated)
            if committable.is_batch:
                self._added |= {name for each in mine for name in _added_names(each.changes)}
                if mine:  # also under the names that were passed in: a rebase may have rewritten the files
                    self._added |= {file.file_name for each in committable.messages for file in each.data.new_files}
            there = outcome.published_before = bool(published.snapshots) or len(mine) < len(parts.done)
            result = _result(replace(parts, done=mine)).of_messages(committable.messages)
            if there and not mine:
                result = replace(result, repeated=True)
            every = (each for each in self._hooks if committable.is_batch or not each.batch_only)
            return self._run_hooks((*self._notes(committable, progress, parts), *hooks, *every), result)

    def _notes(self, committable: Committable, progress: CommitProgress | None, parts: _Parts) -> Iterator[Hook]:
        """The hooks that record the commit: its user's progress, or `_SUCCESS` files of partitions."""

        def write_progress(_: CommitResult) -> Iterable[str]:
            assert progress is not None
            note_committed(self._store.progress, progress, committable.identifier)
            return ()

        def mark_partitions(_: CommitResult) -> Iterable[str]:
            # A compaction wrote no rows, and where rows were only deleted there may be no folder.
            written = [each for each in parts.done if each.snapshot.commit_kind is not CommitKind.COMPACT]
            if written:
                touched = _collect_added(written).column("partition").unique().to_pylist()
                paths = sorted(self._paths.partition(row) for row in touched)
                run_mark_done(self._store, self._name, self._mark_done, paths)
            return ()

        if progress is not None and not parts.incomplete:
            yield Hook("writing the commit progress", write_progress, always=True)
        if committable.is_batch and self._mark_done.at_end and self._store.schema.partition_keys:
            yield Hook("marking partitions done", mark_partitions)

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
                raise InvalidInputError("not a commit message", got=type(message).__name__)
            row: object = message.partition
            if not isinstance(row, bytes) or row[:4] != arity:
                raise InvalidInputError("commit message has a wrong number of partition values", bucket=message.bucket)
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


def _added_names(changes: Changes) -> list[str]:
    delta = changes.delta
    names: list[str] = delta.column("file_name").filter(pc.equal(delta.column("kind"), ADD)).to_pylist()
    return names


def _collect_added(done: Sequence[Done]) -> pa.Table:
    """The entries that these snapshots added."""
    deltas = [each.changes.delta for each in done]
    return pa.concat_tables([delta.filter(pc.equal(delta.column("kind"), ADD)) for delta in deltas])


def _as_list(done: Done | None) -> list[Done]:
    return [] if done is None else [done]


def _removed_rows(done: Sequence[Done]) -> int:
    """How many rows a commit that adds no files removed."""
    return -sum(each.snapshot.delta_record_count or 0 for each in done)


def _result(parts: _Parts) -> CommitResult:
    if not parts.done:
        return CommitResult(compaction_lost=parts.compaction_lost)
    added = _collect_added(parts.done)
    # Rows that a compaction rewrote are not new: they count only if the commit did nothing else.
    written = [each for each in parts.done if each.snapshot.commit_kind is not CommitKind.COMPACT]
    compacting = [each for each in parts.done if each.snapshot.commit_kind is CommitKind.COMPACT]
    counted = _collect_added(written) if written else added
    rows = int(pc.sum(counted.column("row_count")).as_py() or 0) if added.num_rows else _removed_rows(parts.done)
    return CommitResult(
        snapshot_ids=tuple(each.snapshot.id for each in parts.done),
        rows=rows,
        files=added.num_rows,
        bytes=int(pc.sum(added.column("file_size")).as_py() or 0),
        attempts=sum(each.attempts for each in parts.done),
        compaction_lost=parts.compaction_lost,
        compacted=sum((measure_compaction(each.changes.delta) for each in compacting), Compacted()),
    )
