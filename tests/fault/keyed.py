"""A life of a primary-key table, as data; what it must show after each step, as dictionaries.

The steps upsert, delete, update, compact, overwrite, tag, branch, roll back, expire and clean. A job may repeat all of
them from the first one: numbered writes are told by their identifiers, deletions match nothing the second time, and
the others look first. So the table goes through the states of the model, in their order, however often the job died.
One of the columns of the aggregation is a sum: a row that came twice shows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kit.changelogs import changelog_problems
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import NotFoundError, TidelakeError
from tidelake.io.env import Env
from tidelake.ops.maintain.check import CheckReport
from tidelake.table import Table
from tidelake.testing.scenario import read_snapshots, twice

NAME = "db.keyed"
FOLDER = "db.db/keyed"
USER, TAG, SIDE = "keyed", "keep", "side"
COLUMNS: Mapping[str, str] = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "n": "INT", "v": "STRING"}
BASE: Mapping[str, str] = {
    "num-sorted-run.compaction-trigger": "2",
    "manifest.merge-min-count": "4",
    "dynamic-bucket.target-row-num": "2",
}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {"bucket": "-1"},
    "partial-update": {
        "bucket": "1",
        "file.format": "orc",
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "aggregation": {
        "bucket": "-1",
        "file.format": "avro",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.v.aggregate-function": "max",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"bucket": "1", "merge-engine": "first-row"},
    "deduplicate, vectors": {"bucket": "-1", "deletion-vectors.enabled": "true"},
    "partial-update, changes told": {
        "bucket": "1",
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "changelog-producer": "lookup",
    },
}
"""Engines, on fixed and on dynamic buckets and in every file format; what follows a comma is not of the engine."""

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[int, Row]
Shown: TypeAlias = frozenset[tuple[tuple[str, Any], ...]]


@dataclass(frozen=True, slots=True)
class Create:
    """Make the table unless it is there."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write rows (key to number and text) and deletions under an identifier."""

    identifier: int
    rows: Mapping[int, tuple[int, str | None]] = field(hash=False)
    gone: tuple[int, ...] = ()
    wide: bool = False
    partition: str | None = None
    """The partition that the rows replace, if they replace one."""
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Erase:
    """Delete the rows with these keys."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Revise:
    """Give the rows with these keys another text, unless they have it."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact what is due, or everything."""

    full: bool


@dataclass(frozen=True, slots=True)
class Tag:
    """Name the newest snapshot."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Make a branch at the tag."""


@dataclass(frozen=True, slots=True)
class Widen:
    """Add a column."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Take a numbered write back; its identifier may be written again."""

    identifier: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Keep the two newest snapshots."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove the files that nothing refers to, days later."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the newest snapshots, the tag and the branch."""


Step: TypeAlias = Create | Upsert | Erase | Revise | Compact | Tag | Branch | Widen | Rollback | Expire | Clean | Read

ALL_STEPS: tuple[Step, ...] = (
    Create(),
    Upsert(1, {1: (10, "a"), 2: (20, "b"), 3: (30, None)}),
    Upsert(2, {1: (1, None), 4: (40, "d"), 5: (50, "e"), 10: (1, "x"), 6: (6, "y")}),
    Upsert(3, {2: (2, "bb"), 6: (60, "f")}, gone=(3,)),
    Compact(full=False),
    Erase((5,)),
    Revise((4,)),
    Tag(),
    Branch(),
    Upsert(1, {1: (7, "s"), 21: (1, "s")}, branch=SIDE),
    Widen(),
    Upsert(4, {1: (100, "c"), 8: (80, "h")}, wide=True),
    Upsert(5, {1: (1000, "bad"), 9: (90, "bad")}, wide=True),
    Rollback(5),
    Upsert(5, {1: (500, "better")}, wide=True),
    Compact(full=True),
    Upsert(6, {1: (3, "o"), 11: (110, "o")}, wide=True, partition="odd"),
    Upsert(7, {2: (200, "c"), 11: (5, None)}, wide=True),
    Expire(),
    Clean(),
    Upsert(8, {6: (400, "z"), 11: (9, "z")}, wide=True),
    Read(),
)


def steps_of(engine: str) -> tuple[Step, ...]:
    """The steps that a table with this engine takes."""
    if engine == "first-row":
        kept = (step for step in ALL_STEPS if not isinstance(step, Erase | Revise))
        return tuple(replace(step, gone=()) if isinstance(step, Upsert) else step for step in kept)
    return tuple(step for step in ALL_STEPS if not (engine == "aggregation" and isinstance(step, Revise)))


def step_names(engine: str) -> list[str]:
    """A readable name for each step."""
    return [f"{number}-{type(step).__name__.lower()}" for number, step in enumerate(steps_of(engine))]


# ------------------------------------------------------------------------------------------------ the model


@dataclass(frozen=True, slots=True)
class Model:
    """What the table, its tag and its branch show; None for what is not there."""

    rows: Rows = field(default_factory=dict, hash=False)
    tag: Rows | None = field(default=None, hash=False)
    side: Rows | None = field(default=None, hash=False)
    undo: Rows = field(default_factory=dict, hash=False)
    """The rows before the newest write."""

    def after(self, step: Step, engine: str) -> Model:
        """The model after one more step."""
        match step:
            case Upsert(branch=str()):
                assert self.side is not None
                return replace(self, side=written(self.side, step, engine))
            case Upsert():
                return replace(self, rows=written(self.rows, step, engine), undo=self.rows)
            case Erase(keys):
                return replace(self, rows={key: row for key, row in self.rows.items() if key not in keys})
            case Revise(keys):
                rows = {key: {**row, "v": "u"} if key in keys else row for key, row in self.rows.items()}
                return replace(self, rows=rows)
            case Tag():
                return replace(self, tag=self.rows)
            case Branch():
                return replace(self, side=self.tag)
            case Rollback():
                return replace(self, rows=self.undo)
            case _:
                return self

    def shown(self) -> tuple[Shown, Shown | None, Shown | None]:
        """Rows of the table, the tag and the branch in a form that compares."""
        return shown(self.rows.values()), *(None if each is None else shown(each.values()) for each in self.refs)

    @property
    def refs(self) -> tuple[Rows | None, Rows | None]:
        """The rows of the tag and of the branch."""
        return self.tag, self.side


def partition_of(key: int) -> str:
    """The partition of a key."""
    return "odd" if key % 2 else "even"


def written(rows: Rows, step: Upsert, engine: str) -> Rows:
    """The rows after an upsert or an overwrite."""
    kept = {key: row for key, row in rows.items() if key not in step.gone and partition_of(key) != step.partition}
    for row in rows_of(step):
        key = row["k"]
        kept[key] = folded(kept[key], row, engine) if key in kept else row
    return kept


def folded(old: Row, new: Row, engine: str) -> Row:
    """What two versions of a key make."""
    match engine.partition(",")[0]:
        case "deduplicate":
            return new
        case "first-row":
            return old
        case "partial-update":
            return {**old, **{name: value for name, value in new.items() if value is not None}}
    both = {**old, **{name: value for name, value in new.items() if value is not None}}
    texts = [row["v"] for row in (old, new) if row["v"] is not None]
    return {**both, "n": old["n"] + new["n"], "v": max(texts, default=None)}


def rows_of(step: Upsert) -> list[Row]:
    """The rows that a step adds."""
    rows = [{"k": key, "dt": partition_of(key), "n": n, "v": v} for key, (n, v) in step.rows.items()]
    return [{**row, "w": row["k"] * 1000} for row in rows] if step.wide else rows


def shown(rows: Any) -> Shown:
    """Rows without their order; a column that was added later counts as null before."""
    found = [tuple(sorted((name, value) for name, value in row.items() if value is not None)) for row in rows]
    assert len({(dict(row)["dt"], dict(row)["k"]) for row in found}) == len(found), f"a key has two rows: {found}"
    return frozenset(found)


@functools.cache
def models(engine: str) -> tuple[Model, ...]:
    """The model before each step, and after the last."""
    found = [Model()]
    for step in steps_of(engine):
        found.append(found[-1].after(step, engine))
    return tuple(found)


# ------------------------------------------------------------------------------------------------ the table


class Job:
    """One process at work on the table; what it opens it keeps."""

    def __init__(self, env: Env, engine: str, options: Mapping[str, str] | None = None) -> None:
        self.env = env
        self.engine = engine
        self.options = {**BASE, **ENGINES[engine], **(options or {})}
        self._table: Table | None = None

    def table(self) -> Table:
        """The table, opened at the first use."""
        if self._table is None:
            self._table = Lake(FileSystemCatalog(self.env)).table(NAME)
        return self._table

    def do(self, *steps: Step) -> None:
        """Do some steps, each as often as one likes.

        Raises:
            TidelakeError: as the verbs of a table do.
        """
        for step in steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case Create():
                self._table = Lake(FileSystemCatalog(self.env)).create_table(
                    NAME,
                    dict(COLUMNS),
                    primary_key=["dt", "k"],
                    partition_by=["dt"],
                    options=self.options,
                    if_not_exists=True,
                )
            case Upsert():
                self._write(step)
            case Erase(keys):
                self.table().delete(f"k in ({', '.join(map(str, keys))})")
            case Revise(keys):
                self.table().update({"v": "'u'"}, f"k in ({', '.join(map(str, keys))}) and v <> 'u'")
            case Compact(full):
                self.table().compact(full=full)
            case Tag():
                self.table().create_tag(TAG, ignore_if_exists=True)
            case Branch():
                self._branch()
            case Widen():
                # Opened anew: an earlier try may have changed the schema without being told so.
                self._table = Lake(FileSystemCatalog(self.env)).table(NAME)
                if "w" not in self._table.schema.names:
                    self._table = self._table.alter(add={"w": "BIGINT"})
            case Rollback(identifier):
                self._roll_back(identifier)
            case Expire():
                self.table().expire_snapshots(retain_max=2, retain_min=2)
            case Clean():
                self.table().remove_orphans(plan_only=False)
            case Read():
                wrong = history_problems(self.table(), models(self.engine), last=2)
                assert wrong == [], wrong

    def _write(self, step: Upsert) -> None:
        gone = [{"k": key, "dt": partition_of(key), "rowkind": "-D"} for key in step.gone]
        rows = [*({**row, "rowkind": "+I"} for row in rows_of(step)), *gone]
        table = self.table() if step.branch is None else self.table().branch(step.branch)
        spec = None if step.partition is None else {"dt": step.partition}
        mode = "append" if step.partition is None else "overwrite"
        if spec is not None:
            rows = [{name: value for name, value in row.items() if name != "rowkind"} for row in rows]
        user = USER if step.branch is None else step.branch
        table.write(rows, mode, partition=spec, commit_user=user, identifier=step.identifier)

    def _branch(self) -> None:
        table = self.table()
        if SIDE in table.branches():
            if side_of(table) is not None:
                return
            # Half made by an earlier life: it holds nothing that is not elsewhere.
            table.delete_branch(SIDE)
        table.create_branch(SIDE, tag=TAG)

    def _roll_back(self, identifier: int) -> None:
        snapshots = read_snapshots(self.table())
        mine = [each.id for each in snapshots if (each.commit_user, each.commit_identifier) == (USER, identifier)]
        # Where the snapshot before it has expired, this was done long ago, and what is there was written since.
        if mine and min(mine) > snapshots[0].id:
            self.table().rollback_to(snapshot=min(mine) - 1)


# ------------------------------------------------------------------------------------------------ comparing


def side_of(table: Table) -> Table | None:
    """The table on its branch; None for a branch that is not there, or is half made and has no snapshot yet."""
    if SIDE not in table.branches():
        return None
    try:
        side = table.branch(SIDE)
    except NotFoundError:
        return None
    return None if side.latest_snapshot() is None else side


def state_of(env: Env) -> tuple[Shown, Shown | None, Shown | None] | None:
    """What a new process finds, None without a table."""
    try:
        table = Lake(FileSystemCatalog(env)).table(NAME)
    except NotFoundError:
        return None
    tag = shown(table.at(tag=TAG).to_arrow().to_pylist()) if TAG in table.tags() else None
    side = side_of(table)
    branch = None if side is None else shown(side.to_arrow().to_pylist())
    return shown(table.to_arrow().to_pylist()), tag, branch


def problems(env: Env, engine: str, until: int, *, history: bool, cleaned: bool = True) -> list[str]:
    """What is wrong with the table after the first `until` steps, one sentence each.

    Args:
        env: doors to the storage of the lake.
        engine: the merge engine of the table.
        until: how many steps were done.
        history: also look at every snapshot, not only at the newest, and check all files.
        cleaned: whether files were old enough to be cleaned away.
    """
    expected = models(engine)[: until + 1]
    try:
        table = Lake(FileSystemCatalog(env)).table(NAME)
        wrong = twice(read_snapshots(table))
        found, wanted = state_of(env), expected[-1].shown()
        if found != wanted:
            wrong.append(f"table, tag and branch show {found} instead of {wanted}")
        wrong += history_problems(table, expected) + changelog_problems(table) if history else []
        cleaned = cleaned and isinstance(steps_of(engine)[until - 1], Clean)
        if not history and not cleaned:
            return wrong
        report = table.check(deep=history, rows=history)
        # Two level-0 files with common sequence numbers are a warning, because others may write them; we do not.
        wrong += [str(finding) for finding in report.findings if finding.invariant == "I5" or finding in report.errors]
        if cleaned:
            wrong += [f"file is left that nothing refers to: {path}" for path in left_over(table, report)]
    except TidelakeError as error:
        return [f"{type(error).__name__}: {error}"]
    return wrong


def left_over(table: Table, report: CheckReport) -> list[str]:
    """Orphans that cleaning should have found: it spares data files whose names a kept manifest still mentions."""
    metadata = [path for path in report.orphans if path.startswith(("manifest/", "index/"))]
    return metadata + list(table.remove_orphans().paths)


def history_problems(table: Table, expected: Sequence[Model], *, last: int | None = None) -> list[str]:
    """Snapshots (the `last` ones, or all) that show no state of the model, or one that was over already."""
    place = 0
    states = [model.shown()[0] for model in expected]
    snapshots = read_snapshots(table)
    for snapshot in snapshots if last is None else snapshots[-last:]:
        found = shown(table.at(snapshot=snapshot.id).to_arrow().to_pylist())
        later = next((number for number in range(place, len(states)) if states[number] == found), None)
        if later is None:
            return [f"snapshot {snapshot.id} shows {set(found)}, which is no state after {set(states[place])}"]
        place = later
    return []
