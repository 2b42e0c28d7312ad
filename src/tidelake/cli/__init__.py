"""The command line: a face that decides nothing.

`main` is the entry point. It maps errors to exit codes: 0 done, 1 the user's mistake, 2 the table's or the storage's
fault, 3 a bug of ours. Everything but click is imported by the command that needs it, so that `--help` is instant.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from tidelake.errors import (
    CommitConflictError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    TidelakeError,
    UnsupportedError,
)

INTERRUPTED = 130
"""What a shell expects of a command that was stopped with Ctrl-C."""

_USER_ERRORS = (InvalidInputError, NotFoundError, UnsupportedError, CommitConflictError)


def exit_code(error: BaseException) -> int:
    """The exit code that tells whose fault an error is."""
    if isinstance(error, _USER_ERRORS):
        return 1
    if isinstance(error, TidelakeError) and not isinstance(error, InternalError):
        return 2
    return 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, having told what went wrong on standard error."""
    import click

    from tidelake.cli.commands import cli

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            answer = cli.main(arguments, prog_name="tidelake", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return 1
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What Python would still flush at the end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TidelakeError as error:
        return _told(error)
    except Exception as error:  # noqa: BLE001 - a face: whatever it is, it is our bug and is told as such
        return _told(error)
    return answer if isinstance(answer, int) else 0


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning in the words of the command line, without the line of our code that gave it."""
    from tidelake.notebook import plain

    sys.stderr.write(f"warning: {plain(message)}\n")


WORDS = {
    "reset_consumer()": "`tidelake consumers --set` or `--forget`",
    "check() of the table": "`tidelake check`",
    "compact() of the table": "`tidelake compact`",
    "rescale()": "`tidelake rescale`",
    "changes()": "`tidelake diff`",
    "inspect.snapshots()": "`tidelake snapshots`",
    "inspect.tags()": "`tidelake tag list`",
    "inspect.files()": "`tidelake files`",
    "where=": "--where",
    "partitions=": "--partition",
    "bucket_num=": "--buckets",
}
"""What errors of the library call by its name in Python, by its name here."""


def in_our_words(text: str) -> str:
    """The text of an error with commands in the place of methods."""
    for python, ours in WORDS.items():
        text = text.replace(python, ours)
    return text


def _told(error: Exception) -> int:
    from tidelake.notebook import plain

    code = exit_code(error)
    if code == 3:
        import traceback

        traceback.print_exception(error)
        sys.stderr.write("this is a bug in tidelake: please report it with the lines above\n")
    else:
        head, mark, hint = str(error).partition("\nhelp: ")
        text = head + mark + in_our_words(hint)
        sys.stderr.write("error: " + "\n".join(plain(line) for line in text.splitlines()) + "\n")
    return code
