"""Time, identity, concurrency, back-off, and the hand that holds them."""

from __future__ import annotations

import itertools
import os
import sys
import threading  # noqa: TID251 - what the door itself is tested with
import uuid
from concurrent.futures import CancelledError
from functools import partial
from types import FrameType
from typing import Any

import pytest

from tidelake.errors import InvalidInputError
from tidelake.io import (
    Env,
    MemoryFileIO,
    RetryOptions,
    SeededIds,
    SerialExecutor,
    SystemClock,
    SystemIds,
    ThreadExecutor,
    delays,
    next_time_ms,
)
from tidelake.io.executor import Executor
from tidelake.testing import FakeClock


def test_the_system_clock_moves_forward() -> None:
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.now_ms()
    clock.sleep(0.002)
    clock.sleep(0)
    clock.sleep(-1)
    assert clock.monotonic() - before >= 0.002
    assert clock.now_ms() >= wall > 1_700_000_000_000


def test_the_time_of_a_new_version_is_later_than_the_one_before() -> None:
    clock = FakeClock(now_ms=1_000)
    assert next_time_ms(clock, None) == 1_000
    assert next_time_ms(clock, 999) == 1_000
    assert next_time_ms(clock, 1_000) == 1_001
    clock.jump(-0.5)
    assert next_time_ms(clock, 1_001) == 1_002


def test_system_identifiers_do_not_repeat() -> None:
    ids = SystemIds()
    made = {ids.uuid() for _ in range(100)}
    assert len(made) == 100
    assert all(str(uuid.UUID(text)) == text for text in made)
    assert all(0 <= ids.random() < 1 for _ in range(100))


def test_seeded_identifiers_repeat_by_seed_alone() -> None:
    first, second, other = SeededIds(1), SeededIds(1), SeededIds(2)
    sequence = [first.uuid(), first.random(), first.uuid()]
    assert sequence == [second.uuid(), second.random(), second.uuid()]
    assert other.uuid() != sequence[0]
    assert uuid.UUID(str(sequence[0])).version == 4


@pytest.fixture(params=["serial", "threads", "one thread"])
def executor(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    made: Executor = (
        SerialExecutor() if request.param == "serial" else ThreadExecutor(4 if request.param == "threads" else 1)
    )
    yield made
    made.close()
    made.close()


def test_answers_come_in_the_order_of_the_items(executor: Executor) -> None:
    clock = SystemClock()

    def slow_first(number: int) -> int:
        clock.sleep(0.002 * (5 - number))
        return number * number

    assert executor.map(slow_first, range(5)) == [0, 1, 4, 9, 16]
    assert executor.map(str, iter([1])) == ["1"]
    assert executor.map(str, []) == []


def test_the_first_error_by_order_is_raised(executor: Executor) -> None:
    def fail(number: int) -> int:
        if number >= 2:
            raise InvalidInputError(f"item {number}")
        return number

    with pytest.raises(InvalidInputError, match="item 2"):
        executor.map(fail, range(6))
    assert executor.map(str, [1, 2]) == ["1", "2"]


def test_a_map_inside_a_map_does_not_wait_for_itself(executor: Executor) -> None:
    assert executor.map(lambda n: executor.map(lambda m: n * m, range(3)), range(8)) == [
        [n * m for m in range(3)] for n in range(8)
    ]


def test_an_interrupt_at_any_step_of_waiting_for_a_task_is_an_interrupt() -> None:
    """Waiting on a `Future`, it came out as "RuntimeError: cannot release un-acquired lock" now and then."""
    executor = ThreadExecutor(1)
    for interrupt_at in itertools.count(1):
        go = threading.Event()
        task = executor.start(partial(go.wait, 10))
        steps = 0

        def trace(frame: FrameType, event: str, _argument: object, last: int = interrupt_at) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            if event == "opcode":
                steps += 1
                if steps == last:
                    raise KeyboardInterrupt
            return trace

        timer = threading.Timer(0.01, go.set)
        timer.start()
        sys.settrace(trace)
        try:
            task.result()
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(None)
        go.set()
        assert task.result() is True  # the task was not harmed, and can be waited for again
        timer.join()
        if not interrupted:
            break
    assert interrupt_at > 10
    executor.close()


def test_closing_cancels_what_has_not_begun() -> None:
    executor, begun, go = ThreadExecutor(1), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(10)
        return "done"

    first, second = executor.start(work), executor.start(work)
    begun.wait(10)
    threading.Timer(0.05, go.set).start()
    executor.close()
    assert first.result() == "done"
    assert second.done()
    with pytest.raises(CancelledError):
        second.result()


def test_an_interrupt_of_a_task_in_the_callers_thread_is_raised_at_once() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SerialExecutor().start(interrupt)


def test_a_closed_executor_says_so() -> None:
    executor = ThreadExecutor(2)
    executor.close()
    with pytest.raises(InvalidInputError, match="closed"):
        executor.map(str, [1, 2])
    with pytest.raises(InvalidInputError):
        ThreadExecutor(0)


def test_a_forked_child_gets_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ThreadExecutor(2)
    assert executor.map(str, [1, 2]) == ["1", "2"]
    parent_pool = executor._pool
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert executor.map(str, [1, 2]) == ["1", "2"]
    assert executor._pool is not parent_pool
    executor.close()
    assert parent_pool is not None
    parent_pool.shutdown()


def test_back_off_grows_to_its_ceiling() -> None:
    options = RetryOptions()
    first = [round(delay, 4) for delay in itertools.islice(delays(options, lambda: 1.0), 8)]
    assert first == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_back_off_jitters_down_to_nothing() -> None:
    assert set(itertools.islice(delays(RetryOptions(), lambda: 0.0), 50)) == {0.0}
    ids = SeededIds(3)
    sample = list(itertools.islice(delays(RetryOptions(), ids.random), 40))[10:]
    assert min(sample) < 0.5 < 1.5 < max(sample) <= 2.0


def test_back_off_ends_after_time_and_tries() -> None:
    slow = list(delays(RetryOptions(), lambda: 1.0))
    assert 119 <= sum(slow) <= 122
    hurried = list(delays(RetryOptions(tries_min=30), lambda: 1.0, elapsed_ms=lambda: 1e9))
    assert len(hurried) == 29
    assert len(list(delays(RetryOptions(tries_max=4), lambda: 0.5))) == 3
    assert list(delays(RetryOptions(tries_max=1), lambda: 0.5)) == []


@pytest.mark.parametrize("wrong", [{"delay_min_ms": 3_000}, {"delay_min_ms": -1}, {"tries_min": 0}, {"tries_max": 0}])
def test_retry_bounds_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError):
        RetryOptions(**wrong)


def test_the_environment_defaults_to_the_machine_and_closes() -> None:
    env = Env(MemoryFileIO(), executor=ThreadExecutor(2))
    assert isinstance(env.clock, SystemClock)
    assert isinstance(env.ids, SystemIds)
    assert isinstance(Env(MemoryFileIO()).executor, SerialExecutor)
    env.close()
    with pytest.raises(InvalidInputError):
        env.executor.map(str, [1, 2])


def test_a_fake_clock_moves_only_when_the_test_moves_it() -> None:
    clock = FakeClock(now_ms=1_000)
    assert (clock.now_ms(), clock.now_ms(), clock.monotonic()) == (1_000, 1_000, 0.0)
    clock.sleep(1.5)
    assert (clock.now_ms(), clock.monotonic(), clock.slept) == (2_500, 1.5, [1.5])
    clock.jump(-2)
    assert (clock.now_ms(), clock.monotonic()) == (500, 1.5)
    clock.advance(1)
    assert (clock.now_ms(), clock.monotonic()) == (1_500, 2.5)
    ticking = FakeClock(now_ms=0, tick_ms=10)
    assert [ticking.now_ms() for _ in range(3)] == [0, 10, 20]
