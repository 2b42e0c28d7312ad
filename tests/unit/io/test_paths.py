"""No path leads out of the root: the gate for names, and symbolic links on a real disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.io import FileIO, LocalFileIO, normalize
from tidelake.io.fileio import file_path, join, parent

HOSTILE = [
    "..",
    "../x",
    "a/../x",
    "a/../../x",
    "a/..",
    "/",
    "/etc/passwd",
    "//host/x",
    ".",
    "./x",
    "a/./b",
    "a//b",
    "a/",
    "a\0b",
    "a\nb",
    "a\rb",
    "\x1b[31m",
    "a\x7fb",
    "..\\x",
    "a\\b",
    "C:\\x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "a/" + "y" * 4_096,
]

ENTRIES: dict[str, Callable[[FileIO, str], object]] = {
    "read": lambda io, path: io.read(path),
    "read_range": lambda io, path: io.read_range(path, 0, 1),
    "open_input": lambda io, path: io.open_input(path),
    "write": lambda io, path: io.write(path, b"x"),
    "overwrite": lambda io, path: io.overwrite(path, b"x"),
    "create_exclusive": lambda io, path: io.create_exclusive(path, b"x"),
    "exists": lambda io, path: io.exists(path),
    "status": lambda io, path: io.status(path),
    "list": lambda io, path: io.list(path),
    "make_dir": lambda io, path: io.make_dir(path),
    "delete": lambda io, path: io.delete(path),
    "delete_dir": lambda io, path: io.delete_dir(path),
    "sub": lambda io, path: io.sub(path),
}


@pytest.mark.parametrize("path", HOSTILE)
def test_the_gate_refuses(path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        normalize(path)
    assert caught.value.code == ("path-escape" if path.startswith("/") or ".." in path.split("/") else "invalid-path")
    shown = str(caught.value)
    assert "\x1b" not in shown
    assert "\0" not in shown


@pytest.mark.parametrize(
    "path", ["", "a", "a/b", "...", "..a", "a..", ".a", "a b", "ü", "dt=%2E%2E", "x" * 255, "é" * 127]
)
def test_the_gate_lets_plain_names_pass(path: str) -> None:
    assert normalize(path) == path


def test_the_root_is_not_a_file() -> None:
    with pytest.raises(InvalidInputError):
        file_path("")


def test_paths_join_and_split() -> None:
    assert (join("", "a"), join("a", ""), join("a", "b"), join("", "")) == ("a", "a", "a/b", "")
    assert (parent("a/b/c"), parent("a"), parent("")) == ("a/b", "", "")


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_door_has_the_gate(fileio: FileIO, entry: str) -> None:
    fileio.write("canary", b"x")
    for path in HOSTILE:
        with pytest.raises(InvalidInputError):
            ENTRIES[entry](fileio, path)
    assert [child.name for child in fileio.list("")] == ["canary"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the lake that no call may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> LocalFileIO:
    (tmp_path / "lake" / "table").mkdir(parents=True)
    return LocalFileIO(tmp_path / "lake")


def picture(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((str(path), path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*"))


@pytest.mark.parametrize("entry", [name for name in ENTRIES if name not in ("list", "sub", "delete", "delete_dir")])
def test_a_linked_folder_that_leads_outside_is_refused(
    lake: LocalFileIO, outside: Path, tmp_path: Path, entry: str
) -> None:
    (tmp_path / "lake/table/bucket-0").symlink_to(outside)
    before = picture(outside)
    for path in ("table/bucket-0/secret", "table/bucket-0/new", "table/bucket-0/deeper/new"):
        with pytest.raises(FormatError) as caught:
            ENTRIES[entry](lake, path)
        assert caught.value.code == "path-escape"
    assert picture(outside) == before


@pytest.mark.parametrize("entry", ["list", "sub", "delete", "delete_dir"])
def test_a_linked_folder_is_neither_listed_nor_emptied(
    lake: LocalFileIO, outside: Path, tmp_path: Path, entry: str
) -> None:
    (tmp_path / "lake/table/bucket-0").symlink_to(outside)
    before = picture(outside)
    path = "table/bucket-0" if entry in ("list", "sub") else "table/bucket-0/secret"
    with pytest.raises(FormatError) as caught:
        ENTRIES[entry](lake, path)
    assert caught.value.code == "path-escape"
    assert picture(outside) == before


@pytest.mark.parametrize("target", ["../../../outside", "/"])
def test_deleting_a_link_removes_the_link_alone(lake: LocalFileIO, outside: Path, tmp_path: Path, target: str) -> None:
    before = picture(outside)
    for delete in (lake.delete, lake.delete_dir):
        link = tmp_path / "lake/table/link"
        link.symlink_to(target)
        delete("table/link")
        assert not os.path.lexists(link)
    assert picture(outside) == before


def test_delete_dir_does_not_walk_through_links(lake: LocalFileIO, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "lake/table/sub").mkdir()
    (tmp_path / "lake/table/sub/link").symlink_to(outside)
    (tmp_path / "lake/table/sub/file-link").symlink_to(outside / "secret")
    before = picture(outside)
    lake.delete_dir("table")
    assert not (tmp_path / "lake/table").exists()
    assert picture(outside) == before


@pytest.mark.parametrize("entry", ["read", "read_range", "open_input", "exists", "status"])
def test_a_linked_file_that_leads_outside_is_refused(
    lake: LocalFileIO, outside: Path, tmp_path: Path, entry: str
) -> None:
    (tmp_path / "lake/table/data").symlink_to(outside / "secret")
    with pytest.raises(FormatError) as caught:
        ENTRIES[entry](lake, "table/data")
    assert caught.value.code == "path-escape"


@pytest.mark.parametrize("entry", ["write", "create_exclusive", "overwrite"])
def test_writing_never_goes_through_a_link(lake: LocalFileIO, outside: Path, tmp_path: Path, entry: str) -> None:
    (tmp_path / "lake/table/data").symlink_to(outside / "secret")
    before = picture(outside)
    with suppress(StorageError):
        ENTRIES[entry](lake, "table/data")
    assert picture(outside) == before


def test_a_listing_shows_a_link_as_a_file_so_that_no_walk_follows_it(
    lake: LocalFileIO, outside: Path, tmp_path: Path
) -> None:
    (tmp_path / "lake/table/link").symlink_to(outside)
    assert [(child.name, child.is_dir) for child in lake.list("table")] == [("link", False)]


def test_links_inside_the_root_work(lake: LocalFileIO, tmp_path: Path) -> None:
    lake.write("table/real/data", b"x")
    (tmp_path / "lake/table/alias").symlink_to("real")
    (tmp_path / "lake/table/file-alias").symlink_to("real/data")
    assert lake.read("table/alias/data") == b"x"
    assert lake.read("table/file-alias") == b"x"
    assert lake.status("table/file-alias").size == 1
    lake.write("table/alias/more", b"y")
    assert lake.read("table/real/more") == b"y"


def test_a_table_may_not_reach_into_its_neighbour_by_a_link(lake: LocalFileIO, tmp_path: Path) -> None:
    lake.write("other/data", b"x")
    (tmp_path / "lake/table/link").symlink_to(tmp_path / "lake/other")
    assert lake.read("table/link/data") == b"x"
    with pytest.raises(FormatError):
        lake.sub("table").read("link/data")


def test_a_neighbour_whose_name_starts_like_the_root_is_outside(lake: LocalFileIO, tmp_path: Path) -> None:
    (tmp_path / "lake-evil").mkdir()
    (tmp_path / "lake-evil/secret").write_bytes(b"secret")
    (tmp_path / "lake/table/link").symlink_to(tmp_path / "lake-evil")
    with pytest.raises(FormatError):
        lake.read("table/link/secret")


def test_a_root_that_is_itself_a_link_is_where_the_user_pointed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    lake = LocalFileIO(tmp_path / "alias")
    lake.write("a/b", b"x")
    assert (tmp_path / "real/a/b").read_bytes() == b"x"


def test_a_dangling_link_and_a_loop_are_typed(lake: LocalFileIO, tmp_path: Path) -> None:
    (tmp_path / "lake/table/gone").symlink_to("nowhere")
    (tmp_path / "lake/table/loop").symlink_to("loop")
    with pytest.raises(NotFoundError):
        lake.read("table/gone")
    assert not lake.exists("table/gone")
    with pytest.raises(TidelakeError):
        lake.read("table/loop")


def test_a_named_pipe_in_a_table_does_not_hang_the_reader(lake: LocalFileIO, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lake/table/pipe")
    with pytest.raises(FormatError) as caught:
        lake.read("table/pipe")
    assert caught.value.code == "not-a-file"
