"""The commit: plan on the newest snapshot, write metadata, publish, and plan again after a lost race.

One attempt: (1) read the newest snapshot; (2) compute the changes for it and check conflicts; (3) write merged
manifests, base list, delta manifests and list, changelog, index manifest; (4) wait until all of it is durable;
(5) check the invariants; (6) create `snapshot-N`. A crash before (6) leaves orphans; a crash after it leaves a
published commit with a stale hint file, which readers tolerate. An attempt that certainly lost deletes the files that
the next attempt cannot use; one whose outcome is unknown deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import (
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tidelake.io.clock import next_time_ms
from tidelake.io.retry import delays
from tidelake.ops.commit.candidate import (
    ATTEMPTS_PROPERTY,
    Candidate,
    Header,
    ListFile,
    Lists,
    build_snapshot,
    carried_properties,
    check_invariants,
    header_of_return,
)
from tidelake.ops.commit.changes import NO_CHANGES, Changes, drop_stats_of_deleted_files
from tidelake.ops.commit.conflicts import (
    CONFLICT_COLUMNS,
    Context,
    check_bucket_counts,
    check_conflicts,
    combine_index,
    discard_duplicates,
)
from tidelake.ops.commit.guards import Guard, Proposal
from tidelake.ops.commit.manifest_merge import Merged, run_merge
from tidelake.ops.commit.manifest_sort import make_order
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage
from tidelake.ops.commit.options import CommitOptions, ManifestOptions, TableShape
from tidelake.ops.commit.outcome import CommitOutcome
from tidelake.ops.commit.progress import carried_below
from tidelake.ops.commit.publish import is_mine, offer, settle_offer
from tidelake.ops.commit.since import commits_since
from tidelake.ops.commit.standing import verify_published
from tidelake.ops.commit.strict import check_strict
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.statistics import statistics_from_json
from tidelake.spec.manifests.index_manifest import IndexEntry
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.store.manifests import ManifestNames
from tidelake.store.snapshots import EXPIRED, SnapshotPublisher
from tidelake.store.table_store import TableStore

SEQUENCE_PROPERTY = "sequence.generation.max-sequence-number"
_FULL_WAITS_MAX = 6
"""Attempts after which the back-off shrinks instead of growing, unless an option sets the longest wait."""
_EXPIRED_MAX = 10
"""Attempts whose snapshot may expire while they run; a table that keeps a single snapshot can cause several."""


@dataclass(frozen=True, slots=True)
class State:
    """The state an attempt plans against: the newest snapshot and the manifests of its files."""

    snapshot: Snapshot | None
    metas: tuple[ManifestMeta, ...] = ()
    index: tuple[IndexEntry, ...] = ()


class Provider(Protocol):
    """The changes to put on a state; asked again at every attempt."""

    @property
    def messages(self) -> tuple[CommitMessage, ...]:
        """The messages that the changes come from, after any rebase so far."""

    def changes(self, state: State) -> Changes:
        """The changes for a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One snapshot to publish."""

    kind: CommitKind
    provider: Provider
    identifier: int
    detect_conflicts: bool
    guards: tuple[Guard, ...] = ()
    seen_id: int = 0
    """Up to this snapshot a numbered commit is known not to be published; later snapshots are searched."""
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: str | None = None
    statistics: str | None = None
    fixed_changes: bool = True
    """Whether the provider returns the same changes for every state, so that delta files can be reused."""
    force_merge: ManifestOptions | None = None
    skip_unchanged: bool = False
    """Publish only if the merge changed the manifests (manifest compaction)."""
    returns_to: Snapshot | None = None
    """The older snapshot whose state the new one has again."""


@dataclass(frozen=True, slots=True)
class Done:
    """A published snapshot, the number of attempts, and its changes."""

    snapshot: Snapshot
    attempts: int
    changes: Changes
    repeated: bool = False
    """Whether another committer of the same user published the same identifier first, and this one did nothing."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """An attempt that certainly lost: another snapshot has the id."""


@dataclass(slots=True)
class _Delta:
    """Delta and changelog files of a lost attempt that the next one can reuse."""

    changes: Changes
    delta: ListFile
    metas: tuple[ManifestMeta, ...]
    changelog: ListFile | None
    files: tuple[str, ...]


@dataclass(slots=True)
class _Attempts:
    """What is known after the attempts of one request so far."""

    seen_id: int = 0
    agreed_id: int = 0
    """All guards have passed up to this snapshot."""
    delta: _Delta | None = None
    merged: Merged | None = None
    count: int = 0
    expired: int = 0
    """Attempts whose snapshot expired while they ran."""


class Loop:
    """Publishes requests for one commit user. Not shared between threads."""

    def __init__(
        self,
        store: TableStore,
        user: str,
        publisher: SnapshotPublisher,
        *,
        commit: CommitOptions,
        manifest: ManifestOptions,
        shape: TableShape,
        mode: BucketMode,
        names: ManifestNames,
        last_safe: int | None = None,
        all_expired: Callable[[Sequence[bytes]], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._user = user
        self._publisher = publisher
        self._options = commit
        self._manifest = manifest
        self._shape = shape
        self._mode = mode
        self._names = names
        self._last_safe = last_safe
        self._all_expired = all_expired
        self._known = State(None)

    def run(self, request: Request, outcome: CommitOutcome) -> Done | None:
        """Publish a request, and retry after a lost race. None if there was nothing to publish.

        The published snapshot is noted in `outcome`. If the request ends in another way, the files that it wrote are
        deleted, unless a snapshot may name them.

        Raises:
            CommitConflictError: the change contradicts what others committed, or every attempt lost its race.
            CommitUnknownError: it is unknown whether the snapshot was published.
            StorageError: the storage failed, and nothing was published.
        """
        attempts = _Attempts(seen_id=request.seen_id)
        before = len(outcome.published)
        self._names.given = []

        def delete_if_nothing_is_published() -> None:
            if not outcome.unknown and len(outcome.published) == before:
                self._delete(self._names.given)

        with undo_on_error(delete_if_nothing_is_published):
            done = self._retry_until_done(request, attempts, outcome)
        if done is None or done.repeated:
            self._delete(self._names.given)
        return done

    def _retry_until_done(self, request: Request, attempts: _Attempts, outcome: CommitOutcome) -> Done | None:
        clock, ids = self._store.env.clock, self._store.env.ids
        started = clock.monotonic()
        waits = delays(self._options.retry(), ids.random, lambda: (clock.monotonic() - started) * 1_000)
        while True:
            attempts.count += 1
            done = self._attempt(request, attempts, outcome)
            if not isinstance(done, _Lost):
                return done
            wait = next(waits, None)
            if wait is None:
                raise CommitConflictError(
                    "commit lost every race; retries are exhausted",
                    code="too-many-attempts",
                    attempts=attempts.count,
                    commit_user=self._user,
                    table=self._store.env.io.root,
                    hint="raise commit.max-retries or commit.timeout, or run fewer committing jobs at once",
                )
            clock.sleep(self._shorten_wait(wait, attempts.count))

    def _shorten_wait(self, wait: float, attempt: int) -> float:
        """The back-off, shorter after many attempts, so that a commit that keeps losing retries sooner."""
        if self._options.max_retry_wait_ms is not None or attempt <= _FULL_WAITS_MAX:
            return wait
        return wait / (1 << min(attempt - _FULL_WAITS_MAX, 5))

    # -------------------------------------------------------------------------------------------- one attempt

    def _attempt(self, request: Request, attempts: _Attempts, outcome: CommitOutcome) -> Done | _Lost | None:
        latest = self._store.snapshots.latest()
        if latest is not None:
            published = self._find_repeated(request, attempts.seen_id, latest)
            if published is not None:
                return Done(published, attempts.count, NO_CHANGES, repeated=True)
        attempts.seen_id = latest.id if latest else 0
        made: list[str] = []
        try:
            with self._store.snapshots.held_to(latest.id if latest else None):
                state = self._state(latest)
                _run_guards(request, attempts, latest)
                changes = self._check_changes(request, state, request.provider.changes(state))
                candidate = self._prepare(request, attempts, state, changes, made)
        except NotFoundError as error:
            if error.code != EXPIRED or attempts.expired >= _EXPIRED_MAX:
                raise
            # Nothing was offered to the publisher, so the attempt certainly lost.
            attempts.expired += 1
            self._keep_or_delete(request, attempts, made)
            return _Lost()
        if candidate is None:
            return None
        if not self._publish(candidate, outcome):
            self._keep_or_delete(request, attempts, made)
            return _Lost()
        snapshot = candidate.snapshot
        self._known = State(snapshot, candidate.after + candidate.delta_metas, candidate.index)
        with outcome.warn_on_failure("writing the hint of the newest snapshot"):
            self._store.publisher.hint_latest(snapshot.id)
            if snapshot.id == 1:
                self._store.publisher.hint_earliest(1)
        if self._last_safe is not None:
            self._last_safe = snapshot.id
        return Done(snapshot, attempts.count, changes)

    def _state(self, latest: Snapshot | None) -> State:
        if latest is None:
            return State(None)
        if latest == self._known.snapshot:
            return self._known  # no other commit since our last one, so nothing has to be read
        store = self._store.manifests
        index = store.read_index(latest.index_manifest) if latest.index_manifest else ()
        return State(latest, data_manifests(store, latest), index)

    def _find_repeated(self, request: Request, seen_id: int, latest: Snapshot) -> Snapshot | None:
        """Find the same numbered commit among the snapshots since the last attempt.

        A second driver of the same job may have published it. All batch commits share one identifier, so it does not
        prove that two of them are the same. Our own lost attempts are certainly not published: a snapshot with our
        user and identifier comes from another job.
        """
        if request.identifier == BATCH_IDENTIFIER:
            return None
        for later in commits_since(self._store, seen_id, latest.id):
            snapshot = later.snapshot
            if snapshot is None and carried_below(latest, self._user, request.identifier, seen_id):
                continue  # expired, but the progress property in the newest snapshot shows it was not this commit
            if snapshot is None:
                raise CommitUnknownError(
                    "snapshots expired that would show whether the commit was published",
                    commit_user=self._user,
                    commit_identifier=request.identifier,
                    snapshot_id=later.id,
                    hint="repeat the commit with its identifier: it is published at most once",
                )
            if snapshot.identity == (self._user, request.identifier, request.kind):
                return snapshot
        return None

    def _check_changes(self, request: Request, state: State, changes: Changes) -> Changes:
        latest = state.snapshot
        context = self._context(request, latest)
        if latest is None:
            check_bucket_counts(changes.delta, context)
        elif self._last_safe is not None:
            if self._last_safe >= 0:
                check_strict(
                    self._store, changes, request.kind, user=self._user, last_safe=self._last_safe, latest=latest
                )
            self._last_safe = latest.id
        if request.returns_to is not None:
            return changes  # computed from this very state
        discard = self._options.discard_duplicate_files and request.kind is CommitKind.APPEND
        if not request.detect_conflicts and not discard:
            if (
                latest is not None
                and self._shape.write_only
                and self._shape.sequence_from_snapshot
                and self._mode is BucketMode.FIXED
            ):
                self._check_unseen_counts(state, changes, context)
            return changes
        # Also without a snapshot: the table may have been dropped and created again without the files to delete.
        partitions = PartitionSet(changes.partitions(), tuple(self._store.schema.partition_types))
        base = live_entries(self._store.manifests, state.metas, partitions=partitions, columns=CONFLICT_COLUMNS)
        if discard:
            changes = Changes(discard_duplicates(changes.delta, base), changes.changelog, changes.index)
        check_conflicts(base, changes, state.index, context)
        return changes

    def _check_unseen_counts(self, state: State, changes: Changes, context: Context) -> None:
        """Check bucket counts for writers that took their sequence number from the snapshot and so read no manifest."""
        partitions = PartitionSet(changes.partitions(), tuple(self._store.schema.partition_types))
        columns = ("partition", "total_buckets")
        base = live_entries(self._store.manifests, state.metas, partitions=partitions, columns=columns)
        check_bucket_counts(pa.concat_tables([base.select(columns), changes.delta.select(columns)]), context)

    def _context(self, request: Request, latest: Snapshot | None) -> Context:
        schema = self._store.schema
        return Context(
            base_user=latest.commit_user if latest else "",
            commit_user=self._user,
            overwrite=request.kind is CommitKind.OVERWRITE,
            key_types=[schema.field(name).type for name in schema.trimmed_primary_keys],
            ordered_levels=bool(schema.primary_keys),
            all_expired=self._all_expired,
        )

    # -------------------------------------------------------------------------------------------- writing

    def _prepare(
        self, request: Request, attempts: _Attempts, state: State, changes: Changes, made: list[str]
    ) -> Candidate | None:
        store, latest = self._store, state.snapshot
        schema_id = self._schema_id(latest)
        merged = self._merge(request, attempts, state, made, schema_id)
        if request.skip_unchanged and merged.after == merged.before:
            return None
        base = self._write_list(merged.after, made)
        delta = self._write_delta(attempts, changes, made, schema_id)
        index_manifest, index = self._write_index(request, state, changes, made)
        store.manifests.sync(made)
        header = Header(
            uuid=store.env.ids.uuid(),
            schema_id=schema_id,
            kind=request.kind,
            user=self._user,
            identifier=request.identifier,
            time_ms=next_time_ms(store.env.clock, latest.time_ms if latest else None),
            watermark=request.watermark,
            properties=self._properties(request, latest, changes.delta) | _note_attempts(attempts.count),
            statistics=request.statistics or self._inherited_statistics(latest, schema_id),
            operation=request.operation,
            returns_to=request.returns_to,
        )
        if latest is not None and request.returns_to is not None:
            header = header_of_return(header, latest)
        lists = Lists(base=base, delta=delta.delta, changelog=delta.changelog, index_manifest=index_manifest)
        snapshot = build_snapshot(latest, header, lists, delta=changes.delta, changelog=changes.changelog)
        candidate = Candidate(
            snapshot,
            changes.delta,
            merged.before,
            merged.after,
            delta.metas,
            index,
            state.index,
            request.returns_to,
        )
        check_invariants(latest, candidate)
        return candidate

    def _schema_id(self, latest: Snapshot | None) -> int:
        """The id of the current schema.

        Before a first snapshot the schema of this handle is read again. Otherwise it would go
        unnoticed that the table was dropped, or dropped and created again, since the handle was opened.
        """
        store, own = self._store, self._store.schema
        schema_id = store.schemas.latest_id()
        try:
            stored = own if latest is not None else store.schemas.read(own.id)
        except NotFoundError:
            schema_id = None
        if schema_id is None:
            raise NotFoundError(
                "table was dropped after it was opened",
                table=store.env.io.root,
                hint="create it again, then open it",
            )
        if (stored.time_ms, stored.fields) != (own.time_ms, own.fields):
            raise CommitConflictError(
                "table was dropped and created again",
                code="table-replaced",
                table=store.env.io.root,
                hint="open the table again and write the rows again",
            )
        return schema_id

    def _merge(self, request: Request, attempts: _Attempts, state: State, made: list[str], schema_id: int) -> Merged:
        if request.returns_to is not None:
            # Apache Paimon collects all deletions of a snapshot before the additions: a file that comes back would be
            # lost in a state that still has the entry which deleted it.
            whole = request.force_merge or self._manifest
            merged = run_merge(self._store.manifests, self._names, state.metas, whole, schema_id=schema_id)
            made += merged.made
            return merged
        if attempts.merged is not None:
            again = attempts.merged.reapply(state.metas)
            if again is not None:
                attempts.merged = again
                return again
            self._delete(attempts.merged.made)
            attempts.merged = None
        if attempts.count > 1:
            return Merged(state.metas, state.metas)  # merging is not worth losing the race again
        options = request.force_merge or self._manifest
        order = make_order(options, self._store.schema)
        merged = run_merge(self._store.manifests, self._names, state.metas, options, schema_id=schema_id, order=order)
        made += merged.made
        attempts.merged = merged
        return merged

    def _write_list(self, metas: Sequence[ManifestMeta], made: list[str]) -> ListFile:
        name = self._names.next("manifest-list")
        made.append(name)
        return ListFile(name, self._store.manifests.write_list(name, metas))

    def _write_delta(self, attempts: _Attempts, changes: Changes, made: list[str], schema_id: int) -> _Delta:
        if attempts.delta is not None and attempts.delta.changes is changes:
            return attempts.delta
        if attempts.delta is not None:
            self._delete(attempts.delta.files)
        mark = len(made)
        delta = drop_stats_of_deleted_files(changes.delta) if self._manifest.delete_drop_stats else changes.delta
        metas = self._write_entries(delta, made, schema_id)
        delta_list = self._write_list(metas, made)
        changelog_list = None
        if changes.changelog.num_rows:
            changelog_list = self._write_list(self._write_entries(changes.changelog, made, schema_id), made)
        attempts.delta = _Delta(changes, delta_list, tuple(metas), changelog_list, tuple(made[mark:]))
        return attempts.delta

    def _write_entries(self, entries: pa.Table, made: list[str], schema_id: int) -> list[ManifestMeta]:
        metas = self._store.manifests.write_entries(self._names, entries, schema_id=schema_id)
        made += [meta.file_name for meta in metas]
        return metas

    def _write_index(
        self, request: Request, state: State, changes: Changes, made: list[str]
    ) -> tuple[str | None, tuple[IndexEntry, ...]]:
        if request.returns_to is not None:
            back = request.returns_to.index_manifest
            return back, self._store.manifests.read_index(back) if back else ()
        previous = state.snapshot.index_manifest if state.snapshot else None
        if not changes.index:
            return previous, state.index
        by_file = self._mode is BucketMode.UNAWARE
        entries = combine_index(state.index, changes.index, vectors_by_file=by_file)
        if not entries:
            return None, ()
        name = self._names.next("index-manifest")
        made.append(name)
        self._store.manifests.write_index(name, entries)
        return name, entries

    def _properties(self, request: Request, latest: Snapshot | None, delta: pa.Table) -> dict[str, str]:
        properties = carried_properties(latest, request.properties)
        if self._shape.sequence_from_snapshot:
            added = delta.filter(pc.equal(delta.column("kind"), ADD)).column("max_sequence")
            known = [int(pc.max(added).as_py())] if len(added) else []
            carried = latest.properties.get(SEQUENCE_PROPERTY) if latest else None
            if carried is not None:
                try:
                    known.append(int(carried))
                except ValueError as cause:
                    raise FormatError(
                        "snapshot property is not a number", property=SEQUENCE_PROPERTY, value=ascii(carried[:40])
                    ) from cause
            if known:
                properties[SEQUENCE_PROPERTY] = str(max(known))
        return properties

    def _inherited_statistics(self, latest: Snapshot | None, schema_id: int) -> str | None:
        if latest is None or latest.statistics is None:
            return None
        path = self._store.layout.statistics_path(latest.statistics)
        try:
            statistics = statistics_from_json(self._store.env.io.read(path, limit=16 << 20), path=path)
        except (NotFoundError, FormatError):
            return None  # statistics only help a planner; a table is valid without them
        return latest.statistics if statistics.schema_id == schema_id else None

    # -------------------------------------------------------------------------------------------- publishing

    def _publish(self, candidate: Candidate, outcome: CommitOutcome) -> bool:
        """Publish the candidate; return whether it is published. `outcome` is unknown until the storage answers."""
        store, snapshot = self._store, candidate.snapshot
        outcome.unknown = True
        answered = False
        try:
            answer = offer(self._publisher, snapshot)
            answered = True
            won = settle_offer(
                answer, self._publisher, store.snapshots, snapshot, clock=store.env.clock, ids=store.env.ids
            ) and verify_published(store, candidate)
        except StorageError:
            outcome.unknown = False
            raise
        except CommitUnknownError:
            raise
        except BaseException:
            self._check_after_interrupt(candidate, outcome, answered=answered)
            raise
        if won:
            outcome.published.append(snapshot)
        outcome.unknown = False
        return won

    def _check_after_interrupt(self, candidate: Candidate, outcome: CommitOutcome, *, answered: bool) -> None:
        """After an interrupt, find out whether the offered snapshot exists, without waiting.

        `answered` says that the first offer was answered. If the answer was "unknown", the snapshot may still appear.
        """
        mine = is_mine(self._store.snapshots, candidate.snapshot)
        if mine:
            outcome.published.append(candidate.snapshot)
        if mine is not None or (not answered and self._left_nothing(candidate)):
            outcome.unknown = False

    def _left_nothing(self, candidate: Candidate) -> bool:
        try:
            return self._publisher.left_nothing(candidate.snapshot)
        except StorageError:
            return False

    def _keep_or_delete(self, request: Request, attempts: _Attempts, made: Sequence[str]) -> None:
        """After a lost race, delete the files that the next attempt cannot use."""
        reusable: set[str] = set(attempts.merged.made) if attempts.merged else set()
        if attempts.delta is not None:
            if request.fixed_changes:
                reusable |= set(attempts.delta.files)
            else:
                attempts.delta = None
        self._delete([name for name in made if name not in reusable])

    def _delete(self, file_names: Sequence[str]) -> None:
        self._names.given = [name for name in self._names.given if name not in file_names]
        # An orphan does no harm, and an error here must not hide the one that ended the commit.
        with suppress(Exception):
            for name in dict.fromkeys(file_names):
                self._store.manifests.delete([name])


def _run_guards(request: Request, attempts: _Attempts, latest: Snapshot | None) -> None:
    """Run the guards of the request. Without a snapshot no other commit can conflict.

    Raises:
        CommitConflictError: a guard refuses the request.
    """
    if latest is None:
        return
    for guard in request.guards:
        guard.check(Proposal(latest, request.provider.messages, attempts.agreed_id))
    attempts.agreed_id = latest.id


def validate_number(name: str, value: int | None, low: int, high: int) -> None:
    """Refuse a number that does not fit its field in a snapshot.

    Raises:
        InvalidInputError: it is not an integer, or out of range.
    """
    if value is None:
        return
    if type(value) is not int or not low <= value <= high:
        raise InvalidInputError(f"{name} must be an integer from {low} to {high}", value=value)


def _note_attempts(count: int) -> dict[str, str]:
    """The property that says how often a snapshot was offered; none for the ordinary case of a single attempt."""
    return {ATTEMPTS_PROPERTY: str(count)} if count > 1 else {}
