"""A consumer gets every change once, whatever happens between two of its looks.

A machine writes, compacts, overwrites, lets snapshots and changelogs expire, and works through a stream that it stops,
kills before or after an acknowledgement, and opens again. What each snapshot changed is noted right after its commit,
by a read of that snapshot alone. In the end every noted change was acknowledged once, in order, with the same rows; a
change comes again only if it was not acknowledged. The changes of a table with a complete changelog fold to its state.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.table.following import Change, Following
from tidelake.testing import FakeClock, MemoryFileIO

KINDS = ("append", "none", "input", "lookup", "full-compaction")
keys = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=4)


class Followed(RuleBasedStateMachine):
    """`changed` are the changes by snapshot as they were committed, `acknowledged` what the consumer has handled."""

    @initialize(
        kind=st.sampled_from(KINDS), outlive=st.booleans(), mode=st.sampled_from(["exactly-once", "at-least-once"])
    )
    def create(self, kind: str, outlive: bool, mode: str) -> None:
        clock = FakeClock()
        env = Env(MemoryFileIO(clock=clock), clock, SeededIds(1))
        options = {"write-only": str(kind == "append").lower(), "consumer.mode": mode, "num-levels": "3"}
        options |= {"bucket": "1", "changelog-producer": kind} if kind != "append" else {}
        # Consumers then hold changelogs only, so that what they have still to read is left of snapshots that are gone.
        options |= {"changelog.time-retained": "3 h", "consumer.changelog-only": "true"} if outlive else {}
        columns = {"id": "INT NOT NULL", "v": "INT"}
        self.kind, self.clock = kind, clock
        self.table = Lake(FileSystemCatalog(env)).create_table(
            "d.t", columns, primary_key=[] if kind == "append" else ["id"], options=options
        )
        self.number = 0
        self.noted = 0
        self.changed: dict[int, Counter[str]] = {}
        self.acknowledged: list[int] = []
        self.in_hand: Change | None = None
        self.stream: Following | None = None
        self.take(1)  # from its first look on expiry waits for a consumer
        assert self.table.consumers() == {"c": 1}
        # A past to begin with, or most runs would end before anything expires unread.
        for key in range(3):
            self.write([(key, False), (key + 1, False)])
        self.expire()
        self.take(1)

    # -------------------------------------------------------------------------------------------- the table

    def note(self) -> None:
        """What the snapshots since the last look changed, each read by itself."""
        latest = self.table.store.snapshots.latest_id() or 0
        for snapshot_id in range(self.noted + 1, latest + 1):
            rows = rows_of(self.table.changes(snapshot_id - 1, snapshot_id))
            if rows:
                self.changed[snapshot_id] = rows
        self.noted = latest

    @rule(rows=keys)
    def write(self, rows: list[tuple[int, bool]]) -> None:
        self.clock.advance(60)
        self.number += 1
        data = [{"id": key, "v": self.number, "rowkind": "-D" if gone else "+I"} for key, gone in dict(rows).items()]
        if self.kind == "append":
            data = [{"id": row["id"], "v": row["v"]} for row in data]
        self.table.write(data)
        self.note()

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        self.clock.advance(60)
        self.table.compact(full=full)
        self.note()

    @rule()
    def expire(self) -> None:
        self.clock.advance(60)
        self.table.expire_snapshots(retain_max=1, retain_min=1)

    @rule(everything=st.booleans())
    def expire_changelogs(self, everything: bool) -> None:
        self.clock.advance(7_200)
        self.table.expire_changelogs(delete_all=everything)

    # -------------------------------------------------------------------------------------------- the consumer

    def open(self) -> None:
        self.stream = self.table.follow(consumer="c", start="earliest", poll=30, timeout=0)

    @rule(count=st.integers(1, 3))
    def take(self, count: int) -> None:
        """Work through some changes; asking for the next one says that the last one is handled."""
        for _ in range(count):
            if self.stream is None:
                self.open()
            assert self.stream is not None
            self.handled()
            self.in_hand = next(self.stream, None)
            if self.in_hand is None:
                self.stream = None
                return
            assert rows_of(self.in_hand) == self.changed[self.in_hand.snapshot_id]

    def handled(self) -> None:
        if self.in_hand is not None:
            self.acknowledged.append(self.in_hand.snapshot_id)
            self.in_hand = None

    @rule()
    def acknowledge(self) -> None:
        if self.in_hand is not None:
            self.in_hand.ack()
            self.handled()

    @rule(cleanly=st.booleans())
    def stop(self, cleanly: bool) -> None:
        """The process ends; what was in hand comes again, and at-least-once may repeat what it did not save yet."""
        if self.stream is not None and cleanly:
            self.stream.close()
        self.stream = self.in_hand = None
        following = self.table.consumers().get("c", 1)
        repeated = [each for each in self.acknowledged if each >= following]
        assert not repeated or (not cleanly and self.table.options["consumer.mode"] == "at-least-once")
        self.acknowledged = [each for each in self.acknowledged if each < following]

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        self.stop(True)
        while True:
            self.take(1)
            if self.stream is None:
                break
        assert self.acknowledged == sorted(self.changed)
        if self.kind in ("lookup", "full-compaction"):
            if self.kind == "full-compaction":
                self.compact(True)
                self.take(100)
                self.handled()
            assert folded(self.changed) == Counter(map(repr, self.table.to_arrow().to_pylist()))


def rows_of(read: Any) -> Counter[str]:
    return Counter(map(repr, read.to_arrow().to_pylist()))


def folded(changed: dict[int, Counter[str]]) -> Counter[str]:
    """The state that changes lead to: what came minus what went."""
    state: Counter[str] = Counter()
    for rows in changed.values():
        for text, count in rows.items():
            row = eval(text)
            kind = row.pop("rowkind")
            state[repr(row)] += count if kind in ("+I", "+U") else -count
    assert all(count >= 0 for count in state.values())
    return +state


TestFollowed = Followed.TestCase
TestFollowed.settings = settings(
    max_examples=18, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
