"""One function derives how rows get their bucket."""

from __future__ import annotations

import pytest

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.options import TableOptions
from tidelake.spec.schemas.bucket_mode import BucketMode, bucket_mode
from tidelake.spec.schemas.schema import Schema


def schema_of(primary_key: list[str], partition_by: list[str]) -> Schema:
    columns = {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}
    table = tl.connect("memory://").create_table(
        "d.t", columns, primary_key=primary_key or None, partition_by=partition_by
    )
    return table.schema


@pytest.mark.parametrize(
    ("primary_key", "partition_by", "bucket", "expected"),
    [
        ([], [], "-1", BucketMode.UNAWARE),
        ([], ["dt"], "-1", BucketMode.UNAWARE),
        ([], ["dt"], "4", BucketMode.FIXED),
        (["id"], [], "-1", BucketMode.DYNAMIC),
        (["dt", "id"], ["dt"], "-1", BucketMode.DYNAMIC),
        (["id"], ["dt"], "-1", BucketMode.CROSS_PARTITION),
        (["id"], ["dt"], "4", BucketMode.FIXED),
        (["dt", "id"], ["dt"], "1", BucketMode.FIXED),
        (["id"], [], "-2", BucketMode.POSTPONED),
        (["id"], ["dt"], "-2", BucketMode.POSTPONED),
    ],
)
def test_the_mode_follows_from_keys_and_the_option(
    primary_key: list[str], partition_by: list[str], bucket: str, expected: BucketMode
) -> None:
    assert bucket_mode(schema_of(primary_key, partition_by), TableOptions({"bucket": bucket})) is expected


def test_without_the_option_buckets_are_dynamic_or_there_are_none() -> None:
    assert bucket_mode(schema_of([], []), TableOptions()) is BucketMode.UNAWARE
    assert bucket_mode(schema_of(["id"], []), TableOptions()) is BucketMode.DYNAMIC


def test_a_bucket_that_is_not_a_number_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="option") as caught:
        bucket_mode(schema_of([], []), TableOptions({"bucket": "many"}))
    assert caught.value.code == "option-value"


def test_modes_say_who_chooses_a_bucket() -> None:
    assert {mode for mode in BucketMode if mode.is_dynamic} == {BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION}
    assert {mode for mode in BucketMode if mode.hashes_rows} == {BucketMode.FIXED, BucketMode.POSTPONED}
