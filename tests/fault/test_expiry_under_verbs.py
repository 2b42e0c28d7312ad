"""Every verb while another job commits and expires everything but its own snapshot.

What a verb stands on may go at any of its reads. A read of the newest state is planned again and sees one whole state;
what writes is planned again and succeeds, and nobody's rows are lost or doubled; a check of a healthy table finds it
healthy. Only who named a snapshot is told, in one way, that it expired. `make soak` visits every read of every verb on
every kind of table, a working day the reads at which the newest snapshot and its manifests were found gone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fault.expiring import BRANCH, KEYS, KINDS, TAG, Visitor, open_table, visit
from fault.harness import EVERY
from tidelake.errors import CommitConflictError, CommitUnknownError, NotFoundError
from tidelake.table import Table

Row = tuple[int, str, str]
Rows = frozenset[Row]

BASE: Rows = frozenset((key, f"p{key % 2}", f"v{key // 2}") for key in range(KEYS))
THEIRS: Row = (KEYS, "p0", "new")
MINE: Row = (9, "p1", "mine")
GIVEN_BATCH = pa.RecordBatch.from_pylist([{"k": 9, "p": "p1", "v": "mine"}])
GIVEN = [{"k": 9, "p": "p1", "v": "mine"}]
EXPIRED = ("snapshot-expired", "snapshot-not-found")


def rows_of(data: Any) -> Rows:
    rows = [(row["k"], row["p"], row["v"]) for row in data.to_pylist()]
    assert len(set(rows)) == len(rows), rows
    return frozenset(rows)


@dataclass(frozen=True, slots=True)
class Writer:
    """A verb that commits, and what the table may hold after it and the other job, in either order."""

    act: Callable[[Table], object]
    leaves: Collection[Rows]


def without(key: int) -> Rows:
    return frozenset(row for row in BASE if row[0] != key)


def with_value(key: int, value: str) -> Rows:
    return without(key) | {(key, f"p{key % 2}", value)}


WRITERS = {
    "append": Writer(lambda t: t.write(GIVEN), [BASE | {MINE, THEIRS}]),
    "append of a stream": Writer(lambda t: t.write(iter([GIVEN_BATCH])), [BASE | {MINE, THEIRS}]),
    "overwrite": Writer(lambda t: t.write(GIVEN, mode="overwrite"), [frozenset({MINE}), frozenset({MINE, THEIRS})]),
    "overwrite of partitions": Writer(
        lambda t: t.write(GIVEN, mode="overwrite-dynamic"),
        [frozenset(row for row in BASE if row[1] == "p0") | {MINE, THEIRS}],
    ),
    "delete": Writer(lambda t: t.delete("k = 1"), [without(1) | {THEIRS}]),
    "update": Writer(lambda t: t.update({"v": "'u'"}, "k = 1"), [with_value(1, "u") | {THEIRS}]),
    "merge": Writer(
        lambda t: (
            t.merge([*GIVEN, {"k": 1, "p": "p1", "v": "m"}], on=["k", "p"])
            .when_matched_update()
            .when_not_matched_insert()
            .run()
        ),
        [with_value(1, "m") | {MINE, THEIRS}],
    ),
    "compact": Writer(lambda t: t.compact(full=True), [BASE | {THEIRS}]),
    "keep compacted": Writer(lambda t: t.keep_compacted(max_rounds=2), [BASE | {THEIRS}]),
    "truncate": Writer(lambda t: t.truncate(), [frozenset(), frozenset({THEIRS})]),
    "drop partitions": Writer(
        lambda t: t.drop_partitions("p = 'p1'"), [frozenset(row for row in BASE if row[1] == "p0") | {THEIRS}]
    ),
    "compact manifests": Writer(lambda t: t.new_commit().compact_manifests(), [BASE | {THEIRS}]),
    "rescale": Writer(lambda t: t.rescale(3), [BASE, BASE | {THEIRS}]),
    "create tag": Writer(lambda t: t.create_tag("x"), [BASE | {THEIRS}]),
    "delete tag": Writer(lambda t: t.delete_tag(TAG), [BASE | {THEIRS}]),
    "replace tag": Writer(lambda t: t.replace_tag(TAG), [BASE | {THEIRS}]),
    "expire tags": Writer(lambda t: t.expire_tags(timedelta(0)), [BASE | {THEIRS}]),
    "create branch": Writer(lambda t: t.create_branch("x"), [BASE | {THEIRS}]),
    "delete branch": Writer(lambda t: t.delete_branch(BRANCH), [BASE | {THEIRS}]),
    "expire": Writer(lambda t: t.expire_snapshots(retain_max=1, retain_min=1), [BASE | {THEIRS}]),
    "remove orphans": Writer(lambda t: t.remove_orphans(plan_only=False), [BASE | {THEIRS}]),
    "alter": Writer(lambda t: t.alter(add={"w": "INT"}), [BASE | {THEIRS}]),
}

READERS: dict[str, Callable[[Table], object]] = {
    "rows": lambda t: rows_of(t.to_arrow()),
    "rows of a condition": lambda t: rows_of(t.to_arrow(where="k >= 0")),
    "batches": lambda t: rows_of(t.to_batches().read_all()),
    "ordered": lambda t: rows_of(t.to_arrow(order_by="k")),
    "polars": lambda t: frozenset(t.to_polars(lazy=True).collect().iter_rows()),
    "read-optimized": lambda t: rows_of(t.scan().read_optimized().to_arrow()),
    "audit log": lambda t: rows_of(t.inspect.audit_log().to_arrow()),
    "count": lambda t: t.count(),
    "count of a condition": lambda t: t.count("k >= 0"),
}
STATES = (BASE, BASE | {THEIRS}, len(BASE), len(BASE) + 1)

SYSTEM_TABLES = (
    *("snapshots", "schemas", "options", "tags", "branches", "consumers"),
    *("manifests", "files", "partitions", "buckets", "table_indexes", "lsm"),
)
LOOKS: dict[str, Callable[[Table], object]] = {
    "check": lambda t: t.check().errors,
    "deep check": lambda t: t.check(deep=True, rows=True).errors,
    "explain": lambda t: t.scan().explain(),
    "snapshot of a scan": lambda t: t.scan().snapshot(),
    "files": lambda t: t.files(),
    "latest snapshot": lambda t: t.latest_snapshot(),
    "repr": repr,
    "tags": lambda t: t.tags(),
    "branches": lambda t: t.branches(),
    "consumers": lambda t: t.consumers(),
    "branch": lambda t: t.branch(BRANCH).to_arrow(),
    "tagged": lambda t: t.at(tag=TAG).to_arrow(),
    "plan of a compaction": lambda t: t.compact(full=True, plan_only=True),
    "plan of a merge": lambda t: t.merge(GIVEN, on=["k", "p"]).when_not_matched_insert().run(plan_only=True),
    "plan of an expiry": lambda t: t.expire_snapshots(retain_max=1, retain_min=1, plan_only=True),
    "plan of orphans": lambda t: t.remove_orphans(),
    "why": lambda t: t.why({"k": 1, "p": "p1"}),
    **{f"inspect.{name}": lambda t, name=name: getattr(t.inspect, name)() for name in SYSTEM_TABLES},
}

PINNED: dict[str, Callable[[Table], object]] = {
    "at a snapshot": lambda t: t.at(snapshot=3).to_arrow(),
    "changes": lambda t: t.changes(since=1).to_arrow(),
    "changes since a tag": lambda t: t.changes(since=TAG).to_arrow(),
    "stream": lambda t: [change.to_arrow() for change in t.follow(until="latest", timeout=0)],
    "stream from the earliest": lambda t: [
        change.to_arrow() for change in t.follow(start="earliest", until="latest", timeout=0)
    ],
    "tag of a snapshot": lambda t: t.create_tag("x", snapshot=4),
    "branch at a snapshot": lambda t: t.create_branch("x", snapshot=4),
    "rollback": lambda t: t.rollback_to(snapshot=3),
}

EXAMPLES = KINDS if EVERY else ("append", "keyed")


def fits(name: str, kind: str) -> bool:
    """Whether tables of that kind have the verb."""
    if name in ("why", "inspect.lsm", "keep compacted"):
        return kind.startswith("keyed")
    return name != "rescale" or kind in ("append with buckets", "keyed", "keyed with changelog")


@functools.cache
def warm_up() -> None:
    """Let the process try its storage once, so that every run of a verb asks for the same."""
    visit("append", 0, WRITERS["append"].act, rewriting=False)


def moments(kind: str, verb: Callable[[Table], object]) -> list[int]:
    """The reads before which the other job comes."""
    warm_up()
    done, visitor = visit(kind, 0, verb, rewriting=False)
    assert not isinstance(done, Exception), done
    if EVERY:
        return list(range(1, len(visitor.seen) + 1))
    lists = [n for n, op in enumerate(visitor.seen, 1) if "manifest/manifest-list-" in op.path]
    heads = [n for n, op in enumerate(visitor.seen, 1) if "snapshot/snapshot-4" in op.path]
    return sorted({*lists[:1], *heads[-1:]})


def visits(names: Collection[str]) -> pytest.MarkDecorator:
    """Each verb on some kind of table in turn; in the soak on every kind."""
    pairs = [
        (kind, name)
        for number, name in enumerate(names)
        for turn, kind in enumerate(EXAMPLES)
        if fits(name, kind) and (EVERY or turn == number % len(EXAMPLES) or not fits(name, "append"))
    ]
    return pytest.mark.parametrize(("kind", "name"), pairs)


@visits(WRITERS)
def test_writers_plan_again_when_the_snapshot_they_read_expires(kind: str, name: str) -> None:
    writer = WRITERS[name]
    for at in moments(kind, writer.act):
        for rewriting in (False, True) if EVERY else (at % 2 == 0,):
            where = f"REPRO kind={kind} verb={name} at={at} rewriting={rewriting}"
            done, visitor = visit(kind, at, writer.act, rewriting=rewriting)
            assert visitor.fired is not None, where
            if name == "rescale" and isinstance(done, CommitConflictError):
                assert done.code == "strict-mode", where  # the row of the other job would be lost
                continue
            undecidable = is_undecidable(kind, name, visitor, rewriting=rewriting)
            if not (undecidable and isinstance(done, CommitUnknownError)):
                assert not isinstance(done, Exception), (where, visitor.fired, done)
            after = open_table(visitor.inner, 99)
            check = after.check(deep=True, rows=EVERY)
            assert check.ok, (where, str(check))
            assert rows_at_last(after, kind) in writer.leaves, where


def rows_at_last(table: Table, kind: str) -> Rows:
    """The rows once they are all shown: with vectors in a keyed table, those on level 0 wait for a compaction."""
    if kind == "keyed with vectors":
        table.compact(full=True)
    return rows_of(table.to_arrow(columns=["k", "p", "v"]))


def is_undecidable(kind: str, name: str, visitor: Visitor, *, rewriting: bool) -> bool:
    """Whether nothing that is left says that the commit followed the snapshot that it was planned on.

    A delete with vectors adds no data file. If a compaction applies its vectors, and both snapshots expire before the
    commit has looked for the one before it, the table looks like that of a commit that was published too late, and
    lost. The commit must not guess: "unknown" is the right answer.
    """
    just_published = visitor.fired is not None and visitor.fired.name == "exists"
    return (kind, name, rewriting, just_published) == ("append with vectors", "delete", True, True)


@visits(READERS)
def test_reads_of_the_newest_state_see_one_state_whole(kind: str, name: str) -> None:
    for at in moments(kind, READERS[name]):
        for rewriting in (False, True) if EVERY else (True,):
            found, visitor = visit(kind, at, READERS[name], rewriting=rewriting)
            assert found in STATES, (f"REPRO kind={kind} verb={name} at={at} {rewriting=}", visitor.fired, found)


@visits(LOOKS)
def test_looks_at_a_healthy_table_find_it_healthy(kind: str, name: str) -> None:
    for at in moments(kind, LOOKS[name]):
        for rewriting in (False, True) if EVERY else (True,):
            found, visitor = visit(kind, at, LOOKS[name], rewriting=rewriting)
            where = f"REPRO kind={kind} verb={name} at={at} {rewriting=}"
            assert not isinstance(found, Exception), (where, visitor.fired, found)
            assert "check" not in name or found == (), (where, visitor.fired, found)


@visits(PINNED)
def test_who_named_a_snapshot_is_told_that_it_expired(kind: str, name: str) -> None:
    for at in moments(kind, PINNED[name]):
        for rewriting in (False, True) if EVERY else (True,):
            found, visitor = visit(kind, at, PINNED[name], rewriting=rewriting)
            told = isinstance(found, NotFoundError) and found.code in EXPIRED
            where = f"REPRO kind={kind} verb={name} at={at} {rewriting=}"
            assert told or not isinstance(found, Exception), (where, visitor.fired, found)


def test_a_scan_that_was_looked_at_does_not_move_to_another_snapshot() -> None:
    def look_twice(table: Table) -> object:
        scan = table.scan()
        assert rows_of(scan.to_arrow()) == BASE
        return rows_of(scan.to_arrow())

    _, visitor = visit("append", 0, look_twice, rewriting=True)
    first_of_second = len(visitor.seen) // 2 + 1
    found, _ = visit("append", first_of_second, look_twice, rewriting=True)
    assert isinstance(found, NotFoundError)
    assert found.code == "snapshot-expired"
