"""Report from a task to the driver: commit messages, or the error that a retry of the task would not help.

Invariant: a task takes all of its input before it reports. Spark would otherwise wait for ever to hand over the rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidelake.engines.spark.bridge.failures import run_or_return_error
from tidelake.ops.commit.messages import CommitMessage
from tidelake.spec.rows.row_kind import KINDS

DONE: Final = "done binary"
"""The column of a frame of reports, each a pickled value."""


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """What a task that writes did."""

    messages: tuple[CommitMessage, ...] = ()
    owner_runs: tuple[int, ...] = ()
    """Which runs of owners placed its rows, where owners do; see `write.dynamic_buckets`."""
    kinds: tuple[int, ...] = (0,) * len(KINDS)
    """How many rows of each kind a merge wrote."""
    positions: Mapping[str, Any] = field(default_factory=dict)
    """Bitmaps of the rows that a merge deletes from files, by the addresses of the files."""


def combine_outputs(outputs: Iterable[TaskOutput]) -> TaskOutput:
    """Combine what several tasks did."""
    outputs = list(outputs)
    positions: dict[str, Any] = {}
    for each in outputs:
        add_positions(positions, each.positions.items())
    return TaskOutput(
        tuple(message for each in outputs for message in each.messages),
        tuple(run for each in outputs for run in each.owner_runs),
        tuple(map(sum, zip(TaskOutput().kinds, *(each.kinds for each in outputs), strict=True))),
        positions,
    )


def add_positions(positions: dict[str, Any], more: Iterable[tuple[str, Any]]) -> None:
    """Add bitmaps of positions to those that are known of their files."""
    for name, found in more:
        known = positions.get(name)
        positions[name] = found if known is None else known | found


def report_output(batches: Iterable[pa.RecordBatch], work: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """Report the result of a task's work on its batches, or its error."""
    result = run_or_return_error(work)
    for _ in batches:  # an error left some of them behind
        pass
    yield _report(result)


def report_each(batches: Iterable[pa.RecordBatch], work: Callable[[int], object]) -> Iterator[pa.RecordBatch]:
    """Report the result of the work, or its error, for each number in the first column of the batches."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _report(run_or_return_error(partial(work, number)))


def _report(result: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(result)], pa.binary())})
