"""T1 over primary-key tables: every operation of their life on the storage fails or kills the process once.

The steps are those of `keyed`, for each merge engine. After each fault a new process finds the rows before the step or
those after it, and the latter if it was acknowledged; so do the tag and the branch. It goes on from that step, or from
the first one with the same identifiers: nothing is lost, nothing is doubled, a key has one row, every snapshot is a
state of the model, `check` finds nothing wrong, and after cleaning no file is left that nothing refers to.

Here each engine visits a twentieth of the operations, each in one way, other ones for each engine; `tests/soak`
visits every operation of every engine in every way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fault.harness import MODES, distinct_modes
from fault.keyed import ENGINES, Clean, steps_of
from fault.keyed_walk import Walk, disk_place, memory_place, still
from fault.places import bucket_with
from kit.s3_server import BUCKET, moto_s3
from tidelake.io.ids import SeededIds
from tidelake.testing import Fault, Op
from tidelake.testing.faulty import READS

WAYS = (Fault.CRASH_AFTER, Fault.BEFORE, Fault.TORN, Fault.AFTER)
SHARE, READ_SHARE = 20, 120
SWAPPED = {"-1": (("bucket", "2"),), "1": (("bucket", "-1"),)}
"""The other kind of buckets than the one an engine has here."""


@pytest.mark.parametrize("engine", ENGINES)
def test_in_memory_operations_fail_in_turn(engine: str) -> None:
    walk = Walk(memory_place, engine)
    shift = 3 * list(ENGINES).index(engine)
    for number in range(len(steps_of(engine))):
        for op in walk.operations(number):
            share = READ_SHARE if op.name in READS else SHARE
            if (op.number + shift) % share == 0:
                walk.visit(number, op, Fault.BEFORE if op.name in READS else WAYS[(op.number // SHARE) % len(WAYS)])
    assert walk.visits >= 10
    print(f"{engine}: {walk.visits} faults led to {walk.looked_at} different storages")


@pytest.mark.parametrize("engine", ENGINES)
def test_on_disk_a_sample_of_operations_fails_in_every_way(engine: str, tmp_path: Path) -> None:
    swapped = SWAPPED[ENGINES[engine]["bucket"]]
    visit_sample(Walk(disk_place(tmp_path / "lake"), engine, swapped, whole_every=4), count=5, seed=5)


@pytest.mark.s3
@pytest.mark.long
def test_on_s3_a_few_operations_fail_in_every_way(s3_options: dict[str, str]) -> None:
    visit_sample(Walk(still(bucket_with(s3_options, "keyed")), "aggregation"), count=4, seed=6, young=True)


def test_the_steps_use_every_kind_of_operation() -> None:
    walk = Walk(memory_place, "deduplicate")
    names = {op.name for number in range(len(steps_of("deduplicate"))) for op in walk.operations(number)}
    assert names >= {"open_input", "input_read", "open_output", "output_write", "create_exclusive", "delete", "sync"}


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options


def all_points(walk: Walk) -> Iterator[tuple[int, Op, Fault]]:
    """Every operation of every step in every way that differs."""
    for number in range(len(steps_of(walk.engine))):
        for op in walk.operations(number):
            for fault in (Fault.BEFORE,) if op.name in READS else MODES:
                yield number, op, fault


def visit_sample(walk: Walk, *, count: int, seed: int, young: bool = False) -> None:
    """Visit points chosen by the seed, those that change something more often than reads.

    Where files stay `young` cleaning takes nothing and is left out.
    """
    chance = SeededIds(seed)
    steps = steps_of(walk.engine)
    memory = Walk(memory_place, walk.engine, walk.options)
    chosen = [number for number, step in enumerate(steps) if not (young and isinstance(step, Clean))]
    points = [
        (number, op, fault)
        for number in chosen
        for op in memory.operations(number)
        for fault in distinct_modes(op)
        if op.name not in READS or chance.random() < 0.1
    ]
    for _ in range(count):
        number, op, fault = points.pop(int(chance.random() * len(points)))
        walk.visit(number, op, fault)
    assert walk.visits == count
