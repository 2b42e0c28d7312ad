"""The rules of `keyed_machine` on disk, for tables that tell of their changes and for such with vectors.

Whatever a table lives through (writes that overlap, compactions, overwrites, tags, branches, rollbacks, expiry,
cleaning), after each step:

* the changes of a snapshot lead from the last settled state to what the snapshot shows (I8), if no overwrite, of which
  nothing is told, lies in between;
* deletion vectors point to live files and to positions inside them (I7), and above level 0 a key has one live row;
* a consumer that is stopped, killed and started again in between gets every change once, in order, with the rows that
  were committed. What a rollback took back it is told of by an error, and goes on from there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from kit.changelogs import numbered_changelog
from property.keyed_machine import ENGINES, KeptTable, Key, Row, shown, who
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import NotFoundError
from tidelake.io.clock import SystemClock
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.io.local import LocalFileIO
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table.following import Change, Following
from tidelake.testing import FakeClock

LOOKUP, FULL = {"changelog-producer": "lookup"}, {"changelog-producer": "full-compaction"}


MARKS = {"deletion-vectors.enabled": "true"}


TOLD = {
    "lookup": LOOKUP,
    "full-compaction": FULL,
    "vectors": MARKS,
    "vectors of 64 bits, changes told": {**MARKS, **LOOKUP, "deletion-vectors.bitmap64": "true"},
    "vectors, input told": {**MARKS, "changelog-producer": "input"},
}


OUTLIVE = {"changelog.time-retained": "30 d", "consumer.changelog-only": "true"}
"""Snapshots go although a consumer has still to read them: it reads what they left."""


Told = dict[Key, Row] | None
"""The rows that the changes so far lead to; None behind an overwrite, of which nothing is told."""


def fitting(engine: str, how: str) -> bool:
    """Whether an engine goes with a way to tell: first rows are told by looking up, and have no vectors.

    Compactions that look up give the engine keys of one version too, of which a sequence group without a sequence makes
    something else than a plain merge does, as with the reference: the model has no levels to tell when that happens.
    """
    return how == "lookup" if engine == "first-row" else engine != "sequence group" or how == "full-compaction"


CHOICES = [(engine, how) for how in TOLD for engine in ENGINES if fitting(engine, how)]


class ToldTable(KeptTable):
    """`told` are the states that changes lead to, `changed` the changes as they were committed, both by snapshot."""

    @initialize(
        choice=st.sampled_from(CHOICES),
        buckets=st.sampled_from(["1", "2", "-1"]),
        trigger=st.sampled_from(["2", "3", "5"]),
        partitioned=st.booleans(),
        outlive=st.booleans(),
    )
    def create(self, choice: tuple[str, str], buckets: str, trigger: str, partitioned: bool, outlive: bool) -> None:
        engine, self.how = choice
        self.folder = Path(tempfile.mkdtemp())
        self.clock = FakeClock(SystemClock().now_ms(), tick_ms=1)
        lake = Lake(FileSystemCatalog(Env(LocalFileIO(str(self.folder), durability="none"), self.clock, SeededIds(1))))
        layout = {"bucket": buckets, "num-sorted-run.compaction-trigger": trigger, "num-levels": "3", **TOLD[self.how]}
        layout |= OUTLIVE if outlive else {}
        waits = engine == "first-row" or "vectors" in self.how
        self.told: dict[int, Told] = {0: {}}
        self.changed: dict[int, Counter[str]] = {}
        self.acknowledged: list[int] = []
        self.in_hand: Change | None = None
        self.stream: Following | None = None
        self.noted = 0
        self.begin(lake, engine, layout, partitioned=partitioned, waits=waits)
        self.take(1)  # from its first look on expiry waits for a consumer
        assert self.table.consumers() == {"c": 1}

    # -------------------------------------------------------------------------------------------- what is told

    def done(self) -> None:
        """Note what the snapshots since the last look show, and what they tell."""
        latest = self.table.store.snapshots.latest_id() or 0
        for snapshot_id in range(self.noted + 1, latest + 1):
            self.follow_changes(snapshot_id)
            found = self.table.changes(snapshot_id - 1, snapshot_id).to_arrow().to_pylist()
            if found:
                self.changed[snapshot_id] = counted(found)
        self.noted = latest
        super().done()

    def follow_changes(self, snapshot_id: int) -> None:
        """Apply the changes of one snapshot; where all rows are settled they lead to what is there (I8)."""
        state = self.told[snapshot_id - 1]
        if self.table.snapshot(snapshot_id).commit_kind is CommitKind.OVERWRITE:
            state = None
        complete = self.how in ("lookup", "full-compaction") or "changes told" in self.how
        if state is not None and complete:
            state = dict(state)
            for _, kind, row in numbered_changelog(self.table, snapshot_id):
                key = (row["dt"], row["k"])
                if kind in ("-U", "-D"):
                    assert known(state.pop(key)) == known(row), (snapshot_id, kind, row)
                else:
                    assert key not in state, (snapshot_id, kind, row)
                    state[key] = row
        if 0 not in self.table.files(snapshot=snapshot_id).column("level").to_pylist():
            settled = self.how != "full-compaction" or self.is_full(snapshot_id)
            there = shown(self.table.at(snapshot=snapshot_id).to_arrow().to_pylist())
            if state is not None and complete and settled:
                assert shown(state.values()) == there, snapshot_id
            if state is None and settled:
                state = {(row["dt"], row["k"]): row for row in there}
        self.told[snapshot_id] = state

    def is_full(self, snapshot_id: int) -> bool:
        """Whether all rows lie on the lowest level, of which a full compaction tells."""
        return set(self.table.files(snapshot=snapshot_id).column("level").to_pylist()) <= {2}

    # -------------------------------------------------------------------------------------------- the consumer

    @rule(count=st.integers(1, 3))
    def take(self, count: int) -> None:
        """Work through some changes; asking for the next one says that the last one is handled."""
        for _ in range(count):
            if self.stream is None:
                self.stream = self.table.follow(consumer="c", start="earliest", poll=30, timeout=0)
            following = next(self.stream, None)
            if self.in_hand is not None:
                self.acknowledged.append(self.in_hand.snapshot_id)
            self.in_hand = following
            if following is None:
                self.stream = None
                return
            assert counted(following.to_arrow().to_pylist()) == self.changed[following.snapshot_id]

    @rule(cleanly=st.booleans())
    def stop(self, cleanly: bool) -> None:
        """The process ends, by itself or killed; what was in hand comes again."""
        if self.stream is not None and cleanly:
            self.stream.close()
        self.stream = self.in_hand = None

    # -------------------------------------------------------------------------------------------- maintenance

    @precondition(lambda self: self.history)
    @rule(keep=st.integers(1, 3))
    def expire(self, keep: int) -> None:
        self.table.expire_snapshots(retain_max=keep, retain_min=1)
        left = set(self.table.store.snapshots.ids())
        self.history = {number: each for number, each in self.history.items() if number in left}

    @rule(everything=st.booleans())
    def expire_changelogs(self, everything: bool) -> None:
        self.table.expire_changelogs(retain_max=2, retain_min=1, delete_all=everything)

    @precondition(lambda self: self.history)
    @rule()
    def clean(self) -> None:
        """Files go that nothing refers to, once they are days old."""
        then = SystemClock().now_ms() / 1_000 - 3 * 86_400
        for path in self.folder.rglob("*"):
            os.utime(path, (then, then))
        self.table.remove_orphans(plan_only=False)
        assert self.table.check().ok

    @precondition(lambda self: "w" not in self.table.schema.names)
    @rule()
    def widen(self) -> None:
        super().widen()
        self.stop(True)  # a stream reads the columns that its handle knows

    @precondition(lambda self: self.history)
    @rule(data=st.data(), by=who)
    def roll_back(self, data: st.DataObject, by: str) -> None:
        self.stop(True)
        super().roll_back(data, by)
        number = self.newest
        following = self.table.consumers()["c"]
        if following > number + 1:
            with pytest.raises(NotFoundError) as caught:
                self.take(1)
            assert caught.value.code == "stream-out-of-range"
            self.table.reset_consumer("c", number + 1)
            self.stream = None
        self.noted = number
        self.told = {each: state for each, state in self.told.items() if each <= number}
        self.changed = {each: rows for each, rows in self.changed.items() if each <= number}
        self.acknowledged = [each for each in self.acknowledged if each <= number]

    # -------------------------------------------------------------------------------------------- laws

    @invariant()
    def vectors_fit_and_keys_are_there_once(self) -> None:
        if not getattr(self, "history", None) or "vectors" not in self.how:
            return
        report = self.table.check(deep=True)
        assert report.ok, report
        store, snapshot = self.table.store, self.table.latest_snapshot()
        assert snapshot is not None
        request = ReadRequest(schema=store.schema, columns=("dt", "k"))
        keys: Counter[tuple[Any, ...]] = Counter()
        for split in bucket_splits(
            self.table.files(), snapshot.id, self.table.paths, snapshot_vectors(store.manifests, snapshot)
        ):
            for file in split.files:
                if file.level > 0:
                    for batch in read_data_file(store, split, file, request):
                        keys.update(tuple(row.values()) for row in batch.to_pylist())
        assert not keys or max(keys.values()) == 1, keys.most_common(3)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        try:
            self.stop(True)
            while True:
                self.take(1)
                if self.stream is None:
                    break
            assert self.acknowledged == sorted(self.changed)
            super().teardown()
        finally:
            shutil.rmtree(self.folder)


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(repr(known(row)) for row in rows)


def known(row: Row) -> Row:
    """A row without its nulls: it may have been told of before a column was added."""
    return {name: value for name, value in row.items() if value is not None}
