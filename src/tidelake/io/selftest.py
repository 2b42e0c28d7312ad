"""Tests whether a storage really creates files exclusively.

Every commit depends on this, so it is tested before the first one: several threads create one scratch file at once, and
exactly one of them may win, with its bytes intact. A store that ignores the condition (some S3-compatible stores do) is
detected here, before two writers overwrite each other's snapshot.
"""

from __future__ import annotations

import contextlib
import threading

from tidelake.errors import NotFoundError, StorageError
from tidelake.io.executor import ThreadExecutor
from tidelake.io.fileio import Created, FileIO, Outcome, Unknown
from tidelake.io.ids import Ids, SystemIds

_passed: set[tuple[str, str]] = set()


def probe_create_exclusive(io: FileIO, *, ids: Ids | None = None, racers: int = 10, again: bool = False) -> None:
    """Let threads race to create one scratch file. A location that passed is not tested again.

    Args:
        io: the storage; the scratch file is created in its root and deleted.
        ids: the source of the scratch name.
        racers: the number of threads.
        again: test even if this location passed before.

    Raises:
        StorageError: not exactly one writer won (`no-exclusive-create`), or the storage failed.
    """
    key = (type(io).__name__, io.root)
    if key in _passed and not again:
        return
    source = ids or SystemIds()
    path = f".tidelake-probe-{source.uuid()}"
    payloads = [f"{number} {source.uuid()}".encode() for number in range(racers)]
    try:
        outcomes = _race(io, path, payloads)
        content = io.read(path, limit=1_024)
    except NotFoundError as error:
        raise _unfit_error(io, "created file cannot be read back") from error
    finally:
        io.delete(path)
    winners = [payload for payload, outcome in zip(payloads, outcomes, strict=True) if isinstance(outcome, Created)]
    doubtful = [payload for payload, outcome in zip(payloads, outcomes, strict=True) if isinstance(outcome, Unknown)]
    if len(winners) > 1:
        raise _unfit_error(io, "several writers created one name", winners=len(winners))
    if winners and content != winners[0]:
        raise _unfit_error(io, "created file was replaced")
    if not winners and content not in doubtful:
        raise _unfit_error(io, "no writer created the name")
    _passed.add(key)


def _race(io: FileIO, path: str, payloads: list[bytes]) -> list[Outcome]:
    start = threading.Barrier(len(payloads))

    def create(payload: bytes) -> Outcome:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait()
        return io.create_exclusive(path, payload)

    if len(payloads) == 1:
        return [io.create_exclusive(path, payloads[0])]
    executor = ThreadExecutor(len(payloads), waits=False)  # threads at the barrier end only after `abort`
    try:
        return executor.map(create, payloads)
    except RuntimeError as error:
        raise StorageError(
            "threads could not be started",
            root=io.root,
            cause=str(error),
            hint="raise the thread or memory limit of this process",
        ) from error
    finally:
        # If a thread could not be started, no other passes the barrier, and closing would wait for ever.
        start.abort()
        executor.close()


def _unfit_error(io: FileIO, found: str, **facts: object) -> StorageError:
    return StorageError(
        "storage cannot create a file exclusively, so concurrent commits would be lost",
        code="no-exclusive-create",
        root=io.root,
        found=found,
        **facts,
        hint="use a local disk or a store with conditional puts (If-None-Match); for one writer set unsafe.commit=true",
    )
