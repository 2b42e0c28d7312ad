"""The life of a table as a list of steps, with two interpreters: a real table, and a dictionary.

The steps create a table, commit, compact, overwrite, merge manifests, change the schema and truncate. Every step can be
repeated, as a job does after it died: numbered commits are published once because of their identifiers, other steps
look first. `Model` applies the same steps to a dictionary of file names, and so knows what the table must hold after
each of them. `problems` compares the two and returns what is wrong instead of raising: an empty list means that nothing
was lost, nothing was doubled, and every invariant holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import TidelakeError
from tidelake.io.env import Env
from tidelake.io.fileio import FileIO, join
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import (
    BATCH_IDENTIFIER,
    CommitMessage,
    CommitResult,
    Committable,
    CompactIncrement,
    DataIncrement,
)
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.rows.binary_row_scalar import decode_row, encode_row
from tidelake.spec.schemas.evolution import AddColumn, Change, SetOption
from tidelake.table import Table

DATABASE = "db"
NAME = f"{DATABASE}.t"
USER = "scenario"
COLUMNS: Mapping[str, str] = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}
OPTIONS: Mapping[str, str] = {"manifest.merge-min-count": "3"}

Files: TypeAlias = Mapping[str, tuple[str, ...]]
"""File names by the value of their partition."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the table unless it exists."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Add files, and in the same commit replace some by others, as a compaction does."""

    identifier: int
    add: Files = field(default_factory=dict, hash=False)
    before: Files = field(default_factory=dict, hash=False)
    after: Files = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace one partition, or without a name those that have new files."""

    identifier: int
    add: Files = field(hash=False)
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Delete every row."""

    identifier: int


@dataclass(frozen=True, slots=True)
class Alter:
    """Change the schema; existing columns are not added again."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class CompactManifests:
    """Merge all manifests fully."""


Step: TypeAlias = Create | Commit | Overwrite | Truncate | Alter | CompactManifests

SCENARIO: tuple[Step, ...] = (
    Create(),
    Commit(1, {"d1": ("a1", "a2"), "d2": ("b1",)}),
    Commit(2, {"d1": ("a3",)}),
    Commit(3, {"d1": ("a4",)}, before={"d1": ("a1", "a2")}, after={"d1": ("c1",)}),
    Commit(4, {"d2": ("b2",)}),
    Commit(5, {"d3": ("e1",)}),
    CompactManifests(),
    Overwrite(6, {"d1": ("o1", "o2")}, partition="d1"),
    Overwrite(7, {"d2": ("p1",)}),
    Alter(
        (
            AddColumn("w", "BIGINT"),
            SetOption("manifest.full-compaction-threshold-size", "1 b"),
            SetOption("manifest.target-file-size", "1 kb"),
        )
    ),
    Commit(8, {"d3": ("e2",)}),
    Truncate(9),
    Commit(10, {"d1": ("z1",), "d4": ("z2",)}),
)
"""The steps. Manifests are merged partially until the options change, and fully from then on."""


# ------------------------------------------------------------------------------------------------ the dictionary


@dataclass(frozen=True, slots=True)
class Model:
    """What the table must hold: live files by partition, and the numbered snapshots so far with the files of each."""

    live: Files = field(default_factory=dict, hash=False)
    history: tuple[tuple[tuple[int, CommitKind], frozenset[str]], ...] = ()
    columns: tuple[str, ...] = ()

    def after(self, *steps: Step) -> Model:
        """Return the model after more steps."""
        model = self
        for step in steps:
            model = model._after(step)
        return model

    def names(self) -> frozenset[str]:
        """Return the live files as `partition/name`."""
        return frozenset(f"{partition}/{name}" for partition, names in self.live.items() for name in names)

    def published_commits(self) -> list[tuple[int, CommitKind]]:
        """Return identifier and kind of every numbered snapshot, oldest first."""
        return [what for what, _ in self.history]

    def _after(self, step: Step) -> Model:
        match step:
            case Create():
                return replace(self, columns=tuple(COLUMNS))
            case Alter(changes):
                added = tuple(str(c.path) for c in changes if isinstance(c, AddColumn) and c.path not in self.columns)
                return replace(self, columns=self.columns + added)
            case CompactManifests():
                return self
            case Truncate(identifier):
                return self._publish({}, identifier, CommitKind.OVERWRITE)
            case Overwrite(identifier, add, partition):
                gone = set(add) if partition is None else {partition}
                kept = {name: files for name, files in self.live.items() if name not in gone}
                return self._publish({**kept, **add}, identifier, CommitKind.OVERWRITE)
            case Commit(identifier, add, before, after):
                model = self._publish(_replace_files(self.live, {}, add), identifier, CommitKind.APPEND)
                if before or after:
                    model = model._publish(_replace_files(model.live, before, after), identifier, CommitKind.COMPACT)
                return model

    def _publish(self, live: Files, identifier: int, kind: CommitKind) -> Model:
        shown = replace(self, live=live)
        return replace(shown, history=(*self.history, ((identifier, kind), shown.names())))


def _replace_files(live: Files, before: Files, after: Files) -> Files:
    partitions = {**live, **after}
    return {
        partition: (
            *(name for name in live.get(partition, ()) if name not in before.get(partition, ())),
            *after.get(partition, ()),
        )
        for partition in partitions
    }


# ------------------------------------------------------------------------------------------------ the table


class Session:
    """One process that works on the table of the scenario; it opens table and committer once."""

    def __init__(self, env: Env, *, user: str = USER) -> None:
        self.env = env
        self.user = user
        self._table: Table | None = None
        self._committer: Committer | None = None

    def table(self) -> Table:
        """Return the table, opened when first used."""
        if self._table is None:
            self._table = Lake(FileSystemCatalog(self.env)).table(NAME)
        return self._table

    def committer(self) -> Committer:
        """Return the committer, created when first used."""
        if self._committer is None:
            self._committer = Committer(self.table().context, self.user)
        return self._committer

    def perform(self, *steps: Step) -> bool:
        """Perform steps, which can be repeated.

        Returns:
            Whether they are complete. If a compaction failed after its written part was published, repeat the step.

        Raises:
            TidelakeError: a verb of the table failed.
        """
        results = [self._perform(step) for step in steps]
        return not any(result is not None and result.compaction_lost for result in results)

    def _perform(self, step: Step) -> CommitResult | None:
        match step:
            case Create():
                lake = Lake(FileSystemCatalog(self.env))
                self._table = lake.create_table(
                    NAME, dict(COLUMNS), partition_by=["dt"], options=dict(OPTIONS), if_not_exists=True
                )
                return None
            case Alter(changes):
                # Open the table again: an earlier try may have changed the schema although it got an error.
                self._table = self._committer = None
                there = {column.name for column in self.table().schema.fields}
                wanted = [c for c in changes if not (isinstance(c, AddColumn) and c.path in there)]
                self._table = self.table().alter(*wanted)
                return None
            case CompactManifests():
                return self.committer().compact_manifests()
            case Truncate(identifier):
                return self.committer().truncate(identifier=identifier)
            case Overwrite(identifier, add, partition):
                committable = self.prepare(identifier, add=add)
                spec = None if partition is None else {"dt": partition}
                return self.committer().overwrite(committable, spec, dynamic=partition is None)
            case Commit(identifier, add, before, after):
                return self.committer().commit(self.prepare(identifier, add=add, before=before, after=after))

    def prepare(
        self, identifier: int = BATCH_IDENTIFIER, *, add: Files, before: Files | None = None, after: Files | None = None
    ) -> Committable:
        """Write the data files and return one commit message per partition.

        Raises:
            StorageError: a file could not be written.
        """
        gone, new = before or {}, after or {}
        messages = []
        for partition in sorted({*add, *gone, *new}):
            for name in (*add.get(partition, ()), *new.get(partition, ())):
                write_data_file(self.table(), partition, name)
            messages.append(
                message(
                    self.table(),
                    partition,
                    add=add.get(partition, ()),
                    before=gone.get(partition, ()),
                    after=new.get(partition, ()),
                )
            )
        return Committable(messages=tuple(messages), identifier=identifier)


def message(
    table: Table, partition: str, *, add: Sequence[str] = (), before: Sequence[str] = (), after: Sequence[str] = ()
) -> CommitMessage:
    """Return the commit message of a writer for its files of one partition."""
    return CommitMessage(
        partition=encode_row([partition], table.schema.partition_types),
        bucket=0,
        total_buckets=-1,
        data=DataIncrement(new_files=tuple(data_file(name) for name in add)),
        compact=CompactIncrement(
            before=tuple(data_file(name) for name in before),
            after=tuple(replace(data_file(name), file_source=FileSource.COMPACT) for name in after),
        ),
    )


def data_file(name: str) -> DataFile:
    """Return a data file whose size and row count are derived from its name."""
    return DataFile(file_name=f"data-{name}.parquet", file_size=len(_content(name)), row_count=1 + len(name))


def write_data_file(table: Table, partition: str, name: str) -> None:
    """Write a data file of the table; keep a complete one that exists, and replace an incomplete one.

    Raises:
        StorageError: the storage failed.
    """
    io = table.store.env.io
    path = data_path(table, partition, name)
    if io.exists(path, folder=False):
        if io.status(path).size == len(_content(name)):
            # An earlier run of this job wrote it, and may have died before it was synced.
            io.sync([path])
            return
        io.delete(path)
    io.write(path, _content(name))


def data_path(table: Table, partition: str, name: str) -> str:
    """Return the path of the data file."""
    return table.store.layout.data_path(f"dt={partition}", 0, data_file(name).file_name)


def _content(name: str) -> bytes:
    return f"rows of {name};".encode() * (1 + len(name))


# ------------------------------------------------------------------------------------------------ comparing


def problems(env: Env, model: Model, *, user: str = USER, history: bool = False) -> list[str]:
    """Return what is wrong with the table, one sentence each; nothing if it matches the model.

    Args:
        env: the storage of the lake.
        model: what the table must hold.
        user: the commit user of the model's numbered snapshots.
        history: also compare the files of every numbered snapshot, not only of the newest.
    """
    try:
        table = Lake(FileSystemCatalog(env)).table(NAME)
        snapshots = read_snapshots(table)
        found = [*_id_problems(snapshots), *twice(snapshots)]
        mine = [s for s in snapshots if s.commit_user == user and s.commit_identifier != BATCH_IDENTIFIER]
        published = [(s.commit_identifier, s.commit_kind) for s in mine]
        wanted = model.published_commits()
        if published != wanted:
            found.append(f"published is {_format_commits(published)} instead of {_format_commits(wanted)}")
        elif history:
            for snapshot, (_, names) in zip(mine, model.history, strict=True):
                found += _difference(live_names(table, snapshot.id), names, f"snapshot-{snapshot.id}")
        columns = tuple(column.name for column in table.schema.fields)
        if columns != model.columns:
            found.append(f"columns are {columns} instead of {model.columns}")
        found += _difference(live_names(table), model.names(), "newest state")
        found += [str(finding) for finding in table.check(deep=True).errors]
    except TidelakeError as error:
        return [f"{type(error).__name__}: {error}"]
    return found


def read_snapshots(table: Table) -> list[Snapshot]:
    """Return every snapshot, oldest first."""
    return [table.snapshot(snapshot_id) for snapshot_id in table.store.snapshots.ids()]


def live_names(table: Table, snapshot: int | None = None) -> frozenset[str]:
    """Return the live files of a snapshot, by default the newest, as `partition/name`."""
    files = table.files(snapshot=snapshot, columns=("kind", "partition", "file_name"))
    rows = zip(files.column("partition").to_pylist(), files.column("file_name").to_pylist(), strict=True)
    types = table.schema.partition_types
    return frozenset(
        f"{decode_row(partition, types)[0]}/{name.removeprefix('data-').removesuffix('.parquet')}"
        for partition, name in rows
    )


def twice(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return the numbered commits that were published more than once, one sentence each."""
    counts = Counter(s.identity for s in snapshots if s.commit_identifier != BATCH_IDENTIFIER)
    return [f"published {count} times: {identity}" for identity, count in counts.items() if count > 1]


def _id_problems(snapshots: Sequence[Snapshot]) -> list[str]:
    ids = [snapshot.id for snapshot in snapshots]
    return [] if ids == list(range(1, len(ids) + 1)) else [f"snapshot ids are not dense: {ids}"]


def _difference(found: frozenset[str], wanted: frozenset[str], place: str) -> list[str]:
    lost, strange = sorted(wanted - found), sorted(found - wanted)
    return [f"{place}: lost {lost}, unexpected {strange}"] if lost or strange else []


def _format_commits(commits: Sequence[tuple[int, CommitKind]]) -> str:
    return " ".join(f"{identifier}:{kind.value}" for identifier, kind in commits)


# ------------------------------------------------------------------------------------------------ images


def take_image(io: FileIO, folder: str = "") -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    image: dict[str, bytes] = {}
    for each in io.list(folder):
        path = join(folder, each.name)
        image.update(take_image(io, path) if each.is_dir else {path: io.read(path)})
    return image


def restore_image(io: FileIO, image: Mapping[str, bytes]) -> None:
    """Write the files of an image to an empty storage."""
    for path, data in image.items():
        io.overwrite(path, data, durable=False)
