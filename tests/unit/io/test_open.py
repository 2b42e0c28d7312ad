"""Locations as users write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelake.errors import InvalidInputError
from tidelake.io import Env, LocalFileIO, MemoryFileIO, SeededIds, open_fileio
from tidelake.testing import FakeClock


def test_a_folder_opens_by_path_text_and_url(tmp_path: Path) -> None:
    for location in (
        tmp_path / "my lake",
        str(tmp_path / "my lake"),
        f"file://{tmp_path}/my%20lake",
        f"file:{tmp_path}/my%20lake",
        f"FILE://{tmp_path}/my%20lake",
    ):
        io = open_fileio(location)
        assert isinstance(io, LocalFileIO)
        assert io.root == str(tmp_path / "my lake")
    assert not (tmp_path / "my lake").exists()


def test_relative_and_home_folders_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_fileio("lake").root == str(tmp_path / "lake")
    assert open_fileio("~/lake").root == str(tmp_path / "home/lake")


def test_a_named_memory_store_is_one_lake_in_the_process() -> None:
    name = f"memory://test-{os.urandom(4).hex()}"
    open_fileio(name).write("t/a", b"x")
    assert open_fileio(name).read("t/a") == b"x"
    assert open_fileio(f"{name}/t").read("a") == b"x"
    assert open_fileio(f"{name}/t").root == f"{name}/t"
    assert open_fileio(f"{name}-other").list("") == []


def test_an_unnamed_memory_store_is_private() -> None:
    open_fileio("memory://").write("a", b"x")
    assert open_fileio("memory://").list("") == []


def test_clock_and_identifiers_come_from_the_environment() -> None:
    env = Env(MemoryFileIO(), clock=FakeClock(now_ms=42), ids=SeededIds(0))
    io = open_fileio("memory://", env=env)
    io.write("a", b"x")
    assert io.status("a").modified_ms == 42


@pytest.mark.parametrize("scheme", ["hdfs", "oss", "ftp", "https"])
def test_an_unknown_scheme_names_the_known_ones(scheme: str) -> None:
    with pytest.raises(InvalidInputError, match=r"file://.*memory://.*s3://.*gs://.*az://"):
        open_fileio(f"{scheme}://host/path")


@pytest.mark.parametrize(
    "location",
    [
        "",
        "  ",
        "a\0b",
        "a\nb",
        "file://host/x",
        "file:relative",
        "file:///%00",
        "s3://",
        "s3:///key",
        "s3://b/../c",
        "memory://a/../b",
    ],
)
def test_a_broken_location_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError):
        open_fileio(location)


@pytest.mark.parametrize(
    "location", ["s3://key:canary@bucket/t", "s3://bucket/t?sig=canary", "az://c/t?sv=1&sig=canary"]
)
def test_credentials_in_a_location_are_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_fileio(location)
    assert "canary" not in str(caught.value)
    assert "storage options" in str(caught.value.hint)


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    assert open_fileio(tmp_path, {"durability": "none"}).root == str(tmp_path)
    for location, options in [
        (str(tmp_path), {"region": "x"}),
        (str(tmp_path), {"durability": "sometimes"}),
        ("memory://", {"durability": "none"}),
    ]:
        with pytest.raises(InvalidInputError):
            open_fileio(location, options)


def test_a_path_of_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        open_fileio(os.fsencode(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize("location", ["file://u:canary@host/x", "memory://u:canary@host/x", "s3://u:canary@host/x"])
def test_a_password_in_a_location_is_not_repeated(location: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_fileio(location)
    assert "canary" not in str(caught.value)
