"""The last part of `tidelake demo`: two streams, a process that is killed between them, and sums that agree.

Files with new, changed and cancelled orders are in a folder. One stream writes them to a primary-key table, a file for
each batch. A second stream follows the changelog of that table and adds it up in an aggregation table. Both run in a
process of their own, which is killed with SIGKILL in the middle and started again. At the end the total of each
customer is compared with the orders, and with what the files say.

`python -m tidelake.cli.demo_stream LAKE` is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidelake
from tidelake.io.clock import SystemClock
from tidelake.notebook import pluralize
from tidelake.table import Table

if TYPE_CHECKING:
    from tidelake.catalog.lake import Lake

LIVE: Final = "shop.live_orders"
TOTALS: Final = "shop.customer_totals"
_FILES: Final = 10
_PER_FILE: Final = 400
_CUSTOMERS: Final = 25
_KILL_AFTER: Final = 3
"""Batches after which the process is killed."""
_CHANGE: Final = "rowkind string, id bigint, customer bigint, amount decimal(10,2)"
_START_S: Final = 100.0
"""How long the process may take until its first batches are committed."""


@dataclass(frozen=True, slots=True)
class StreamStory:
    """What happened to the two tables."""

    orders: Table
    totals: Table
    steps: list[tuple[str, str]]
    killed: bool
    same: bool
    """Whether the totals of the stream, of the orders and of the files are the same."""


def run_streams(lake: Lake) -> StreamStory:
    """Write changes as files, stream them through two tables with a kill in the middle, and compare the sums.

    Raises:
        InvalidInputError: the process with the streams failed.
    """
    steps: list[tuple[str, str]] = []
    orders = lake.create_table(
        LIVE,
        {"id": "BIGINT NOT NULL", "customer": "BIGINT", "amount": "DECIMAL(10,2)"},
        primary_key=["id"],
        options={"bucket": "2", "changelog-producer": "lookup"},
        comment="orders as they change",
    )
    totals = lake.create_table(
        TOTALS,
        {"customer": "BIGINT NOT NULL", "amount": "DECIMAL(20,2)"},
        primary_key=["customer"],
        options={"bucket": "1", "merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"},
        comment="what each customer has ordered, kept up to date by a stream",
    )
    folder = Path(lake.location) / "incoming"
    expected = _write_changes(folder)
    steps.append(("arrive", f"{_FILES * _PER_FILE:,} changes of orders in {pluralize(_FILES, 'file')}"))
    killed, batches = _run_and_kill(lake, orders)
    steps.append(("kill -9", f"the process with both streams after {batches} batches"))
    _finish(_start(lake))
    done = sum(1 for each in orders.inspect.snapshots().column("commit_kind").to_pylist() if each == "APPEND")
    steps.append(("restart", f"the streams go on where they stopped: {done} batches in all"))
    sums: dict[int, Decimal] = {}
    for row in orders.to_arrow(columns=["customer", "amount"]).to_pylist():
        sums[row["customer"]] = sums.get(row["customer"], Decimal(0)) + row["amount"]
    streamed = {row["customer"]: row["amount"] for row in totals.to_arrow().to_pylist() if row["amount"]}
    same = streamed == {customer: amount for customer, amount in sums.items() if amount} == expected
    steps.append(("compare", f"totals of {pluralize(len(streamed), 'customer')} agree with the orders: {same}"))
    return StreamStory(orders, totals, steps, killed, same)


def _write_changes(folder: Path) -> dict[int, Decimal]:
    """Write the files of changes, and return the total of each customer after them."""
    folder.mkdir(parents=True)
    live: dict[int, tuple[int, Decimal]] = {}
    for number in range(_FILES):
        lines = []
        for kind, key, customer, amount in _changes(number, live):
            lines.append(json.dumps({"rowkind": kind, "id": key, "customer": customer, "amount": str(amount)}))
        (folder / f"{number:03}.json").write_text("\n".join(lines) + "\n")
    totals: dict[int, Decimal] = {}
    for customer, amount in live.values():
        totals[customer] = totals.get(customer, Decimal(0)) + amount
    return {customer: amount for customer, amount in totals.items() if amount}


def _changes(number: int, live: dict[int, tuple[int, Decimal]]) -> Iterator[tuple[str, int, int, Decimal]]:
    """The changes of one file, at most one for each order; `live` holds the orders before it, and then after it."""
    for at in range(_PER_FILE):
        key = (number * 251 + at * 7) % 1_500
        customer, amount = (key * 31 + number) % _CUSTOMERS, Decimal(key * 13 % 10_000 + number).scaleb(-2)
        if key in live and (key + number) % 5 == 0:
            yield ("-D", key, *live.pop(key))
        else:
            yield "+U" if key in live else "+I", key, customer, amount
            live[key] = customer, amount


def _run_and_kill(lake: Lake, orders: Table) -> tuple[bool, int]:
    """Start the streams and kill their process after some batches; return whether it was alive, and the batches."""
    process, clock = _start(lake), SystemClock()
    deadline = clock.monotonic() + _START_S
    while process.poll() is None and clock.monotonic() < deadline:
        if orders.inspect.snapshots().num_rows >= 2 * _KILL_AFTER:  # each batch is an APPEND and a COMPACT
            break
        clock.sleep(0.05)
    killed = process.poll() is None
    if killed:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    else:
        _finish(process)
    kinds = orders.inspect.snapshots().column("commit_kind").to_pylist()
    return killed, kinds.count("APPEND")


def _start(lake: Lake) -> subprocess.Popen[str]:
    # A session of its own, so that the kill reaches its Java process too.
    return subprocess.Popen(
        [sys.executable, "-m", "tidelake.cli.demo_stream", lake.location],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _finish(process: subprocess.Popen[str]) -> None:
    """Wait for the streams to end.

    Raises:
        InvalidInputError: they failed.
    """
    output, _ = process.communicate()
    if process.returncode:
        last = output.strip().splitlines()[-5:]
        raise tidelake.InvalidInputError("the streams of the demo failed", output=" | ".join(last)[:1000])


def main(location: str) -> None:
    """Run both streams until everything that arrived is in both tables."""
    lake = tidelake.connect(location)
    spark = tidelake.spark(lake, app="tidelake demo streams")
    spark.sparkContext.setLogLevel("ERROR")
    checkpoints = f"{lake.location}/checkpoints"
    arriving = spark.readStream.schema(_CHANGE).option("maxFilesPerTrigger", 1).json(f"{lake.location}/incoming")
    first = tidelake.stream_to(
        arriving, lake.table(LIVE), checkpoint=f"{checkpoints}/orders", trigger={"availableNow": True}
    )
    # The changelog of an order is +I, -U, +U and -D; the table subtracts the amounts of -U and -D.
    changes = lake.stream(LIVE, **{"read.changelog": "true", "scan.snapshot-id": 1})
    second = tidelake.stream_to(
        changes.select("rowkind", "customer", "amount"), lake.table(TOTALS), checkpoint=f"{checkpoints}/totals"
    )
    first.awaitTermination()
    second.processAllAvailable()
    second.stop()


if __name__ == "__main__":
    main(sys.argv[1])
