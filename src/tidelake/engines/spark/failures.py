"""How an error of a task reaches the user as what it is, and not as a stack of another language.

A task that can return something returns its error: Spark does not try again what is hopeless. Where it cannot, or
where trying again may help, the error is raised with its parts inside its text, because the text is all that Spark
keeps. The parts are plain text again: what a text says is never run.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pyspark.errors import PySparkException

from tidelake import errors
from tidelake.errors import InvalidInputError, StorageError, TidelakeError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_LACKING: Final = re.compile(r"No module named '(tidelake|pyarrow|polars|numpy|msgspec|fastavro|obstore)[.\w]*'")
_CARRIED: Final = re.compile(r"tidelake-error<([A-Za-z0-9+/=]+)>")


def log_warnings(table: str, warnings: Iterable[str]) -> None:
    """Log what could not be done after a commit: many a job on Spark never looks at what a write returns."""
    for warning in warnings:
        _LOG.warning("%s: %s", table, warning)


class CarriedError(RuntimeError):
    """An error on its way through Spark."""

    def __init__(self, error: TidelakeError) -> None:
        parts = [type(error).__name__, error.message, error.code, error.hint, error.facts]
        packed = base64.b64encode(json.dumps(parts).encode()).decode("ascii")
        super().__init__(f"{error}\ntidelake-error<{packed}>")
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return CarriedError, (self.error,)


@contextmanager
def carrying() -> Iterator[None]:
    """Around the work of a task that sends rows on and so has no way to return an error.

    Raises:
        CarriedError: the work failed.
    """
    try:
        yield
    except TidelakeError as error:
        raise CarriedError(error) from error


@contextmanager
def told_as_it_was() -> Iterator[None]:
    """Around a job: an error that one of its tasks carried comes out as itself.

    Raises:
        TidelakeError: a task failed with it, every time that Spark tried.
        InvalidInputError: the Python that runs the tasks lacks this package or one that it needs.
    """
    try:
        yield
    except PySparkException as failure:
        error = carried(str(failure)) or lacking(str(failure))
        if error is None:
            raise
        raise error from None


def carried(text: str) -> TidelakeError | None:
    """The error that a text carries."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        name, message, code, hint, facts = json.loads(base64.b64decode(found.group(1), validate=True))
        kind = getattr(errors, name) if name in errors.__all__ else TidelakeError
        error: TidelakeError = kind(message, code=code, hint=hint)
        error.facts = {str(key): str(value) for key, value in facts.items()}
    except (ValueError, TypeError, AttributeError):
        return None  # somebody else's text
    return error


def lacking(text: str) -> TidelakeError | None:
    """The error for a worker whose Python does not have what tasks are made of."""
    found = _LACKING.search(text)
    if found is None:
        return None
    return InvalidInputError(
        "Python of the Spark workers lacks a package",
        code="worker-package",
        package=found.group(1),
        hint="install tidelake in the Python that spark.pyspark.python names, on every worker, or send an environment"
        " that has it with spark.archives",
    )


def outcome(work: Callable[[], T]) -> T | TidelakeError:
    """What the work returns, or the error that trying again cannot help.

    Raises:
        CarriedError: the storage failed, and Spark may try again.
    """
    try:
        return work()
    except StorageError as error:
        raise CarriedError(error) from error
    except TidelakeError as error:
        return error
