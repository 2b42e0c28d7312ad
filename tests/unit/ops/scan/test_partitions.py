"""Choosing partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelake.errors import FormatError, InvalidInputError
from tidelake.expr import ALWAYS, col
from tidelake.ops.scan.partitions import EveryPartition, PartitionPredicate, PartitionSet
from tidelake.spec.data_file import EMPTY_ROW, SimpleStats
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import INT, STRING

TYPES = (STRING, INT)


def row(*values: object) -> bytes:
    return encode_row(list(values), TYPES)


def meta(name: str, low: tuple[object, ...], high: tuple[object, ...], nulls: tuple[int, ...] = (0, 0)) -> ManifestMeta:
    return ManifestMeta(
        file_name=name,
        file_size=1,
        num_added=2,
        num_deleted=0,
        partition_stats=SimpleStats(row(*low), row(*high), nulls),
        schema_id=0,
    )


METAS = [meta("a", ("a", 1), ("c", 5)), meta("d", ("d", 1), ("f", 9)), meta("null", (None, 1), (None, 1), (2, 0))]
ROWS = pa.array([row("a", 1), row("d", 7), row(None, 1), row("a", 1)], pa.large_binary())


def kept(chosen) -> list[str]:
    return [each.file_name for each in chosen.prune(METAS)]


@pytest.mark.parametrize(
    ("predicate", "manifests", "rows"),
    [
        (col("dt") == "a", ["a"], [0, 3]),
        (col("dt") > "c", ["d"], [1]),
        (col("n") > 5, ["d"], [1]),
        (col("dt").is_null(), ["null"], [2]),
        (col("dt").is_not_null(), ["a", "d"], [0, 1, 3]),
        ((col("dt") == "a") & (col("n") == 2), ["a"], []),
        (ALWAYS, ["a", "d", "null"], [0, 1, 2, 3]),
    ],
)
def test_a_predicate_skips_manifests_and_picks_rows(predicate, manifests, rows):
    chosen = PartitionPredicate(predicate, ("dt", "n"), TYPES)
    assert kept(chosen) == manifests
    assert [i for i, yes in enumerate(chosen.mask(ROWS).to_pylist()) if yes] == rows
    assert chosen.prune([]) == []
    assert len(chosen.mask(ROWS.slice(0, 0))) == 0


def test_another_column_is_refused_before_anything_is_read():
    with pytest.raises(InvalidInputError, match="not a partition column") as caught:
        PartitionPredicate(col("id") == 1, ("dt", "n"), TYPES)
    assert caught.value.facts["column"] == "id"
    with pytest.raises(InvalidInputError):
        PartitionPredicate(col("id") == 1, (), ())


def test_a_predicate_on_a_table_without_partitions_can_only_be_constant():
    chosen = PartitionPredicate(ALWAYS, (), ())
    assert chosen.mask(pa.array([EMPTY_ROW] * 2, pa.large_binary())).to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("rows", "manifests"),
    [
        ([("b", 1)], ["a", "null"]),
        ([("e", 2)], ["d"]),
        ([("b", 2), ("e", 1)], ["a", "d", "null"]),
        ([("z", 1)], ["null"]),
        ([(None, 1)], ["a", "d", "null"]),
        ([], []),
    ],
)
def test_a_set_skips_manifests_whose_range_lies_elsewhere(rows, manifests):
    assert kept(PartitionSet(frozenset(row(*each) for each in rows), TYPES)) == manifests


def test_a_set_masks_exactly():
    chosen = PartitionSet(frozenset({row("a", 1)}), TYPES)
    assert chosen.mask(ROWS).to_pylist() == [True, False, False, True]
    assert chosen.mask(pa.chunked_array([ROWS.slice(0, 2), ROWS.slice(2)])).to_pylist() == [True, False, False, True]


def test_a_set_of_a_table_without_partitions_keeps_all_or_nothing():
    assert kept(PartitionSet(frozenset({EMPTY_ROW}), ())) == ["a", "d", "null"]
    assert kept(PartitionSet(frozenset(), ())) == []


def test_statistics_that_are_no_rows_are_refused():
    bad = ManifestMeta(
        file_name="m", file_size=1, num_added=1, num_deleted=0, partition_stats=SimpleStats(b"x", b"y"), schema_id=0
    )
    with pytest.raises(FormatError):
        PartitionPredicate(col("n") == 1, ("dt", "n"), TYPES).prune([bad])


def test_missing_null_counts_prune_nothing():
    bare = meta("m", ("a", 1), ("c", 5), ())
    assert PartitionPredicate(col("dt").is_null(), ("dt", "n"), TYPES).prune([bare]) == [bare]


def test_every_partition():
    assert EveryPartition().prune(METAS) == METAS
    assert EveryPartition().mask(ROWS).to_pylist() == [True] * 4
