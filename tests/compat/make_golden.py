"""Make the golden tables: small tables of some releases, kept for ever so that they stay readable without Java.

    python -m tests.compat.make_golden

Writes into `data/` what is not there yet: one archive per release with the documents that `write_tables` notes, and one
archive per table and release (`data/append`, `data/pk`, `data/later`) with the table and the rows that the release
itself read of it. What is there is left alone: the point of golden files is that nobody makes them anew. Rows, types
and snapshots are the same in every run; the names of files and the times are not.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
TABLES = {
    "2.0.0": (
        "append_partitioned", "append_types", "deletion_vectors_append", "deletion_vectors_pk", "dynamic_buckets",
        "evolution", "file_indexes", "manifests_orc", "pk_levels", "pk_types", "row_tracking", "statistics",
        "tags_branches_consumers", "typed_partitions",
    ),
    "1.2.0": ("append_partitioned", "dynamic_buckets", "evolution", "pk_levels", "pk_types", "tags_branches_consumers"),
    "0.9.0": (
        "append_partitioned", "dynamic_buckets", "evolution", "manifests_parquet", "pk_levels", "statistics",
        "tags_branches_consumers",
    ),
}  # fmt: skip


def pack(folder: Path, target: Path) -> None:
    """An archive of all files of a folder, with nothing in it of the machine it was made on."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*"), key=lambda path: (path.suffix, path.name, path)):
            if path.is_file():
                data = path.read_bytes()
                assert str(folder).encode() not in data, f"{path} names the folder it was made in"
                info = tarfile.TarInfo(str(path.relative_to(folder)))
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def unpack(archive: Path, folder: Path) -> None:
    """All files of an archive, into a folder; by attribute, as Python before 3.11.4 takes no filter as an argument."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)


def make_documents(release: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "write_tables.py"), release, folder, *TABLES[release]]
        subprocess.run(command, check=True)
        pack(Path(folder), target)


def archive_of(release: str, group: str, name: str) -> Path:
    return DATA / group / release / f"{name}.tar.xz"


def make_tables(release: str, places: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = str(HERE / "golden_tables.py")
        command = [sys.executable, script, release, folder, *(f"{group}/{name}" for group, name in places)]
        subprocess.run(command, check=True)
        for group, name in places:
            target = archive_of(release, group, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            table = Path(folder) / group / "d.db" / name
            assert table.is_dir()
            (Path(folder) / group / f"{name}.json").rename(table / "expected.json")
            pack(table, target)


def main() -> None:
    sys.path.insert(0, str(HERE.parent))
    from compat.golden_tables import wanted

    for release in TABLES:
        target = DATA / f"paimon-{release}.tar.xz"
        if not target.exists():
            make_documents(release, target)
    missing = defaultdict(list)
    for release, group, name in wanted():
        if not archive_of(release, group, name).exists():
            missing[release].append((group, name))
    for release, places in missing.items():
        make_tables(release, places)


if __name__ == "__main__":
    main()
