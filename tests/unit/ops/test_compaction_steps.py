"""Steps of a compaction: carried out anywhere and in any order, and all of them or none."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import StorageError
from tidelake.io.env import Env
from tidelake.ops.compact.steps import Step, StepResults, run_step, run_steps
from tidelake.ops.compact.table import plan_compaction
from tidelake.ops.context import TableContext
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}


def make(key: list[str]) -> Table:
    env = Env(MemoryFileIO(), clock=FakeClock(tick_ms=1))
    options = {"write-only": "true", **({"bucket": "2"} if key else {})}
    table = Lake(FileSystemCatalog(env)).create_table(
        "d.t", COLUMNS, primary_key=key, partition_by=["dt"], options=options
    )
    for turn in range(3):
        table.write([{"k": number, "dt": dt, "v": str(turn)} for dt in "ab" for number in range(20)])
    return table


def data_paths(table: Table) -> set[str]:
    io = table.store.env.io
    folders = [f"dt={dt}/bucket-{bucket}" for dt in "ab" for bucket in (0, 1)]
    return {f"{folder}/{each.name}" for folder in folders if io.exists(folder) for each in io.list(folder)}


class Elsewhere:
    """Carries pickled steps out, the last one first, and fails at one of them if told so."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.begun = fails_at, 0

    def run(self, job: TableContext, steps: Sequence[Step], results: StepResults) -> None:
        def work(number: int) -> dict[int, object]:
            self.begun += 1
            if number == self.fails_at:
                raise StorageError("storage is away")
            return {number: run_step(job, pickle.loads(pickle.dumps(steps[number])))}

        errors = []
        for number in reversed(range(len(steps))):
            try:
                results.attempt(lambda number=number: work(number))
            except StorageError as error:
                errors.append(error)
        if errors:
            raise errors[0]


@pytest.mark.parametrize("key", [["k", "dt"], []])
def test_messages_are_in_the_order_of_the_steps_whoever_carries_them_out(key: list[str]) -> None:
    table = make(key)
    job = table.context
    steps = plan_compaction(job, full=True).rewrites
    messages = run_steps(job, steps, Elsewhere())
    assert [(each.partition, each.bucket) for each in messages] == [
        (step.split.partition, step.split.bucket) for step in steps
    ]
    assert [each.compact.before for each in messages] == [
        tuple(sorted(each.compact.before, key=step.files.index)) for step, each in zip(steps, messages, strict=True)
    ]
    assert len(steps) == (4 if key else 2)


@pytest.mark.parametrize("key", [["k", "dt"], []])
def test_after_a_failure_no_step_is_begun_and_what_was_made_is_removed(key: list[str]) -> None:
    table = make(key)
    there, count = data_paths(table), 4 if key else 2
    elsewhere = Elsewhere(fails_at=count - 2)
    with pytest.raises(StorageError):
        run_steps(table.context, plan_compaction(table.context, full=True).rewrites, elsewhere)
    assert elsewhere.begun == 2
    assert data_paths(table) == there


def test_a_step_that_ends_after_another_failed_is_removed_too() -> None:
    table = make(["k", "dt"])
    job, there = table.context, data_paths(table)
    steps = plan_compaction(job, full=True).rewrites
    results = StepResults(job, len(steps), None)

    def late() -> dict[int, object]:
        message = run_step(job, steps[0])
        results.stop()
        return {0: message}

    results.attempt(late)
    assert results.made == {}
    assert data_paths(table) == there
