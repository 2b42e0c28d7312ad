"""What crosses to an executor: it pickles, whole, and no credential is in it but in the grant."""

from __future__ import annotations

import pickle
import pickletools
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.bridge.grants import Grant, TableRef
from tidelake.engines.spark.read.frames import Bins, Part, parts_of, split_by_file
from tidelake.ops.scan.split import Split

SECRET = "S3cr3t-Text-Of-A-Key"
STORAGE = {"access_key_id": "AKIA-Public", "secret_access_key": SECRET, "region": "eu-central-1"}


@pytest.fixture
def bins(lake: Lake) -> Bins:
    """What a task gets for a table in a bucket of a cloud."""
    table = lake.create_table(
        "db.t", {"p": "STRING", "k": "INT", "v": "ROW<`a` ARRAY<INT>>"}, primary_key=["p", "k"], partition_by=["p"],
        options={"bucket": "1"},
    )  # fmt: skip
    table.write([{"p": "x", "k": 1, "v": {"a": [1]}}])
    table.write([{"p": "x", "k": 1, "v": None}, {"p": "y", "k": 2, "v": None}])
    scan = table.scan(where="k > 0 and p like 'x%'")
    parts = tuple(part for split in scan.splits() for one in split_by_file(split) for part in parts_of(one))
    ref = TableRef(Grant("s3://bucket/lake", STORAGE), "db.t", "main", table.schema, {"scan.mode": "latest"})
    return Bins(ref, scan.request(), ("__paimon_bucket",), (pickle.dumps(parts),))


def tree(value: Any, seen: list[Any]) -> list[Any]:
    """Everything that hangs on a value."""
    seen.append(value)
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            tree(getattr(value, each.name), seen)
    elif isinstance(value, tuple | list | frozenset | set):
        for each in value:
            tree(each, seen)
    elif isinstance(value, dict):
        for pair in value.items():
            tree(pair, seen)
    return seen


def test_everything_that_hangs_on_a_task_pickles_by_itself(bins: Bins) -> None:
    everything = tree(bins, []) + tree(pickle.loads(bins.bins[0]), [])
    kinds = {type(each) for each in everything}
    assert {Bins, TableRef, Grant, Part, Split} <= kinds
    for each in everything:
        again = pickle.loads(pickle.dumps(each))
        assert again == each, type(each)


def test_the_task_itself_pickles_as_a_method_of_its_values(bins: Bins) -> None:
    assert pickle.loads(pickle.dumps(bins.run)).__self__ == bins


def test_the_secret_is_in_the_grant_and_nowhere_else(bins: Bins) -> None:
    assert SECRET.encode() in pickle.dumps(bins.ref.grant), "a task could not read otherwise"
    for each in tree(bins, []) + tree(pickle.loads(bins.bins[0]), []):
        if isinstance(each, Bins | TableRef | Grant):
            continue
        assert SECRET.encode() not in pickle.dumps(each), type(each)
    whole = [argument for _, argument, _ in pickletools.genops(pickle.dumps(bins)) if isinstance(argument, str)]
    assert whole.count(SECRET) == 1


def test_nothing_that_is_printed_shows_the_secret(bins: Bins) -> None:
    for each in (bins, bins.ref, bins.ref.grant, bins.run):
        assert SECRET not in repr(each)
        assert SECRET not in str(each)
    assert "s3://bucket/lake" in repr(bins.ref.grant)
