"""Deletion vectors in storage: what is read of an index file, how often, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kit.small_tables import new_table
from tidelake.errors import FormatError, NotFoundError, StorageError
from tidelake.index.vector_codec import bitmap_of
from tidelake.io.cache import Cache
from tidelake.spec.data_file import EMPTY_ROW
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.store.deletion_vectors import FileVector, VectorOptions, read_vector, write_vectors
from tidelake.testing import Fault, FaultyFileIO

MARKS = {"data-1": [0, 3], "data-2": list(range(100, 200)), "data-3": [7]}


def marks() -> list[tuple[str, Any]]:
    return [(name, bitmap_of(np.array(rows))) for name, rows in MARKS.items()]


def written(table: Any, *, rolled: bool = False, options: VectorOptions | None = None) -> tuple[IndexFile, ...]:
    return write_vectors(
        table.store,
        table.paths,
        marks(),
        partition=EMPTY_ROW,
        bucket=0,
        options=options or VectorOptions(),
        rolled=rolled,
    )


def places(files: tuple[IndexFile, ...]) -> dict[str, FileVector]:
    return {
        each.data_file: FileVector(f"index/{file.file_name}", file.file_size, each)
        for file in files
        for each in file.deletion_vectors or ()
    }


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rolled", [False, True])
def test_what_is_written_is_read_back(wide: bool, rolled: bool) -> None:
    table = new_table()
    files = written(table, rolled=rolled, options=VectorOptions(wide=wide, target_bytes=1))
    assert len(files) == (3 if rolled else 1)
    assert [file.row_count for file in files] == ([1, 1, 1] if rolled else [3])
    found = places(files)
    for name, rows in MARKS.items():
        assert read_vector(table.store, found[name], row_count=1000).tolist() == rows
        assert found[name].cardinality == len(rows)
        assert pickle.loads(pickle.dumps(found[name])) == found[name]
    assert all(table.store.env.io.status(f"index/{file.file_name}").size == file.file_size for file in files)


def test_no_marks_write_no_file() -> None:
    table = new_table()
    made = write_vectors(
        table.store, table.paths, [], partition=EMPTY_ROW, bucket=0, options=VectorOptions(), rolled=False
    )
    assert made == ()
    assert table.store.env.io.list("index") == []


def test_the_vectors_of_one_index_file_are_read_in_one_go() -> None:
    table = new_table()
    found = places(written(table))
    io = FaultyFileIO(table.store.env.io)
    env = replace(table.store.env, io=io, cache=Cache(1 << 20))
    store = replace(table.store, env=env)
    for name, rows in MARKS.items():
        assert read_vector(store, found[name], row_count=1000, neighbours=found.values()).tolist() == rows
    assert len(io.ops) == 1


def test_a_large_index_file_is_read_where_the_vector_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.store.deletion_vectors.SPAN_BYTES", 40)
    table = new_table()
    found = places(written(table))
    store = replace(table.store, env=replace(table.store.env, cache=Cache(1 << 20)))
    for name, rows in MARKS.items():
        assert read_vector(store, found[name], row_count=1000, neighbours=found.values()).tolist() == rows


def test_a_vector_that_is_gone_damaged_or_elsewhere_is_an_error() -> None:
    table = new_table()
    files = written(table)
    place = places(files)["data-2"]
    io = table.store.env.io
    with pytest.raises(NotFoundError):
        read_vector(table.store, replace(place, path="index/other"), row_count=1000)
    with pytest.raises(FormatError, match="does not have"):
        read_vector(table.store, place, row_count=150)
    for wrong in (
        replace(place.range, offset=-1),
        replace(place.range, length=-1),
        replace(place.range, length=1 << 30),
        replace(place.range, offset=place.file_size),
        replace(place.range, offset=0),
    ):
        with pytest.raises(FormatError):
            read_vector(table.store, replace(place, range=wrong), row_count=1000)
    with pytest.raises(FormatError):
        read_vector(table.store, replace(place, external_path="file:/etc/passwd"), row_count=1000)
    whole = io.read(place.path)
    io.overwrite(place.path, b"\2" + whole[1:])
    with pytest.raises(FormatError, match="version"):
        read_vector(table.store, place, row_count=1000)
    io.overwrite(place.path, whole[:-60])
    with pytest.raises(FormatError):
        read_vector(table.store, place, row_count=1000)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.TORN, Fault.AFTER])
def test_a_write_that_fails_leaves_no_file_behind(fault: Fault) -> None:
    table = new_table()
    for number in (1, 2, 3):
        io = FaultyFileIO(table.store.env.io, {number: fault})
        store = replace(table.store, env=replace(table.store.env, io=io))
        with pytest.raises(StorageError):
            write_vectors(
                store,
                table.paths,
                marks(),
                partition=EMPTY_ROW,
                bucket=0,
                options=VectorOptions(target_bytes=1),
                rolled=True,
            )
        assert table.store.env.io.list("index") == []
