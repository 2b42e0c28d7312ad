"""T1 over real writes: every operation on the storage fails or kills the process once, in every way that differs.

The steps are those of `rows`: rows are written, overwritten, deleted, updated, compacted and read, before and after a
change of the schema. After each fault a new process finds the rows before the step or those after it, and the latter if
it was acknowledged. It goes on from that step, or from the first one with the same identifiers; nothing is lost,
nothing is doubled, every snapshot is a state of the model, and `check` reads every live file and finds nothing wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from fault import rows
from fault.harness import (
    EVERY,
    FIRST,
    MODES,
    SECOND,
    Image,
    digest,
    distinct_modes,
    doors,
    has_its_turn,
    left_nothing,
    memory_with,
)
from fault.places import bucket_with, folder_with
from fault.rows import LAYOUTS, STEPS, Compact, Create, Delete, Job, Update
from kit.s3_server import BUCKET, moto_s3
from tidelake.errors import CommitUnknownError, StorageError, TidelakeError
from tidelake.io import FileIO
from tidelake.io.ids import SeededIds
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

NUMBERS = range(len(STEPS))
IDS = [f"{number}-{type(step).__name__.lower()}" for number, step in enumerate(STEPS)]


@functools.cache
def clean_run(layout: str) -> tuple[Image, ...]:
    """The storage before each step, and after the last."""
    io = MemoryFileIO()
    images = [take_image(io)]
    for number, step in enumerate(STEPS):
        Job(doors(io, number), layout).do(step)
        images.append(take_image(io))
    assert rows.problems(doors(io, SECOND), len(STEPS), history=True) == []
    return tuple(images)


def attempt(io: FileIO, layout: str, number: int) -> Literal["acked"] | Crash | TidelakeError:
    """Do one step in a process of its own and tell how it ended."""
    try:
        Job(doors(io, FIRST), layout).do(STEPS[number])
    except (Crash, TidelakeError) as failure:
        return failure
    return "acked"


@dataclass(slots=True)
class Walk:
    """Visits faults of one layout in one kind of storage. `opened` gives an empty storage that holds an image."""

    opened: Callable[[Image], FileIO]
    layout: str
    whole_every: int = 12
    """Every how many storages the job repeats everything from its first step, and every snapshot is looked at."""
    seen: set[bytes] = field(default_factory=set)
    visits: int = 0
    looked_at: int = 0

    def operations(self, number: int) -> list[Op]:
        """What a step asks of the storage when nothing fails."""
        io = FaultyFileIO(self.start(number))
        outcome = attempt(io, self.layout, number)
        assert outcome == "acked", outcome
        return io.ops

    def visit(self, number: int, op: Op, fault: Fault) -> None:
        """One fault in one step, a new process, and a repetition."""
        where = f"REPRO layout={self.layout} step={IDS[number]} op={op} fault={fault.value}"
        io = FaultyFileIO(self.start(number), {op.number: fault})
        outcome = attempt(io, self.layout, number)
        assert [fault_seen for _, fault_seen in io.injected_faults] == [fault], where
        acked = outcome == "acked"
        assert acked or isinstance(outcome, Crash | StorageError | CommitUnknownError), (where, repr(outcome))
        self.visits += 1
        nothing = left_nothing(outcome) and not isinstance(STEPS[number], Create)
        state = digest(take_image(io.inner), (acked, nothing))
        if state not in self.seen:
            self.seen.add(state)
            self.looked_at += 1
            self._look(io.inner, number, where, acked=acked, nothing=nothing)

    def _look(self, io: FileIO, number: int, where: str, *, acked: bool, nothing: bool) -> None:
        expected = rows.states()
        found = rows.state_of(doors(io, SECOND))
        if found is None:
            assert number == 0, where
            assert not acked, where
        else:
            assert found in expected[number + acked : number + 2 - nothing], (where, found)
        whole = self.looked_at % self.whole_every == 0
        until = len(STEPS) if whole else min(number + 2, len(STEPS))
        Job(doors(io, SECOND + 1), self.layout).do(*STEPS[0 if whole else number : until])
        wrong = rows.problems(doors(io, SECOND + 2), until, history=whole)
        assert wrong == [], (where, wrong)

    def start(self, number: int) -> FileIO:
        """The storage as the clean run left it before a step."""
        io = self.opened(clean_run(self.layout)[number])
        # Done ahead: the racing threads of the probe would number the operations by chance.
        lake = FaultyFileIO(io)
        for each in (lake, lake.sub(rows.FOLDER)):
            probe_create_exclusive(each)
        return io


@pytest.mark.parametrize("number", NUMBERS, ids=IDS)
@pytest.mark.parametrize("layout", ["unaware", "bucketed"])
def test_in_memory_every_operation_fails_in_every_way(layout: str, number: int) -> None:
    walk = Walk(memory_with, layout)
    operations = walk.operations(number)
    for op in operations:
        # A death before a read leaves what a death after the change before it left.
        for fault in (Fault.BEFORE,) if op.name in READS else MODES:
            if has_its_turn(op, fault, 1 if layout == "unaware" else 3):
                walk.visit(number, op, fault)
    assert walk.visits >= len(operations) // 4
    print(f"{layout} {IDS[number]}: {walk.visits} faults led to {walk.looked_at} different storages")


MARKING = [number for number, step in enumerate(STEPS) if isinstance(step, Delete | Update | Compact)][:3]


@pytest.mark.parametrize("number", MARKING, ids=[IDS[number] for number in MARKING])
@pytest.mark.parametrize("layout", ["marked", "marked buckets"])
def test_in_memory_every_operation_on_deletion_vectors_fails_in_every_way(layout: str, number: int) -> None:
    """Marks are set, added to, and removed by a compaction."""
    walk = Walk(memory_with, layout)
    for op in walk.operations(number):
        for fault in (Fault.BEFORE,) if op.name in READS else MODES:
            if has_its_turn(op, fault, 3):
                walk.visit(number, op, fault)
    assert walk.visits > 20


@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_disk_a_sample_of_operations_fails_in_every_way(layout: str, tmp_path: Path) -> None:
    visit_sample(Walk(on_disk(tmp_path), layout), count=200 if EVERY else 15, seed=3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_error_leaves_a_file_open(layout: str, tmp_path: Path) -> None:
    walk = Walk(on_disk(tmp_path), layout)
    for number in (1, 5, 6):
        for op in walk.operations(number):
            if not op.name.startswith(("output_", "input_")):
                continue
            for fault in (Fault.BEFORE,) if op.name in READS else (Fault.BEFORE, Fault.TORN, Fault.AFTER):
                io = FaultyFileIO(walk.start(number), {op.number: fault})
                before = open_files()
                outcome = attempt(io, layout, number)
                assert isinstance(outcome, StorageError), (op, fault, outcome)
                outcome = None
                assert open_files() <= before, (op, fault)


def open_files() -> int:
    """How many handles this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def on_disk(folder: Path) -> Callable[[Image], FileIO]:
    """How to get a folder that holds an image."""
    return lambda image: folder_with(image, folder / "lake", durability="none")


@pytest.mark.s3
@pytest.mark.long
def test_on_s3_a_few_operations_fail_in_every_way(s3_options: dict[str, str]) -> None:
    visit_sample(Walk(bucket_with(s3_options, "rows"), "unaware"), count=6, seed=4)


def test_the_steps_use_every_kind_of_operation_that_rows_need() -> None:
    names = {op.name for number in NUMBERS for op in Walk(memory_with, "unaware").operations(number)}
    assert names >= {"open_input", "input_read", "open_output", "output_write", "output_close", "create_exclusive"}


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options


def visit_sample(walk: Walk, *, count: int, seed: int) -> None:
    """Visit points chosen by the seed, those that change something more often than reads."""
    chance = SeededIds(seed)
    points = [
        (number, op, fault)
        for number in NUMBERS
        for op in Walk(memory_with, walk.layout).operations(number)
        for fault in distinct_modes(op)
        if op.name not in READS or chance.random() < 0.1
    ]
    for _ in range(count):
        number, op, fault = points.pop(int(chance.random() * len(points)))
        walk.visit(number, op, fault)
    assert walk.visits == count
