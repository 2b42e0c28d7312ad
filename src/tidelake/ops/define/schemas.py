"""Publishing schemas: the first one creates the table, each later one is one atomic change.

A schema file is created if absent, like a snapshot. A job that loses the race reads the new schema and applies its
changes to that, so that two concurrent changes both take effect or one of them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.errors import CommitConflictError, CommitUnknownError, NotFoundError, StorageError
from tidelake.io.clock import next_time_ms
from tidelake.io.env import Env
from tidelake.io.fileio import Created, Unknown
from tidelake.io.retry import RetryOptions, delays
from tidelake.ops.define.checks import check_engine, check_given, check_keyed, check_table, warn_casts
from tidelake.options import TableOptions
from tidelake.spec.schemas.evolution import Change, apply
from tidelake.spec.schemas.schema import Schema
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotSource

_RETRY = RetryOptions()
_SETTLE = RetryOptions(delay_min_ms=20, delay_max_ms=1_000, tries_min=6, elapsed_max_ms=10_000)


def run_create(env: Env, schemas: SchemaStore, schema: Schema) -> bool:
    """Create a table by publishing its first schema; False if the table exists already.

    Raises:
        InvalidInputError: an option has a wrong value.
        UnsupportedError: an option is not supported.
        CommitUnknownError: it is unknown whether the table was created.
        StorageError: the storage failed, and nothing was created.
    """
    check_given(schema.options, TableOptions(schema.options))
    check_keyed(schema.options, schema)
    check_table(schema, schemas.layout.branch, schema.options)
    check_engine(schema)
    if schemas.latest_id() is not None:
        return False
    return _publish_surely(env, schemas, schema)


def run_publish(env: Env, schemas: SchemaStore, history: Sequence[Schema]) -> None:
    """Publish the schemas of another table as those of this one, with their ids; those that exist are left alone.

    Raises:
        CommitUnknownError: it is unknown whether one was published.
        StorageError: the storage failed; repeat it.
    """
    there = set(schemas.ids())
    for schema in history:
        if schema.id not in there:
            _publish_surely(env, schemas, schema)


def run_alter(env: Env, schemas: SchemaStore, snapshots: SnapshotSource, changes: Sequence[Change]) -> Schema:
    """Apply changes to the current schema and publish the result; returns the schema in force.

    Raises:
        InvalidInputError: a change is not allowed.
        UnsupportedError: an option is not supported.
        NotFoundError: the table was dropped.
        CommitConflictError: every attempt lost the race against another schema change.
        CommitUnknownError: it is unknown whether the change was published.
    """
    started = env.clock.monotonic()
    waits = delays(_RETRY, env.ids.random, lambda: (env.clock.monotonic() - started) * 1_000)
    while True:
        current = schemas.latest()
        if current is None:
            raise NotFoundError("table does not exist", table=env.io.root)
        time_ms = next_time_ms(env.clock, current.time_ms)
        has_snapshots = snapshots.latest_id() is not None
        changed = apply(current, changes, time_ms=time_ms, has_snapshots=has_snapshots)
        # Only what this change sets: a table that another writer created with a wrong option can still be repaired.
        given = {key: text for key, text in changed.options.items() if current.options.get(key) != text}
        check_given(given, TableOptions(changed.options))
        check_keyed(given, changed)
        check_table(changed, schemas.layout.branch, given)
        check_engine(changed, current)
        if has_snapshots:
            warn_casts(current, changed)
        if changed is current or _publish_surely(env, schemas, changed):
            return changed
        wait = next(waits, None)
        if wait is None:
            raise CommitConflictError("schema change lost every race; retries exhausted", table=env.io.root)
        env.clock.sleep(wait)


def _publish_surely(env: Env, schemas: SchemaStore, schema: Schema) -> bool:
    """Publish, settle an unknown answer, and return whether the schema with this id is ours."""
    outcome = schemas.publish(schema)
    if isinstance(outcome, Created):
        return True
    if not isinstance(outcome, Unknown):
        return False
    cause = outcome.cause
    started = env.clock.monotonic()
    for delay in delays(_SETTLE, env.ids.random, lambda: (env.clock.monotonic() - started) * 1_000):
        published = _read_published(schemas, schema.id)
        if published is not None:
            return published == schema
        env.clock.sleep(delay)
        try:
            outcome = schemas.publish(schema)
        except StorageError as error:
            cause = error
            continue
        if isinstance(outcome, Created):
            return True
    raise CommitUnknownError(
        "storage did not confirm whether the schema was published",
        schema_id=schema.id,
        table=env.io.root,
        cause=cause,
        hint="look at the schemas of the table before you try again",
    ) from cause


def _read_published(schemas: SchemaStore, schema_id: int) -> Schema | None:
    try:
        return schemas.read(schema_id)
    except (NotFoundError, StorageError):
        return None
