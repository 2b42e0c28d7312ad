"""All documents of one branch of one table, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import NotFoundError
from tidelake.io.env import Env
from tidelake.spec.avro import codec_name
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import Schema
from tidelake.store.changelogs import ChangelogStore
from tidelake.store.manifests import ManifestStore
from tidelake.store.progress import ProgressStore
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class TableStore:
    """The stores of a branch. `schema` is the one the handle was opened with."""

    env: Env
    layout: TableLayout
    schema: Schema
    snapshots: SnapshotStore
    schemas: SchemaStore
    manifests: ManifestStore
    progress: ProgressStore

    @property
    def changelogs(self) -> ChangelogStore:
        """The long-lived changelogs of the branch."""
        return ChangelogStore(self.env.io, self.layout)

    def is_dropped(self) -> bool:
        """Whether the schema that the handle was opened with is gone."""
        return not self.env.io.exists(self.layout.schema_path(self.schema.id), folder=False)

    def refuse_dropped(self) -> None:
        """Tell a table without snapshots from one that is no longer there.

        Raises:
            NotFoundError: the schema that the handle was opened with is gone.
        """
        if self.is_dropped():
            raise NotFoundError(
                "table does not exist any more", code="table-not-found", table=self.env.io.root, hint="it was dropped"
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
    """Put the stores of a branch together."""
    manifests = ManifestStore(
        env.io,
        layout,
        tuple(schema.partition_types),
        codec=codec_name(manifest_codec),
        target_bytes=manifest_target_bytes,
        executor=env.executor,
        cache=env.cache,
    )
    return TableStore(
        env, layout, schema, SnapshotStore(env.io, layout), schemas, manifests, ProgressStore(env.io, layout)
    )
