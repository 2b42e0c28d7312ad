"""T1: every operation of the scenario on the storage fails or kills the process once, in every way that differs.

After each a new process finds the whole step or nothing of it, never less than what was acknowledged; a replay from the
first step with the same identifiers ends with the files of the model, no snapshot twice, and a clean `check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fault.harness import Walk, distinct_modes, has_its_turn, memory_with, step_names
from fault.places import bucket_with, folder_with
from kit.s3_server import BUCKET, moto_s3
from tidelake.io.ids import SeededIds
from tidelake.testing import Fault
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import SCENARIO

STEPS = range(len(SCENARIO))


@pytest.mark.parametrize("number", STEPS, ids=step_names())
def test_in_memory_every_operation_fails_in_every_way(number: int) -> None:
    walk = Walk(memory_with)
    for op in walk.operations(number):
        for fault in distinct_modes(op):
            walk.visit(number, op, fault)
    assert walk.visits >= 2 * len(walk.operations(number))
    print(f"step {number}: {walk.visits} faults led to {walk.looked_at} different storages")


@pytest.mark.parametrize("number", STEPS, ids=step_names())
def test_on_disk_every_operation_fails_before_and_dies_after(number: int, tmp_path: Path) -> None:
    walk = Walk(lambda image: folder_with(image, tmp_path / "lake", durability="none"))
    operations = walk.operations(number)
    handles = len(list(Path("/proc/self/fd").iterdir()))
    for op in operations:
        for fault in (Fault.BEFORE,) if op.name in READS else (Fault.BEFORE, Fault.CRASH_AFTER):
            if has_its_turn(op, fault, 3):
                walk.visit(number, op, fault)
    assert len(list(Path("/proc/self/fd").iterdir())) <= handles


def test_on_disk_with_fsync_a_sample_of_operations_fails_in_every_way(tmp_path: Path) -> None:
    walk = Walk(lambda image: folder_with(image, tmp_path / "lake", durability="fsync"))
    visit_sample(walk, count=60, seed=1)


@pytest.mark.s3
@pytest.mark.long
def test_on_s3_a_sample_of_operations_fails_in_every_way(s3_options: dict[str, str]) -> None:
    visit_sample(Walk(bucket_with(s3_options)), count=12, seed=2)


def test_the_scenario_uses_every_kind_of_operation_a_commit_needs() -> None:
    names = {op.name for number in STEPS for op in Walk(memory_with).operations(number)}
    assert names >= {"read", "exists", "list", "write", "overwrite", "create_exclusive", "sync"}


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options


def visit_sample(walk: Walk, *, count: int, seed: int) -> None:
    """Visit points chosen by the seed, those that change something more often than reads."""
    chance = SeededIds(seed)
    by_step = [Walk(memory_with).operations(number) for number in STEPS]
    points = [
        (number, op, fault)
        for number, ops in enumerate(by_step)
        for op in ops
        for fault in distinct_modes(op)
        if op.name not in READS or chance.random() < 0.1
    ]
    for _ in range(count):
        number, op, fault = points.pop(int(chance.random() * len(points)))
        walk.visit(number, op, fault)
    assert walk.visits == count
