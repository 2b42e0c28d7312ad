"""Processes that end right after a read, while the machine is busy: none may abort."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import pytest

import tidelake as tl
from fault import exit_child

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

PROCESSES = int(os.environ.get("TIDELAKE_EXITS", "2000"))
AT_ONCE = 4 * (os.cpu_count() or 1)


def test_no_short_process_aborts_at_its_end(tmp_path: Path) -> None:
    lake = tl.connect(tmp_path)
    lake.create_database("d")
    for kind in ("parquet", "orc", "avro"):
        options = {"file.format": kind, "bucket": "2"}
        table = lake.create_table(
            f"d.{kind}", {"id": "INT NOT NULL", "v": "STRING"}, primary_key=["id"], options=options
        )
        for part in range(3):
            ids = range(part * 10_000, part * 10_000 + 10_000)
            table.write({"id": list(ids), "v": [f"value {n}" for n in ids]})

    def run(way: str) -> str | None:
        command = [sys.executable, exit_child.__file__, str(tmp_path), way]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        told = ended.stderr.strip()
        fine = ended.returncode == 0 and not told
        if way == "error":
            fine = ended.returncode == 1 and told.endswith("RuntimeError") and "terminate" not in told
        return None if fine else f"{way}: {ended.returncode} {told[-500:]}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [each for each in pool.map(run, islice(cycle(exit_child.WAYS), PROCESSES)) if each]
    assert not failed, failed[:5]
