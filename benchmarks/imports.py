"""What `import tidelake` and `tidelake --help` cost over a bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.timing import Result, interleaved

_HELP = "import sys; sys.argv = ['tidelake', '--help']; from tidelake.cli import main; main()"


def run(repeat: int = 9) -> list[Result]:
    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    times = interleaved(
        {"bare": lambda: python("pass"), "import": lambda: python("import tidelake"), "help": lambda: python(_HELP)},
        repeat,
    )
    bare = statistics.median(times["bare"])
    rows = []
    for name, work in (("import", "import tidelake"), ("help", "tidelake --help")):
        median = statistics.median(times[name])
        more = median - bare
        note = f"{more * 1000:.0f} ms more than bare Python"
        rows.append(Result(work, median, "bare Python", bare, None, "< 0.2 s more", more < 0.2, note))
    return rows
