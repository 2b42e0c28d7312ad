"""Random sequences of operations on two copies of a table, one done by tidelake and the other by the real Paimon.

At each step of a plan one of the two implementations works on the first copy and the other on the second, by turns, so
that each also goes on from what the other left. After each step both read both copies: four reads, and all of them
show the same rows. Reads of the past are of each copy alone: its snapshots are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import oracle
import tidelake as tl
from compat.actors import encoded, our_rows
from compat.java_values import to_batch
from compat.sequence_plans import Condition, Layout, Plan, Step, draw_plan
from tidelake.spec.schemas import evolution
from tidelake.table import Table

__all__ = ["run_sequence"]

Rows = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the table, as both open it."""

    layout: Layout
    lake: tl.Lake
    catalog: oracle.Catalog

    @property
    def ours(self) -> Table:
        return self.lake.table("d.t")

    @property
    def theirs(self) -> oracle.Table:
        return self.catalog.table("d.t")

    # -------------------------------------------------------------------------------------------- tidelake

    def create_ours(self) -> None:
        table = self.layout
        how: dict[str, Any] = {"primary_key": table.keys, "partition_by": table.partitions, "options": table.options}
        self.lake.create_table("d.t", table.columns, **how)

    def do_ours(self, step: Step) -> None:
        table, argument = self.ours, step.argument
        match step.action:
            case "write":
                table.write(self._arrow(table, argument))
            case "overwrite":
                table.write(self._arrow(table, argument), mode="overwrite")
            case "overwrite dynamic":
                table.write(self._arrow(table, argument), mode="overwrite-dynamic")
            case "truncate":
                table.delete(tl.col("p") == argument)
            case "update":
                table.update({"v": tl.lit(argument[1])}, our_condition(argument[0]))
            case "merge":
                source = self._arrow(table, argument, kinds=False)
                found = table.merge(source, on="k").when_matched_update({"v": "s.v", "n": "s.n"})
                found.when_not_matched_insert().run()
            case "delete":
                table.delete(our_condition(argument))
            case "compact":
                table.compact(full=argument)
            case "add":
                table.alter(add=dict([argument]))
            case "grow":
                table.alter(evolution.AddColumn((argument, "z"), "INT"))
            case "rename":
                table.alter(rename=dict([argument]))
            case "drop":
                table.alter(drop=[argument])
            case "widen":
                table.alter(types=dict([argument]))
            case "tag":
                table.create_tag(argument)
            case "branch":
                tag, name, rows = argument
                branch = table.create_branch(name, tag)
                branch.write(self._arrow(branch, rows))
                table.fast_forward(name)
            case "rollback":
                table.rollback_to(tag=argument)
            case "expire":
                table.expire_snapshots(retain_max=argument, retain_min=1)

    def _arrow(self, table: Table, rows: Rows, *, kinds: bool = True) -> pa.Table:
        data = pa.Table.from_batches([to_batch([row for _, row in rows], table.schema.fields)])
        with_kinds = kinds and self.layout.keys
        return data.append_column("rowkind", pa.array([kind for kind, _ in rows])) if with_kinds else data

    # -------------------------------------------------------------------------------------------- Paimon

    def create_theirs(self) -> None:
        table = self.layout
        self.catalog.create_table("d.t", dict(table.columns), table.keys, table.partitions, dict(table.options))

    def do_theirs(self, step: Step) -> None:
        table, argument = self.theirs, step.argument
        match step.action:
            case "write":
                self._write_theirs(argument)
            case "overwrite":
                self._write_theirs(argument, {"dynamic-partition-overwrite": False}, overwrite={})
            case "overwrite dynamic":
                self._write_theirs(argument, {"dynamic-partition-overwrite": True}, overwrite={})
            case "update":
                condition, text = argument
                rows = [{**row, "v": text} for row in table.read() if condition.holds(row)]
                self._replace_theirs(table, condition.holds, rows)
            case "merge":
                source = {row["k"]: row for _, row in argument}
                found = [row for row in table.read() if row["k"] in source]
                rows = [{**row, "v": source[row["k"]]["v"], "n": source[row["k"]]["n"]} for row in found]
                rows += [source[key] for key in source.keys() - {row["k"] for row in found}]
                self._replace_theirs(table, lambda row: row["k"] in source, rows)
            case "truncate":
                table.truncate([{"p": argument}])
            case "delete":
                self._delete_theirs(table, argument)
            case "compact":
                table.compact(full=argument)
            case "add":
                table.alter(("add", *argument))
            case "grow":
                table.alter(("add", [argument, "z"], "INT"))
            case "rename":
                table.alter(("rename", *argument))
            case "drop":
                table.alter(("drop", argument))
            case "widen":
                table.alter(("type", *argument))
            case "tag":
                table.create_tag(argument)
            case "branch":
                tag, name, rows = argument
                table.create_branch(name, tag)
                self._write_theirs(rows, table=table.branch(name))
                table.fast_forward(name)
            case "rollback":
                table.rollback(argument)
            case "expire":
                table.expire_snapshots(retain_max=argument)

    def _write_theirs(self, rows: Iterable[Any], *how: Any, table: oracle.Table | None = None, **named: Any) -> None:
        table = table or self.theirs
        table.write(rows, *how, **named)
        if self.layout.options.get("changelog-producer") == "full-compaction":
            table.compact()  # what the sinks of its engines do, and ours does: the core leaves it to them

    def _delete_theirs(self, table: oracle.Table, condition: Condition) -> None:
        """Delete as an engine does on top of Paimon's core, which has no conditions of its own to delete by."""
        if not self.layout.removes:
            # Engines refuse it: Paimon goes on from what ours left.
            self.ours.delete(our_condition(condition))
        elif self.layout.keys:
            rows = [("-D", row) for row in table.read() if condition.holds(row)]
            if rows:
                self._write_theirs(rows)
        else:
            self._remove_theirs(table, condition.holds)

    def _remove_theirs(self, table: oracle.Table, gone: Callable[[dict[str, Any]], bool]) -> None:
        """Delete rows of an append table."""
        if "deletion-vectors.enabled" in self.layout.options:
            table.delete_marking(lambda row: not gone(row))
        else:
            table.rewrite(lambda row: not gone(row))

    def _replace_theirs(
        self, table: oracle.Table, gone: Callable[[dict[str, Any]], bool], rows: list[dict[str, Any]]
    ) -> None:
        """Put rows in the place of those that are gone: by their keys, or by deleting and appending."""
        if not self.layout.keys:
            self._remove_theirs(table, gone)
        if rows:
            self._write_theirs([("+U" if self.layout.keys else "+I", row) for row in rows])

    # -------------------------------------------------------------------------------------------- reads

    def read(self, step: Step) -> Mapping[str, list[str]]:
        """What both read after a step, or at the point in time that it names."""
        options: dict[str, Any] = {}
        match step.action:
            case "read tag":
                options = {"scan.tag-name": step.argument}
            case "read snapshot":
                options = {"scan.snapshot-id": self._snapshot(step.argument)["id"]}
            case "read moment":
                options = {"scan.timestamp-millis": self._snapshot(step.argument)["timeMillis"]}
        ours = self.ours.with_options(options) if options else self.ours
        if step.action == "find":
            found = our_rows(ours, where=our_condition(step.argument))
            condition = (step.argument.sign, step.argument.column, step.argument.value)
            return {"ours": encoded(found), "theirs": encoded(self.theirs.read(where=condition))}
        return {"ours": encoded(our_rows(ours)), "theirs": encoded(self.theirs.read(options=options))}

    def _snapshot(self, place: float) -> dict[str, Any]:
        found = self.theirs.snapshots()
        return dict(found[int(place * len(found))])


def our_condition(condition: Condition) -> Any:
    column, value = tl.col(condition.column), condition.value
    match condition.sign:
        case "=":
            return column == value
        case "<":
            return column < value
        case ">=":
            return column >= value
        case "in":
            return column.is_in(value)
    return column.is_null()


OF_ONE_COPY = ("read snapshot", "read moment")


def run_sequence(seed: int, folder: Path) -> None:
    """Draw a sequence and do it twice over; on a difference say the seed, the steps so far and how to replay them."""
    plan = draw_plan(seed)
    copies = [Copy(plan.layout, tl.connect(folder / each), oracle.Catalog(folder / each)) for each in ("one", "two")]
    copies[plan.turn].create_ours()
    copies[1 - plan.turn].create_theirs()
    for number, step in enumerate(plan.steps, 1):
        try:
            copies[step.turn].do_ours(step)
            copies[1 - step.turn].do_theirs(step)
            reads = [copy.read(step) for copy in copies]
        except Exception as error:
            raise AssertionError(_replay(plan, number, f"{type(error).__name__}: {error}")) from error
        groups = (
            reads
            if step.action in OF_ONE_COPY
            else [{f"{who} {n}": rows for n, read in enumerate(reads, 1) for who, rows in read.items()}]
        )
        for group in groups:
            first = next(iter(group.values()))
            assert all(read == first for read in group.values()), _replay(plan, number, _differences(group))
    for copy in copies:
        report = copy.ours.check(deep=True)
        assert report.ok, _replay(plan, len(plan.steps), str(report))


def _differences(reads: Mapping[str, list[str]]) -> str:
    """What not all of them show."""
    common = set.intersection(*map(set, reads.values()))
    return "\n".join(
        f"{who}: {len(rows)} rows, {[row for row in rows if row not in common]}" for who, rows in reads.items()
    )


def _replay(plan: Plan, number: int, found: str) -> str:
    replay = f"TIDELAKE_SEQUENCES={plan.seed}:{plan.seed + 1} pytest -m oracle tests/compat/test_sequences.py"
    steps = map(str, plan.steps[:number])
    return "\n".join([f"seed {plan.seed}; replay: {replay}", str(plan.layout), *steps, found])
