"""Make the golden tables: small tables of some releases, kept for ever so that they stay readable without Java.

    python tests/compat/make_golden.py

Writes one archive per release into `data/`, with the tables, their data files, and `expected.json` as `write_tables`
notes it. Run it only to add a release: the point of golden files is that nobody makes them anew.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
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


def make(release: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "write_tables.py"), release, folder, *TABLES[release]]
        subprocess.run(command, check=True)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(Path(folder).rglob("*"), key=lambda path: (path.suffix, path.name, path)):
                if path.is_file():
                    info = tarfile.TarInfo(str(path.relative_to(folder)))
                    info.size = path.stat().st_size
                    archive.addfile(info, io.BytesIO(path.read_bytes()))


if __name__ == "__main__":
    for each in TABLES:
        make(each, HERE / "data" / f"paimon-{each}.tar.xz")
