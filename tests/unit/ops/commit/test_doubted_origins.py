"""A job whose state was set back is noticed: a number that is published comes again with other rows, or may."""

from __future__ import annotations

import pytest

from kit.small_tables import committer, message, new_table
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.progress import doubts_origin
from tidelake.spec.documents.progress import CommitProgress


@pytest.mark.parametrize(
    ("identifier", "origin", "doubted"),
    [
        (1, "a", False),
        (1, "x", True),
        (1, None, True),
        (0, "x", True),
        (0, None, True),
        (2, "b", False),
        (2, "x", True),
        (2, None, False),  # a job repeats its newest commit after a crash
    ],
)
def test_a_number_is_doubted_unless_the_same_rows_come_again(identifier: int, origin: str | None, doubted: bool):
    progress = CommitProgress(user="u", committed=2, origins=((1, "a"), (2, "b")))
    assert doubts_origin(progress, None, identifier, origin) is doubted


@pytest.mark.parametrize(("origins", "doubted"), [((), False), (((1, "a"),), True)])
def test_the_newest_number_is_doubted_if_only_others_have_an_origin(
    origins: tuple[tuple[int, str], ...], doubted: bool
):
    progress = CommitProgress(user="u", committed=2, origins=origins)
    assert doubts_origin(progress, None, 2, "b") is doubted
    assert not doubts_origin(progress, None, 2, None)


def test_a_job_that_cannot_read_its_checkpoint_notices_that_it_was_set_back():
    """An unknown origin was never doubted: the rows of the job were left out without a word."""
    ours = committer(new_table())
    for number in (1, 2):
        ours.commit(Committable(messages=(message(f"file-{number}"),), identifier=number, origin=f"o{number}"))
    assert [ours.doubts_origin(number, None) for number in (1, 2)] == [True, False]
