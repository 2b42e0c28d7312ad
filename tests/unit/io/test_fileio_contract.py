"""What every storage does alike: local, memory, S3, and the disk that forgets."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError
from tidelake.io import Created, Exists, FileIO, ThreadExecutor
from tidelake.testing import TracingFileIO

NAMES = ["a", "dt=2026%3A01/b c", "ü/ñ", "a#b", "a?b", "a+b&c=d;e:f@g,h!i'j(k)$l", "~", "x" * 255, ".hidden", "a..b"]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_come_back_under_every_legal_name(fileio: FileIO, name: str) -> None:
    fileio.write(f"data/{name}", b"payload of " + name.encode())
    assert fileio.read(f"data/{name}") == b"payload of " + name.encode()
    top = name.partition("/")[0]
    assert [child.name for child in fileio.list("data")] == [top]


def test_an_empty_file_is_a_file(fileio: FileIO) -> None:
    fileio.write("empty", b"")
    assert fileio.read("empty") == b""
    assert fileio.status("empty").size == 0
    assert fileio.exists("empty", folder=False)


@pytest.mark.parametrize("durable", [True, False])
def test_write_does_not_replace(fileio: FileIO, durable: bool) -> None:
    fileio.write("f", b"first", durable=durable)
    with pytest.raises(StorageError) as caught:
        fileio.write("f", b"second", durable=durable)
    assert caught.value.code == "file-exists"
    assert fileio.read("f") == b"first"


def test_overwrite_replaces_and_leaves_no_other_file(fileio: FileIO) -> None:
    for content in (b"1", b"22", b""):
        fileio.overwrite("snapshot/LATEST", content)
        assert fileio.read("snapshot/LATEST") == content
    assert [child.path for child in fileio.list("snapshot")] == ["snapshot/LATEST"]


def test_the_first_create_wins_and_its_bytes_stay(fileio: FileIO) -> None:
    assert fileio.create_exclusive("snapshot/snapshot-1", b"ours") == Created()
    assert fileio.create_exclusive("snapshot/snapshot-1", b"theirs") == Exists()
    assert fileio.read("snapshot/snapshot-1") == b"ours"
    assert [child.name for child in fileio.list("snapshot")] == ["snapshot-1"]


def test_of_racing_threads_one_wins_each_name(fileio: FileIO) -> None:
    executor = ThreadExecutor(6)
    try:
        for number in range(8):
            payloads = [f"{number}/{racer}".encode() for racer in range(6)]
            outcomes = executor.map(lambda data, n=number: fileio.create_exclusive(f"s-{n}", data), payloads)
            winners = [data for data, outcome in zip(payloads, outcomes, strict=True) if outcome == Created()]
            assert winners == [fileio.read(f"s-{number}")]
            assert outcomes.count(Exists()) == 5
    finally:
        executor.close()


def test_a_missing_file_is_named(fileio: FileIO) -> None:
    fileio.write("folder/file", b"x")
    for ask in (fileio.read, fileio.open_input, fileio.status, lambda path: fileio.read_range(path, 0, 1)):
        with pytest.raises(NotFoundError) as caught:
            ask("folder/missing")
        assert caught.value.code == "file-not-found"
        assert caught.value.facts["path"].endswith("folder/missing")


def test_a_folder_is_not_a_file(fileio: FileIO) -> None:
    fileio.write("folder/file", b"x")
    for ask in (fileio.read, fileio.open_input):
        with pytest.raises(NotFoundError):
            ask("folder")
    assert fileio.exists("folder")
    assert not fileio.exists("folder", folder=False)
    assert fileio.status("folder").is_dir


def test_read_stops_at_the_limit(fileio: FileIO) -> None:
    fileio.write("f", b"x" * 100)
    assert len(fileio.read("f", limit=100)) == 100
    with pytest.raises(FormatError) as caught:
        fileio.read("f", limit=99)
    assert caught.value.code == "file-too-large"


def test_read_range_gives_exactly_what_was_asked_for(fileio: FileIO) -> None:
    fileio.write("f", bytes(range(100)))
    assert fileio.read_range("f", 10, 5) == bytes(range(10, 15))
    assert fileio.read_range("f", 95, 5) == bytes(range(95, 100))
    assert fileio.read_range("f", 3, 0) == b""
    for start, length in [(96, 5), (100, 1), (1_000, 1), (0, 10**12)]:
        with pytest.raises(FormatError) as caught:
            fileio.read_range("f", start, length)
        assert caught.value.code == "file-truncated"
    for start, length in [(-1, 1), (0, -1)]:
        with pytest.raises(InvalidInputError):
            fileio.read_range("f", start, length)


def test_an_open_file_seeks_and_ends(fileio: FileIO) -> None:
    fileio.write("f", bytes(range(10)))
    opened = fileio.open_input("f")
    try:
        assert opened.size() == 10
        assert opened.read(3) == b"\0\1\2"
        assert opened.tell() == 3
        assert opened.seek(-2, 2) == 8
        assert opened.read(100) == b"\x08\x09"
        assert opened.read(1) == b""
        assert opened.seek(0) == 0
        assert opened.read() == bytes(range(10))
    finally:
        opened.close()
    assert opened.closed


def test_arrow_reads_parquet_from_an_open_file(fileio: FileIO) -> None:
    table = pa.table({"id": list(range(1_000)), "text": ["x" * 20] * 1_000})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    fileio.write("t.parquet", sink.getvalue().to_pybytes())
    opened = fileio.open_input("t.parquet")
    found = pq.read_table(pa.PythonFile(opened, mode="r"), columns=["id"])
    assert found.column("id").to_pylist() == list(range(1_000))
    opened.close()


def test_list_gives_direct_children_sorted(fileio: FileIO) -> None:
    for path in ("d/b", "d/a", "d/sub/x", "d/sub/y", "d-other/z", "top"):
        fileio.write(path, path.encode())
    found = fileio.list("d")
    assert [(child.path, child.is_dir, child.size) for child in found] == [
        ("d/a", False, 3),
        ("d/b", False, 3),
        ("d/sub", True, 0),
    ]
    assert [child.path for child in fileio.list("")] == ["d", "d-other", "top"]
    assert fileio.list("missing") == []
    assert fileio.list("missing/deeper") == []
    assert found[0].modified_ms > 1_500_000_000_000


def test_status_agrees_with_the_listing(fileio: FileIO) -> None:
    fileio.write("d/a", b"abc")
    listed = fileio.list("d")[0]
    found = fileio.status("d/a")
    assert (found.path, found.size, found.is_dir) == ("d/a", 3, False)
    assert abs(found.modified_ms - listed.modified_ms) < 2_000


def test_delete_is_calm_about_missing_files(fileio: FileIO) -> None:
    fileio.write("d/a", b"x")
    fileio.delete("d/a")
    fileio.delete("d/a")
    fileio.delete("never/there")
    assert not fileio.exists("d/a")


def test_delete_dir_takes_all_below_and_nothing_beside(fileio: FileIO) -> None:
    for path in ("d/a", "d/sub/deep/b", "d2/keep", "dd", "d.keep"):
        fileio.write(path, b"x")
    fileio.delete_dir("d")
    fileio.delete_dir("d")
    assert not fileio.exists("d")
    assert [child.name for child in fileio.list("")] == ["d.keep", "d2", "dd"]
    fileio.write("d/a", b"again")
    assert fileio.read("d/a") == b"again"


def test_delete_empty_dir_never_touches_a_folder_with_something_in_it(fileio: FileIO) -> None:
    fileio.write("d/sub/a", b"x")
    assert not fileio.delete_empty_dir("d")
    assert not fileio.delete_empty_dir("d/sub")
    assert fileio.read("d/sub/a") == b"x"
    fileio.delete("d/sub/a")
    fileio.delete_empty_dir("d/sub")
    fileio.delete_empty_dir("d")
    assert not fileio.exists("d")
    fileio.write("d/sub/a", b"again")
    assert fileio.read("d/sub/a") == b"again"


def test_the_root_cannot_be_deleted_or_written(fileio: FileIO) -> None:
    fileio.write("keep", b"x")
    for attempt in (
        lambda: fileio.delete_dir(""),
        lambda: fileio.delete(""),
        lambda: fileio.write("", b"x"),
        lambda: fileio.overwrite("", b"x"),
        lambda: fileio.create_exclusive("", b"x"),
        lambda: fileio.read(""),
    ):
        with pytest.raises(InvalidInputError):
            attempt()
    assert fileio.read("keep") == b"x"


def test_an_empty_folder_can_be_made_and_listed(fileio: FileIO) -> None:
    fileio.make_dir("shop.db")
    fileio.make_dir("shop.db")
    assert fileio.exists("shop.db")
    assert [(child.name, child.is_dir) for child in fileio.list("")] == [("shop.db", True)]
    fileio.write("shop.db/t/f", b"x")
    fileio.delete_dir("shop.db/t")
    assert fileio.exists("shop.db")


def test_sync_takes_files_and_folders(fileio: FileIO) -> None:
    fileio.write("d/e/a", b"x", durable=False)
    fileio.write("d/b", b"x", durable=False)
    fileio.sync(["d/e/a", "d/b", "d", ""])
    fileio.sync([])
    assert fileio.read("d/e/a") == b"x"


def test_sub_is_the_same_storage_rooted_below(fileio: FileIO) -> None:
    table = fileio.sub("shop.db/orders")
    assert table.create_exclusive("snapshot/snapshot-1", b"{}") == Created()
    assert fileio.read("shop.db/orders/snapshot/snapshot-1") == b"{}"
    assert [child.path for child in table.list("snapshot")] == ["snapshot/snapshot-1"]
    assert table.root == fileio.root + "/shop.db/orders"
    assert table.sub("snapshot").read("snapshot-1") == b"{}"
    with pytest.raises(InvalidInputError):
        table.read("../other/snapshot/snapshot-1")
    with pytest.raises(InvalidInputError):
        fileio.sub("../outside")


def test_large_bytes_survive(fileio: FileIO) -> None:
    data = bytes(range(256)) * 40_000
    fileio.write("big", data)
    assert fileio.read("big") == data
    assert fileio.read_range("big", len(data) - 10, 10) == data[-10:]


def test_a_tracer_sees_every_path(fileio: FileIO) -> None:
    tracing = TracingFileIO(fileio)
    tracing.sub("a").write("b", b"x")
    tracing.read("a/b")
    tracing.sync(["a/b"])
    assert [(op.number, op.name, op.path) for op in tracing.ops] == [
        (1, "write", "a/b"),
        (2, "read", "a/b"),
        (3, "sync", "a/b"),
    ]
    assert tracing.paths == {"a/b"}
