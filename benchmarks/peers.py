"""Another implementation in a process of its own, driven by JSON lines, so that runs can be interleaved."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self


class Peer:
    """Runs `peer_worker.py` under the interpreter of the peers' environment."""

    def __init__(self) -> None:
        root = Path(__file__).parent.parent
        python = os.environ.get("TIDELAKE_PEERS_PYTHON", str(root / ".venv-peers/bin/python"))
        worker = Path(__file__).with_name("peer_worker.py")
        self._python = python
        self._process = subprocess.Popen(
            [python, str(worker)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, work: str, **arguments: object) -> dict[str, object]:
        """Do one piece of work there; the answer holds `seconds`, measured on that side."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"work": work, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"peer died at {work}")
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{work}: {answer['error']}")
        return answer

    def seconds(self, work: str, **arguments: object) -> float:
        return float(str(self.ask(work, **arguments)["seconds"]))

    def run_script(self, name: str, folder: str) -> None:
        """Run one of the scripts below in a fresh process of the peers' environment."""
        subprocess.run([self._python, "-c", SCRIPTS[name], folder], check=True, capture_output=True, env=cached())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


def cached() -> dict[str, str]:
    """An environment in which Python keeps compiled modules, as an installed program has them."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


SCRIPTS = {
    "quick_delta": """
import os, sys, pyarrow as pa
from deltalake import DeltaTable, write_deltalake
path = sys.argv[1] + "/t"
write_deltalake(path, pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
assert DeltaTable(path).to_pyarrow_table().num_rows == 3
os._exit(0)  # its threads abort the interpreter on the way out
""",
    "quick_paimon": """
import sys, pyarrow as pa
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("db", True)
rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
catalog.create_table("db.t", Schema.from_pyarrow_schema(rows.schema), True)
table = catalog.get_table("db.t")
builder = table.new_batch_write_builder()
write, commit = builder.new_write(), builder.new_commit()
write.write_arrow(rows)
commit.commit(write.prepare_commit())
write.close()
commit.close()
reader = table.new_read_builder()
assert reader.new_read().to_arrow(reader.new_scan().plan().splits()).num_rows == 3
""",
}
