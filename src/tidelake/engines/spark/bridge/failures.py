"""Bring the error of a task to the user as itself, not as a Java stack trace.

A task that reports to the driver returns its error as a value, because Spark would retry the task if it raised, and a
retry cannot help. A task that only sends rows on has no such way, and after a storage failure a retry may help: then
the error is raised with its parts encoded in the text, because the text is all that Spark keeps. The parts are decoded
as plain text, never unpickled: the text may come from anywhere.
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
_NO_MODULE: Final = re.compile(r"No module named '(tidelake|pyarrow|polars|numpy|msgspec|fastavro|obstore)[.\w]*'")
_CARRIED: Final = re.compile(r"tidelake-error<([A-Za-z0-9+/=]+)>")


def log_warnings(table: str, warnings: Iterable[str]) -> None:
    """Log what failed after a commit, because most Spark jobs never look at the result of a write."""
    for warning in warnings:
        _LOG.warning("%s: %s", table, warning)


class CarriedError(RuntimeError):
    """An error encoded in the text of an exception, to survive Spark."""

    def __init__(self, error: TidelakeError) -> None:
        parts = [type(error).__name__, error.message, error.code, error.hint, error.facts]
        packed = base64.b64encode(json.dumps(parts).encode()).decode("ascii")
        super().__init__(f"{error}\ntidelake-error<{packed}>")
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return CarriedError, (self.error,)


@contextmanager
def wrap_task_errors(kind: type[TidelakeError] = TidelakeError) -> Iterator[None]:
    """Wrap the errors of a task that cannot return them, so that `unwrap_task_errors` finds them on the driver.

    Args:
        kind: Which errors are wrapped.

    Raises:
        CarriedError: the work failed with such an error.
    """
    try:
        yield
    except kind as error:
        raise CarriedError(error) from error


@contextmanager
def unwrap_task_errors() -> Iterator[None]:
    """Raise the error that a task of a job wrapped, instead of Spark's own.

    Raises:
        TidelakeError: a task failed with it at every attempt.
        InvalidInputError: the Python that runs the tasks does not have this package or one that it needs.
    """
    try:
        yield
    except PySparkException as failure:
        error = parse_carried_error(str(failure)) or missing_package_error(str(failure))
        if error is None:
            raise
        raise error from None


def parse_carried_error(text: str) -> TidelakeError | None:
    """Decode the error in the text of an exception; None if there is none."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        name, message, code, hint, facts = json.loads(base64.b64decode(found.group(1), validate=True))
        kind = getattr(errors, name) if name in errors.__all__ else TidelakeError
        error: TidelakeError = kind(message, code=code, hint=hint)
        error.facts = {str(key): str(value) for key, value in facts.items()}
    except (ValueError, TypeError, AttributeError):
        return None  # the text only looks like ours
    return error


def missing_package_error(text: str) -> TidelakeError | None:
    """The error to raise if the text says that the Python of the workers does not have one of our packages."""
    found = _NO_MODULE.search(text)
    if found is None:
        return None
    return InvalidInputError(
        "Python of the Spark workers does not have a package that tidelake needs",
        code="worker-package",
        package=found.group(1),
        hint="install tidelake in the Python that spark.pyspark.python names, on every worker, or send an environment"
        " that has it with spark.archives",
    )


def run_or_return_error(work: Callable[[], T]) -> T | TidelakeError:
    """Return the result of the work, or its error where a retry of the task would not help.

    Raises:
        CarriedError: the storage failed, and Spark may retry the task.
    """
    try:
        with wrap_task_errors(StorageError):
            return work()
    except TidelakeError as error:
        return error
