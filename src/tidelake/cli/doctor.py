"""`tidelake doctor`: which dependencies this machine has, whether commits to the storage are safe, how a table is."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import islice
from typing import TYPE_CHECKING, Final

import tidelake
from tidelake.cli.output import print_json, say
from tidelake.cli.place import require_lake
from tidelake.options.capabilities import refused_options

if TYPE_CHECKING:
    from tidelake.table import Table

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)(?:\s*;\s*(.*))?")
_TABLES_MAX: Final = 100
_PYTHON_BELOW = re.compile(r"python_version < ['\"]([0-9.]+)['\"]")


@dataclass(frozen=True, slots=True)
class Needed:
    """A dependency and its oldest supported release."""

    name: str
    floor: str
    optional: bool


def parse_needed(requirements: Iterable[str], python: tuple[int, ...] = sys.version_info[:2]) -> dict[str, Needed]:
    """The dependencies that a distribution declares, by name; those for other releases of Python are left out."""
    found: dict[str, Needed] = {}
    for text in requirements:
        matched = _REQUIREMENT.fullmatch(text.strip())
        if matched is None:  # one of our own extras
            continue
        name, floor, marker = matched[1], matched[2], matched[3] or ""
        below = _PYTHON_BELOW.search(marker)
        if below is None or python < _release(below[1]):
            found.setdefault(name, Needed(name, floor, "extra ==" in marker))
    return found


def judge_version(needed: Needed, installed: str | None) -> tuple[bool, str]:
    """Whether an installed release, if any, is new enough, and a text about it."""
    if installed is None:
        return needed.optional, "not installed" + (" (optional)" if needed.optional else "")
    if _release(installed) < _release(needed.floor):
        return False, f"{installed} is below {needed.floor}: pip install '{needed.name}>={needed.floor}'"
    return True, installed


def _release(version: str) -> tuple[int, ...]:
    matched = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in matched[0].split(".")] if matched else [0]
    while numbers and not numbers[-1]:  # 2.0 is 2
        numbers.pop()
    return tuple(numbers)


def run_doctor(location: str | None, storage: Mapping[str, object], *, as_json: bool) -> bool:
    """Print the findings; return whether nothing that is required is missing or too old."""
    rows: list[tuple[str, bool, str]] = [
        ("tidelake", True, tidelake.__version__),
        ("python", sys.version_info >= (3, 11), platform.python_version()),
    ]
    needed = parse_needed(metadata.requires("tidelake") or ())
    rows += [(each.name, *judge_version(each, _find_release(each.name))) for each in needed.values()]
    java = shutil.which("java")
    rows.append(("java", True, java or "not found (only Spark needs it)"))
    if location:
        rows.append(("storage", *_storage(location, storage)))
        if rows[-1][1]:
            rows.append(("options", True, _refused_options(tidelake.connect(location, storage=storage))))
    ok = all(good for _, good, _ in rows)
    if as_json:
        print_json({"ok": ok, "checks": [{"name": n, "ok": good, "detail": d} for n, good, d in rows]})
        return ok
    for name, good, detail in rows:
        say(f"{'ok ' if good else 'BAD'} {name:14} {detail}")
    return ok


def diagnose_table(table: Table, *, as_json: bool) -> None:
    """Print what an operator of a table should look at."""
    findings = table.diagnose()
    if as_json:
        print_json({"table": table.name, "findings": [asdict(each) for each in findings]})
        return
    for each in findings:
        for line in str(each).splitlines():
            say(line)
    if not findings:
        say(f"nothing to do for {table.name}")


def _find_release(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _storage(location: str, storage: Mapping[str, object]) -> tuple[bool, str]:
    from tidelake.io.selftest import probe_create_exclusive

    try:
        lake = tidelake.connect(location, storage=storage)
        require_lake(lake)
        probe_create_exclusive(lake.env.io, again=True)
    except tidelake.TidelakeError as error:
        return False, str(error)
    return True, f"{location}: exclusive create works"


def _refused_options(lake: tidelake.Lake) -> str:
    """The options of tables that tidelake does not honour. Only the first tables: each costs a read of its schema."""
    names = (f"{database}.{table}" for database in lake.databases() for table in lake.tables(database))
    found: list[str] = []
    for name in islice(names, _TABLES_MAX):
        try:
            options = lake.table(name).schema.options
        except tidelake.TidelakeError:
            continue  # `tidelake check` reports what is wrong with this table
        found += [f"{name}: {key} ({refused.reason})" for key, refused in refused_options(options)]
    return "; ".join(found) or f"none that is refused in the first {_TABLES_MAX} tables"
