"""T6, first form: committers on one table, interleaved at every operation by a seed, or by all schedules of a kind.

Each job notes what it means to do before it commits. Afterwards the snapshots are folded in the order of their ids over
a plain dictionary by those notes: the table must hold exactly that, every acknowledged commit must be there once, and a
compaction may only replace files that were live.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from fault.harness import doors, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, StorageError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitResult
from tidelake.spec.schemas.evolution import AddColumn
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.scenario import (
    COLUMNS,
    NAME,
    Commit,
    Create,
    Files,
    Session,
    live_names,
    read_snapshots,
    take_image,
    twice,
)
from tidelake.testing.simulation import Move, Preemptions, Result, Schedule, Seeded, Simulation

SEEDS = 300
START: Files = {"d1": ("a1", "a2"), "d2": ("b1",)}
TAG = "note"


@dataclass(frozen=True, slots=True)
class Note:
    """What one commit means to do. Snapshots carry the number of their note."""

    add: Files = field(default_factory=dict, hash=False)
    before: Files = field(default_factory=dict, hash=False)
    after: Files = field(default_factory=dict, hash=False)
    overwrite: str | None = None
    """The partition to replace; `*` for those that have new files, `all` for every one."""


@dataclass(slots=True)
class Notes:
    """All notes of a history, and which of them were acknowledged."""

    notes: dict[str, Note] = field(default_factory=dict)
    acked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    def commit(self, session: Session, name: str, note: Note, *, identifier: int = BATCH_IDENTIFIER) -> None:
        """Commit what a note says and write down the answer."""
        self.notes[name] = note
        prepared = session.prepare(identifier, add=note.add, before=note.before, after=note.after)
        committable = replace(prepared, properties={TAG: name})
        try:
            if note.overwrite is None:
                result = session.committer().commit(committable)
            elif note.overwrite in ("*", "all"):
                result = session.committer().overwrite(committable, dynamic=note.overwrite == "*")
            else:
                result = session.committer().overwrite(committable, {"dt": note.overwrite}, dynamic=False)
        except CommitConflictError:
            self.refused.append(name)
            return
        self._answered(name, result)

    def _answered(self, name: str, result: CommitResult) -> None:
        if result.repeated:
            self.repeated.append(name)
        elif not result.compaction_lost:
            self.acked.append(name)


Job = Callable[[Env, str, Notes], None]

# ------------------------------------------------------------------------------------------------ jobs


def append_numbered(env: Env, name: str, notes: Notes) -> None:
    session = Session(env, user=name)
    for number in (1, 2):
        notes.commit(session, f"{name}-{number}", Note(add={"d1": (f"{name}-{number}",)}), identifier=number)


def append_as_shared_user(env: Env, name: str, notes: Notes) -> None:
    """Batch jobs of one user name, as a schedule of daily jobs has it."""
    session = Session(env, user="etl")
    for number in (1, 2):
        notes.commit(session, f"{name}-{number}", Note(add={"d2": (f"{name}-{number}",)}))


def overwrite_static(env: Env, name: str, notes: Notes) -> None:
    notes.commit(Session(env, user=name), name, Note(add={"d1": (name,)}, overwrite="d1"), identifier=1)


def overwrite_dynamic(env: Env, name: str, notes: Notes) -> None:
    notes.commit(Session(env, user=name), name, Note(add={"d2": (name,), "d3": (name,)}, overwrite="*"), identifier=1)


def empty_the_table(env: Env, name: str, notes: Notes) -> None:
    notes.commit(Session(env, user=name), name, Note(overwrite="all"))


def compact_the_start(env: Env, name: str, notes: Notes) -> None:
    notes.commit(Session(env, user=name), name, Note(before={"d1": START["d1"]}, after={"d1": (name,)}))


def append_and_compact(env: Env, name: str, notes: Notes) -> None:
    note = Note(add={"d1": (f"{name}-new",)}, before={"d1": START["d1"]}, after={"d1": (f"{name}-all",)})
    notes.commit(Session(env, user=name), name, note, identifier=1)


def merge_manifests(env: Env, name: str, notes: Notes) -> None:
    Session(env, user=name).committer().compact_manifests()


def add_column(env: Env, name: str, notes: Notes) -> None:
    notes.columns.append(f"column_{name}")
    Session(env, user=name).table().alter(AddColumn(f"column_{name}", "INT"))
    append_numbered(env, name, notes)


def act_as_a_twin(env: Env, name: str, notes: Notes) -> None:
    """One of several drivers that believe to be the same job: one user and one identifier, each with its own file."""
    notes.commit(Session(env, user="twin"), name, Note(add={"d3": (name,)}), identifier=5)


def die_and_return(env: Env, name: str, notes: Notes) -> None:
    """A numbered job that is killed once and started again with the same identifiers."""
    faulty = env.io
    assert isinstance(faulty, FaultyFileIO)
    try:
        append_numbered(env, name, notes)
    except Crash:
        faulty.revive()
        append_numbered(env, name, notes)


JOBS: tuple[Job, ...] = (
    append_numbered,
    append_as_shared_user,
    overwrite_static,
    overwrite_dynamic,
    empty_the_table,
    compact_the_start,
    append_and_compact,
    merge_manifests,
    add_column,
    act_as_a_twin,
    die_and_return,
)


# ------------------------------------------------------------------------------------------------ histories


@dataclass(frozen=True, slots=True)
class History:
    """What came of a simulation."""

    storage: MemoryFileIO
    notes: Notes
    results: dict[str, Result[object]]
    moves: tuple[Move, ...]


@functools.cache
def _start() -> dict[str, bytes]:
    io = MemoryFileIO()
    Session(doors(io, 0), user="start").perform(
        Create(), Commit(1, {**START, "d2": ()}), Commit(2, {"d2": START["d2"]})
    )
    return take_image(io)


def play(jobs: Sequence[Job], schedule: Schedule, *, seed: int = 0) -> History:
    """Run the jobs on a fresh copy of the table."""
    storage = memory_with(_start())
    assert isinstance(storage, MemoryFileIO)
    simulation = Simulation(storage, schedule, seed=seed)
    notes = Notes()
    chance = SeededIds(seed)
    for number, job in enumerate(jobs):
        name = f"{job.__name__.replace('_', '-')}-{number}"
        death = {1 + int(chance.random() * 90): Fault.CRASH_AFTER if chance.random() < 0.5 else Fault.CRASH}
        wrap = functools.partial(FaultyFileIO, plan=death) if job is die_and_return else None
        simulation.start(name, functools.partial(job, simulation.doors(wrap), name, notes))
    results = simulation.run()
    return History(storage, notes, results, tuple(simulation.history))


def wrong_with(history: History, *, check: bool = True) -> list[str]:
    """What contradicts the invariants, one sentence each."""
    wrong = [f"{name} failed: {r.error!r}" for name, r in history.results.items() if r.error is not None]
    table = Lake(FileSystemCatalog(doors(history.storage, 99))).table(NAME)
    snapshots = read_snapshots(table)
    if [s.id for s in snapshots] != list(range(1, len(snapshots) + 1)):
        wrong.append("ids are not dense")
    wrong += twice(snapshots)
    tags = [s.properties[TAG] for s in snapshots if TAG in s.properties]
    counts = Counter(tags)
    notes = history.notes
    wrong += [f"acknowledged but not there: {name}" for name in notes.acked if not counts[name]]
    wrong += [f"refused but there: {name}" for name in notes.refused if counts[name] and not notes.notes[name].add]
    parts = {name: 2 if note.add and note.after else 1 for name, note in notes.notes.items()}
    wrong += [f"there {count} times: {name}" for name, count in counts.items() if count > parts[name]]
    live = {partition: set(names) for partition, names in START.items()}
    for snapshot in snapshots:
        if TAG in snapshot.properties:
            wrong += _fold(live, notes.notes[snapshot.properties[TAG]], snapshot.commit_kind.value)
        wanted = frozenset(f"{partition}/{name}" for partition, names in live.items() for name in names)
        if snapshot.id > 2 and live_names(table, snapshot.id) != wanted:
            wrong.append(f"snapshot-{snapshot.id} holds {sorted(live_names(table, snapshot.id))}, not {sorted(wanted)}")
    columns = {column.name for column in table.schema.fields}
    wrong += [f"column is lost: {name}" for name in notes.columns if name not in columns]
    if len(columns) != len(COLUMNS) + len(notes.columns):
        wrong.append(f"columns are {sorted(columns)}")
    if check:
        wrong += [str(finding) for finding in table.check(deep=True).errors]
    return wrong


def _fold(live: dict[str, set[str]], note: Note, kind: str) -> Iterator[str]:
    """Apply one snapshot to the dictionary and tell what it must not have done."""
    if kind == "COMPACT":
        for partition, names in note.before.items():
            if not set(names) <= live.get(partition, set()):
                yield f"compaction replaced files that were gone: {names}"
            live[partition] = live.get(partition, set()) - set(names) | set(note.after.get(partition, ()))
        return
    if kind == "OVERWRITE":
        for partition in list(live):
            if note.overwrite in (partition, "all") or (note.overwrite == "*" and partition in note.add):
                live[partition] = set()
    for partition, names in note.add.items():
        if live.setdefault(partition, set()) & set(names):
            yield f"files were added twice: {names}"
        live[partition] |= set(names)


# ------------------------------------------------------------------------------------------------ tests


def jobs_of(seed: int) -> list[Job]:
    """Two or three jobs drawn by the seed; a twin never comes alone."""
    chance = SeededIds(seed + 1_000_000)
    jobs = [JOBS[int(chance.random() * len(JOBS))] for _ in range(2 + int(chance.random() * 2))]
    return [*jobs, act_as_a_twin] if jobs.count(act_as_a_twin) == 1 else jobs


@pytest.mark.parametrize("part", range(10))
def test_any_interleaving_keeps_every_acknowledged_commit_once(part: int) -> None:
    for seed in range(part * SEEDS // 10, (part + 1) * SEEDS // 10):
        history = play(jobs_of(seed), Seeded(seed), seed=seed)
        wrong = wrong_with(history, check=seed % 3 == 0)
        assert wrong == [], f"REPRO seed={seed} {[job.__name__ for job in jobs_of(seed)]}: {wrong}"


def test_every_kind_of_job_met_every_other() -> None:
    met = {
        pair for seed in range(SEEDS) for pair in itertools.combinations(sorted(j.__name__ for j in jobs_of(seed)), 2)
    }
    names = sorted(job.__name__ for job in JOBS)
    assert met >= set(itertools.combinations(names, 2))


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_one_seed_is_one_history(seed: int) -> None:
    first, second = (play(jobs_of(seed), Seeded(seed), seed=seed) for _ in range(2))
    assert first.moves == second.moves
    assert take_image(first.storage) == take_image(second.storage)
    assert first.notes == second.notes


def test_another_seed_is_another_history() -> None:
    jobs = [append_numbered, overwrite_static]
    histories = {play(jobs, Seeded(seed), seed=1).moves for seed in range(8)}
    assert len(histories) == 8


def test_without_preemptions_one_process_follows_the_other() -> None:
    history = play([append_numbered, overwrite_static], Preemptions())
    processes = [move.process for move in history.moves]
    assert processes == sorted(processes)
    assert [s.commit_user for s in read_snapshots(Lake(FileSystemCatalog(doors(history.storage, 1))).table(NAME))] == [
        "start",
        "start",
        "append-numbered-0",
        "append-numbered-0",
        "overwrite-static-1",
    ]


def test_a_preemption_hands_over_at_exactly_that_step() -> None:
    history = play([append_numbered, append_numbered], Preemptions(frozenset({5}), first=1))
    processes = [move.process for move in history.moves]
    assert processes[:5] == ["append-numbered-1"] * 5
    assert processes[5] == "append-numbered-0"


def test_an_error_of_one_process_is_its_result_and_does_not_stop_the_others() -> None:
    def fail(env: Env, name: str, notes: Notes) -> None:
        raise StorageError("no disk")

    history = play([fail, append_numbered], Seeded(1))
    assert isinstance(history.results["fail-0"].error, StorageError)
    assert history.notes.acked == ["append-numbered-1-1", "append-numbered-1-2"]


def test_of_two_compactions_of_the_same_files_exactly_one_wins() -> None:
    for seed in range(25):
        history = play([compact_the_start, compact_the_start], Seeded(seed), seed=seed)
        assert wrong_with(history, check=False) == [], f"REPRO seed={seed}"
        assert len(history.notes.acked) == 1, f"REPRO seed={seed}"
        assert len(history.notes.refused) == 1, f"REPRO seed={seed}"


def test_twins_publish_their_commit_once_in_every_interleaving() -> None:
    for seed in range(40):
        history = play([act_as_a_twin, act_as_a_twin], Seeded(seed), seed=seed)
        assert wrong_with(history, check=False) == [], f"REPRO seed={seed}"
        assert len(history.notes.acked) == len(history.notes.repeated) == 1, f"REPRO seed={seed}"


def test_jobs_that_share_a_user_name_lose_nothing_to_each_other() -> None:
    for seed in range(25):
        history = play([append_as_shared_user, append_as_shared_user], Seeded(seed), seed=seed)
        assert wrong_with(history, check=False) == [], f"REPRO seed={seed}"
        assert len(history.notes.acked) == 4


def test_of_the_schedules_of_two_appends_with_at_most_two_preemptions_every_third() -> None:
    played, lost_races = all_schedules((append_once, append_once), preemptions=2, every=3)
    print(f"{played} schedules, {lost_races} in which one lost the race and tried again")
    assert played > 130
    assert lost_races > 15


def append_once(env: Env, name: str, notes: Notes) -> Callable[[], None]:
    """A batch commit whose table is open and whose files are written before the race begins."""
    session = Session(env, user=name)
    note = Note(add={"d1": (name,)})
    session.committer()
    committable = replace(session.prepare(add=note.add), properties={TAG: name})
    notes.notes[name] = note

    def commit() -> None:
        notes._answered(name, session.committer().commit(committable))

    return commit


def overwrite_once(env: Env, name: str, notes: Notes) -> Callable[[], None]:
    """As `append_once`, replacing the partition."""
    session = Session(env, user=name)
    note = Note(add={"d1": (name,)}, overwrite="d1")
    committable = replace(session.prepare(add=note.add), properties={TAG: name})
    session.committer()
    notes.notes[name] = note

    def commit() -> None:
        notes._answered(name, session.committer().overwrite(committable, {"dt": "d1"}, dynamic=False))

    return commit


Prepared = Callable[[Env, str, Notes], Callable[[], None]]


def all_schedules(pair: tuple[Prepared, Prepared], *, preemptions: int, every: int = 1) -> tuple[int, int]:
    """Play the schedules of two prepared commits with at most so many preemptions; how many, and lost races.

    Of those with more than one preemption each `every`-th is played.
    """
    played = lost_races = 0
    longest = 0
    starts = (0,) if pair[0] is pair[1] else (0, 1)
    for count in range(preemptions + 1):
        for at in itertools.islice(
            itertools.combinations(range(1, longest), count), 0, None, every if count > 1 else 1
        ):
            for first in starts:
                history = _race(pair, Preemptions(frozenset(at), first))
                longest = max(longest, len(history.moves)) if count <= 1 else longest
                played += 1
                wrong = wrong_with(history, check=played % 40 == 0)
                assert wrong == [], f"REPRO at={at} first={first}: {wrong}"
                assert len(history.notes.acked) == 2
                lost_races += any(move.name == "sleep" for move in history.moves)
    return played, lost_races


def _race(pair: tuple[Prepared, Prepared], schedule: Schedule) -> History:
    storage = memory_with(_start())
    assert isinstance(storage, MemoryFileIO)
    simulation = Simulation(storage, schedule)
    notes = Notes()
    for number, prepared in enumerate(pair):
        name = f"{prepared.__name__.replace('_', '-')}-{number}"
        simulation.start(name, prepared(simulation.doors(), name, notes))
    results = simulation.run()
    return History(storage, notes, results, tuple(simulation.history))
