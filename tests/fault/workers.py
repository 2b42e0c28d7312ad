"""What the processes of the contention tests do. Each opens its own lake, as jobs on several machines would."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import TypeVar

import tidelake as tl
from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.spec.schemas.evolution import AddColumn
from tidelake.testing.scenario import COLUMNS, NAME, message, write_data_file

R = TypeVar("R")

_start: list[Barrier] = []


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lake is, in a form that crosses to another process."""

    location: str
    storage: Mapping[str, str] | None = None

    def connect(self) -> tl.Lake:
        """Open the lake."""
        return tl.connect(self.location, storage=self.storage)


@dataclass(frozen=True, slots=True)
class Report:
    """What one process was told: names of acknowledged commits, errors, seconds of each commit."""

    acked: tuple[str, ...]
    failed: tuple[str, ...]
    seconds: tuple[float, ...]


def run_at_once(count: int, work: Callable[..., R], *arguments: object) -> list[R]:
    """Run `work(number, *arguments)` in so many processes, which begin together."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_remember, initargs=(context.Barrier(count),)) as pool:
        futures = [pool.submit(_meet, work, number, arguments) for number in range(count)]
        return [future.result(timeout=280) for future in futures]


def _remember(barrier: Barrier) -> None:
    _start.append(barrier)


def _meet(work: Callable[..., R], number: int, arguments: Sequence[object]) -> R:
    _start[-1].wait(timeout=120)
    return work(number, *arguments)


def append(number: int, place: Place, commits: int, user: str | None, numbered: bool) -> Report:
    """Commit one file at a time. With `numbered`, every commit is repeated under its identifier."""
    acked, failed, seconds = [], [], []
    table = place.connect().table(NAME)
    commit = table.new_commit(f"{user}-{number}" if numbered else user)
    for turn in range(commits):
        name = f"p{number}-{turn}"
        write_data_file(table, f"d{number % 3}", name)
        messages = [message(table, f"d{number % 3}", add=(name,))]
        started = time.perf_counter()
        try:
            for _ in range(2 if numbered else 1):
                commit.commit(messages, identifier=turn if numbered else None)
        except TidelakeError as error:
            failed.append(f"{name}: {error!r}")
        else:
            acked.append(f"d{number % 3}/{name}")
        seconds.append(time.perf_counter() - started)
    return Report(tuple(acked), tuple(failed), tuple(seconds))


def create(number: int, place: Place, names: Sequence[str]) -> list[str]:
    """Create tables that others create too; returns those that this process was told it made."""
    lake = place.connect()
    won = []
    for name in names:
        try:
            lake.create_table(name, {**COLUMNS, f"by_{number}": "INT"}, partition_by=["dt"])
        except InvalidInputError as error:
            if error.code != "table-exists":
                raise
        else:
            won.append(name)
    return won


def add_columns(number: int, place: Place, count: int) -> list[str]:
    """Add columns to a table that others alter too."""
    table = place.connect().table(NAME)
    names = [f"c{number}_{turn}" for turn in range(count)]
    for name in names:
        table = table.alter(AddColumn(name, "INT"))
    return names
