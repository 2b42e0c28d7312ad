"""Concurrency as a port: map a function over items with results in order, or start a task and wait for it later.

The result of `map` does not depend on the number of threads. It raises the first error in the order of the items,
whichever failed first, and only after all running calls have ended: a caller that cleans up after an error or an
interrupt must not find files that are still being written. A started task runs beside its caller, or, with one thread,
before `start` returns: then everything happens in one order, which simulations need.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tidelake.errors import InvalidInputError

T = TypeVar("T")
R = TypeVar("R")
Found = TypeVar("Found", covariant=True)

_LOOK_AGAIN_SECONDS = 1.0


class Task(Protocol[Found]):
    """A started call."""

    def done(self) -> bool:
        """Return whether the call has ended, with a result or an error."""

    def result(self) -> Found:
        """Wait for the call; return its result or raise its error."""


class Executor(Protocol):
    """Runs functions, possibly several at a time."""

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return the results of `fn` in the order of the items; raise the first error in that order."""

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` beside the caller if there are threads, otherwise now."""

    def close(self) -> None:
        """Stop the threads; closing twice is fine."""


class _Call(Generic[R]):
    """One call of a function and its outcome: what `Future` is, but safe against an interrupt at any step.

    `Future` waits on a condition, which is written in Python: an interrupt that arrives while the condition releases
    its lock surfaces as "cannot release un-acquired lock", and one that arrives just after it acquired the lock leaves
    it locked for ever. Here every step that acquires or waits for a lock is a single call into C.
    """

    def __init__(self, fn: Callable[[], R]) -> None:
        self._fn: Callable[[], R] | None = fn
        self._claim = threading.Lock()  # acquired once, to run the call or to cancel it
        self._ended = threading.Lock()  # held until the call has an outcome
        self._ended.acquire()
        self._value: R
        self._error: BaseException | None = None
        self._done = False

    def run(self) -> None:
        """Call the function, unless it was cancelled."""
        fn = self._fn
        if fn is None or not self._claim.acquire(blocking=False):
            return
        try:
            self._value = fn()
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self._error = error
        self._end()

    def cancel(self) -> None:
        """Prevent the call from starting; a running call continues."""
        if self._claim.acquire(blocking=False):
            self._error = CancelledError()
            self._end()

    def done(self) -> bool:
        """Return whether the call has ended, with a result or an error, or was cancelled."""
        return self._done

    @property
    def was_interrupted(self) -> bool:
        """Whether the call ended with an error that is not an `Exception`, such as an interrupt."""
        return self._error is not None and not isinstance(self._error, Exception)

    def wait(self) -> None:
        """Wait until the call has ended."""
        # A waiting thread acquires the lock and never releases it, so a second waiting thread has to poll.
        while not self._done:
            self._ended.acquire(timeout=_LOOK_AGAIN_SECONDS)

    def result(self) -> R:
        """Wait for the call; return its result or raise its error."""
        self.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # type: ignore[assignment]  # noqa: PLW0642 - the traceback must not keep the call alive
        return self._value

    def _end(self) -> None:
        self._fn = None
        self._done = True
        self._ended.release()


class SerialExecutor:
    """Runs everything in the calling thread."""

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return the results of `fn` in the order of the items."""
        return [fn(item) for item in items]

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` now; `result` of the task raises its error."""
        call = _Call(fn)
        call.run()
        if call.was_interrupted:
            call.result()  # the interrupt belongs to the caller, whose thread this is
        return call

    def close(self) -> None:
        """Nothing to stop."""


class ThreadExecutor:
    """A thread pool that is created when it is first used.

    A `map` called from one of its own tasks runs in that thread, because waiting for a free thread could deadlock. A
    forked child creates its own pool, because threads do not survive a fork. `start` uses a second pool of the same
    size, so that a long task does not keep a `map` waiting.
    """

    def __init__(self, workers: int, *, waits: bool = True) -> None:
        """Set the number of threads. Without `waits`, an interrupted `map` leaves running calls to `close`."""
        if workers < 1:
            raise InvalidInputError("executor needs at least one worker", workers=workers)
        self._workers = workers
        self._waits = waits
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._beside: ThreadPoolExecutor | None = None
        self._pid = 0
        self._closed = False
        self._inside = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return ThreadExecutor, (self._workers,)  # threads cannot be pickled; a copy starts its own

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return the results of `fn` in the order of the items.

        Raises:
            InvalidInputError: the executor is closed.
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

        pool = self._ensure_pool()
        calls = [_Call(partial(task, item)) for item in work]
        try:
            for call in calls:
                self._submit(pool, call)
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.cancel()
            if self._waits:
                for call in calls:
                    call.wait()

    def start(self, fn: Callable[[], R]) -> Task[R]:
        """Run `fn` in a thread of the second pool as soon as one is free.

        Raises:
            InvalidInputError: the executor is closed.
        """
        self._ensure_pool()
        with self._lock:
            if self._beside is None:
                self._beside = ThreadPoolExecutor(self._workers, thread_name_prefix="tidelake-beside")
            call = _Call(fn)
            self._submit(self._beside, call)
            return call

    def close(self) -> None:
        """Wait for running tasks and stop the threads."""
        with self._lock:
            pools, self._pool, self._beside, self._closed = (self._pool, self._beside), None, None, True
        for pool in pools:
            if pool is not None and self._pid == os.getpid():
                pool.shutdown(wait=True)  # `_run` cancels calls that have not started

    def _submit(self, pool: ThreadPoolExecutor, call: _Call[Any]) -> None:
        try:
            pool.submit(self._run, call)
        except RuntimeError as error:
            # The pool waits on a condition for the threads that it starts, with the problem described in `_Call`.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise

    def _run(self, call: _Call[Any]) -> None:
        if self._closed:
            call.cancel()
        else:
            call.run()

    def _ensure_pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise InvalidInputError("executor is closed", hint="open the lake again")
            if self._pool is None or self._pid != os.getpid():
                self._pool, self._beside = ThreadPoolExecutor(self._workers, thread_name_prefix="tidelake"), None
                self._pid = os.getpid()
            return self._pool


def mutex() -> AbstractContextManager[bool]:
    """Return a reentrant lock between threads."""
    return threading.RLock()
