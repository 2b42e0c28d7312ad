"""Several processes on one storage, interleaved by a repeatable schedule.

Each process is a thread, but only one of them runs at a time. It pauses before every operation on the storage and at
every sleep, and a `Schedule` decides who runs next: by a seed, or by an exact list of preemptions. With seeded
identifiers and a shared virtual clock nothing else decides what happens, so a schedule gives the same history every
time, byte for byte, and a failure is repeated by its seed.

    simulation = Simulation(MemoryFileIO(), Seeded(7))
    for name in ("a", "b"):
        simulation.start(name, functools.partial(job, simulation.doors(), name))
    results = simulation.run()
"""

from __future__ import annotations

import builtins
import threading  # noqa: TID251 - only the threads of a simulation synchronise here
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tidelake.errors import InternalError, InvalidInputError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO, join
from tidelake.io.ids import SeededIds
from tidelake.testing.faulty import _WrappedFileIO

R = TypeVar("R")

STEPS_MAX = 100_000
"""More steps than any test needs: if it is reached, the processes prevent each other from finishing."""
_STUCK_S = 60.0


# ------------------------------------------------------------------------------------------------ schedules


class Schedule(Protocol):
    """Decides who runs next."""

    def choose(self, step: int, ready: Sequence[str], running: str | None) -> str:
        """Return one of `ready`, which is sorted; `running` ran last, None at the start or if it has finished."""


class Seeded:
    """Chooses a random process, repeatable by its seed.

    A run that switches at every operation hardly ever lets one process get far ahead, so the probability of a switch is
    also drawn from the seed: some histories switch all the time, others rarely.
    """

    def __init__(self, seed: int) -> None:
        self._ids = SeededIds(seed)
        self._switch = (0.05, 0.2, 0.5, 1.0)[int(self._ids.random() * 4)]

    def choose(self, step: int, ready: Sequence[str], running: str | None) -> str:  # noqa: ARG002 - random
        if running in ready and self._ids.random() >= self._switch:
            return str(running)
        return ready[int(self._ids.random() * len(ready))]


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Runs each process to its end, one after the other, but switches to the next one at the given steps."""

    at: frozenset[int] = frozenset()
    first: int = 0

    def choose(self, step: int, ready: Sequence[str], running: str | None) -> str:
        if running is None or running not in ready:
            return ready[self.first % len(ready)]
        turn = ready.index(running) + (step in self.at)
        return ready[turn % len(ready)]


# ------------------------------------------------------------------------------------------------ processes


@dataclass(frozen=True, slots=True)
class Move:
    """One step of the history: a process and what it did."""

    process: str
    name: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """How a process ended: with a value or with an error."""

    value: R | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class _Process:
    """A thread and the two signals between it and the scheduler."""

    name: str
    body: Callable[[], object]
    next_move: Move
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    result: Result[object] | None = None


class _Cancelled(BaseException):
    """Ends a process that still runs when the simulation is stopped."""


class Simulation:
    """Processes on one storage that run one at a time, in the order of a schedule."""

    def __init__(self, io: FileIO, schedule: Schedule, *, seed: int = 0) -> None:
        self.clock = VirtualClock(self)
        self.history: builtins.list[Move] = []
        self._io = io
        self._schedule = schedule
        self._seed = seed
        self._processes: dict[str, _Process] = {}
        self._back = threading.Semaphore(0)
        self._current: _Process | None = None
        self._doors = 0
        self._given_up = False

    def doors(self, wrap: Callable[[FileIO], FileIO] | None = None) -> Env:
        """Return the `Env` of one process: the shared storage and clock, and its own identifiers.

        Operations before `run` happen at once and are not part of the history. `wrap` puts another FileIO between the
        process and the storage, such as a `FaultyFileIO`.
        """
        self._doors += 1
        io: FileIO = SimulatedFileIO(self._io, self)
        return Env(wrap(io) if wrap else io, self.clock, SeededIds(self._seed * 1_000 + self._doors))

    def start(self, name: str, body: Callable[[], object]) -> None:
        """Add a process, which starts when the schedule chooses it.

        Raises:
            InvalidInputError: the name is in use.
        """
        if name in self._processes:
            raise InvalidInputError("process name is in use", name=name)
        self._processes[name] = _Process(name, body, Move(name, "start"))

    def run(self) -> dict[str, Result[object]]:
        """Run all processes to their ends, and return how each ended, by name.

        Raises:
            InternalError: they do not end.
        """
        try:
            running: str | None = None
            for step in range(STEPS_MAX):
                ready = sorted(name for name, process in self._processes.items() if process.result is None)
                if not ready:
                    return {name: process.result or Result() for name, process in self._processes.items()}
                running = self._schedule.choose(step, ready, running)
                self._run_step(self._processes[running])
            raise InternalError("simulated processes do not end", steps=STEPS_MAX)
        finally:
            self._stop()

    def pause(self, name: str, path: str = "") -> None:
        """Stop before a step, and wait until the schedule chooses this process again."""
        process = self._current
        if process is None or threading.current_thread() is not process.thread:
            # Calls from outside of the simulation, such as those of the test, do not wait.
            return
        process.next_move = Move(process.name, name, path)
        self._back.release()
        process.go.acquire()
        if self._given_up:
            raise _Cancelled

    def _run_step(self, process: _Process) -> None:
        self.history.append(process.next_move)
        self._current = process
        if process.thread is None:
            process.thread = threading.Thread(target=self._run_body, args=(process,), daemon=True)
            process.thread.start()
        else:
            process.go.release()
        if not self._back.acquire(timeout=_STUCK_S):
            raise InternalError("simulated process waits for something outside the simulation", process=process.name)

    def _run_body(self, process: _Process) -> None:
        try:
            process.result = Result(value=process.body())
        except _Cancelled:
            process.result = Result()
        except BaseException as error:  # noqa: BLE001 - an error of a process is a result
            process.result = Result(error=error)
        finally:
            self._back.release()

    def _stop(self) -> None:
        self._given_up = True
        for process in self._processes.values():
            if process.thread is not None:
                if process.result is None:
                    process.go.release()
                process.thread.join(timeout=_STUCK_S)


class SimulatedFileIO(_WrappedFileIO):
    """The shared storage as one process sees it: every operation waits until the schedule chooses the process."""

    def __init__(self, inner: FileIO, simulation: Simulation, prefix: str = "") -> None:
        super().__init__(inner, prefix)
        self._simulation = simulation

    def sub(self, path: str) -> SimulatedFileIO:
        return SimulatedFileIO(self.inner.sub(path), self._simulation, join(self._prefix, path))

    def _run(
        self,
        name: str,
        path: str,
        effect: Callable[[], R],
        *,
        torn: Callable[[], None] | None = None,  # noqa: ARG002 - nothing goes wrong here
        lost: Callable[[BaseException], R] | None = None,  # noqa: ARG002 - nothing goes wrong here
    ) -> R:
        self._simulation.pause(name, join(self._prefix, path))
        return effect()


class VirtualClock:
    """The clock that all processes of a simulation share. It moves by one millisecond per read, and by sleeping."""

    def __init__(self, simulation: Simulation, now_ms: int = 1_700_000_000_000) -> None:
        self._simulation = simulation
        self._start_ms = now_ms
        self._now_ms = float(now_ms)

    def now_ms(self) -> int:
        self._now_ms += 1
        return int(self._now_ms)

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1_000

    def sleep(self, seconds: float) -> None:
        """Move the clock and let other processes run."""
        self._now_ms += max(0.0, seconds) * 1_000
        self._simulation.pause("sleep")
