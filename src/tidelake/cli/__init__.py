"""The command line. It parses, asks and prints; every decision about a table is made by the library.

`main` is the entry point. It maps errors to exit codes: 0 success, 1 the user's mistake, 2 a fault of the table or
the storage, 3 a bug in tidelake. Each command imports what it needs besides click, so that `--help` is instant.

Commands:
    commands      the list of all commands, in the order of `--help`
    looking       list, show and explain tables, rows and keys
    system        print system tables, and set options
    defining      create, alter and drop databases and tables
    exporting     count rows, and write them to files
    following     show what was committed and what changed
    writing       write, delete and update rows
    compacting    compact and rescale
    upkeep        vectors, manifests, missing files, purge, copy, repair
    maintenance   expire, remove orphans, roll back, analyze, check
    partitions    expire partitions, mark them done
    refs          tags, branches and consumers
    calling       Paimon's procedures by name
    doctor        check this machine and the storage, diagnose a table
    demo          the demo
    demo_stream   its last part, a process with two streams that is killed

Shared by them:
    place         which lake, table and point in time is meant, and how a command asks before it changes anything
    config        the settings file
    source        rows of files and of standard input
    output        tables, plain text and JSON
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence

from tidelake.errors import (
    CommitConflictError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    TidelakeError,
    UnsupportedError,
)

INTERRUPTED = 130
"""The exit code that shells expect of a command that was stopped with Ctrl-C."""

warnings_seen: list[str] = []
"""Warnings of this run that are not part of a result, such as one about an unknown option."""
_USER_ERRORS = (InvalidInputError, NotFoundError, UnsupportedError, CommitConflictError)


def exit_code(error: BaseException) -> int:
    """The exit code of an error, which shows whose fault it is."""
    if isinstance(error, _USER_ERRORS):
        return 1
    if isinstance(error, TidelakeError) and not isinstance(error, InternalError):
        return 2
    return 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; errors are reported on standard error."""
    warnings_seen.clear()
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(arguments)
    except BaseException as error:  # noqa: BLE001 - the outermost call: every error becomes an exit code
        causes = list(_causes(error))
        stopped = next((each for each in causes if isinstance(each, KeyboardInterrupt)), None)
        if stopped is not None or type(error).__name__ == "Abort":
            return _report_interrupt(stopped)
        # click itself swallows a pipe that broke, wraps the streams and exits with 1.
        swallowed = isinstance(error, SystemExit) and type(sys.stdout).__name__.endswith("PacifyFlushWrapper")
        if swallowed or any(isinstance(each, BrokenPipeError) for each in causes):
            # The reader (`| head`) has seen enough. What Python would still flush at the end goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else 1
        return _report_error(error, as_json=as_json)


def _run(arguments: Sequence[str] | None) -> int:
    from tidelake.cli.commands import cli

    with warnings.catch_warnings():
        warnings.showwarning = _warn
        answer = cli.main(arguments, prog_name="tidelake", standalone_mode=False)
    sys.stdout.flush()
    return answer if isinstance(answer, int) else 0


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes: Python and click wrap an interrupt, or a broken pipe, in errors of their own."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        # An explicit cause always counts; a context counts only for errors that merely wrap another one.
        wraps = isinstance(seen, SystemExit | RuntimeError | SystemError) or type(seen).__name__ == "Abort"
        seen = seen.__cause__ or (seen.__context__ if wraps else None)


def _report_interrupt(interrupt: BaseException | None) -> int:
    """Report an interrupt, with its note if it has one: that the commit is published all the same."""
    for text in getattr(interrupt, "__notes__", ()):
        sys.stderr.write(f"{text}\n")
    sys.stderr.write("stopped\n")
    return INTERRUPTED


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of our code that issued it."""
    from tidelake.notebook import plain

    warnings_seen.append(str(message))
    sys.stderr.write(f"warning: {plain(message)}\n")


WORDS = {
    "reset_consumer()": "`tidelake consumers --set` or `--forget`",
    "check() on the table": "`tidelake check`",
    "compact() of the table": "`tidelake compact`",
    "rescale()": "`tidelake rescale`",
    "changes()": "`tidelake diff`",
    "inspect.snapshots()": "`tidelake snapshots`",
    "inspect.tags()": "`tidelake tag list`",
    "inspect.files()": "`tidelake files`",
    "run check()": "run `tidelake check`",
    "compact()": "`tidelake compact`",
    "use delete()": "use `tidelake delete`",
    "create one with create_tag": "create one with `tidelake tag create`",
    "where=": "--where",
    "partitions=": "--partition",
    "bucket_num=": "--buckets",
    "pass commit_user= too": "give --commit-user too",
    'set mode="overwrite"': "say --mode overwrite",
    "retain_max": "--retain-max",
    "retain_min": "--retain-min",
    'write [0, 2] or "0,2-5"': "write 0,2-5",
}
"""Names of methods and arguments in the library's errors, and what a user types here instead."""


_ARGUMENTS = ("max_deletes", "max_rounds", "older_than")
"""Facts of errors that are arguments in Python and options of commands."""


def in_our_words(text: str) -> str:
    """The text of an error with commands and options instead of methods and arguments."""
    for python, ours in WORDS.items():
        text = text.replace(python, ours)
    for name in _ARGUMENTS:
        text = text.replace(f" {name}=`", f" --{name.replace('_', '-')}=`")
    return text


def _report_error(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong on standard error, and with `--json` also as a document on standard output."""
    import click

    from tidelake.notebook import plain

    if isinstance(error, click.ClickException):
        error.show()
        code, document = 1, _document("usage", error.format_message())
    elif exit_code(error) == 3:
        import traceback

        traceback.print_exception(error)
        sys.stderr.write("this is a bug in tidelake: please report it with the lines above\n")
        code, document = 3, _document("internal", str(error) or type(error).__name__)
    else:
        assert isinstance(error, TidelakeError)
        # The arguments of a procedure keep Paimon's names here too.
        say = str if "procedure" in error.facts else in_our_words
        text = say(str(error))
        sys.stderr.write("error: " + "\n".join(plain(line) for line in text.splitlines()) + "\n")
        facts = {name: str(value) for name, value in error.facts.items()}
        hint = say(error.hint) if error.hint else None
        code, document = exit_code(error), _document(error.code, say(error.message), facts, hint)
    if as_json:
        from tidelake.cli.output import print_json

        print_json({"error": document})
    return code


def _document(
    code: str | None, message: str, facts: dict[str, str] | None = None, hint: str | None = None
) -> dict[str, object]:
    """An error for programs: its code, its facts by name, and the hint."""
    return {"code": code, "message": message, "facts": facts or {}, "help": hint}
