"""The command line: a face that decides nothing.

`main` is the entry point. It maps errors to exit codes: 0 done, 1 the user's mistake, 2 the table's or the storage's
fault, 3 a bug of ours. Everything but click is imported by the command that needs it, so that `--help` is instant.
"""

from __future__ import annotations

import sys

from tidelake.errors import (
    CommitConflictError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    TidelakeError,
    UnsupportedError,
)

_USER_ERRORS = (InvalidInputError, NotFoundError, UnsupportedError, CommitConflictError)


def exit_code(error: BaseException) -> int:
    """The exit code that tells whose fault an error is."""
    if isinstance(error, _USER_ERRORS):
        return 1
    if isinstance(error, TidelakeError) and not isinstance(error, InternalError):
        return 2
    return 3


def main() -> None:
    """Run the command line and exit."""
    from tidelake.cli.commands import cli

    try:
        cli.main(standalone_mode=True)
    except TidelakeError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(exit_code(error))
