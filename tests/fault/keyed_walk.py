"""How faults are tried on the life of a primary-key table: where it starts, how the process dies, what a new one finds.

Storages whose documents are equal, and the files that those name, behave alike, whatever else lies beside them: each is
looked at once. Days pass between the death and the next life, so that cleaning may take what the dead left.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fault import keyed
from fault.harness import FIRST, SECOND, Image, digest, left_nothing
from fault.keyed import Branch, Erase, Job, Model, Revise, Upsert, models, step_names, steps_of
from fault.places import folder_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitUnknownError, StorageError, TidelakeError
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO
from tidelake.io.ids import SeededIds
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, FakeClock, Fault, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.scenario import restore_image, take_image

DAYS_S = 9 * 86_400.0


@dataclass(frozen=True, slots=True)
class Place:
    """A storage, its clock, and how days pass in it."""

    io: FileIO
    clock: Clock
    pass_days: Callable[[], None]
    ages: bool = True
    """Whether files grow old as days pass."""

    def doors(self, seed: int, io: FileIO | None = None) -> Env:
        """Doors to the storage (or to another in front of it) whose clock never waits."""
        return Env(io or self.io, self.clock, SeededIds(seed))


Opened = Callable[[Image], Place]
"""Gives an empty storage that holds an image."""


def memory_place(image: Image) -> Place:
    """A storage in memory."""
    clock = FakeClock(tick_ms=1)
    io = MemoryFileIO(clock=clock)
    restore_image(io, image)
    clock.advance(DAYS_S)
    return Place(io, clock, lambda: clock.advance(DAYS_S))


def disk_place(folder: Path) -> Opened:
    """How to get a folder that holds an image; its files grow old at once."""

    def age() -> None:
        then = SystemClock().now_ms() / 1_000 - DAYS_S
        for path in folder.rglob("*"):
            os.utime(path, (then, then))

    def opened(image: Image) -> Place:
        io = folder_with(image, folder, durability="none")
        age()
        return Place(io, FakeClock(SystemClock().now_ms(), tick_ms=1), age)

    return opened


def still(open_io: Callable[[Image], FileIO]) -> Opened:
    """A storage whose files stay as young as they are."""
    return lambda image: Place(open_io(image), FakeClock(SystemClock().now_ms(), tick_ms=1), lambda: None, ages=False)


@functools.cache
def clean_run(engine: str, options: tuple[tuple[str, str], ...] = ()) -> tuple[Image, ...]:
    """The storage before each step, and after the last."""
    place = memory_place({})
    images = [take_image(place.io)]
    for number, step in enumerate(steps_of(engine)):
        Job(place.doors(number), engine, dict(options)).do(step)
        images.append(take_image(place.io))
        place.pass_days()
    assert keyed.problems(place.doors(SECOND), engine, len(images) - 1, history=True) == []
    return tuple(images)


def attempt(env: Env, engine: str, number: int, options: Mapping[str, str]) -> Literal["acked"] | Crash | TidelakeError:
    """Do one step in a process of its own and tell how it ended."""
    try:
        Job(env, engine, options).do(steps_of(engine)[number])
    except (Crash, TidelakeError) as failure:
        return failure
    return "acked"


@dataclass(slots=True)
class Walk:
    """Visits faults of one engine in one kind of storage."""

    opened: Opened
    engine: str
    options: tuple[tuple[str, str], ...] = ()
    """Options of the table besides those of its engine."""
    whole_every: int = 10
    """Every how many storages the job repeats everything from its first step, and every snapshot is looked at."""
    seen: set[bytes] = field(default_factory=set)
    visits: int = 0
    looked_at: int = 0

    def operations(self, number: int) -> list[Op]:
        """What a step asks of the storage when nothing fails."""
        place = self.start(number)
        io = FaultyFileIO(place.io)
        outcome = attempt(place.doors(FIRST, io), self.engine, number, dict(self.options))
        assert outcome == "acked", outcome
        return io.ops

    def visit(self, number: int, op: Op, fault: Fault) -> None:
        """One fault in one step, a new process, and a repetition."""
        name = step_names(self.engine)[number]
        where = f"REPRO engine={self.engine} step={name} op={op} fault={fault.value}"
        place = self.start(number)
        io = FaultyFileIO(place.io, {op.number: fault})
        outcome = attempt(place.doors(FIRST, io), self.engine, number, dict(self.options))
        assert [fault_seen for _, fault_seen in io.injected_faults] == [fault], where
        acked = outcome == "acked"
        assert acked or isinstance(outcome, Crash | StorageError | CommitUnknownError), (where, repr(outcome))
        self.visits += 1
        if left_nothing(outcome) and isinstance(steps_of(self.engine)[number], Upsert | Erase | Revise):
            assert keyed.state_of(place.doors(SECOND)) == models(self.engine)[number].shown(), where
        if self._is_new(place, number, acked):
            self.looked_at += 1
            whole = self.looked_at % self.whole_every == 0
            look(place, self.engine, number, where, acked=acked, whole=whole, options=dict(self.options))

    def start(self, number: int) -> Place:
        """The storage as the clean run left it before a step."""
        place = self.opened(clean_run(self.engine, self.options)[number])
        # Done ahead: the racing threads of the probe would number the operations by chance.
        lake = FaultyFileIO(place.io)
        for each in (lake, lake.sub(keyed.FOLDER)):
            probe_create_exclusive(each)
        return place

    def _is_new(self, place: Place, number: int, acked: bool) -> bool:
        """Whether no storage with the same documents and the same files that they may name was looked at.

        Bulk files count only if a document names them. As long as no document that does has changed, those are files
        that were there before the step.
        """
        before, image = clean_run(self.engine, self.options)[number], take_image(place.io)
        documents = {path: data for path, data in image.items() if not _is_bulk(path)}
        old = {path: data for path, data in before.items() if not _is_bulk(path)}
        changed = {path for path, _ in documents.items() ^ old.items()}
        named = image if any("progress" not in path for path in changed) else before
        files = {path: image.get(path, b"gone") for path in named if _is_bulk(path)}
        state = digest({**documents, **files}, acked)
        new = state not in self.seen
        self.seen.add(state)
        return new


def _is_bulk(path: str) -> bool:
    """Whether a file counts only if a document names it."""
    return any(part in ("manifest", "index") or part.startswith("bucket-") for part in path.split("/"))


def look(
    place: Place, engine: str, number: int, where: str, *, acked: bool, whole: bool, options: Mapping[str, str]
) -> None:
    """Assert that a new process finds all of a step or none of it, and that a repetition loses and doubles nothing."""
    steps = steps_of(engine)
    glance(place, engine, number, where, acked=acked, check=True)
    place.pass_days()
    until = len(steps) if whole else min(number + 2, len(steps))
    Job(place.doors(SECOND + 1), engine, options).do(*steps[0 if whole else number : until])
    place.pass_days()
    wrong = keyed.problems(place.doors(SECOND + 2), engine, until, history=whole, cleaned=place.ages)
    assert wrong == [], (where, wrong)


def glance(place: Place, engine: str, number: int, where: str, *, acked: bool = False, check: bool = False) -> None:
    """Assert that a new process finds all of a step or none of it; all, if it was acknowledged.

    With `check` also that every snapshot, tag and branch that is still there is whole.
    """
    found = keyed.state_of(place.doors(SECOND))
    if found is None:
        assert number == 0, where
        assert not acked, where
        return
    allowed = [model.shown() for model in _allowed(engine, number, acked=acked)]
    assert found in allowed, (where, found, allowed)
    if check and not isinstance(steps_of(engine)[number], Branch):
        report = Lake(FileSystemCatalog(place.doors(SECOND))).table(keyed.NAME).check()
        # A power loss in the middle of an expiry may leave gaps between the snapshots that were to go.
        wrong = [str(each) for each in report.errors if each.invariant != "I1" or acked]
        assert wrong == [], (where, wrong)


def _allowed(engine: str, number: int, *, acked: bool) -> Iterator[Model]:
    before, after = models(engine)[number : number + 2]
    yield after
    if not acked:
        yield before
    if isinstance(steps_of(engine)[number], Branch):
        # Made in several steps; until the last of them it has no snapshot.
        yield before
