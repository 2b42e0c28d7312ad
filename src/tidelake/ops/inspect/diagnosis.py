"""What an operator should look at in a table, and the command that helps.

`diagnose` is pure: it judges facts that were gathered from metadata by thresholds that all are fields of `Thresholds`.
A finding is advice: the table is read and written correctly all the same. What is broken is what `check` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelake.notebook import pluralize

__all__ = ["THRESHOLDS", "ConsumerFact", "Finding", "TableFacts", "TagFact", "Thresholds", "diagnose"]

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where a fact becomes a finding."""

    small_files_in_bucket: int = 10
    """Small files of one partition and bucket that a compaction would join."""
    skew: float = 4.0
    """How many times as large as the median bucket the largest one is."""
    skew_bytes: int = 64 << 20
    """The size below which a bucket is never large."""
    debt_share: float = 0.5
    """Bytes that are due to be compacted, of all bytes."""
    debt_bytes: int = 64 << 20
    """What compactions may owe at most, however large the table is, before the share counts."""
    sorted_runs: int = 20
    """Sorted runs of one bucket, each of which a read has to merge."""
    consumer_behind_ms: int = 7 * _DAY_MS
    """The age of the oldest snapshot that a consumer has still to read."""
    expirable_snapshots: int = 50
    """Snapshots past their retention that are still there."""
    retained_snapshots: int = 1_000
    """Snapshots that are kept, whatever the options say."""
    tag_age_ms: int = 90 * _DAY_MS
    """The age of a tag that is never deleted by itself."""
    small_manifests: int = 30
    """Manifests below half of their target size."""
    manifest_overlap: float = 0.5
    """The share of manifests that a read of one partition has to open."""
    manifests_with_order: int = 8
    """Manifests below which their order does not matter."""


THRESHOLDS: Final = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFact:
    """How far a consumer is behind."""

    name: str
    snapshots_behind: int
    behind_ms: int
    is_lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFact:
    """The age of a tag; `expires` says whether it is deleted by itself."""

    name: str
    age_ms: int
    expires: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What metadata says of a table, as far as a diagnosis needs it."""

    name: str
    is_keyed: bool
    has_fixed_buckets: bool
    is_write_only: bool
    bytes: int = 0
    small_files: int = 0
    """Files far below their target size, in the buckets with many of them."""
    buckets_with_small_files: int = 0
    buckets: int = 0
    """The buckets of the partition that has the largest bucket."""
    median_bucket_bytes: int = 0
    largest_bucket: str = ""
    """The folder of the largest bucket."""
    largest_bucket_bytes: int = 0
    compaction_debt_bytes: int = 0
    sorted_runs: int = 0
    """The sorted runs of the bucket that has most."""
    snapshots: int = 0
    expirable_snapshots: int = 0
    consumers: tuple[ConsumerFact, ...] = field(default=())
    consumers_expire: bool = False
    tags: tuple[TagFact, ...] = field(default=())
    manifests: int = 0
    small_manifests: int = 0
    manifest_overlap: float | None = None
    """The share of manifests that may hold files of one partition, averaged over partitions; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to look at: a stable code, a sentence with the numbers, and the command that helps."""

    code: str
    message: str
    command: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}\n  help: {self.command}"


def diagnose(facts: TableFacts, thresholds: Thresholds = THRESHOLDS) -> tuple[Finding, ...]:
    """The findings, those that slow reads down first."""
    return tuple(finding for judge in _JUDGES for finding in judge(facts, thresholds))


def _judge_compaction(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    debt, share = facts.compaction_debt_bytes, facts.compaction_debt_bytes / max(facts.bytes, 1)
    compact = f"tidelake compact {facts.name}"
    if debt >= limits.debt_bytes and share >= limits.debt_share:
        yield Finding(
            code="compaction-debt",
            message=f"{_megabytes(debt)} are due to be compacted, {share:.0%} of the table"
            + (", and its writers leave that to another job" if facts.is_write_only else ""),
            command=f"tidelake keep-compacted {facts.name}" if facts.is_write_only else compact,
        )
    if facts.sorted_runs >= limits.sorted_runs:
        yield Finding(
            code="sorted-runs",
            message=f"a read merges up to {pluralize(facts.sorted_runs, 'sorted run')} in one bucket",
            command=compact,
        )


def _judge_files(facts: TableFacts, _: Thresholds) -> Iterator[Finding]:
    if facts.small_files:
        where = pluralize(facts.buckets_with_small_files, "bucket")
        yield Finding(
            code="small-files",
            message=f"{pluralize(facts.small_files, 'small file')} in {where} could be joined",
            command=f"tidelake compact {facts.name}",
        )


def _judge_buckets(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    largest, median = facts.largest_bucket_bytes, facts.median_bucket_bytes
    if facts.buckets < 2 or largest < limits.skew_bytes or largest < limits.skew * max(median, 1):
        return
    times = f"{largest / median:.0f} times the median" if median else "while the median bucket is empty"
    yield Finding(
        code="skewed-buckets",
        message=f"{facts.largest_bucket} has {_megabytes(largest)}, {times}",
        command=f"tidelake rescale {facts.name} --buckets N, if one key is not that large by itself"
        if facts.has_fixed_buckets
        else f"tidelake files {facts.name}, to see which keys or partitions are that large",
    )


def _judge_manifests(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    merge, count = f"tidelake call compact_manifest table={facts.name}", pluralize(facts.manifests, "manifest")
    if facts.small_manifests >= limits.small_manifests:
        yield Finding(
            code="many-manifests",
            message=f"{facts.small_manifests:,} of {count} are far below their target size",
            command=merge,
        )
    overlap = facts.manifest_overlap
    if overlap is not None and facts.manifests >= limits.manifests_with_order and overlap > limits.manifest_overlap:
        yield Finding(
            code="unsorted-manifests",
            message=f"a read of one partition opens {overlap:.0%} of {count} on average",
            command=merge,
        )


def _judge_expiry(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    holds = any(each.behind_ms >= limits.consumer_behind_ms for each in facts.consumers)
    if facts.expirable_snapshots >= limits.expirable_snapshots:
        why = (
            ", because its writers are write-only and do not expire them"
            if facts.is_write_only
            else "; a consumer may hold them"
            if holds
            else ""
        )
        yield Finding(
            code="missing-expiry",
            message=f"{pluralize(facts.expirable_snapshots, 'snapshot')} are past their retention{why}",
            command=f"tidelake expire {facts.name}",
        )
    elif facts.snapshots >= limits.retained_snapshots:
        yield Finding(
            code="many-snapshots",
            message=f"the options keep {pluralize(facts.snapshots, 'snapshot')} with all their files",
            command=f"tidelake expire {facts.name} --older-than '1 d', and a shorter snapshot.time-retained",
        )


def _judge_consumers(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    for each in facts.consumers:
        if not each.is_lost and each.behind_ms < limits.consumer_behind_ms:
            continue
        late = f"{pluralize(each.snapshots_behind, 'snapshot')} and {_days(each.behind_ms)}"
        state = "reads a snapshot that has expired" if each.is_lost else f"is {late} behind, and keeps all of them"
        yield Finding(
            code="stale-consumer",
            message=f"consumer {each.name} {state}"
            + ("" if facts.consumers_expire else "; consumer.expiration-time is not set"),
            command=f"tidelake consumers {facts.name} --forget {each.name}, or --set to a newer snapshot",
        )


def _judge_tags(facts: TableFacts, limits: Thresholds) -> Iterator[Finding]:
    old = [each for each in facts.tags if not each.expires and each.age_ms >= limits.tag_age_ms]
    if old:
        oldest = max(old, key=lambda each: each.age_ms)
        names = ", ".join(each.name for each in old[:5]) + (" …" if len(old) > 5 else "")
        yield Finding(
            code="long-lived-tags",
            message=f"{pluralize(len(old), 'tag')} keep files of up to {_days(oldest.age_ms)} ago: {names}",
            command=f"tidelake tag delete {facts.name} {oldest.name} --plan, to see what it holds",
        )


_JUDGES: Final[tuple[Callable[[TableFacts, Thresholds], Iterator[Finding]], ...]] = (
    _judge_compaction,
    _judge_files,
    _judge_buckets,
    _judge_manifests,
    _judge_expiry,
    _judge_consumers,
    _judge_tags,
)


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MB"


def _days(time_ms: int) -> str:
    return pluralize(time_ms // _DAY_MS, "day")
