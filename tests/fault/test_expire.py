"""T1 for maintenance: every operation of an expiry, a rollback, a tag or a branch fails or kills the process once.

Whatever is left, a new process finds every snapshot, tag and branch that is still there whole, with the files it had
before; doing the same again ends as an undisturbed run does. Files that nothing refers to are the only loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow.compute as pc
import pytest

from fault.harness import Image, distinct_modes, doors, has_its_turn, memory_with
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
)
from tidelake.io.fileio import FileIO
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.spec.documents.tag import Tag
from tidelake.spec.manifests.manifest import ADD
from tidelake.store.tags import TagStore
from tidelake.table import Table
from tidelake.testing import Crash, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import NAME, SCENARIO, Session, live_names, take_image

Act = Callable[[Table], Any]


def expire(table: Table) -> Any:
    return table.expire_snapshots(retain_max=2, retain_min=2)


def expire_leaving_changelogs(table: Table) -> Any:
    return table.with_options({"changelog.time-retained": "2 h"}).expire_snapshots(retain_max=2, retain_min=2)


AUTOMATIC = {
    "tag.automatic-creation": "process-time",
    "tag.creation-period-duration": "1 ms",
    "sink.process-time-zone": "UTC",
    "tag.num-retained-max": "1",
}
"""Every name is that of a minute, so that few tags are made."""

ACTS: dict[str, Act] = {
    "expire": expire,
    "expire-leaving-changelogs": expire_leaving_changelogs,
    "expire-changelogs": lambda t: t.expire_changelogs(retain_max=3, retain_min=3, older_than=2**60),
    "expire-all-changelogs": lambda t: t.expire_changelogs(delete_all=True),
    "rollback-before-changelogs": lambda t: t.rollback_to(tag="two"),
    "expire-cleaning": lambda t: t.with_options({"snapshot.clean-empty-directories": True}).expire_snapshots(
        retain_max=1, retain_min=1
    ),
    "expire-branch": lambda t: t.branch("side").expire_snapshots(retain_max=1, retain_min=1),
    "create-tag": lambda t: t.create_tag("new", snapshot=3, ignore_if_exists=True),
    "replace-tag": lambda t: t.replace_tag("two", snapshot=3),
    "automatic-tags": lambda t: t.with_options(AUTOMATIC).create_automatic_tags(),
    "rename-tag": lambda t: t.rename_tag("two", "zwei") if "two" in t.tags() else None,
    "delete-tag": lambda t: t.delete_tag("two") if "two" in t.tags() else None,
    "rollback": lambda t: t.rollback_to(snapshot=3),
    "rollback-to-a-tag": lambda t: t.rollback_to(tag="two"),
    "create-branch": lambda t: t.create_branch("new", tag="two"),
    "delete-branch": lambda t: t.delete_branch("side") if "side" in t.branches() else None,
    "fast-forward": lambda t: t.fast_forward("side"),
}
ON_EXPIRED = ("delete-tag", "rollback-to-a-tag", "create-branch")
"""These start from a table whose tagged snapshot has expired, so that only the tag holds its files."""
CHANGES_IN_PLACE = ("fast-forward", "replace-tag")
"""After these a name may stand for another state."""
ON_CHANGELOGS = ("expire-changelogs", "expire-all-changelogs", "rollback-before-changelogs")
"""These start from a table whose expired snapshots left changelogs."""


def start(name: str) -> Image:
    return _start("changelogs" if name in ON_CHANGELOGS else "expired" if name in ON_EXPIRED else "whole")


@functools.cache
def _start(past: str) -> Image:
    """A table with a past, two tags, a branch with a commit of its own, and maybe an expiry behind it."""
    io = MemoryFileIO()
    session = Session(doors(io, 1))
    session.perform(*SCENARIO[:5])
    table = session.table()
    table.create_tag("two", snapshot=2)
    table.create_tag("late", snapshot=4)
    table.create_branch("side", tag="late")
    table.branch("side").new_commit("side").truncate(identifier=1)
    if past != "whole":
        (expire if past == "expired" else expire_leaving_changelogs)(table)
        table.delete_tag("late")
    return take_image(io)


def opened(io: FileIO) -> Table:
    return Lake(FileSystemCatalog(doors(io, 7))).table(NAME)


State = dict[str, tuple[Any, frozenset[str]]]


def states(table: Table) -> State:
    """The document and the live files of every snapshot and tag of every branch."""
    found: State = {}
    for view in (table, *(table.branch(name) for name in table.branches() if has_schema(table, name))):
        branch = view.store.layout.branch
        for snapshot_id in view.store.snapshots.ids():
            found[f"{branch}/{snapshot_id}"] = (view.snapshot(snapshot_id), live_names(view, snapshot_id))
        for name, tag in TagStore(view.store.env.io, view.store.layout).all().items():
            found[f"{branch}/tag {name}"] = (tag, names_of(view, tag))
        for changelog_id in view.store.changelogs.ids():
            changelog = view.store.changelogs.get(changelog_id)
            added = read_changes(view.store.manifests, delta_manifests(view.store.manifests, changelog))
            names = added.filter(pc.equal(added.column("kind"), ADD)).column("file_name").to_pylist()
            found[f"{branch}/changelog {changelog_id}"] = (changelog, frozenset(names))
    return found


def has_schema(table: Table, branch: str) -> bool:
    return bool(table.store.env.io.list(f"branch/branch-{branch}/schema"))


def names_of(table: Table, tag: Tag) -> frozenset[str]:
    found = table.at(tag=next(name for name, each in tags_of(table).items() if each == tag)).files()
    return frozenset(found.column("file_name").to_pylist())


def tags_of(table: Table) -> dict[str, Tag]:
    return TagStore(table.store.env.io, table.store.layout).all()


def missing(table: Table) -> list[str]:
    """Errors of the check other than gaps between snapshots, which a rollback to an expired tag goes through."""
    return [str(each) for each in table.check(deep=True).errors if each.invariant != "I1"]


def attempt(io: FileIO, act: Act) -> BaseException | None:
    try:
        act(opened(io))
    except (Crash, StorageError, CommitUnknownError, CommitConflictError) as failure:
        return failure
    return None


def points(name: str) -> Iterator[tuple[int, Fault]]:
    """Every operation that changes something, in the ways that differ for it, and some of the many reads."""
    clean = FaultyFileIO(memory_with(start(name)))
    assert attempt(clean, ACTS[name]) is None
    for op in clean.ops:
        faults = distinct_modes(op)
        if op.name == "delete":
            # It has no half done form, and a lost answer looks like an error after the effect.
            faults = (Fault.BEFORE, Fault.AFTER, Fault.CRASH_AFTER)
        elif op.name in READS:
            faults = faults if op.number % 4 == 0 else ()
        yield from ((op.number, fault) for fault in faults if has_its_turn(op, fault, 2 if len(clean.ops) > 40 else 1))


@pytest.mark.parametrize("name", ACTS)
def test_whatever_fails_what_is_left_is_whole_and_a_second_try_finishes(name: str) -> None:
    before = states(opened(memory_with(start(name))))
    undisturbed = memory_with(start(name))
    assert attempt(undisturbed, ACTS[name]) is None
    wanted = states(opened(undisturbed))
    count, seen = 0, set()
    for number, fault in points(name):
        where = f"REPRO act={name} op={number} fault={fault.value}"
        io = FaultyFileIO(memory_with(start(name)), {number: fault})
        failure = attempt(io, ACTS[name])
        count += 1
        # Storages that are equal byte for byte behave alike from here on: each is looked at once.
        image = (failure is None, frozenset(take_image(io.inner).items()))
        if image in seen:
            continue
        seen.add(image)
        table = opened(io.inner)
        left = states(table)
        assert left.items() <= {**before, **wanted}.items() or name in CHANGES_IN_PLACE, where
        assert all(left[key] in (before.get(key), wanted.get(key)) for key in left), where
        assert missing(table) == [], (where, missing(table))
        assert any(key.startswith("main/") and key.removeprefix("main/").isdigit() for key in left), where
        assert no_change_is_missed(left), where
        if failure is None:
            assert left == wanted, where
        again(table, ACTS[name], name)
        assert states(opened(io.inner)) == wanted, where
        assert opened(io.inner).check(deep=True).ok, where
    assert len(seen) > 1
    print(f"{name}: {count} faults led to {len(seen)} different storages")


def no_change_is_missed(left: State) -> bool:
    """Where a past was kept as changelogs, every snapshot is there as itself or as its changelog."""
    ids = [int(key.split()[-1].removeprefix("main/")) for key in left if key.startswith("main/") and "tag" not in key]
    kept = any("changelog" in key for key in left)
    return not kept or sorted(set(ids)) == list(range(min(ids), max(ids) + 1))


def again(table: Table, act: Act, name: str) -> None:
    """What a person does who was told of a failure: look, and do it again."""
    if name == "create-branch" and "new" in table.branches():
        # A half made branch is in the way; it holds nothing that is not elsewhere.
        table.delete_branch("new")
    if name == "rename-tag" and {"two", "zwei"} <= set(table.tags()):
        table.delete_tag("two")
    act(table)


def test_a_reader_of_an_expired_snapshot_gets_a_typed_error() -> None:
    table = opened(memory_with(start("expire")))
    old = table.at(snapshot=3)
    expire(table)
    with pytest.raises(NotFoundError):
        old.files()


@pytest.mark.parametrize("number", range(1, 62, 2))
def test_a_tag_made_while_an_expiry_runs_is_whole_or_refused(number: int) -> None:
    """At every operation of the expiry another job tags a snapshot that is about to go."""
    inner = memory_with(start("expire"))
    told: list[str] = []

    def plan(op: Any) -> None:
        if op.number == number:
            with suppress(NotFoundError):
                told.append(opened(inner).create_tag("meanwhile", snapshot=3))

    with suppress(CommitConflictError, TidelakeError):
        expire(opened(FaultyFileIO(inner, plan)))
    table = opened(inner)
    assert missing(table) == []
    assert ("meanwhile" in table.tags()) == bool(told)


@pytest.mark.parametrize("number", range(1, 62, 4))
def test_a_tag_that_is_replaced_while_an_expiry_runs_is_whole_before_or_after(number: int) -> None:
    """At every operation of the expiry another job gives a tag to a snapshot that is about to go."""
    inner = memory_with(start("expire"))
    moved: list[int] = []

    def plan(op: Any) -> None:
        if op.number == number:
            with suppress(NotFoundError):
                moved.append(opened(inner).replace_tag("late", 3).after.id)

    with suppress(CommitConflictError, TidelakeError):
        expire(opened(FaultyFileIO(inner, plan)))
    table = opened(inner)
    assert missing(table) == []
    assert [table.tags()["late"]] == (moved or [4])


@pytest.mark.parametrize("make", ["create_tag", "create_branch"])
def test_an_expiry_that_runs_while_something_is_named_takes_no_file_of_it(make: str) -> None:
    """At every operation of making a tag or a branch a whole expiry runs."""
    name_it: Act = lambda t: getattr(t, make)("meanwhile", snapshot=3)  # noqa: E731 - one line says it
    clean = FaultyFileIO(memory_with(start("expire")))
    assert attempt(clean, name_it) is None
    refused = 0
    for each in clean.ops:
        inner = memory_with(start("expire"))

        def plan(op: Any, at: int = each.number, io: FileIO = inner) -> None:
            if op.number == at:
                expire(opened(io))

        try:
            name_it(opened(FaultyFileIO(inner, plan)))
        except NotFoundError:
            refused += 1
            assert "meanwhile" not in (*opened(inner).tags(), *opened(inner).branches())
        assert missing(opened(inner)) == []
    assert refused > 0


@pytest.mark.parametrize("number", range(2, 62, 3))
def test_a_branch_made_while_an_expiry_runs_is_whole_or_refused(number: int) -> None:
    inner = memory_with(start("expire"))

    def plan(op: Any) -> None:
        if op.number == number:
            with suppress(NotFoundError, InvalidInputError):
                opened(inner).create_branch("meanwhile", snapshot=3)

    with suppress(CommitConflictError, TidelakeError):
        expire(opened(FaultyFileIO(inner, plan)))
    assert missing(opened(inner)) == []
