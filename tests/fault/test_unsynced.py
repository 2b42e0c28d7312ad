"""T2: the power fails at every call of the file system, and what was not synced is forgotten.

Each step starts on a disk that holds all before it for certain. Whatever call the power fails at, the table opens, its
newest snapshot is whole, and nothing that was acknowledged is gone; after a replay everything is as it should be.
"""

from __future__ import annotations

import pytest

from fault.harness import FIRST, Image, attempt, clean_run, glance, look_and_replay, step_names
from fault.reads import READS
from tidelake.errors import TidelakeError
from tidelake.io.ids import SeededIds
from tidelake.io.local import Durability, LocalFileIO
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, UnsyncedFileIO
from tidelake.testing.scenario import SCENARIO, restore_image

FULL_LOOK_EVERY = 8
"""Every how many power losses the table is replayed and checked; the others are only opened and read."""


@pytest.mark.parametrize("number", range(len(SCENARIO)), ids=step_names())
def test_power_loss_at_any_call_loses_nothing_acknowledged(number: int) -> None:
    losses = cut_power_everywhere(number, subsets=1, full_look_every=FULL_LOOK_EVERY)
    print(f"step {number}: {losses} power losses")


def test_without_syncs_the_same_walk_finds_a_loss() -> None:
    """The walk can fail: where nothing is synced an acknowledged commit does get lost."""
    lost = 0
    for subset in range(10):
        try:
            cut_power_after(1, subset, durability="none")
        except (AssertionError, TidelakeError):
            lost += 1
    assert lost > 0


def cut_power_everywhere(number: int, *, subsets: int, full_look_every: int) -> int:
    """Cut the power before each call of a step and after its last one; returns how often."""
    clean = _disk_with(clean_run()[0][number])
    start = len(clean.calls)
    assert attempt(clean, SCENARIO[number]) == "acked"
    calls = [place for place, (name, _) in enumerate(clean.calls[start:], 1) if name not in READS]
    losses = 0
    for call in calls:
        for subset in range(subsets):
            disk = _disk_with(clean_run()[0][number])
            disk.faults.crash_at = len(disk.calls) + call
            outcome = attempt(disk, SCENARIO[number])
            assert isinstance(outcome, Crash), (number, call, outcome)
            disk.crash(seed=number * 100_003 + call * 101 + subset)
            losses += 1
            where = f"REPRO step={number} call={call} subset={subset}"
            if losses % full_look_every == 0:
                look_and_replay(disk, number, where, acked=False)
            else:
                glance(disk, number, where)
    for subset in range(3 * subsets):
        cut_power_after(number, subset)
        losses += 1
    return losses


def cut_power_after(number: int, subset: int, *, durability: Durability = "fsync") -> None:
    """Cut the power right after a step was acknowledged."""
    disk = _disk_with(clean_run()[0][number])
    io = LocalFileIO(disk.root, durability=durability, ids=SeededIds(8), posix=disk.faults)
    assert attempt(io, SCENARIO[number], seed=FIRST + subset) == "acked"
    disk.crash(seed=number * 1_009 + subset)
    look_and_replay(disk, number, f"REPRO step={number} acknowledged subset={subset}", acked=True)


def _disk_with(image: Image) -> UnsyncedFileIO:
    disk = UnsyncedFileIO(ids=SeededIds(7))
    restore_image(disk, image)
    disk.sync(list(image))
    probe_create_exclusive(disk)
    return disk
