"""Write the pages made from the code: options, procedures, error codes and the listing of public signatures.

`python scripts/make_docs.py` writes them, `--check` only tells which are out of date (exit code 1). A test does the
same, so a signature, an option or an error code cannot change without its page.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

import tidelake
from tidelake import errors
from tidelake.options import OptionGroup
from tidelake.options.capabilities import Capability, Honoured, WithoutEffect

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidelake"
MADE = "<!-- made by `make docs`; do not edit -->"

OPTIONS_TEXT = """
Options are set when a table is made (`options=`), changed with `alter(set_options=)`, or given for one use with
`with_options`. Values are texts, numbers or truth values. Every key of the format is listed. The last column says
what tidelake does with it:

* **honoured** by the verbs that are named, with our wording and default (*maintenance* is compaction, expiry, tags and
  checks).
* **refused**: `create_table`, `alter` and `with_options` fail with `UnsupportedError` (`option-unsupported`) unless the
  value asks for nothing. A table that another writer made with it opens, and is read unless *read* is named too; a
  commit to it fails where *write* is named, and else warns of what it leaves undone.
* **no effect**: kept in the table for other engines; the sentence says why nothing is lost.

*fixed* options cannot change once a table has snapshots. A key that nobody knows is kept with a warning that names
the nearest known one.
"""
PROCEDURES_TEXT = """
Verbs of tables under the names, arguments and result columns of Apache Paimon's `CALL sys.<name>(...)`:

```python
lake.call("create_tag", table="shop.orders", tag="monthly")            # an Arrow table with the result columns
lake.call("compact", "shop.orders", partitions="dt=2026-11-15;dt=2026-11-16")
lake.procedures()                                                      # this page as an Arrow table
```

```
tidelake -w lake call                                                  # lists them
tidelake -w lake call create_tag table=shop.orders tag=monthly
tidelake -w lake call expire_snapshots table=shop.orders retain_min=5 --plan
```

Arguments are given by name, in any case, or by position in the order of the tables below. From Python a call deletes
at once; the command line shows its plan and asks, or takes `--yes`.

* **names** are separated by commas, or a list.
* **partitions** are `k1=v1,k2=v2` with `;` between several, or a list of mappings; a part of the columns is enough. The
  value `__DEFAULT_PARTITION__` (the option `partition.default-name`) stands for null.
* **options** are `k1=v1,k2=v2`, or a mapping, and hold for the call alone.
* **past time** is a local time such as `2026-11-15 12:00:00`, or how long ago it was, such as `7 d`; a **moment** is a
  local time, or milliseconds since 1970. Both may be a datetime. A **duration** is such as `1 d`.

These are all procedures of Paimon's Spark connector. The last ones are not supported: calls are refused with a reason.
"""

RETURNED = (
    "tidelake.catalog.lake.Lake",
    "tidelake.table.Table",
    "tidelake.table.views.View",
    "tidelake.table.system.SystemTable",
    "tidelake.table.Inspect",
    "tidelake.table.TableWrite",
    "tidelake.table.TableCommit",
    "tidelake.query.Scan",
    "tidelake.ops.commit.messages.CommitResult",
    "tidelake.ops.commit.messages.CommitMessage",
    "tidelake.ops.maintain.check.CheckReport",
    "tidelake.ops.maintain.check.Finding",
    "tidelake.ops.compact.table.CompactionPlan",
    "tidelake.ops.compact.dedicated.Round",
    "tidelake.ops.compact.dedicated.CompactionSummary",
    "tidelake.table.several.CompactedTables",
    "tidelake.table.several.CompactedTable",
    "tidelake.table.merge_builder.Merge",
    "tidelake.ops.change.merge.MergeResult",
    "tidelake.ops.change.merge.MergePlan",
    "tidelake.ops.write.rescale.RescalePlan",
    "tidelake.ops.scan.split.Split",
    "tidelake.spec.schemas.schema.Schema",
    "tidelake.spec.types.data_types.Field",
    "tidelake.spec.documents.snapshot.Snapshot",
)
"""Classes whose objects a user holds, whether or not the package exports them."""

PROTOCOLS = ("__arrow_c_stream__", "__arrow_c_array__", "__contains__", "__iter__", "__len__", "_repr_html_")


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    return {
        ROOT / "docs" / "options.md": options_page(),
        ROOT / "docs" / "procedures.md": procedures_page(),
        ROOT / "docs" / "error-codes.md": error_codes_page(),
        ROOT / "docs" / "public-api.txt": public_api(),
    }


# ---------------------------------------------------------------------------------------------------------- options


def options_page() -> str:
    """The reference of table options: what the format knows, and what tidelake does with each."""
    from tidelake.options import all_options
    from tidelake.options.capabilities import all_capabilities
    from tidelake.options.catalogue import FAMILY_ENTRIES, KNOWN, OLD_SPELLINGS

    ours = {spec.key: spec for spec in all_options(_option_groups())}
    stands = all_capabilities(ours.values())
    lines = ["# Table options", "", MADE, *OPTIONS_TEXT.splitlines()]
    sections: dict[str, list[str]] = {}
    for key, entry in KNOWN.items():
        spec = ours.get(key)
        default = (spec.default_text if spec else None) or entry.default
        doc = spec.doc if spec else entry.doc
        notes = _stand(stands[key])
        fixed = " *fixed*" if entry.immutable or (spec is not None and spec.immutable) else ""
        row = f"| `{key}` | {entry.type_name} | {_code(default)} | {_cell(doc)}{fixed} | {notes} |"
        sections.setdefault(entry.section, []).append(row)
    for key, spec in ours.items():
        if key not in KNOWN:
            default, notes = _code(spec.default_text), _stand(stands[key])
            row = f"| `{key}` | {spec.type_name} | {default} | {_cell(spec.doc)} | {notes} |"
            sections.setdefault("Of tidelake alone", []).append(row)
    for section, rows in sections.items():
        lines += [
            "",
            f"## {section}",
            "",
            "| key | type | default | meaning | tidelake |",
            "|---|---|---|---|---|",
            *rows,
        ]
    lines += ["", "## Keys with a free part", "", "| key | default | meaning |", "|---|---|---|"]
    lines += [f"| `{each.shape}` | {_code(each.default)} | {_cell(each.doc)} |" for each in FAMILY_ENTRIES]
    lines += ["", "## Older spellings", "", "| key | now |", "|---|---|"]
    lines += [f"| `{old}` | `{new}` |" for old, new in sorted(OLD_SPELLINGS.items())]
    return "\n".join(lines) + "\n"


def _option_groups() -> list[type[OptionGroup]]:
    """The groups that the package declares, without those of tests that may have been imported too."""
    groups = []
    for path in sorted(SOURCE.rglob("*.py")):
        if "testing" in path.parts or "(OptionGroup):" not in path.read_text():
            continue
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        found = vars(importlib.import_module(name)).values()
        groups += [each for each in found if inspect.isclass(each) and issubclass(each, OptionGroup)]
    return [each for each in dict.fromkeys(groups) if each is not OptionGroup and each.listed]


def _stand(capability: Capability) -> str:
    """What tidelake does with an option, in a cell of the page."""
    if isinstance(capability, WithoutEffect):
        return f"no effect. {_cell(capability.reason)}"
    verbs = ", ".join(each.value for each in capability.verbs)
    if isinstance(capability, Honoured):
        return f"honoured: {verbs}"
    return f"refused ({verbs}): {_cell(capability.reason)}"


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# ---------------------------------------------------------------------------------------------------------- procedures


def procedures_page() -> str:
    """The reference of procedures: arguments and result columns of each."""
    from tidelake.procedures.registry import PROCEDURES

    lines = ["# Procedures", "", MADE, *PROCEDURES_TEXT.splitlines()]
    lines += ["", "| procedure | what it does |", "|---|---|"]
    supported = [each for each in PROCEDURES.values() if not each.refusal]
    refused = [each for each in PROCEDURES.values() if each.refusal]
    lines += [f"| [{each.name}](#{each.name}) | {_cell(each.doc)} |" for each in supported]
    lines += ["", "A call of one of these fails with `UnsupportedError`:", "", "| procedure | why |", "|---|---|"]
    lines += [f"| [{each.name}](#{each.name}) | {_cell(each.refusal)} |" for each in refused]
    for each in (*supported, *refused):
        asks = " The command line shows its plan and asks first." if each.preview else ""
        asks += f" **Not supported:** {_cell(each.refusal)}." if each.refusal else ""
        lines += ["", f"## {each.name}", "", each.doc + asks, ""]
        lines += ["| argument | kind | default | meaning |", "|---|---|---|---|"]
        lines += [f"| `{one.name}` | {one.kind.name} | {_default(one)} | {_cell(one.doc)} |" for one in each.arguments]
        columns = ", ".join(f"`{field.name}` {field.type}" for field in each.columns)
        lines += ["", f"Result: {columns}"]
    return "\n".join(lines) + "\n"


def _default(argument: Any) -> str:
    if argument.required:
        return "*required*"
    match argument.default:
        case None:
            return ""
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case timedelta() as span:
            return f"`{span.days} d`"
        case other:
            return f"`{other}`"


# ---------------------------------------------------------------------------------------------------------- errors


def error_codes_page() -> str:
    """Every error code that the sources name, with its class and the sentences it comes with."""
    found: dict[tuple[str, str], set[str]] = {}
    trees = [ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py")) if "testing" not in path.parts]
    constants = dict(each for tree in trees for each in _text_constants(tree))
    for tree in trees:
        for name, code, message in _raised(tree, constants):
            found.setdefault((code, name), set()).add(message)
    classes: list[type[errors.TidelakeError]] = [getattr(errors, name) for name in errors.__all__]
    lines = [
        "# Error codes",
        "",
        MADE,
        "",
        "`error.code` is stable; the wording is not. Without a finer code an error has that of its class:",
        "",
        "| class | code |",
        "|---|---|",
        *(f"| `{each.__name__}` | `{each.default_code}` |" for each in classes),
        "",
        "| code | class | said when |",
        "|---|---|---|",
    ]
    for (code, name), messages in sorted(found.items()):
        lines.append(f"| `{code}` | `{name}` | {_cell('; '.join(sorted(messages)))} |")
    return "\n".join(lines) + "\n"


def _text_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The module-level names with a text as value: some codes are raised in one module and handled in another."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield target.id, value.value


def _raised(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        given = {each.arg: each.value for each in node.keywords}
        code = given.get("code")
        text = constants.get(code.id) if isinstance(code, ast.Name) else getattr(code, "value", None)
        if name in errors.__all__ and isinstance(text, str):
            yield name, text, _message(node.args[0]) if node.args else ""


def _message(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return "…"


# ---------------------------------------------------------------------------------------------------------- signatures


def public_api() -> str:
    """What a user can call, one signature a line."""
    blocks = ["Public names with their signatures, made by `make docs`. A change here is a change for users.\n"]
    for name in tidelake.__all__:
        value = getattr(tidelake, name)
        if inspect.isclass(value) and issubclass(value, errors.TidelakeError):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            blocks.append(f"tidelake.{name}({bases})  code {value.default_code}\n")
        elif inspect.isfunction(value):
            blocks.append(f"tidelake.{name}{_signature(value)}\n")
        elif not inspect.isclass(value):
            blocks.append(f"tidelake.{name}: {type(value).__name__}\n")
    for where in RETURNED:
        module, _, name = where.rpartition(".")
        blocks.append("\n" + "\n".join(_class(where, getattr(importlib.import_module(module), name))) + "\n")
    blocks.append("\n" + "\n".join(_commands()) + "\n")
    return "".join(blocks)


def _class(where: str, cls: type) -> Iterator[str]:
    yield f"class {where}"
    fields: Mapping[str, Any] = getattr(cls, "__dataclass_fields__", {})
    for name in fields:
        if not name.startswith("_"):
            yield f"    {name}: {fields[name].type}"
    ours = [each for each in reversed(cls.__mro__) if each.__module__.startswith("tidelake.table")] or [cls]
    members = {name: member for each in ours for name, member in vars(each).items()}
    for name, member in sorted(members.items()):
        if (name.startswith("_") and name not in PROTOCOLS) or name in fields:
            continue
        if isinstance(member, property):
            yield f"    {name} -> {_annotation(inspect.signature(member.fget).return_annotation)}"  # type: ignore[arg-type]
        elif isinstance(member, classmethod | staticmethod):
            yield f"    {name}{_signature(member.__func__)}"
        elif inspect.isfunction(member):
            yield f"    {name}{_signature(member)}"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parts: list[str] = []
    last = None
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and last not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            parts.append("*")
        if last is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            parts.append("/")
        last = each.kind
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{star}{each.name}{kind}{default}")
    return f"({', '.join(parts)}) -> {_annotation(signature.return_annotation)}"


def _annotation(value: Any) -> str:
    if value is inspect.Signature.empty:
        return "?"
    return value if isinstance(value, str) else inspect.formatannotation(value)


def _commands() -> Iterator[str]:
    from tidelake.cli.commands import cli

    for name, command in _leaves(cli):
        words = []
        for each in command.params:
            if isinstance(each, click.Argument):
                words.append(each.make_metavar(click.Context(command)))
            elif isinstance(each, click.Option):
                words.append(f"[{'|'.join(each.opts)}]")
        yield f"tidelake {name} {' '.join(words)}"


def _leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell which pages are out of date")
    check = parser.parse_args().check
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        sys.stdout.write(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}\n")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
