"""A verb that raised anything but `CommitUnknownError` has left none of its rows; one that returned has left all.

No verb has an identifier here, so that whoever is told "it failed" repeats it, and a row that is there already comes
twice. Operations of every verb fail or are interrupted, most of those after the publication. A working day tries some
of them, `make soak` all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from fault.harness import EVERY, SECOND
from fault.outcomes import (
    CASES,
    FOLDER,
    KINDS,
    Bag,
    Result,
    expected,
    is_publish,
    opened,
    published_at,
    rows_of,
    run,
    start,
)
from tidelake.errors import CommitUnknownError
from tidelake.io import FileIO
from tidelake.testing import Fault, FaultyFileIO, Op
from tidelake.testing.faulty import READS
from tidelake.testing.scenario import take_image

FAILS = (Fault.BEFORE, Fault.AFTER, Fault.NO_SPACE, Fault.BROKEN, Fault.LOST)
INTERRUPTS = (Fault.INTERRUPT, Fault.INTERRUPT_AFTER)
HIDDEN = [kind for kind in KINDS if KINDS[kind].hides]


def points(kind: str, verb: str) -> Iterator[tuple[Op, Fault]]:
    """Operations with a way to fail, each with another than the one before it."""
    ops = expected(kind, verb)[2]
    first, shift = published_at(ops), CASES.index((kind, verb))
    for op in ops:
        ways = (Fault.BEFORE, Fault.BROKEN) if op.name in READS else FAILS
        if EVERY:
            yield from ((op, fault) for fault in ways)
        elif op.number == first or (op.number + shift) % (16 if op.number > first else 48) == 0:
            yield op, ways[(op.number + shift) % len(ways)]


@pytest.mark.parametrize(("kind", "verb"), CASES)
def test_a_verb_that_raised_left_none_of_its_rows(kind: str, verb: str) -> None:
    before, after, _ = expected(kind, verb)
    for op, fault in points(kind, verb):
        where = f"REPRO kind={kind} verb={verb} op={op} fault={fault.value}"
        io = FaultyFileIO(start(kind), {op.number: fault})
        done: Result | None = None
        unknown = False
        try:
            done = run(io, verb)
        except CommitUnknownError:
            unknown = True
        except Exception:  # noqa: BLE001 - whatever it is, it says that nothing happened
            pass
        assert [fault_seen for _, fault_seen in io.injected_faults] == [fault], where
        found = rows_of(opened(io.inner, SECOND))
        if done is not None:
            assert is_told(io.inner, found, done, after, kind), (where, found, done)
        else:
            assert found == before or (unknown and found == after), (where, found)


def is_told(io: FileIO, found: Bag, done: Result, after: Bag, kind: str) -> bool:
    """Whether all rows are there; or they are once somebody compacts, and the result says so."""
    if found == after:
        return True
    hidden = any("its rows are shown by the next write" in warning for warning in done.warnings)
    opened(io, SECOND + 1).compact()
    return KINDS[kind].hides and hidden and rows_of(opened(io, SECOND + 2)) == after


@pytest.mark.parametrize("then", ["write", "compact"])
@pytest.mark.parametrize("kind", HIDDEN)
def test_rows_hidden_by_a_compaction_that_failed_are_shown_by_the_next_write_or_compact(kind: str, then: str) -> None:
    published: list[Op] = []

    def fails_afterwards(op: Op) -> Fault | None:
        if is_publish(op):
            published.append(op)
        return Fault.NO_SPACE if published and op is not published[0] and op.name not in READS else None

    io = FaultyFileIO(start(kind), fails_afterwards)
    done = run(io, "write")
    assert len(done.snapshot_ids) == 1
    (warning,) = [each for each in done.warnings if "compaction" in each]
    assert "its rows are shown by the next write to their buckets or `compact`" in warning
    assert "disk is full" in warning
    table = opened(io.inner, SECOND)
    if then == "compact":
        table.compact()
        assert rows_of(table) == expected(kind, "write")[1]
    else:
        table.write([{"k": 50, "dt": "a", "n": 50}])
        assert rows_of(table) == expected(kind, "write")[1] + Bag([(50, "a", 50)])


def test_a_write_whose_compaction_failed_is_not_doubled_by_who_believes_what_it_says() -> None:
    """A sum is written again by a retry that is told to: it must not be told to once the rows are there."""
    for op in expected("sum", "write")[2][published_at(expected("sum", "write")[2]) :]:
        io = FaultyFileIO(start("sum"), {op.number: Fault.NO_SPACE})
        done = run(io, "write")
        assert done.snapshot_ids[0] == 5, op
        assert rows_of(opened(io.inner, SECOND)) == expected("sum", "write")[1], op


def test_rows_of_a_result_are_those_that_were_written_and_not_those_of_the_compaction() -> None:
    table = opened(start("sum"), SECOND)
    table.write([{"k": number, "dt": "a", "n": 1} for number in range(1_000)])
    done = table.write([{"k": 1, "dt": "a", "n": 1}])
    assert len(done.snapshot_ids) == 2
    assert done.rows == 1


# ------------------------------------------------------------------------------------------------ interrupts


def named_in(notes: Sequence[str]) -> list[int]:
    """The snapshots that an interrupt says are published; what a verb commits in two steps may be in two notes."""
    published = [note for note in notes if "the commit is published as snapshot" in note]
    return sorted(int(number) for note in published for number in re.findall(r"[0-9]+", note))


def test_an_interrupted_verb_removes_what_it_wrote_and_names_what_it_published() -> None:
    interrupts, left = 0, []
    for shift, (kind, verb) in enumerate(CASES):
        if verb == "halves":
            continue  # who has the messages may offer them again, or abort them
        before, _, ops = expected(kind, verb)
        changing = [op for op in ops if op.name not in READS]
        for op in changing if EVERY else changing[shift % 17 :: 17]:
            fault = INTERRUPTS[op.number % 2]
            where = f"REPRO kind={kind} verb={verb} op={op} fault={fault.value}"
            io = FaultyFileIO(start(kind), {op.number: fault})
            there, last = set(take_image(io.inner.sub(FOLDER))), opened(io.inner, SECOND).latest_snapshot().id
            with pytest.raises(KeyboardInterrupt) as raised:
                run(io, verb)
            interrupts += 1
            notes = getattr(raised.value, "__notes__", ())
            table = opened(io.inner, SECOND)
            new = list(range(last + 1, table.latest_snapshot().id + 1))
            assert named_in(notes) == new, (where, notes)
            assert new or rows_of(table) == before, where
            report = table.check()
            assert report.ok, (where, str(report))
            if not set(report.orphans) <= there:
                left.append((where, sorted(set(report.orphans) - there)))
    assert len(left) * 20 <= interrupts, (len(left), interrupts, left[:5])
