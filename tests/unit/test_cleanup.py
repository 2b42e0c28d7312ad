from __future__ import annotations

import pytest

from tidelake.cleanup import raise_as_damage, undo_on_error
from tidelake.errors import FormatError, StorageError


class PanicException(BaseException):
    """What a reader in Rust raises; it is known by its name."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_what_was_begun_is_undone_in_turn_and_the_error_goes_on(error: type[BaseException]) -> None:
    done: list[int] = []
    with pytest.raises(error), undo_on_error(lambda: done.append(1), lambda: done.append(2)):
        raise error
    assert done == [1, 2]


def test_nothing_is_undone_without_an_error() -> None:
    done: list[int] = []
    with undo_on_error(lambda: done.append(1)):
        pass
    assert done == []


def fail() -> None:
    raise StorageError("undo failed")


def test_an_error_of_the_undo_goes_on_instead_with_the_first_as_its_context() -> None:
    done: list[int] = []
    with pytest.raises(StorageError) as caught, undo_on_error(fail, lambda: done.append(1)):
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)
    assert done == []


def test_an_error_of_the_undo_may_be_ignored() -> None:
    done: list[int] = []
    with pytest.raises(ValueError, match="first"), undo_on_error(fail, lambda: done.append(1), ignore=(StorageError,)):
        raise ValueError("first")
    assert done == [1]


def damaged(cause: BaseException) -> FormatError:
    return FormatError("damaged", cause=cause)


@pytest.mark.parametrize("error", [ValueError("bad"), MemoryError(), PanicException("bad")])
def test_an_error_of_a_decoder_becomes_damage(error: BaseException) -> None:
    with pytest.raises(FormatError) as caught, raise_as_damage(damaged):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [FormatError("exact"), KeyboardInterrupt()])
def test_what_says_more_goes_on_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, raise_as_damage(damaged):
        raise error
    assert caught.value is error
