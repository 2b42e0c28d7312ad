"""`python -m benchmarks [--peers] [--only NAME]`: print the table and write it as JSON under benchmarks/out."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import changes, commits, hashing, imports, keyed, maintenance, planning, rows, wide
from benchmarks.peers import Peer
from benchmarks.timing import Result

SECTIONS = ("imports", "hashing", "planning", "commits", "rows", "keyed", "changes", "wide", "maintenance")
APART = ("spark", "spark-changes", "spark-streams")
"""Sections that run only when they are named."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="compare with pypaimon and deltalake")
    parser.add_argument("--only", choices=(*SECTIONS, *APART), help="one section alone")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    wanted = [arguments.only] if arguments.only else list(SECTIONS)
    results: list[Result] = []
    with Peer() if arguments.peers else nullcontext() as peer:
        for name in wanted:
            print(f"measuring {name} …", flush=True)
            match name:
                case "imports":
                    results += imports.run()
                case "hashing":
                    results += [_hashing(row) for row in hashing.run(arguments.repeat)]
                case "planning":
                    results += planning.run(peer, arguments.repeat)
                case "commits":
                    results += commits.run(peer, arguments.repeat)
                case "rows":
                    results += rows.run(peer, arguments.repeat)
                case "keyed":
                    results += keyed.run(peer, arguments.repeat)
                case "changes":
                    results += changes.run(peer, arguments.repeat)
                case "wide":
                    results += wide.run(arguments.repeat)
                case "maintenance":
                    results += maintenance.run(arguments.repeat)
                case "spark":
                    from benchmarks import spark

                    results += spark.run(arguments.repeat)
                case "spark-changes":
                    from benchmarks import spark

                    results += spark.run_changes(arguments.repeat)
                case "spark-streams":
                    from benchmarks import spark

                    results += spark.run_streams(arguments.repeat)
    show(results)
    write(results, arguments.only or "results")


def _hashing(row: dict[str, object]) -> Result:
    ratio = float(str(row["ratio"]))
    return Result(
        str(row["work"]),
        float(str(row["ours_s"])),
        "polars sort",
        float(str(row["floor_s"])),
        ratio,
        "<= 1 x",
        ratio <= 1.0,
    )


def show(results: list[Result]) -> None:
    table = Table(title="tidelake benchmarks (medians)", title_justify="left")
    for heading in ("work", "ours", "against", "theirs", "ratio", "bar", "met", "note"):
        table.add_column(heading)
    for row in results:
        table.add_row(
            row.work,
            _seconds(row.ours_s),
            row.against,
            _seconds(row.other_s),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.bar,
            {True: "yes", False: "NO", None: ""}[row.met],
            row.note,
        )
    Console(width=170).print(table)


def _seconds(value: float | None) -> str:
    return "" if not value else f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def write(results: list[Result], name: str) -> None:
    folder = Path(__file__).parent / "out"
    folder.mkdir(exist_ok=True)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    document = {
        "commit": head.stdout.strip(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "results": [row.as_dict() for row in results],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
