"""Marking partitions done, for jobs that wait for complete partitions: by a `_SUCCESS` file, or a report over HTTP.

Both can be repeated: a marker keeps its creation time, and a receiver of reports may get one twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.io.clock import Clock
from tidelake.io.fileio import FileIO
from tidelake.options import Affects, OptionGroup, option
from tidelake.spec.documents.success import Success, mark_success, success_from_json, success_to_json
from tidelake.spec.layout import TableLayout
from tidelake.store.table_store import TableStore

__all__ = ["Action", "MarkDoneOptions", "check_mark_done", "mark_done", "run_mark_done"]

_BOTH: Final = (Affects.WRITE, Affects.MAINTENANCE)
_ACTION: Final = "partition.mark-done-action"
_URL: Final = "partition.mark-done-action.http.url"


class Action(Enum):
    """What marks a partition done."""

    SUCCESS_FILE = "success-file"
    DONE_PARTITION = "done-partition"
    MARK_EVENT = "mark-event"
    HTTP_REPORT = "http-report"
    CUSTOM = "custom"


_REFUSED: Final = {
    Action.DONE_PARTITION: "the catalog of this table registers no partitions",
    Action.MARK_EVENT: "the catalog of this table takes no events",
    Action.CUSTOM: "classes of Java are not run",
}
"""Actions that are not supported, and why. Paimon refuses the first two too where a catalog has no metastore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDoneOptions(OptionGroup):
    """What marks a partition done, and when."""

    at_end: bool = option(
        "partition.end-input-to-done",
        False,
        doc="Mark the partitions that a batch commit wrote to as done.",
        affects=(Affects.WRITE,),
    )
    action_names: str = option(
        _ACTION,
        Action.SUCCESS_FILE.value,
        doc="What marks a partition done: success-file, http-report, or both, separated by commas.",
        affects=_BOTH,
    )
    url: str | None = option(_URL, None, doc="Where http-report posts its reports.", affects=_BOTH)
    params: str | None = option(
        "partition.mark-done-action.http.params",
        None,
        doc="A text that every report of http-report carries as `params`.",
        affects=_BOTH,
    )

    @property
    def actions(self) -> tuple[Action, ...]:
        """What marks a partition done, each action once.

        Raises:
            InvalidInputError: an action does not exist.
        """
        names = [each.strip().lower().replace("_", "-") for each in self.action_names.split(",")]
        try:
            return tuple(dict.fromkeys(Action(name) for name in names))
        except ValueError as cause:
            raise InvalidInputError(
                "action that marks partitions done does not exist",
                code="option-value",
                option=_ACTION,
                value=self.action_names[:80],
                hint=f"use {', '.join(each.value for each in Action if each not in _REFUSED)}",
            ) from cause


def check_mark_done(options: MarkDoneOptions) -> None:
    """Refuse actions that cannot be done here, before the first of them.

    Raises:
        InvalidInputError: an action does not exist, or has no address to report to.
        UnsupportedError: an action is not supported.
    """
    for action in options.actions:
        if action in _REFUSED:
            raise UnsupportedError(
                f"action that marks partitions done is not supported: {_REFUSED[action]}",
                code="option-unsupported",
                option=_ACTION,
                value=action.value,
                hint="use success-file or http-report",
            )
    if Action.HTTP_REPORT in options.actions and not (options.url or "").startswith(("http://", "https://")):
        raise InvalidInputError(
            "http-report needs the address that it reports to",
            code="option-value",
            option=_URL,
            hint=f"set {_URL} to an address that begins with http:// or https://",
        )


def run_mark_done(store: TableStore, table: str, options: MarkDoneOptions, partition_paths: Sequence[str]) -> None:
    """Do the actions of the options for each partition, given as the path of its folder.

    Raises:
        InvalidInputError: an action does not exist, or has no address to report to.
        UnsupportedError: an action is not supported.
        StorageError: the storage failed, or a report was not accepted; partitions before that one are marked.
    """
    check_mark_done(options)
    for partition in partition_paths:
        for action in options.actions:
            if action is Action.SUCCESS_FILE:
                mark_done(store.env.io, store.layout, [partition], store.env.clock)
            else:
                _report(store, table, options, partition)


def mark_done(io: FileIO, layout: TableLayout, partition_paths: Sequence[str], clock: Clock) -> list[str]:
    """Write or refresh the marker of each partition and return the paths written.

    A marker that is there keeps its creation time; a damaged one is replaced.
    """
    written = []
    for partition in partition_paths:
        path = layout.success_path(partition)
        previous: Success | None = None
        with suppress(NotFoundError, FormatError):
            previous = success_from_json(io.read(path, limit=1 << 16), path=path)
        io.overwrite(path, success_to_json(mark_success(previous, time_ms=clock.now_ms())))
        written.append(path)
    return written


def _report(store: TableStore, table: str, options: MarkDoneOptions, partition: str) -> None:
    from tidelake.io.http import post_json  # the client takes long to load

    assert options.url is not None
    report = {"partition": f"{partition}/", "table": table, "path": store.env.io.root, "params": options.params}
    result = post_json(options.url, report).get("result")
    if not isinstance(result, str) or result.upper() != "SUCCESS":
        raise StorageError(
            "receiver of the report did not accept it",
            code="report-refused",
            partition=partition,
            result=repr(result)[:80],
            hint="look into its log; the partition can be marked done again",
        )
