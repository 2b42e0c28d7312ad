"""T2 over primary-key tables and their maintenance: the power fails, and what was not synced is forgotten.

Each step of `keyed` starts on a disk that holds all before it for certain. Whatever call the power fails at, the table
opens, its newest snapshot, its tag and its branch are whole, and nothing that was acknowledged is gone. That holds for
an expiry, a rollback and a cleaning too: what they delete may come back, what is kept may not go.
"""

from __future__ import annotations

import pytest

from fault.harness import FIRST, Image
from fault.keyed import FOLDER, Branch, Clean, Expire, Rollback, Tag, step_names, steps_of
from fault.keyed_walk import DAYS_S, Place, attempt, clean_run, glance, look
from fault.reads import READS
from tidelake.errors import TidelakeError
from tidelake.io.ids import SeededIds
from tidelake.io.local import Durability, LocalFileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, FakeClock, UnsyncedFileIO
from tidelake.testing.scenario import restore_image

MAINTENANCE = (Branch, Clean, Expire, Rollback, Tag)
ENGINES = ("deduplicate", "first-row")


@pytest.mark.parametrize("engine", ENGINES)
def test_power_loss_at_any_call_loses_nothing_acknowledged(engine: str) -> None:
    losses = 0
    for number, step in enumerate(steps_of(engine)):
        share = 3 if isinstance(step, MAINTENANCE) else 14
        losses += cut_power_everywhere(engine, number, share=share, subsets=1, full_look_every=8)
    assert losses >= 100
    print(f"{engine}: {losses} power losses")


def test_without_syncs_the_same_walk_finds_a_loss() -> None:
    """The walk can fail: where nothing is synced an acknowledged upsert does get lost."""
    lost = 0
    for subset in range(10):
        try:
            cut_power_after("deduplicate", 3, subset, durability="none")
        except (AssertionError, TidelakeError):
            lost += 1
    assert lost > 0


def cut_power_everywhere(engine: str, number: int, *, share: int, subsets: int, full_look_every: int) -> int:
    """Cut the power before every `share`-th call of a step and after its last one; returns how often."""
    image = clean_run(engine)[number]
    place, disk = _disk_with(image)
    start = len(disk.calls)
    assert attempt(place.doors(FIRST), engine, number, {}) == "acked"
    calls = [at for at, (name, _) in enumerate(disk.calls[start:], 1) if name not in READS]
    losses = 0
    for call in calls[number % share :: share]:
        for subset in range(subsets):
            place, disk = _disk_with(image)
            disk.faults.crash_at = len(disk.calls) + call
            outcome = attempt(place.doors(FIRST), engine, number, {})
            assert isinstance(outcome, Crash), (engine, number, call, outcome)
            disk.crash(seed=number * 100_003 + call * 101 + subset)
            losses += 1
            where = f"REPRO engine={engine} step={step_names(engine)[number]} call={call} subset={subset}"
            if losses % full_look_every == 0:
                look(place, engine, number, where, acked=False, whole=False, options={})
            else:
                glance(place, engine, number, where, check=isinstance(steps_of(engine)[number], MAINTENANCE))
    for subset in range(subsets):
        cut_power_after(engine, number, subset)
        losses += 1
    return losses


def cut_power_after(engine: str, number: int, subset: int, *, durability: Durability = "fsync") -> None:
    """Cut the power right after a step was acknowledged."""
    place, disk = _disk_with(clean_run(engine)[number])
    io = LocalFileIO(disk.root, durability=durability, ids=SeededIds(8), posix=disk.faults)
    assert attempt(place.doors(FIRST + subset, io), engine, number, {}) == "acked"
    disk.crash(seed=number * 1_009 + subset)
    where = f"REPRO engine={engine} step={step_names(engine)[number]} acknowledged subset={subset}"
    glance(place, engine, number, where, acked=True)


def _disk_with(image: Image) -> tuple[Place, UnsyncedFileIO]:
    clock = FakeClock(tick_ms=1)
    disk = UnsyncedFileIO(ids=SeededIds(7), clock=clock)
    restore_image(disk, image)
    disk.sync(list(image))
    for each in (disk, disk.sub(FOLDER)):
        probe_create_exclusive(each)
    clock.advance(DAYS_S)
    return Place(disk, clock, lambda: clock.advance(DAYS_S)), disk
