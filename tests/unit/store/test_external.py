"""Data files outside the table are read below the roots that its options name, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake as tl
from kit.small_tables import with_foreign_options
from tidelake.errors import FormatError, UnsupportedError
from tidelake.io import LocalFileIO, MemoryFileIO
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.spec.data_file import DataFile
from tidelake.store.external import open_external
from tidelake.table import Table

ROOTS = {"data-file.external-paths": "file:///ext/one, /ext/two,s3://bucket/three"}


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:/ext/one/dt=a b%2F/bucket-0/f.parquet", "dt=a b%2F/bucket-0/f.parquet"),
        ("file:///ext/two/f.parquet", "f.parquet"),
        ("/ext/one/f.parquet", "f.parquet"),
    ],
)
def test_an_address_below_a_root_leads_to_it(address: str, path: str) -> None:
    io, found = open_external(LocalFileIO("/table"), ROOTS, address)
    assert found == path
    assert io.root == address.removeprefix("file:").replace("///", "/").removesuffix("/" + path)


@pytest.mark.parametrize(
    "address",
    [
        "file:/etc/passwd",
        "file:/ext/onemore/f.parquet",
        "file:/ext/one",
        "file:/ext/one/",
        "file:/ext/one/../../etc/passwd",
        "file:/ext/one//f",
        "file:/ext/one/./f",
        "relative/f",
        "",
        "s3://bucket/threemore/f",
        "s3://other/f",
    ],
)
def test_any_other_address_is_refused(address: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_external(LocalFileIO("/table"), ROOTS, address)
    assert caught.value.code == "external-path"


def test_without_roots_nothing_outside_is_read() -> None:
    with pytest.raises(FormatError, match="external roots"):
        open_external(LocalFileIO("/table"), {}, "file:/ext/one/f.parquet")


def test_roots_on_other_storages_are_named_as_not_supported() -> None:
    with pytest.raises(UnsupportedError):
        open_external(LocalFileIO("/table"), ROOTS, "s3://bucket/three/f.parquet")


def test_a_table_elsewhere_does_not_lead_to_files_of_this_machine() -> None:
    for address in ("file:/ext/one/f.parquet", "file:///ext/one/f.parquet", "/ext/two/f.parquet"):
        with pytest.raises((FormatError, UnsupportedError)):
            open_external(MemoryFileIO(), ROOTS, address)


def table_with_outside_file(tmp_path: Path, option: str) -> Table:
    """A table with one file, moved to another folder after it was written."""
    lake = tl.connect(tmp_path / "lake")
    scratch = lake.create_table("d.scratch", {"id": "INT"})
    scratch.write({"id": [1, 2]})
    table = lake.create_table("d.t", {"id": "INT"}, options={"data-file.external-paths": option})
    (row,) = scratch.files().to_pylist()
    outside = tmp_path / "ext/bucket-0" / row["file_name"]
    outside.parent.mkdir(parents=True)
    (Path(scratch.location) / "bucket-0" / row["file_name"]).rename(outside)
    file = DataFile(
        file_name=row["file_name"], file_size=row["file_size"], row_count=2, external_path=f"file:{outside}"
    )
    table.new_commit().commit(
        [CommitMessage(partition=bytes(12), bucket=0, total_buckets=-1, data=DataIncrement(new_files=(file,)))]
    )
    return table


def test_rows_outside_are_read_and_checked_where_the_option_allows(tmp_path: Path) -> None:
    table = table_with_outside_file(tmp_path, f"file://{tmp_path}/ext")
    assert table.to_arrow()["id"].to_pylist() == [1, 2]
    assert table.check().ok
    (path,) = table.inspect.files()["file_path"].to_pylist()
    assert path.startswith(f"file:{tmp_path}/ext/bucket-0/")
    Path(path.removeprefix("file:")).write_bytes(b"short")
    (finding,) = table.check().errors
    assert finding.invariant == "I2"
    assert "5 bytes instead of" in finding.message
    Path(path.removeprefix("file:")).unlink()
    assert [each.message for each in table.check().errors] == ["file is missing"]


def test_rows_outside_are_neither_read_nor_trusted_elsewhere(tmp_path: Path) -> None:
    table = table_with_outside_file(tmp_path, f"file://{tmp_path}/other")
    with pytest.raises(FormatError, match="external roots"):
        table.to_arrow()
    assert [each.invariant for each in table.check().errors] == ["I2"]


def test_a_link_in_a_root_does_not_lead_out_of_it(tmp_path: Path) -> None:
    table = table_with_outside_file(tmp_path, f"file://{tmp_path}/linked")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/bucket-0").symlink_to(tmp_path / "ext/bucket-0")
    (row,) = table.files().to_pylist()
    io, path = open_external(table.store.env.io, table.options, f"file:{tmp_path}/linked/bucket-0/{row['file_name']}")
    with pytest.raises(tl.TidelakeError):
        io.read(path)


def test_a_table_that_wants_its_files_written_outside_is_not_written_to(tmp_path: Path) -> None:
    options = {"data-file.external-paths": f"file://{tmp_path}/ext", "data-file.external-paths.strategy": "round-robin"}
    lake = tl.connect(tmp_path / "lake")
    table = with_foreign_options(lake.create_table("d.t", {"id": "INT"}), options)
    for act in (table.new_commit, lambda: lake.create_table("d.u", {"id": "INT"}, options=options)):
        with pytest.raises(UnsupportedError) as caught:
            act()
        assert caught.value.facts["option"] == "data-file.external-paths.strategy"
