"""How things look in a notebook and a debugger: small, on one line, and nothing a table holds becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tidelake as tl
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.maintain.check import CheckReport, Finding, Severity

HOSTILE = "<script>alert('x')</script>\x1b[31m\u202e\n&amp;\""
TAGS = {"div", "b", "i", "table", "tr", "th", "td", "pre"}


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: list[object] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(html: str) -> _Tags:
    tags = _Tags(html)
    assert tags.seen <= TAGS
    assert tags.attributes == []
    assert "\x1b" not in html
    assert "\u202e" not in html
    return tags


@pytest.fixture
def table(tmp_path: Path) -> tl.Table:
    return tl.connect(tmp_path / "lake").create_table(
        "shop.orders", {"id": "INT", HOSTILE: "STRING"}, comment=HOSTILE, partition_by=["id"]
    )


def test_plain_text_stays_on_one_line_and_cannot_steer_a_terminal() -> None:
    assert plain("a b ü 日") == "a b ü 日"
    assert plain("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
    assert plain("x" * 300, limit=10) == "x" * 9 + "…"


def test_html_escapes_cells_titles_and_facts() -> None:
    html = html_card(HOSTILE, [(HOSTILE, HOSTILE), ("left out", None)], html_table([HOSTILE], [[HOSTILE]]))
    tags = assert_harmless(html)
    assert tags.text.count("<script>") == 5
    assert "left out" not in html
    assert html_table(["a"], []) == ""


def test_a_table_shows_columns_comment_size_and_last_commit(table: tl.Table) -> None:
    assert "empty" in table._repr_html_()
    table.write([{"id": 1, HOSTILE: "v"}], commit_user=None)
    tags = assert_harmless(table._repr_html_())
    assert "<script>alert" in tags.text
    for wanted in ("shop.orders", "partitioned by", "rows", "APPEND by", "INT", "snapshot 1"):
        assert wanted in tags.text


def test_the_repr_of_a_table_is_one_printable_line(table: tl.Table) -> None:
    assert repr(table).isprintable()
    assert repr(table).startswith("Table(shop.orders: id INT")
    assert repr(table).endswith("partitioned by (id), empty)")


def test_secrets_among_the_options_are_not_shown(tmp_path: Path) -> None:
    made = tl.connect(tmp_path).create_table("a.b", {"id": "INT"})
    with pytest.warns(UserWarning, match="not known"):
        shown = made.with_options({"fs.s3.secret-key": "hush"})
    assert "hush" not in shown._repr_html_()
    assert "***" in shown._repr_html_()


def test_a_table_is_shown_even_if_its_storage_fails(table: tl.Table) -> None:
    from dataclasses import replace

    from tidelake.store.snapshots import SnapshotStore

    class Broken(SnapshotStore):
        def latest_id(self) -> int | None:
            raise tl.StorageError("storage is away")

        latest = latest_id  # type: ignore[assignment]

    broken = replace(table, store=replace(table.store, snapshots=Broken(table.store.env.io, table.store.layout)))
    assert "storage is away" in repr(broken)
    assert "storage is away" in broken._repr_html_()


def test_a_lake_lists_its_databases(table: tl.Table, tmp_path: Path) -> None:
    lake = tl.connect(tmp_path / "lake")
    assert "shop" in assert_harmless(lake._repr_html_()).text
    assert repr(lake) == f"Lake({tmp_path / 'lake'})"


def test_a_scan_shows_its_plan_and_hides_nothing_behind_markup(table: tl.Table) -> None:
    table.write([{"id": 1, HOSTILE: "v"}])
    scan = table.scan(where="id = 1", limit=3)
    tags = assert_harmless(scan._repr_html_())
    assert "read shop.orders at snapshot 1" in tags.text
    assert repr(scan).isprintable()
    assert "limit 3" in repr(scan)


def test_a_scan_that_cannot_be_planned_shows_why(table: tl.Table) -> None:
    table.write([{"id": 1, HOSTILE: "v"}])
    scan = table.scan()
    for path in Path(table.location).rglob("manifest-list-*"):
        path.unlink()
    fresh = tl.open_table(table.location).scan()
    assert scan.columns == fresh.columns
    assert "Scan(orders" in assert_harmless(fresh._repr_html_()).text


def test_a_commit_result_tells_what_it_did(table: tl.Table) -> None:
    done = table.write([{"id": 1, HOSTILE: "v"}])
    assert "snapshot 1" in assert_harmless(done._repr_html_()).text
    assert "already committed" in CommitResult(repeated=True)._repr_html_()
    assert "nothing to do" in CommitResult()._repr_html_()
    told = assert_harmless(CommitResult(snapshot_ids=(1,), warnings=(HOSTILE,), compaction_lost=True)._repr_html_())
    assert "<script>" in told.text
    assert "conflict" in CommitResult(snapshot_ids=(1,), compaction_lost=True)._repr_html_()


def test_a_report_shows_its_findings_and_its_repr_stays_short(table: tl.Table) -> None:
    findings = tuple(Finding("I2", Severity.ERROR, HOSTILE, HOSTILE) for _ in range(3))
    report = CheckReport(HOSTILE, 1, 2, findings, tuple(map(str, range(10_000))))
    tags = assert_harmless(report._repr_html_())
    assert len(re.findall("I2", tags.text)) == 3
    assert len(repr(report)) < 200
    assert repr(report).isprintable()
    assert all(line.isprintable() for line in str(report).split("\n"))
    assert "3 errors" in repr(report)
    assert "ok" in repr(table.check())
