"""A process that writes and is interrupted by real signals at moments of chance; prints how many left a file.

Called with the folder of a lake, the number of interrupts, and a seed.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import tidelake as tl
from tidelake.io.clock import SystemClock
from tidelake.io.ids import SeededIds

ROWS = 20_000


def kinds() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Tables: keys and options."""
    keyed = {"bucket": "2", "full-compaction.delta-commits": "1"}
    return {
        "append": ([], {}),
        "keyed": (["k"], keyed),
        "vectors": (["k"], {"bucket": "2", "deletion-vectors.enabled": "true"}),
    }


def files_of(folder: Path) -> set[str]:
    """Every file below a folder that a commit writes."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {path for path in found if path.startswith(("bucket-", "manifest/", "index/"))}


def main(folder: str, count: int, seed: int) -> None:
    """Interrupt writes, and look what each of them left."""
    chance, clock = SeededIds(seed), SystemClock()
    lake = tl.connect(folder)
    told = {"interrupts": 0, "left": 0, "published": 0, "unnamed": 0, "files": []}
    for kind, (keys, options) in kinds().items():
        options = {**options, "snapshot.num-retained.max": "1000", "snapshot.num-retained.min": "1000"}
        table = lake.create_table(f"db.{kind}", {"k": "INT NOT NULL", "v": "STRING"}, primary_key=keys, options=options)
        rows = [{"k": k, "v": f"value {k}"} for k in range(ROWS)]
        begun = clock.monotonic()
        table.write(rows)
        table.write(rows[:100])
        usual = (clock.monotonic() - begun) / 2
        place = Path(folder) / "db.db" / kind
        for _ in range(count):
            there, last = files_of(place), table.latest_snapshot().id
            written = None
            signal.setitimer(signal.ITIMER_REAL, max(0.0005, chance.random() * usual))
            try:
                written = table.write(rows[: 10 if chance.random() < 0.5 else ROWS])
                signal.setitimer(signal.ITIMER_REAL, 0)
                continue  # it was faster
            except (KeyboardInterrupt, SystemError) as interrupt:  # an encoder in C wraps the one in the other
                signal.setitimer(signal.ITIMER_REAL, 0)
                if written is not None:
                    continue  # the signal came between the two lines
                told["interrupts"] += 1
                notes = "".join(getattr(interrupt, "__notes__", ()))
            table = lake.table(f"db.{kind}")
            new = table.latest_snapshot().id > last
            told["published"] += new
            told["unnamed"] += new and "published" not in notes
            orphans = set(table.check().orphans) & (files_of(place) - there)
            told["left"] += bool(orphans)
            told["files"] += [f"{kind}: {path}" for path in orphans]
        report = table.check()
        assert report.ok, str(report)
    print(json.dumps(told))


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
