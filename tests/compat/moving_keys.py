"""Keys that move between partitions: rows, a model, and a writer made of the real Paimon's classes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Any

import jpype

import oracle
from tidelake.table import Table

COLUMNS = {"c": "INT NOT NULL", "dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}


ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


Row = tuple[int, str, int, int | None]


class TheirUpsert:
    """One job of the reference: its bootstrap, its assigner, and one commit."""

    def __init__(self, table: oracle.Table, user: str) -> None:
        self.table, self.user = table.load(), user
        self.spill = tempfile.TemporaryDirectory(prefix="paimon-oracle-")
        io = oracle.java("disk.IOManager").create(self.spill.name)
        self.write = self.table.newWrite(user).withIOManager(io)
        self.threads = oracle.java("java.util.concurrent.Executors").newSingleThreadExecutor()
        self.assigner = oracle.java("crosspartition.GlobalIndexAssigner")(self.table)
        self.emitted: list[tuple[str, int]] = []
        self.assigner.open(64 << 20, self.threads, io, 1, 0, self._sink())
        oracle.java("crosspartition.IndexBootstrap")(self.table).bootstrap(1, 0, self._loader())
        self.assigner.endBoostrap(False)

    def _sink(self) -> Any:
        job = self

        @jpype.JImplements("java.util.function.BiConsumer")
        class Sink:
            @jpype.JOverride
            def accept(self, row: Any, bucket: Any) -> None:
                job.emitted.append((str(row.getRowKind().shortString()), int(bucket)))
                job.write.write(row, int(bucket))

            @jpype.JOverride
            def andThen(self, after: Any) -> Any:  # noqa: N802 - the name of the interface
                return self

        return Sink()

    def _loader(self) -> Any:
        job = self

        @jpype.JImplements("java.util.function.Consumer")
        class Loader:
            @jpype.JOverride
            def accept(self, key: Any) -> None:
                job.assigner.bootstrapKey(key)

            @jpype.JOverride
            def andThen(self, after: Any) -> Any:  # noqa: N802 - the name of the interface
                return self

        return Loader()

    def upsert(self, rows: Iterable[tuple[str, Row]]) -> None:
        convert = oracle.core.row_to_java(self.table.rowType())
        kind_of = oracle.java("types.RowKind").fromShortString
        for kind, row in rows:
            made = convert(row)
            made.setRowKind(kind_of(kind))
            self.assigner.processInput(made)
        commit = self.table.newCommit(self.user)
        commit.commit(1, self.write.prepareCommit(True, 1))
        commit.close()
        self.assigner.close()
        self.write.close()
        self.threads.shutdown()
        self.spill.cleanup()


def create(catalog: oracle.Catalog, engine: str, **more: Any) -> oracle.Table:
    options = {"bucket": -1, "dynamic-bucket.target-row-num": 3, "num-sorted-run.compaction-trigger": 3}
    return catalog.create_table("d.t", COLUMNS, ["c", "id"], ["c", "dt"], {**options, **ENGINES[engine], **more})


def our_rows(rows: Iterable[tuple[str, Row]]) -> list[dict[str, Any]]:
    names = tuple(COLUMNS)
    return [{**dict(zip(names, row, strict=True)), "rowkind": kind} for kind, row in rows]


def ours_shown(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(str(value) for value in row.values()) for row in table.to_arrow().to_pylist())


def theirs_shown(table: oracle.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(str(value) for value in row.values()) for row in table.read())


def upsert(model: dict[tuple[int, int], list[Any]], rows: Iterable[tuple[str, Row]], engine: str) -> None:
    for kind, (c, dt, number, v) in rows:
        old = model.get((c, number))
        if kind == "-D":
            model.pop((c, number), None)
        elif old is None or engine == "deduplicate":
            model[c, number] = [c, dt, number, v]
        elif engine == "partial-update":
            old[3] = old[3] if v is None else v
        elif engine == "aggregation":
            old[3] = old[3] if v is None else v + (old[3] or 0)
