"""How far each consumer is behind its table. Paimon's `t$consumers` names only the next snapshot of each."""

from __future__ import annotations

import pyarrow as pa

from tidelake.io.clock import as_local_ms
from tidelake.ops.context import TableContext
from tidelake.ops.scan.changes import earliest_change, find_change
from tidelake.store.consumers import ConsumerStore
from tidelake.store.table_store import TableStore

__all__ = ["consumer_lag_table"]


def consumer_lag_table(context: TableContext) -> pa.Table:
    """The next snapshot of each consumer, how many snapshots it has still to read, and how long these wait.

    `behind` is the age of the oldest snapshot that the consumer has not read, and zero if it has read all. A consumer
    is `lost` if its next snapshot has expired: its stream fails until the consumer is reset.

    Raises:
        FormatError: the document of a consumer or a snapshot is damaged.
    """
    store = context.store
    known = ConsumerStore(store.env.io, store.layout, store.env.clock)
    consumers, files = known.all(), known.files()
    latest, earliest = store.snapshots.latest_id() or 0, earliest_change(store) or 1
    next_ids = {name: max(each.next_snapshot, 1) for name, each in consumers.items()}
    saved = [as_local_ms(files[name].modified_ms) if name in files else None for name in next_ids]
    behind = [_waiting_ms(store, max(each, earliest)) for each in next_ids.values()]
    return pa.table(
        {
            "consumer_id": pa.array(list(next_ids), pa.string()),
            "next_snapshot_id": pa.array(list(next_ids.values()), pa.int64()),
            "snapshots_behind": pa.array([max(latest - each + 1, 0) for each in next_ids.values()], pa.int64()),
            "behind": pa.array(behind, pa.duration("ms")),
            "lost": pa.array([each < earliest for each in next_ids.values()], pa.bool_()),
            "saved_at": pa.array(saved, pa.timestamp("ms")),
        }
    )


def _waiting_ms(store: TableStore, snapshot_id: int) -> int:
    """The age of a snapshot; 0 if it is still to come."""
    snapshot = find_change(store, snapshot_id)
    return 0 if snapshot is None else max(store.env.clock.now_ms() - snapshot.time_ms, 0)
