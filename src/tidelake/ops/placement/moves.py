"""Decides where rows go whose keys may be in another partition; for a whole batch, with the same result as row by row.

An unknown key gets a bucket in the partition of its row. A key that is known in this partition goes to its bucket. If a
key is in another partition, it moves (`deduplicate`: a deletion in the old bucket, then a new key), or the row follows
the key (`partial-update`, `aggregation`: the row gets the old partition columns), or the row is dropped (`first-row`).

Invariant: rows of one key keep their order, and a deletion comes before the row that follows it. After the rows that
come out, the key is in exactly one bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from tidelake.lsm.engines.build import MergeEngine

__all__ = ["Moves", "Policy", "known_place", "plan_moves", "policy_of"]

Ints = np.ndarray[Any, Any]
Allocate = Callable[[Ints, Ints], Ints]
"""Returns the buckets of new keys: of rows (by number, in the order of arrival) in partitions (by number)."""

_BUCKET_BITS: Final = 15
"""Dynamic buckets end at 32766."""


class Policy(Enum):
    """What happens to a row whose key is in another partition."""

    MOVES = "moves"
    STAYS = "stays"
    LOSES = "loses"


def policy_of(engine: MergeEngine) -> Policy:
    """The policy of a merge engine."""
    match engine:
        case MergeEngine.DEDUPLICATE:
            return Policy.MOVES
        case MergeEngine.FIRST_ROW:
            return Policy.LOSES
        case MergeEngine.PARTIAL_UPDATE | MergeEngine.AGGREGATION:
            return Policy.STAYS


def known_place(partitions: Any, buckets: Any) -> Any:
    """Encode partition and bucket numbers as one number, which an index stores for a key."""
    return (partitions << _BUCKET_BITS) | buckets


def parts_of(places: Ints) -> tuple[Ints, Ints]:
    """The partition and bucket numbers of encoded places; -1 and -1 for an unknown place (-1)."""
    unknown = places < 0
    return np.where(unknown, -1, places >> _BUCKET_BITS), np.where(unknown, -1, places & ((1 << _BUCKET_BITS) - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """The rows that come out of a batch, in their order."""

    rows: Ints
    """The row of the batch that each is a copy of."""
    deletes: Ints
    """Whether it is a deletion in the bucket that its key leaves."""
    partitions: Ints
    buckets: Ints
    places: Ints
    """The place of each distinct key of the batch afterwards."""
    left: Ints
    """The places that keys have left, one entry per key."""


def plan_moves(keys: Ints, known: Ints, partitions: Ints, policy: Policy, allocate: Allocate) -> Moves:
    """Decide where the rows of a batch go.

    Args:
        keys: The number of each row's key: 0, 1, … among the distinct keys of the batch.
        known: The place of each of these keys; -1 if the key is new.
        partitions: The partition of each row, by number.
        policy: What happens to a row whose key is in another partition.
        allocate: Finds buckets for new keys; called once.
    """
    order = np.argsort(keys, kind="stable")
    firsts = np.ones(len(order), np.bool_)
    firsts[1:] = keys[order[1:]] != keys[order[:-1]]
    here = partitions[order]
    home, home_bucket = parts_of(known[keys[order]])
    if policy is Policy.MOVES:
        before = np.where(firsts, home, np.roll(here, 1))
        fresh = before != here
    else:
        starts = np.flatnonzero(firsts)
        target = np.where(home < 0, here[starts[np.cumsum(firsts) - 1]], home)
        before, fresh = target, firsts & (home < 0)
        here = target
    buckets = _fill_buckets(order, firsts, fresh, here, home_bucket, allocate)
    lasts = np.append(firsts[1:], True)[: len(firsts)]
    places = known_place(here[lasts], buckets[lasts])
    if policy is not Policy.MOVES:
        kept = np.ones(len(order), np.bool_) if policy is Policy.STAYS else partitions[order] == here
        rank = np.sort(order[kept])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        at = back[rank]
        none = np.zeros(len(rank), np.bool_)
        return Moves(rank, none, here[at], buckets[at], places, np.empty(0, np.int64))
    moved = fresh & (before >= 0)
    left = np.where(firsts, home_bucket, np.roll(buckets, 1))[moved]
    rows = np.concatenate([order[moved], order])
    deletes = np.repeat([True, False], [int(moved.sum()), len(order)])
    sort = np.argsort(rows * 2 + ~deletes)
    return Moves(
        rows[sort],
        deletes[sort],
        np.concatenate([before[moved], here])[sort],
        np.concatenate([left, buckets])[sort],
        places,
        known_place(before[moved], left),
    )


def _fill_buckets(order: Ints, firsts: Ints, fresh: Ints, here: Ints, home_bucket: Ints, allocate: Allocate) -> Ints:
    """The bucket of each row, in the order of keys: a new one if it is fresh, else that of the version before it."""
    buckets = np.where(firsts & ~fresh, home_bucket, -1)
    new = np.flatnonzero(fresh)
    if len(new):
        arrival = new[np.argsort(order[new])]
        buckets[arrival] = allocate(order[arrival], here[arrival])
    # The first version of a key always has a bucket, so none is carried over from one key to the next.
    source = np.maximum.accumulate(np.where(buckets >= 0, np.arange(len(buckets)), 0))
    return buckets[source]
