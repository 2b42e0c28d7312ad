"""What the fault tests share: one clean run of the scenario to start from anywhere, and how a process dies and returns.

A fault is tried in one step at a time. The storage starts as the clean run left it before that step; the step runs with
the fault; then a new process looks at what is there, replays the scenario from its first step, and goes on. Storages
that are equal byte for byte behave alike from there on, so each of them is looked at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, NotFoundError, StorageError, TidelakeError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.ids import SeededIds
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.testing import Crash, FakeClock, Fault, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import (
    NAME,
    SCENARIO,
    USER,
    Commit,
    Model,
    Session,
    Step,
    live_names,
    problems,
    read_snapshots,
    restore_image,
    take_image,
)

Image = Mapping[str, bytes]
MODES = (Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.TORN, Fault.CRASH, Fault.CRASH_AFTER)
EVERY = bool(os.environ.get("TIDELAKE_EVERY_FAULT"))
"""Whether no fault is left out (`make soak`); a working day tries some of them, in turns."""
FIRST, SECOND = 1_000, 2_000
"""Seeds of the process that meets the fault and of the one that comes after it."""


def doors(io: FileIO, seed: int) -> Env:
    """Doors whose clock never waits and whose identifiers repeat with the seed."""
    return Env(io, FakeClock(tick_ms=1), SeededIds(seed))


def step_names() -> list[str]:
    """A readable name for each step."""
    return [f"{number}-{type(step).__name__.lower()}" for number, step in enumerate(SCENARIO)]


@functools.cache
def clean_run() -> tuple[tuple[Image, ...], tuple[Model, ...]]:
    """The storage and the model before each step, and after the last."""
    io = MemoryFileIO()
    images, models = [take_image(io)], [Model()]
    for number, step in enumerate(SCENARIO):
        Session(doors(io, number)).perform(step)
        images.append(take_image(io))
        models.append(models[-1].after(step))
    assert problems(doors(io, SECOND), models[-1], history=True) == []
    return tuple(images), tuple(models)


def has_its_turn(op: Op, fault: Fault, one_in: int) -> bool:
    """Whether a fault is tried where one in so many is: of each operation another way to fail than of the next."""
    return EVERY or (op.number + MODES.index(fault)) % one_in == 0


def distinct_modes(op: Op) -> tuple[Fault, ...]:
    """The faults that differ for an operation: one that changes nothing cannot fail after its effect."""
    return (Fault.BEFORE, Fault.CRASH) if op.name in READS else MODES


@dataclass(slots=True)
class Walk:
    """Visits faults in one kind of storage. `opened` gives an empty storage that holds an image."""

    opened: Callable[[Image], FileIO]
    end_every: int = 10
    """Every how many storages the replay goes on to the end of the scenario; else it goes one step further."""
    seen: set[bytes] = field(default_factory=set)
    visits: int = 0
    looked_at: int = 0

    def operations(self, number: int) -> list[Op]:
        """What a step asks of the storage when nothing fails."""
        io = FaultyFileIO(self._start(number))
        outcome = attempt(io, SCENARIO[number])
        assert outcome == "acked", outcome
        return io.ops

    def visit(self, number: int, op: Op, fault: Fault) -> None:
        """One fault in one step, a new process, and a replay."""
        where = f"REPRO step={number} op={op} fault={fault.value}"
        io = FaultyFileIO(self._start(number), {op.number: fault})
        outcome = attempt(io, SCENARIO[number])
        assert [fault_seen for _, fault_seen in io.injected_faults] == [fault], where
        assert outcome == "acked" or isinstance(outcome, Crash | StorageError | CommitUnknownError), (where, outcome)
        self.visits += 1
        state = digest(take_image(io.inner), outcome == "acked")
        if state not in self.seen:
            self.seen.add(state)
            self.looked_at += 1
            look_and_replay(
                io.inner, number, where, acked=outcome == "acked", to_the_end=self.looked_at % self.end_every == 0
            )

    def _start(self, number: int) -> FileIO:
        io = self.opened(clean_run()[0][number])
        # Done ahead: the racing threads of the probe would number the operations by chance.
        probe_create_exclusive(FaultyFileIO(io))
        return io


def memory_with(image: Image) -> FileIO:
    """A storage in memory that holds the image."""
    io = MemoryFileIO()
    restore_image(io, image)
    return io


def attempt(io: FileIO, step: Step, *, seed: int = FIRST) -> Literal["acked"] | Crash | TidelakeError:
    """Do one step in a process of its own and tell how it ended."""
    try:
        Session(doors(io, seed)).perform(step)
    except (Crash, TidelakeError) as failure:
        return failure
    return "acked"


def attempt_verb(act: Callable[[], object]) -> Literal["acked"] | Crash | TidelakeError:
    """Run a verb and return how it ended."""
    try:
        act()
    except (Crash, TidelakeError) as failure:
        return failure
    return "acked"


def look_and_replay(io: FileIO, number: int, where: str, *, acked: bool, to_the_end: bool = False) -> None:
    """Assert that a new process finds all of a step or none of it, and that a replay loses and doubles nothing."""
    models = clean_run()[1]
    glance(io, number, where, acked=acked)
    until = len(SCENARIO) if to_the_end else min(number + 2, len(SCENARIO))
    Session(doors(io, SECOND)).perform(*SCENARIO[:until])
    wrong = problems(doors(io, SECOND + 1), models[until], history=to_the_end)
    assert wrong == [], (where, wrong)


def glance(io: FileIO, number: int, where: str, *, acked: bool = False) -> None:
    """Assert that a new process finds all of a step or none of it; all, if it was acknowledged."""
    found = state_of(io)
    allowed = acknowledged_states(number) if acked else allowed_states(number)
    assert found in [_state(model) for model in allowed], (where, found)


State = tuple[list[tuple[int, str]], frozenset[str], tuple[str, ...]]


def acknowledged_states(number: int) -> list[Model]:
    """What a step leaves that succeeded: all of it, or a compaction is left for later."""
    return allowed_states(number)[1:]


def allowed_states(number: int) -> list[Model]:
    """What an interrupted step may leave: what was before it, all of it, or the first of two snapshots."""
    models = clean_run()[1]
    allowed = [models[number], models[number + 1]]
    step = SCENARIO[number]
    if isinstance(step, Commit) and step.after:
        allowed.append(models[number].after(Commit(step.identifier, step.add)))
    return allowed


def state_of(io: FileIO) -> State:
    """What a new process finds: numbered snapshots, live files, columns. Ids must be dense."""
    try:
        table = Lake(FileSystemCatalog(doors(io, SECOND))).table(NAME)
    except NotFoundError:
        return [], frozenset(), ()
    snapshots = read_snapshots(table)
    assert [s.id for s in snapshots] == list(range(1, len(snapshots) + 1))
    published = [
        (s.commit_identifier, s.commit_kind.value)
        for s in snapshots
        if s.commit_user == USER and s.commit_identifier != BATCH_IDENTIFIER
    ]
    return published, live_names(table), tuple(column.name for column in table.schema.fields)


def _state(model: Model) -> State:
    return [(identifier, kind.value) for identifier, kind in model.published_commits()], model.names(), model.columns


def left_nothing(outcome: object) -> bool:
    """Whether a verb ended so that none of its rows may be there: it raised, and did not say that nobody can tell."""
    return isinstance(outcome, TidelakeError) and not isinstance(outcome, CommitUnknownError)


def digest(image: Image, acked: object) -> bytes:
    """What tells two storages apart, and two ends of the verb that left them."""
    digest = hashlib.blake2b(str(acked).encode())
    for path in sorted(image):
        digest.update(f"{path} {len(image[path])} ".encode() + image[path])
    return digest.digest()
