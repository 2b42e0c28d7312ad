"""Whatever a table lives through, maintenance deletes nothing that is reachable and leaves nothing that is not.

A machine appends, compacts, moves files between levels, overwrites, takes deleted files back, tags, branches, renames
branches, rolls back with and without a new snapshot, changes the schema and rolls that back, and moves the main branch
forward, and between all that expires snapshots and deletes tags. After every step the
files in storage are compared with those that a plain walk over every document of every branch reaches. Rolling back,
deleting a branch and moving forward leave orphans on purpose; those, and only those, may lie around until orphans are
removed. Where changelogs outlive their snapshots, expired snapshots leave changelogs that expire by themselves: what
streams read of them has to be there, and what they and the snapshots add or delete may be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement, DataIncrement
from tidelake.ops.maintain.returning import ReturnPlan
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.data_file import DataFile, FileSource, data_files
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.index_manifest import HASH, IndexFile
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import STRING
from tidelake.store.tags import TagStore
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

DAYS = ("a", "b")
days = st.sampled_from(DAYS)
pick = st.integers(0, 1_000)


def day_row(day: str) -> bytes:
    return encode_row([day], [STRING])


# ------------------------------------------------------------------------------------------------ the plain walk


class Walker:
    """Walks over all documents of a table. What a snapshot reaches never changes, so each is walked once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Snapshot, bool], set[str]] = {}

    def reached(self, table: Table) -> set[str]:
        """Every file that any document of any branch needs, one entry at a time."""
        found: set[str] = set()
        for view in (table, *(table.branch(name) for name in table.branches())):
            for snapshot_id in view.store.snapshots.ids():
                found |= self._by(view, view.store.snapshots.get(snapshot_id), changelog=True)
            for tag in TagStore(view.store.env.io, view.store.layout).all().values():
                found |= self._by(view, tag.snapshot, changelog=False)
            for changelog_id in view.store.changelogs.ids():
                found |= streamed(view, view.store.changelogs.get(changelog_id))[0]
        return found

    def tolerated(self, table: Table) -> set[str]:
        """What is there because a change that may still be read adds or deletes it."""
        found: set[str] = set()
        for view in (table, *(table.branch(name) for name in table.branches())):
            documents = [*map(view.store.changelogs.get, view.store.changelogs.ids())]
            documents += map(view.store.snapshots.get, view.store.snapshots.ids())
            for document in documents:
                found |= streamed(view, document)[1]
        return found

    def _by(self, table: Table, snapshot: Snapshot, *, changelog: bool) -> set[str]:
        if (snapshot, changelog) not in self._known:
            self._known[snapshot, changelog] = reached_by(table, snapshot, changelog=changelog)
        return self._known[snapshot, changelog]


def documents_of(table: Table) -> list[Snapshot]:
    """Every snapshot, tag and long-lived changelog of a branch."""
    store = table.store
    tags = [each.snapshot for each in TagStore(store.env.io, store.layout).all().values()]
    snapshots = map(store.snapshots.get, store.snapshots.ids())
    return [*snapshots, *tags, *map(store.changelogs.get, store.changelogs.ids())]


def live_names(table: Table, snapshot: Snapshot) -> set[tuple[str, int]]:
    store = table.store.manifests
    rows = live_entries(store, data_manifests(store, snapshot)).to_pylist()
    return {(row["file_name"], row["level"]) for row in rows}


def mentioned(table: Table) -> set[str]:
    """The names of files in any entry of any manifest that a document of any branch leads to."""
    found: set[str] = set()
    for view in (table, *(table.branch(name) for name in table.branches())):
        store = view.store
        documents = [
            *map(store.snapshots.get, store.snapshots.ids()),
            *map(store.changelogs.get, store.changelogs.ids()),
        ]
        documents += [tag.snapshot for tag in TagStore(store.env.io, store.layout).all().values()]
        for document in documents:
            for row in read_changes(store.manifests, data_manifests(store.manifests, document)).to_pylist():
                found |= {row["file_name"], *row["extra_files"]}
    return found


def streamed(table: Table, document: Snapshot) -> tuple[set[str], set[str]]:
    """What a stream reads of a long-lived changelog, and what it holds besides."""
    store = table.store.manifests
    needed = {f"manifest/{document.delta_manifest_list}", f"manifest/{document.base_manifest_list}"}
    deltas = delta_manifests(store, document)
    needed |= {f"manifest/{meta.file_name}" for meta in data_manifests(store, document)}
    held: set[str] = set()
    rows = read_changes(store, deltas).to_pylist()
    if document.changelog_manifest_list:
        needed |= {f"manifest/{meta.file_name}" for meta in changelog_manifests(store, document)}
        needed.add(f"manifest/{document.changelog_manifest_list}")
        rows += read_changes(store, changelog_manifests(store, document)).to_pylist()
    for row in rows:
        if row["file_source"] != 1:
            folder = table.paths.bucket(row["partition"], row["bucket"])
            paths = {f"{folder}/{name}" for name in (row["file_name"], *row["extra_files"])}
            held |= paths
            needed |= paths if row["kind"] == 0 else set()
    return needed, held


def reached_by(table: Table, snapshot: Snapshot, *, changelog: bool) -> set[str]:
    store = table.store.manifests
    found = {f"manifest/{snapshot.base_manifest_list}", f"manifest/{snapshot.delta_manifest_list}"}
    found |= {f"statistics/{snapshot.statistics}"} if snapshot.statistics else set()
    if snapshot.index_manifest:
        found.add(f"manifest/{snapshot.index_manifest}")
        found |= {f"index/{entry.file.file_name}" for entry in store.read_index(snapshot.index_manifest)}
    metas = data_manifests(store, snapshot)
    rows = live_entries(store, metas).to_pylist()
    if changelog and snapshot.changelog_manifest_list:
        found.add(f"manifest/{snapshot.changelog_manifest_list}")
        metas += changelog_manifests(store, snapshot)
        rows += read_changes(store, changelog_manifests(store, snapshot)).to_pylist()
    found |= {f"manifest/{meta.file_name}" for meta in metas}
    for row in rows:
        folder = table.paths.bucket(row["partition"], row["bucket"])
        found |= {f"{folder}/{name}" for name in (row["file_name"], *row["extra_files"])}
    return found


def stored(table: Table) -> set[str]:
    """Every file in a folder of data or metadata."""
    io = table.store.env.io
    folders = ["manifest", "index", "statistics", *(f"dt={day}/bucket-0" for day in DAYS)]
    return {each.path for folder in folders for each in io.list(folder)}


# ------------------------------------------------------------------------------------------------ the machine


class Maintained(RuleBasedStateMachine):
    """`orphans` are files that a step left behind on purpose."""

    @initialize(merge=st.sampled_from(["2", "30"]), branched=st.booleans(), decoupled=st.booleans())
    def create(self, merge: str, branched: bool, decoupled: bool) -> None:
        self.clock = FakeClock()
        env = Env(MemoryFileIO(clock=self.clock), self.clock, SeededIds(1))
        columns = {"id": "INT", "dt": "STRING"}
        # Write-only, so that nothing expires but by a step.
        options = {"manifest.merge-min-count": merge, "write-only": "true"}
        options |= {"changelog.time-retained": "2 h"} if decoupled else {}
        self.table = Lake(FileSystemCatalog(env)).create_table("d.t", columns, partition_by=["dt"], options=options)
        self.walker = Walker()
        self.orphans: set[str] = set()
        self.numbers = itertools.count()
        self.graveyard: dict[str, tuple[str, DataFile]] = {}
        # A past to begin with, or most runs would end before there is anything to expire.
        for number in range(3):
            self.append("a", 0, extra=number == 1, changelog=number == 2, index=number < 2)
        if branched:
            self.branch(1, from_tag=False)
        self.compact("a", 0)

    # -------------------------------------------------------------------------------------------- helpers

    def target(self, number: int) -> Table:
        """The table, or one of its branches."""
        views = [self.table, *(self.table.branch(name) for name in self.table.branches())]
        return views[number % len(views)]

    def new_file(self, day: str, *, extra: bool = False, level: int = 0) -> DataFile:
        number = next(self.numbers)
        name = f"data-{number}.avro"
        extras = (f"{name}.index",) if extra else ()
        for each in (name, *extras):
            self.table.store.env.io.write(f"dt={day}/bucket-0/{each}", b"x")
        made = self.clock.now_ms()
        return DataFile(
            file_name=name,
            file_size=1,
            row_count=1,
            level=level,
            extra_files=extras,
            creation_time_ms=made,
            file_source=FileSource.COMPACT if level else FileSource.APPEND,
        )

    def live(self, table: Table, day: str) -> list[DataFile]:
        entries = table.files()
        rows = zip(entries.column("partition").to_pylist(), data_files(entries), strict=True)
        return [file for partition, file in rows if partition == day_row(day)]

    def indexes(self, table: Table, day: str) -> tuple[IndexFile, ...]:
        snapshot = table.latest_snapshot()
        name = None if snapshot is None else snapshot.index_manifest
        entries = () if name is None else table.store.manifests.read_index(name)
        return tuple(each.file for each in entries if each.partition == day_row(day))

    def commit(self, table: Table, day: str, **parts: Any) -> None:
        self.clock.advance(60)
        message = CommitMessage(partition=day_row(day), bucket=0, total_buckets=-1, **parts)
        result = table.new_commit().commit([message])
        assert not result.warnings

    def leaves_orphans(self) -> Iterator[None]:
        # With long-lived changelogs, also what is only there because a change mentions it.
        before = self.walker.reached(self.table) | self.walker.tolerated(self.table)
        yield
        self.orphans |= before - self.walker.reached(self.table)

    # -------------------------------------------------------------------------------------------- writing

    @rule(day=days, view=pick, extra=st.booleans(), changelog=st.booleans(), index=st.booleans())
    def append(self, day: str, view: int, extra: bool, changelog: bool, index: bool) -> None:
        table = self.target(view)
        changes = (self.new_file(day),) if changelog else ()
        indexes: tuple[IndexFile, ...] = ()
        replaced: tuple[IndexFile, ...] = ()
        if index:
            replaced = self.indexes(table, day)
            name = f"index-{next(self.numbers)}"
            table.store.env.io.write(f"index/{name}", b"i")
            indexes = (IndexFile(index_type=HASH, file_name=name, file_size=1, row_count=1),)
        new = (self.new_file(day, extra=extra),)
        data = DataIncrement(
            new_files=new, changelog_files=changes, new_index_files=indexes, deleted_index_files=replaced
        )
        self.commit(table, day, data=data)

    @rule(day=days, view=pick)
    def compact(self, day: str, view: int) -> None:
        table = self.target(view)
        before = self.live(table, day)[:3]
        if before:
            self.graveyard |= {file.file_name: (day, file) for file in before}
            self.commit(
                table, day, compact=CompactIncrement(before=tuple(before), after=(self.new_file(day, level=1),))
            )

    @rule(day=days, view=pick)
    def move_to_another_level(self, day: str, view: int) -> None:
        table = self.target(view)
        for file in self.live(table, day)[:1]:
            after = replace(file, level=file.level + 1)
            self.commit(table, day, compact=CompactIncrement(before=(file,), after=(after,)))

    @rule(day=days, view=pick)
    def overwrite(self, day: str, view: int) -> None:
        table = self.target(view)
        self.clock.advance(60)
        self.graveyard |= {file.file_name: (day, file) for file in self.live(table, day)}
        message = CommitMessage(
            partition=day_row(day),
            bucket=0,
            total_buckets=-1,
            data=DataIncrement(new_files=(self.new_file(day, extra=True),)),
        )
        table.new_commit().overwrite([message], {"dt": day}, dynamic=False)

    @rule(which=pick, view=pick)
    @precondition(lambda self: self.graveyard)
    def take_a_deleted_file_back(self, which: int, view: int) -> None:
        table = self.target(view)
        day, file = list(self.graveyard.values())[which % len(self.graveyard)]
        live = self.live(table, day)
        there = all(
            table.store.env.io.exists(f"dt={day}/bucket-0/{name}") for name in (file.file_name, *file.extra_files)
        )
        if there and live and file.file_name not in {each.file_name for each in live}:
            # As a rollback that is a commit does it: an overwrite that adds the old file and deletes a new one.
            self.graveyard[live[0].file_name] = (day, live[0])
            self.commit(table, day, data=DataIncrement(new_files=(file,), deleted_files=(live[0],)))
            self.orphans -= {f"dt={day}/bucket-0/{name}" for name in (file.file_name, *file.extra_files)}

    @rule(view=pick)
    def analyze(self, view: int) -> None:
        table = self.target(view)
        if table.latest_snapshot() is not None:
            self.clock.advance(60)
            name = f"stat-{next(self.numbers)}"
            table.store.env.io.write(f"statistics/{name}", b"{}")
            table._committer(None).analyze(name)

    # -------------------------------------------------------------------------------------------- references

    @rule(which=pick, view=pick)
    def tag(self, which: int, view: int) -> None:
        table = self.target(view)
        ids = table.store.snapshots.ids()
        if ids:
            table.create_tag(f"t{next(self.numbers)}", snapshot=ids[which % len(ids)])

    @rule(which=pick, view=pick)
    def delete_tag(self, which: int, view: int) -> None:
        table = self.target(view)
        names = sorted(table.tags())
        if names:
            table.delete_tag(names[which % len(names)])

    @rule(which=pick, other=pick, view=pick)
    def replace_tag(self, which: int, other: int, view: int) -> None:
        table = self.target(view)
        names, ids = sorted(table.tags()), table.store.snapshots.ids()
        for _ in self.leaves_orphans():
            if names and ids:
                table.replace_tag(names[which % len(names)], ids[other % len(ids)])

    @rule(view=pick, most=st.sampled_from([1, 2]))
    def tag_automatically(self, view: int, most: int) -> None:
        self.clock.advance(3600)
        options = {"tag.automatic-creation": "process-time", "tag.creation-period-duration": "1 min"}
        table = self.target(view).with_options({**options, "tag.num-retained-max": str(most)})
        plan = table.create_automatic_tags(plan_only=True)
        assert table.create_automatic_tags() == plan
        assert table.create_automatic_tags(plan_only=True).is_empty

    @rule(view=pick, age_s=st.sampled_from([0, 3600]))
    def expire_tags(self, view: int, age_s: int) -> None:
        table = self.target(view)
        plan = table.expire_tags(timedelta(seconds=age_s), plan_only=True)
        before = stored(self.table)
        assert table.expire_tags(timedelta(seconds=age_s)) == plan.tags
        assert set(plan.files.paths) <= before - stored(self.table)

    @rule(which=pick, view=pick)
    def rename_tag(self, which: int, view: int) -> None:
        table = self.target(view)
        names = sorted(table.tags())
        if names:
            table.rename_tag(names[which % len(names)], f"r{next(self.numbers)}")

    @rule(which=pick, from_tag=st.booleans())
    def branch(self, which: int, from_tag: bool) -> None:
        name = f"b{next(self.numbers)}"
        points: list[Any] = sorted(self.table.tags()) if from_tag else self.table.store.snapshots.ids()
        if points and len(self.table.branches()) < 2:
            point = points[which % len(points)]
            self.table.create_branch(name, **({"tag": point} if from_tag else {"snapshot": point}))

    @rule(which=pick)
    def delete_branch(self, which: int) -> None:
        names = self.table.branches()
        for _ in self.leaves_orphans():
            if names:
                self.table.delete_branch(names[which % len(names)])

    @rule(which=pick)
    def fast_forward(self, which: int) -> None:
        names = self.table.branches()
        for _ in self.leaves_orphans():
            if names and self.table.branch(names[which % len(names)]).latest_snapshot():
                branch = self.table.branch(names[which % len(names)])
                self.table.fast_forward(names[which % len(names)])
                assert self.table.latest_snapshot() == branch.latest_snapshot()

    @rule(which=pick, by_tag=st.booleans(), view=pick)
    def roll_back(self, which: int, by_tag: bool, view: int) -> None:
        table = self.target(view)
        points: list[Any] = sorted(table.tags()) if by_tag else table.store.snapshots.ids()
        for _ in self.leaves_orphans():
            if points:
                point = points[which % len(points)]
                plan = table.rollback_to(**({"tag": point} if by_tag else {"snapshot": point}))
                assert table.latest_snapshot() == plan.target

    @rule(which=pick, by_tag=st.booleans(), view=pick, keep_tag=st.booleans())
    def return_to(self, which: int, by_tag: bool, view: int, keep_tag: bool) -> None:
        table = self.target(view)
        points: list[Any] = sorted(table.tags()) if by_tag else table.store.snapshots.ids()
        before = table.latest_snapshot()
        if points and before is not None:
            point = points[which % len(points)]
            self.clock.advance(60)
            plan = table.rollback_to(**({"tag": point} if by_tag else {"snapshot": point}), as_latest=True)
            assert isinstance(plan, ReturnPlan)
            after = table.latest_snapshot()
            assert after is not None
            assert live_names(table, after) == live_names(table, plan.target)
            assert after.index_manifest == plan.target.index_manifest
            assert after.id == before.id + (not plan.is_empty)
            if plan.tag is not None and not by_tag and not keep_tag:
                table.delete_tag(plan.tag)
            # What the old state has again may have been an orphan: only another branch's tag could have kept it.
            self.orphans -= self.walker.reached(self.table)

    @rule(which=pick)
    def rename_branch(self, which: int) -> None:
        names = self.table.branches()
        if names:
            name, new = names[which % len(names)], f"n{next(self.numbers)}"
            before = self.table.branch(name).latest_snapshot()
            self.table.rename_branch(name, new)
            assert self.table.branch(new).latest_snapshot() == before

    @rule(view=pick)
    def change_the_schema(self, view: int) -> None:
        table = self.target(view)
        table.reload().add_column(f"c{next(self.numbers)}", "INT")
        self.table = self.table.reload()

    @rule(view=pick, which=pick)
    def roll_the_schema_back(self, view: int, which: int) -> None:
        table = self.target(view).reload()
        ids = table.store.schemas.ids()
        target = ids[which % len(ids)]
        used = {
            document.schema_id
            for each in (self.table, *(self.table.branch(name) for name in self.table.branches()))
            for document in documents_of(each)
        }
        if max(used, default=0) > target:
            with pytest.raises(InvalidInputError, match="in use"):
                table.rollback_schema(target)
        else:
            table.rollback_schema(target)
            assert table.store.schemas.ids()[-1] == target
        self.table = self.table.reload()

    @rule(next_snapshot=st.none() | st.integers(1, 12))
    def consume(self, next_snapshot: int | None) -> None:
        if next_snapshot is not None:
            self.table.reset_consumer("c", next_snapshot)
        elif "c" in self.table.consumers():
            self.table.reset_consumer("c")

    # -------------------------------------------------------------------------------------------- maintenance

    @rule(view=pick, keep=st.sampled_from([1, 1, 2, 4]), spare=st.integers(0, 1), limit=st.sampled_from([50, 2, 1]))
    def expire(self, view: int, keep: int, spare: int, limit: int) -> None:
        table = self.target(view)
        before = table.store.snapshots.ids()
        consumed = min(table.consumers().values(), default=None)
        plan = table.expire_snapshots(retain_max=keep + spare, retain_min=keep, max_deletes=limit, plan_only=True)
        assert stored(self.table) >= set(plan.files.paths)
        result = table.expire_snapshots(retain_max=keep + spare, retain_min=keep, max_deletes=limit)
        after = table.store.snapshots.ids()
        assert (result.snapshot_ids, result.files, result.left) == (plan.snapshot_ids, plan.files, ())
        assert set(before) - set(after) == set(plan.snapshot_ids)
        assert len(after) >= min(keep, len(before))
        assert consumed is None or {each for each in before if each >= consumed} <= set(after)
        assert table.store.snapshots.earliest_id() == min(after, default=None)

    @rule(view=pick, keep=st.sampled_from([1, 3]), everything=st.booleans())
    def expire_changelogs(self, view: int, keep: int, everything: bool) -> None:
        table = self.target(view)
        self.clock.advance(3_600)
        before = table.store.changelogs.ids()
        consumed = min(table.consumers().values(), default=None)
        how = {"delete_all": True} if everything else {"retain_max": keep, "retain_min": keep, "older_than": "1 h"}
        plan = table.expire_changelogs(**how, plan_only=True)
        assert stored(self.table) >= set(plan.files.paths)
        result = table.expire_changelogs(**how)
        after = table.store.changelogs.ids()
        assert (result.changelog_ids, result.files, result.left) == (plan.changelog_ids, plan.files, ())
        assert set(before) - set(after) == set(plan.changelog_ids)
        assert consumed is None or {each for each in before if each >= consumed} <= set(after)
        assert table.store.changelogs.earliest_id() == min(after, default=None)
        assert table.store.changelogs.latest_id() == max(after, default=None)

    @rule(view=pick)
    def expire_all_but_one(self, view: int) -> None:
        self.expire(view, 1, 0, 50)

    @rule()
    def remove_orphans(self) -> None:
        if not self.walker.reached(self.table):
            return
        self.clock.advance(3 * 86_400)
        plan = self.table.remove_orphans(plan_only=False)
        assert plan.left == ()
        # A name that some manifest still mentions is spared, be it in an entry that deletes the file.
        spared = mentioned(self.table)
        assert set(plan.paths) == {path for path in self.orphans if path.rpartition("/")[2] not in spared}
        self.orphans -= set(plan.paths)

    # -------------------------------------------------------------------------------------------- what must hold

    @invariant()
    def nothing_reachable_is_gone_and_nothing_else_is_left(self) -> None:
        if not hasattr(self, "table"):
            return
        needed, there = self.walker.reached(self.table), stored(self.table)
        assert needed <= there, sorted(needed - there)
        # A branch or a tag may have taken up again what an earlier step gave up.
        more = self.walker.tolerated(self.table) if "changelog.time-retained" in self.table.options else set()
        assert there - needed <= self.orphans | more, sorted(there - needed - self.orphans - more)
        self.orphans &= there - needed


TestMaintained = Maintained.TestCase
TestMaintained.settings = settings(
    max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_changelog_keeps_a_file_that_its_overwrite_took_back() -> None:
    machine = Maintained()
    machine.create(merge="2", branched=False, decoupled=True)
    machine.return_to(which=1, by_tag=False, view=0, keep_tag=False)
    machine.compact("a", 0)
    machine.append("b", 0, extra=False, changelog=False, index=False)
    machine.expire_all_but_one(0)
    machine.expire_changelogs(view=0, keep=3, everything=False)
    assert machine.table.store.changelogs.ids()[0] == 5
    machine.nothing_reachable_is_gone_and_nothing_else_is_left()


def test_orphans_that_a_kept_manifest_mentions_as_deleted_stay_until_it_goes() -> None:
    machine = Maintained()
    machine.create(merge="2", branched=True, decoupled=False)
    machine.expire(view=0, keep=1, spare=0, limit=50)
    machine.delete_branch(which=0)
    machine.remove_orphans()
    machine.nothing_reachable_is_gone_and_nothing_else_is_left()
    assert machine.orphans
    machine.append("b", 0, extra=False, changelog=False, index=False)
    machine.expire(view=0, keep=1, spare=0, limit=50)
    machine.remove_orphans()
    machine.nothing_reachable_is_gone_and_nothing_else_is_left()
