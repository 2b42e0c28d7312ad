"""`tidelake doctor`: what this machine has, and whether the storage can carry safe commits."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata

import tidelake
from tidelake.cli.output import print_json, say

_LIBRARIES = ("pyarrow", "polars", "polars-avro", "fastavro", "msgspec", "obstore", "pyspark")


def run_doctor(location: str | None, storage: Mapping[str, object], *, as_json: bool) -> bool:
    """Print the findings; True if nothing needed is missing."""
    rows: list[tuple[str, bool, str]] = [
        ("tidelake", True, tidelake.__version__),
        ("python", sys.version_info >= (3, 11), platform.python_version()),
    ]
    rows += [(name, *_library(name)) for name in _LIBRARIES]
    java = shutil.which("java")
    rows.append(("java", True, java or "not found (only Spark needs it)"))
    if location:
        rows.append(("storage", *_storage(location, storage)))
    ok = all(good for _, good, _ in rows)
    if as_json:
        print_json({"ok": ok, "checks": [{"name": n, "ok": good, "detail": d} for n, good, d in rows]})
        return ok
    for name, good, detail in rows:
        say(f"{'ok ' if good else 'BAD'} {name:12} {detail}")
    return ok


def _library(name: str) -> tuple[bool, str]:
    try:
        return True, metadata.version(name)
    except metadata.PackageNotFoundError:
        optional = name in ("obstore", "pyspark")
        return optional, "not installed" + (" (optional)" if optional else "")


def _storage(location: str, storage: Mapping[str, object]) -> tuple[bool, str]:
    from tidelake.io.selftest import probe_create_exclusive

    try:
        probe_create_exclusive(tidelake.connect(location, storage=storage).env.io, again=True)
    except tidelake.TidelakeError as error:
        return False, str(error)
    return True, f"{location}: exclusive create works"
