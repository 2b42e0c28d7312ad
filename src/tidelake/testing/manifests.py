"""The slow, obviously correct twins of the columnar manifest code, one entry at a time, and strategies for entries.

A twin works on Python rows (one mapping per entry, from `Table.to_pylist`) in the order of the manifests. It is strict:
an entry that contradicts earlier ones is an error. Needs the extra `tidelake[testing]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tidelake.errors import FormatError
from tidelake.spec.data_file import EMPTY_ROW, DataFile, SimpleStats
from tidelake.spec.manifests.index_manifest import DeletionVectorRange, GlobalIndexMeta, IndexEntry, IndexFile
from tidelake.spec.manifests.manifest import ADD, DELETE, IDENTITY_COLUMNS
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.data_types import DataType
from tidelake.testing.strategies import file_names, int64s, texts

__all__ = [
    "Entry",
    "data_files",
    "entries",
    "histories",
    "index_entries",
    "manifest_metas",
    "simple_stats",
    "slow_identity",
    "slow_live",
    "slow_merge",
]

Row = Mapping[str, Any]
Identity = tuple[Any, ...]
Entry = tuple[int, bytes, int, int, DataFile]
"""(kind, partition, bucket, total buckets, file), as `entries_table` accepts it."""


# ------------------------------------------------------------------------------------------------ twins


def slow_identity(row: Row) -> Identity:
    """Return what two entries about the same file on the same level have in common."""
    return tuple(tuple(row[name]) if name == "extra_files" else row[name] for name in IDENTITY_COLUMNS)


def slow_live(rows: Iterable[Row]) -> dict[Identity, Row]:
    """Return the live files after all entries, in the order in which they were last added.

    Raises:
        FormatError: an entry adds a live file, or deletes a file that is not live.
    """
    live: dict[Identity, Row] = {}
    for row in rows:
        key = slow_identity(row)
        if (key in live) != (row["kind"] == DELETE):
            raise FormatError("entry contradicts earlier entries", file=row["file_name"], kind=row["kind"])
        if row["kind"] == ADD:
            live[key] = row
        else:
            del live[key]
    return live


def slow_merge(rows: Iterable[Row]) -> list[Row]:
    """Return the net effect of entries without the history before them: pairs cancel, the others stay in order.

    A deletion without its addition is kept. An addition after such a deletion cancels it: the file is live again.

    Raises:
        FormatError: a file is added or deleted twice in a row.
    """
    left: dict[Identity, Row] = {}
    seen: dict[Identity, int] = {}
    for row in rows:
        key = slow_identity(row)
        if seen.get(key) == row["kind"]:
            raise FormatError("file is added or deleted twice", file=row["file_name"], kind=row["kind"])
        seen[key] = row["kind"]
        if key in left:
            del left[key]
        else:
            left[key] = row
    return list(left.values())


# ------------------------------------------------------------------------------------------------ strategies


def simple_stats() -> st.SearchStrategy[SimpleStats]:
    """Statistics with any bytes as bounds, which the codec does not interpret."""
    bounds = st.binary(max_size=30)
    counts = st.lists(st.none() | st.integers(0, 2**40), max_size=4).map(tuple)
    return st.builds(SimpleStats, bounds, bounds, counts)


def data_files() -> st.SearchStrategy[DataFile]:
    """Data files with random fields; optional ones may be absent."""
    size = st.integers(0, 2**63 - 1)
    names = st.lists(texts(8), max_size=3).map(tuple)
    return st.builds(
        DataFile,
        file_name=file_names(),
        file_size=size,
        row_count=size,
        min_key=st.binary(max_size=20),
        max_key=st.binary(max_size=20),
        key_stats=simple_stats(),
        value_stats=simple_stats(),
        min_sequence=int64s(),
        max_sequence=int64s(),
        schema_id=st.integers(0, 2**40),
        level=st.integers(0, 2**31 - 1),
        extra_files=st.lists(file_names(), max_size=2).map(tuple),
        creation_time_ms=st.none() | st.integers(0, 2**45),
        delete_row_count=st.none() | size,
        embedded_index=st.none() | st.binary(max_size=40),
        file_source=st.sampled_from((None, 0, 1)),
        value_stats_cols=st.none() | names,
        external_path=st.none() | texts(),
        first_row_id=st.none() | size,
        write_cols=st.none() | names,
        write_cols_sequences=st.none() | st.lists(int64s(), max_size=3).map(tuple),
    )


def entries() -> st.SearchStrategy[Entry]:
    """Single entries of either kind, in any partition and bucket."""
    return st.tuples(
        st.sampled_from((ADD, DELETE)),
        st.binary(max_size=30),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        data_files(),
    )


def manifest_metas() -> st.SearchStrategy[ManifestMeta]:
    """Records of a manifest list, with and without each range."""
    count = st.integers(0, 2**63 - 1)
    int32 = st.none() | st.integers(-(2**31), 2**31 - 1)
    return st.builds(
        ManifestMeta,
        file_name=file_names(),
        file_size=count,
        num_added=count,
        num_deleted=count,
        partition_stats=simple_stats(),
        schema_id=int64s(),
        min_bucket=int32,
        max_bucket=int32,
        min_level=int32,
        max_level=int32,
        min_row_id=st.none() | int64s(),
        max_row_id=st.none() | int64s(),
    )


def index_entries() -> st.SearchStrategy[IndexEntry]:
    """Records of an index manifest: hash indexes, deletion vectors, global indexes."""
    int32 = st.integers(-(2**31), 2**31 - 1)
    vectors = st.lists(st.builds(DeletionVectorRange, texts(), int32, int32, st.none() | int64s()), max_size=3)
    whole = st.builds(
        GlobalIndexMeta,
        row_range_start=int64s(),
        row_range_end=int64s(),
        index_field_id=int32,
        extra_field_ids=st.none() | st.lists(int32, max_size=3).map(tuple),
        index_meta=st.none() | st.binary(max_size=10),
        source_meta=st.none() | st.binary(max_size=10),
    )
    file = st.builds(
        IndexFile,
        index_type=st.sampled_from(("HASH", "DELETION_VECTORS", "btree")),
        file_name=file_names(),
        file_size=int64s(),
        row_count=int64s(),
        deletion_vectors=st.none() | vectors.map(tuple),
        external_path=st.none() | texts(),
        global_index=st.none() | whole,
    )
    return st.builds(IndexEntry, st.binary(max_size=30), int32, file)


@st.composite  # type: ignore[untyped-decorator]
def histories(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    partition_types: Sequence[DataType] = (),
    partition_values: st.SearchStrategy[Any] | None = None,
    *,
    max_commits: int = 8,
) -> list[list[Entry]]:
    """Consistent sequences of commits: additions, deletions, moves between levels, re-additions.

    Args:
        draw: passed by Hypothesis.
        partition_types: the types of the partition columns.
        partition_values: draws the values of one partition.
        max_commits: the largest number of commits.
    """
    rows = st.just(EMPTY_ROW)
    if partition_values is not None:
        rows = partition_values.map(lambda values: encode_row(list(values), list(partition_types)))
    partitions: list[bytes] = draw(st.lists(rows, min_size=1, max_size=4, unique=True))
    live: list[Entry] = []
    gone: list[Entry] = []
    commits: list[list[Entry]] = []
    number = 0
    for _ in range(draw(st.integers(1, max_commits))):
        commit: list[Entry] = []
        touched: set[str] = set()
        for step in draw(st.lists(st.sampled_from("aaaadmr"), min_size=1, max_size=5)):
            choices = [e for e in (gone if step == "r" else live) if e[4].file_name not in touched]
            if step == "a":
                file = DataFile(file_name=f"data-{number}", file_size=number, row_count=number, schema_id=number % 3)
                added: Entry = (ADD, draw(st.sampled_from(partitions)), draw(st.integers(0, 2)), 3, file)
                number += 1
                commit.append(added)
                live.append(added)
                touched.add(file.file_name)
            elif choices:
                chosen: Entry = draw(st.sampled_from(choices))
                touched.add(chosen[4].file_name)
                commit += _step(step, chosen, live, gone)
        commits.append(commit)
    return commits


def _step(step: str, chosen: Entry, live: list[Entry], gone: list[Entry]) -> list[Entry]:
    """Delete a live file, move it one level up, or add a deleted one again."""
    if step == "r":
        gone.remove(chosen)
        live.append(chosen)
        return [chosen]
    live.remove(chosen)
    deleted: Entry = (DELETE, *chosen[1:])
    if step == "d":
        gone.append(chosen)
        return [deleted]
    moved: Entry = (*chosen[:4], replace(chosen[4], level=chosen[4].level + 1))
    live.append(moved)
    return [deleted, moved]
