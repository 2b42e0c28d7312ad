"""Points of a micro-batch at which a driver is killed with SIGKILL, whichever of its processes gets there.

A driver of Spark is a Python process, its JVM, and the Python processes of sources, sinks and tasks. All of them start
with `obey_orders`, by a `sitecustomize` that `kit.stream_lives` puts on their path. It patches the functions of the
ordered points when their modules are imported. So what runs is the library as it is installed, up to the kill.

Nothing but the standard library is imported here: this runs at the start of every Python process of a driver.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

ORDERS, NOTES, DRIVER = "TIDELAKE_TEST_ORDERS", "TIDELAKE_TEST_NOTES", "TIDELAKE_TEST_DRIVER"
PATIENCE_S = 90.0
_COUNTS, _HITS = "counts", "hits"


@dataclass(frozen=True, slots=True)
class Order:
    """What happens at a point."""

    point: str
    table: str
    """The last part of the location of the table that it is about; for `to: query` of the checkpoint."""
    at: int = 1
    """At which of the calls, counted over all processes of the driver; 0 for each of them."""
    action: str = "kill"
    """`kill`, `fail` with an error, or `meet`: wait until another driver has come to the point."""


@dataclass(frozen=True, slots=True)
class Point:
    """A call of a function, before or after it."""

    module: str
    function: str
    after: bool
    applies: Callable[[str, tuple[Any, ...], Any], bool]
    """Whether a call is about a table of this name: by its arguments and, behind it, its result."""


def _is_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _is_in(table: str, location: str) -> bool:
    return location.rstrip("/").rpartition("/")[2] == table


def _offers(kind: str) -> Callable[[str, tuple[Any, ...], Any], bool]:
    def applies(table: str, given: tuple[Any, ...], _: Any) -> bool:
        publisher, candidate = given[:2]
        return _is_in(table, publisher.root) and candidate.commit_kind.value == kind

    return applies


def _is_data_file(table: str, given: tuple[Any, ...]) -> bool:
    return _is_in(table, given[0].root) and given[1].rpartition("/")[2].startswith("data-")


def _replays(table: str, given: tuple[Any, ...], result: Any) -> bool:
    return result == [] and _is_in(table, given[0]._store.env.io.root)


def _is_second_task(table: str, given: tuple[Any, ...], _: Any) -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.partitionId() != 1 or not _is_in(table, given[0].ref.grant.location):
        return False
    time.sleep(2.0)  # noqa: TID251 - the first task has reported its files by then
    return True


_ENGINE = "tidelake.engines.spark"
_LOCAL, _LOOP, _COMMITTER = "tidelake.io.local", "tidelake.ops.commit.loop", "tidelake.ops.commit.committer"
_BATCHES, _JOB, _WRITER = f"{_ENGINE}.stream.batches", f"{_ENGINE}.write.job", f"{_ENGINE}.datasource.stream_writer"
_SOURCE = f"{_ENGINE}.stream.source"
POINTS: Mapping[str, Point] = {
    # both sinks
    "writing": Point(_LOCAL, "LocalFileIO.open_output", True, lambda t, g, _: _is_data_file(t, g) and _is_task()),
    "manifests": Point(_LOOP, "offer", False, _offers("APPEND")),
    "published": Point(_LOOP, "offer", True, _offers("APPEND")),
    "compaction": Point(_LOOP, "offer", False, _offers("COMPACT")),
    "abort": Point(_LOCAL, "LocalFileIO.delete", True, lambda t, g, _: _is_data_file(t, g) and not _is_task()),
    "replay": Point(_COMMITTER, "Committer.filter_committed", True, _replays),
    # tl.stream_to
    "to: before": Point(_BATCHES, "BatchSink.write_batch", False, lambda t, g, _: _is_in(t, g[0]._table.location)),
    "to: data": Point(_JOB, "commit_write", False, lambda t, g, _: _is_in(t, g[0].store.env.io.root)),
    "to: committed": Point(_BATCHES, "BatchSink.write_batch", True, lambda t, g, _: _is_in(t, g[0]._table.location)),
    "to: query": Point(_BATCHES, "BatchSink.write_batch", False, lambda t, g, _: _is_in(t, g[0]._request.checkpoint)),
    "to: task": Point(_JOB, "WriteRows._write", False, _is_second_task),
    # the data source
    "sink: before": Point(
        _WRITER, "StreamTableWriter.write", False, lambda t, g, _: _is_in(t, g[0].ref.grant.location)
    ),
    "sink: data": Point(_WRITER, "StreamTableWriter.commit", False, lambda t, g, _: _is_in(t, g[0].ref.grant.location)),
    "sink: committed": Point(
        _WRITER, "StreamTableWriter.commit", True, lambda t, g, _: _is_in(t, g[0].ref.grant.location)
    ),
    "sink: task": Point(_WRITER, "StreamTableWriter.write", False, _is_second_task),
    # the source; the table is the one that is read
    "source: planned": Point(
        _SOURCE, "StreamBatches.tasks", True, lambda t, g, found: bool(found) and _is_in(t, g[0]._table.location)
    ),
    "source: progress": Point(
        _SOURCE, "StreamBatches.save_progress", True, lambda t, g, _: _is_in(t, g[0]._table.location)
    ),
}


def obey_orders() -> None:
    """Patch the ordered points of this process, if it belongs to a driver that has orders."""
    if ORDERS not in os.environ:
        return
    os.environ.setdefault(DRIVER, str(os.getpid()))
    orders: dict[str, list[Order]] = {}
    for each in json.loads(os.environ[ORDERS]):
        order = Order(**each)
        orders.setdefault(POINTS[order.point].module, []).append(order)
    sys.meta_path.insert(0, _Patcher(orders))


def orders_to_text(orders: tuple[Order, ...]) -> str:
    """Orders as the value of an environment variable."""
    return json.dumps([asdict(each) for each in orders])


def read_hits(notes: Path) -> list[str]:
    """The points at which an order was carried out."""
    hits = notes / _HITS
    return hits.read_text().split("\n")[:-1] if hits.exists() else []


class _Patcher(MetaPathFinder):
    """Patches modules as they are imported."""

    def __init__(self, orders: dict[str, list[Order]]) -> None:
        self._orders = orders

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        orders = self._orders.pop(fullname, None)
        spec = None if orders is None else PathFinder.find_spec(fullname, path, target)
        if orders is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: Any) -> None:
            load(module)
            for order in orders:
                _patch(module, order)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: Any, order: Order) -> None:
    point = POINTS[order.point]
    *owners, name = point.function.split(".")
    owner = functools.reduce(getattr, owners, module)
    known = getattr(owner, name)

    @functools.wraps(known)
    def patched(*given: Any, **named: Any) -> Any:
        if not point.after and point.applies(order.table, given, None):
            _reach(order)
        result = known(*given, **named)
        if point.after and point.applies(order.table, given, result):
            _reach(order)
        return result

    setattr(owner, name, patched)


def _reach(order: Order) -> None:
    """Carry out an order, if this is the call that it is for."""
    notes = Path(os.environ[NOTES])
    label = f"{order.point} {order.table} {order.action}"
    if order.at and _append(notes / f"{_COUNTS} {label.replace(':', '')}", b".") != order.at:
        return
    _append(notes / _HITS, f"{order.point}\n".encode())
    if order.action == "kill":
        # A daemon of Spark puts tasks into a group of their own.
        os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)
    elif order.action == "fail":
        from tidelake.errors import InvalidInputError

        raise InvalidInputError("a test asked for a failure here")
    else:
        (notes / f"met {os.environ[DRIVER]}").touch()
        end = time.monotonic() + PATIENCE_S  # noqa: TID251 - the other driver takes its time
        while len(list(notes.glob("met *"))) < 2 and time.monotonic() < end:  # noqa: TID251 - as above
            time.sleep(0.02)  # noqa: TID251 - as above


def _append(path: Path, data: bytes) -> int:
    """Append to a file that several processes share; how long it is then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)
