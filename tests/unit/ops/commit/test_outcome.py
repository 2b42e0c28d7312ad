"""What an interrupt says of the snapshots that were published before it."""

from __future__ import annotations

from tidelake.ops.commit.outcome import name_published


def test_an_interrupt_names_every_published_snapshot_once() -> None:
    """The write and the compaction that shows its rows are published one after the other."""
    interrupt = KeyboardInterrupt()
    name_published(interrupt, [6])
    name_published(interrupt, [5, 6])
    name_published(interrupt, [5])
    notes = interrupt.__notes__
    assert [note.partition(":")[0].rpartition(" ")[2] for note in notes] == ["6", "5"]
