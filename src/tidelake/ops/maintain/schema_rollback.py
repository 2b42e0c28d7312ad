"""Rolling back the schema: the schema files after one that is kept are deleted, the newest first.

Invariant: no schema is deleted that a snapshot, a tag or a long-lived changelog of any branch refers to. Whatever a
crash leaves is a table at some schema between the newest and the one that is kept. A commit that is published with a
newer schema while this runs is found afterwards, and the schemas are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import CommitConflictError, CommitUnknownError, InvalidInputError, NotFoundError
from tidelake.io.fileio import Unknown
from tidelake.io.sequenced import DOCUMENT_BYTES_MAX
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.holders import look, read_changelogs, read_snapshots, read_tags
from tidelake.store.table_store import TableStore

__all__ = ["SchemaRollbackPlan", "plan_schema_rollback", "run_schema_rollback"]


@dataclass(frozen=True, slots=True)
class SchemaRollbackPlan:
    """The schema that becomes the newest, and those that are deleted, the newest first."""

    schema_id: int
    removed: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.removed:
            return f"schema {self.schema_id} is the newest already"
        listed = ", ".join(map(str, self.removed[:10]))
        return f"back to schema {self.schema_id}: {pluralize(len(self.removed), 'schema')} ({listed}) go"


def plan_schema_rollback(context: TableContext, schema_id: int) -> SchemaRollbackPlan:
    """Which schemas would be deleted.

    Raises:
        NotFoundError: the schema does not exist.
        InvalidInputError: something refers to a newer schema.
    """
    store = context.store
    ids = store.schemas.ids()
    if schema_id not in ids:
        raise NotFoundError(
            "schema does not exist",
            code="schema-not-found",
            schema_id=schema_id,
            table=store.env.io.root,
            hint=f"schemas are {', '.join(map(str, ids[-20:]))}",
        )
    user = _find_user(store, schema_id)
    if user is not None:
        raise InvalidInputError(
            "a newer schema is in use",
            code="schema-in-use",
            schema_id=schema_id,
            used_by=user,
            table=store.env.io.root,
            hint="roll the table back or delete what uses it first; an older column layout can also be set with alter",
        )
    return SchemaRollbackPlan(schema_id, tuple(sorted((each for each in ids if each > schema_id), reverse=True)))


def _find_user(store: TableStore, schema_id: int) -> str | None:
    """What refers to a schema newer than this one, or None if nothing does."""
    return next((text for used, text in _used_schemas(store) if used > schema_id), None)


def _used_schemas(store: TableStore) -> Iterator[tuple[int, str]]:
    """The schema that each snapshot, tag and long-lived changelog of every branch names, and what names it."""
    for view in look(store).every:
        where = f" of branch {view.branch}"
        for snapshot in reversed(read_snapshots(store, view, view.snapshots)):
            yield snapshot.schema_id, f"snapshot {snapshot.id}{where}"
        for name, tag in read_tags(store, view).items():
            yield tag.schema_id, f"tag {name}{where}"
        for changelog in read_changelogs(store, view):
            yield changelog.schema_id, f"changelog {changelog.id}{where}"


def run_schema_rollback(context: TableContext, plan: SchemaRollbackPlan) -> None:
    """Delete the planned schemas. Stop writers first; handles that were opened with them must be opened again.

    Raises:
        CommitConflictError: a commit with a newer schema was published; the schemas are back.
        CommitUnknownError: such a commit was published, and it is unknown whether a schema is back.
        StorageError: the storage failed; the table has one of the schemas in between. Repeat the call to continue.
    """
    store = context.store
    files = {each: store.layout.schema_path(each) for each in plan.removed}
    contents = {each: store.env.io.read(path, limit=DOCUMENT_BYTES_MAX) for each, path in files.items()}
    for schema_id in plan.removed:
        store.env.io.delete(files[schema_id])
    store.schemas.forget()
    user = _find_user(store, plan.schema_id) if plan.removed else None
    if user is None:
        return
    for schema_id in reversed(plan.removed):
        outcome = store.env.io.create_exclusive(files[schema_id], contents[schema_id])
        if isinstance(outcome, Unknown):
            raise CommitUnknownError(
                "a commit used a newer schema while it was deleted, and it is unknown whether the schema is back",
                path=files[schema_id],
                used_by=user,
                hint="check the table, and create the schema file again if it is missing",
            )
    raise CommitConflictError(
        "a commit used a newer schema while it was deleted; all schemas are back",
        code="schema-in-use",
        used_by=user,
        hint="stop writers before you roll the schema back",
    )
