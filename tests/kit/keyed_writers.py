"""A keyed writer driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO


class Deferred:
    """One thread; what is started runs only when it is told to, or when somebody waits for it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.started = 0

    def map(self, fn: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [fn(item) for item in items]

    def start(self, fn: Callable[[], Any]) -> Any:
        self.started += 1
        outer, future = self, Future()

        class Task:
            def done(self) -> bool:
                return future.done()

            def result(self) -> Any:
                outer.run(future)
                return future.result()

        self.waiting.append((future, fn))
        return Task()

    def run(self, only: Future[Any] | None = None) -> None:
        for future, fn in [pair for pair in self.waiting if only in (None, pair[0])]:
            self.waiting.remove((future, fn))
            try:
                future.set_result(fn())
            except Exception as error:  # noqa: BLE001 - told by the future
                future.set_exception(error)

    def close(self) -> None:
        pass


class Kit:
    def __init__(self, io: Any = None) -> None:
        self.io = io or MemoryFileIO()
        self.beside = Deferred()
        self.lake = Lake(FileSystemCatalog(Env(self.io, FakeClock(1_000), SeededIds(1), self.beside)))

    def table(self, **options: str) -> Table:
        settings = {"bucket": "1", **{key.replace("_", "-"): value for key, value in options.items()}}
        return self.lake.create_table("d.t", {"k": "INT NOT NULL", "n": "INT"}, primary_key=["k"], options=settings)

    def data_files(self) -> set[str]:
        found = self.io.list("d.db/t/bucket-0")
        return {each.path.rpartition("/")[2] for each in found}


def part(*keys: int, n: int = 0) -> list[dict[str, int]]:
    return [{"k": k, "n": n} for k in keys]


def shown(table: Table) -> dict[int, int]:
    return {row["k"]: row["n"] for row in table.to_arrow().to_pylist()}


def numbered(table: Table, writer: Any, identifier: int, rows: list[dict[str, int]]) -> list[Any]:
    writer.write(rows)
    messages = writer.prepare_commit(identifier)
    table.new_commit("u").commit(messages, identifier=identifier)
    return messages


def level_counts(table: Table) -> dict[int, int]:
    found: dict[int, int] = {}
    for level in table.files()["level"].to_pylist():
        found[level] = found.get(level, 0) + 1
    return found
