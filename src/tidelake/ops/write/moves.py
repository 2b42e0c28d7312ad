"""What becomes of rows whose keys may live in another partition: decided for a batch at once, as row by row would.

A key that is not known gets a bucket in the partition of its row. One that is known there goes to its bucket. One that
lives elsewhere moves (`deduplicate`: a deletion to where it was, then a new key), pulls the row to where it is
(`partial-update`, `aggregation`: the row gets the partition columns of old), or wins over the row (`first-row`).

Invariant: of the rows that come out, those of one key keep their order, and a deletion stands before the row that
follows it. After them the key is in exactly one place.
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
"""The buckets of new keys: of rows (by number, in the order of arrival) in partitions (by number)."""

_BUCKET_BITS: Final = 15
"""Dynamic buckets end at 32766."""


class Policy(Enum):
    """What a row does whose key lives in another partition."""

    MOVES = "moves"
    STAYS = "stays"
    LOSES = "loses"


def policy_of(engine: MergeEngine) -> Policy:
    """What the merge engine makes of it."""
    match engine:
        case MergeEngine.DEDUPLICATE:
            return Policy.MOVES
        case MergeEngine.FIRST_ROW:
            return Policy.LOSES
        case MergeEngine.PARTIAL_UPDATE | MergeEngine.AGGREGATION:
            return Policy.STAYS


def known_place(partitions: Any, buckets: Any) -> Any:
    """Partitions and buckets, by number, as one number each: what an index remembers of a key."""
    return (partitions << _BUCKET_BITS) | buckets


def parts_of(places: Ints) -> tuple[Ints, Ints]:
    """The partition and the bucket of each place; -1 and -1 where it is not known (-1)."""
    unknown = places < 0
    return np.where(unknown, -1, places >> _BUCKET_BITS), np.where(unknown, -1, places & ((1 << _BUCKET_BITS) - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """The rows that come out of a batch, in their order."""

    rows: Ints
    """The row of the batch that each is a copy of."""
    deletes: Ints
    """Whether it is the deletion of where its key was."""
    partitions: Ints
    buckets: Ints
    places: Ints
    """Where each distinct key of the batch is afterwards."""
    left: Ints
    """The places that keys have left, each as often as keys did."""


def plan_moves(keys: Ints, known: Ints, partitions: Ints, policy: Policy, allocate: Allocate) -> Moves:
    """Where the rows of a batch go.

    Args:
        keys: The number of each row's key: 0, 1, … among the distinct keys of the batch.
        known: The place of each of those keys, -1 where it has none.
        partitions: The partition of each row, by number.
        policy: What a row does whose key lives elsewhere.
        allocate: Finds buckets for new keys; asked once.
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
    buckets = _filled(order, firsts, fresh, here, home_bucket, allocate)
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


def _filled(order: Ints, firsts: Ints, fresh: Ints, here: Ints, home_bucket: Ints, allocate: Allocate) -> Ints:
    """The bucket of each row, in the order of keys: its own if it is fresh, else that of the version before it."""
    buckets = np.where(firsts & ~fresh, home_bucket, -1)
    new = np.flatnonzero(fresh)
    if len(new):
        arrival = new[np.argsort(order[new])]
        buckets[arrival] = allocate(order[arrival], here[arrival])
    # The first version of a key always has one, so that nothing is carried from one key to the next.
    source = np.maximum.accumulate(np.where(buckets >= 0, np.arange(len(buckets)), 0))
    return buckets[source]
