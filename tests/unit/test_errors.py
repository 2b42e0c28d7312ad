"""The exception tree: every class pickles, has a stable code, and prints message, facts and help in that order."""

from __future__ import annotations

import inspect
import pickle

import pytest

from tidelake import errors
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError, TidelakeError

TREE = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, TidelakeError)]
CODES = {
    "TidelakeError": "error",
    "InvalidInputError": "invalid-input",
    "NotFoundError": "not-found",
    "CommitConflictError": "commit-conflict",
    "CommitUnknownError": "commit-unknown",
    "StorageError": "storage",
    "FormatError": "format",
    "UnsupportedError": "unsupported",
    "InternalError": "internal",
}


def test_the_tree_is_the_one_that_is_documented() -> None:
    assert {cls.__name__ for cls in TREE} == set(CODES) == set(errors.__all__)
    assert errors.__doc__ is not None
    for name in CODES:
        assert name in errors.__doc__


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_all_it_says(cls: type[TidelakeError]) -> None:
    error = cls("snapshot was taken", code="taken", hint="plan again", snapshot_id=42, path="a/b")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (again.message, again.code, again.hint) == ("snapshot was taken", "taken", "plan again")
    assert again.facts == {"snapshot_id": "42", "path": "a/b"}
    assert str(again) == str(error)


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
def test_every_class_has_its_own_default_code(cls: type[TidelakeError]) -> None:
    assert cls("it failed").code == CODES[cls.__name__]
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
def test_a_pickled_error_without_hint_or_facts_stays_bare(cls: type[TidelakeError]) -> None:
    again = pickle.loads(pickle.dumps(cls("it failed")))
    assert str(again) == "it failed"
    assert again.hint is None
    assert again.facts == {}


def test_text_is_the_message_then_the_facts_then_the_help() -> None:
    error = CommitConflictError("snapshot id was taken by another writer", snapshot_id=42, attempts=3, hint="try again")
    assert str(error) == ("snapshot id was taken by another writer. snapshot_id=`42`, attempts=`3`\nhelp: try again")


def test_facts_that_are_none_are_left_out_and_others_are_rendered_at_once() -> None:
    values = [1, 2]
    error = TidelakeError("it failed", path=None, values=values)
    values.append(3)
    assert error.facts == {"values": "[1, 2]"}


def test_errors_are_also_the_builtin_that_a_caller_would_catch() -> None:
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(StorageError, OSError)
    with pytest.raises(OSError, match="disk is full"):
        raise StorageError("disk is full", path="x")


def test_a_storage_error_prints_as_ours_and_not_as_an_os_error() -> None:
    error = StorageError("disk is full", path="x")
    assert str(error) == "disk is full. path=`x`"
    assert error.errno is None


def test_a_fact_may_be_named_as_an_argument_of_ours_is_not() -> None:
    error = TidelakeError("it failed", message="m", cls="c", self_="s")
    assert error.facts == {"message": "m", "cls": "c", "self_": "s"}
    assert pickle.loads(pickle.dumps(error)).facts == error.facts


def test_what_a_terminal_would_obey_is_escaped_and_what_people_write_is_not() -> None:
    hostile = "a\x1b[2J\r\nb\u2028\u202ec\ud800"
    error = StorageError("file is gone", path=hostile, name="Ümläut 東京 'x'", hint=f"look at {hostile}")
    assert error.facts == {"path": r"a\x1b[2J\r\nb\u2028\u202ec\ud800", "name": "Ümläut 東京 'x'"}
    assert str(error).count("\n") == 1
    assert all(each.isprintable() for line in str(error).splitlines() for each in line)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    str(error).encode()
