"""What fails after a commit is a warning of its result, whoever is told: callers, the command line, notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidelake as tl
from kit.command_line import run
from tidelake.errors import CommitConflictError
from tidelake.io.memory import MemoryFileIO
from tidelake.io.posix import RealPosix
from tidelake.ops.commit.messages import Committable
from tidelake.ops.commit.outcome import CommitOutcome
from tidelake.ops.hooks import after_commit
from tidelake.ops.hooks.committers import open_committer
from tidelake.store.snapshots import SnapshotStore


def published() -> CommitOutcome:
    """What is known of a commit that made snapshot 7."""
    return CommitOutcome([SimpleNamespace(id=7)])


def follow(outcome: CommitOutcome, what: str, act) -> CommitOutcome:
    with outcome.warn_on_failure(what):
        act()
    return outcome


def failing(error: BaseException):
    def act(*_: object, **__: object) -> None:
        raise error

    return act


@pytest.mark.parametrize("error", [OSError(28, "disk is full"), MemoryError(), ZeroDivisionError("x"), KeyError("k")])
def test_every_exception_after_a_commit_is_a_warning(error: Exception) -> None:
    (warning,) = follow(published(), "expiring snapshots", failing(error)).warnings
    assert warning.startswith("committed, but expiring snapshots failed: ")
    assert (str(error) or type(error).__name__) in warning


def test_a_commit_that_made_nothing_raises_what_fails() -> None:
    with pytest.raises(MemoryError):
        follow(CommitOutcome(), "anything", failing(MemoryError()))


def test_another_job_at_the_same_work_is_not_worth_a_warning() -> None:
    assert not follow(published(), "expiring tags", failing(CommitConflictError("others were faster"))).warnings


def test_an_interrupt_after_a_commit_names_its_snapshot_once() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        follow(published(), "a", lambda: follow(published(), "b", failing(KeyboardInterrupt())))
    assert raised.value.__notes__ == ["the commit is published as snapshot 7: do not repeat it"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tl.Table:
    """A table with one row, whose snapshots cannot expire any more."""
    made = tl.connect(str(tmp_path)).create_table("db.t", {"id": "INT NOT NULL", "n": "INT"}, primary_key=["id"])
    made.write([{"id": 1, "n": 1}])
    monkeypatch.setattr(after_commit, "plan_expire", failing(RuntimeError("no more room")))
    return made


def test_every_verb_tells_what_failed_after_it(table: tl.Table) -> None:
    merge = table.merge([{"id": 1, "n": 9}], on=["id"]).when_matched_update({"n": "t.n + s.n"})
    results = [
        table.write([{"id": 2, "n": 2}]),
        table.write([{"id": 1, "n": 1}], "overwrite"),
        table.update({"n": "n + 1"}, "id = 1"),
        merge.run(),
        table.delete("id = 1"),
        table.new_commit().commit(_prepared(table)),
        table.truncate(),
    ]
    for result in results:
        assert result.warnings == ("committed, but expiring snapshots failed: no more room",)
    assert "no more room" in results[3]._repr_html_()


def _prepared(table: tl.Table):
    write = table.new_write()
    write.write([{"id": 5, "n": 5}])
    return write.prepare_commit()


def test_commands_print_warnings_to_stderr_put_them_into_json_and_exit_0(table: tl.Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,n\n3,3\n")
    warning = "committed, but expiring snapshots failed: no more room"
    for words in (["write", "db.t", str(file)], ["update", "db.t", "--set", "n=4", "--where", "id = 3", "--yes"]):
        done = run("-w", str(tmp_path), *words)
        assert (done.exit_code, done.stderr) == (0, f"warning: {warning}\n"), words
        assert warning not in done.stdout
    done = run("-w", str(tmp_path), "delete", "db.t", "--where", "id = 3", "--yes", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["warnings"] == [warning]
    assert warning in done.stderr
    assert table.count() == 1


# ------------------------------------------------------------------------------------------------ while publishing


def _interrupted_write(table: tl.Table) -> list[str]:
    with pytest.raises(KeyboardInterrupt) as raised:
        table.write([{"id": 2, "n": 2}])
    return list(getattr(raised.value, "__notes__", ()))


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("published", [False, True])
def test_an_interrupt_inside_the_link_of_a_snapshot_is_settled_by_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    table = tl.connect(str(tmp_path)).create_table("db.t", {"id": "INT NOT NULL", "n": "INT"}, primary_key=["id"])
    table.write([{"id": 1, "n": 1}])
    before, link = _files(tmp_path), RealPosix.link

    def interrupt(self: RealPosix, source: str, target: str) -> None:
        if published:
            link(self, source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(RealPosix, "link", interrupt)
    notes = _interrupted_write(table)
    if published:
        assert notes == ["the commit is published as snapshot 2: do not repeat it"]
        assert table.count() == 2
        assert table.check().ok
    else:
        assert (notes, _files(tmp_path)) == ([], before)


@pytest.mark.parametrize("synchronous", [False, True])
def test_where_a_request_may_outlive_an_interrupt_nothing_is_removed(
    monkeypatch: pytest.MonkeyPatch, synchronous: bool
) -> None:
    table = tl.connect("memory://").create_table("db.t", {"id": "INT NOT NULL", "n": "INT"}, primary_key=["id"])
    table.write([{"id": 1, "n": 1}])
    monkeypatch.setattr(MemoryFileIO, "is_synchronous", synchronous)
    monkeypatch.setattr(SnapshotStore, "publish", failing(KeyboardInterrupt()))
    notes = _interrupted_write(table)
    monkeypatch.undo()
    assert bool(table.check().orphans) is not synchronous
    assert bool(notes) is not synchronous
    if notes:
        assert "check whether it exists before you repeat the commit" in notes[0]


# ------------------------------------------------------------------------------------------------ who runs the hooks


def test_whoever_opens_a_committer_gets_what_follows_a_commit(table: tl.Table) -> None:
    committer = open_committer(table.context)
    for done in (committer.commit(Committable(messages=tuple(_prepared(table)))), committer.truncate()):
        assert done.warnings == ("committed, but expiring snapshots failed: no more room",)
    quiet = open_committer(table.context, expires=False)
    assert not quiet.commit(Committable(messages=tuple(_prepared(table)))).warnings


def test_a_commit_that_makes_no_snapshot_is_followed_by_nothing(table: tl.Table) -> None:
    first = table.write([{"id": 9, "n": 9}], commit_user="u", identifier=1)
    again = table.write([{"id": 9, "n": 9}], commit_user="u", identifier=1)
    assert (len(first.warnings), again.warnings, again.repeated) == (1, (), True)


def test_an_interrupt_in_a_hook_names_the_snapshot_and_leaves_its_files(
    table: tl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_commit, "plan_expire", failing(KeyboardInterrupt()))
    assert _interrupted_write(table) == ["the commit is published as snapshot 2: do not repeat it"]
    assert table.count() == 2
    assert table.check().ok
