"""The door for concurrency: run a function over many items, answers in order; or start one and ask for it later.

Who calls `map` cannot tell how many threads there are, except by the time it takes. The first error in the order of the
items is the one that is raised, whatever finished first. A started task runs beside its caller, or, where there is one
thread only, before `start` returns: then everything happens in one order, which is what simulations need.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from tidelake.errors import InvalidInputError

T = TypeVar("T")
R = TypeVar("R")
Found = TypeVar("Found", covariant=True)


class Task(Protocol[Found]):
    """Something that was started."""

    def done(self) -> bool:
        """Whether it has ended, well or not."""

    def result(self) -> Found:
        """Wait for it; what it returned, or the error it ended with."""


class Executor(Protocol):
    """Runs functions, perhaps several at a time."""

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The answers of `fn` in the order of the items; the first error by that order is raised."""

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` beside the caller if there are threads, now if there are none."""

    def close(self) -> None:
        """Stop the threads; closing twice is fine."""


class SerialExecutor:
    """One after the other in the calling thread."""

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The answers of `fn` in the order of the items."""
        return [fn(item) for item in items]

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` now; its error, if any, is kept for whoever asks for the result."""
        task: Future[R] = Future()
        try:
            task.set_result(fn())
        except Exception as error:  # noqa: BLE001 - raised again by result()
            task.set_exception(error)
        return task

    def close(self) -> None:
        """Nothing to stop."""


class ThreadExecutor:
    """A pool of threads that starts with the first use.

    A `map` called from inside one of its own tasks runs in that thread: waiting for a free one could wait for ever. A
    forked child starts a pool of its own, because threads do not survive a fork. Started tasks have other threads, as
    many again: a long one must not keep a `map` waiting.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InvalidInputError("executor needs at least one worker", workers=workers)
        self._workers = workers
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._beside: ThreadPoolExecutor | None = None
        self._pid = 0
        self._closed = False
        self._inside = threading.local()

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The answers of `fn` in the order of the items.

        Raises:
            InvalidInputError: the executor was closed.
        """
        work = list(items)
        if len(work) < 2 or getattr(self._inside, "task", False):
            return [fn(item) for item in work]

        def task(item: T) -> R:
            self._inside.task = True
            try:
                return fn(item)
            finally:
                self._inside.task = False

        pool = self._started()
        futures: list[Future[R]] = [pool.submit(task, item) for item in work]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` in a thread of its own as soon as one is free.

        Raises:
            InvalidInputError: the executor was closed.
        """
        self._started()
        with self._lock:
            if self._beside is None:
                self._beside = ThreadPoolExecutor(self._workers, thread_name_prefix="tidelake-beside")
            return self._beside.submit(fn)

    def close(self) -> None:
        """Wait for running tasks and stop the threads."""
        with self._lock:
            pools, self._pool, self._beside, self._closed = (self._pool, self._beside), None, None, True
        for pool in pools:
            if pool is not None and self._pid == os.getpid():
                pool.shutdown(wait=True, cancel_futures=True)

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise InvalidInputError("executor is closed", hint="open the lake again")
            if self._pool is None or self._pid != os.getpid():
                self._pool, self._beside = ThreadPoolExecutor(self._workers, thread_name_prefix="tidelake"), None
                self._pid = os.getpid()
            return self._pool


def mutex() -> AbstractContextManager[bool]:
    """A lock between threads that its holder may take again."""
    return threading.RLock()
