"""Options of the format that are not honoured here, each with its reason.

One table answers three questions, so that their answers cannot differ: what is refused where an option is set (create,
alter, one use), what a commit to a table that has it refuses, and what a commit only warns of, because the rows it
writes are right all the same. A table that another writer made with such an option opens and is read, but for the few
whose reads would give rows that nobody may see or that are not there (`refuse_reading`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelake.errors import UnsupportedError
from tidelake.spec.option_catalog import KNOWN, current_spelling


class Commits(Enum):
    """What a commit does with a table that has the option."""

    REFUSE = "refuse"
    """The commit would be half done."""
    WARN = "warn"
    """The rows are right; what the option asks for beside them is not done."""
    GO_ON = "go on"
    """The option asks nothing of commits."""


@dataclass(frozen=True, slots=True)
class Unhonoured:
    """One key, the value of it that asks for nothing (in lower case), and why any other is not honoured."""

    key: str
    harmless: str
    reason: str
    commits: Commits = Commits.REFUSE


_PK_INDEX: Final = "indexes of primary-key tables are not written"
_CLUSTERING: Final = "rows are not clustered"
_EXPIRING: Final = "partitions do not expire here"


def _defaults_of(prefix: str, reason: str) -> Iterator[Unhonoured]:
    for entry in KNOWN.values():
        if entry.key.startswith(prefix):
            yield Unhonoured(entry.key, (entry.default or "").lower(), reason, Commits.WARN)


UNHONOURED: Final = (
    Unhonoured("row-tracking.enabled", "false", "rows get no ids"),
    Unhonoured("data-evolution.enabled", "false", "columns are not written apart from each other"),
    Unhonoured("sequence.snapshot-ordering", "false", "versions are ordered by their sequence numbers"),
    Unhonoured("chain-table.enabled", "false", "chain tables are neither read nor written"),
    Unhonoured("visibility-callback.enabled", "false", "no commit waits for others to see it"),
    Unhonoured("metadata.iceberg.storage", "disabled", "metadata of Apache Iceberg is not written"),
    Unhonoured("tag.automatic-creation", "none", "tags are not made by commits"),
    Unhonoured("tag.callbacks", "", "classes are not called after a tag is made", Commits.GO_ON),
    Unhonoured("commit.callbacks", "", "classes are not called after a commit"),
    Unhonoured("data-file.external-paths.strategy", "none", "files are written into the table's folder only"),
    Unhonoured("manifest.format", "avro", "manifests are written in Avro only"),
    Unhonoured("pk-clustering-override", "false", "files are sorted by key only"),
    *(Unhonoured(key, "", _PK_INDEX) for key in KNOWN if key.startswith("pk-") and key.endswith(".index.columns")),
    Unhonoured("type", "table", "tables of another kind are not read or written"),
    Unhonoured("query-auth.enabled", "false", "nobody is asked which rows a reader may see", Commits.WARN),
    Unhonoured("upsert-key", "", "rows are appended, not merged by a key that is not the primary key", Commits.WARN),
    Unhonoured("branch-merge.enabled", "false", "branches are not merged", Commits.WARN),
    Unhonoured("snapshot.watermark-idle-timeout", "", "no snapshot is made because time passes", Commits.WARN),
    Unhonoured("end-input.check-partition-expire", "false", _EXPIRING, Commits.WARN),
    *_defaults_of("clustering.", _CLUSTERING),
    *_defaults_of("partition.expiration-", _EXPIRING),
)

_BY_KEY: Final = {each.key: each for each in UNHONOURED}


def unhonoured(options: Mapping[str, str]) -> Iterator[tuple[str, Unhonoured]]:
    """The options among these that ask for something that is not done, under the spelling they have."""
    for key, value in options.items():
        found = _BY_KEY.get(current_spelling(key))
        if found is not None and value.lower() != found.harmless:
            yield key, found


def refuse_given(given: Mapping[str, str]) -> None:
    """Refuse to set an option that is not honoured.

    Raises:
        UnsupportedError: one is.
    """
    for key, found in unhonoured(given):
        raise _refusal(key, given[key], found.reason, "leave the option out")


def refuse_commit(options: Mapping[str, str]) -> None:
    """Refuse to commit to a table with an option without which the commit would be half done.

    Raises:
        UnsupportedError: it has one.
    """
    for key, found in unhonoured(options):
        if found.commits is Commits.REFUSE:
            hint = "commit to this table with Apache Paimon, or unset the option"
            raise _refusal(key, options[key], found.reason, hint)


def commit_warnings(options: Mapping[str, str]) -> tuple[str, ...]:
    """What a commit leaves undone that options of the table ask for, one sentence for each reason."""
    reasons: dict[str, list[str]] = {}
    for key, found in unhonoured(options):
        if found.commits is Commits.WARN:
            reasons.setdefault(found.reason, []).append(f"`{key}`")
    return tuple(f"committed, but {reason}: option {', '.join(keys)}" for reason, keys in reasons.items())


def refuse_reading(options: Mapping[str, str]) -> None:
    """Refuse to read a table whose rows nobody may see unasked, or that has none of the kind we read.

    Raises:
        UnsupportedError: it is such a table.
    """
    kind = options.get("type", "table")
    if kind.lower() == "object-table":
        raise _refusal("type", kind, "an object table lists files and has no rows of its own", "read the files instead")
    if options.get("query-auth.enabled", "false").lower() == "true":
        reason = "who may see which rows is known to the table's catalog alone"
        raise _refusal("query-auth.enabled", "true", reason, "read this table through its catalog")


def _refusal(key: str, value: str, reason: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"table option is not supported: {reason}", code="option-unsupported", option=key, value=value[:80], hint=hint
    )
