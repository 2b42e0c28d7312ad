"""`tidelake demo`: the main job on a local lake, from an empty folder to three checked tables.

First an append table: writes, a schema change, deletes, updates, a compaction, time travel. Then a primary-key table:
upserts, deletions, the versions of one key, the levels before and after a compaction, and that no row changed by it.
Then a change stream: a consumer follows a table while rows are written, updated, merged, deleted and compacted, and
the changes that it gets add up to the table. Writes, reads and compactions run on a local Spark, or in this process.
Last, on Spark only, two streams: see `demo_stream`.
Every figure that is printed is read back from a table.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelake
from tidelake.cli.output import print_json, result_text, say, show_report, show_table
from tidelake.notebook import pluralize
from tidelake.ops.commit.messages import CommitResult
from tidelake.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.catalog.lake import Lake
    from tidelake.cli.demo_stream import StreamStory

_DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")
_WRITES = 7
_ROWS = 30
_CUSTOMERS = 2_000
_UPSERTS = 4
_WATCHED = 42
_ORDER = "id bigint, status string, amount decimal(10,2), dt string"
_CUSTOMER = "id bigint, name string, visits int"
_STOCK = "item string, pieces int"
_MISSING = ("extra-missing", "java-missing")
_LEVELS = ("level", "files", "runs", "rows", "deletes", "bytes", "read_amplification")


@dataclass(frozen=True, slots=True)
class _Runner:
    """Where the jobs run: in a Spark session, or in this process."""

    session: Any | None = None

    @property
    def name(self) -> str:
        return "process" if self.session is None else "spark"

    def data(self, rows: list[dict[str, object]], columns: str) -> Any:
        """Rows to write: a frame of one task, so that Spark writes the files that this process would, or a list."""
        return rows if self.session is None else self.session.createDataFrame(rows, columns).coalesce(1)

    def compact(self, table: Table, *, full: bool = False) -> CommitResult:
        done = table.compact(full=full, on=self.session)
        assert isinstance(done, CommitResult)
        return done

    def count(self, table: Table, where: str) -> int:
        if self.session is None:
            return table.count(where)
        found: int = table.to_spark(spark=self.session).filter(where).count()
        return found


@dataclass(frozen=True, slots=True)
class _Orders:
    """What happened to the append table."""

    table: Table
    steps: list[tuple[str, str]]
    compacted: CommitResult


@dataclass(frozen=True, slots=True)
class _Customers:
    """What happened to the primary-key table."""

    table: Table
    steps: list[tuple[str, str]]
    before: pa.Table
    """Its levels before the compaction."""
    why_before: str
    why_after: str
    same: bool
    """Whether the rows were the same before and after, and the older snapshot still has them."""
    watched: pa.Table


@dataclass(frozen=True, slots=True)
class _Stock:
    """The changes that a consumer got while a table changed."""

    table: Table
    steps: list[tuple[str, str]]
    changes: pa.Table
    same: bool
    """Whether the changes, one after the other, give the rows of the table."""


def run_demo(path: str | None, *, as_json: bool, spark: bool = True) -> None:
    """Run the demo in a folder, or in a temporary one that is removed afterwards; on Spark where that is installed.

    Raises:
        InvalidInputError: the folder is not empty.
    """
    if path is None:
        with tempfile.TemporaryDirectory(prefix="tidelake-demo-") as folder:
            _run(folder, as_json=as_json, spark=spark)
        if not as_json:
            say("")
            _next("my-lake", kept=False)
        return
    if Path(path).is_dir() and any(Path(path).iterdir()):
        raise tidelake.InvalidInputError("folder of the demo is not empty", path=path, hint="name a new folder")
    _run(path, as_json=as_json, spark=spark)
    if not as_json:
        say("")
        _next(path, kept=True)


def _run(folder: str, *, as_json: bool, spark: bool) -> None:
    lake = tidelake.connect(folder)
    runner = _start_spark(lake, quiet=as_json) if spark else _Runner()
    if as_json:
        stories = _orders(lake, runner), _customers(lake, runner), _stock(lake, runner)
        streams = None if runner.session is None else _run_streams(lake)
        _as_json(*stories, streams, runner, folder=lake.location)
        return
    say("1. An append table keeps every row that is written.")
    say("")
    sound = _show_orders(_orders(lake, runner))
    say("")
    say("2. A primary-key table keeps one row per key. Writing is an upsert.")
    say("")
    sound = _show_customers(_customers(lake, runner)) and sound
    say("")
    say("3. A change stream has every change once, with the row before and the row after it.")
    say("")
    sound = _show_stock(_stock(lake, runner)) and sound
    if runner.session is not None:
        say("")
        say("4. Streams write every batch exactly once, whatever dies in between.")
        say("")
        sound = _show_streams(_run_streams(lake)) and sound
    if not sound:
        sys.exit(2)


def _start_spark(lake: Lake, *, quiet: bool) -> _Runner:
    """Start a local Spark; use this process if Spark or Java is not installed."""
    if not quiet:
        say("Starting a local Spark; use --no-spark to run without it.")
        say("")
    try:
        session = tidelake.spark(lake, app="tidelake demo")
    except tidelake.InvalidInputError as error:
        if error.code not in _MISSING:
            raise
        if not quiet:
            say(f"{error}")
            say("The demo runs in this process instead.")
            say("")
        return _Runner()
    session.sparkContext.setLogLevel("ERROR")
    return _Runner(session)


# ------------------------------------------------------------------------------------------------ append


def _orders(lake: Lake, runner: _Runner) -> _Orders:
    steps: list[tuple[str, str]] = []
    orders = lake.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "status": "STRING", "amount": "DECIMAL(10,2)", "dt": "STRING"},
        partition_by=["dt"],
        options={"manifest.merge-min-count": "5"},
        comment="what people ordered",
    )
    steps.append(("create", f"{orders.name}, partitioned by {', '.join(orders.partition_by)}"))
    for number in range(_WRITES):
        orders.write(runner.data(_order_rows(number), _ORDER), commit_user="demo", identifier=number + 1)
    steps.append(("write", f"{_WRITES} commits, {orders.count()} rows"))
    again = orders.write(runner.data(_order_rows(_WRITES - 1), _ORDER), commit_user="demo", identifier=_WRITES)
    steps.append(("write again", f"commit {_WRITES} a second time: repeated={again.repeated}, {orders.count()} rows"))
    orders = orders.alter(add={"note": "STRING"})
    steps.append(("alter", f"column note added, schema {orders.schema.id}"))
    deleted = orders.delete("id % 10 = 0")
    steps.append(("delete", f"{deleted.rows} rows, {orders.count()} left"))
    updated = orders.update({"status": "'paid'", "note": "concat('order ', cast(id as string))"}, "id < 5")
    steps.append(("update", f"{updated.rows} rows"))
    before = orders.files().num_rows
    compacted = runner.compact(orders)
    steps.append(("compact", f"{before} files became {orders.files().num_rows}, {orders.count()} rows as before"))
    steps.append(("travel", f"{orders.at(snapshot=1).count()} rows at snapshot 1, {orders.count()} now"))
    return _Orders(orders, steps, compacted)


def _order_rows(number: int) -> list[dict[str, object]]:
    """The orders of one commit."""
    return [
        {"id": i, "status": "new", "amount": Decimal(i).scaleb(-1), "dt": _DAYS[i % 3]}
        for i in range(number * _ROWS, number * _ROWS + _ROWS)
    ]


# ------------------------------------------------------------------------------------------------ primary key


def _customers(lake: Lake, runner: _Runner) -> _Customers:
    steps: list[tuple[str, str]] = []
    # The trigger is raised, so that the compaction waits until it is asked for and its levels can be shown.
    customers = lake.create_table(
        "shop.customers",
        {"id": "BIGINT NOT NULL", "name": "STRING", "visits": "INT"},
        primary_key=["id"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "10", "num-levels": "6"},
        comment="who buys, one row each",
    )
    steps.append(("create", f"{customers.name}, primary key {', '.join(customers.primary_key)}, 1 bucket"))
    customers.write(runner.data(_customer_rows(range(_CUSTOMERS), visits=1), _CUSTOMER))
    runner.compact(customers, full=True)
    steps.append(("load", f"{customers.count():,} rows"))
    for number in range(1, _UPSERTS + 1):
        customers.write(runner.data(_customer_rows(range(0, 100 * number, 2), visits=number + 1), _CUSTOMER))
    steps.append(("upsert", f"{pluralize(_UPSERTS, 'commit')} with known keys, still {customers.count():,} rows"))
    customers.write(runner.data([{"id": 1, "rowkind": "-D"}, {"id": 3, "rowkind": "-D"}], "id bigint, rowkind string"))
    steps.append(("delete by key", f"rows of the kind -D for 2 keys, {customers.count():,} left"))
    deleted = customers.delete("id >= 1990")
    steps.append(("delete by condition", f"{deleted.rows} rows, {customers.count():,} left"))
    steps.append(("read", f"{runner.count(customers, 'visits > 1')} customers came back"))
    before, why_before = customers.inspect.lsm(), str(customers.why({"id": _WATCHED}))
    uncompacted = customers.latest_snapshot()
    rows = customers.to_arrow(order_by="id")
    runner.compact(customers, full=True)
    assert uncompacted is not None
    same = rows == customers.to_arrow(order_by="id") == customers.at(snapshot=uncompacted.id).to_arrow(order_by="id")
    files = sum(before.column("files").to_pylist())
    steps.append(("compact", f"{pluralize(files, 'file')} became {pluralize(customers.files().num_rows, 'file')}"))
    steps.append(("compare", f"rows before and after are the same: {same}"))
    steps.append(("travel", f"{customers.at(snapshot=1).count():,} rows at snapshot 1, {customers.count():,} now"))
    return _Customers(
        customers,
        steps,
        before,
        why_before,
        str(customers.why({"id": _WATCHED})),
        same,
        customers.to_arrow(where="id in (1, 42, 43)", order_by="id"),
    )


def _customer_rows(ids: range, *, visits: int) -> list[dict[str, object]]:
    return [{"id": i, "name": f"customer {i}", "visits": visits} for i in ids]


# ------------------------------------------------------------------------------------------------ changes


def _stock(lake: Lake, runner: _Runner) -> _Stock:
    import pyarrow as pa

    steps: list[tuple[str, str]] = []
    stock = lake.create_table(
        "shop.stock",
        {"item": "STRING NOT NULL", "pieces": "INT"},
        primary_key=["item"],
        options={"bucket": "1", "changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
        comment="what is left, with a changelog",
    )
    steps.append(("create", f"{stock.name}, changelog-producer=lookup, deletion vectors"))
    received: list[pa.Table] = []

    def follow(step: str, what: str) -> None:
        """Go on where the consumer stopped, up to the newest snapshot."""
        rows = 0
        with stock.follow(consumer="demo", start="earliest", until="latest") as stream:
            for change in stream:
                found = change.to_arrow()
                rows += found.num_rows
                number = pa.array([change.snapshot_id] * found.num_rows, pa.int64())
                received.append(found.add_column(0, "snapshot", number))
        steps.append((step, f"{what}; the consumer gets {pluralize(rows, 'change')}"))

    stock.write(runner.data([{"item": name, "pieces": 10} for name in ("apple", "pear", "plum")], _STOCK))
    follow("write", "3 items")
    stock.update({"pieces": "pieces - 1"}, "item = 'pear'")
    follow("update", "1 row")
    news = [{"item": "apple", "pieces": 0}, {"item": "fig", "pieces": 5}]
    clauses = stock.merge(news, on=["item"]).when_matched_delete("s.pieces = 0").when_not_matched_insert()
    merged = clauses.run()
    follow("merge", f"{merged.deleted} deleted, {merged.inserted} inserted")
    stock.delete("item = 'plum'")
    follow("delete", "1 row")
    runner.compact(stock, full=True)
    follow("compact", "nothing but files changed")
    changes = pa.concat_tables(received)
    rows: dict[str, object] = {}
    for each in changes.to_pylist():
        if each["rowkind"] in ("+I", "+U"):
            rows[each["item"]] = each["pieces"]
        else:
            rows.pop(each["item"], None)
    same = rows == {each["item"]: each["pieces"] for each in stock.to_arrow().to_pylist()}
    steps.append(("compare", f"the changes add up to the {pluralize(stock.count(), 'row')} of the table: {same}"))
    return _Stock(stock, steps, changes, same)


# ------------------------------------------------------------------------------------------------ streams


def _run_streams(lake: Lake) -> StreamStory:
    from tidelake.cli.demo_stream import run_streams

    return run_streams(lake)


# ------------------------------------------------------------------------------------------------ output


def _as_json(
    orders: _Orders, customers: _Customers, stock: _Stock, streams: StreamStory | None, runner: _Runner, *, folder: str
) -> None:
    table, keyed = orders.table, customers.table
    print_json(
        {
            "lake": folder,
            "engine": runner.name,
            "snapshots": table.inspect.snapshots().to_pylist(),
            "manifests": table.inspect.manifests().to_pylist(),
            "partitions": table.inspect.partitions().to_pylist(),
            "rows": table.count(),
            "ok": table.check(deep=True).ok,
            "customers": {
                "rows": keyed.count(),
                "levels_before": customers.before.to_pylist(),
                "levels_after": keyed.inspect.lsm().to_pylist(),
                "same_rows": customers.same,
                "ok": keyed.check(deep=True).ok,
            },
            "stock": {
                "rows": stock.table.count(),
                "changes": stock.changes.to_pylist(),
                "same_rows": stock.same,
                "ok": stock.table.check(deep=True).ok,
            },
            "streams": None
            if streams is None
            else {
                "orders": streams.orders.count(),
                "customers": streams.totals.count(),
                "killed": streams.killed,
                "same_totals": streams.same,
                "ok": streams.orders.check(deep=True).ok and streams.totals.check(deep=True).ok,
            },
        }
    )


def _show_steps(steps: list[tuple[str, str]]) -> None:
    import pyarrow as pa

    rows = pa.table({"step": [step for step, _ in steps], "what happened": [text for _, text in steps]})
    show_table(rows, title="what was done", as_json=False, boxed=True)


def _show_orders(story: _Orders) -> bool:
    orders = story.table
    _show_steps(story.steps)
    columns = ["snapshot_id", "schema_id", "commit_kind", "operation", "total_record_count", "delta_record_count"]
    show_table(orders.inspect.snapshots(), title="snapshots", as_json=False, columns=columns, boxed=True)
    columns = ["partition", "record_count", "file_size_in_bytes", "file_count"]
    show_table(orders.inspect.partitions(), title="partitions", as_json=False, columns=columns, boxed=True)
    where = f"dt = '{_DAYS[0]}' AND id < 12"
    show_table(orders.to_arrow(where=where, limit=5), title=f"rows with {where}", as_json=False, whole=True, boxed=True)
    old = orders.at(snapshot=1).to_arrow(where=where, limit=5)
    show_table(old, title="the same at snapshot 1", as_json=False, whole=True, boxed=True)
    say(f"last commit: {result_text(story.compacted)}")
    return _show_check(orders)


def _show_customers(story: _Customers) -> bool:
    customers = story.table
    _show_steps(story.steps)
    say(f"Why customer {_WATCHED} shows what it shows, before the compaction:")
    _say_lines(story.why_before)
    show_table(story.before, title="levels before the compaction", as_json=False, columns=_LEVELS, boxed=True)
    say("A read merges every run that may hold a key. A compaction merges them once, so that reads need not.")
    after = customers.inspect.lsm()
    show_table(after, title="levels after the compaction", as_json=False, columns=_LEVELS, boxed=True)
    _say_lines(story.why_after)
    show_table(story.watched, title="rows with id in (1, 42, 43)", as_json=False, whole=True, boxed=True)
    return _show_check(customers) and story.same


def _show_stock(story: _Stock) -> bool:
    _show_steps(story.steps)
    show_table(story.changes, title="what the consumer got", as_json=False, whole=True, boxed=True)
    return _show_check(story.table) and story.same


def _show_streams(story: StreamStory) -> bool:
    _show_steps(story.steps)
    largest = story.totals.to_arrow(order_by=[("amount", "desc")], limit=3)
    show_table(largest, title="the largest totals", as_json=False, whole=True, boxed=True)
    return _show_check(story.orders) and _show_check(story.totals) and story.same


def _show_check(table: Table) -> bool:
    report = table.check(deep=True)
    show_report(report, as_json=False)
    return report.ok


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        say(f"  {line}")


def _next(path: str, *, kept: bool) -> None:
    say(f"The lake is kept in {path}. Try next:" if kept else "Try it yourself; first keep the lake of this demo:")
    if not kept:
        say(f"  tidelake demo --path {path}")
    for line in (
        f"tidelake -w {path} head shop.customers --where 'visits > 1'",
        f"tidelake -w {path} lsm shop.customers --at 8          # the levels as they were",
        f"tidelake -w {path} why shop.customers --key id=42",
        f"tidelake -w {path} update shop.orders --set \"status = 'sent'\" --where 'id < 3' --plan",
        f"tidelake -w {path} tag create shop.orders today",
        f"tidelake -w {path} follow shop.stock --start earliest --until latest",
    ):
        say(f"  {line}")
    say("and in Python: docs/guide/quick-start.md, docs/guide/primary-key-tables.md, docs/guide/spark.md")
