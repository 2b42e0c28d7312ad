"""The progress document of a numbered commit user."""

from __future__ import annotations

import pytest

from tidelake.errors import FormatError
from tidelake.spec.documents.progress import CommitProgress, progress_file_name, progress_from_json, progress_to_json


@pytest.mark.parametrize(
    "progress",
    [
        CommitProgress(user="u"),
        CommitProgress(user="é ", committed=-(2**63), after=7),
        CommitProgress(user="", committed=1, pending=2**63 - 1, after=2**62),
    ],
)
def test_a_document_comes_back(progress):
    assert progress_from_json(progress_to_json(progress), path="p") == progress


def test_what_is_not_known_is_left_out():
    assert b"pending" not in progress_to_json(CommitProgress(user="u", committed=1))


@pytest.mark.parametrize("user", ["job", "job 7", "é", "a.b", "x" * 100])
def test_a_plain_user_gives_the_file_its_name(user):
    assert progress_file_name(user) == f"user-{user}"


@pytest.mark.parametrize("user", ["", "..", "../x", "a/b", "\x00", ".x", "x" * 101, "\ud800", "a\nb", "\\"])
def test_any_other_user_gives_it_a_digest(user):
    name = progress_file_name(user)
    assert name.startswith("hash-")
    assert name.removeprefix("hash-").isalnum()
    assert progress_file_name(user) == name


def test_no_two_users_share_a_file():
    users = ["a", "A", "hash-a", "user-a", "a/b", "a\\b", "", " ", "..", "x" * 101, "x" * 102, "é", "e\u0301"]
    assert len({progress_file_name(user) for user in users}) == len(users)


@pytest.mark.parametrize(
    "data", [b"{}", b'{"user":1}', b'{"user":"u","committed":"1"}', b'{"user":"u","after":1.5}', b"[]", b""]
)
def test_another_document_is_refused(data):
    with pytest.raises(FormatError):
        progress_from_json(data, path="p")
