"""All documents of one branch of one table, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelake.errors import NotFoundError
from tidelake.io.env import Env
from tidelake.spec.avro.container import codec_name
from tidelake.spec.layout import TableLayout
from tidelake.spec.schemas.schema import Schema
from tidelake.store.changelogs import ChangelogStore
from tidelake.store.commit_progress import ProgressStore
from tidelake.store.manifests import ManifestStore
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotPublisher, SnapshotSource, SnapshotStore


@dataclass(frozen=True, slots=True)
class TableStore:
    """The stores of a branch. `schema` is the schema that the table handle was opened with."""

    env: Env
    layout: TableLayout
    schema: Schema
    snapshots: SnapshotSource
    publisher: SnapshotPublisher
    schemas: SchemaStore
    manifests: ManifestStore
    progress: ProgressStore

    @property
    def changelogs(self) -> ChangelogStore:
        """The long-lived changelogs of the branch."""
        return ChangelogStore(self.env.io, self.layout)

    def on_branch(self, layout: TableLayout, schemas: SchemaStore) -> TableStore:
        """The stores of another branch, with the snapshots in its folder."""
        snapshots = SnapshotStore(self.env.io, layout, self.env.lock)
        return replace(self, layout=layout, schemas=schemas, snapshots=snapshots, publisher=snapshots)

    def is_dropped(self) -> bool:
        """Whether the schema that the handle was opened with is gone."""
        return not self.env.io.exists(self.layout.schema_path(self.schema.id), folder=False)

    def refuse_dropped(self) -> None:
        """Refuse a table that was dropped; one without snapshots is fine.

        Raises:
            NotFoundError: the schema that the handle was opened with is gone.
        """
        if self.is_dropped():
            raise NotFoundError(
                "table no longer exists", code="table-not-found", table=self.env.io.root, hint="it was dropped"
            )


def open_stores(
    env: Env,
    schema: Schema,
    schemas: SchemaStore,
    *,
    layout: TableLayout,
    manifest_codec: str = "zstd",
    manifest_target_bytes: int = 8 << 20,
) -> TableStore:
    """Open the stores of a branch."""
    manifests = ManifestStore(
        env.io,
        layout,
        tuple(schema.partition_types),
        codec=codec_name(manifest_codec),
        target_bytes=manifest_target_bytes,
        executor=env.executor,
        cache=env.cache,
    )
    snapshots, progress = SnapshotStore(env.io, layout, env.lock), ProgressStore(env.io, layout)
    return TableStore(env, layout, schema, snapshots, snapshots, schemas, manifests, progress)
